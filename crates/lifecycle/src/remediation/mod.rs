//! Repair within limits: what may be repaired, by which verb, and when each node's turn comes. Pure.
//!
//! Invariant: nothing here trusts a baseline blindly. A finding that stands on more than a fifth of a group says that
//! the baseline is wrong, not the fleet; it is held until a person has looked and released exactly that finding in
//! exactly that group. Everything that is not repaired is in the plan with the reason, so that "nothing left" is only
//! said when nothing is.

mod job;
mod limits;
mod plan;
mod turn;
mod verbs;

pub use job::{JobState, Observed as JobObserved, Step as JobStep, step as job_step};
pub use limits::Limits;
pub use plan::{Candidate, Held, HeldReason, NodePlan, NodeStanding, Plan, Selection, Standing, plan};
pub use turn::{Active, Waiting, next_turns};
pub use verbs::{NoVerb, verb_for};
