//! What was replaced or removed, kept for a week.
//!
//! One folder for each job, readable by root only: a file taken away may be setuid. `index.jsonl` tells what each of
//! its entries was. Folders older than a week, and the oldest beyond 512 MiB, are dropped when the next job begins.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use manifest::TreePath;
use protocol::JobId;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// How long a folder is kept.
const AGE_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Bytes of all folders together.
const TOTAL_BYTES_MAX: u64 = 512 << 20;
/// Bytes copied for one path where it lies on another filesystem.
const COPY_BYTES_MAX: u64 = 64 << 20;
/// Paths copied for one path.
const COPY_ENTRIES_MAX: u32 = 10_000;
/// Folders inside each other, for copies.
const COPY_DEPTH_MAX: u32 = 64;

/// The folder of one job.
#[derive(Debug)]
pub struct Undo {
    folder: PathBuf,
    handle: OwnedFd,
    next: u32,
}

impl Undo {
    /// Makes the folder of a job and drops what is too old or too much.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(state_folder: &Path, job_id: JobId) -> std::io::Result<Self> {
        let all = state_folder.join("undo");
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&all)?;
        prune(&all, SystemTime::now(), TOTAL_BYTES_MAX);
        let folder = all.join(job_id.to_string());
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let handle = rustix::fs::open(&folder, flags, Mode::empty())?;
        Ok(Self {
            folder,
            handle,
            next: 0,
        })
    }

    fn note(&mut self, path: &TreePath, what: &str) -> Result<String, String> {
        self.next += 1;
        let name = format!("{:06}", self.next);
        let line = serde_json::json!({"name": name, "path": path, "what": what}).to_string() + "\n";
        let index = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join("index.jsonl"));
        index
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .map_err(|error| format!("noting what is kept: {error}"))?;
        Ok(name)
    }

    /// Keeps what is about to be replaced, and leaves it where it is. Not for folders.
    ///
    /// # Errors
    /// When it cannot be kept: then it must not be replaced.
    pub fn keep(&mut self, folder: BorrowedFd<'_>, name: &OsStr, path: &TreePath) -> Result<(), String> {
        let kept = self.note(path, "replaced")?;
        // A second name costs nothing and loses nothing.
        match rustix::fs::linkat(folder, name, &self.handle, &kept, AtFlags::empty()) {
            Ok(()) => Ok(()),
            Err(Errno::XDEV | Errno::PERM | Errno::MLINK | Errno::NOTSUP) => self.copy(folder, name, &kept),
            Err(error) => Err(format!("keeping what stands there: {error}")),
        }
    }

    /// Takes away what stands there, with all that is in it.
    ///
    /// # Errors
    /// When it cannot be kept; it then stays.
    pub fn take(&mut self, folder: BorrowedFd<'_>, name: &OsStr, path: &TreePath) -> Result<(), String> {
        let kept = self.note(path, "removed")?;
        match rustix::fs::renameat(folder, name, &self.handle, &kept) {
            Ok(()) => Ok(()),
            Err(Errno::XDEV) => {
                self.copy(folder, name, &kept)?;
                remove(folder, name, COPY_DEPTH_MAX).map_err(|error| format!("removing it: {error}"))
            }
            Err(error) => Err(format!("moving it away: {error}")),
        }
    }

    fn copy(&self, folder: BorrowedFd<'_>, name: &OsStr, kept: &str) -> Result<(), String> {
        let mut budget = Budget {
            bytes: COPY_BYTES_MAX,
            entries: COPY_ENTRIES_MAX,
        };
        copy(
            folder,
            name,
            self.handle.as_fd(),
            OsStr::new(kept),
            &mut budget,
            COPY_DEPTH_MAX,
        )
        .map_err(|error| format!("keeping a copy on another filesystem: {error}"))
    }
}

struct Budget {
    bytes: u64,
    entries: u32,
}

fn too_much(what: &str) -> std::io::Error {
    std::io::Error::other(format!("more than {what} is not copied"))
}

fn open_folder(folder: BorrowedFd<'_>, name: &OsStr) -> std::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    Ok(rustix::fs::openat2(folder, name, flags, Mode::empty(), resolve)?)
}

fn names(folder: &OwnedFd) -> std::io::Result<Vec<std::ffi::OsString>> {
    use std::os::unix::ffi::OsStrExt;
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

fn copy(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    to: BorrowedFd<'_>,
    to_name: &OsStr,
    budget: &mut Budget,
    depth_left: u32,
) -> std::io::Result<()> {
    budget.entries = budget.entries.checked_sub(1).ok_or_else(|| too_much("10,000 paths"))?;
    let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            let depth_left = depth_left
                .checked_sub(1)
                .ok_or_else(|| too_much("64 folders in each other"))?;
            rustix::fs::mkdirat(to, to_name, Mode::from_raw_mode(0o700))?;
            let (from, into) = (open_folder(folder, name)?, open_folder(to, to_name)?);
            for name in names(&from)? {
                copy(from.as_fd(), &name, into.as_fd(), &name, budget, depth_left)?;
            }
            Ok(rustix::fs::fchmod(&into, mode)?)
        }
        FileType::RegularFile => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let from = std::fs::File::from(rustix::fs::openat(folder, name, flags, Mode::empty())?);
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut into = std::fs::File::from(rustix::fs::openat(to, to_name, flags, Mode::from_raw_mode(0o600))?);
            let copied = std::io::copy(&mut from.take(budget.bytes + 1), &mut into)?;
            budget.bytes = budget.bytes.checked_sub(copied).ok_or_else(|| too_much("64 MiB"))?;
            rustix::fs::fchmod(&into, mode)?;
            into.sync_all()
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(folder, name, Vec::new())?;
            Ok(rustix::fs::symlinkat(target, to, to_name)?)
        }
        // Devices, pipes and sockets hold nothing; the index names them.
        _ => Ok(()),
    }
}

/// Removes a tree on one filesystem without following links.
fn remove(folder: BorrowedFd<'_>, name: &OsStr, depth_left: u32) -> std::io::Result<()> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let depth_left = depth_left
        .checked_sub(1)
        .ok_or_else(|| too_much("64 folders in each other"))?;
    let inner = open_folder(folder, name)?;
    for name in names(&inner)? {
        remove(inner.as_fd(), &name, depth_left)?;
    }
    Ok(rustix::fs::unlinkat(folder, name, AtFlags::REMOVEDIR)?)
}

/// Drops folders older than a week, and the oldest until the rest is not more than `bytes_max`.
fn prune(all: &Path, now: SystemTime, bytes_max: u64) {
    let Ok(listing) = std::fs::read_dir(all) else { return };
    let mut folders: Vec<(SystemTime, PathBuf, u64)> = listing
        .flatten()
        .filter_map(|entry| {
            let made = entry.metadata().ok()?.modified().ok()?;
            Some((made, entry.path(), size_of(&entry.path(), 0)))
        })
        .collect();
    folders.sort();
    let mut total: u64 = folders.iter().map(|(_, _, bytes)| bytes).sum();
    for (made, path, bytes) in folders {
        let is_old = now.duration_since(made).is_ok_and(|age| age > AGE_MAX);
        if !is_old && total <= bytes_max {
            continue;
        }
        match std::fs::remove_dir_all(&path) {
            Ok(()) => total -= bytes,
            Err(error) => tracing::warn!(path = %path.display(), %error, "an undo folder is not dropped"),
        }
    }
}

fn size_of(path: &Path, depth: u32) -> u64 {
    let Ok(listing) = std::fs::read_dir(path) else { return 0 };
    if depth > COPY_DEPTH_MAX {
        return 0;
    }
    listing
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size_of(&entry.path(), depth + 1),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_week_and_half_a_gigabyte_are_kept_the_newest_longest() {
        let all = tempfile::tempdir().unwrap();
        let day = Duration::from_secs(24 * 3600);
        let now = SystemTime::now();
        for (name, age, bytes) in [("a", 8, 1), ("b", 3, 100), ("c", 2, 100), ("d", 1, 100)] {
            let folder = all.path().join(name);
            std::fs::create_dir_all(folder.join("deep")).unwrap();
            std::fs::write(folder.join("deep/file"), vec![0; bytes]).unwrap();
            std::fs::File::open(&folder)
                .unwrap()
                .set_modified(now - day * age)
                .unwrap();
        }
        prune(all.path(), now, 250);
        let left = |name: &str| all.path().join(name).exists();
        assert_eq!(["a", "b", "c", "d"].map(left), [false, false, true, true]);
    }

    #[test]
    fn what_is_taken_lies_in_the_folder_of_its_job_with_its_name() {
        let (state, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(tree.path().join("evil")).unwrap();
        std::fs::write(tree.path().join("evil/x"), "x").unwrap();
        let job = JobId::new();
        let mut undo = Undo::open(state.path(), job).unwrap();
        let handle = std::fs::File::open(tree.path()).unwrap();
        undo.take(handle.as_fd(), OsStr::new("evil"), &"/etc/evil".parse().unwrap())
            .unwrap();
        assert!(!tree.path().join("evil").exists());
        let folder = state.path().join("undo").join(job.to_string());
        assert_eq!(std::fs::read_to_string(folder.join("000001/x")).unwrap(), "x");
        assert!(
            std::fs::read_to_string(folder.join("index.jsonl"))
                .unwrap()
                .contains("/etc/evil")
        );
    }

    #[test]
    fn a_copy_to_another_filesystem_is_whole_bounded_and_follows_nothing() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(from.path().join("a")).unwrap();
        std::fs::write(from.path().join("a/x"), "x").unwrap();
        std::os::unix::fs::symlink("/etc", from.path().join("a/link")).unwrap();
        let (source, target) = (
            std::fs::File::open(from.path()).unwrap(),
            std::fs::File::open(to.path()).unwrap(),
        );
        let copy = |name: &str, bytes| {
            let mut budget = Budget { bytes, entries: 10 };
            super::copy(
                source.as_fd(),
                OsStr::new("a"),
                target.as_fd(),
                OsStr::new(name),
                &mut budget,
                5,
            )
        };
        copy("1", 10).unwrap();
        assert_eq!(std::fs::read_to_string(to.path().join("1/x")).unwrap(), "x");
        assert_eq!(std::fs::read_link(to.path().join("1/link")).unwrap(), Path::new("/etc"));
        assert!(copy("2", 0).is_err());
        remove(source.as_fd(), OsStr::new("a"), 5).unwrap();
        assert!(!from.path().join("a").exists() && Path::new("/etc").exists());
    }
}
