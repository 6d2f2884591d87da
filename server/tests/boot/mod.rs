//! The boot listener.

mod ranges;
mod support;
mod wire;
