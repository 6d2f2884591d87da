//! Looking at single paths: what a scan would say of exactly these.
//!
//! A scan tells a path by one finding at most, and an added or vanished folder stands for all in it. So a path below
//! such a folder has none of its own; whoever asks is told to look at the folder.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use drift::{
    Attributes, Difference, Expected, FindingKind, Observation, ObservedEntry, ObservedKind, TreeComparison,
    compare_entry,
};
use manifest::{Entry, EntryKind, FilesystemKind, PathClass, Root, TreePath};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::cache::DigestCache;
use super::file::FileReader;
use super::mounts::Mounts;
use super::walk::{One, Walk};
use super::{ScanOptions, open_root};

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nothing.
    Absent,
    /// A folder.
    Folder,
    /// Anything else.
    Other,
    /// A folder above it is told in its stead: it is added, or nobody looks into it.
    Covered(TreePath),
    /// The folder it belongs in is not there, or is no folder.
    NoFolder,
    /// Another filesystem is mounted here or on the way.
    Mounted,
    /// Nobody could look.
    Unknown,
}

/// What came of looking at one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathLook {
    /// What differs.
    pub difference: Option<Difference>,
    /// What could not be looked at.
    pub unknown: Option<Observation>,
    /// What stands there.
    pub place: Place,
}

impl PathLook {
    const fn of(place: Place) -> Self {
        Self {
            difference: None,
            unknown: None,
            place,
        }
    }

    /// Whether all was looked at and is as it should be.
    #[must_use]
    pub const fn is_same(&self) -> bool {
        self.difference.is_none() && self.unknown.is_none()
    }
}

/// Looks at paths one by one. Blocks.
pub struct Looker<'a> {
    expected: &'a Expected,
    options: &'a ScanOptions<'a>,
    mounts: Mounts,
    reader: FileReader,
    /// Only asked what to look at, never told.
    comparison: TreeComparison<'a>,
}

impl<'a> Looker<'a> {
    /// Looks below the base of these options.
    #[must_use]
    pub fn new(expected: &'a Expected, options: &'a ScanOptions<'a>) -> Self {
        Self {
            expected,
            options,
            mounts: Mounts::read(options.base),
            reader: FileReader::new(),
            comparison: TreeComparison::new(expected, options.bounds.limits),
        }
    }

    /// Mount points below the base, as they were when this was made.
    #[must_use]
    pub fn mounts(&self) -> &Mounts {
        &self.mounts
    }

    /// Compares one path with the baseline.
    pub fn look(&mut self, path: &TreePath) -> PathLook {
        let Some(root) = self.expected.root_of(path) else {
            return PathLook::of(Place::Unknown);
        };
        if let Some(above) = covering_folder(self.expected, root, path) {
            return PathLook::of(Place::Covered(above));
        }
        if *path != root.mount && self.mounts.contains(path.as_bytes()) {
            return PathLook::of(Place::Mounted);
        }
        let folder = match self.open_folder_of(root, path) {
            Ok(folder) => folder,
            Err(look) => return *look,
        };
        let mut cache = DigestCache::disabled();
        let mut walk = Walk {
            root,
            other_roots: &[],
            mounts: &self.mounts,
            options: self.options,
            reader: &mut self.reader,
            cache: &mut cache,
            entries: 0,
            complete: true,
        };
        match walk.look_at(folder, path, &self.comparison) {
            One::Seen(observed) => self.compare(root, path, &observed),
            One::Gone => PathLook {
                difference: missing(self.expected, path),
                ..PathLook::of(Place::Absent)
            },
            One::Ignored => PathLook::of(Place::Covered(path.clone())),
            One::Unknown(Observation::NotScanned { .. }) => PathLook::of(Place::Mounted),
            One::Unknown(observation) => unknown(observation),
        }
    }

    fn compare(&self, root: &Root, path: &TreePath, observed: &ObservedEntry) -> PathLook {
        let entry = entry_of(self.expected, root, path);
        let is_folder = matches!(observed.kind, ObservedKind::Other(EntryKind::Directory));
        let place = if is_folder { Place::Folder } else { Place::Other };
        let outcome = match &entry {
            _ if self.expected.allows_instead(path, &observed.kind) => return PathLook::of(place),
            Some(entry) => compare_entry(path, Some(entry), entry.class, observed, root.filesystem),
            None if is_folder && self.expected.implies_folder(path) => return PathLook::of(place),
            None if self.expected.lists_below(path) => {
                let mut outcome = compare_entry(path, None, PathClass::Pinned, observed, FilesystemKind::Vfat);
                if let Some(difference) = &mut outcome.difference {
                    difference.expected = Some(Attributes::from_pairs([("type", EntryKind::Directory.type_name())]));
                }
                outcome
            }
            None => compare_entry(path, None, self.expected.rule_of(path), observed, root.filesystem),
        };
        PathLook {
            difference: outcome.difference,
            unknown: outcome.unknown,
            place,
        }
    }

    fn open_folder_of(&self, root: &Root, path: &TreePath) -> Result<OwnedFd, Box<PathLook>> {
        let top = open_root(self.options.base, root, self.options.roots_are_folders)
            .map_err(|reason| Box::new(unknown(reason)))?;
        open_parent(&top, root, path).map_err(|error| {
            Box::new(match error {
                Errno::NOENT | Errno::NOTDIR | Errno::LOOP => PathLook::of(Place::NoFolder),
                Errno::XDEV => PathLook::of(Place::Mounted),
                error => unknown(super::observation("open", error)),
            })
        })
    }
}

/// Opens the folder of a path below its open root: on the same mount, through no link. For the root's own path it is
/// the root.
pub(crate) fn open_parent(top: &OwnedFd, root: &Root, path: &TreePath) -> Result<OwnedFd, Errno> {
    match path.parent().filter(|_| *path != root.mount) {
        Some(parent) => open_folder_at(top, root, &parent, OFlags::RDONLY),
        None => open_folder_at(top, root, path, OFlags::RDONLY),
    }
}

/// Opens a folder below its open root: on the same mount, through no link.
pub(crate) fn open_folder_at(top: &OwnedFd, root: &Root, path: &TreePath, access: OFlags) -> Result<OwnedFd, Errno> {
    let mount_bytes = if root.mount.is_root() {
        0
    } else {
        root.mount.as_bytes().len()
    };
    let below = path.as_bytes().get(mount_bytes + 1..).unwrap_or_default();
    let below = if below.is_empty() { b"." } else { below };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = access | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(top, OsStr::from_bytes(below), flags, Mode::empty(), resolve)
}

/// The entry that counts for a path, whatever the case of its letters on FAT.
pub(crate) fn entry_of(expected: &Expected, root: &Root, path: &TreePath) -> Option<Entry> {
    let position = if root.filesystem == FilesystemKind::Vfat {
        expected.position_folded(path, &root.mount)
    } else {
        expected.position(path.as_bytes())
    };
    position.map(|position| expected.entry(position, path))
}

/// The topmost folder above a path into which a scan does not walk.
fn covering_folder(expected: &Expected, root: &Root, path: &TreePath) -> Option<TreePath> {
    let mut above = Vec::new();
    let mut next = path.parent();
    while let Some(folder) = next.filter(|folder| folder.is_within(&root.mount) && *folder != root.mount) {
        next = folder.parent();
        above.push(folder);
    }
    above.into_iter().rev().find(|folder| {
        let is_known = entry_of(expected, root, folder).is_some() || expected.implies_folder(folder);
        !is_known && (expected.rule_of(folder) == PathClass::Ignored || !expected.allows_unlisted(folder))
    })
}

fn missing(expected: &Expected, path: &TreePath) -> Option<Difference> {
    let entry = expected.get(path)?;
    Some(Difference {
        kind: FindingKind::File,
        key: path.to_string(),
        expected: Some(Attributes::from_pairs([("type", entry.kind.type_name())])),
        actual: None,
    })
}

const fn unknown(observation: Observation) -> PathLook {
    PathLook {
        difference: None,
        unknown: Some(observation),
        place: Place::Unknown,
    }
}
