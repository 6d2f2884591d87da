//! The profiles of this repository, on roots made of files.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod apply;
mod document;
mod evaluate;
mod profiles;
mod rules;
mod support;
