//! What tests share: a database per test on a real PostgreSQL, waits with a limit, golden files.
//!
//! *Idea.* A test gets a database of its own, copied from a template that has the migrations applied, on one
//! PostgreSQL that all tests of the checkout share. The first test that needs it starts it; a small supervisor stops
//! it a minute after the last test process is gone (see `server` for how it knows).
//!
//! *Invariant.* Nothing a test writes is seen by another, and nothing is left behind for long, however a test ends.
//!
//! *Refused.* A PostgreSQL per test: half a second and 40 MB each. A transaction rolled back at the end of a test: code
//! under test commits, listens and locks. A container: the product runs without one.

mod database;
mod golden;
mod server;
mod template;
mod wait;

pub use database::TestDatabase;
pub use golden::{GoldenError, golden, golden_compare};
pub use wait::{WaitError, wait_for, wait_for_some};
