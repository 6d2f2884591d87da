//! How it goes, told to the server every second and to the person at the rack.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use protocol::DeploymentId;
use protocol::latest::{Progress, Stage, paths};
use tokio::sync::Notify;

use crate::api::Api;
use crate::ramdisk::Console;

/// Reports are sent at least this often.
const REPORT_EVERY: Duration = Duration::from_millis(900);
/// A report that takes longer is given up: the next one says more.
const REPORT_LIMIT: Duration = Duration::from_secs(5);
/// How often the console is told while files are written.
const CONSOLE_EVERY: Duration = Duration::from_secs(5);

/// The state of a deployment. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Tracker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    progress: Mutex<Progress>,
    requests: AtomicU64,
    fetched_bytes: AtomicU64,
    changed: Notify,
    console: Console,
}

impl Tracker {
    /// A deployment that has not begun.
    #[must_use]
    pub fn new(console: Console) -> Self {
        let progress = Progress {
            stage: Stage::Verify,
            detail: String::new(),
            bytes_done: 0,
            bytes_total: 0,
            files_done: 0,
            files_total: 0,
        };
        Self {
            shared: Arc::new(Shared {
                progress: Mutex::new(progress),
                requests: AtomicU64::new(0),
                fetched_bytes: AtomicU64::new(0),
                changed: Notify::new(),
                console,
            }),
        }
    }

    /// Begins a stage.
    pub fn stage(&self, stage: Stage, detail: impl Into<String>) {
        let detail = detail.into();
        self.shared.console.stage(format!("{}: {detail}", stage.as_str()));
        let mut progress = self.lock();
        progress.stage = stage;
        progress.detail = super::bounded(&detail);
        drop(progress);
        self.shared.changed.notify_one();
    }

    /// A detail within the stage, also on the console.
    pub fn say(&self, detail: impl Into<String>) {
        let detail = detail.into();
        self.shared.console.say(&detail);
        self.lock().detail = super::bounded(&detail);
    }

    /// A detail within the stage, for the server alone.
    pub fn detail(&self, detail: impl Into<String>) {
        self.lock().detail = super::bounded(&detail.into());
    }

    /// How much there is to write.
    pub fn totals(&self, files: u64, bytes: u64) {
        let mut progress = self.lock();
        (progress.files_total, progress.bytes_total) = (files, bytes);
    }

    /// More to write than was known.
    pub fn add_totals(&self, files: u64, bytes: u64) {
        let mut progress = self.lock();
        progress.files_total += files;
        progress.bytes_total += bytes;
    }

    /// More is written and checked.
    pub fn add_done(&self, files: u64, bytes: u64) {
        let mut progress = self.lock();
        progress.files_done += files;
        progress.bytes_done += bytes;
    }

    /// One more HTTP request for image data.
    pub fn count_request(&self) {
        self.shared.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// HTTP requests for image data so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// More bytes of image data have come from the server.
    pub fn count_fetched(&self, bytes: u64) {
        self.shared.fetched_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of image data from the server so far, as they travelled: manifests, indexes, packs.
    #[must_use]
    pub fn fetched_bytes(&self) -> u64 {
        self.shared.fetched_bytes.load(Ordering::Relaxed)
    }

    /// The state now.
    #[must_use]
    pub fn snapshot(&self) -> Progress {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.shared.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts the state until the returned value is dropped. A report that fails is only logged: nothing of an
    /// installation hangs on it.
    #[must_use]
    pub fn report_to(&self, api: Api, deployment: DeploymentId) -> Reports {
        let path = format!("{}/{deployment}/progress", paths::DEPLOYMENTS);
        let tracker = self.clone();
        Reports(tokio::spawn(async move {
            let mut told = Instant::now();
            loop {
                let begun = tokio::time::Instant::now();
                let progress = tracker.snapshot();
                if progress.stage == Stage::Write && told.elapsed() > CONSOLE_EVERY {
                    told = Instant::now();
                    tracker.shared.console.say(line(&progress));
                }
                match tokio::time::timeout(REPORT_LIMIT, api.send(&path, &progress)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!(error = super::chain(&error), "progress report"),
                    Err(_) => tracing::debug!("progress report: no answer in time"),
                }
                // At a new stage at once, otherwise every second.
                let _ = tokio::time::timeout_at(begun + REPORT_EVERY, tracker.shared.changed.notified()).await;
            }
        }))
    }
}

/// The running reports; dropping ends them.
#[derive(Debug)]
pub struct Reports(tokio::task::JoinHandle<()>);

impl Drop for Reports {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn line(progress: &Progress) -> String {
    let percent = (progress.bytes_done * 100)
        .checked_div(progress.bytes_total)
        .unwrap_or(0);
    format!(
        "{percent:>3} %: {} of {} MB, {} of {} files",
        progress.bytes_done / 1_000_000,
        progress.bytes_total / 1_000_000,
        progress.files_done,
        progress.files_total
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_for_people_has_numbers_and_no_division_by_nothing() {
        let tracker = Tracker::new(Console::silent());
        assert!(
            line(&tracker.snapshot()).starts_with("  0 %"),
            "{}",
            line(&tracker.snapshot())
        );
        tracker.totals(10, 4_000_000);
        tracker.add_done(3, 1_000_000);
        assert_eq!(line(&tracker.snapshot()), " 25 %: 1 of 4 MB, 3 of 10 files");
    }
}
