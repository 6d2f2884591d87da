//! The agent: one static binary that commissions and installs in the deployer ramdisk and, on a running node, compares
//! the node with its baseline.
//!
//! It speaks only [`protocol`]; it holds no policy. What it finds it reports, what it could not look at it says.

pub mod api;
pub mod baseline;
pub mod deploy;
pub mod node;
pub mod probe;
pub mod ramdisk;
pub mod repair;
pub mod report;
pub mod scan;
pub mod service;
pub mod state;
pub mod watch;
