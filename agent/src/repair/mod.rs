//! Repair: carrying out what the server signed, by what the baseline says.
//!
//! A job names findings and never contents, so all it can do is bring the node closer to its baseline. It runs once: its
//! nonce is on disk before the first step. Each step looks again before it touches anything and leaves alone what
//! differs in another way than the job was made for. Nothing is deleted: what is replaced or removed is kept for a week.
//!
//! Success is never concluded here: a fresh scan that began afterwards proves the job.

mod added;
mod contents;
mod dpkg;
mod file;
mod intake;
mod job;
mod ledger;
mod metadata;
mod package;
mod site;
mod sysctl;
mod undo;
mod unit;

pub use contents::{ContentSource, HttpContents};
pub use intake::{Holder, Refusal, judge};
pub use job::{Mend, run};
pub use ledger::{Known, Ledger};
pub use undo::Undo;
