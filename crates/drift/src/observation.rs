//! The result of looking.

use serde::{Deserialize, Serialize};

use crate::Attributes;

/// What came of looking at one thing. Only [`Observation::Value`] and [`Observation::Absent`] say something about the
/// node; all others say that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "observation", rename_all = "snake_case")]
pub enum Observation {
    /// It is there and this is what it is.
    Value {
        /// Its attributes.
        attributes: Attributes,
    },
    /// It is certainly not there.
    Absent,
    /// This machine has no such thing (an API answers "not supported").
    Unsupported,
    /// Permission was refused.
    Denied,
    /// Reading failed.
    Error {
        /// The system's words.
        detail: String,
    },
    /// It changed while it was read, every time.
    Unstable,
    /// It did not answer in time.
    TimedOut,
    /// Nobody looked: an incomplete scan, a limit, a mount that hangs.
    NotScanned {
        /// Why.
        detail: String,
    },
}

impl Observation {
    /// Whether this says something about the node. `false` must never count as "no drift".
    #[must_use]
    pub const fn is_known(&self) -> bool {
        matches!(self, Self::Value { .. } | Self::Absent)
    }

    /// One word for tables and logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Value { .. } => "value",
            Self::Absent => "absent",
            Self::Unsupported => "unsupported",
            Self::Denied => "denied",
            Self::Error { .. } => "error",
            Self::Unstable => "unstable",
            Self::TimedOut => "timed_out",
            Self::NotScanned { .. } => "not_scanned",
        }
    }
}
