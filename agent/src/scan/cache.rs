//! Digests of files that have not changed since they were read.
//!
//! A record is good for the path it was made for, and only while device, inode, size and both times are the same; the
//! inode is a validator, never a key. Records lie in the order of the walk, so the old file is read and the new one
//! written side by side with it and neither is ever held in memory. A record is at most a day old, so that every file
//! is read again at least daily; the first record that is not as it was written ends the use of the file.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use manifest::{Digest, TreePath};

const MAGIC: &[u8; 20] = b"plumbline-digests-1\n";
const FIXED_BYTES: usize = 5 * 8 + 32 + 8;
const CHECK_BYTES: usize = 8;
/// Longest time a digest is believed, in seconds.
pub const AGE_SECS_MAX: u64 = 24 * 3600;
/// A file that changed this recently, in seconds, may change again within the same time stamp.
const RACY_SECS: i64 = 2;

/// What must be the same for a digest to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileKey {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Modification time in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Change time in nanoseconds since 1970.
    pub ctime_ns: i64,
}

struct Record {
    path: Vec<u8>,
    key: FileKey,
    digest: Digest,
    hashed_unix_secs: u64,
}

/// The digests of one root.
pub struct DigestCache {
    old: Option<BufReader<File>>,
    next: Option<Record>,
    new: Option<(BufWriter<File>, PathBuf, PathBuf)>,
    now_unix_secs: u64,
}

impl DigestCache {
    /// A cache that knows nothing and keeps nothing.
    #[must_use]
    pub const fn disabled() -> Self {
        Self {
            old: None,
            next: None,
            new: None,
            now_unix_secs: 0,
        }
    }

    /// Reads `name` in `folder` and writes its successor. Where either cannot be, the cache does without: it only
    /// saves time.
    #[must_use]
    pub fn open(folder: &Path, name: &str, now_unix_secs: u64) -> Self {
        let (current, next) = (folder.join(name), folder.join(format!("{name}.new")));
        let new = File::create(&next).and_then(|file| {
            let mut writer = BufWriter::with_capacity(64 << 10, file);
            writer.write_all(MAGIC).map(|()| writer)
        });
        let new = match new {
            Ok(writer) => Some((writer, next, current.clone())),
            Err(error) => {
                tracing::warn!(path = %next.display(), %error, "digests are not kept");
                None
            }
        };
        let mut cache = Self {
            old: File::open(&current)
                .ok()
                .map(|file| BufReader::with_capacity(64 << 10, file)),
            next: None,
            new,
            now_unix_secs,
        };
        let mut magic = [0; MAGIC.len()];
        if let Some(old) = &mut cache.old
            && (old.read_exact(&mut magic).is_err() || magic != *MAGIC)
        {
            cache.old = None;
        }
        cache.advance();
        cache
    }

    fn advance(&mut self) {
        let before = self.next.take();
        let Some(old) = &mut self.old else { return };
        match read_record(old) {
            Some(record)
                if before
                    .as_ref()
                    .is_none_or(|before| in_walk_order(&before.path, &record.path)) =>
            {
                self.next = Some(record);
            }
            _ => self.old = None,
        }
    }

    /// The digest of a file, if it was read within a day and has not changed. Paths must be asked for in the order of
    /// the walk.
    pub fn get(&mut self, path: &TreePath, key: &FileKey) -> Option<Digest> {
        while let Some(next) = &self.next {
            if next.path == path.as_bytes() {
                break;
            }
            if !in_walk_order(&next.path, path.as_bytes()) {
                return None;
            }
            self.advance();
        }
        let record = self.next.as_ref()?;
        let age = self.now_unix_secs.checked_sub(record.hashed_unix_secs)?;
        if record.key != *key || age >= AGE_SECS_MAX {
            return None;
        }
        let (digest, hashed) = (record.digest, record.hashed_unix_secs);
        self.write(path, key, digest, hashed);
        Some(digest)
    }

    /// Keeps a digest just made.
    pub fn put(&mut self, path: &TreePath, key: &FileKey, digest: Digest) {
        let changed_secs = key.mtime_ns.max(key.ctime_ns) / 1_000_000_000;
        let now = i64::try_from(self.now_unix_secs).unwrap_or(i64::MAX);
        if changed_secs <= now - RACY_SECS {
            self.write(path, key, digest, self.now_unix_secs);
        }
    }

    fn write(&mut self, path: &TreePath, key: &FileKey, digest: Digest, hashed_unix_secs: u64) {
        let Some((writer, next, _)) = &mut self.new else { return };
        let record = record_bytes(path.as_bytes(), key, digest, hashed_unix_secs);
        if let Err(error) = writer.write_all(&record) {
            tracing::warn!(path = %next.display(), %error, "digests are not kept");
            let _ = std::fs::remove_file(next);
            self.new = None;
        }
    }

    /// Puts the new file in the place of the old one.
    pub fn finish(self) {
        let Some((mut writer, next, current)) = self.new else {
            return;
        };
        if let Err(error) = writer.flush().and_then(|()| std::fs::rename(&next, &current)) {
            tracing::warn!(path = %current.display(), %error, "digests are not kept");
        }
    }
}

/// Whether a walk comes to `a` before `b`: component by component, so `/a/b` before `/a-x`.
fn in_walk_order(a: &[u8], b: &[u8]) -> bool {
    let key = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    a.iter().map(key).lt(b.iter().map(key))
}

fn record_bytes(path: &[u8], key: &FileKey, digest: Digest, hashed_unix_secs: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(2 + path.len() + FIXED_BYTES + CHECK_BYTES);
    // A tree path has at most 4,096 bytes.
    bytes.extend_from_slice(&(path.len() as u16).to_be_bytes());
    bytes.extend_from_slice(path);
    for number in [key.device, key.inode, key.size] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    for number in [key.mtime_ns, key.ctime_ns] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    bytes.extend_from_slice(digest.as_bytes());
    bytes.extend_from_slice(&hashed_unix_secs.to_be_bytes());
    let check = Digest::of(&bytes);
    bytes.extend_from_slice(&check.as_bytes()[..CHECK_BYTES]);
    bytes
}

fn read_record(reader: &mut impl Read) -> Option<Record> {
    let mut length = [0; 2];
    reader.read_exact(&mut length).ok()?;
    let path_length = usize::from(u16::from_be_bytes(length));
    let mut bytes = vec![0; 2 + path_length + FIXED_BYTES + CHECK_BYTES];
    bytes[..2].copy_from_slice(&length);
    reader.read_exact(&mut bytes[2..]).ok()?;
    let (body, check) = bytes.split_at(bytes.len() - CHECK_BYTES);
    if Digest::of(body).as_bytes()[..CHECK_BYTES] != *check {
        return None;
    }
    let fixed = &body[2 + path_length..];
    let number = |at: usize| -> Option<[u8; 8]> { fixed.get(at * 8..at * 8 + 8)?.try_into().ok() };
    Some(Record {
        path: body[2..2 + path_length].to_vec(),
        key: FileKey {
            device: u64::from_be_bytes(number(0)?),
            inode: u64::from_be_bytes(number(1)?),
            size: u64::from_be_bytes(number(2)?),
            mtime_ns: i64::from_be_bytes(number(3)?),
            ctime_ns: i64::from_be_bytes(number(4)?),
        },
        digest: Digest::from_bytes(fixed.get(40..72)?.try_into().ok()?),
        hashed_unix_secs: u64::from_be_bytes(number(9)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn key(inode: u64) -> FileKey {
        FileKey {
            device: 1,
            inode,
            size: 3,
            mtime_ns: 1_700_000_000_000_000_000,
            ctime_ns: 1_700_000_000_000_000_000,
        }
    }

    fn path(text: &str) -> TreePath {
        text.parse().unwrap()
    }

    /// A walk over these files: which of them had to be read.
    fn walk(folder: &Path, files: &[(&str, u64)], now: u64) -> Vec<String> {
        let mut cache = DigestCache::open(folder, "digests", now);
        let mut read = Vec::new();
        for (name, inode) in files {
            let (path, key) = (path(name), key(*inode));
            match cache.get(&path, &key) {
                Some(digest) => assert_eq!(digest, Digest::of(format!("{name}{inode}").as_bytes())),
                None => {
                    read.push((*name).to_owned());
                    cache.put(&path, &key, Digest::of(format!("{name}{inode}").as_bytes()));
                }
            }
        }
        cache.finish();
        read
    }

    #[test]
    fn only_what_changed_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let files = [("/a/b", 1), ("/a/c", 2), ("/a-x", 3), ("/d", 4)];
        assert_eq!(walk(folder.path(), &files, NOW).len(), 4);
        assert_eq!(walk(folder.path(), &files, NOW + 1), [""; 0]);
        let changed = [("/a/b", 1), ("/a/bb", 9), ("/a-x", 7), ("/d", 4)];
        assert_eq!(walk(folder.path(), &changed, NOW + 2), ["/a/bb", "/a-x"]);
        assert_eq!(walk(folder.path(), &changed, NOW + 3), [""; 0]);
    }

    #[test]
    fn every_file_is_read_daily_and_when_the_clock_went_back() {
        let folder = tempfile::tempdir().unwrap();
        let files = [("/a", 1), ("/b", 2)];
        walk(folder.path(), &files, NOW);
        // Being believed does not make a digest younger.
        assert_eq!(walk(folder.path(), &files, NOW + AGE_SECS_MAX - 1), [""; 0]);
        assert_eq!(walk(folder.path(), &files, NOW + AGE_SECS_MAX).len(), 2);
        assert_eq!(walk(folder.path(), &files, NOW).len(), 2);
    }

    #[test]
    fn a_damaged_file_costs_time_only() {
        let folder = tempfile::tempdir().unwrap();
        let files = [("/a", 1), ("/b", 2), ("/c", 3)];
        walk(folder.path(), &files, NOW);
        let file = folder.path().join("digests");
        let good = std::fs::read(&file).unwrap();
        let record = (good.len() - MAGIC.len()) / 3;
        let mut flipped = good.clone();
        flipped[MAGIC.len() + record + 9] ^= 1;
        let part = |at: usize| &good[MAGIC.len() + at * record..MAGIC.len() + (at + 1) * record];
        let swapped = [&good[..MAGIC.len()], part(1), part(0), part(2)];
        for (damaged, read) in [
            (flipped, 2),
            (good[..good.len() - 1].to_vec(), 1),
            (b"hello".to_vec(), 3),
            (Vec::new(), 3),
            (swapped.concat(), 2),
        ] {
            std::fs::write(&file, damaged).unwrap();
            assert_eq!(walk(folder.path(), &files, NOW + 1).len(), read);
            assert_eq!(walk(folder.path(), &files, NOW + 2), [""; 0]);
        }
    }

    #[test]
    fn a_file_that_just_changed_is_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut cache = DigestCache::open(folder.path(), "digests", 1_700_000_001);
        cache.put(&path("/a"), &key(1), Digest::of(b"a"));
        cache.finish();
        let mut cache = DigestCache::open(folder.path(), "digests", 1_700_000_010);
        assert_eq!(cache.get(&path("/a"), &key(1)), None);
    }
}
