//! Changes seen within seconds.
//!
//! Events of the kernel (inotify(7)) are hints and nothing more: they say where to look, and the look says what is. An
//! event that was lost costs time until the next scan, never a wrong state. What cannot be judged by looking at single
//! paths leads to a scan.
//!
//! Refused: fanotify on whole filesystems, which sees every container's and every job's files as well and would have to
//! be told apart at their rate.

mod concern;
mod glimpse;
mod hints;
mod inotify;

pub use concern::{facts_concerned, is_worth_watching};
pub use glimpse::{Glimpse, glimpse};
pub use hints::{Batch, Change, Collector};
pub use inotify::{Armed, Heard, WatchError, WatchSet, Watcher};
