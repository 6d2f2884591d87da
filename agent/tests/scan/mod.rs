//! Scans of real trees.

mod cache;
mod differences;
mod hostile;
mod mounts;
mod races;
mod size;
mod tree;
