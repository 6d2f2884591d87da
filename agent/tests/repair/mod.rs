//! Jobs on real trees: each verb, and what it must leave alone.

mod facts;
mod files;
pub mod node;
mod packages;
