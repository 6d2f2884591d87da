//! Installing over an installation: what is right on the disk stays, everything else goes.
//!
//! Idea: the end is the same as after a wipe, and only the way is shorter. Each file that the manifests list is read and
//! hashed; nothing is believed because of a time or a size. What they do not list is removed, what the image calls
//! volatile with it, unless the deployment names a path to keep. Content that lies at another path (a kernel under a new
//! name) is moved instead of fetched.
//!
//! Invariants: only a filesystem that this node was given by an earlier deployment is touched ([`examine`]); the EFI
//! system partition is made anew before anything is taken from the root, and gets its configuration last, so that no
//! loader starts a half-written root; whatever is on the disk when the power goes, the next attempt begins here again and hashes again.
//!
//! Refused: comparing with what the old manifest said of the disk. It saves reading, and it believes a machine that may
//! have been changed by whoever it is installed against.

mod clear;
mod examine;
mod keep;
mod old_esp;
mod stash;
mod superblock;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;

use manifest::{ClassRules, Digest, Entry, EntryKind, FileContent, Manifest, TreePath};

use super::tree::{Tree, TreeError};
use super::write::{WriteError, copy_content};
use stash::Stash;

pub use examine::{Examined, check_filesystem, examine};
pub(super) use old_esp::save;

/// What an old tree has of the new one.
#[derive(Debug)]
pub struct Found<'a> {
    /// Paths that are as they should be, with all metadata.
    settled: HashSet<&'a TreePath>,
    /// Contents from paths that are gone.
    stash: Stash,
    /// Contents that other paths need too, and a settled path that has them.
    elsewhere: HashMap<Digest, &'a TreePath>,
    /// Regular files that stayed or were used again.
    pub files_kept: u64,
    /// Their bytes.
    pub bytes_kept: u64,
    /// Files, links and devices that are gone; folders do not count.
    pub files_removed: u64,
}

impl<'a> Found<'a> {
    /// Looks at the tree, and clears it of everything that is neither right nor to be kept. Later layers win, path by
    /// path. Below the tree's plain mount points nothing is kept in place: contents are used again. Blocks.
    ///
    /// # Errors
    /// [`TreeError`] when something can be neither used nor removed.
    pub fn survey(
        tree: &Tree,
        layers: &[&'a Manifest],
        keep: &[TreePath],
        mut say: impl FnMut(u64, u64),
    ) -> Result<Self, TreeError> {
        let mut wanted: BTreeMap<&'a TreePath, &'a Entry> = BTreeMap::new();
        for entry in layers.iter().flat_map(|layer| &layer.entries) {
            wanted.insert(&entry.path, entry);
        }
        let mut found = Self {
            settled: HashSet::new(),
            stash: Stash::make(tree)?,
            elsewhere: HashMap::new(),
            files_kept: 0,
            bytes_kept: 0,
            files_removed: 0,
        };
        let mut missing: HashMap<Digest, u64> = HashMap::new();
        let mut looked_at = 0_u64;
        for (path, entry) in &wanted {
            looked_at += 1;
            if looked_at.is_multiple_of(1_000) {
                say(looked_at, wanted.len() as u64);
            }
            let content = match entry.kind {
                EntryKind::File(content) => content.filter(|content| content.size > 0),
                _ => None,
            };
            if tree.keeps_metadata(path) && keep::is_right(tree, entry) {
                found.settled.insert(path);
                if let EntryKind::File(Some(content)) = entry.kind {
                    found.count_used(1, content.size);
                }
            } else if let Some(content) = content {
                missing.insert(content.digest, content.size);
            }
        }
        for path in &found.settled {
            if let EntryKind::File(Some(content)) = wanted[*path].kind
                && missing.remove(&content.digest).is_some()
            {
                found.elsewhere.insert(content.digest, path);
            }
        }
        let none = ClassRules::default();
        let rules = layers.first().map_or(&none, |image| &image.header.classes);
        let clearing = clear::Clearing {
            tree,
            wanted: &wanted,
            keep,
            rules,
            missing,
        };
        clearing.run(&mut found)?;
        Ok(found)
    }

    /// Whether nothing has to be written at this path.
    #[must_use]
    pub fn is_settled(&self, path: &TreePath) -> bool {
        self.settled.contains(path)
    }

    /// Whether a blob is or was at another path.
    #[must_use]
    pub fn holds(&self, blob: &Digest) -> bool {
        self.stash.holds(blob) || self.elsewhere.contains_key(blob)
    }

    /// Puts a blob at its path, with all metadata; gives the file.
    ///
    /// # Errors
    /// When it cannot be moved or copied there.
    pub fn place(&mut self, tree: &Tree, content: FileContent, entry: &Entry) -> Result<File, WriteError> {
        let Some(from) = self.elsewhere.get(&content.digest) else {
            return self.stash.place(tree, content, entry);
        };
        let (from, copy) = (tree.reopen_file(from)?, tree.make_file(&entry.path)?);
        copy_content(&from, &copy, content).map_err(|source| WriteError::Content {
            path: entry.path.clone(),
            action: "copying its content from another path",
            source,
        })?;
        tree.finish_file(&copy, entry)?;
        Ok(copy)
    }

    /// Some files more were on the disk.
    pub fn count_used(&mut self, files: u64, bytes: u64) {
        self.files_kept += files;
        self.bytes_kept = self.bytes_kept.saturating_add(bytes);
    }

    /// Removes what was held back and nobody needed. To be called when all layers are written.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn finish(self, tree: &Tree) -> Result<Counts, TreeError> {
        self.stash.remove(tree)?;
        Ok(Counts {
            files_kept: self.files_kept,
            bytes_kept: self.bytes_kept,
            files_removed: self.files_removed,
        })
    }
}

/// What came of the old tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Regular files that stayed or were used again.
    pub files_kept: u64,
    /// Their bytes.
    pub bytes_kept: u64,
    /// Files, links and devices that are gone.
    pub files_removed: u64,
}
