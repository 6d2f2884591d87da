//! The digest of a regular file, or the certainty that there is none.

use std::ffi::OsStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use manifest::{Digest, Hasher, TreePath};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::ScanOptions;
use super::stat::Stat;

/// Read at once, in bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// What came of reading a file once.
pub(super) enum Reading {
    /// Read to its end, and it was the same file before and after.
    Hashed(Stat, Digest),
    /// It is another file now, or it changed meanwhile: look again.
    Changed,
    /// The system would not let us.
    Failed(Errno),
}

/// Reads files one after the other through one buffer. A plain read loop: a mapped file that shrinks kills the reader.
pub(super) struct FileReader {
    buffer: Vec<u8>,
    /// Bytes read so far, by all files.
    pub bytes: u64,
}

impl FileReader {
    pub(super) fn new() -> Self {
        Self {
            buffer: vec![0; CHUNK_BYTES],
            bytes: 0,
        }
    }

    /// Reads `name`, which was just seen to be `seen`.
    pub(super) fn read(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        path: &TreePath,
        seen: &Stat,
        options: &ScanOptions<'_>,
    ) -> Reading {
        let file = match open(folder, name) {
            Ok(file) => file,
            // Gone, a link or a socket now.
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Reading::Changed,
            Err(error) => return Reading::Failed(error),
        };
        match self.hash(&file, path, seen, options) {
            Ok(Some(digest)) => Reading::Hashed(*seen, digest),
            Ok(None) => Reading::Changed,
            Err(error) => Reading::Failed(error),
        }
    }

    fn hash(
        &mut self,
        file: &OwnedFd,
        path: &TreePath,
        seen: &Stat,
        options: &ScanOptions<'_>,
    ) -> Result<Option<Digest>, Errno> {
        let before = Stat::of(file)?;
        if before.kind != FileType::RegularFile || !before.is_same_file(seen) || before.key != seen.key {
            return Ok(None);
        }
        let mut hasher = Hasher::new();
        let mut total = 0;
        loop {
            options.interference.while_reading(path, total);
            if options.is_stopped() {
                return Err(Errno::CANCELED);
            }
            let length = match rustix::io::read(file, &mut self.buffer) {
                Ok(0) => break,
                Ok(length) => length,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            };
            hasher.update(&self.buffer[..length]);
            total += length as u64;
            self.bytes += length as u64;
            // It grows as fast as it is read.
            if total > seen.key.size {
                return Ok(None);
            }
        }
        let after = Stat::of(file)?;
        let is_same = after.kind == before.kind && after.key == before.key && total == before.key.size;
        Ok(is_same.then(|| hasher.finish()))
    }
}

/// Opens what should be a regular file without being held up by a pipe, taking a terminal or leaving a trace.
fn open(folder: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match rustix::fs::openat(folder, name, flags | OFlags::NOATIME, Mode::empty()) {
        // Only the owner may leave the access time alone.
        Err(Errno::PERM) => rustix::fs::openat(folder, name, flags, Mode::empty()),
        result => result,
    }
}
