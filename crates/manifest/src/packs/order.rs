//! In which order contents are packed.

use std::collections::HashSet;

use crate::{Digest, Entry, EntryKind};

/// The entries with content, those first that no earlier version holds; otherwise in the order of their paths.
///
/// A machine that holds an earlier version lacks just the first ones, which then lie in a few runs of frames, wherever
/// in the tree they belong. The manifest, and with it the image's digest, does not depend on it.
#[must_use]
pub fn packing_order<'a>(entries: &'a [Entry], earlier: &HashSet<Digest>) -> Vec<&'a Entry> {
    let is_earlier = |entry: &Entry| match entry.kind {
        EntryKind::File(Some(content)) => earlier.contains(&content.digest),
        _ => false,
    };
    let mut order: Vec<&Entry> = entries
        .iter()
        .filter(|entry| matches!(entry.kind, EntryKind::File(Some(_))))
        .collect();
    order.sort_by_key(|entry| is_earlier(entry));
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileContent, PathClass, Xattrs};

    fn file(path: &str, content: &str) -> Entry {
        let kind = EntryKind::File(Some(FileContent {
            size: content.len() as u64,
            digest: Digest::of(content.as_bytes()),
        }));
        let path = path.parse().unwrap();
        let (class, xattrs) = (PathClass::Pinned, Xattrs::new());
        Entry {
            path,
            class,
            kind,
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime: 0,
            xattrs,
        }
    }

    #[test]
    fn what_is_new_comes_first_and_paths_keep_their_order() {
        let entries = [
            file("/a", "old"),
            file("/b", "new"),
            file("/c", "old2"),
            file("/d", "new2"),
        ];
        let earlier = ["old", "old2"].map(|text| Digest::of(text.as_bytes())).into();
        let order: Vec<String> = packing_order(&entries, &earlier)
            .iter()
            .map(|entry| entry.path.to_string())
            .collect();
        assert_eq!(order, ["/b", "/d", "/a", "/c"]);
    }
}
