//! Burning a machine in: tests that the deployer runs in memory, and what they found.
//!
//! The deployer tells facts; whether figures are good enough for the site is the server's to say.

use serde::{Deserialize, Serialize};

use crate::BurnInId;

/// One kind of test. The order is the one they are run in: what takes least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TestKind {
    /// Carrier and speed of every interface and InfiniBand port, and whether they stay.
    Links,
    /// Throughput to the server and back, and errors that interfaces count meanwhile.
    Network,
    /// Patterns through all free memory, and errors that its controllers count meanwhile.
    Memory,
    /// Known results on every processor, throttling and machine checks.
    Cpu,
    /// Patterns through a region that nothing uses, and reading all over the disk.
    Disk,
}

impl TestKind {
    /// All kinds, in their order.
    pub const ALL: [Self; 5] = [Self::Links, Self::Network, Self::Memory, Self::Cpu, Self::Disk];

    /// The name in the database, the API and the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Links => "links",
            Self::Network => "network",
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Disk => "disk",
        }
    }

    /// The kind of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// A test that is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TestOrder {
    /// Which.
    pub kind: TestKind,
    /// For how long at most, in seconds. Memory and processors use all of it.
    pub limit_secs: u32,
}

/// A burn-in that a deployer is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BurnIn {
    /// Which one.
    pub id: BurnInId,
    /// For people: who ordered it, and why.
    pub reason: String,
    /// Its tests, one after another.
    pub tests: Vec<TestOrder>,
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TestOutcome {
    /// Nothing was found.
    Passed,
    /// Something was.
    Failed,
    /// It could not be done, or not to its end; this says nothing of the machine.
    NotRun,
}

impl TestOutcome {
    /// The name in the database and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::NotRun => "not_run",
        }
    }

    /// The outcome of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Passed, Self::Failed, Self::NotRun]
            .into_iter()
            .find(|outcome| outcome.as_str() == name)
    }
}

/// Something that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Figure {
    /// What: `download`, `nvme0n1 read`.
    pub name: String,
    /// How much.
    pub value: f64,
    /// In what: `Mb/s`, `MB/s`, `passes`.
    pub unit: String,
}

/// What is at the other end of a cable decides between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LinkLayer {
    /// Ethernet, RoCE among it.
    Ethernet,
    /// InfiniBand.
    Infiniband,
}

impl LinkLayer {
    /// For people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ethernet => "Ethernet",
            Self::Infiniband => "InfiniBand",
        }
    }
}

/// A port as the links test saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Port {
    /// Kernel name of this boot: `ens1f0np0`, or `mlx5_0/1` for port 1 of an InfiniBand device.
    pub name: String,
    /// Link-layer address or port GUID.
    pub address: String,
    /// What it speaks.
    pub layer: LinkLayer,
    /// Driver.
    pub driver: Option<String>,
    /// PCI address.
    pub pci_address: Option<String>,
    /// Whether it has a carrier; for InfiniBand: whether the physical link is up (a subnet manager may still be missing).
    pub link: bool,
    /// State in the kernel's words, for InfiniBand: `ACTIVE`, `INIT`, `DOWN`.
    pub state: Option<String>,
    /// Speed in Mb/s; none without a link, or unknown.
    pub speed_mbps: Option<u32>,
    /// How often the link was lost while it was looked at.
    pub losses: u32,
}

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TestResult {
    /// Which test.
    pub kind: TestKind,
    /// How it ended.
    pub outcome: TestOutcome,
    /// What was done and found, for people.
    pub detail: String,
    /// What was measured.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// Ports, for [`TestKind::Links`].
    #[serde(default)]
    pub ports: Vec<Port>,
    /// How long it took, in seconds.
    pub secs: u32,
}

/// How far a test has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestProgress {
    /// Which test.
    pub kind: TestKind,
    /// For people.
    pub detail: String,
}

/// Answer to [`TestProgress`] and [`TestResult`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BurnInReply {
    /// Whether to go on; if not, what runs is broken off and the next task asked for.
    pub go_on: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for kind in TestKind::ALL {
            assert_eq!(TestKind::parse(kind.as_str()), Some(kind));
        }
        for outcome in [TestOutcome::Passed, TestOutcome::Failed, TestOutcome::NotRun] {
            assert_eq!(TestOutcome::parse(outcome.as_str()), Some(outcome));
        }
        assert_eq!(TestKind::parse("all"), None);
    }
}
