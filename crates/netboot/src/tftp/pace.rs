//! How long a transfer waits before it sends again: measured, not guessed (RFC 1123 section 4.2.3.2).
//!
//! Idea: RFC 6298's estimate of the round trip. In lock step every lost packet costs one wait, so a fixed half second is
//! most of the time that a machine behind a bad cable spends loading.
//!
//! Invariant: never below half of the first wait, so that a machine that pauses, to write its flash or to draw, is not
//! sent everything twice, and is given up hardly sooner; and doubled from try to try.

use std::time::Duration;

/// The waits of one transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    first: Duration,
    longest: Duration,
    round_trip: Option<RoundTrip>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RoundTrip {
    smoothed: Duration,
    variation: Duration,
}

impl Pace {
    /// Waits `first` until a round trip was measured, and never more than `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            round_trip: None,
        }
    }

    /// Takes the time from a packet to its acknowledgement. Only of packets that were sent once: of two, nobody knows which
    /// was acknowledged.
    pub fn measured(&mut self, round_trip: Duration) {
        self.round_trip = Some(match self.round_trip {
            None => RoundTrip {
                smoothed: round_trip,
                variation: round_trip / 2,
            },
            Some(RoundTrip { smoothed, variation }) => RoundTrip {
                smoothed: (smoothed * 7 + round_trip) / 8,
                variation: (variation * 3 + smoothed.abs_diff(round_trip)) / 4,
            },
        });
    }

    /// The wait after `timeouts` in a row.
    pub fn wait(&self, timeouts: u32) -> Duration {
        let once = self.round_trip.map_or(self.first, |measured| {
            (measured.smoothed + measured.variation * 4).max(self.first / 2)
        });
        once.saturating_mul(1 << timeouts.min(16)).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn pace() -> Pace {
        Pace::new(millis(500), millis(8000))
    }

    #[test]
    fn before_anything_is_known_the_first_wait_is_doubled_up_to_the_longest() {
        let waits: Vec<Duration> = (0..6).map(|timeouts| pace().wait(timeouts)).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 8000].map(millis));
        assert_eq!(pace().wait(u32::MAX), millis(8000));
    }

    #[test]
    fn a_near_machine_is_not_waited_for_as_if_it_were_far() {
        let mut pace = pace();
        pace.measured(Duration::from_micros(300));
        assert_eq!((pace.wait(0), pace.wait(1)), (millis(250), millis(500)));
    }

    #[test]
    fn a_far_or_busy_machine_is_given_its_time() {
        let mut pace = pace();
        for _ in 0..50 {
            pace.measured(millis(900));
        }
        assert!((millis(900)..millis(1000)).contains(&pace.wait(0)), "{pace:?}");
        // One that is irregular gets more.
        for turn in 0..50 {
            pace.measured(millis(if turn % 2 == 0 { 300 } else { 1500 }));
        }
        assert!(pace.wait(0) > millis(1500), "{pace:?}");
    }
}
