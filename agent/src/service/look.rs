//! One look at the whole node.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use drift::{Expected, FindingKind, Observation, compare_facts};
use manifest::Digest;
use protocol::limits::REPORT_BYTES_MAX;

use crate::probe;
use crate::report::{NodeState, ScanTime};
use crate::scan::{ScanOptions, scan_tree};
use crate::state::{Acknowledged, StateFolder};

/// Room in a report for everything but differences and what was not looked at.
const REPORT_OVERHEAD_BYTES: usize = 1 << 20;

/// What a look needs.
#[derive(Clone, Debug)]
pub struct Look {
    /// The folder that is the node's `/`.
    pub base: PathBuf,
    /// Where digests and lists are kept.
    pub state: StateFolder,
    /// Digest of the baseline.
    pub baseline: Digest,
    /// The baseline.
    pub expected: Arc<Expected>,
    /// The state told last.
    pub earlier: Option<Acknowledged>,
    /// Ends the look early when set.
    pub stop: Arc<AtomicBool>,
}

impl Look {
    /// Looks at everything that the baseline speaks of. The files are read on one thread of their own.
    ///
    /// # Errors
    /// When that thread broke.
    pub async fn run(self) -> anyhow::Result<NodeState> {
        let units = if self.expected.facts().units.is_empty() {
            let detail = "the baseline does not ask for it".to_owned();
            Err(Observation::NotScanned { detail })
        } else {
            probe::list_units().await
        };
        Ok(tokio::task::spawn_blocking(move || self.look(units)).await?)
    }

    fn look(self, units: Result<std::collections::BTreeMap<String, String>, Observation>) -> NodeState {
        let (started, started_unix_ms) = (Instant::now(), super::process::unix_ms());
        let mut options = ScanOptions::new(&self.base);
        options.cache_folder = Some(self.state.path());
        options.now_unix_secs = started_unix_ms / 1000;
        options.stop = Some(&self.stop);
        let tree = scan_tree(&self.expected, &options);
        let observed = probe::read_facts(&self.base, self.expected.facts(), units);
        let facts = compare_facts(self.expected.facts(), &observed);
        let ownership = probe::ownership_of(&facts.differences, &self.base, &self.state.package_lists());
        let packages_are_known = observed.packages.is_ok();
        if packages_are_known && !facts.differences.iter().any(|d| d.kind == FindingKind::Package) {
            keep_lists(&self.base, &self.state.package_lists());
        }
        let time = ScanTime {
            started_unix_ms,
            duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        let mut state = NodeState::assemble(self.baseline, tree, facts, &ownership, time, self.earlier.as_ref());
        state.shrink(REPORT_BYTES_MAX - REPORT_OVERHEAD_BYTES);
        tracing::info!(
            baseline.digest = %self.baseline.short(),
            complete = state.scan.complete,
            entries = state.scan.entries(),
            differences = state.scan.difference_count,
            not_looked_at = state.scan.not_looked_at_count,
            hashed_bytes = state.scan.hashed_bytes,
            duration_ms = state.scan.duration_ms,
            "scanned"
        );
        state
    }
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
