//! What a node should be: its manifests laid over each other.
//!
//! Image, agent layer and overlay stay tables of their own; a lookup asks the strongest first. Merging them into one
//! list would copy the image for the sake of the twenty paths that an overlay holds.

mod facts;
mod table;

use manifest::{
    ClassRules, Entry, EntryKind, FilesystemKind, HARDENING_PROFILE_PATH, Header, Manifest, PathClass, Root, TreePath,
    escape_bytes,
};

use crate::ObservedKind;
use crate::compare::is_drop_in_folder;

pub use facts::ExpectedFacts;
use table::Table;

/// A baseline that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExpectedError {
    /// Entries of a manifest must be strictly ascending.
    #[error("{path} does not sort after the path before it")]
    Order {
        /// The path out of order.
        path: TreePath,
    },
    /// More than 4 GiB of paths, or more than 255 manifests.
    #[error("the baseline is too large")]
    TooLarge,
    /// An entry came before the header of its manifest.
    #[error("an entry without a manifest")]
    NoLayer,
}

/// Where an entry is kept; only good for the [`Expected`] it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    layer: u8,
    index: u32,
}

/// Takes manifests, weakest first.
#[derive(Default)]
pub struct ExpectedBuilder {
    layers: Vec<Table>,
    rules: ClassRules,
    roots: Vec<Root>,
    facts: ExpectedFacts,
}

impl ExpectedBuilder {
    /// Begins the next manifest, which wins over all before it.
    ///
    /// # Errors
    /// [`ExpectedError::TooLarge`] after 255 manifests.
    pub fn layer(&mut self, header: Header) -> Result<(), ExpectedError> {
        if self.layers.len() >= usize::from(u8::MAX) {
            return Err(ExpectedError::TooLarge);
        }
        if let Some(last) = self.layers.last_mut() {
            last.shrink();
        }
        self.layers.push(Table::default());
        for root in &header.roots {
            self.roots.retain(|known| known.mount != root.mount);
            self.roots.push(root.clone());
        }
        self.rules.0.extend(header.classes.0.iter().cloned());
        self.facts.add(header);
        Ok(())
    }

    /// Adds the next entry of the manifest begun last.
    ///
    /// # Errors
    /// [`ExpectedError`] when it does not sort after the one before it, or there is no room.
    pub fn entry(&mut self, entry: &Entry) -> Result<(), ExpectedError> {
        self.layers.last_mut().ok_or(ExpectedError::NoLayer)?.push(entry)
    }

    /// The baseline.
    #[must_use]
    pub fn finish(mut self) -> Expected {
        if let Some(last) = self.layers.last_mut() {
            last.shrink();
        }
        if !self.roots.iter().any(|root| root.mount.is_root()) {
            self.roots.push(Root {
                mount: TreePath::root(),
                filesystem: FilesystemKind::Ext4,
            });
        }
        self.roots.sort_by(|a, b| a.mount.cmp(&b.mount));
        let mut expected = Expected {
            layers: self.layers,
            rules: self.rules,
            roots: self.roots,
            facts: self.facts,
        };
        let profile = HARDENING_PROFILE_PATH.parse().ok();
        let content = profile.and_then(|path| match expected.get(&path)?.kind {
            EntryKind::File(content) => content,
            _ => None,
        });
        expected.facts.hardening_profile = content.map(|content| content.digest);
        expected
    }
}

/// What a node should be.
pub struct Expected {
    layers: Vec<Table>,
    rules: ClassRules,
    roots: Vec<Root>,
    facts: ExpectedFacts,
}

impl std::fmt::Debug for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Expected({} entries)",
            self.layers.iter().map(Table::len).sum::<usize>()
        )
    }
}

impl Expected {
    /// From whole manifests, weakest first.
    ///
    /// # Errors
    /// As [`ExpectedBuilder::layer`] and [`ExpectedBuilder::entry`].
    pub fn from_manifests<'a>(manifests: impl IntoIterator<Item = &'a Manifest>) -> Result<Self, ExpectedError> {
        let mut builder = ExpectedBuilder::default();
        for manifest in manifests {
            builder.layer(manifest.header.clone())?;
            for entry in &manifest.entries {
                builder.entry(entry)?;
            }
        }
        Ok(builder.finish())
    }

    /// Beside the files: packages, units, sysctls, accounts, the kernel.
    #[must_use]
    pub const fn facts(&self) -> &ExpectedFacts {
        &self.facts
    }

    /// The filesystems to walk, `/` first.
    #[must_use]
    pub fn roots(&self) -> &[Root] {
        &self.roots
    }

    /// The root a path belongs to: the one with the longest mount point above it.
    #[must_use]
    pub fn root_of(&self, path: &TreePath) -> Option<&Root> {
        self.roots
            .iter()
            .filter(|root| path.is_within(&root.mount))
            .max_by_key(|root| root.mount.as_bytes().len())
    }

    /// The class that the rules give to a path, listed or not.
    #[must_use]
    pub fn rule_of(&self, path: &TreePath) -> PathClass {
        self.rules.class_of(path)
    }

    /// Whether what stands at a path is allowed in the place of what is listed: some paths are a link or a file,
    /// depending on what ran first on the node.
    #[must_use]
    pub fn allows_instead(&self, path: &TreePath, observed: &ObservedKind) -> bool {
        let Some(rule) = self.rules.rule_of(path) else {
            return false;
        };
        match observed {
            ObservedKind::File { .. } => rule.or_file,
            ObservedKind::Other(EntryKind::Symlink(target)) => rule.or_links.contains(&escape_bytes(target)),
            ObservedKind::Other(_) => false,
        }
    }

    /// Whether a path that no manifest lists may be there.
    #[must_use]
    pub fn allows_unlisted(&self, path: &TreePath) -> bool {
        self.rules.allows_unlisted(path)
    }

    /// Where the strongest entry for this path is kept.
    #[must_use]
    pub fn position(&self, path: &[u8]) -> Option<Position> {
        self.layers.iter().enumerate().rev().find_map(|(layer, table)| {
            table.find(path).map(|index| Position {
                layer: layer as u8,
                index: index as u32,
            })
        })
    }

    /// As [`Expected::position`], on a filesystem that folds case: an entry that differs only in the case of ASCII
    /// letters is found as well. The exact one wins.
    #[must_use]
    pub fn position_folded(&self, path: &TreePath, mount: &TreePath) -> Option<Position> {
        self.position(path.as_bytes()).or_else(|| {
            self.positions_within(mount)
                .find(|position| self.path_bytes(*position).eq_ignore_ascii_case(path.as_bytes()))
        })
    }

    /// The path of an entry.
    #[must_use]
    pub fn path_bytes(&self, position: Position) -> &[u8] {
        self.layers[usize::from(position.layer)].path(position.index as usize)
    }

    /// The class of an entry.
    #[must_use]
    pub fn class(&self, position: Position) -> PathClass {
        self.layers[usize::from(position.layer)].class(position.index as usize)
    }

    /// The entry itself, put together again; its `mtime` is 0. `path` is what [`Entry::path`] shall be.
    #[must_use]
    pub fn entry(&self, position: Position, path: &TreePath) -> Entry {
        self.layers[usize::from(position.layer)].entry(position.index as usize, path)
    }

    /// The strongest entry for a path.
    #[must_use]
    pub fn get(&self, path: &TreePath) -> Option<Entry> {
        self.position(path.as_bytes())
            .map(|position| self.entry(position, path))
    }

    /// Whether anything below this path is listed.
    #[must_use]
    pub fn lists_below(&self, path: &TreePath) -> bool {
        let mut prefix = path.as_bytes().to_vec();
        if !path.is_root() {
            prefix.push(b'/');
        }
        self.layers.iter().any(|table| {
            let mut at = table.first_from(&prefix);
            if path.is_root() && at < table.len() && table.path(at) == b"/" {
                at += 1;
            }
            at < table.len() && table.path(at).starts_with(&prefix)
        })
    }

    /// Whether a folder that no manifest lists is no finding of its own, and what is in it is told one by one: something
    /// below it is listed, or it is one for drop-ins of systemd.
    #[must_use]
    pub fn implies_folder(&self, path: &TreePath) -> bool {
        self.lists_below(path) || (is_drop_in_folder(path.as_bytes()) && !self.allows_unlisted(path))
    }

    /// All entries that count, in byte order within each manifest.
    pub fn positions(&self) -> impl Iterator<Item = Position> + '_ {
        self.layers
            .iter()
            .enumerate()
            .flat_map(move |(layer, table)| (0..table.len()).filter_map(move |index| self.strongest(layer, index)))
    }

    fn positions_within(&self, mount: &TreePath) -> impl Iterator<Item = Position> + '_ {
        let mount = mount.as_bytes().to_vec();
        self.layers.iter().enumerate().flat_map(move |(layer, table)| {
            let (from, mount) = (table.first_from(&mount), mount.clone());
            (from..table.len())
                .take_while(move |index| table.path(*index).starts_with(&mount))
                .filter_map(move |index| self.strongest(layer, index))
        })
    }

    /// The position, unless a later manifest has the same path.
    fn strongest(&self, layer: usize, index: usize) -> Option<Position> {
        let path = self.layers[layer].path(index);
        let shadowed = self.layers[layer + 1..].iter().any(|later| later.find(path).is_some());
        (!shadowed).then_some(Position {
            layer: layer as u8,
            index: index as u32,
        })
    }

    /// One empty mark for each entry.
    pub(crate) fn marks(&self) -> Marks {
        Marks(
            self.layers
                .iter()
                .map(|table| vec![0; table.len().div_ceil(64)])
                .collect(),
        )
    }
}

/// One bit for each entry.
pub(crate) struct Marks(Vec<Vec<u64>>);

impl Marks {
    pub(crate) fn set(&mut self, position: Position) {
        self.0[usize::from(position.layer)][position.index as usize / 64] |= 1 << (position.index % 64);
    }

    pub(crate) fn has(&self, position: Position) -> bool {
        self.0[usize::from(position.layer)][position.index as usize / 64] & (1 << (position.index % 64)) != 0
    }
}
