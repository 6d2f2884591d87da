//! A whole walk against the baseline.
//!
//! The walker asks [`TreeComparison::step`] what to look at, looks, and hands the result to
//! [`TreeComparison::record`]; [`TreeComparison::finish`] concludes what is gone. Lookups go by path, not by a merge of
//! two sorted lists: a walk yields `/a/b` before `/a-x`, a manifest the other way round.

use std::collections::{BTreeMap, BTreeSet};

use manifest::{EntryKind, FilesystemKind, PathClass, Root, TreePath};

use super::{Outcome, compare_entry};
use crate::expected::{Marks, Position};
use crate::{Attributes, Difference, Expected, FindingKind, Observation, ObservedEntry, ObservedKind, Unknown};

/// Bounds on what is kept; beyond them things are only counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most differences.
    pub differences_max: usize,
    /// Most places that could not be looked at.
    pub unknown_max: usize,
    /// Largest file, in bytes, that is read only to tell variants apart.
    pub explain_bytes_max: u64,
}

/// Type of a path as the folder or `stat` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A folder.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
    /// Anything else.
    Other,
}

/// What `stat` says before anything is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Type.
    pub kind: Kind,
    /// Bytes, for a regular file.
    pub size: u64,
}

/// Whether the content is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// No.
    No,
    /// Only the content can tell whether the file is as it should be.
    Decides,
    /// The file differs anyway; its content tells variants apart.
    Explains,
}

/// What to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Read the content.
    pub content: Content,
    /// Read the extended attributes.
    pub xattrs: bool,
    /// Walk into the folder.
    pub descend: bool,
    /// Look at nothing and record nothing.
    pub ignore: bool,
}

/// A path between [`TreeComparison::step`] and [`TreeComparison::record`].
#[derive(Clone, Copy, Debug)]
pub struct Step {
    position: Option<Position>,
    class: PathClass,
    /// No manifest lists it; what is in it is told in its stead ([`Expected::implies_folder`]).
    implied: bool,
    filesystem: FilesystemKind,
    /// What to look at.
    pub look: Look,
}

/// A scan under way.
pub struct TreeComparison<'a> {
    expected: &'a Expected,
    limits: Limits,
    seen: Marks,
    /// Folders that were not read to their end.
    unread: BTreeSet<Vec<u8>>,
    /// Folders that are something else now: what was listed below is told by that one finding.
    replaced: BTreeSet<Vec<u8>>,
    /// Mount points that hide what the baseline lists below.
    hidden: BTreeSet<Vec<u8>>,
    findings: TreeFindings,
}

/// What a scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeFindings {
    /// Differences in byte order of their keys, up to the limit.
    pub differences: Vec<Difference>,
    /// How many there are, kept or not.
    pub difference_count: u64,
    /// Places that could not be looked at, up to the limit.
    pub unknown: Vec<Unknown>,
    /// How many there are, kept or not.
    pub unknown_count: u64,
    /// Paths looked at by class.
    pub entries_by_class: BTreeMap<PathClass, u64>,
}

impl TreeFindings {
    fn difference(&mut self, difference: Difference, limits: &Limits) {
        self.difference_count += 1;
        if self.differences.len() < limits.differences_max {
            self.differences.push(difference);
        }
    }

    fn unknown(&mut self, path: &TreePath, observation: Observation, limits: &Limits) {
        self.unknown_count += 1;
        if self.unknown.len() < limits.unknown_max {
            self.unknown.push(Unknown {
                kind: FindingKind::File,
                key: path.to_string(),
                observation,
            });
        }
    }
}

impl<'a> TreeComparison<'a> {
    /// A scan that has seen nothing yet.
    #[must_use]
    pub fn new(expected: &'a Expected, limits: Limits) -> Self {
        Self {
            expected,
            limits,
            seen: expected.marks(),
            unread: BTreeSet::new(),
            replaced: BTreeSet::new(),
            hidden: BTreeSet::new(),
            findings: TreeFindings::default(),
        }
    }

    /// What to look at for a path of this root.
    #[must_use]
    pub fn step(&self, path: &TreePath, sight: Sight, root: &Root) -> Step {
        let position = if root.filesystem == FilesystemKind::Vfat {
            self.expected.position_folded(path, &root.mount)
        } else {
            self.expected.position(path.as_bytes())
        };
        let class = match position {
            Some(position) => self.expected.class(position),
            None => self.expected.rule_of(path),
        };
        let implied = position.is_none()
            && if sight.kind == Kind::Directory {
                self.expected.implies_folder(path)
            } else {
                self.expected.lists_below(path)
            };
        let mut look = Look {
            content: Content::No,
            xattrs: false,
            descend: sight.kind == Kind::Directory,
            ignore: false,
        };
        match position {
            Some(position) => self.look_listed(&mut look, position, path, sight, root),
            None if implied => {}
            None if class == PathClass::Ignored => look.ignore = true,
            None if self.expected.allows_unlisted(path) => {}
            None => {
                // One finding for an added folder, whatever is in it.
                look.descend = false;
                look.xattrs = root.filesystem.keeps_metadata();
                if sight.kind == Kind::File && sight.size <= self.limits.explain_bytes_max {
                    look.content = Content::Explains;
                }
            }
        }
        Step {
            position,
            class,
            implied,
            filesystem: root.filesystem,
            look,
        }
    }

    fn look_listed(&self, look: &mut Look, position: Position, path: &TreePath, sight: Sight, root: &Root) {
        let entry = self.expected.entry(position, path);
        if !matches!(entry.class, PathClass::Pinned | PathClass::Rendered) {
            return;
        }
        look.xattrs = root.filesystem.keeps_metadata();
        if sight.kind == Kind::File {
            let size = match entry.kind {
                EntryKind::File(Some(content)) => Some(content.size),
                _ => None,
            };
            look.content = if size == Some(sight.size) {
                Content::Decides
            } else if sight.size <= self.limits.explain_bytes_max {
                Content::Explains
            } else {
                Content::No
            };
        }
    }

    /// Takes what was seen at a path.
    pub fn record(&mut self, path: &TreePath, step: &Step, observed: &ObservedEntry) {
        if step.look.ignore {
            return;
        }
        *self.findings.entries_by_class.entry(step.class).or_default() += 1;
        let is_directory = matches!(observed.kind, ObservedKind::Other(EntryKind::Directory));
        if step.implied {
            if !is_directory {
                let outcome = implied_folder_is_gone(path, observed);
                self.replaced.insert(path.as_bytes().to_vec());
                self.conclude(path, outcome);
            }
            return;
        }
        let entry = step.position.map(|position| {
            self.seen.set(position);
            self.expected.entry(position, path)
        });
        if entry.as_ref().is_some_and(|entry| entry.kind == EntryKind::Directory) && !is_directory {
            self.replaced.insert(path.as_bytes().to_vec());
        }
        if !self.expected.allows_instead(path, &observed.kind) {
            let outcome = compare_entry(path, entry.as_ref(), step.class, observed, step.filesystem);
            self.conclude(path, outcome);
        }
    }

    fn conclude(&mut self, path: &TreePath, outcome: Outcome) {
        if let Some(difference) = outcome.difference {
            self.findings.difference(difference, &self.limits);
        }
        if let Some(observation) = outcome.unknown {
            self.findings.unknown(path, observation, &self.limits);
        }
    }

    /// A path that is there and could not be looked at.
    pub fn record_unknown(&mut self, path: &TreePath, observation: Observation) {
        // Whatever it is, it stands in the way of what may be listed below.
        self.unread_folder(path, observation);
        if let Some(position) = self.expected.position(path.as_bytes()) {
            self.seen.set(position);
        }
    }

    /// A folder that was not read to its end, or not at all: nothing below it is concluded to be gone.
    pub fn unread_folder(&mut self, path: &TreePath, observation: Observation) {
        if self.unread.insert(path.as_bytes().to_vec()) {
            self.findings.unknown(path, observation, &self.limits);
        }
    }

    /// A folder on which another filesystem is mounted that is no root of the baseline: it exists and is a folder, and
    /// nothing else is known of it.
    pub fn mount_point(&mut self, path: &TreePath) {
        if let Some(position) = self.expected.position(path.as_bytes()) {
            self.seen.set(position);
            *self
                .findings
                .entries_by_class
                .entry(self.expected.class(position))
                .or_default() += 1;
            let entry = self.expected.entry(position, path);
            if entry.kind != EntryKind::Directory {
                self.replaced.insert(path.as_bytes().to_vec());
                let observed = ObservedEntry {
                    kind: ObservedKind::Other(EntryKind::Directory),
                    mode: 0,
                    uid: 0,
                    gid: 0,
                    xattrs: crate::ObservedXattrs::NotRead,
                };
                // Types differ, so nothing but the types is compared.
                let outcome = compare_entry(path, Some(&entry), entry.class, &observed, FilesystemKind::Ext4);
                return self.conclude(path, outcome);
            }
        }
        // What may hold anything may hold a filesystem; elsewhere it hides what is below, and may add what must not be.
        let free = path.join(b"x").is_ok_and(|below| self.expected.allows_unlisted(&below));
        if free {
            self.hidden.insert(path.as_bytes().to_vec());
        } else {
            self.unread_folder(path, mounted());
        }
    }

    /// Concludes what is gone and puts everything in order.
    #[must_use]
    pub fn finish(mut self) -> TreeFindings {
        for position in self.expected.positions() {
            if !self.seen.has(position) {
                self.missing(position);
            }
        }
        let by_key = |a: &Difference, b: &Difference| a.key.cmp(&b.key);
        self.findings.differences.sort_by(by_key);
        self.findings.unknown.sort_by(|a, b| a.key.cmp(&b.key));
        self.findings
    }

    fn missing(&mut self, position: Position) {
        let bytes = self.expected.path_bytes(position);
        for above in upwards(bytes) {
            if self.unread.contains(above) || self.replaced.contains(above) {
                return;
            }
            if self.hidden.contains(above) {
                if self.expected.class(position) != PathClass::Volatile
                    && let Ok(mount) = TreePath::from_bytes(above)
                {
                    self.unread_folder(&mount, mounted());
                }
                return;
            }
        }
        let listed_above = upwards(bytes).skip(1).find_map(|above| self.expected.position(above));
        if listed_above.is_some_and(|above| !self.seen.has(above)) {
            // The folder itself is gone, which says it all.
            return;
        }
        let Ok(path) = TreePath::from_bytes(bytes) else { return };
        let entry = self.expected.entry(position, &path);
        let difference = Difference {
            kind: FindingKind::File,
            key: path.to_string(),
            expected: Some(Attributes::from_pairs([("type", entry.kind.type_name())])),
            actual: None,
        };
        self.findings.difference(difference, &self.limits);
    }
}

fn mounted() -> Observation {
    Observation::NotScanned {
        detail: "another filesystem is mounted here".to_owned(),
    }
}

fn implied_folder_is_gone(path: &TreePath, observed: &ObservedEntry) -> Outcome {
    let mut outcome = compare_entry(path, None, PathClass::Pinned, observed, FilesystemKind::Vfat);
    if let Some(difference) = &mut outcome.difference {
        difference.expected = Some(Attributes::from_pairs([("type", EntryKind::Directory.type_name())]));
    }
    outcome
}

/// The path itself, the folder it lies in, and so on up to `/`.
fn upwards(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut next = Some(path);
    std::iter::from_fn(move || {
        let this = next?;
        next = match this.iter().rposition(|&byte| byte == b'/') {
            _ if this == b"/" => None,
            Some(0) => Some(b"/".as_slice()),
            Some(at) => Some(&this[..at]),
            None => None,
        };
        Some(this)
    })
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
