//! From what a scan found to what is told.
//!
//! Two rules keep "could not look" from reading as "no drift": a difference found earlier stays until somebody looked
//! again, and whatever could not be looked at is listed beside the differences.

use std::collections::{BTreeMap, BTreeSet};

use drift::{
    Difference, FactFindings, FindingKind, Ownership, SecretKey, Unknown, fold_findings, seal_secrets, state_digest,
};
use manifest::{Digest, TreePath};
use protocol::latest::{DriftReport, NotLookedAt, ReportKind, ScanSummary};
use protocol::{JobId, limits};
use uuid::Uuid;

use crate::scan::TreeScan;
use crate::state::Acknowledged;

/// Most differences of files that are kept in memory for looks at single things; with more of them a whole scan says
/// more than a patch, and memory is bounded.
const KEPT_DIFFERENCES_MAX: usize = 5_000;

/// What is known of a node after a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeState {
    /// Baseline compared with.
    pub baseline: Digest,
    /// Digest over the differences.
    pub state: Digest,
    /// By kind and key; at most [`limits::DIFFERENCES_MAX`].
    pub differences: Vec<Difference>,
    /// At most [`limits::NOT_LOOKED_AT_MAX`].
    pub not_looked_at: Vec<NotLookedAt>,
    /// What was looked at.
    pub scan: ScanSummary,
    /// The last job that had ended before the scan began.
    pub after_job: Option<JobId>,
}

/// When a scan ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanTime {
    /// Milliseconds since 1970.
    pub started_unix_ms: u64,
    /// How long.
    pub duration_ms: u64,
}

/// All that a scan found, as it was seen: nothing folded, nothing carried over, digests of secrets plain. It stays in
/// memory, so that a look at single things can be laid over it; what is told is a [`NodeState`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Baseline compared with.
    pub baseline: Digest,
    /// Of the files.
    pub tree: TreeScan,
    /// Of everything else.
    pub facts: FactFindings,
    /// Files of the packages that differ.
    pub ownership: Ownership,
    /// When it ran.
    pub time: ScanTime,
    /// The last job that had ended before it began.
    pub after_job: Option<JobId>,
}

impl Found {
    /// Whether everything was listed and not only counted, so that parts can be replaced.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let findings = &self.tree.findings;
        findings.difference_count == findings.differences.len() as u64
            && findings.unknown_count == findings.unknown.len() as u64
            && findings.differences.len() <= KEPT_DIFFERENCES_MAX
    }

    /// What is told of it. `earlier` is the state told last, whose differences stay where nobody looked; digests of
    /// secrets are keyed.
    #[must_use]
    pub fn state(self, key: Option<&SecretKey>, earlier: Option<&Acknowledged>) -> NodeState {
        let Self {
            baseline,
            tree,
            facts,
            ownership,
            time,
            after_job,
        } = self;
        let complete = tree.is_complete();
        let mut total = tree.findings.difference_count + facts.differences.len() as u64;
        let mut differences = facts.differences;
        // Facts are few and come first, so that the limit never cuts them off.
        differences.extend(tree.findings.differences);
        // Before earlier ones are added, whose digests are keyed already.
        seal_secrets(&mut differences, key);
        let before = differences.len();
        let mut differences = fold_findings(differences, &ownership);
        total -= (before - differences.len()) as u64;

        let mut unknown = facts.unknown;
        unknown.extend(tree.findings.unknown);
        let not_looked_at_count = tree.findings.unknown_count + unknown.len() as u64;
        let not_looked_at_count =
            not_looked_at_count - unknown.iter().filter(|u| u.kind == FindingKind::File).count() as u64;
        if let Some(earlier) = earlier.filter(|earlier| earlier.baseline == baseline) {
            // Where even the list of unknown places is cut off, anything may be one of them.
            let all_listed = not_looked_at_count == unknown.len() as u64;
            let kept = carried_over(&earlier.differences, &differences, &unknown, all_listed);
            total += kept.len() as u64;
            differences.extend(kept);
        }
        differences.truncate(limits::DIFFERENCES_MAX);
        differences.sort_by(|a, b| (a.kind, &a.key).cmp(&(b.kind, &b.key)));
        unknown.truncate(limits::NOT_LOOKED_AT_MAX);
        let not_looked_at = unknown
            .into_iter()
            .map(|unknown| NotLookedAt {
                kind: unknown.kind.as_str().to_owned(),
                key: unknown.key,
                observation: unknown.observation,
            })
            .collect();
        NodeState {
            baseline,
            state: state_digest(&differences),
            differences,
            not_looked_at,
            after_job,
            scan: ScanSummary {
                started_unix_ms: time.started_unix_ms,
                duration_ms: time.duration_ms,
                complete,
                roots: tree.roots,
                entries_by_class: tree.findings.entries_by_class,
                facts_by_kind: facts
                    .facts_by_kind
                    .into_iter()
                    .map(|(kind, count)| (kind.as_str().to_owned(), count))
                    .collect(),
                hashed_bytes: tree.hashed_bytes,
                not_looked_at_count,
                difference_count: total,
            },
        }
    }
}

impl NodeState {
    /// The report of this state: what changed since `acknowledged`, or all of it.
    #[must_use]
    pub fn report(&self, boot_id: Uuid, sequence: u64, acknowledged: Option<&Acknowledged>) -> DriftReport {
        let base = acknowledged.filter(|acknowledged| acknowledged.baseline == self.baseline);
        DriftReport {
            boot_id,
            sequence,
            baseline: self.baseline,
            state: self.state,
            scan: self.scan.clone(),
            not_looked_at: self.not_looked_at.clone(),
            after_job: self.after_job,
            kind: match base {
                Some(base) => delta(base, &self.differences),
                None => ReportKind::Full {
                    differences: self.differences.clone(),
                },
            },
        }
    }

    /// Leaves out differences, the last first, until a full report fits. They stay counted.
    pub fn shrink(&mut self, bytes_max: usize) {
        loop {
            let size = serde_json::to_vec(&self.differences).map_or(0, |bytes| bytes.len())
                + serde_json::to_vec(&self.not_looked_at).map_or(0, |bytes| bytes.len());
            if size <= bytes_max || self.differences.is_empty() {
                break;
            }
            let keep = self.differences.len() * 3 / 4;
            self.differences.truncate(keep);
        }
        self.state = state_digest(&self.differences);
    }

    /// This state as the server has it after it accepted the report.
    #[must_use]
    pub fn acknowledged(&self) -> Acknowledged {
        Acknowledged {
            baseline: self.baseline,
            state: self.state,
            differences: self.differences.clone(),
        }
    }
}

/// New and changed differences, and the groups that are gone.
fn delta(base: &Acknowledged, differences: &[Difference]) -> ReportKind {
    let before: BTreeMap<Digest, Digest> = base.differences.iter().map(|d| (d.group(), d.variant())).collect();
    let now: BTreeSet<Digest> = differences.iter().map(Difference::group).collect();
    let is_new = |difference: &&Difference| before.get(&difference.group()) != Some(&difference.variant());
    ReportKind::Delta {
        base: base.state,
        set: differences.iter().filter(is_new).cloned().collect(),
        cleared: before.into_keys().filter(|group| !now.contains(group)).collect(),
    }
}

/// Differences found earlier that nobody could look at now.
fn carried_over(earlier: &[Difference], now: &[Difference], unknown: &[Unknown], all_listed: bool) -> Vec<Difference> {
    if unknown.is_empty() {
        return Vec::new();
    }
    let found: BTreeSet<(FindingKind, &str)> = now.iter().map(|d| (d.kind, d.key.as_str())).collect();
    let folders: Vec<TreePath> = unknown
        .iter()
        .filter(|unknown| unknown.kind == FindingKind::File)
        .filter_map(|unknown| unknown.key.parse().ok())
        .collect();
    let is_unknown = |difference: &&Difference| {
        if found.contains(&(difference.kind, difference.key.as_str())) {
            return false;
        }
        if difference.kind == FindingKind::File {
            let path: Option<TreePath> = difference.key.parse().ok();
            return !all_listed || path.is_some_and(|path| folders.iter().any(|folder| path.is_within(folder)));
        }
        unknown.iter().any(|unknown| {
            unknown.kind == difference.kind && (unknown.key == difference.key || unknown.key == Unknown::ALL)
        })
    };
    earlier.iter().filter(is_unknown).cloned().collect()
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
