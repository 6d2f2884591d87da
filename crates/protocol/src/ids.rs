//! Ids are types, never bare UUIDs.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Text that is no id of the expected kind.
#[derive(Debug, thiserror::Error)]
#[error("{kind} {text:?}: expected a UUID")]
pub struct ParseIdError {
    kind: &'static str,
    text: String,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A new id, ordered by time of making.
            #[must_use]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let wrong = |_| ParseIdError { kind: $kind, text: text.chars().take(80).collect() };
                text.parse().map(Self).map_err(wrong)
            }
        }
    };
}

id!(
    /// A machine's record.
    NodeId,
    "node id"
);
id!(
    /// One attempt to put an image version on a node.
    DeploymentId,
    "deployment id"
);
id!(
    /// One repair of one node: signed, pulled and carried out once.
    JobId,
    "job id"
);
id!(
    /// One burn-in of one node: tests that its deployer runs.
    BurnInId,
    "burn-in id"
);
id!(
    /// One building of an image from a recipe, as a job of the server.
    BuildId,
    "build id"
);
id!(
    /// A remediation: jobs for nodes, a few at a time, under limits.
    RunId,
    "remediation run id"
);
id!(
    /// An acknowledgement, waiver or acceptance.
    ReviewId,
    "review id"
);
