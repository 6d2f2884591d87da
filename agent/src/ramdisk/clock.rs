//! The clock, before anything that checks certificates.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::latest::{Clock, paths};
use rustix::time::{ClockId, Timespec, clock_settime};

use crate::api::{Api, ApiError};

/// Below this the clock is left alone.
const TOLERANCE_MS: u64 = 2_000;

/// Asks the boot listener for the time and sets the clock; returns by how many milliseconds it was off, if it was set.
///
/// # Errors
/// [`ApiError`] when the server does not answer.
pub async fn synchronise(boot: &Api) -> Result<Option<i128>, ApiError> {
    let clock: Clock = boot.get(paths::CLOCK).await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    if !differs(now_ms, clock.unix_ms) {
        return Ok(None);
    }
    let seconds = i64::try_from(clock.unix_ms / 1_000).unwrap_or(0);
    let nanoseconds = i64::try_from(clock.unix_ms % 1_000).unwrap_or(0) * 1_000_000;
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    };
    if let Err(error) = clock_settime(ClockId::Realtime, time) {
        tracing::warn!(%error, "the clock cannot be set");
    }
    Ok(Some(i128::from(clock.unix_ms) - i128::from(now_ms)))
}

fn differs(ours_ms: u64, theirs_ms: u64) -> bool {
    ours_ms.abs_diff(theirs_ms) > TOLERANCE_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clock_that_is_wrong_is_set() {
        assert!(!differs(1_000_000, 1_002_000));
        assert!(differs(1_000_000, 1_002_001));
        assert!(differs(0, 1_700_000_000_000), "a dead CMOS battery");
        assert!(differs(1_700_000_000_000, 1_600_000_000_000), "backwards too");
    }
}
