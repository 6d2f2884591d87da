//! The store's tests against a real PostgreSQL, one program for all of them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cluster;
mod records;
