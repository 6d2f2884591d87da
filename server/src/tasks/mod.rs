//! Background tasks: each takes no input, may run twice, and runs on a timer.

mod images;
mod upkeep;

pub use crate::app::remediation::advance as remediate;
pub use images::register_images;
pub use upkeep::{SILENT_SECS, prune, rejudge, watch_deployments};

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::app::{App, AppError};

/// When a task runs.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// For the log.
    pub name: &'static str,
    /// Time from the server's start to the first run.
    pub first_after: Duration,
    /// Time between two runs.
    pub period: Duration,
}

/// Runs a task by its schedule, and at once when `nudge` says so, until cancelled. A failure is logged and tried again
/// next time.
pub async fn every<F, R>(schedule: Schedule, app: App, cancel: CancellationToken, nudge: Option<Arc<Notify>>, task: F)
where
    F: Fn(App) -> R,
    R: Future<Output = Result<(), AppError>>,
{
    let Schedule {
        name,
        first_after,
        period,
    } = schedule;
    let mut timer = tokio::time::interval_at(tokio::time::Instant::now() + first_after, period);
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let nudged = async {
            match &nudge {
                Some(nudge) => nudge.notified().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = cancel.cancelled() => return,
            _ = timer.tick() => {}
            () = nudged => {}
        }
        if let Err(error) = task(app.clone()).await {
            tracing::warn!(task = name, error = %crate::http::error::chain(&error), "background task failed");
        }
    }
}
