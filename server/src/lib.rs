//! The appliance: boot plane, image store, agents' and people's interfaces, in one binary.

pub mod app;
pub mod config;
pub mod http;
pub mod image;
