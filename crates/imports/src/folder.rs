//! Copying a folder that holds a root: links as links, hard links as one file, nothing outside followed.
//!
//! Only the filesystem that the folder is on is copied: what is mounted below (`/proc` of a running system, a share) is
//! an empty folder in the copy and a note.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, SeekFrom, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use crate::error::escape;
use crate::imported::NoteKind;
use crate::name::join;
use crate::notes::Notes;
use crate::progress::Meter;
use crate::staging::Staging;
use crate::tree;
use crate::{EntryProblem, ImportError, Limits};

const BUFFER_BYTES: usize = 256 << 10;
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// What a copy came to.
pub(crate) struct Copied {
    pub(crate) entries: u64,
    pub(crate) content_bytes: u64,
    pub(crate) notes: Notes,
}

struct Copy<'a, 'm> {
    source: OwnedFd,
    target: OwnedFd,
    source_name: String,
    device: u64,
    limits: &'a Limits,
    meter: &'a mut Meter<'m>,
    copied: Copied,
    /// First path of every file that has several.
    inodes: HashMap<u64, Vec<u8>>,
    /// Folders whose content is still to be copied.
    todo: Vec<Vec<u8>>,
    /// Times of folders, set at the end.
    times: Vec<(Vec<u8>, Timestamps)>,
}

/// Copies the root at `source` into the staging folder.
pub(crate) fn copy(
    source: &Path,
    staging: &Staging,
    limits: &Limits,
    meter: &mut Meter<'_>,
) -> Result<Copied, ImportError> {
    let source_name = source.display().to_string();
    let real = |path: &Path| {
        path.canonicalize()
            .map_err(ImportError::io("look at", path.display().to_string()))
    };
    if real(staging.scratch())?.starts_with(real(source)?) {
        return Err(ImportError::Source {
            path: source.to_owned(),
            problem: "the target lies inside it: the copy would copy itself".to_owned(),
        });
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |path: &Path| {
        rustix::fs::open(path, flags, Mode::empty()).map_err(ImportError::errno("open", path.display().to_string()))
    };
    let (source, target) = (open(source)?, open(&staging.root())?);
    let stat = rustix::fs::fstat(&source).map_err(ImportError::errno("look at", &*source_name))?;
    let mut copy = Copy {
        source,
        target,
        source_name,
        device: stat.st_dev,
        limits,
        meter,
        copied: Copied {
            entries: 0,
            content_bytes: 0,
            notes: Notes::new(limits.notes_max),
        },
        inodes: HashMap::new(),
        todo: vec![Vec::new()],
        times: Vec::new(),
    };
    while let Some(path) = copy.todo.pop() {
        copy.folder(&path)?;
    }
    for (path, times) in &copy.times {
        let folder = beneath(&copy.target, path).map_err(ImportError::errno("open", escape(path)))?;
        rustix::fs::futimens(&folder, times).map_err(ImportError::errno("set the time of", escape(path)))?;
    }
    Ok(copy.copied)
}

fn beneath(root: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b".".as_slice() } else { path };
    rustix::fs::openat2(root, path, FOLDER, Mode::empty(), BENEATH)
}

impl Copy<'_, '_> {
    fn folder(&mut self, path: &[u8]) -> Result<(), ImportError> {
        let failed = |action| ImportError::errno(action, escape(path));
        let from = beneath(&self.source, path).map_err(failed("open"))?;
        let to = beneath(&self.target, path).map_err(failed("open the copy of"))?;
        let stat = rustix::fs::fstat(&from).map_err(failed("look at"))?;
        self.metadata(&from, &to, &stat, path)?;
        self.times.push((path.to_vec(), times_of(&stat)));
        if stat.st_dev != self.device {
            let detail = "another filesystem is mounted there; its content was not copied";
            self.copied.notes.add(NoteKind::OtherFilesystem, escape(path), detail);
            return Ok(());
        }
        let mut names = Vec::new();
        for entry in Dir::read_from(&from).map_err(failed("list"))? {
            let entry = entry.map_err(failed("list"))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                self.count(path)?;
                names.push(name.to_vec());
            }
        }
        names.sort_unstable();
        for name in names {
            let below = join(path, &name);
            self.entry(&from, &to, &name, below)?;
        }
        Ok(())
    }

    fn count(&mut self, path: &[u8]) -> Result<(), ImportError> {
        self.copied.entries += 1;
        if self.copied.entries > self.limits.entries_max {
            return Err(self.over("entries", path, self.copied.entries, self.limits.entries_max));
        }
        self.meter.entry()
    }

    fn over(&self, what: &'static str, path: &[u8], found: u64, limit: u64) -> ImportError {
        let place = format!("{} in {}", escape(path), self.source_name);
        ImportError::Limit {
            what,
            place,
            found,
            limit,
        }
    }

    fn entry(&mut self, from: &OwnedFd, to: &OwnedFd, name: &[u8], path: Vec<u8>) -> Result<(), ImportError> {
        let failed = |action| ImportError::errno(action, escape(&path));
        let stat = rustix::fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed("look at"))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let several = stat.st_nlink > 1 && kind != FileType::Directory && stat.st_dev == self.device;
        if several && let Some(first) = self.inodes.get(&stat.st_ino) {
            return rustix::fs::linkat(&self.target, &**first, to, name, AtFlags::empty()).map_err(failed("link"));
        }
        match kind {
            FileType::Directory => {
                if path.split(|&byte| byte == b'/').count() > self.limits.depth_max {
                    return Err(ImportError::Entry {
                        archive: self.source_name.clone(),
                        path: escape(&path),
                        problem: EntryProblem::TooDeep(self.limits.depth_max),
                    });
                }
                rustix::fs::mkdirat(to, name, Mode::from_raw_mode(0o700)).map_err(failed("create"))?;
                self.todo.push(path);
                return Ok(());
            }
            FileType::RegularFile => self.file(from, to, name, &path)?,
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(from, name, Vec::new()).map_err(failed("read"))?;
                rustix::fs::symlinkat(&*target, to, name).map_err(failed("create"))?;
                self.special(from, to, name, &stat, &path)?;
            }
            FileType::Fifo => {
                rustix::fs::mknodat(to, name, FileType::Fifo, Mode::from_raw_mode(0o600), 0)
                    .map_err(failed("create"))?;
                rustix::fs::chmodat(to, name, Mode::from_raw_mode(stat.st_mode & 0o777), AtFlags::empty())
                    .map_err(failed("set the mode of"))?;
                self.special(from, to, name, &stat, &path)?;
            }
            FileType::Socket => {
                let detail = "a socket is made by who listens on it";
                self.copied.notes.add(NoteKind::SocketSkipped, escape(&path), detail);
                return Ok(());
            }
            _ => {
                let detail = "device nodes are made by a node's kernel";
                self.copied.notes.add(NoteKind::DeviceSkipped, escape(&path), detail);
                return Ok(());
            }
        }
        if several {
            self.inodes.insert(stat.st_ino, path);
        }
        Ok(())
    }

    fn file(&mut self, from: &OwnedFd, to: &OwnedFd, name: &[u8], path: &[u8]) -> Result<(), ImportError> {
        let failed = |action| ImportError::errno(action, escape(path));
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let source = rustix::fs::openat(from, name, flags, Mode::empty()).map_err(failed("open"))?;
        let stat = rustix::fs::fstat(&source).map_err(failed("look at"))?;
        let archive = self.source_name.clone();
        let changed = || ImportError::Entry {
            archive: archive.clone(),
            path: escape(path),
            problem: EntryProblem::Changed,
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(changed());
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if size > self.limits.file_bytes_max {
            return Err(self.over("bytes of the file", path, size, self.limits.file_bytes_max));
        }
        self.copied.content_bytes = self.copied.content_bytes.saturating_add(size);
        if self.copied.content_bytes > self.limits.content_bytes_max {
            let found = self.copied.content_bytes;
            return Err(self.over("bytes of content", path, found, self.limits.content_bytes_max));
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = rustix::fs::openat(to, name, flags, Mode::from_raw_mode(0o600)).map_err(failed("create"))?;
        let (source, target) = (File::from(source), File::from(target));
        self.content(&source, &target, size, path)?;
        let after = rustix::fs::fstat(&source).map_err(failed("look at"))?;
        let state = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
        if state(&stat) != state(&after) {
            return Err(changed());
        }
        self.metadata(&source, &target, &stat, path)?;
        rustix::fs::futimens(&target, &times_of(&stat)).map_err(failed("set the time of"))
    }

    /// Copies data and leaves holes.
    fn content(&mut self, source: &File, target: &File, size: u64, path: &[u8]) -> Result<(), ImportError> {
        let failed = |action| ImportError::errno(action, escape(path));
        target
            .set_len(size)
            .map_err(ImportError::io("set the size of", escape(path)))?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut at = 0;
        while at < size {
            let start = match rustix::fs::seek(source, SeekFrom::Data(at)) {
                Ok(start) => start,
                // Nothing but a hole to the end.
                Err(Errno::NXIO) => break,
                // A filesystem that knows no holes.
                Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
                Err(errno) => return Err(failed("read")(errno)),
            };
            let end = match rustix::fs::seek(source, SeekFrom::Hole(start)) {
                Ok(end) => end.min(size),
                Err(Errno::INVAL | Errno::OPNOTSUPP) => size,
                Err(errno) => return Err(failed("read")(errno)),
            };
            at = start;
            while at < end {
                let want = usize::try_from(end - at).map_or(buffer.len(), |left| left.min(buffer.len()));
                let got = source
                    .read_at(&mut buffer[..want], at)
                    .map_err(ImportError::io("read", escape(path)))?;
                if got == 0 {
                    // It became shorter; the comparison after the copy says so.
                    return Ok(());
                }
                target
                    .write_all_at(&buffer[..got], at)
                    .map_err(ImportError::io("write", escape(path)))?;
                at += got as u64;
                self.meter.bytes(got as u64)?;
            }
        }
        Ok(())
    }

    fn metadata(
        &mut self,
        from: impl std::os::fd::AsFd,
        to: impl std::os::fd::AsFd,
        stat: &Stat,
        path: &[u8],
    ) -> Result<(), ImportError> {
        let failed = |action| ImportError::errno(action, escape(path));
        let to = to.as_fd();
        let owner = (Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)));
        rustix::fs::fchown(to, owner.0, owner.1).map_err(failed("set the owner of"))?;
        rustix::fs::fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o7777)).map_err(failed("set the mode of"))?;
        for (name, value) in tree::xattrs_of(from).map_err(failed("read the attributes of"))? {
            if self.is_kept(&name, path) {
                tree::set_xattr(to, &name, &value).map_err(failed("set an attribute of"))?;
            }
        }
        Ok(())
    }

    fn special(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        name: &[u8],
        stat: &Stat,
        path: &[u8],
    ) -> Result<(), ImportError> {
        let failed = |action| ImportError::errno(action, escape(path));
        let owner = (Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)));
        rustix::fs::chownat(to, name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(failed("set the owner of"))?;
        let xattrs = tree::xattrs_of_nofollow(from, name).map_err(failed("read the attributes of"))?;
        for (attribute, value) in xattrs {
            if self.is_kept(&attribute, path) {
                tree::set_xattr_nofollow(to, name, &attribute, &value).map_err(failed("set an attribute of"))?;
            }
        }
        rustix::fs::utimensat(to, name, &times_of(stat), AtFlags::SYMLINK_NOFOLLOW).map_err(failed("set the time of"))
    }

    /// What overlayfs keeps in the layers of a container is about those layers, not about the root.
    fn is_kept(&mut self, attribute: &[u8], path: &[u8]) -> bool {
        let overlay = attribute.starts_with(b"trusted.overlay.") || attribute.starts_with(b"user.overlay.");
        if overlay {
            let detail = format!("{} belongs to an overlay mount", escape(attribute));
            self.copied.notes.add(NoteKind::AttributeSkipped, escape(path), detail);
        }
        !overlay
    }
}

fn times_of(stat: &Stat) -> Timestamps {
    let time = Timespec {
        tv_sec: stat.st_mtime,
        tv_nsec: stat.st_mtime_nsec.try_into().unwrap_or(0),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}
