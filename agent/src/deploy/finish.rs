//! The last look: metadata of folders, then that everything is there, then down to the disk.

use std::collections::BTreeMap;

use anyhow::ensure;
use manifest::{Entry, EntryKind, Manifest, TreePath};
use rustix::fs::FileType;

use super::tree::Tree;

/// As [`check_all`], and flushes. Blocks.
///
/// # Errors
/// The first path that is not as it should be, or a write that failed on its way to the disk.
pub fn settle(tree: &Tree, layers: &[&Manifest]) -> anyhow::Result<()> {
    check_all(tree, layers)?;
    let mounts = layers
        .first()
        .map(|layer| layer.header.roots.as_slice())
        .unwrap_or_default();
    for mount in mounts.iter().map(|root| &root.mount).rev() {
        tree.flush(mount)?;
    }
    tree.flush(&TreePath::root())?;
    rustix::fs::sync();
    Ok(())
}

/// As [`check_all`] for a tree on one filesystem, and flushes that. Files that a node makes or is given are not there.
/// Blocks.
///
/// # Errors
/// As [`settle`].
pub fn settle_folder(tree: &Tree, layers: &[&Manifest]) -> anyhow::Result<()> {
    check_merged(tree, layers, |entry| !matches!(entry.kind, EntryKind::File(None)))?;
    tree.flush(&TreePath::root())?;
    Ok(())
}

/// Gives folders their metadata and checks types and sizes of all paths (contents were hashed while they were written).
/// Later manifests win, path by path. Blocks.
///
/// # Errors
/// The first path that is not as it should be.
pub fn check_all(tree: &Tree, layers: &[&Manifest]) -> anyhow::Result<()> {
    check_merged(tree, layers, |_| true)
}

fn check_merged(tree: &Tree, layers: &[&Manifest], is_here: impl Fn(&Entry) -> bool) -> anyhow::Result<()> {
    let mut merged: BTreeMap<&TreePath, &Entry> = BTreeMap::new();
    for entry in layers.iter().flat_map(|layer| &layer.entries) {
        merged.insert(&entry.path, entry);
    }
    // mke2fs makes it; with an image that neither lists nor allows it, a clean node would show it as added. e2fsck makes
    // it again when it needs it.
    let lost_and_found = TreePath::root().join(b"lost+found")?;
    let is_allowed = layers
        .first()
        .is_some_and(|image| image.header.classes.allows_unlisted(&lost_and_found));
    if !merged.contains_key(&lost_and_found) && !is_allowed {
        tree.remove_folder(&lost_and_found)?;
    }
    // Inner folders first: making or changing something in a folder changes that folder's time.
    for entry in merged.values().rev().filter(|entry| entry.kind == EntryKind::Directory) {
        tree.finish_folder(entry)?;
    }
    for entry in merged.values().filter(|entry| is_here(entry)) {
        check(tree, entry)?;
    }
    Ok(())
}

fn check(tree: &Tree, entry: &Entry) -> anyhow::Result<()> {
    let path = &entry.path;
    let stat = tree.stat(path)?;
    let found = FileType::from_raw_mode(stat.st_mode);
    let expected = match entry.kind {
        EntryKind::Directory => FileType::Directory,
        EntryKind::File(_) => FileType::RegularFile,
        EntryKind::Symlink(_) => FileType::Symlink,
        EntryKind::CharacterDevice(..) => FileType::CharacterDevice,
        EntryKind::BlockDevice(..) => FileType::BlockDevice,
        EntryKind::Fifo => FileType::Fifo,
        EntryKind::Socket => FileType::Socket,
    };
    ensure!(found == expected, "{path}: is a {found:?}, expected a {expected:?}");
    if let EntryKind::File(Some(content)) = entry.kind {
        let size = u64::try_from(stat.st_size)?;
        ensure!(
            size == content.size,
            "{path}: has {size} bytes, expected {}",
            content.size
        );
    }
    if tree.keeps_metadata(path) && !matches!(entry.kind, EntryKind::Symlink(_)) {
        let mode = stat.st_mode & 0o7777;
        ensure!(
            mode == entry.mode,
            "{path}: has the mode {mode:04o}, expected {:04o}",
            entry.mode
        );
        let owner = (stat.st_uid, stat.st_gid);
        ensure!(
            owner == (entry.uid, entry.gid),
            "{path}: has the owner {owner:?}, expected {:?}",
            (entry.uid, entry.gid)
        );
    }
    Ok(())
}
