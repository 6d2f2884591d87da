//! The people's interface.

mod access;
mod channels;
mod discovery;
mod drift;
mod images;
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
