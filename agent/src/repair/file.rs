//! Making a path what the baseline says.
//!
//! Contents are written beside the path and put in its place by one rename, so that whoever opens it sees the old or the
//! new, never a half. Paths are resolved from the handle of their root, on the same mount and through no link.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use drift::Difference;
use manifest::{Entry, EntryKind, FileContent, PathClass, Root, TreePath};
use protocol::latest::{RepairStep, StepOutcome};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, makedev};
use rustix::io::Errno;
use uuid::Uuid;

use super::contents::fetch_checked;
use super::metadata;
use super::site::{Site, failed, refused};
use crate::scan::{PathLook, Place, entry_of, open_parent, open_root};

/// Bytes that must stay free beside the file that is written.
const FREE_BYTES_MIN: u64 = 4 << 20;
/// Most paths restored with a folder that was gone.
const SUBTREE_MAX: usize = 100_000;

/// A path that was not made what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The baseline does not say how.
    Unclear(String),
    /// It did not work.
    Failed(String),
}

impl Trouble {
    /// For people.
    pub fn text(&self) -> &str {
        match self {
            Self::Unclear(reason) | Self::Failed(reason) => reason,
        }
    }
}

impl From<Trouble> for StepOutcome {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Unclear(reason) => refused(reason),
            Trouble::Failed(reason) => failed(reason),
        }
    }
}

pub(super) fn say(what: &'static str) -> impl Fn(Errno) -> Trouble {
    move |error| Trouble::Failed(format!("{what}: {error}"))
}

impl Site<'_> {
    /// The verb.
    pub fn restore_file(&mut self, step: &RepairStep, path: &str) -> StepOutcome {
        let Ok(path) = path.parse::<TreePath>() else {
            return refused("no path");
        };
        if self.expected.get(&path).is_none() {
            return refused("the baseline does not list it");
        }
        let look = match self.check_path(step, &path) {
            Ok(look) => look,
            Err(outcome) => return outcome,
        };
        match self.restore(&path, &look) {
            Ok(detail) => self.proved_path(&path, detail),
            Err(trouble) => trouble.into(),
        }
    }

    /// Makes a listed path what it should be; `look` is what it is. Says what was done.
    pub fn restore(&mut self, path: &TreePath, look: &PathLook) -> Result<String, Trouble> {
        let missing = || Trouble::Unclear("the baseline does not list it".to_owned());
        let root = self.expected.root_of(path).cloned().ok_or_else(missing)?;
        let entry = entry_of(self.expected, &root, path).ok_or_else(missing)?;
        let top = open_root(&self.parts.base, &root, self.parts.roots_are_folders)
            .map_err(|reason| Trouble::Failed(format!("its filesystem: {}", reason.name())))?;
        self.ensure_parents(&top, &root, path)?;
        let folder = open_parent(&top, &root, path).map_err(say("opening its folder"))?;
        let name = OsStr::from_bytes(if *path == root.mount { b"." } else { path.name() });
        if let Some(difference) = look
            .difference
            .as_ref()
            .filter(|difference| is_metadata_only(difference))
        {
            let with_xattrs = keeps_xattrs(&entry, &root);
            let mtime = self.times.get(path).copied();
            metadata::apply(folder.as_fd(), name, &entry, with_xattrs, mtime).map_err(Trouble::Failed)?;
            return Ok(format!("set {}", attribute_names(difference)));
        }
        if *path == root.mount {
            return Err(Trouble::Failed("a root is no folder".to_owned()));
        }
        match &entry.kind {
            EntryKind::Directory => {
                if look.place == Place::Other {
                    self.undo.take(folder.as_fd(), name, path).map_err(Trouble::Failed)?;
                }
                self.make_folder(folder.as_fd(), &root, path, &entry)?;
                let restored = self.restore_below(path)?;
                let (with_xattrs, mtime) = (keeps_xattrs(&entry, &root), self.times.get(path).copied());
                if root.filesystem.keeps_metadata() {
                    metadata::apply(folder.as_fd(), name, &entry, with_xattrs, mtime).map_err(Trouble::Failed)?;
                }
                Ok(format!("made the folder and {restored} paths in it again"))
            }
            _ => {
                self.put(folder.as_fd(), &root, path, &entry)?;
                let is_there = look.place != Place::Absent && look.place != Place::NoFolder;
                Ok(if is_there { "replaced it" } else { "made it again" }.to_owned())
            }
        }
    }

    /// Makes the folders above a path that are not there and that the baseline lists.
    fn ensure_parents(&mut self, top: &OwnedFd, root: &Root, path: &TreePath) -> Result<(), Trouble> {
        match open_parent(top, root, path) {
            Ok(_) => return Ok(()),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(say("opening its folder")(error)),
        }
        let gone =
            |folder: &TreePath| Trouble::Unclear(format!("{folder} is not there, and the baseline does not list it"));
        let parent = path.parent().filter(|parent| parent.is_within(&root.mount));
        let parent = parent.ok_or_else(|| gone(&root.mount))?;
        let entry = entry_of(self.expected, root, &parent).filter(|entry| entry.kind == EntryKind::Directory);
        let entry = entry.ok_or_else(|| gone(&parent))?;
        self.ensure_parents(top, root, &parent)?;
        let folder = open_parent(top, root, &parent).map_err(say("opening its folder"))?;
        self.make_folder(folder.as_fd(), root, &parent, &entry)
    }

    fn make_folder(&self, folder: BorrowedFd<'_>, root: &Root, path: &TreePath, entry: &Entry) -> Result<(), Trouble> {
        let name = OsStr::from_bytes(path.name());
        match rustix::fs::mkdirat(folder, name, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(say("making the folder")(error)),
        }
        if root.filesystem.keeps_metadata() {
            metadata::apply(folder, name, entry, keeps_xattrs(entry, root), None).map_err(Trouble::Failed)?;
        }
        rustix::fs::fsync(open_for_sync(folder)?).map_err(say("flushing its folder"))
    }

    /// Restores everything that the baseline lists below a folder that was gone.
    fn restore_below(&mut self, folder: &TreePath) -> Result<usize, Trouble> {
        let below = |path: &TreePath| path.is_within(folder) && path != folder;
        let mut paths: Vec<TreePath> = self
            .expected
            .positions()
            .filter_map(|position| TreePath::from_bytes(self.expected.path_bytes(position)).ok())
            .filter(below)
            .collect();
        if paths.len() > SUBTREE_MAX {
            return Err(Trouble::Failed(format!(
                "the baseline lists {} paths in it",
                paths.len()
            )));
        }
        paths.sort();
        let mut restored = 0;
        for path in paths {
            let look = self.looker.look(&path);
            if look.is_same() || look.place == Place::Mounted {
                continue;
            }
            match self.restore(&path, &look) {
                Ok(_) => restored += 1,
                // A file of the node's own stays its own; the scan tells that it is not there.
                Err(Trouble::Unclear(reason)) => tracing::info!(%path, reason, "not restored"),
                Err(Trouble::Failed(reason)) => {
                    return Err(Trouble::Failed(format!(
                        "{restored} paths in it restored, then {path}: {reason}"
                    )));
                }
            }
        }
        Ok(restored)
    }

    /// Puts a new file, link or device in the place of what stands there, which is kept.
    fn put(&mut self, folder: BorrowedFd<'_>, root: &Root, path: &TreePath, entry: &Entry) -> Result<(), Trouble> {
        let name = OsStr::from_bytes(path.name());
        let temporary = format!(".plumbline-{}", Uuid::new_v4().simple());
        let temporary = OsStr::new(&temporary);
        let made = self
            .make(folder, temporary, root, path, entry)
            .and_then(|()| self.clear_the_way(folder, name, path))
            .and_then(|()| {
                rustix::fs::renameat(folder, temporary, folder, name).map_err(say("putting it in its place"))
            });
        if made.is_err() {
            let _ = rustix::fs::unlinkat(folder, temporary, AtFlags::empty());
            return made;
        }
        rustix::fs::fsync(open_for_sync(folder)?).map_err(say("flushing its folder"))
    }

    fn make(
        &self,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        root: &Root,
        path: &TreePath,
        entry: &Entry,
    ) -> Result<(), Trouble> {
        let mode = Mode::from_raw_mode(0o600);
        let node = |kind, device| rustix::fs::mknodat(folder, name, kind, mode, device).map_err(say("making it"));
        match &entry.kind {
            EntryKind::File(content) => return self.make_file(folder, name, root, path, entry, content.as_ref()),
            EntryKind::Symlink(target) => {
                rustix::fs::symlinkat(OsStr::from_bytes(target), folder, name).map_err(say("making the link"))?;
            }
            EntryKind::CharacterDevice(major, minor) => node(FileType::CharacterDevice, makedev(*major, *minor))?,
            EntryKind::BlockDevice(major, minor) => node(FileType::BlockDevice, makedev(*major, *minor))?,
            EntryKind::Fifo => node(FileType::Fifo, 0)?,
            EntryKind::Directory | EntryKind::Socket => {
                return Err(Trouble::Unclear(format!(
                    "a {} is made by a program",
                    entry.kind.type_name()
                )));
            }
        }
        let mtime = self.times.get(path).copied();
        metadata::apply(folder, name, entry, true, mtime).map_err(Trouble::Failed)
    }

    fn make_file(
        &self,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        root: &Root,
        path: &TreePath,
        entry: &Entry,
        content: Option<&FileContent>,
    ) -> Result<(), Trouble> {
        let empty = FileContent {
            size: 0,
            digest: manifest::Digest::of(b""),
        };
        let content = match content {
            Some(content) => content,
            // Its content is free.
            None if entry.class == PathClass::Volatile => &empty,
            None => return Err(Trouble::Unclear("its content is the node's own".to_owned())),
        };
        let space = rustix::fs::fstatvfs(folder).map_err(say("looking at the free space"))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if free < content.size.saturating_add(FREE_BYTES_MIN) {
            return Err(Trouble::Failed(format!(
                "{} bytes are needed and {free} are free",
                content.size
            )));
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(0o600)).map_err(say("making it"))?;
        let mut file = File::from(handle);
        fetch_checked(self.contents, content, &mut file).map_err(Trouble::Failed)?;
        if root.filesystem.keeps_metadata() {
            let mtime = self.times.get(path).copied();
            metadata::apply(folder, name, entry, true, mtime).map_err(Trouble::Failed)?;
        }
        file.sync_all()
            .map_err(|error| Trouble::Failed(format!("flushing it: {error}")))
    }

    /// Keeps what a rename would replace; a folder in its way is moved aside.
    fn clear_the_way(&mut self, folder: BorrowedFd<'_>, name: &OsStr, path: &TreePath) -> Result<(), Trouble> {
        let stat = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(say("looking at what stands there")(error)),
        };
        let kept = if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            if self.looker.mounts().any_within(path) {
                return Err(Trouble::Failed(
                    "another filesystem is mounted in the folder that stands there".to_owned(),
                ));
            }
            self.undo.take(folder, name, path)
        } else {
            self.undo.keep(folder, name, path)
        };
        kept.map_err(Trouble::Failed)
    }
}

/// A handle of a folder that can be flushed, which one opened only as a path cannot.
fn open_for_sync(folder: BorrowedFd<'_>) -> Result<OwnedFd, Trouble> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let itself = format!("/proc/self/fd/{}", folder.as_raw_fd());
    rustix::fs::open(itself, flags, Mode::empty()).map_err(say("flushing its folder"))
}

/// Extended attributes are part of what is compared.
fn keeps_xattrs(entry: &Entry, root: &Root) -> bool {
    root.filesystem.keeps_metadata() && matches!(entry.class, PathClass::Pinned | PathClass::Rendered)
}

/// Whether type, content, target and device are as they should be.
fn is_metadata_only(difference: &Difference) -> bool {
    let (Some(expected), Some(actual)) = (&difference.expected, &difference.actual) else {
        return false;
    };
    let is_metadata = |name: &String| matches!(name.as_str(), "mode" | "uid" | "gid") || name.starts_with("xattr.");
    expected.0.keys().chain(actual.0.keys()).all(is_metadata)
}

fn attribute_names(difference: &Difference) -> String {
    let sides = [&difference.expected, &difference.actual];
    let names: std::collections::BTreeSet<&str> = sides
        .into_iter()
        .flatten()
        .flat_map(|side| side.0.keys().map(String::as_str))
        .collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}
