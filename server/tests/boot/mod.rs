//! The boot listener.

mod burn_ins;
mod fairness;
mod orders;
mod ranges;
mod support;
mod wire;
