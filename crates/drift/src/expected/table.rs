//! Entries of one manifest, packed: 20 bytes and the path each, where [`Entry`] takes about 250.
//!
//! A node with 400,000 paths then needs about 45 MB for its whole baseline. What is never compared (`mtime`) is not
//! kept.

use manifest::{Digest, Entry, EntryKind, FileContent, PathClass, TreePath, Xattrs};

use super::ExpectedError;

const FILE_BYTES: usize = 8 + 32;

/// One entry; path and payload lie one behind the other in [`Table::bytes`].
struct Record {
    start: u32,
    path_length: u16,
    payload_length: u16,
    mode: u16,
    kind: u8,
    class: PathClass,
    uid: u32,
    gid: u32,
}

/// Entries of one manifest in byte order of their paths.
#[derive(Default)]
pub(super) struct Table {
    bytes: Vec<u8>,
    records: Vec<Record>,
    /// Few entries have any.
    xattrs: Vec<(u32, Xattrs)>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Adds an entry that sorts after all before it.
    pub(super) fn push(&mut self, entry: &Entry) -> Result<(), ExpectedError> {
        let path = entry.path.as_bytes();
        if self.records.last().is_some_and(|last| self.path_of(last) >= path) {
            return Err(ExpectedError::Order {
                path: entry.path.clone(),
            });
        }
        let too_large = |_| ExpectedError::TooLarge;
        let start = u32::try_from(self.bytes.len()).map_err(too_large)?;
        self.bytes.extend_from_slice(path);
        let kind = match &entry.kind {
            EntryKind::Directory => 0,
            EntryKind::File(content) => {
                if let Some(content) = content {
                    self.bytes.extend_from_slice(&content.size.to_be_bytes());
                    self.bytes.extend_from_slice(content.digest.as_bytes());
                }
                1
            }
            EntryKind::Symlink(target) => {
                self.bytes.extend_from_slice(target);
                2
            }
            EntryKind::CharacterDevice(major, minor) => {
                self.push_device(*major, *minor);
                3
            }
            EntryKind::BlockDevice(major, minor) => {
                self.push_device(*major, *minor);
                4
            }
            EntryKind::Fifo => 5,
            EntryKind::Socket => 6,
        };
        let payload = self.bytes.len() - start as usize - path.len();
        if !entry.xattrs.is_empty() {
            let index = u32::try_from(self.records.len()).map_err(too_large)?;
            self.xattrs.push((index, entry.xattrs.clone()));
        }
        self.records.push(Record {
            start,
            path_length: u16::try_from(path.len()).map_err(too_large)?,
            payload_length: u16::try_from(payload).map_err(too_large)?,
            mode: (entry.mode & 0o7777) as u16,
            kind,
            class: entry.class,
            uid: entry.uid,
            gid: entry.gid,
        });
        Ok(())
    }

    fn push_device(&mut self, major: u32, minor: u32) {
        self.bytes.extend_from_slice(&major.to_be_bytes());
        self.bytes.extend_from_slice(&minor.to_be_bytes());
    }

    /// Gives back what growing left over.
    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.records.shrink_to_fit();
    }

    fn path_of(&self, record: &Record) -> &[u8] {
        let start = record.start as usize;
        &self.bytes[start..start + record.path_length as usize]
    }

    fn payload_of(&self, record: &Record) -> &[u8] {
        let start = record.start as usize + record.path_length as usize;
        &self.bytes[start..start + record.payload_length as usize]
    }

    pub(super) fn path(&self, index: usize) -> &[u8] {
        self.path_of(&self.records[index])
    }

    pub(super) fn class(&self, index: usize) -> PathClass {
        self.records[index].class
    }

    pub(super) fn find(&self, path: &[u8]) -> Option<usize> {
        self.records
            .binary_search_by(|record| self.path_of(record).cmp(path))
            .ok()
    }

    /// Index of the first entry that does not sort before `path`.
    pub(super) fn first_from(&self, path: &[u8]) -> usize {
        self.records.partition_point(|record| self.path_of(record) < path)
    }

    pub(super) fn entry(&self, index: usize, path: &TreePath) -> Entry {
        let record = &self.records[index];
        let payload = self.payload_of(record);
        let kind = match record.kind {
            0 => EntryKind::Directory,
            1 => EntryKind::File(file_content(payload)),
            2 => EntryKind::Symlink(payload.to_vec()),
            3 => EntryKind::CharacterDevice(number(payload, 0), number(payload, 4)),
            4 => EntryKind::BlockDevice(number(payload, 0), number(payload, 4)),
            5 => EntryKind::Fifo,
            _ => EntryKind::Socket,
        };
        let xattrs = match self.xattrs.binary_search_by_key(&(index as u32), |(at, _)| *at) {
            Ok(at) => self.xattrs[at].1.clone(),
            Err(_) => Xattrs::new(),
        };
        Entry {
            path: path.clone(),
            class: record.class,
            kind,
            mode: u32::from(record.mode),
            uid: record.uid,
            gid: record.gid,
            mtime: 0,
            xattrs,
        }
    }
}

fn file_content(payload: &[u8]) -> Option<FileContent> {
    if payload.len() != FILE_BYTES {
        return None;
    }
    let size = u64::from_be_bytes(payload[..8].try_into().ok()?);
    let digest = Digest::from_bytes(payload[8..].try_into().ok()?);
    Some(FileContent { size, digest })
}

fn number(payload: &[u8], at: usize) -> u32 {
    payload
        .get(at..at + 4)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u32::from_be_bytes)
}
