//! Contents of an old tree that are used again, out of the way until their place is free.
//!
//! Everything in it has been hashed, and lies in a folder at the root that no manifest lists: an attempt that ends in
//! the middle leaves it, and the next one takes it for what it is, unlisted files with contents that may be of use.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use manifest::{Digest, Entry, FileContent, TreePath};
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, renameat_with, unlinkat};
use rustix::io::Errno;

use super::keep;
use crate::deploy::tree::{Tree, TreeError, failed};
use crate::deploy::write::{WriteError, copy_content};

/// The folder's name.
const NAME: &str = ".plumbline-reimage";
/// Names that earlier attempts may have left; each attempt leaves at most one.
const LEFT_MAX: u32 = 10_000;

/// The folder and what is in it.
#[derive(Debug)]
pub(super) struct Stash {
    folder: OwnedFd,
    blobs: HashSet<Digest>,
    /// Folders taken in so far.
    taken: u64,
}

impl Stash {
    /// An empty one; that of an earlier attempt gets a name that is as unlisted as any other.
    pub(super) fn make(tree: &Tree) -> Result<Self, TreeError> {
        let path = TreePath::root();
        let root = tree
            .open_here(&path, OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(failed(&path, "opening the root"))?;
        keep::free(&root);
        for number in 0..LEFT_MAX {
            let other = format!("{NAME}-{number}");
            match renameat_with(&root, NAME, &root, other.as_str(), rustix::fs::RenameFlags::NOREPLACE) {
                Ok(()) | Err(Errno::NOENT) => break,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(failed(&path, "moving an earlier attempt's folder")(error)),
            }
        }
        mkdirat(&root, NAME, Mode::from_raw_mode(0o700)).map_err(failed(&path, "making a folder for old contents"))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder =
            openat(&root, NAME, flags, Mode::empty()).map_err(failed(&path, "opening the folder for old contents"))?;
        Ok(Self {
            folder,
            blobs: HashSet::new(),
            taken: 0,
        })
    }

    /// Whether a name in the root is this folder.
    pub(super) fn is_own_name(name: &[u8]) -> bool {
        name == NAME.as_bytes()
    }

    pub(super) fn holds(&self, blob: &Digest) -> bool {
        self.blobs.contains(blob)
    }

    /// Moves a file in whose content is this blob.
    pub(super) fn take_file(&mut self, from: impl AsFd, name: &[u8], blob: Digest) -> Result<(), Errno> {
        renameat(from, name, &self.folder, blob.to_string())?;
        self.blobs.insert(blob);
        Ok(())
    }

    /// Moves a folder in, to be taken apart; gives its name here.
    pub(super) fn take_folder(&mut self, from: impl AsFd, name: &[u8]) -> Result<String, Errno> {
        self.taken += 1;
        let here = format!("folder-{}", self.taken);
        renameat(from, name, &self.folder, here.as_str())?;
        Ok(here)
    }

    /// A folder that was moved in.
    pub(super) fn open_folder(&self, name: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.folder, name, flags, Mode::empty())
    }

    /// Removes a folder that is empty by now.
    pub(super) fn remove_folder(&self, name: &str) -> Result<(), Errno> {
        unlinkat(&self.folder, name, AtFlags::REMOVEDIR)
    }

    /// Puts a blob at its path, with all metadata. It is moved where that is possible, and copied otherwise.
    pub(super) fn place(&mut self, tree: &Tree, content: FileContent, entry: &Entry) -> Result<File, WriteError> {
        let path = &entry.path;
        let name = content.digest.to_string();
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = openat(&self.folder, name.as_str(), flags, Mode::empty())
            .map(File::from)
            .map_err(failed(path, "opening its old content"))?;
        let has_one_name = rustix::fs::fstat(&held).is_ok_and(|stat| stat.st_nlink == 1);
        self.blobs.remove(&content.digest);
        if has_one_name && tree.keeps_metadata(path) && keep::remove_xattrs(&held) {
            let parent = tree.vacate(path)?;
            renameat(&self.folder, name.as_str(), &parent, path.name())
                .map_err(failed(path, "moving its old content here"))?;
            tree.finish_file(&held, entry)?;
            return Ok(held);
        }
        let copy = tree.make_file(path)?;
        copy_content(&held, &copy, content).map_err(|source| WriteError::Content {
            path: path.clone(),
            action: "copying its old content",
            source,
        })?;
        tree.finish_file(&copy, entry)?;
        unlinkat(&self.folder, name, AtFlags::empty()).map_err(failed(path, "removing its old content"))?;
        Ok(copy)
    }

    /// Removes the folder and what nobody needed.
    pub(super) fn remove(self, tree: &Tree) -> Result<(), TreeError> {
        let path = TreePath::root();
        for blob in &self.blobs {
            unlinkat(&self.folder, blob.to_string(), AtFlags::empty())
                .map_err(failed(&path, "removing old contents"))?;
        }
        drop(self.folder);
        tree.remove_folder(
            &path
                .join(NAME.as_bytes())
                .map_err(|_| failed(&path, "naming a folder")(Errno::INVAL))?,
        )
    }

    /// Takes a copy of a file in, if its content is the blob; whether it was.
    pub(super) fn take_copy(&mut self, from: &File, content: FileContent) -> std::io::Result<bool> {
        let name = content.digest.to_string();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let copy = openat(&self.folder, name.as_str(), flags, Mode::from_raw_mode(0o600))?;
        match copy_content(from, &File::from(copy), content) {
            Ok(()) => {
                self.blobs.insert(content.digest);
                Ok(true)
            }
            Err(_) => {
                unlinkat(&self.folder, name, AtFlags::empty())?;
                Ok(false)
            }
        }
    }

    /// Leaves the folder where it is, as an attempt that ends leaves it.
    pub(super) fn leave(self) {}
}
