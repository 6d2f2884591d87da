//! The command line: what it prints, and how it ends.

mod builds;
mod program;
mod tables;
