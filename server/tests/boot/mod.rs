//! The boot listener.

mod architecture;
mod burn_ins;
mod fairness;
mod interfaces;
mod orders;
mod ranges;
mod support;
mod wire;
mod wires;
