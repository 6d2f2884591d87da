//! Scans of real trees.

mod cache;
mod cases;
mod differences;
mod hostile;
mod mounts;
mod races;
mod size;
pub mod tree;
