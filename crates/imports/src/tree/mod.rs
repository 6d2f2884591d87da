//! A root on disk, reached from one handle and never left.
//!
//! Folders are opened by `openat2` beneath the handle and without following any link. Where a link does stand in the
//! way of an entry (`var/run/x`, and `/var/run` is a link to `/run`), [`Tree::folder`] follows it as the booted system
//! would: an absolute target starts at this root again. A target that climbs above the root is refused.

mod attributes;
mod remove;

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::error::escape;
use crate::name::join;
use crate::{EntryProblem, ImportError};

pub(crate) use attributes::{Xattrs, clear_xattrs, set_xattr, set_xattr_nofollow, xattrs_of, xattrs_of_nofollow};
pub(crate) use remove::{Keep, remove_children, remove_entry};

const LINKS_MAX: u32 = 40;
const FOLDER: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// Why a folder cannot be had.
#[derive(Debug)]
pub(crate) enum FolderError {
    Problem(EntryProblem),
    /// It is not there, and was not to be made.
    Absent,
    Failed(Errno),
}

impl From<Errno> for FolderError {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

impl FolderError {
    /// As an error about the entry `name` of `archive`.
    pub(crate) fn of(self, archive: &str, name: &[u8]) -> ImportError {
        let problem = match self {
            Self::Problem(problem) => problem,
            Self::Absent => EntryProblem::LinkMissing(escape(name)),
            Self::Failed(errno) => return ImportError::errno("open the folder of", escape(name))(errno),
        };
        ImportError::Entry {
            archive: archive.to_owned(),
            path: escape(name),
            problem,
        }
    }
}

/// A folder of the root: its handle and its path without links.
#[derive(Clone)]
pub(crate) struct Folder {
    pub(crate) handle: Rc<OwnedFd>,
    /// Relative to the root; empty for the root itself.
    pub(crate) path: Vec<u8>,
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// A root.
pub(crate) struct Tree {
    root: Rc<OwnedFd>,
    depth_max: usize,
    /// The folder that was asked for last: archives list one folder's entries in a row.
    last: Option<(Vec<u8>, Folder)>,
}

impl Tree {
    pub(crate) fn open(path: &Path, depth_max: usize) -> Result<Self, ImportError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())
            .map_err(ImportError::errno("open", path.display().to_string()))?;
        Ok(Self {
            root: Rc::new(root),
            depth_max,
            last: None,
        })
    }

    pub(crate) fn root(&self) -> Folder {
        Folder {
            handle: self.root.clone(),
            path: Vec::new(),
        }
    }

    /// To be called whenever a folder was removed: handles kept from before may lead to it.
    pub(crate) fn forget(&mut self) {
        self.last = None;
    }

    /// The folder at these components, made where it is missing if `make` says so.
    pub(crate) fn folder(&mut self, components: &[&[u8]], make: bool) -> Result<Folder, FolderError> {
        if components.is_empty() {
            return Ok(self.root());
        }
        let path = components.join(&b'/');
        if let Some((asked, folder)) = &self.last
            && *asked == path
        {
            return Ok(folder.clone());
        }
        let folder = match self.beneath(&path) {
            Ok(handle) => Folder {
                handle: Rc::new(handle),
                path: path.clone(),
            },
            // A link, something missing, or something that is no folder: step by step.
            Err(Errno::LOOP | Errno::NOENT | Errno::NOTDIR) => self.walk(components, make)?,
            Err(errno) => return Err(errno.into()),
        };
        self.last = Some((path, folder.clone()));
        Ok(folder)
    }

    /// A folder whose path holds no link.
    pub(crate) fn beneath(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b".".as_slice() } else { path };
        rustix::fs::openat2(&self.root, path, FOLDER, Mode::empty(), BENEATH)
    }

    fn walk(&self, components: &[&[u8]], make: bool) -> Result<Folder, FolderError> {
        let mut todo: VecDeque<Vec<u8>> = components.iter().map(|component| component.to_vec()).collect();
        let mut folder = self.root();
        // Where the link that is being followed stands, for the error.
        let mut link = Vec::new();
        let mut links = 0;
        while let Some(component) = todo.pop_front() {
            match component.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    if folder.path.is_empty() {
                        return Err(FolderError::Problem(EntryProblem::LinksOut(escape(&link))));
                    }
                    let cut = folder.path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                    folder.path.truncate(cut);
                    folder.handle = Rc::new(self.beneath(&folder.path)?);
                    continue;
                }
                _ => {}
            }
            let path = join(&folder.path, &component);
            if path.split(|&byte| byte == b'/').count() > self.depth_max {
                return Err(FolderError::Problem(EntryProblem::TooDeep(self.depth_max)));
            }
            let name = component.as_slice();
            match file_type(&folder, name) {
                Ok(FileType::Directory) => {}
                Ok(FileType::Symlink) => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(FolderError::Problem(EntryProblem::LinkLoop));
                    }
                    let target = rustix::fs::readlinkat(&folder, name, Vec::new())?.into_bytes();
                    if target.starts_with(b"/") {
                        folder = self.root();
                    }
                    for component in target.split(|&byte| byte == b'/').rev() {
                        todo.push_front(component.to_vec());
                    }
                    link = path;
                    continue;
                }
                Ok(_) => return Err(FolderError::Problem(EntryProblem::NotAFolder(escape(&path)))),
                Err(Errno::NOENT) if make => {
                    rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o755))?;
                    // Whatever the process's umask is.
                    rustix::fs::chmodat(&folder, name, Mode::from_raw_mode(0o755), AtFlags::empty())?;
                }
                Err(Errno::NOENT) => return Err(FolderError::Absent),
                Err(errno) => return Err(errno.into()),
            }
            let handle = rustix::fs::openat(&folder, name, FOLDER, Mode::empty())?;
            folder = Folder {
                handle: Rc::new(handle),
                path,
            };
        }
        Ok(folder)
    }
}

/// The type of what stands at `name`, itself if it is a link.
pub(crate) fn file_type(folder: impl AsFd, name: &[u8]) -> Result<FileType, Errno> {
    let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

/// The path by which calls that know no folder handles reach `name`.
pub(crate) fn by_process(folder: impl AsFd, name: &[u8]) -> Vec<u8> {
    let mut path = format!("/proc/self/fd/{}/", folder.as_fd().as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn folder(tree: &mut Tree, path: &str, make: bool) -> Result<Vec<u8>, String> {
        let components: Vec<&[u8]> = path.as_bytes().split(|&byte| byte == b'/').collect();
        match tree.folder(&components, make) {
            Ok(folder) => Ok(folder.path),
            Err(FolderError::Problem(problem)) => Err(problem.to_string()),
            Err(error) => Err(format!("{error:?}")),
        }
    }

    #[test]
    fn links_are_followed_inside_the_root_only() {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().join("root");
        std::fs::create_dir_all(root.join("usr/lib")).unwrap();
        std::fs::create_dir(root.join("run")).unwrap();
        std::fs::create_dir(base.path().join("outside")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        for (target, link) in [
            ("usr/lib", "lib"),
            ("/run", "usr/run"),
            ("../../outside", "usr/out"),
            ("/../outside", "absolute-out"),
            ("b", "a"),
            ("a", "b"),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        let mut tree = Tree::open(&root, 16).unwrap();
        let path = |path: &str| Ok(path.as_bytes().to_vec());
        assert_eq!(folder(&mut tree, "usr/lib", false), path("usr/lib"));
        assert_eq!(folder(&mut tree, "lib/new", true), path("usr/lib/new"));
        assert_eq!(folder(&mut tree, "usr/run", false), path("run"));
        assert_eq!(folder(&mut tree, "nowhere", false), Err("Absent".to_owned()));
        for (asked, problem) in [
            ("usr/out/x", "the link usr/out leads out of the root"),
            ("absolute-out", "the link absolute-out leads out of the root"),
            ("a/x", "more than 40 links"),
            ("file/x", "file is no folder"),
        ] {
            let found = folder(&mut tree, asked, true).unwrap_err();
            assert!(found.starts_with(problem), "{found}");
        }
        assert_eq!(std::fs::read_dir(base.path().join("outside")).unwrap().count(), 0);
    }
}
