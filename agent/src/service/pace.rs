//! When to speak next. Pure: randomness comes in as a number from 0 to 1.
//!
//! Thousands of agents see a server return at the same moment; full jitter spreads them over the whole pause.

use std::time::Duration;

/// First pause after a failure.
const PAUSE_FIRST: Duration = Duration::from_secs(5);
/// Longest pause after failures.
const PAUSE_MAX: Duration = Duration::from_secs(600);
/// Share of a regular pause that is left to chance.
const JITTER: f64 = 0.1;

/// Pause after the `failures`-th failure in a row (from 1): between 0 and a limit that doubles each time, and never
/// less than the server asked for.
pub(super) fn pause_after_failure(failures: u32, retry_after_secs: Option<u64>, chance: f64) -> Duration {
    let limit = PAUSE_FIRST
        .saturating_mul(1 << failures.saturating_sub(1).min(16))
        .min(PAUSE_MAX);
    // Never at once: a refused connection comes back in no time.
    let pause = Duration::from_secs(1) + limit.mul_f64(chance);
    let asked = Duration::from_secs(retry_after_secs.unwrap_or(0)).min(PAUSE_MAX * 6);
    if pause >= asked {
        pause
    } else {
        // Everybody was asked for the same pause: without chance on top all would come back at its end.
        asked + limit.mul_f64(chance)
    }
}

/// Pause until the next scan after the `incomplete`-th one in a row (from 1) that could not look everywhere: one
/// minute, two, four; after that the regular timer is soon enough, and `None` with none.
pub(super) fn look_again_after(incomplete: u32) -> Option<Duration> {
    const AGAIN_FIRST: Duration = Duration::from_secs(60);
    (1..=3)
        .contains(&incomplete)
        .then(|| AGAIN_FIRST * (1 << (incomplete - 1)))
}

/// A regular pause, up to a tenth shorter or longer.
pub(super) fn jittered(pause: Duration, chance: f64) -> Duration {
    pause.mul_f64(1.0 - JITTER + 2.0 * JITTER * chance)
}

/// A number from 0 to 1.
pub(super) fn chance() -> f64 {
    let random = uuid::Uuid::new_v4();
    let bytes = random.as_bytes();
    f64::from(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// fleetdm/fleet#3271: thousands of agents do not come back at once, and a server that asks for time gets it.
    #[test]
    fn fleet_3271_pauses_grow_to_a_limit_and_obey_the_server() {
        let secs = |failures, asked, chance| pause_after_failure(failures, asked, chance).as_secs();
        assert_eq!(
            [1, 2, 3, 8, 40].map(|failures| secs(failures, None, 1.0)),
            [6, 11, 21, 601, 601]
        );
        assert_eq!(secs(8, None, 0.0), 1);
        assert_eq!(secs(1, Some(120), 0.0), 120);
        assert_eq!(
            [0.0, 0.5, 1.0].map(|chance| secs(5, Some(120), chance)),
            [120, 160, 200]
        );
        assert_eq!(
            secs(1, Some(u64::MAX), 0.0),
            3600,
            "a server cannot silence an agent for ever"
        );
    }

    #[test]
    fn an_incomplete_scan_is_repeated_soon_and_not_for_ever() {
        let secs = |incomplete| look_again_after(incomplete).map(|pause| pause.as_secs());
        assert_eq!(
            [0, 1, 2, 3, 4, 99].map(secs),
            [None, Some(60), Some(120), Some(240), None, None]
        );
    }

    /// fleetdm/fleet#13527: nor do they echo at every interval.
    #[test]
    fn fleet_13527_regular_pauses_are_spread() {
        let minute = Duration::from_secs(60);
        assert_eq!(jittered(minute, 0.0).as_secs(), 54);
        assert_eq!(jittered(minute, 1.0).as_secs(), 66);
        let chances: Vec<_> = (0..100).map(|_| chance()).collect();
        assert!(chances.iter().all(|chance| (0.0..=1.0).contains(chance)));
        assert!(chances.iter().any(|chance| *chance < 0.5) && chances.iter().any(|chance| *chance > 0.5));
    }
}
