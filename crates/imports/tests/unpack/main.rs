//! Roots from archives, images, folders and registries, as somebody who imports one sees them.
//!
//! Owners and attributes can only be set by root: without it the tests that unpack say nothing.

#![expect(clippy::unwrap_used, reason = "helpers of tests; a failure stops the test")]

mod folder;
mod hostile;
mod image;
mod layers;
mod real_registry;
mod registry;
mod space;
mod support;
mod tarball;
