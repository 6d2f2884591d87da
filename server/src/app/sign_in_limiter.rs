//! How long a name waits after failed sign-ins. Pure: the clock is the caller's.
//!
//! Each attempt counts as failed until it is told to have succeeded, so that attempts side by side gain nothing.
//!
//! Refused: locking a name until somebody unlocks it. Whoever knows a name could keep its owner out for ever; so the
//! wait ends at a minute.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Attempts before there is any wait.
const FREE_ATTEMPTS: u32 = 5;
/// Longest wait between two attempts.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// After this long without an attempt a name starts anew.
const FORGET_AFTER: Duration = Duration::from_secs(15 * 60);
/// Names remembered at most; the one that was quiet longest goes first.
const NAMES_MAX: usize = 4_096;

#[derive(Debug)]
struct Attempts {
    count: u32,
    last: Instant,
}

/// Failed attempts by name.
#[derive(Debug, Default)]
pub struct SignInLimiter {
    names: HashMap<String, Attempts>,
}

impl SignInLimiter {
    /// Begins an attempt.
    ///
    /// # Errors
    /// How long this name has to wait; the attempt then does not count.
    pub fn begin(&mut self, name: &str, now: Instant) -> Result<(), Duration> {
        self.forget(now);
        let attempts = self
            .names
            .entry(name.to_owned())
            .or_insert(Attempts { count: 0, last: now });
        let next_at = attempts.last + wait_after(attempts.count);
        if next_at > now {
            return Err(next_at - now);
        }
        attempts.count = attempts.count.saturating_add(1);
        attempts.last = now;
        Ok(())
    }

    /// The attempt that was begun last for this name held.
    pub fn succeeded(&mut self, name: &str) {
        self.names.remove(name);
    }

    fn forget(&mut self, now: Instant) {
        if self.names.len() < NAMES_MAX {
            return;
        }
        self.names
            .retain(|_, attempts| now.saturating_duration_since(attempts.last) < FORGET_AFTER);
        while self.names.len() >= NAMES_MAX {
            let quietest = self.names.iter().min_by_key(|(_, attempts)| attempts.last);
            let Some(name) = quietest.map(|(name, _)| name.clone()) else {
                return;
            };
            self.names.remove(&name);
        }
    }
}

/// The wait that follows this many attempts: none, then 1 s, doubling.
fn wait_after(count: u32) -> Duration {
    match count.checked_sub(FREE_ATTEMPTS) {
        None => Duration::ZERO,
        Some(over) => Duration::from_secs(1 << over.min(6)).min(WAIT_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_waits_longer_after_each_failure_and_never_more_than_a_minute() {
        let mut limiter = SignInLimiter::default();
        let mut now = Instant::now();
        for _ in 0..FREE_ATTEMPTS {
            limiter.begin("admin", now).unwrap();
        }
        let mut waits = Vec::new();
        for _ in 0..9 {
            let wait = limiter.begin("admin", now).unwrap_err();
            waits.push(wait.as_secs());
            now += wait;
            limiter.begin("admin", now).unwrap();
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        limiter.begin("somebody-else", now).unwrap();
    }

    #[test]
    fn success_clears_the_name() {
        let mut limiter = SignInLimiter::default();
        let now = Instant::now();
        for _ in 0..FREE_ATTEMPTS {
            limiter.begin("admin", now).unwrap();
        }
        limiter.succeeded("admin");
        limiter.begin("admin", now).unwrap();
    }

    #[test]
    fn a_flood_of_names_stays_bounded_and_a_name_under_attack_is_kept() {
        let mut limiter = SignInLimiter::default();
        let now = Instant::now();
        for second in 0..u64::try_from(NAMES_MAX).unwrap() * 2 {
            let at = now + Duration::from_millis(second);
            limiter.begin(&format!("name-{second}"), at).unwrap();
            if second % 100 == 0 {
                let _ = limiter.begin("admin", at);
            }
        }
        assert!(limiter.names.len() <= NAMES_MAX);
        assert!(limiter.names.contains_key("admin"));
    }
}
