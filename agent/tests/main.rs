//! Tests of the agent as a whole.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod corpus;
mod deploy;
mod repair;
mod scan;
mod watch;
