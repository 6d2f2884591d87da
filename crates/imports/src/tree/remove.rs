//! Removing entries through handles, links never followed.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::file_type;

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Removes `name` from `folder`, with all below if it is a folder. Says whether something was there.
pub(crate) fn remove_entry(folder: impl AsFd, name: &[u8]) -> Result<bool, Errno> {
    match file_type(&folder, name) {
        Ok(FileType::Directory) => {
            remove_children(&folder, name, &mut |_| Keep::No)?;
            rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)?;
            Ok(true)
        }
        Ok(_) => rustix::fs::unlinkat(folder, name, AtFlags::empty()).map(|()| true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// What is to be done with an entry below a folder.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// It goes, with all below.
    No,
    /// It stays; if it is a folder, what is below is asked for.
    Itself,
}

/// Removes what is in the folder `name` of `folder`, as far as `keep` says so of a path relative to it.
pub(crate) fn remove_children(
    folder: impl AsFd,
    name: &[u8],
    keep: &mut dyn FnMut(&[u8]) -> Keep,
) -> Result<(), Errno> {
    let handle = rustix::fs::openat(folder, name, FOLDER, Mode::empty())?;
    clear(&handle, &[], keep)
}

/// As deep as the tree is; entries are bounded in depth when they are made.
fn clear(folder: &OwnedFd, below: &[u8], keep: &mut dyn FnMut(&[u8]) -> Keep) -> Result<(), Errno> {
    // Names first: a folder that changes under its own listing may lose entries.
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    for name in names {
        let path = crate::name::join(below, &name);
        let kept = keep(&path) == Keep::Itself;
        let is_folder = file_type(folder, &name)? == FileType::Directory;
        if is_folder {
            let handle = rustix::fs::openat(folder, &*name, FOLDER, Mode::empty())?;
            if kept {
                clear(&handle, &path, keep)?;
            } else {
                clear(&handle, &path, &mut |_| Keep::No)?;
                rustix::fs::unlinkat(folder, &*name, AtFlags::REMOVEDIR)?;
            }
        } else if !kept {
            rustix::fs::unlinkat(folder, &*name, AtFlags::empty())?;
        }
    }
    Ok(())
}
