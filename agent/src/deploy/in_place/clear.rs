//! Removing everything that does not belong, and holding back contents that do.
//!
//! Only folders that the manifests list are walked, one after the other; anything else is moved into the stash's folder
//! and taken apart there level by level, so that neither the depth nor the size of what a node left behind matters.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use manifest::{ClassRules, Digest, Entry, EntryKind, FileContent, TreePath};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat, unlinkat};
use rustix::io::Errno;

use super::stash::Stash;
use super::{Found, keep};
use crate::deploy::tree::{Tree, TreeError, failed};

/// What is removed, and what decides.
pub(super) struct Clearing<'t, 'a> {
    pub(super) tree: &'t Tree,
    /// All paths of the new tree.
    pub(super) wanted: &'t BTreeMap<&'a TreePath, &'a Entry>,
    /// Paths of the node's own that stay, with all below them, where the image allows something unlisted.
    pub(super) keep: &'t [TreePath],
    /// What the image allows.
    pub(super) rules: &'t ClassRules,
    /// Blobs that no path has, with their sizes.
    pub(super) missing: HashMap<Digest, u64>,
}

impl Clearing<'_, '_> {
    /// Clears the tree.
    pub(super) fn run(mut self, found: &mut Found<'_>) -> Result<(), TreeError> {
        let sizes: HashSet<u64> = self.missing.values().copied().collect();
        let folders = self
            .wanted
            .iter()
            .filter(|(_, entry)| entry.kind == EntryKind::Directory);
        let mut folders: Vec<TreePath> = folders.map(|(path, _)| (*path).clone()).collect();
        folders.reverse();
        // Folders on the way to what is kept come to the end of the list and are looked at next.
        while let Some(path) = folders.pop() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let folder = match self.tree.open_here(&path, flags) {
                Ok(folder) => folder,
                // It is to be made, or its place was cleared a moment ago.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => continue,
                Err(error) => return Err(failed(&path, "opening a folder")(error)),
            };
            for name in names(&folder).map_err(failed(&path, "listing a folder"))? {
                let name = name.map_err(failed(&path, "listing a folder"))?;
                if path.is_root() && Stash::is_own_name(&name) {
                    continue;
                }
                // A path that is too long for a manifest is in none.
                let below = path.join(&name).ok();
                match below.as_ref().map_or(Fate::Goes, |below| self.fate(found, below)) {
                    Fate::Stays => {}
                    Fate::LeadsToKept if is_folder(&folder, &name) => folders.extend(below),
                    Fate::LeadsToKept | Fate::Goes => {
                        self.dispose(found, &folder, &name, &sizes)
                            .map_err(failed(below.as_ref().unwrap_or(&path), "removing what does not belong"))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn fate(&self, found: &Found<'_>, path: &TreePath) -> Fate {
        if self.wanted.contains_key(path) {
            return if found.is_settled(path) {
                Fate::Stays
            } else {
                Fate::Goes
            };
        }
        // mke2fs makes it and e2fsck needs it; what it holds goes.
        if path.as_bytes() == b"/lost+found" {
            return Fate::LeadsToKept;
        }
        let is_allowed = self.rules.allows_unlisted(path);
        if is_allowed && self.keep.iter().any(|kept| path.is_within(kept)) {
            Fate::Stays
        } else if is_allowed && self.keep.iter().any(|kept| kept.is_within(path)) {
            Fate::LeadsToKept
        } else {
            Fate::Goes
        }
    }

    /// Removes what stands under a name, with everything below it.
    fn dispose(
        &mut self,
        found: &mut Found<'_>,
        folder: &OwnedFd,
        name: &[u8],
        sizes: &HashSet<u64>,
    ) -> Result<(), Errno> {
        if !is_folder(folder, name) {
            return self.dispose_file(found, folder, name, sizes);
        }
        let mut taken = vec![take_folder(found, folder, name)?];
        while let Some(here) = taken.pop() {
            let inner = found.stash.open_folder(&here)?;
            for name in names(&inner)? {
                let name = name?;
                if is_folder(&inner, &name) {
                    taken.push(take_folder(found, &inner, &name)?);
                } else {
                    self.dispose_file(found, &inner, &name, sizes)?;
                }
            }
            found.stash.remove_folder(&here)?;
        }
        Ok(())
    }

    fn dispose_file(
        &mut self,
        found: &mut Found<'_>,
        folder: &OwnedFd,
        name: &[u8],
        sizes: &HashSet<u64>,
    ) -> Result<(), Errno> {
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            if let Ok(file) = openat(folder, name, flags, Mode::empty()) {
                let is_free = keep::free(&file);
                if is_free && sizes.contains(&size) && self.use_later(found, folder, name, &File::from(file), size)? {
                    return Ok(());
                }
            }
        }
        unlinkat(folder, name, AtFlags::empty())?;
        found.files_removed += 1;
        Ok(())
    }

    /// Holds a file back whose content is missing elsewhere; whether it was one.
    fn use_later(
        &mut self,
        found: &mut Found<'_>,
        folder: &OwnedFd,
        name: &[u8],
        file: &File,
        size: u64,
    ) -> Result<bool, Errno> {
        let Some(digest) = keep::digest_of(file, size) else {
            return Ok(false);
        };
        let content = FileContent { size, digest };
        if self.missing.get(&content.digest) != Some(&size) {
            return Ok(false);
        }
        self.missing.remove(&content.digest);
        found.stash.take_file(folder, name, content.digest)?;
        Ok(true)
    }
}

/// What becomes of something in a folder.
enum Fate {
    Stays,
    /// A folder on the way to something that stays, or that stays itself and is emptied.
    LeadsToKept,
    Goes,
}

fn take_folder(found: &mut Found<'_>, from: &OwnedFd, name: &[u8]) -> Result<String, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // A folder that may not be changed can neither be moved nor emptied.
    keep::free(openat(from, name, flags, Mode::empty())?);
    found.stash.take_folder(from, name)
}

fn is_folder(folder: impl AsFd, name: &[u8]) -> bool {
    statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// What is in a folder, without itself and the one above, as it is read.
fn names(folder: &OwnedFd) -> Result<impl Iterator<Item = Result<Vec<u8>, Errno>>, Errno> {
    let listed = Dir::read_from(folder)?;
    Ok(listed
        .map(|entry| entry.map(|entry| entry.file_name().to_bytes().to_vec()))
        .filter(|name| !matches!(name.as_deref(), Ok(b"." | b".."))))
}
