//! The steps of one job, in its order, each for itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use drift::{Expected, SecretKey};
use manifest::TreePath;
use protocol::latest::{Baseline, Job, JobOutcome, RepairStep, StepOutcome, StepResult, Verb};

use super::contents::ContentSource;
use super::site::{Site, TimesOf, failed};
use super::undo::Undo;
use crate::baseline::ManifestStore;
use crate::node::NodeParts;
use crate::scan::{Looker, ScanOptions};

/// Steps that have not begun by then are not begun: the server counts a job as lost after half an hour.
const DURATION_MAX: Duration = Duration::from_secs(20 * 60);

/// Largest outcome, in bytes of JSON, with room for what stands around it.
const OUTCOME_BYTES_MAX: usize = protocol::limits::BODY_BYTES_MAX - 1_024;

/// What a job needs beside itself.
#[derive(Clone, Debug)]
pub struct Mend {
    /// The node.
    pub parts: NodeParts,
    /// What it should be.
    pub expected: Arc<Expected>,
    /// The manifests of that.
    pub baseline: Baseline,
    /// Where they are kept.
    pub manifests: ManifestStore,
    /// Keys the digests of secrets, as in what was reported.
    pub secret_key: Option<SecretKey>,
    /// Where undo folders are kept.
    pub state_folder: PathBuf,
    /// File lists of the packages as they were.
    pub package_lists: PathBuf,
}

/// Carries out a job that was judged and entered in the ledger. Once `stop` is set, no further step begins. Blocks.
#[must_use]
pub fn run(job: &Job, mend: &Mend, contents: &dyn ContentSource, stop: &AtomicBool) -> JobOutcome {
    let undo = match Undo::open(&mend.state_folder, job.job_id) {
        Ok(undo) => undo,
        Err(error) => {
            let reason = format!("no folder to keep what is replaced: {error}");
            return JobOutcome::Refused { reason };
        }
    };
    let mut options = ScanOptions::new(&mend.parts.base);
    options.roots_are_folders = mend.parts.roots_are_folders;
    let times_of = |wanted: &dyn Fn(&TreePath) -> bool| times_of(mend, wanted);
    let mut site = Site {
        parts: &mend.parts,
        expected: &mend.expected,
        looker: Looker::new(&mend.expected, &options),
        contents,
        secret_key: mend.secret_key.as_ref(),
        undo,
        times: times_of_files(&job.steps, &times_of),
        times_of: &times_of,
        package_lists: &mend.package_lists,
    };
    let deadline = Instant::now() + DURATION_MAX;
    let mut steps: Vec<StepResult> = job
        .steps
        .iter()
        .map(|step| {
            let outcome = if stop.load(Ordering::Relaxed) {
                failed("not begun: the agent was told to stop")
            } else if Instant::now() >= deadline {
                failed("not begun: the job took too long")
            } else {
                one(&mut site, step)
            };
            tracing::info!(job.id = %job.job_id, verb = step.verb.name(), object = step.verb.object(), ?outcome, "repair");
            StepResult {
                group: step.group,
                outcome,
            }
        })
        .collect();
    shorten(&mut steps);
    JobOutcome::Ran { steps }
}

/// Cuts what is said of the steps until it fits into one body: names full of escapes take more room than they have.
fn shorten(steps: &mut [StepResult]) {
    let mut chars_max = 128;
    while serde_json::to_vec(steps).is_ok_and(|bytes| bytes.len() > OUTCOME_BYTES_MAX) && chars_max > 0 {
        for step in steps.iter_mut() {
            let (StepOutcome::Done { detail: text }
            | StepOutcome::Refused { reason: text }
            | StepOutcome::Failed { reason: text }) = &mut step.outcome
            else {
                continue;
            };
            *text = text.chars().take(chars_max).collect();
        }
        chars_max /= 2;
    }
}

fn one(site: &mut Site<'_>, step: &RepairStep) -> StepOutcome {
    match &step.verb {
        Verb::RestoreFile { path } => site.restore_file(step, path),
        Verb::RemoveAddedFile { path } => site.remove_added_file(step, path),
        Verb::SetSysctl { key } => site.set_sysctl(step, key),
        Verb::PersistSysctl { key } => site.persist_sysctl(step, key),
        Verb::SetUnit { unit } => site.set_unit(step, unit),
        Verb::ReinstallPackage { package } => site.reinstall_package(step, package),
        Verb::RemovePackage { package } => site.remove_package(step, package),
    }
}

/// Times of the paths that steps name, and of all below them. Programs go by them (`.pyc` files are good for a source of
/// one time), though nobody compares them.
fn times_of_files(steps: &[RepairStep], times_of: &TimesOf<'_>) -> BTreeMap<TreePath, i64> {
    let named: BTreeSet<TreePath> = steps
        .iter()
        .filter_map(|step| match &step.verb {
            Verb::RestoreFile { path } => path.parse().ok(),
            _ => None,
        })
        .collect();
    if named.is_empty() {
        return BTreeMap::new();
    }
    times_of(&|path| {
        let mut above = Some(path.clone());
        while let Some(folder) = above {
            if named.contains(&folder) {
                return true;
            }
            above = folder.parent();
        }
        false
    })
}

fn times_of(mend: &Mend, wanted: &dyn Fn(&TreePath) -> bool) -> BTreeMap<TreePath, i64> {
    mend.manifests.times(&mend.baseline, wanted).unwrap_or_else(|error| {
        tracing::warn!(error = crate::deploy::chain(&error), "times are not restored");
        BTreeMap::new()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_the_largest_job_fits_into_one_body() {
        let step = StepResult {
            group: manifest::Digest::of(b"x"),
            outcome: failed("\\\"".repeat(200)),
        };
        let mut steps = vec![step; protocol::limits::JOB_STEPS_MAX];
        shorten(&mut steps);
        let bytes = serde_json::to_vec(&JobOutcome::Ran { steps }).unwrap();
        assert!(bytes.len() <= protocol::limits::BODY_BYTES_MAX, "{}", bytes.len());
    }
}
