//! The test kit itself, as tests use it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod database;
mod golden;
mod wait;
