//! Rules of the workspace that no compiler checks.

pub mod dependencies;
pub mod lengths;
