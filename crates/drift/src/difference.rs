//! One thing that is not as it should be.

use std::collections::BTreeMap;

use manifest::Digest;
use serde::{Deserialize, Serialize};

use crate::{group_hash, variant_hash};

/// Named text values, in order of name. Only what differs is listed, so that what a node may have of its own does not
/// split a variant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Attributes(pub BTreeMap<String, String>);

impl Attributes {
    /// From pairs.
    pub fn from_pairs<K: Into<String>, V: Into<String>>(pairs: impl IntoIterator<Item = (K, V)>) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
        )
    }

    /// One value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl std::fmt::Display for Attributes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name}={value}", if at == 0 { "" } else { " " })?;
        }
        Ok(())
    }
}

/// What kind of thing differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// A path; key is the escaped path.
    File,
    /// An installed package; key is `name:architecture`.
    Package,
    /// A unit file's state; key is the unit name.
    Unit,
    /// A sysctl as the kernel has it now; key is the dotted name.
    SysctlRunning,
    /// A sysctl as the files will set it at the next boot; key is the dotted name.
    SysctlPersisted,
    /// A kernel command line argument; key is its name.
    KernelCommandLine,
    /// The running kernel's release; key is `release`.
    KernelRelease,
    /// A kernel module that must or must not be loaded; key is its name.
    Module,
    /// A local account; key is the login name.
    User,
    /// A local group; key is its name.
    Group,
    /// A hardening rule that does not hold; key is its id.
    Hardening,
}

impl FindingKind {
    /// All kinds, in the order they are shown.
    pub const ALL: [Self; 11] = [
        Self::File,
        Self::Package,
        Self::Unit,
        Self::SysctlRunning,
        Self::SysctlPersisted,
        Self::KernelCommandLine,
        Self::KernelRelease,
        Self::Module,
        Self::User,
        Self::Group,
        Self::Hardening,
    ];

    /// The name used everywhere outside this code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Package => "package",
            Self::Unit => "unit",
            Self::SysctlRunning => "sysctl_running",
            Self::SysctlPersisted => "sysctl_persisted",
            Self::KernelCommandLine => "kernel_command_line",
            Self::KernelRelease => "kernel_release",
            Self::Module => "module",
            Self::User => "user",
            Self::Group => "group",
            Self::Hardening => "hardening",
        }
    }

    /// Reads the name back.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// How much a finding matters; decided by the server's policy, never by the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// For the record.
    Info,
    /// Report.
    Low,
    /// Fix in place.
    Medium,
    /// Drain at the next idle moment.
    High,
    /// Drain.
    Critical,
}

impl Severity {
    /// The name used everywhere outside this code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// One difference on one node. `None` stands for "not there": expected `None` means added, actual `None` removed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Difference {
    /// What kind of thing.
    pub kind: FindingKind,
    /// Which one.
    pub key: String,
    /// As it should be; only the attributes that differ.
    pub expected: Option<Attributes>,
    /// As it is; only the attributes that differ.
    pub actual: Option<Attributes>,
}

impl Difference {
    /// What it is about, over all nodes.
    #[must_use]
    pub fn group(&self) -> Digest {
        group_hash(self.kind, &self.key)
    }

    /// How exactly it differs, within its group.
    #[must_use]
    pub fn variant(&self) -> Digest {
        variant_hash(self.expected.as_ref(), self.actual.as_ref())
    }
}
