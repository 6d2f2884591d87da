//! Where rules are looked at: a built root, or the running node.
//!
//! The trait is all that checks see, so that they are tested without a machine. Each answer has three outcomes: it is
//! there, it is not there, or nobody could look.

use std::fmt;

use manifest::TreePath;
use serde::{Deserialize, Serialize};

/// Largest file that is read, in bytes. dpkg's status of a full CUDA image is 6 MB.
pub const FILE_BYTES_MAX: u64 = 16 << 20;
/// Most names in a folder that is listed.
pub const FOLDER_NAMES_MAX: usize = 65_536;
/// Most entries of a whole tree; a CUDA image has 400,000.
pub const WALK_ENTRIES_MAX: usize = 4_000_000;

/// Why nobody could look. Never a pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Unlooked {
    /// A built root cannot answer.
    OnlyRunning {
        /// What was asked.
        what: String,
    },
    /// Nothing inside the node can answer.
    Outside {
        /// Who can.
        who: String,
    },
    /// A path is there and cannot be read.
    Unreadable {
        /// The path, escaped.
        path: String,
        /// Why.
        problem: String,
    },
    /// Over a bound.
    TooLarge {
        /// The path, escaped.
        path: String,
        /// The bound and its unit.
        limit: String,
    },
    /// The content is not what its format says.
    NotUnderstood {
        /// The path, escaped.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Whoever asked did not say.
    NotKnown {
        /// What is missing.
        what: String,
    },
}

impl Unlooked {
    /// Whether this place could never have answered, as against an answer that went wrong here.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        matches!(self, Self::OnlyRunning { .. } | Self::Outside { .. })
    }

    pub(crate) fn unreadable(path: &TreePath, problem: impl fmt::Display) -> Self {
        Self::Unreadable {
            path: path.to_string(),
            problem: problem.to_string(),
        }
    }

    pub(crate) fn too_large(path: &TreePath, limit: impl fmt::Display) -> Self {
        Self::TooLarge {
            path: path.to_string(),
            limit: limit.to_string(),
        }
    }
}

impl fmt::Display for Unlooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OnlyRunning { what } => write!(f, "only on a running node: {what}"),
            Self::Outside { who } => write!(f, "not from inside the node: {who}"),
            Self::Unreadable { path, problem } => write!(f, "{path} cannot be read: {problem}"),
            Self::TooLarge { path, limit } => write!(f, "{path} is over {limit}"),
            Self::NotUnderstood { path, problem } => write!(f, "{path} is not understood: {problem}"),
            Self::NotKnown { what } => write!(f, "not known here: {what}"),
        }
    }
}

/// What a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link, where links are not followed.
    Link,
    /// A device, a socket, a fifo.
    Other,
}

/// What is known of a path without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky: at most 0o7777.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub bytes: u64,
    /// Carries file capabilities; only [`Place::walk`] looks.
    pub has_capabilities: bool,
}

/// A root folder or a running node. Links are taken inside it.
pub trait Place {
    /// Reads a regular file, through links. `None`: not there.
    ///
    /// # Errors
    /// [`Unlooked`] when it is there and cannot be read, is no regular file, or is over [`FILE_BYTES_MAX`].
    fn read(&self, path: &TreePath) -> Result<Option<Vec<u8>>, Unlooked>;

    /// Names in a folder, through links, in order of bytes. `None`: no folder there.
    ///
    /// # Errors
    /// [`Unlooked`] when it cannot be read or holds more than [`FOLDER_NAMES_MAX`] names.
    fn list(&self, path: &TreePath) -> Result<Option<Vec<Vec<u8>>>, Unlooked>;

    /// What a path is, through links. `None`: not there, or a link to nowhere.
    ///
    /// # Errors
    /// [`Unlooked`] when a folder on the way cannot be searched.
    fn metadata(&self, path: &TreePath) -> Result<Option<Metadata>, Unlooked>;

    /// Where a link leads, as written in it. `None`: not there, or no link.
    ///
    /// # Errors
    /// [`Unlooked`] when a folder on the way cannot be searched.
    fn read_link(&self, path: &TreePath) -> Result<Option<Vec<u8>>, Unlooked>;

    /// Visits everything below the root, its own filesystem only, links not followed; /dev, /proc, /run and /sys are
    /// passed over.
    ///
    /// # Errors
    /// [`Unlooked`] when any folder cannot be read, or there are more than [`WALK_ENTRIES_MAX`] entries: half a walk
    /// is no answer.
    fn walk(&self, visit: &mut dyn FnMut(&TreePath, &Metadata)) -> Result<(), Unlooked>;

    /// Whether this is a node that runs, so that /proc and /sys tell about it.
    fn is_running(&self) -> bool;

    /// The kernel command line: of a running node its own, of a built root the one it will be started with.
    ///
    /// # Errors
    /// [`Unlooked`] when it cannot be read, or nobody said.
    fn command_line(&self) -> Result<String, Unlooked>;
}
