//! Speaking with the server: baseline, report, heartbeat, in this order.

use std::sync::Arc;
use std::time::Duration;

use drift::Expected;
use manifest::Digest;
use protocol::latest::{Baseline, Heartbeat, HeartbeatReply, ReportReply, paths};
use protocol::limits::HEARTBEAT_SECS;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Config, pace, process};
use crate::api::{Api, ApiError};
use crate::baseline::{BaselineError, Keys, ManifestStore};
use crate::report::NodeState;
use crate::state::{Acknowledged, StateFolder};

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
    boot_id: Uuid,
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
}

impl Contact {
    pub(super) fn new(config: &Config, api: Api, state: StateFolder) -> anyhow::Result<Self> {
        let store = ManifestStore::new(&state.manifests());
        let kept = state.baseline().and_then(|baseline| match store.load(&baseline) {
            Ok(expected) => Some((baseline, Arc::new(expected))),
            Err(error) => {
                tracing::warn!(error = %anyhow::Error::from(error), "the kept baseline cannot be used");
                None
            }
        });
        Ok(Self {
            api,
            keys: config.keys.clone(),
            store,
            boot_id: process::boot_id()?,
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
        })
    }

    /// The baseline to look by.
    pub(super) fn baseline(&self) -> Option<(Digest, Arc<Expected>)> {
        self.baseline
            .as_ref()
            .map(|(baseline, expected)| (baseline.digest, expected.clone()))
    }

    /// Whether there is anything to look by.
    pub(super) const fn is_ready(&self) -> bool {
        self.baseline.is_some() && self.has_tried
    }

    pub(super) const fn is_scan_wanted(&self) -> bool {
        self.is_scan_wanted
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
        if !self.is_baseline_confirmed {
            self.fetch_baseline().await?;
        }
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
        Ok(())
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
            let sequence = next_sequence(&mut self.sequence, process::uptime());
            let report = latest.report(self.boot_id, sequence, base);
            let reply: ReportReply = self.api.post(paths::REPORTS, &report).await?;
            match reply {
                ReportReply::Accepted => {
                    let acknowledged = latest.acknowledged();
                    self.state.keep_acknowledged(&acknowledged);
                    self.acknowledged = Some(acknowledged);
                    self.is_unsent = false;
                    self.is_full_wanted = false;
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
        let uptime = process::uptime();
        let heartbeat = Heartbeat {
            boot_id: self.boot_id,
            sequence: next_sequence(&mut self.sequence, uptime),
            baseline: self.baseline.as_ref().map(|(baseline, _)| baseline.digest),
            state: self.acknowledged.as_ref().map(|acknowledged| acknowledged.state),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_secs: uptime.as_secs(),
            rss_max_bytes: process::rss_max_bytes(),
            unix_ms: process::unix_ms(),
        };
        let reply: HeartbeatReply = self.api.post(paths::HEARTBEAT, &heartbeat).await?;
        let skew_ms = reply.unix_ms.abs_diff(process::unix_ms());
        if skew_ms > SKEW_MS_MAX {
            tracing::warn!(skew_ms, "this node's clock and the server's differ");
        }
        Ok(reply)
    }

    async fn obey(&mut self, reply: &HeartbeatReply) -> Result<(), TalkError> {
        if reply.scan_now {
            self.is_scan_wanted = true;
        }
        if self
            .baseline
            .as_ref()
            .is_none_or(|(held, _)| held.digest != reply.baseline)
        {
            self.is_baseline_confirmed = false;
            return self.fetch_baseline().await;
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
