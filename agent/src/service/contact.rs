//! Speaking with the server: baseline, what came of jobs, report, heartbeat, in this order.

mod trust;

use std::sync::Arc;
use std::time::Duration;

use drift::{Expected, SecretKey};
use manifest::Digest;
use protocol::JobId;
use protocol::latest::{
    Baseline, Heartbeat, HeartbeatReply, ImageTrust, Job, JobOutcome, ReportReply, RestartAnswer, RestartOrder,
    SecretDigestKey, SignedJob, paths,
};
use protocol::limits::HEARTBEAT_SECS;
use tokio::time::Instant;

use super::{Config, pace, process, restart, shown};
use crate::api::{Api, ApiError};
use crate::baseline::{BaselineError, Keys, ManifestStore};
use crate::node::NodeParts;
use crate::repair::{Holder, Known, Ledger, Mend, judge};
use crate::report::NodeState;
use crate::state::{Acknowledged, StateFolder};

pub(super) use trust::take_keys;

/// Difference between the clocks that is worth a line in the log, in milliseconds.
const SKEW_MS_MAX: u64 = 60_000;

/// One conversation that went wrong.
#[derive(Debug, thiserror::Error)]
enum TalkError {
    #[error("talking to the server")]
    Api(#[from] ApiError),
    #[error("the baseline cannot be used")]
    Baseline(#[from] BaselineError),
}

impl TalkError {
    fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Api(error) => Some(error),
            Self::Baseline(error) => error.api(),
        }
    }
}

/// What the agent holds and what the server knows of it.
pub(super) struct Contact {
    api: Api,
    keys: Keys,
    state: StateFolder,
    store: ManifestStore,
    parts: NodeParts,
    /// What the server said last of signatures, by the name it gave that.
    trust: Option<(Digest, ImageTrust)>,
    /// Why the baseline that the server names is not taken.
    refused: Option<String>,
    secret_key: Option<SecretKey>,
    /// The server was asked for that key since the baseline was confirmed last.
    has_asked_for_key: bool,
    ledger: Ledger,
    /// A job that was pulled, judged and entered in the ledger.
    job: Option<Job>,
    /// A job is carried out: no other one is pulled.
    is_working: bool,
    /// The server's clock at an instant.
    server_clock: Option<(Instant, u64)>,
    sequence: u64,
    baseline: Option<(Baseline, Arc<Expected>)>,
    /// The server said which baseline it should be.
    is_baseline_confirmed: bool,
    /// It was tried once, so that a node whose server is away looks by the baseline it has.
    has_tried: bool,
    acknowledged: Option<Acknowledged>,
    /// The newest state; `is_unsent` until the server has taken it.
    latest: Option<NodeState>,
    is_unsent: bool,
    is_full_wanted: bool,
    is_scan_wanted: bool,
    failures: u32,
    earliest: Instant,
    has_warned_of_clock: bool,
    /// What came of a restart into the network; told with each heartbeat until another one is asked for.
    restart: Option<RestartAnswer>,
}

impl Contact {
    pub(super) fn new(config: &Config, api: Api, state: StateFolder, parts: NodeParts) -> Self {
        let store = ManifestStore::new(&state.manifests());
        let kept = state.baseline().and_then(|baseline| match store.load(&baseline) {
            Ok(expected) => Some((baseline, Arc::new(expected))),
            Err(error) => {
                tracing::warn!(error = %anyhow::Error::from(error), "the kept baseline cannot be used");
                None
            }
        });
        let mut keys = config.keys.clone();
        let trust = state.trust().filter(|(_, trust)| take_keys(&mut keys, trust));
        Self {
            api,
            keys,
            trust,
            refused: None,
            store,
            parts,
            secret_key: state.secret_key(),
            has_asked_for_key: false,
            ledger: Ledger::open(state.path()),
            job: None,
            is_working: false,
            server_clock: None,
            sequence: 0,
            baseline: kept,
            is_baseline_confirmed: false,
            has_tried: false,
            acknowledged: state.acknowledged(),
            state,
            latest: None,
            is_unsent: false,
            is_full_wanted: false,
            is_scan_wanted: true,
            failures: 0,
            earliest: Instant::now(),
            has_warned_of_clock: false,
            restart: None,
        }
    }

    /// The baseline to look by.
    pub(super) fn baseline(&self) -> Option<(Digest, Arc<Expected>)> {
        self.baseline
            .as_ref()
            .map(|(baseline, expected)| (baseline.digest, expected.clone()))
    }

    /// Keys the digests of secrets in what is told.
    pub(super) const fn secret_key(&self) -> Option<&SecretKey> {
        self.secret_key.as_ref()
    }

    /// The last job that has ended: what a scan that begins now proves.
    pub(super) const fn after_job(&self) -> Option<JobId> {
        self.ledger.after_job()
    }

    /// The state told last, or about to be told.
    pub(super) const fn latest(&self) -> Option<&NodeState> {
        self.latest.as_ref()
    }

    /// A job to carry out now, with all it needs. It is in the ledger; [`Contact::job_ended`] must follow.
    pub(super) fn take_job(&mut self) -> Option<(Job, Mend, Api)> {
        let job = self.job.take()?;
        let held = self
            .baseline
            .as_ref()
            .filter(|(baseline, _)| baseline.digest == job.baseline);
        let Some((baseline, expected)) = held else {
            let reason = "the baseline of this node changed before the job began".to_owned();
            self.job_ended(job.job_id, JobOutcome::Refused { reason });
            return None;
        };
        let mend = Mend {
            parts: self.parts.clone(),
            expected: expected.clone(),
            baseline: baseline.clone(),
            manifests: self.store.clone(),
            secret_key: self.secret_key.clone(),
            state_folder: self.state.path().to_owned(),
            package_lists: self.state.package_lists(),
        };
        Some((job, mend, self.api.clone()))
    }

    /// The job has ended and this came of it: it is told, and proved by a scan that begins from now on.
    pub(super) fn job_ended(&mut self, job_id: JobId, outcome: JobOutcome) {
        self.is_working = false;
        self.ledger.finish(job_id, outcome);
        self.is_scan_wanted = true;
    }

    /// Whether there is anything to look by.
    pub(super) const fn is_ready(&self) -> bool {
        self.baseline.is_some() && self.has_tried
    }

    pub(super) const fn is_scan_wanted(&self) -> bool {
        self.is_scan_wanted
    }

    /// A scan is to begin as soon as may be.
    pub(super) const fn want_scan(&mut self) {
        self.is_scan_wanted = true;
    }

    /// A job waits to be carried out.
    pub(super) const fn has_job(&self) -> bool {
        self.job.is_some()
    }

    pub(super) const fn scan_started(&mut self) {
        self.is_scan_wanted = false;
    }

    pub(super) const fn acknowledged(&self) -> Option<&Acknowledged> {
        self.acknowledged.as_ref()
    }

    /// When the server may be spoken to again: a pause it asked for holds for news as well.
    pub(super) const fn earliest(&self) -> Instant {
        self.earliest
    }

    /// A new state, which takes the place of one that was not told yet.
    pub(super) fn tell(&mut self, state: NodeState) {
        self.latest = Some(state);
        self.is_unsent = true;
    }

    /// Speaks with the server; returns the pause until the next time.
    pub(super) async fn talk(&mut self) -> Duration {
        let result = self.try_talk().await;
        self.has_tried = true;
        let pause = match result {
            Ok(pause) => {
                if self.failures > 0 {
                    tracing::info!(failures = self.failures, "the server answers again");
                }
                self.failures = 0;
                self.earliest = Instant::now();
                self.has_warned_of_clock = false;
                return pause;
            }
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                self.log_failure(&error);
                let retry_after_secs = match error.api() {
                    Some(ApiError::Refused { retry_after_secs, .. }) => *retry_after_secs,
                    _ => None,
                };
                pace::pause_after_failure(self.failures, retry_after_secs, pace::chance())
            }
        };
        self.earliest = Instant::now() + pause;
        pause
    }

    /// The first failure and then every tenth: a server that is away for a night is no thousand lines.
    fn log_failure(&mut self, error: &TalkError) {
        let text = chain(error);
        if is_clock_problem(&text) {
            if !std::mem::replace(&mut self.has_warned_of_clock, true) {
                tracing::error!(
                    unix_ms = process::unix_ms(),
                    error = text,
                    "certificates are not valid at this node's time: check its clock"
                );
            }
        } else if self.failures % 10 == 1 {
            tracing::warn!(failures = self.failures, error = text, "no contact");
        }
    }

    async fn try_talk(&mut self) -> Result<Duration, TalkError> {
        if !self.is_baseline_confirmed
            && let Err(error) = self.take_baseline().await
        {
            return self.tell_refusal(error).await;
        }
        self.fetch_secret_key().await;
        self.tell_outcomes().await?;
        if self.is_unsent {
            self.send_report().await?;
        }
        let reply = self.send_heartbeat().await?;
        self.obey(&reply).await?;
        let secs = reply.next_secs.clamp(*HEARTBEAT_SECS.start(), *HEARTBEAT_SECS.end());
        Ok(pace::jittered(Duration::from_secs(secs), pace::chance()))
    }

    async fn fetch_baseline(&mut self) -> Result<(), TalkError> {
        let baseline: Baseline = self.api.get(paths::BASELINE).await?;
        if self.baseline.as_ref().is_none_or(|(held, _)| *held != baseline) {
            let expected = self.store.fetch(&self.api, &baseline, &self.keys).await?;
            self.state.keep_baseline(&baseline);
            self.store.retain(&baseline);
            tracing::info!(
                baseline.digest = %baseline.digest.short(),
                image.digest = %baseline.image.short(),
                "a new baseline"
            );
            self.baseline = Some((baseline, Arc::new(expected)));
            // A state against the old baseline would only be called stale.
            self.is_unsent = false;
            self.latest = None;
            self.is_scan_wanted = true;
        }
        self.is_baseline_confirmed = true;
        self.has_asked_for_key = false;
        Ok(())
    }

    /// Asks for the key once with each baseline. Without it nothing but "another content" is told of secrets, so that a
    /// server that does not give it holds nothing up.
    async fn fetch_secret_key(&mut self) {
        if self.has_asked_for_key {
            return;
        }
        match self.api.get::<SecretDigestKey>(paths::SECRET_DIGEST_KEY).await {
            Ok(key) => match SecretKey::parse(&key.key) {
                Some(parsed) => {
                    if self.secret_key.as_ref() != Some(&parsed) {
                        self.state.keep_secret_key(&key);
                        self.secret_key = Some(parsed);
                        // What was told with another key is another state.
                        self.is_scan_wanted = true;
                    }
                    self.has_asked_for_key = true;
                }
                None => {
                    tracing::warn!("the server's key for digests of secrets is none");
                    self.has_asked_for_key = true;
                }
            },
            Err(error) => {
                self.has_asked_for_key = !error.is_temporary();
                tracing::info!(error = chain(&error), "no key for digests of secrets");
            }
        }
    }

    /// Tells what came of jobs; what the server does not want to hear is not told again.
    async fn tell_outcomes(&mut self) -> Result<(), TalkError> {
        while let Some((job_id, outcome)) = self.ledger.untold() {
            let path = format!("{}/{job_id}/outcome", paths::JOBS);
            match self.api.send(&path, outcome).await {
                Ok(()) => {}
                Err(error @ ApiError::Refused { .. }) if !error.is_temporary() => {
                    tracing::warn!(job.id = %job_id, error = chain(&error), "the server does not take what came of a job");
                }
                Err(error) => return Err(error.into()),
            }
            self.ledger.told(job_id);
        }
        Ok(())
    }

    /// Pulls a job and judges it. One that is not carried out is answered with the reason.
    async fn pull_job(&mut self) -> Result<(), TalkError> {
        let Some(signed) = self.api.get_optional::<SignedJob>(paths::JOBS).await? else {
            return Ok(());
        };
        let Some((baseline, _)) = &self.baseline else {
            return Ok(());
        };
        let holder = Holder {
            job_key: &self.keys.job,
            node_id: baseline.node_id,
            baseline: baseline.digest,
            server_unix_ms: self.server_unix_ms(),
        };
        let job = match judge(&signed, &holder) {
            Ok(job) => job,
            Err(refusal) => {
                tracing::warn!(reason = refusal.reason, "a job is refused");
                if let Some(job_id) = refusal.job_id {
                    self.ledger.refuse(job_id, refusal.reason);
                }
                return self.tell_outcomes().await;
            }
        };
        if let Some(reason) = self.against(&baseline.clone()) {
            tracing::warn!(job.id = %job.job_id, reason, "a job is refused");
            self.ledger.refuse(job.job_id, reason);
            return self.tell_outcomes().await;
        }
        match self.ledger.look_up(&job) {
            Known::New => match self.ledger.begin(&job) {
                Ok(()) => {
                    tracing::info!(job.id = %job.job_id, steps = job.steps.len(), "a job");
                    self.is_working = true;
                    self.job = Some(job);
                }
                Err(error) => {
                    let reason = format!("its nonce cannot be kept, so that it might run twice: {error}");
                    tracing::error!(job.id = %job.job_id, reason, "a job is refused");
                    self.ledger.refuse(job.job_id, reason);
                }
            },
            Known::ToldAgain => {
                tracing::info!(job.id = %job.job_id, "a job that ran before; telling again what came of it")
            }
            Known::Refused(reason) => {
                tracing::warn!(job.id = %job.job_id, reason, "a job is refused");
                self.ledger.refuse(job.job_id, reason);
            }
        }
        self.tell_outcomes().await
    }

    /// Now by the server's clock: this node's may be wrong, and may be set at any time.
    fn server_unix_ms(&self) -> u64 {
        let Some((at, unix_ms)) = self.server_clock else {
            return process::unix_ms();
        };
        unix_ms.saturating_add(u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Sends the texts that the server would show and does not have. Nothing hangs on them.
    async fn send_contents(&self, wanted: &[String]) {
        let Some(latest) = &self.latest else { return };
        let Some((_, expected)) = &self.baseline else { return };
        for (digest, bytes) in shown::contents(&self.parts, expected, &latest.differences, wanted).await {
            if let Err(error) = self
                .api
                .put_bytes(&format!("{}/{digest}", paths::CONTENTS), bytes)
                .await
            {
                tracing::debug!(%digest, error = chain(&error), "a content is not sent");
            }
        }
    }

    async fn send_report(&mut self) -> Result<(), TalkError> {
        // At most twice: once as a delta, once in full.
        for _ in 0..2 {
            let Some(latest) = &self.latest else { return Ok(()) };
            let base = if self.is_full_wanted {
                None
            } else {
                self.acknowledged.as_ref()
            };
            let sequence = next_sequence(&mut self.sequence, self.parts.uptime.elapsed());
            let report = latest.report(self.parts.boot_id, sequence, base);
            let reply: ReportReply = self.api.post(paths::REPORTS, &report).await?;
            match reply {
                ReportReply::Accepted { contents_wanted } => {
                    let acknowledged = latest.acknowledged();
                    self.state.keep_acknowledged(&acknowledged);
                    self.acknowledged = Some(acknowledged);
                    self.is_unsent = false;
                    self.is_full_wanted = false;
                    self.send_contents(&contents_wanted).await;
                    return Ok(());
                }
                ReportReply::NeedFull { reason } => {
                    tracing::info!(reason, "the server asks for a full report");
                    self.is_full_wanted = true;
                }
                ReportReply::Stale { reason } => {
                    tracing::info!(reason, "the server dropped a report");
                    self.is_unsent = false;
                    self.is_baseline_confirmed = false;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn send_heartbeat(&mut self) -> Result<HeartbeatReply, TalkError> {
        let uptime = self.parts.uptime.elapsed();
        let heartbeat = Heartbeat {
            boot_id: self.parts.boot_id,
            sequence: next_sequence(&mut self.sequence, uptime),
            baseline: self.baseline.as_ref().map(|(baseline, _)| baseline.digest),
            state: self.acknowledged.as_ref().map(|acknowledged| acknowledged.state),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_secs: uptime.as_secs(),
            // A process that stands for many nodes says nothing about one of them.
            rss_max_bytes: if self.parts.is_machine() {
                process::rss_max_bytes()
            } else {
                0
            },
            unix_ms: process::unix_ms(),
            restart: self.restart.clone(),
            refused: self.refused.clone(),
        };
        let reply: HeartbeatReply = self.api.post(paths::HEARTBEAT, &heartbeat).await?;
        self.server_clock = Some((Instant::now(), reply.unix_ms));
        let skew_ms = reply.unix_ms.abs_diff(process::unix_ms());
        if skew_ms > SKEW_MS_MAX {
            tracing::warn!(skew_ms, "this node's clock and the server's differ");
        }
        Ok(reply)
    }

    /// Restarts the machine into the network. The server is told before: afterwards nobody is there to tell it.
    async fn restart(&mut self, order: &RestartOrder) -> Result<(), TalkError> {
        let (known, done, is_machine) = (order.clone(), self.state.restart_done(), self.parts.is_machine());
        let prepared = tokio::task::spawn_blocking(move || restart::prepare(&known, done, is_machine)).await;
        let mut answer = prepared.unwrap_or_else(|error| RestartAnswer {
            id: order.id,
            will_restart: false,
            detail: format!("the firmware's boot entries could not be read: {error}"),
        });
        if answer.will_restart
            && let Err(error) = self.state.keep_restart_done(order.id)
        {
            answer.will_restart = false;
            answer.detail = format!("not restarted, because that cannot be written down: {error}");
        }
        tracing::info!(detail = answer.detail, "asked to restart into the network");
        let will_restart = answer.will_restart;
        self.restart = Some(answer);
        self.send_heartbeat().await?;
        if will_restart
            && let Ok(Err(problem)) = tokio::task::spawn_blocking(restart::restart).await
            && let Some(answer) = &mut self.restart
        {
            answer.will_restart = false;
            answer.detail = format!("systemd does not restart the machine: {problem}");
            self.send_heartbeat().await?;
        }
        Ok(())
    }

    async fn obey(&mut self, reply: &HeartbeatReply) -> Result<(), TalkError> {
        if let Some(order) = &reply.restart {
            self.restart(order).await?;
        }
        self.learn_trust(reply).await;
        if reply.scan_now {
            self.is_scan_wanted = true;
        }
        if self
            .baseline
            .as_ref()
            .is_none_or(|(held, _)| held.digest != reply.baseline)
        {
            self.is_baseline_confirmed = false;
            return match self.take_baseline().await {
                Err(error) => self.tell_refusal(error).await.map(drop),
                Ok(()) => Ok(()),
            };
        }
        if reply.job_waiting && !self.is_working {
            self.pull_job().await?;
        }
        if reply.full_report {
            self.is_full_wanted = true;
            if self.latest.is_some() {
                self.is_unsent = true;
                return self.send_report().await;
            }
        }
        Ok(())
    }
}

/// Counts up within a boot, also over a restart of the agent: it follows the time since boot, in milliseconds.
fn next_sequence(last: &mut u64, uptime: Duration) -> u64 {
    let now = u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX);
    *last = now.max(last.saturating_add(1));
    *last
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

/// What rustls says of a certificate outside its time.
fn is_clock_problem(text: &str) -> bool {
    [
        "certificate not valid yet",
        "certificate expired",
        "NotValidYet",
        "Expired",
    ]
    .iter()
    .any(|words| text.contains(words))
}

#[cfg(test)]
#[path = "contact_tests.rs"]
mod tests;
