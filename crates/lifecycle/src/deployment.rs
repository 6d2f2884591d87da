//! States of a deployment.

use serde::{Deserialize, Serialize};

/// Where a deployment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeploymentState {
    /// Requested; no deployer has taken it up.
    Waiting,
    /// A deployer works on it.
    Running,
    /// Written and checked; the node starts from its disk.
    Installed,
    /// The installed system's first full scan has arrived.
    Verified,
    /// Given up; the reason says why.
    Failed,
}

impl DeploymentState {
    /// All states.
    pub const ALL: [Self; 5] = [
        Self::Waiting,
        Self::Running,
        Self::Installed,
        Self::Verified,
        Self::Failed,
    ];

    /// The name used everywhere outside this code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Installed => "installed",
            Self::Verified => "verified",
            Self::Failed => "failed",
        }
    }

    /// Reads the name back.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether it still holds the node.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Waiting | Self::Running)
    }
}

/// What follows from a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// The node may try again at its next boot.
    TryAgain,
    /// The deployment has failed.
    GiveUp,
}

/// Whether a deployment goes on after an attempt that ended without an outcome (power cut, lost node). An attempt the
/// deployer itself reports as failed is final: what it says (no such disk, damaged image) will not mend itself.
#[must_use]
pub const fn attempt_failed(attempt: u32, attempts_max: u32, reported_by_deployer: bool) -> AttemptEnd {
    if reported_by_deployer || attempt >= attempts_max {
        AttemptEnd::GiveUp
    } else {
        AttemptEnd::TryAgain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_limited() {
        assert_eq!(attempt_failed(1, 3, false), AttemptEnd::TryAgain);
        assert_eq!(attempt_failed(2, 3, false), AttemptEnd::TryAgain);
        assert_eq!(attempt_failed(3, 3, false), AttemptEnd::GiveUp);
        assert_eq!(attempt_failed(1, 3, true), AttemptEnd::GiveUp);
    }
}
