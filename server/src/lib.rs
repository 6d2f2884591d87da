//! The appliance: boot plane, image store, agents' and people's interfaces, in one binary.

pub mod app;
pub mod boot_plane;
pub mod cli;
pub mod config;
pub mod http;
pub mod image;
pub mod metrics;
pub mod secret_file;
pub mod serve;
pub mod tasks;

pub use serve::serve;
