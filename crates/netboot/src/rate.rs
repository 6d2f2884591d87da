//! How often one client, and all of them together, may ask.
//!
//! Idea: token buckets, and the decision a function of the table and a time that is handed in; no clock, no socket.
//! A client that asks too often is held back before it takes from what all share, so one machine in a loop costs the
//! others nothing.
//!
//! Invariant: the table has a bound. A client that finds no place in it is judged by the common bucket alone, and places
//! are made again by forgetting clients that rested, at most once a second: a flood of made-up addresses buys neither
//! memory nor a walk through the table for each packet.
//!
//! Refused: throwing out the oldest client for a new one. A flood would then keep the table empty of those that matter.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// How full a bucket may be and how fast it fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests that may come at once, at least 1.
    pub burst: u32,
    /// Requests a second in the long run, at least 1.
    pub per_sec: u32,
}

/// The limits of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimits {
    /// For each client.
    pub client: Rate,
    /// For all together.
    pub all: Rate,
    /// Clients remembered at a time.
    pub clients_max: usize,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is worked on.
    Allowed,
    /// This client asked too often.
    ClientTooOften,
    /// All together asked too often.
    AllTooOften,
}

/// Requests counted against [`RateLimits`], by client.
#[derive(Debug)]
pub struct RateLimiter<K> {
    limits: RateLimits,
    all: Bucket,
    clients: HashMap<K, Bucket>,
    swept_at: Option<Instant>,
}

const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

impl<K: Hash + Eq + Clone> RateLimiter<K> {
    /// No client seen, every bucket full.
    pub fn new(limits: RateLimits, now: Instant) -> Self {
        Self {
            limits,
            all: Bucket::full(limits.all, now),
            clients: HashMap::new(),
            swept_at: None,
        }
    }

    /// Counts one request of `client` at `now`. A time before an earlier one counts as that.
    pub fn decide(&mut self, client: &K, now: Instant) -> Verdict {
        let is_known = self.clients.contains_key(client);
        if !is_known && self.clients.len() >= self.limits.clients_max {
            self.sweep(now);
        }
        if is_known || self.clients.len() < self.limits.clients_max {
            let rate = self.limits.client;
            let bucket = self
                .clients
                .entry(client.clone())
                .or_insert_with(|| Bucket::full(rate, now));
            if !bucket.take(rate, now) {
                return Verdict::ClientTooOften;
            }
        }
        if self.all.take(self.limits.all, now) {
            Verdict::Allowed
        } else {
            Verdict::AllTooOften
        }
    }

    /// Counts one request of a client that cannot be told from others.
    pub fn decide_unknown(&mut self, now: Instant) -> Verdict {
        if self.all.take(self.limits.all, now) {
            Verdict::Allowed
        } else {
            Verdict::AllTooOften
        }
    }

    /// Clients remembered, never more than [`RateLimits::clients_max`].
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Forgets clients whose bucket is full again: there is nothing to remember of them.
    fn sweep(&mut self, now: Instant) {
        if self
            .swept_at
            .is_some_and(|earlier| now.saturating_duration_since(earlier) < SWEEP_INTERVAL)
        {
            return;
        }
        self.swept_at = Some(now);
        let rate = self.limits.client;
        self.clients.retain(|_, bucket| !bucket.is_full(rate, now));
    }
}

/// Tokens in thousandths, so that slow rates fill evenly.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    millitokens: u64,
    filled_at: Instant,
}

impl Bucket {
    fn full(rate: Rate, now: Instant) -> Self {
        Self {
            millitokens: Self::capacity(rate),
            filled_at: now,
        }
    }

    fn capacity(rate: Rate) -> u64 {
        u64::from(rate.burst.max(1)) * 1000
    }

    fn at(&self, rate: Rate, now: Instant) -> Self {
        let elapsed_ms = now.saturating_duration_since(self.filled_at).as_millis();
        let gained = u64::try_from(elapsed_ms)
            .unwrap_or(u64::MAX)
            .saturating_mul(u64::from(rate.per_sec.max(1)));
        if gained == 0 {
            // Less than a thousandth: the time is kept, and counts when there is more of it.
            return *self;
        }
        Self {
            millitokens: self.millitokens.saturating_add(gained).min(Self::capacity(rate)),
            filled_at: now,
        }
    }

    fn is_full(&self, rate: Rate, now: Instant) -> bool {
        self.at(rate, now).millitokens == Self::capacity(rate)
    }

    fn take(&mut self, rate: Rate, now: Instant) -> bool {
        *self = self.at(rate, now);
        let has_token = self.millitokens >= 1000;
        if has_token {
            self.millitokens -= 1000;
        }
        has_token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RateLimits = RateLimits {
        client: Rate { burst: 3, per_sec: 1 },
        all: Rate { burst: 10, per_sec: 5 },
        clients_max: 4,
    };

    fn limiter() -> (RateLimiter<u32>, Instant) {
        let now = Instant::now();
        (RateLimiter::new(LIMITS, now), now)
    }

    #[test]
    fn one_client_in_a_loop_costs_the_others_nothing() {
        let (mut limiter, now) = limiter();
        let verdicts: Vec<Verdict> = (0..50).map(|_| limiter.decide(&1, now)).collect();
        assert_eq!(&verdicts[..3], [Verdict::Allowed; 3]);
        assert!(verdicts[3..].iter().all(|verdict| *verdict == Verdict::ClientTooOften));
        for _ in 0..3 {
            assert_eq!(limiter.decide(&2, now), Verdict::Allowed);
        }
    }

    #[test]
    fn who_rested_may_ask_again_but_gathers_no_more_than_a_burst() {
        let (mut limiter, now) = limiter();
        for _ in 0..4 {
            limiter.decide(&1, now);
        }
        assert_eq!(
            limiter.decide(&1, now + Duration::from_millis(999)),
            Verdict::ClientTooOften
        );
        assert_eq!(limiter.decide(&1, now + Duration::from_millis(1000)), Verdict::Allowed);
        let later = now + Duration::from_secs(3600);
        let allowed = (0..50)
            .filter(|_| limiter.decide(&1, later) == Verdict::Allowed)
            .count();
        assert_eq!(allowed, 3);
    }

    #[test]
    fn all_together_are_bounded_and_a_client_held_back_takes_nothing_from_them() {
        let (mut limiter, now) = limiter();
        let allowed = (0..1000)
            .filter(|index| limiter.decide(&(index % 4), now) == Verdict::Allowed)
            .count();
        assert_eq!(
            allowed, 10,
            "four clients may ask three times each, all together ten times"
        );
        assert_eq!(limiter.decide_unknown(now), Verdict::AllTooOften);
        assert_eq!(
            limiter.decide_unknown(now + Duration::from_millis(200)),
            Verdict::Allowed
        );
    }

    #[test]
    fn a_flood_of_made_up_clients_stays_in_the_table_and_in_the_common_limit() {
        let (mut limiter, now) = limiter();
        let allowed = (0..100_000)
            .filter(|client| limiter.decide(client, now) == Verdict::Allowed)
            .count();
        assert_eq!((allowed, limiter.clients()), (10, 4));
        // Those that rested are forgotten, and a client that comes then has a place.
        let later = now + Duration::from_secs(3);
        assert_eq!(limiter.decide(&7_000_000, later), Verdict::Allowed);
        assert_eq!(limiter.clients(), 1);
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_gives_nothing_away() {
        let (mut limiter, now) = limiter();
        let later = now + Duration::from_secs(5);
        for _ in 0..3 {
            assert_eq!(limiter.decide(&1, later), Verdict::Allowed);
        }
        for _ in 0..20 {
            assert_eq!(limiter.decide(&1, now), Verdict::ClientTooOften);
        }
        assert_eq!(limiter.decide(&1, later), Verdict::ClientTooOften);
    }
}
