//! Writing below the new root and nowhere else.
//!
//! Invariant: every path is resolved from the handle of the root by `openat2` with RESOLVE_BENEATH and
//! RESOLVE_NO_SYMLINKS, so no manifest, however it mixes links and paths, reaches the machine around it. The last
//! component is only ever made anew (O_EXCL) or opened without following.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use manifest::{Entry, EntryKind, TreePath};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid, XattrFlags, chownat, fchmod,
    fchown, fsetxattr, fstat, futimens, lsetxattr, makedev, mkdirat, mknodat, openat, openat2, symlinkat, unlinkat,
    utimensat,
};
use rustix::io::Errno;

/// A path that could not be made as the manifest says.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {action}")]
pub struct TreeError {
    /// Which path.
    pub path: TreePath,
    /// What was being done, or what stands there.
    pub action: &'static str,
    /// The system's error.
    #[source]
    pub source: io::Error,
}

pub(super) fn failed(path: &TreePath, action: &'static str) -> impl FnOnce(Errno) -> TreeError {
    let path = path.clone();
    move |source| TreeError {
        path,
        action,
        source: source.into(),
    }
}

/// A folder that is to become a root filesystem.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    /// Mount points of filesystems without modes, owners and xattrs.
    plain: Vec<TreePath>,
}

impl Tree {
    /// The tree at `root`; below the mount points in `plain`, files have no metadata and there are no links or devices.
    ///
    /// # Errors
    /// When the folder cannot be opened.
    pub fn open(root: &Path, plain: Vec<TreePath>) -> Result<Self, TreeError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root =
            rustix::fs::open(root, flags, Mode::empty()).map_err(failed(&TreePath::root(), "opening the root"))?;
        Ok(Self { root, plain })
    }

    /// Whether mode, owner and xattrs mean anything at this path.
    #[must_use]
    pub fn keeps_metadata(&self, path: &TreePath) -> bool {
        !self.plain.iter().any(|mount| path.is_within(mount))
    }

    /// As the methods below open things, on the filesystem of the root alone.
    pub(super) fn open_here(&self, path: &TreePath, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.resolve_with(path, flags, ResolveFlags::NO_XDEV)
    }

    fn resolve(&self, path: &TreePath, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.resolve_with(path, flags, ResolveFlags::empty())
    }

    fn resolve_with(&self, path: &TreePath, flags: OFlags, more: ResolveFlags) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | more;
        openat2(
            &self.root,
            path.relative(),
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        )
    }

    /// The folder a path lies in.
    pub(super) fn parent(&self, path: &TreePath) -> Result<OwnedFd, TreeError> {
        let parent = path.parent().unwrap_or_else(TreePath::root);
        self.resolve(&parent, OFlags::PATH | OFlags::DIRECTORY)
            .map_err(failed(path, "its folder is missing, or reached through a link"))
    }

    /// Makes a folder that only the owner may enter, or finds that it is there; its metadata come with
    /// [`Tree::finish_folder`].
    ///
    /// # Errors
    /// When something else stands there, or its own folder is missing.
    pub fn make_folder(&self, path: &TreePath) -> Result<(), TreeError> {
        if path.is_root() {
            return Ok(());
        }
        let parent = self.parent(path)?;
        match mkdirat(&parent, path.name(), Mode::from_raw_mode(0o700)) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => self
                .resolve(path, OFlags::PATH | OFlags::DIRECTORY)
                .map(drop)
                .map_err(failed(path, "something stands where a folder belongs")),
            Err(error) => Err(failed(path, "making a folder")(error)),
        }
    }

    /// Makes an empty file in place of what may stand there, for reading and writing; only the owner may read it.
    ///
    /// # Errors
    /// When a folder stands there, or the path's own folder is missing.
    pub fn make_file(&self, path: &TreePath) -> Result<File, TreeError> {
        let parent = self.vacate(path)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&parent, path.name(), flags, Mode::from_raw_mode(0o600))
            .map(File::from)
            .map_err(failed(path, "making a file"))
    }

    /// A file written before, for reading and writing.
    ///
    /// # Errors
    /// When it is no longer there.
    pub fn reopen_file(&self, path: &TreePath) -> Result<File, TreeError> {
        self.resolve(path, OFlags::RDWR | OFlags::NOFOLLOW)
            .map(File::from)
            .map_err(failed(path, "opening a file again"))
    }

    /// Makes what has no content: links, devices, pipes, with all metadata.
    ///
    /// # Errors
    /// When it cannot be made, or the filesystem or an image cannot hold it.
    pub fn make_special(&self, entry: &Entry) -> Result<(), TreeError> {
        let path = &entry.path;
        if !self.keeps_metadata(path) {
            return Err(failed(path, "a FAT filesystem holds files and folders only")(
                Errno::OPNOTSUPP,
            ));
        }
        let parent = self.vacate(path)?;
        let (name, mode) = (path.name(), Mode::from_raw_mode(entry.mode));
        match &entry.kind {
            EntryKind::Symlink(target) => symlinkat(target.as_slice(), &parent, name),
            EntryKind::CharacterDevice(major, minor) => {
                mknodat(&parent, name, FileType::CharacterDevice, mode, makedev(*major, *minor))
            }
            EntryKind::BlockDevice(major, minor) => {
                mknodat(&parent, name, FileType::BlockDevice, mode, makedev(*major, *minor))
            }
            EntryKind::Fifo => mknodat(&parent, name, FileType::Fifo, mode, 0),
            EntryKind::Directory | EntryKind::File(_) | EntryKind::Socket => Err(Errno::OPNOTSUPP),
        }
        .map_err(failed(path, "making a link or device"))?;
        let (user, group) = owner(entry);
        chownat(&parent, name, user, group, AtFlags::SYMLINK_NOFOLLOW).map_err(failed(path, "setting its owner"))?;
        if !matches!(entry.kind, EntryKind::Symlink(_)) {
            // The umask, and chown, have taken bits away. The name was made a moment ago and is no link.
            rustix::fs::chmodat(&parent, name, mode, AtFlags::empty()).map_err(failed(path, "setting its mode"))?;
        }
        for (attribute, value) in &entry.xattrs {
            let mut place = format!("/proc/self/fd/{}/", parent.as_raw_fd()).into_bytes();
            place.extend_from_slice(name);
            lsetxattr(place, attribute.as_str(), value, XattrFlags::empty())
                .map_err(failed(path, "setting an extended attribute"))?;
        }
        utimensat(&parent, name, &times(entry), AtFlags::SYMLINK_NOFOLLOW).map_err(failed(path, "setting its times"))
    }

    /// Gives a written file its owner, mode, xattrs and time.
    ///
    /// # Errors
    /// When the filesystem does not take one of them.
    pub fn finish_file(&self, file: &File, entry: &Entry) -> Result<(), TreeError> {
        self.finish(file, entry)
    }

    /// Gives a folder its owner, mode, xattrs and time, after everything in it is made.
    ///
    /// # Errors
    /// When it is not there, or the filesystem does not take one of them.
    pub fn finish_folder(&self, entry: &Entry) -> Result<(), TreeError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let folder = self
            .resolve(&entry.path, flags)
            .map_err(failed(&entry.path, "opening a folder again"))?;
        self.finish(&folder, entry)
    }

    fn finish(&self, place: impl std::os::fd::AsFd, entry: &Entry) -> Result<(), TreeError> {
        let path = &entry.path;
        if self.keeps_metadata(path) {
            let (user, group) = owner(entry);
            // The owner first: a change of owner clears setuid and capabilities.
            fchown(&place, user, group).map_err(failed(path, "setting its owner"))?;
            fchmod(&place, Mode::from_raw_mode(entry.mode)).map_err(failed(path, "setting its mode"))?;
            for (attribute, value) in &entry.xattrs {
                fsetxattr(&place, attribute.as_str(), value, XattrFlags::empty())
                    .map_err(failed(path, "setting an extended attribute"))?;
            }
        }
        futimens(&place, &times(entry)).map_err(failed(path, "setting its times"))
    }

    /// What stands at a path, not followed.
    ///
    /// # Errors
    /// When nothing does.
    pub fn stat(&self, path: &TreePath) -> Result<Stat, TreeError> {
        self.resolve_last_link(path)
            .and_then(fstat)
            .map_err(failed(path, "looking at it again"))
    }

    fn resolve_last_link(&self, path: &TreePath) -> Result<OwnedFd, Errno> {
        if path.is_root() {
            return self.resolve(path, OFlags::PATH);
        }
        // RESOLVE_NO_SYMLINKS refuses a link as the last component too, so that is opened from its folder.
        let parent = path.parent().unwrap_or_else(TreePath::root);
        let parent = self.resolve(&parent, OFlags::PATH | OFlags::DIRECTORY)?;
        openat(
            &parent,
            path.name(),
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
    }

    /// Removes an empty folder, if it is there.
    ///
    /// # Errors
    /// When it is not empty.
    pub fn remove_folder(&self, path: &TreePath) -> Result<(), TreeError> {
        match unlinkat(self.parent(path)?, path.name(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(failed(path, "removing a folder")(error)),
        }
    }

    /// Flushes the filesystem a path lies on; errors of earlier writes come to light here.
    ///
    /// # Errors
    /// The first write that failed.
    pub fn flush(&self, path: &TreePath) -> Result<(), TreeError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let place = self
            .resolve(path, flags)
            .map_err(failed(path, "opening for flushing"))?;
        rustix::fs::syncfs(place).map_err(failed(path, "flushing to the disk"))
    }

    /// Removes what may stand at a path, unless it is a folder; gives the path's own folder.
    pub(super) fn vacate(&self, path: &TreePath) -> Result<OwnedFd, TreeError> {
        let parent = self.parent(path)?;
        match unlinkat(&parent, path.name(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(parent),
            Err(Errno::ISDIR) => Err(failed(path, "a folder stands where a file belongs")(Errno::ISDIR)),
            Err(error) => Err(failed(path, "removing what stands there")(error)),
        }
    }
}

pub(super) fn owner(entry: &Entry) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(entry.uid)), Some(Gid::from_raw(entry.gid)))
}

pub(super) fn times(entry: &Entry) -> Timestamps {
    let time = Timespec {
        tv_sec: entry.mtime,
        tv_nsec: 0,
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}
