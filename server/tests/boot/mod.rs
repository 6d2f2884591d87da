//! The boot listener.

mod orders;
mod ranges;
mod support;
mod wire;
