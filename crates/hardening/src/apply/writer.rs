//! Writing inside a root: whole files that appear complete or not at all, links, modes, owners.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use manifest::TreePath;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Uid, chmodat, chownat, fchmod, fchown, mkdirat, openat, renameat, symlinkat,
    unlinkat,
};
use rustix::io::Errno;

use super::{ApplyError, Written};
use crate::facts::text;
use crate::place::Place;
use crate::tree::{Located, Tree};

/// Name of a file while it is written.
const PARTIAL: &str = ".plumbline-partial";

/// Writes into one root and keeps account.
pub(super) struct Writer {
    tree: Tree,
    written: Vec<Written>,
}

impl Writer {
    pub(super) fn open(root: &Path) -> Result<Self, ApplyError> {
        let tree = Tree::folder(root).map_err(|source| ApplyError::Root {
            path: root.to_owned(),
            source,
        })?;
        Ok(Self {
            tree,
            written: Vec::new(),
        })
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(super) fn finish(self) -> Vec<Written> {
        self.written
    }

    fn note(&mut self, path: &TreePath, action: &str) {
        self.written.push(Written {
            path: path.clone(),
            action: action.to_owned(),
        });
    }

    /// A folder that is there, or made with mode 0755, links on the way taken inside the root.
    fn folder(&mut self, path: &TreePath) -> Result<Located, ApplyError> {
        if let Some(found) = self.tree.locate(path, true)? {
            if FileType::from_raw_mode(found.stat.st_mode) == FileType::Directory {
                return Ok(found);
            }
            return Err(failed(path, "expected a folder")(Errno::NOTDIR));
        }
        let Some(parent) = path.parent() else {
            return Err(failed(path, "opening")(Errno::NOENT));
        };
        let above = self.folder(&parent)?;
        let name = OsStr::from_bytes(path.name());
        // The mode again, since the process's umask takes bits away.
        mkdirat(&above.folder, name, Mode::from_raw_mode(0o755)).map_err(failed(path, "making the folder"))?;
        chmodat(&above.folder, name, Mode::from_raw_mode(0o755), AtFlags::empty())
            .map_err(failed(path, "setting the mode"))?;
        self.note(path, "folder");
        self.tree
            .locate(path, true)?
            .ok_or_else(|| failed(path, "making the folder")(Errno::NOENT))
    }

    /// A whole file of root's, in the place of whatever is there.
    pub(super) fn file(&mut self, path: &TreePath, content: &str, mode: u32) -> Result<(), ApplyError> {
        let parent = self.folder(&path.parent().unwrap_or_else(TreePath::root))?;
        let found = self.tree.locate(path, false)?;
        let is_file = |found: &Located| FileType::from_raw_mode(found.stat.st_mode) == FileType::RegularFile;
        if let Some(found) = found.filter(is_file)
            && self.tree.read(path)?.as_deref() == Some(content.as_bytes())
        {
            return self.attributes(&found, Some(mode), Some(0), Some(0));
        }
        self.put(&parent, path, content, mode, (0, 0))
    }

    /// New content for a file that is there, which keeps its mode and owner. Nothing happens when it is not there.
    pub(super) fn edit(&mut self, path: &TreePath, change: impl FnOnce(&str) -> String) -> Result<(), ApplyError> {
        let Some(found) = self.tree.locate(path, true)? else {
            return Ok(());
        };
        let Some(before) = text(&self.tree, path)? else {
            return Ok(());
        };
        let after = change(&before);
        if after == before {
            return Ok(());
        }
        // Bytes that are no UTF-8 were replaced while reading and would be lost.
        if self.tree.read(path)?.as_deref() != Some(before.as_bytes()) {
            return Err(failed(path, "editing what is not UTF-8")(Errno::ILSEQ));
        }
        let parent = self.folder(&found.path.parent().unwrap_or_else(TreePath::root))?;
        let owner = (found.stat.st_uid, found.stat.st_gid);
        self.put(&parent, &found.path, &after, found.stat.st_mode & 0o7777, owner)
    }

    fn put(
        &mut self,
        parent: &Located,
        path: &TreePath,
        content: &str,
        mode: u32,
        owner: (u32, u32),
    ) -> Result<(), ApplyError> {
        // Left over from a run that was cut off.
        match unlinkat(&parent.folder, PARTIAL, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(failed(path, "removing a leftover")(error)),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            openat(&parent.folder, PARTIAL, flags, Mode::from_raw_mode(0o600)).map_err(failed(path, "creating"))?;
        let mut file = std::fs::File::from(file);
        file.write_all(content.as_bytes()).map_err(|source| ApplyError::Write {
            path: path.clone(),
            action: "writing",
            source,
        })?;
        let stat = rustix::fs::fstat(&file).map_err(failed(path, "looking at the new file"))?;
        if (stat.st_uid, stat.st_gid) != owner {
            let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
            fchown(&file, Some(uid), Some(gid)).map_err(failed(path, "setting the owner"))?;
        }
        fchmod(&file, Mode::from_raw_mode(mode)).map_err(failed(path, "setting the mode"))?;
        renameat(&parent.folder, PARTIAL, &parent.folder, OsStr::from_bytes(path.name()))
            .map_err(failed(path, "putting the new file in place"))?;
        self.note(path, "written");
        Ok(())
    }

    /// A link, in the place of whatever file or link is there.
    pub(super) fn link(&mut self, path: &TreePath, target: &str) -> Result<(), ApplyError> {
        if self.tree.read_link(path)?.is_some_and(|link| link == target.as_bytes()) {
            return Ok(());
        }
        let parent = self.folder(&path.parent().unwrap_or_else(TreePath::root))?;
        let name = OsStr::from_bytes(path.name());
        match unlinkat(&parent.folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(failed(path, "replacing it by a link")(error)),
        }
        symlinkat(target, &parent.folder, name).map_err(failed(path, "linking"))?;
        self.note(path, "linked");
        Ok(())
    }

    /// Removes a file or link; folders stay.
    pub(super) fn remove(&mut self, path: &TreePath) -> Result<(), ApplyError> {
        let Some(found) = self.tree.locate(path, false)? else {
            return Ok(());
        };
        if FileType::from_raw_mode(found.stat.st_mode) == FileType::Directory {
            return Ok(());
        }
        unlinkat(&found.folder, OsStr::from_bytes(&found.name), AtFlags::empty()).map_err(failed(path, "removing"))?;
        self.note(&found.path, "removed");
        Ok(())
    }

    /// Takes permission bits away and sets owner and group of what a path leads to.
    pub(super) fn restrict(
        &mut self,
        path: &TreePath,
        mode: u32,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<(), ApplyError> {
        let Some(found) = self.tree.locate(path, true)? else {
            return Ok(());
        };
        self.attributes(&found, Some(found.stat.st_mode & 0o7777 & mode), uid, gid)
    }

    fn attributes(
        &mut self,
        found: &Located,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Result<(), ApplyError> {
        let name = OsStr::from_bytes(&found.name);
        let uid = uid.filter(|uid| *uid != found.stat.st_uid);
        let gid = gid.filter(|gid| *gid != found.stat.st_gid);
        if uid.is_some() || gid.is_some() {
            let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
            chownat(&found.folder, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(failed(&found.path, "setting the owner"))?;
            self.note(&found.path, "owner");
        }
        if let Some(mode) = mode.filter(|mode| *mode != found.stat.st_mode & 0o7777) {
            chmodat(&found.folder, name, Mode::from_raw_mode(mode), AtFlags::empty())
                .map_err(failed(&found.path, "setting the mode"))?;
            self.note(&found.path, "mode");
        }
        Ok(())
    }
}

fn failed<'a>(path: &'a TreePath, action: &'static str) -> impl Fn(Errno) -> ApplyError + 'a {
    move |error| ApplyError::Write {
        path: path.clone(),
        action,
        source: error.into(),
    }
}
