//! Contents of the old EFI system partition, which is made anew.

use std::path::Path;

use anyhow::Context as _;
use manifest::{EntryKind, Manifest, TreePath};
use rustix::fs::OFlags;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::stash::Stash;
use crate::deploy::tree::Tree;

/// Copies what the layers list of the ESP mounted at `esp`, and the partition `node` has, into the tree, where the
/// survey finds it. Nothing depends on it: what is not there is fetched. Returns how many files. Blocks.
///
/// # Errors
/// What made it impossible.
pub(in crate::deploy) fn save(
    tree: &Tree,
    node: &Path,
    at: &Path,
    esp: &TreePath,
    layers: &[&Manifest],
) -> anyhow::Result<u64> {
    std::fs::create_dir_all(at).with_context(|| format!("making {}", at.display()))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    mount(node, at, "vfat", flags, None).with_context(|| format!("mounting {}", node.display()))?;
    let saved = copy(tree, at, esp, layers);
    unmount(at, UnmountFlags::empty()).with_context(|| format!("unmounting {}", at.display()))?;
    saved
}

fn copy(tree: &Tree, at: &Path, esp: &TreePath, layers: &[&Manifest]) -> anyhow::Result<u64> {
    let old = Tree::open(at, Vec::new())?;
    let mut stash = Stash::make(tree)?;
    let mut saved = 0;
    for entry in layers.iter().flat_map(|layer| &layer.entries) {
        let EntryKind::File(Some(content)) = entry.kind else {
            continue;
        };
        if !entry.path.is_within(esp) || content.size == 0 || stash.holds(&content.digest) {
            continue;
        }
        let path = TreePath::from_bytes(&entry.path.as_bytes()[esp.as_bytes().len()..])?;
        let Ok(file) = old.open_here(&path, OFlags::RDONLY | OFlags::NOFOLLOW) else {
            continue;
        };
        let file = std::fs::File::from(file);
        if file
            .metadata()
            .is_ok_and(|found| found.is_file() && found.len() == content.size)
            && stash.take_copy(&file, content)?
        {
            saved += 1;
        }
    }
    stash.leave();
    Ok(saved)
}
