//! How long to wait before asking again.

use std::time::Duration;

/// Shortest and longest pause, in seconds.
const PAUSE_SECS: (f64, f64) = (1.0, 30.0);

/// Pauses that double from 1 s to 30 s, each spread over half to all of its length, so that a rack that lost its
/// server at one instant does not come back at one instant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The next pause. `chance` in 0..1 spreads it.
    #[must_use]
    pub fn next(&mut self, chance: f64) -> Duration {
        let full = (PAUSE_SECS.0 * f64::from(1_u32 << self.failures.min(5))).min(PAUSE_SECS.1);
        self.failures = self.failures.saturating_add(1);
        Duration::from_secs_f64((full * (0.5 + chance.clamp(0.0, 1.0) / 2.0)).max(PAUSE_SECS.0))
    }

    /// The next pause, spread by the system's randomness.
    #[must_use]
    pub fn pause(&mut self) -> Duration {
        self.next(chance())
    }
}

/// A number in 0..1; 0.5 when the system has no randomness to give, which no correctness hangs on.
fn chance() -> f64 {
    let mut bytes = [0_u8; 2];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK) {
        Ok(2) => f64::from(u16::from_le_bytes(bytes)) / 65_536.0,
        _ => 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_half_a_minute_and_stay_there() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..8).map(|_| backoff.next(1.0).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(backoff.next(0.0), Duration::from_secs(15), "half of it at least");
        assert_eq!(Backoff::default().next(0.0), Duration::from_secs(1), "never a hammer");
    }
}
