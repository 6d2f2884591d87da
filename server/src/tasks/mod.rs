//! Background tasks: each takes no input, may run twice, and runs on a timer.

mod images;
mod upkeep;

pub use images::register_images;
pub use upkeep::{prune, watch_deployments};

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::app::{App, AppError};

/// Runs a task at once and then every `period`, until cancelled. A failure is logged and tried again next time.
pub async fn every<F, R>(name: &'static str, period: Duration, app: App, cancel: CancellationToken, task: F)
where
    F: Fn(App) -> R,
    R: Future<Output = Result<(), AppError>>,
{
    let mut timer = tokio::time::interval(period);
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            _ = timer.tick() => {}
        }
        if let Err(error) = task(app.clone()).await {
            tracing::warn!(task = name, error = %crate::http::error::chain(&error), "background task failed");
        }
    }
}
