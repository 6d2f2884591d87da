//! Looking into a root as a booted system would: links are followed, and `/` is the root whatever they say
//! (`openat2` with `RESOLVE_IN_ROOT`).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Names of one folder that are looked at.
const NAMES_MAX: usize = 100_000;

pub(crate) struct Inside {
    root: OwnedFd,
    /// What the kernel says the root's path is.
    prefix: Vec<u8>,
}

impl Inside {
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty())?;
        let prefix = path_of(&root)?;
        Ok(Self { root, prefix })
    }

    fn resolve(&self, path: &str, flags: OFlags) -> io::Result<Option<OwnedFd>> {
        let path = path.trim_start_matches('/');
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
            Ok(handle) => Ok(Some(handle)),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The path behind all links, from the root; `None` if nothing is there.
    pub(crate) fn find(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        let Some(handle) = self.resolve(path, OFlags::PATH)? else {
            return Ok(None);
        };
        let path = path_of(&handle)?;
        let rest = path
            .strip_prefix(self.prefix.as_slice())
            .filter(|_| self.prefix != b"/");
        Ok(Some(rest.map_or(path.clone(), <[u8]>::to_vec)))
    }

    /// An open regular file; `None` if nothing is there or it is something else.
    pub(crate) fn file(&self, path: &str) -> io::Result<Option<File>> {
        let Some(handle) = self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)? else {
            return Ok(None);
        };
        let stat = rustix::fs::fstat(&handle)?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        Ok(regular.then(|| File::from(handle)))
    }

    /// The first bytes of a regular file.
    pub(crate) fn head(&self, path: &str, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = self.file(path)? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// All of a regular file; an error if it is longer.
    pub(crate) fn read(&self, path: &str, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        let bytes = self.head(path, bytes_max + 1)?;
        if bytes.as_ref().is_some_and(|bytes| bytes.len() as u64 > bytes_max) {
            return Err(io::Error::other(format!("longer than {bytes_max} bytes")));
        }
        Ok(bytes)
    }

    /// Names in a folder, sorted; none if it is not there.
    pub(crate) fn names(&self, path: &str) -> io::Result<Vec<Vec<u8>>> {
        let Some(folder) = self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY)? else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for entry in Dir::new(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
            if names.len() > NAMES_MAX {
                return Err(io::Error::other(format!("more than {NAMES_MAX} names")));
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}

fn path_of(handle: &OwnedFd) -> io::Result<Vec<u8>> {
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    Ok(std::fs::read_link(link)?.into_os_string().into_vec())
}
