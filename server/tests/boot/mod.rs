//! The boot listener.

mod fairness;
mod orders;
mod ranges;
mod support;
mod wire;
