//! Comparing a node with its baseline; pure functions over values, no I/O.
//!
//! The agent compares and reports [`Difference`]s; the server groups them. "Could not look" is a type of its own all the
//! way ([`Observation`]), so that it can never be read as "no drift".

mod difference;
mod hash;
mod observation;

pub use difference::{Attributes, Difference, FindingKind, Severity};
pub use hash::{group_hash, state_digest, variant_hash};
pub use observation::Observation;
