//! Comparing a node with its baseline; pure functions over values, no I/O.
//!
//! The agent compares and reports [`Difference`]s; the server groups them. "Could not look" is a type of its own all the
//! way ([`Observation`]), so that it can never be read as "no drift".

mod compare;
mod difference;
mod expected;
mod hash;
mod observation;
mod observed;
mod policy;
mod secrets;

pub use compare::{
    Content, DPKG_SHARED, FactFindings, Kind, Limits, Look, Outcome, Ownership, Sight, Step, TreeComparison,
    TreeFindings, compare_entry, compare_facts, fold_findings, unit_of_link,
};
pub use difference::{Attributes, Difference, FindingKind, Severity};
pub use expected::{Expected, ExpectedBuilder, ExpectedError, ExpectedFacts, Position};
pub use hash::{group_hash, state_digest, variant_hash};
pub use observation::Observation;
pub use observed::{
    ModuleState, ObservedDigest, ObservedEntry, ObservedFacts, ObservedKind, ObservedRules, ObservedXattrs,
    RuleProblem, Unknown,
};
pub use policy::{Change, KeyPattern, Policy, Rule};
pub use secrets::{SecretKey, is_secret, seal_secrets};
