//! The people's interface.

mod access;
mod builds;
mod channels;
mod discovery;
mod drift;
mod images;
mod keys;
mod nodes;
mod openapi;
mod rack_plan;
mod remediation;
mod requests;
mod reviews;
mod rules;
mod session;
mod support;
mod web;

pub use support::{PASSWORD, Server};
