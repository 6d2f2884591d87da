//! Waits on a condition, with a limit: what a test does where it would otherwise sleep and hope.

use std::time::{Duration, Instant};

/// Between two looks: short at first, so that a quick answer costs nothing.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// What was waited for did not happen.
#[derive(Debug, thiserror::Error)]
#[error("waited {limit:?} for {what}: looked {looks} times, and it was never so")]
pub struct WaitError {
    /// What was awaited, in the caller's words.
    pub what: String,
    /// How long.
    pub limit: Duration,
    /// How many times the condition was looked at, at least once.
    pub looks: u32,
}

/// Waits until `predicate` is true, looking again and again. A look that hangs is ended at the limit too.
///
/// ```no_run
/// # async fn example() -> anyhow::Result<()> {
/// # async fn node_count() -> usize { 3 }
/// testkit::wait_for(std::time::Duration::from_secs(5), "three nodes", async || node_count().await == 3).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`WaitError`], which says what was awaited.
pub async fn wait_for(limit: Duration, what: &str, mut predicate: impl AsyncFnMut() -> bool) -> Result<(), WaitError> {
    wait_for_some(limit, what, async || predicate().await.then_some(())).await
}

/// As [`wait_for`], for a condition that has a value once it is met.
///
/// # Errors
/// [`WaitError`], which says what was awaited.
pub async fn wait_for_some<T>(
    limit: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> Result<T, WaitError> {
    let started = Instant::now();
    let mut pause = PAUSE_MIN;
    let mut looks = 0;
    loop {
        looks += 1;
        let left = limit.saturating_sub(started.elapsed());
        // The first look gets its chance even with no time left.
        let left = if looks == 1 { left.max(PAUSE_MIN) } else { left };
        if let Ok(Some(value)) = tokio::time::timeout(left, look()).await {
            return Ok(value);
        }
        if started.elapsed() >= limit {
            return Err(WaitError {
                what: what.to_owned(),
                limit,
                looks,
            });
        }
        tokio::time::sleep(pause.min(limit.saturating_sub(started.elapsed()))).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
