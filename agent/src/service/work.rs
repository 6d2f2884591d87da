//! The loop between the server, the scans, the hints and the jobs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drift::{Expected, FindingKind};
use manifest::Digest;
use protocol::JobId;
use protocol::latest::JobOutcome;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::contact::Contact;
use super::look::{self, Look, told};
use super::pace;
use crate::node::NodeParts;
use crate::repair::{self, HttpContents};
use crate::report::{Found, NodeState};
use crate::state::StateFolder;
use crate::watch::{Armed, Batch, Collector, Glimpse, Heard, WatchError, WatchSet, Watcher};

/// Most paths of one look; more hints lead to a scan.
const HINTS_MAX: usize = 4_096;
/// How often facts that nothing tells of are read: they cost some hundred small reads.
const FACTS_EVERY: Duration = Duration::from_secs(15);
/// Those facts.
const FACTS: [FindingKind; 3] = [
    FindingKind::SysctlRunning,
    FindingKind::Module,
    FindingKind::KernelCommandLine,
];
/// Shortest pause between scans that hints call for.
const SCAN_PAUSE_MIN: Duration = Duration::from_secs(10);
/// A scan that hints call for waits this many times as long as the last one took.
const SCAN_PAUSE_FACTOR: u32 = 10;
/// Shortest pause between two looks at hints.
const GLIMPSE_PAUSE_MIN: Duration = Duration::from_secs(1);
/// Pause before watching is tried again.
const WATCH_PAUSE: Duration = Duration::from_secs(60);

/// What a thread has done.
enum Ended {
    Scan(Found, Option<Armed>),
    Glimpse(Found, Glimpse),
    Job(JobId, JobOutcome),
}

struct Working {
    handle: JoinHandle<Ended>,
    stop: Arc<AtomicBool>,
    /// What it finds is of no use any more.
    is_thrown_away: bool,
    /// A scan, which a job may end.
    is_scan: bool,
    began: Instant,
    /// The job, which must be answered even when its thread breaks.
    job_id: Option<JobId>,
}

pub(super) struct Service {
    contact: Contact,
    state: StateFolder,
    parts: NodeParts,
    scan_interval: Duration,
    next_scan: Instant,
    /// Hints call for a scan.
    is_scan_called_for: bool,
    last_scan_ended: Option<(Instant, Duration)>,
    /// Scans in a row that could not look everywhere.
    incomplete_scans: u32,
    /// What the last scan found and all that was seen since, if it can be patched.
    found: Option<Found>,
    working: Option<Working>,
    watcher: Option<(Digest, Watcher)>,
    next_watch: Instant,
    hints: Collector,
    next_glimpse: Instant,
    next_facts: Instant,
    has_said_unwatched: bool,
}

impl Drop for Service {
    fn drop(&mut self) {
        // The runtime waits for the thread that reads files; a node that shuts down must not.
        if let Some(working) = &self.working {
            working.stop.store(true, Ordering::Relaxed);
        }
    }
}

impl Service {
    pub(super) fn new(contact: Contact, state: StateFolder, parts: NodeParts, scan_interval: Duration) -> Self {
        let now = Instant::now();
        Self {
            contact,
            state,
            parts,
            scan_interval,
            next_scan: now,
            is_scan_called_for: false,
            last_scan_ended: None,
            incomplete_scans: 0,
            found: None,
            working: None,
            watcher: None,
            next_watch: now,
            hints: Collector::new(HINTS_MAX),
            next_glimpse: now,
            next_facts: now + FACTS_EVERY,
            has_said_unwatched: false,
        }
    }

    pub(super) async fn serve(&mut self) -> anyhow::Result<()> {
        let mut next_contact = Instant::now();
        loop {
            self.watch();
            self.begin();
            let wake = self.wake();
            tokio::select! {
                () = tokio::time::sleep_until(next_contact) => {
                    next_contact = Instant::now() + self.contact.talk().await;
                }
                ended = join(&mut self.working), if self.working.is_some() => {
                    if self.end(ended) {
                        next_contact = next_contact.min(self.contact.earliest());
                    }
                }
                heard = hear(&mut self.watcher), if self.watcher.is_some() => self.hear(heard),
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// When there may be something to begin; whatever ends before wakes the loop as well.
    fn wake(&self) -> Instant {
        let mut wake = Instant::now() + FACTS_EVERY;
        if self.working.is_none() && self.contact.is_ready() {
            wake = wake.min(self.next_scan);
            if self.is_scan_called_for {
                wake = self.called_scan().map_or_else(Instant::now, |at| wake.min(at));
            }
            if self.found.is_some() {
                wake = wake.min(self.next_facts);
                wake = self
                    .hints
                    .due()
                    .map_or(wake, |due| wake.min(due.max(self.next_glimpse)));
            }
        }
        wake
    }

    /// The earliest time of a scan that hints call for; none: at once.
    fn called_scan(&self) -> Option<Instant> {
        let (ended, took) = self.last_scan_ended?;
        Some(ended + SCAN_PAUSE_MIN.max(took * SCAN_PAUSE_FACTOR))
    }

    /// Begins what is due: a job before a scan before a look at hints. One at a time.
    fn begin(&mut self) {
        if let Some(working) = &mut self.working {
            if working.is_scan && self.contact.has_job() && !working.is_thrown_away {
                // What it has seen is older than what the job will do.
                working.is_thrown_away = true;
                working.stop.store(true, Ordering::Relaxed);
            }
            return;
        }
        if self.begin_job() {
            return;
        }
        let Some((baseline, expected)) = self.contact.baseline().filter(|_| self.contact.is_ready()) else {
            return;
        };
        let now = Instant::now();
        if self.hints.take_overflow() {
            self.is_scan_called_for = true;
        }
        let is_called = self.is_scan_called_for && self.called_scan().is_none_or(|at| now >= at);
        if self.contact.is_scan_wanted() || now >= self.next_scan || is_called {
            self.begin_scan(baseline, expected);
        } else if self.found.as_ref().is_some_and(|found| found.baseline == baseline) {
            self.begin_glimpse(baseline, expected, now);
        } else if self.hints.due().is_some_and(|due| now >= due) {
            // More differs than can be patched: only a scan tells.
            self.hints.clear();
            self.is_scan_called_for = true;
        }
    }

    fn begin_job(&mut self) -> bool {
        let Some((job, mend, api)) = self.contact.take_job() else {
            return false;
        };
        let contents = HttpContents::new(api, tokio::runtime::Handle::current());
        let job_id = job.job_id;
        let work = move |stop: &Arc<AtomicBool>| Ended::Job(job_id, repair::run(&job, &mend, &contents, stop));
        self.spawn(work, false, Some(job_id));
        true
    }

    fn look(&self, baseline: Digest, expected: Arc<Expected>, stop: Arc<AtomicBool>) -> Look {
        Look {
            parts: self.parts.clone(),
            state: self.state.clone(),
            baseline,
            expected,
            stop,
        }
    }

    fn begin_scan(&mut self, baseline: Digest, expected: Arc<Expected>) {
        let now = Instant::now();
        self.next_scan = now + pace::jittered(self.scan_interval, pace::chance());
        self.next_facts = now + FACTS_EVERY;
        self.is_scan_called_for = false;
        self.contact.scan_started();
        // What they were about is seen by this scan; hints from now on are looked at after it.
        self.hints.clear();
        self.found = None;
        let watches = self.watcher.as_ref().map(|(_, watcher)| watcher.set().clone());
        let after_job = self.contact.after_job();
        let look = self.look(baseline, expected, Arc::default());
        let work = move |stop: &Arc<AtomicBool>| {
            let look = Look {
                stop: stop.clone(),
                ..look
            };
            // Watched first: what changes during the scan is heard of.
            let armed = watches.map(|watches| watches.arm(&look.parts.base, look.parts.roots_are_folders));
            Ended::Scan(look.scan(after_job), armed)
        };
        self.spawn(work, true, None);
    }

    fn begin_glimpse(&mut self, baseline: Digest, expected: Arc<Expected>, now: Instant) {
        let are_facts_due = now >= self.next_facts;
        let are_hints_due = now >= self.next_glimpse && self.hints.due().is_some_and(|due| now >= due);
        if !are_facts_due && !are_hints_due {
            return;
        }
        let mut kinds = BTreeSet::new();
        if are_facts_due {
            kinds.extend(FACTS);
            self.next_facts = now + FACTS_EVERY;
        }
        let batch = if are_hints_due {
            self.hints.take(now)
        } else {
            Batch::default()
        };
        self.next_glimpse = now + GLIMPSE_PAUSE_MIN;
        let Some(found) = self.found.take() else { return };
        let look = self.look(baseline, expected, Arc::default());
        let work = move |stop: &Arc<AtomicBool>| {
            let look = Look {
                stop: stop.clone(),
                ..look
            };
            let seen = look.glimpse(&found, &batch, &kinds);
            Ended::Glimpse(found, seen)
        };
        self.spawn(work, false, None);
    }

    fn spawn(
        &mut self,
        work: impl FnOnce(&Arc<AtomicBool>) -> Ended + Send + 'static,
        is_scan: bool,
        job_id: Option<JobId>,
    ) {
        let stop: Arc<AtomicBool> = Arc::default();
        let flag = stop.clone();
        self.working = Some(Working {
            handle: tokio::task::spawn_blocking(move || work(&flag)),
            stop,
            is_thrown_away: false,
            is_scan,
            began: Instant::now(),
            job_id,
        });
    }

    /// Takes what a thread has done; whether there is news for the server.
    fn end(&mut self, ended: Result<Ended, tokio::task::JoinError>) -> bool {
        let Some(working) = self.working.take() else {
            return false;
        };
        match ended {
            Ok(Ended::Job(job_id, outcome)) => {
                self.contact.job_ended(job_id, outcome);
                self.found = None;
                true
            }
            Ok(Ended::Scan(found, armed)) => {
                if let Some(armed) = armed {
                    self.say_armed(armed);
                }
                if working.is_thrown_away {
                    self.contact.want_scan();
                    return false;
                }
                self.last_scan_ended = Some((Instant::now(), working.began.elapsed()));
                self.scanned(found);
                true
            }
            Ok(Ended::Glimpse(found, seen)) => self.glimpsed(found, seen),
            // A look that broke is a fault of this program: say so and go on with the next.
            Err(error) => {
                tracing::error!(%error, "a look broke");
                if let Some(job_id) = working.job_id {
                    let reason = "the agent broke while it worked on the job; some of its steps may be done".to_owned();
                    self.contact.job_ended(job_id, JobOutcome::Refused { reason });
                    return true;
                }
                false
            }
        }
    }

    fn scanned(&mut self, found: Found) {
        if self
            .contact
            .baseline()
            .is_none_or(|(baseline, _)| baseline != found.baseline)
        {
            // The server changed its mind meanwhile.
            self.contact.want_scan();
            return;
        }
        let kept = found.is_whole().then(|| found.clone());
        let state = told(found, self.contact.secret_key(), self.contact.acknowledged());
        look::log(&state);
        self.look_again_soon(state.scan.not_looked_at_count);
        self.contact.tell(state);
        self.found = kept;
    }

    fn glimpsed(&mut self, mut found: Found, seen: Glimpse) -> bool {
        if self
            .contact
            .baseline()
            .is_none_or(|(baseline, _)| baseline != found.baseline)
        {
            return false;
        }
        let now = Instant::now();
        let mut left_out = BTreeSet::new();
        for (path, times) in &seen.unstable {
            if self.hints.again(path.clone(), *times, now) {
                left_out.insert(path.clone());
            }
        }
        self.is_scan_called_for |= seen.needs_scan;
        found.apply(seen, &left_out);
        let kept = found.is_whole().then(|| found.clone());
        let latest = self.contact.latest();
        let earlier = latest.map(NodeState::acknowledged);
        let state = told(
            found,
            self.contact.secret_key(),
            earlier.as_ref().or(self.contact.acknowledged()),
        );
        self.found = kept;
        let is_news = latest.is_none_or(|latest| {
            latest.state != state.state
                || latest.scan.difference_count != state.scan.difference_count
                || latest.not_looked_at != state.not_looked_at
        });
        if is_news {
            tracing::info!(differences = state.scan.difference_count, "changed");
            self.contact.tell(state);
        }
        is_news
    }

    /// What could not be looked at is often only busy: a manager that starts up, a file that is written. So the next
    /// scan comes soon; one place that stays out of reach does not keep the node scanning.
    fn look_again_soon(&mut self, not_looked_at: u64) {
        self.incomplete_scans = if not_looked_at == 0 {
            0
        } else {
            self.incomplete_scans.saturating_add(1)
        };
        if let Some(pause) = pace::look_again_after(self.incomplete_scans) {
            self.next_scan = self.next_scan.min(Instant::now() + pause);
        }
    }

    /// Watches by the baseline that is held now. Where that does not work, scans see everything all the same.
    fn watch(&mut self) {
        let now = Instant::now();
        let Some((baseline, expected)) = self.contact.baseline() else {
            return;
        };
        if self.parts.watches_max == 0 || self.watcher.as_ref().is_some_and(|(digest, _)| *digest == baseline) {
            return;
        }
        if now < self.next_watch {
            return;
        }
        self.watcher = None;
        self.next_watch = now + WATCH_PAUSE;
        let made = WatchSet::open(expected, self.parts.watches_max).and_then(|set| Watcher::new(Arc::new(set)));
        match made {
            Ok(watcher) => {
                self.watcher = Some((baseline, watcher));
                // It is armed by the scan, and what happened before that is only seen by it.
                self.is_scan_called_for = true;
            }
            Err(error) => {
                if !std::mem::replace(&mut self.has_said_unwatched, true) {
                    tracing::warn!(%error, "changes are only seen by scans");
                }
            }
        }
    }

    fn say_armed(&mut self, armed: Armed) {
        if armed.unwatched > 0 && !std::mem::replace(&mut self.has_said_unwatched, true) {
            tracing::warn!(
                watched = armed.watched,
                unwatched = armed.unwatched,
                "some folders are not watched; changes there are only seen by scans"
            );
        } else {
            tracing::debug!(watched = armed.watched, unwatched = armed.unwatched, "watching");
        }
    }

    fn hear(&mut self, heard: Result<Heard, WatchError>) {
        match heard {
            Ok(heard) => {
                let now = Instant::now();
                for (path, change) in heard.hints {
                    self.hints.add(path, change, now);
                }
                if heard.is_overflown {
                    tracing::info!("more changes than could be heard of; scanning");
                    self.hints.overflow();
                }
            }
            Err(error) => {
                // Not before the pause since it began is over: one that ends at once does not begin for ever.
                tracing::error!(%error, "watching ended; it begins anew within a minute, and a scan looks now");
                self.watcher = None;
                self.hints.overflow();
            }
        }
    }
}

async fn join(working: &mut Option<Working>) -> Result<Ended, tokio::task::JoinError> {
    match working {
        Some(working) => (&mut working.handle).await,
        None => std::future::pending().await,
    }
}

async fn hear(watcher: &mut Option<(Digest, Watcher)>) -> Result<Heard, WatchError> {
    match watcher {
        Some((_, watcher)) => watcher.next().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[path = "work_tests.rs"]
mod tests;
