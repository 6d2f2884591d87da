//! The command line: what it prints, and how it ends.

mod program;
mod tables;
