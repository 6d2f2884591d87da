//! Looks at the whole node, and at parts of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use drift::{Expected, FindingKind, SecretKey, compare_facts};
use manifest::Digest;
use protocol::JobId;
use protocol::limits::REPORT_BYTES_MAX;

use crate::node::NodeParts;
use crate::probe;
use crate::report::{Found, NodeState, ScanTime};
use crate::scan::{ScanOptions, scan_tree};
use crate::state::{Acknowledged, StateFolder};
use crate::watch::{Batch, Glimpse, glimpse};

/// Room in a report for everything but differences and what was not looked at.
const REPORT_OVERHEAD_BYTES: usize = 1 << 20;

/// What a look needs.
#[derive(Clone, Debug)]
pub struct Look {
    /// The node.
    pub parts: NodeParts,
    /// Where digests and lists are kept.
    pub state: StateFolder,
    /// Digest of the baseline.
    pub baseline: Digest,
    /// The baseline.
    pub expected: Arc<Expected>,
    /// Ends the look early when set.
    pub stop: Arc<AtomicBool>,
}

impl Look {
    fn options(&self, now_unix_secs: u64) -> ScanOptions<'_> {
        let mut options = ScanOptions::new(&self.parts.base);
        options.cache_folder = Some(self.state.path());
        options.now_unix_secs = now_unix_secs;
        options.stop = Some(&self.stop);
        options.roots_are_folders = self.parts.roots_are_folders;
        options
    }

    /// Looks at everything that the baseline speaks of. `after_job` is the last job that has ended. Blocks.
    #[must_use]
    pub fn scan(&self, after_job: Option<JobId>) -> Found {
        let (started, started_unix_ms) = (Instant::now(), super::process::unix_ms());
        let tree = scan_tree(&self.expected, &self.options(started_unix_ms / 1000));
        let base = &self.parts.base;
        let observed = probe::read_facts(base, self.expected.facts(), self.parts.units.as_ref(), &|_| true);
        let facts = compare_facts(self.expected.facts(), &observed);
        let ownership = probe::ownership_of(&facts.differences, base, &self.state.package_lists());
        let packages_are_known = observed.packages.is_ok();
        if packages_are_known && !facts.differences.iter().any(|d| d.kind == FindingKind::Package) {
            keep_lists(base, &self.state.package_lists());
        }
        let time = ScanTime {
            started_unix_ms,
            duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        Found {
            baseline: self.baseline,
            tree,
            facts,
            ownership,
            time,
            after_job,
        }
    }

    /// Looks again at these paths and kinds of facts only. Blocks.
    #[must_use]
    pub fn glimpse(&self, found: &Found, batch: &Batch, kinds: &BTreeSet<FindingKind>) -> Glimpse {
        let lists = self.state.package_lists();
        glimpse(
            &self.parts,
            found,
            &self.expected,
            &lists,
            &self.options(0),
            batch,
            kinds,
        )
    }
}

/// What is told of a look, cut to what a report holds.
#[must_use]
pub fn told(found: Found, key: Option<&SecretKey>, earlier: Option<&Acknowledged>) -> NodeState {
    let mut state = found.state(key, earlier);
    state.shrink(REPORT_BYTES_MAX - REPORT_OVERHEAD_BYTES);
    state
}

pub(super) fn log(state: &NodeState) {
    tracing::info!(
        baseline.digest = %state.baseline.short(),
        complete = state.scan.complete,
        entries = state.scan.entries(),
        differences = state.scan.difference_count,
        not_looked_at = state.scan.not_looked_at_count,
        hashed_bytes = state.scan.hashed_bytes,
        duration_ms = state.scan.duration_ms,
        "scanned"
    );
}

/// Only when they are not kept yet: while the packages are as they should be, so are the lists.
fn keep_lists(base: &Path, kept: &Path) {
    let is_older = || -> Option<bool> {
        let listed = std::fs::metadata(base.join("var/lib/dpkg/status"))
            .ok()?
            .modified()
            .ok()?;
        Some(std::fs::metadata(kept).ok()?.modified().ok()? < listed)
    };
    if is_older().unwrap_or(true)
        && let Err(error) = probe::keep_package_lists(base, kept)
    {
        tracing::info!(%error, "file lists of packages are not kept");
    }
}
