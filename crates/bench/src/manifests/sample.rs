//! A made-up root: paths and sizes as a root with CUDA has them, contents that follow from their number.

use manifest::{Digest, Entry, EntryKind, FileContent, Header, ManifestKind, PathClass, TreePath, Xattrs};

/// Files in a folder.
const FOLDER_FILES: usize = 250;
/// Sizes of every hundred files, in bytes, before they are scaled: half are small, few hold most of the bytes.
const SIZES: [(usize, u64); 4] = [(60, 2_000), (30, 16_000), (9, 150_000), (1, 2_000_000)];
/// Of a file's bytes, the part that does not compress is one of this many.
const NOISE_PART: usize = 6;

/// A header with nothing special.
pub fn header(version: &str) -> Header {
    Header::new(ManifestKind::Os, "benchmark", version)
}

/// The path of a file.
pub fn path(number: usize) -> String {
    let folder = number / FOLDER_FILES;
    format!("/usr/lib/package-{folder:05}/lib-component-{number:07}.so.1")
}

fn folder(number: usize) -> String {
    format!("/usr/lib/package-{number:05}")
}

/// The size of a file of a tree of `files` files with `bytes_total` bytes.
pub fn size(number: usize, files: usize, bytes_total: u64) -> u64 {
    let mut place = number % 100;
    let mut size = 0;
    for (count, bytes) in SIZES {
        if place < count {
            size = bytes;
            break;
        }
        place -= count;
    }
    let hundred: u64 = SIZES.iter().map(|(count, bytes)| *count as u64 * bytes).sum();
    let whole = u128::from(hundred) * files as u128 / 100;
    u64::try_from(u128::from(size) * u128::from(bytes_total) / whole.max(1))
        .unwrap_or(size)
        .max(16)
}

/// A file's content: noise of its own, and the same text again and again.
pub fn content(number: usize, size: u64) -> Vec<u8> {
    let size = usize::try_from(size).unwrap_or(0);
    let mut bytes = Vec::with_capacity(size);
    let mut state = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let noise = (size / NOISE_PART).max(16).min(size);
    while bytes.len() < noise {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(noise);
    let text = b"the quick brown fox jumps over the lazy dog; ";
    while bytes.len() < size {
        let left = size - bytes.len();
        bytes.extend_from_slice(&text[..left.min(text.len())]);
    }
    bytes
}

fn entry(path: &str, kind: EntryKind, mode: u32) -> Entry {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    Entry {
        path: TreePath::from_bytes(path).unwrap_or_else(|_| TreePath::root()),
        class: PathClass::Pinned,
        kind,
        mode,
        uid,
        gid,
        mtime: 1_700_000_000,
        xattrs: Xattrs::new(),
    }
}

/// A file.
pub fn file(number: usize, content: FileContent) -> Entry {
    entry(&path(number), EntryKind::File(Some(content)), 0o644)
}

/// The folders of a tree of so many files.
pub fn folders(files: usize) -> Vec<Entry> {
    let above = ["/", "/usr", "/usr/lib"].map(|path| entry(path, EntryKind::Directory, 0o755));
    let count = files.div_ceil(FOLDER_FILES);
    let own = (0..count).map(|number| entry(&folder(number), EntryKind::Directory, 0o755));
    above.into_iter().chain(own).collect()
}

/// Entries of so many files, whose contents nobody needs.
pub fn entries(files: usize) -> Vec<Entry> {
    let mut entries = folders(files);
    for number in 0..files {
        let digest = Digest::of(&number.to_le_bytes());
        let size = size(number, files, files as u64 * 40_000);
        entries.push(file(number, FileContent { size, digest }));
    }
    entries
}

/// Gives every `step`-th file another content; returns how many.
pub fn change(entries: &mut [Entry], step: usize) -> usize {
    let mut changed = 0;
    for (number, entry) in entries.iter_mut().enumerate() {
        if let EntryKind::File(Some(content)) = &mut entry.kind
            && number.is_multiple_of(step)
        {
            content.digest = Digest::of(content.digest.as_bytes());
            changed += 1;
        }
    }
    changed
}

/// Another order, always the same.
pub fn shuffle(entries: &mut [Entry]) {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for at in (1..entries.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let other = usize::try_from(state % (at as u64 + 1)).unwrap_or(0);
        entries.swap(at, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_to_what_is_asked_for() {
        let (files, wanted) = (10_000, 400_000_000);
        let total: u64 = (0..files).map(|number| size(number, files, wanted)).sum();
        assert!(total.abs_diff(wanted) < wanted / 100, "{total}");
    }

    #[test]
    fn no_two_files_have_one_content() {
        let digests: std::collections::HashSet<Digest> =
            (0..500).map(|number| Digest::of(&content(number, 40))).collect();
        assert_eq!(digests.len(), 500);
        assert_eq!(content(7, 5_000).len(), 5_000);
    }
}
