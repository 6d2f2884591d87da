//! Repair: what an agent is asked to do, and what came of it.
//!
//! A job names *which* findings to repair and never *what* to put there: contents, modes, values and versions come from
//! the signed baseline that the agent holds itself. So whoever forges a job can at most bring a node closer to its
//! image. A step is refused when the thing differs in another way than it did when the job was made.

use manifest::Digest;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{JobId, NodeId};

/// A job as it travels: the signature is over the exact bytes of `job`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedJob {
    /// A [`Job`] as JSON.
    pub job: String,
    /// Signature of those bytes by the appliance's job key (minisign).
    pub signature: String,
}

/// What one node is asked to do, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The job.
    pub job_id: JobId,
    /// The only node that may carry it out.
    pub node_id: NodeId,
    /// The baseline it restores; a node that holds another one refuses.
    pub baseline: Digest,
    /// Never used twice: an agent that has seen it refuses.
    pub nonce: Uuid,
    /// Milliseconds since 1970, by the server's clock; later the agent refuses.
    pub not_after_unix_ms: u64,
    /// In this order.
    pub steps: Vec<RepairStep>,
}

/// One finding to repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RepairStep {
    /// Group hash of the finding.
    #[schema(value_type = String)]
    pub group: Digest,
    /// Variant hash it had when the job was made.
    #[schema(value_type = String)]
    pub variant: Digest,
    /// How.
    pub verb: Verb,
}

/// The closed set of things an agent does to its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum Verb {
    /// Make a path what the baseline says: type, content, link target, owner, mode, extended attributes.
    RestoreFile {
        /// Escaped path.
        path: String,
    },
    /// Take away a path that no manifest lists and no rule allows. A folder goes with all that is in it.
    RemoveAddedFile {
        /// Escaped path.
        path: String,
    },
    /// Set the running value of a sysctl to the baseline's.
    SetSysctl {
        /// Dotted key.
        key: String,
    },
    /// Restore or remove the file that sets another value at the next boot.
    PersistSysctl {
        /// Dotted key.
        key: String,
    },
    /// Bring a unit file's state to the baseline's: enable, disable, mask or unmask; what follows from it at once (a
    /// start, a stop) is done as well.
    SetUnit {
        /// Name of the unit.
        unit: String,
    },
    /// Put a package back to the image's version, from the image's own packs.
    ReinstallPackage {
        /// `name:architecture`.
        package: String,
    },
    /// Remove a package that the image does not have.
    RemovePackage {
        /// `name:architecture`.
        package: String,
    },
}

impl Verb {
    /// One word for tables and logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::RestoreFile { .. } => "restore_file",
            Self::RemoveAddedFile { .. } => "remove_added_file",
            Self::SetSysctl { .. } => "set_sysctl",
            Self::PersistSysctl { .. } => "persist_sysctl",
            Self::SetUnit { .. } => "set_unit",
            Self::ReinstallPackage { .. } => "reinstall_package",
            Self::RemovePackage { .. } => "remove_package",
        }
    }

    /// What it is done to.
    #[must_use]
    pub fn object(&self) -> &str {
        match self {
            Self::RestoreFile { path } | Self::RemoveAddedFile { path } => path,
            Self::SetSysctl { key } | Self::PersistSysctl { key } => key,
            Self::SetUnit { unit } => unit,
            Self::ReinstallPackage { package } | Self::RemovePackage { package } => package,
        }
    }
}

/// What came of a job. The proof is the scan that follows it, never this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum JobOutcome {
    /// Nothing was touched.
    Refused {
        /// Why, with what was found and expected.
        reason: String,
    },
    /// Every step was tried.
    Ran {
        /// In the job's order.
        steps: Vec<StepResult>,
    },
}

/// What came of one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StepResult {
    /// Group hash of the finding.
    #[schema(value_type = String)]
    pub group: Digest,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: StepOutcome,
}

/// What came of one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum StepOutcome {
    /// Done.
    Done {
        /// What exactly, for people.
        detail: String,
    },
    /// It was as it should be already.
    NothingToDo,
    /// Left alone: it differs in another way than when the job was made, or the baseline does not say how it should be.
    Refused {
        /// Why.
        reason: String,
    },
    /// Tried without success.
    Failed {
        /// Why.
        reason: String,
    },
}

/// Key of the keyed digests of secret files (`drift::secrets`): told over mTLS, kept by agents with mode 0600.
#[derive(Clone, Serialize, Deserialize)]
pub struct SecretDigestKey {
    /// 32 bytes, hexadecimal.
    pub key: String,
}

impl std::fmt::Debug for SecretDigestKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretDigestKey(…)")
    }
}
