//! What a look at a node found.

use std::collections::BTreeMap;

use manifest::{Digest, EntryKind, Group, Package, User, Xattrs};

use crate::{FindingKind, Observation};

/// Content of a regular file as far as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedDigest {
    /// Read to its end without change.
    Hashed(Digest),
    /// Not read, because the rules do not need it or the size says enough.
    NotRead,
    /// Could not be read.
    Unknown(Observation),
}

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedKind {
    /// A regular file.
    File {
        /// Bytes.
        size: u64,
        /// What is in it.
        digest: ObservedDigest,
    },
    /// Anything else; never [`EntryKind::File`].
    Other(EntryKind),
}

impl ObservedKind {
    /// The name used in manifests and reports.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::File { .. } => EntryKind::File(None).type_name(),
            Self::Other(kind) => kind.type_name(),
        }
    }
}

/// Extended attributes as far as they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedXattrs {
    /// All of them.
    Value(Xattrs),
    /// Not read, because the rules do not need them.
    NotRead,
    /// Could not be read.
    Unknown(Observation),
}

/// One path of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedEntry {
    /// What it is.
    pub kind: ObservedKind,
    /// Permission bits with setuid, setgid and sticky (`07777`).
    pub mode: u32,
    /// Numeric owner.
    pub uid: u32,
    /// Numeric group.
    pub gid: u32,
    /// Extended attributes.
    pub xattrs: ObservedXattrs,
}

/// How a kernel module is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModuleState {
    /// In `/proc/modules`.
    Loaded,
    /// Part of the kernel itself.
    BuiltIn,
}

/// Facts of a node; `Err` says why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedFacts {
    /// Installed packages.
    pub packages: Result<Vec<Package>, Observation>,
    /// Unit file states by unit name, of all unit files.
    pub units: Result<BTreeMap<String, String>, Observation>,
    /// Running value of each sysctl that was asked for; `None` means that the kernel has no such key.
    pub sysctls_running: BTreeMap<String, Result<Option<String>, Observation>>,
    /// Value at the next boot of each sysctl that a file sets.
    pub sysctls_persisted: Result<BTreeMap<String, String>, Observation>,
    /// `/proc/cmdline`.
    pub command_line: Result<String, Observation>,
    /// `uname -r`.
    pub kernel_release: Result<String, Observation>,
    /// Modules, `_` for `-`.
    pub modules: Result<BTreeMap<String, ModuleState>, Observation>,
    /// Local accounts.
    pub users: Result<Vec<User>, Observation>,
    /// Local groups.
    pub groups: Result<Vec<Group>, Observation>,
    /// Hardening rules of the image, looked at on the node.
    pub hardening: Result<ObservedRules, Observation>,
}

/// What came of looking at hardening rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedRules {
    /// Rules that were looked at.
    pub looked_at: usize,
    /// Those that do not hold, each with its problems.
    pub failed: BTreeMap<String, Vec<RuleProblem>>,
    /// Those that could not be looked at.
    pub unknown: BTreeMap<String, Observation>,
}

/// One thing that is not as a rule asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleProblem {
    /// Where: a path, perhaps with a line; a name.
    pub place: String,
    /// What the rule asks for.
    pub expected: String,
    /// What is there.
    pub found: String,
}

/// Something nobody could look at. Key `*` stands for everything of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// What kind of thing.
    pub kind: FindingKind,
    /// Which one; for files a folder stands for all below it.
    pub key: String,
    /// Why there is no value.
    pub observation: Observation,
}

impl Unknown {
    /// The key that stands for everything of a kind.
    pub const ALL: &'static str = "*";
}
