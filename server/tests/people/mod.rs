//! The people's interface.

mod access;
mod discovery;
mod drift;
mod nodes;
mod openapi;
mod requests;
mod session;
mod support;

pub use support::{PASSWORD, Server};
