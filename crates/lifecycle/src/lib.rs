//! Node and deployment states, and how they follow from what is observed. Pure: no I/O, no clock.
//!
//! `step(state, observation)` says where a node goes next and why; the store applies it under a row lock, so that a
//! handler never writes a state of its own making. Every state has a time allowance: "stuck" is a query.

mod boot_order;
pub mod burn_in;
mod chain;
mod deployment;
mod node;
pub mod placement;
pub mod plan;
pub mod remediation;
pub mod rules;
pub mod why;

pub use boot_order::BootOrder;
pub use chain::Chain;
pub use deployment::{AttemptEnd, DeploymentState, attempt_failed};
pub use node::{NodeState, Observed, Step, step};
