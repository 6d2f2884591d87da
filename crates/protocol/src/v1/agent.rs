//! The agent on a running node: baseline, heartbeat, report.

use std::collections::BTreeMap;

use drift::{Difference, Observation};
use manifest::{Digest, PathClass};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{JobId, NodeId};

/// What one node should be. Later manifests win path by path; all are content-addressed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baseline {
    /// The node.
    pub node_id: NodeId,
    /// Image version.
    pub image: Digest,
    /// Agent layer.
    pub agent_layer: Digest,
    /// Rendered overlay.
    pub overlay: Digest,
    /// Names this combination: SHA-256 over `plumbline-baseline-v1` and the three digests.
    pub digest: Digest,
}

impl Baseline {
    /// A baseline and its digest.
    #[must_use]
    pub fn new(node_id: NodeId, image: Digest, agent_layer: Digest, overlay: Digest) -> Self {
        let mut hasher = manifest::Hasher::new();
        hasher.update(b"plumbline-baseline-v1\0");
        for part in [image, agent_layer, overlay] {
            hasher.update(part.as_bytes());
        }
        Self {
            node_id,
            image,
            agent_layer,
            overlay,
            digest: hasher.finish(),
        }
    }

    /// The manifests, weakest first.
    #[must_use]
    pub const fn layers(&self) -> [Digest; 3] {
        [self.image, self.agent_layer, self.overlay]
    }
}

/// "I am alive, and my state is still this."
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: Uuid,
    /// Counts up within a boot.
    pub sequence: u64,
    /// Digest of the baseline the agent holds; none before the first one arrived.
    pub baseline: Option<Digest>,
    /// Digest over the differences last reported; none before the first complete scan.
    pub state: Option<Digest>,
    /// Version of the agent.
    pub agent_version: String,
    /// Seconds since boot.
    pub uptime_secs: u64,
    /// Highest resident memory of the agent, in bytes.
    pub rss_max_bytes: u64,
    /// Node clock, milliseconds since 1970, so that skew is seen.
    pub unix_ms: u64,
    /// What came of the restart that the server asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<RestartAnswer>,
    /// Why the agent does not take the baseline that the server names: an image that is not signed as it must be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A restart into the network, which is carried out once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartOrder {
    /// The order's id.
    pub id: Uuid,
    /// MAC of the interface that it last booted from, lower case with colons; none: any of the machine's.
    pub boot_mac: Option<String>,
}

/// What an agent says of a restart that it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartAnswer {
    /// The restart's id.
    pub id: Uuid,
    /// Whether the machine restarts now.
    pub will_restart: bool,
    /// For people: how the network was chosen for the next start, or why not.
    pub detail: String,
}

/// Answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatReply {
    /// Digest of the baseline the node should hold; a different one is fetched.
    pub baseline: Digest,
    /// Seconds until the next heartbeat.
    pub next_secs: u64,
    /// The server lacks this node's state: send a full report.
    pub full_report: bool,
    /// Look now, whatever the timer says.
    pub scan_now: bool,
    /// A job waits to be pulled.
    #[serde(default)]
    pub job_waiting: bool,
    /// Restart into the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<RestartOrder>,
    /// Names what signatures are worth now; where the agent was told another name last, it asks ([`super::paths::TRUST`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<Digest>,
    /// Server clock, milliseconds since 1970.
    pub unix_ms: u64,
}

/// What was looked at in one scan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanSummary {
    /// Milliseconds since 1970 when it began (node clock).
    pub started_unix_ms: u64,
    /// How long it took.
    pub duration_ms: u64,
    /// Whether every root was walked to its end. "Removed" is only concluded where its root was.
    pub complete: bool,
    /// Each root by its mount point.
    pub roots: Vec<RootSummary>,
    /// Paths looked at, by class of the baseline (unlisted ones by their rule).
    pub entries_by_class: BTreeMap<PathClass, u64>,
    /// Facts compared: packages, units, sysctls, …, by kind.
    pub facts_by_kind: BTreeMap<String, u64>,
    /// Bytes hashed.
    pub hashed_bytes: u64,
    /// How many places could not be looked at, listed or not.
    pub not_looked_at_count: u64,
    /// How many differences there are, listed or not.
    pub difference_count: u64,
}

impl ScanSummary {
    /// Paths looked at, in all roots.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.roots.iter().map(|root| root.entries).sum()
    }
}

/// One root of a scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootSummary {
    /// Mount point.
    pub mount: String,
    /// Paths seen.
    pub entries: u64,
    /// Walked to its end, every folder read.
    pub complete: bool,
}

/// A place the agent could not look at; never to be read as "no drift".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotLookedAt {
    /// Kind of the fact (`file`, `package`, …).
    pub kind: String,
    /// Which one.
    pub key: String,
    /// Why there is no value.
    pub observation: Observation,
}

/// A full state, or what changed since one the server has acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum ReportKind {
    /// Everything that differs.
    Full {
        /// All differences (at most the limit).
        differences: Vec<Difference>,
    },
    /// Against `base`, the state digest last acknowledged.
    Delta {
        /// The state this builds on.
        base: Digest,
        /// New or changed differences.
        set: Vec<Difference>,
        /// Group hashes of differences that are gone.
        cleared: Vec<Digest>,
    },
}

/// Outcome of a scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftReport {
    /// Boot the scan ran in.
    pub boot_id: Uuid,
    /// Counts up within a boot; an older one than the server has is dropped.
    pub sequence: u64,
    /// Baseline compared with.
    pub baseline: Digest,
    /// Digest over all differences ([`drift::state_digest`]).
    pub state: Digest,
    /// What was looked at.
    pub scan: ScanSummary,
    /// What could not be (at most the limit).
    pub not_looked_at: Vec<NotLookedAt>,
    /// The last job that had ended before this scan began: with it the scan is the proof of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_job: Option<JobId>,
    /// The differences.
    #[serde(flatten)]
    pub kind: ReportKind,
}

/// Answer to a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum ReportReply {
    /// Stored.
    Accepted {
        /// Escaped paths of files in findings whose text the server would show and does not hold yet.
        #[serde(default)]
        contents_wanted: Vec<String>,
    },
    /// The server lacks the base of this delta: send a full report.
    NeedFull {
        /// For the log.
        reason: String,
    },
    /// Older than what the server has, or against a baseline that is no longer this node's: drop it.
    Stale {
        /// For the log.
        reason: String,
    },
}
