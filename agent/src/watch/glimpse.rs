//! A look at single paths and facts, laid over what the last scan found.

use std::collections::{BTreeMap, BTreeSet};

use drift::{Difference, FactFindings, FindingKind, Observation, Ownership, Unknown};
use manifest::{FilesystemKind, TreePath};

use super::concern::{facts_concerned, needs_walk};
use super::hints::Batch;
use crate::node::NodeParts;
use crate::probe;
use crate::report::Found;
use crate::scan::{Looker, PathLook, Place, ScanOptions};

/// What came of looking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Glimpse {
    /// What each path is now.
    pub paths: BTreeMap<TreePath, PathLook>,
    /// Kinds of facts that were looked at.
    pub kinds: BTreeSet<FindingKind>,
    /// What they are now.
    pub facts: FactFindings,
    /// Files of the packages that differ, where packages were looked at.
    pub ownership: Option<Ownership>,
    /// Files that changed while they were read, and how often before.
    pub unstable: Vec<(TreePath, u32)>,
    /// Something that only a scan can judge.
    pub needs_scan: bool,
}

/// Looks at these paths and at the facts that they and `kinds` concern. Blocks.
#[must_use]
pub fn glimpse(
    parts: &NodeParts,
    found: &Found,
    expected: &drift::Expected,
    package_lists: &std::path::Path,
    options: &ScanOptions<'_>,
    batch: &Batch,
    kinds: &BTreeSet<FindingKind>,
) -> Glimpse {
    let mut seen = Glimpse {
        kinds: kinds.clone(),
        ..Glimpse::default()
    };
    let mut looker = Looker::new(expected, options);
    let mut queue: Vec<(TreePath, bool, u32)> = batch
        .paths
        .iter()
        .map(|(path, (is_new_folder, unstable))| (path.clone(), *is_new_folder, *unstable))
        .collect();
    while let Some((path, is_new_folder, times)) = queue.pop() {
        seen.kinds.extend(facts_concerned(&path));
        if seen.paths.contains_key(&path) {
            continue;
        }
        if expected
            .root_of(&path)
            .is_some_and(|root| root.filesystem == FilesystemKind::Vfat)
        {
            // A name has several spellings there, and the filesystem is small and rarely written.
            seen.needs_scan = true;
            continue;
        }
        let look = looker.look(&path);
        match &look.place {
            // Mounts are for the scan; it is no event of the path.
            Place::Mounted => continue,
            Place::Covered(above) if *above != path => queue.push((above.clone(), false, 0)),
            // What it was in is gone; whatever stands highest tells it.
            Place::NoFolder => queue.extend(path.parent().map(|parent| (parent, false, 0))),
            Place::Folder => {
                let is_added = look
                    .difference
                    .as_ref()
                    .is_some_and(|difference| difference.expected.is_none());
                let is_back = found.tree.findings.differences.iter().any(|difference| {
                    difference.key == path.to_string() && (difference.actual.is_none() || is_type(difference))
                });
                // Folders in it may be told by it, or no longer.
                seen.needs_scan |= !is_added && needs_walk(expected, &path) && (is_new_folder || is_back);
            }
            _ => {}
        }
        if look.unknown == Some(Observation::Unstable) {
            seen.unstable.push((path.clone(), times));
        }
        seen.paths.insert(path, look);
    }
    if !seen.kinds.is_empty() {
        seen.facts = probe::look_at_facts(&parts.base, expected.facts(), parts.units.as_ref(), &seen.kinds);
        if seen.kinds.contains(&FindingKind::Package) {
            seen.ownership = Some(probe::ownership_of(&seen.facts.differences, &parts.base, package_lists));
        }
    }
    seen
}

/// Whether it says that something else stands there.
fn is_type(difference: &Difference) -> bool {
    difference
        .actual
        .as_ref()
        .is_some_and(|actual| actual.get("type").is_some())
}

impl Found {
    /// Replaces what was looked at again; everything else stays. Paths in `left_out` are not judged yet.
    pub fn apply(&mut self, seen: Glimpse, left_out: &BTreeSet<TreePath>) {
        let looks: BTreeMap<TreePath, PathLook> = seen
            .paths
            .into_iter()
            .filter(|(path, _)| !left_out.contains(path))
            .collect();
        // Where there is no folder any more, nothing below it can be found.
        let emptied: Vec<&TreePath> = looks
            .iter()
            .filter(|(_, look)| match look.place {
                Place::Absent | Place::Other | Place::Covered(_) | Place::NoFolder => true,
                Place::Folder => look
                    .difference
                    .as_ref()
                    .is_some_and(|difference| difference.expected.is_none()),
                Place::Mounted | Place::Unknown => false,
            })
            .map(|(path, _)| path)
            .collect();
        let keys: BTreeSet<String> = looks.keys().map(ToString::to_string).collect();
        let is_stale = |key: &str| {
            keys.contains(key)
                || (!emptied.is_empty()
                    && key
                        .parse::<TreePath>()
                        .is_ok_and(|path| emptied.iter().any(|folder| path.is_within(folder))))
        };
        let findings = &mut self.tree.findings;
        findings.differences.retain(|difference| !is_stale(&difference.key));
        findings.unknown.retain(|unknown| !is_stale(&unknown.key));
        for (path, look) in looks {
            findings.differences.extend(look.difference);
            findings.unknown.extend(look.unknown.map(|observation| Unknown {
                kind: FindingKind::File,
                key: path.to_string(),
                observation,
            }));
        }
        findings.differences.sort_by(|a, b| a.key.cmp(&b.key));
        findings.unknown.sort_by(|a, b| a.key.cmp(&b.key));
        findings.difference_count = findings.differences.len() as u64;
        findings.unknown_count = findings.unknown.len() as u64;

        let facts = &mut self.facts;
        facts
            .differences
            .retain(|difference| !seen.kinds.contains(&difference.kind));
        facts.unknown.retain(|unknown| !seen.kinds.contains(&unknown.kind));
        facts.facts_by_kind.retain(|kind, _| !seen.kinds.contains(kind));
        facts.differences.extend(seen.facts.differences);
        facts
            .differences
            .sort_by(|a, b| (a.kind, &a.key).cmp(&(b.kind, &b.key)));
        facts.unknown.extend(seen.facts.unknown);
        facts.facts_by_kind.extend(seen.facts.facts_by_kind);
        if let Some(ownership) = seen.ownership {
            self.ownership = ownership;
        }
    }
}
