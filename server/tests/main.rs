//! The server from outside: its interfaces on a real PostgreSQL, its command line as people read it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod boot;
mod cli;
mod people;
