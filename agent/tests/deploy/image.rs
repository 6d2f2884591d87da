//! Small images with their packs, and sources that serve them well or badly.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Mutex;

use manifest::packs::{PackIndex, PackWriter, Part, StoredPack};
use manifest::{Digest, Entry, EntryKind, FileContent, Header, Manifest, ManifestKind, PathClass, Xattrs};
use plumbline_agent::deploy::PackSource;

/// An entry owned by whoever runs the test.
pub fn entry(path: &str, kind: EntryKind, mode: u32) -> Entry {
    Entry {
        path: path.parse().unwrap(),
        class: PathClass::Pinned,
        kind,
        mode,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        mtime: 1_700_000_000,
        xattrs: Xattrs::new(),
    }
}

pub fn folder(path: &str) -> Entry {
    entry(path, EntryKind::Directory, 0o755)
}

pub fn file(path: &str, bytes: &[u8]) -> Entry {
    let content = FileContent {
        size: bytes.len() as u64,
        digest: Digest::of(bytes),
    };
    entry(path, EntryKind::File(Some(content)), 0o644)
}

pub fn link(path: &str, target: &str) -> Entry {
    entry(path, EntryKind::Symlink(target.as_bytes().to_vec()), 0o777)
}

pub fn manifest(entries: Vec<Entry>) -> Manifest {
    Manifest::new(Header::new(ManifestKind::Os, "sample", "1"), entries).unwrap()
}

/// Bytes that do not compress.
pub fn noise(size: usize, mut seed: u64) -> Vec<u8> {
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed.to_le_bytes()[0]
    };
    (0..size).map(|_| next()).collect()
}

pub type Packs = HashMap<Digest, Vec<u8>>;

/// One pack series with these contents.
pub fn packed(contents: &[&[u8]]) -> (PackIndex, Packs) {
    let mut stored = Packs::new();
    let mut writer = PackWriter::new(|pack: StoredPack<'_>| {
        stored.insert(pack.digest, pack.bytes.to_vec());
        Ok(())
    });
    for bytes in contents {
        writer.add(Digest::of(bytes), bytes.len() as u64, *bytes).unwrap();
    }
    let index = writer.finish().unwrap();
    (index, stored)
}

/// A blob whose pieces lie in two packs, as a large one's do.
pub fn packed_apart(first: &[u8], second: &[u8]) -> (PackIndex, Packs) {
    let whole = Digest::of(&[first, second].concat());
    let (mut index, mut packs) = packed(&[first]);
    let (rest, more) = packed(&[second]);
    index.packs.extend(rest.packs);
    packs.extend(more);
    let mut offset = 0;
    for extent in index.packs.iter_mut().flat_map(|pack| &mut pack.extents) {
        (extent.blob, extent.blob_offset) = (whole, offset);
        offset += extent.size;
    }
    (index, packs)
}

type Change = Box<dyn Fn(&mut Vec<u8>, u32) + Send + Sync>;

/// Serves packs from memory, changed by a function of how often damage was seen before.
pub struct Served {
    packs: Packs,
    change: Change,
    /// Digest and count of each request.
    pub requests: Mutex<Vec<(Digest, u32)>>,
    /// Bytes that were asked for.
    pub asked_bytes: Mutex<u64>,
}

impl Served {
    pub fn new(packs: Packs, change: impl Fn(&mut Vec<u8>, u32) + Send + Sync + 'static) -> Self {
        Self {
            packs,
            change: Box::new(change),
            requests: Mutex::default(),
            asked_bytes: Mutex::default(),
        }
    }
}

impl PackSource for Served {
    fn open(&self, part: &Part<'_>, again: u32) -> Box<dyn Read + Send> {
        self.requests.lock().unwrap().push((part.info.digest, again));
        *self.asked_bytes.lock().unwrap() += part.info.size;
        let mut bytes = self.packs[&part.info.digest].clone();
        (self.change)(&mut bytes, again);
        let bytes = bytes.split_off(usize::try_from(part.offset).unwrap().min(bytes.len()));
        Box::new(std::io::Cursor::new(bytes).take(part.info.size))
    }
}
