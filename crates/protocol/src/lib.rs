//! What the agent and the deployer say to the server, and what they hear.
//!
//! Wire types live in one module a version (`v1`, …); [`latest`] names the newest. To change a type incompatibly: copy
//! its module to the next version, change it there, keep the old one until no agent speaks it, and convert between
//! them in this crate. New optional fields with `#[serde(default)]` are compatible and need no new version. Unknown
//! fields are ignored by both sides, so that an older agent works with a newer server.
//!
//! All bodies are JSON over HTTPS on the agents' listener; only image data and the clock travel over plain HTTP.

mod ids;
pub mod limits;
pub mod v1;

pub use ids::{BuildId, BurnInId, DeploymentId, JobId, NodeId, ParseIdError, ReviewId, RunId};
pub use v1 as latest;
