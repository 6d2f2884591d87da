//! When a client that takes too little is given up: values alone.

use std::time::{Duration, Instant};

/// Bytes that a client must take in each [`Patience::limit`].
const BYTES_MIN: u64 = 64 << 10;

/// What a connection has of patience.
///
/// Idea: time counts only while there is something to send and the client takes none of it. From there on it must take
/// some within the limit, not just a byte: else one byte a minute would hold a place for ever.
#[derive(Debug)]
pub(super) struct Patience {
    limit: Duration,
    /// Since when it is waited, and the bytes taken since.
    since: Option<(Instant, u64)>,
}

impl Patience {
    pub(super) const fn new(limit: Duration) -> Self {
        Self { limit, since: None }
    }

    /// The client takes nothing now; until when it may be so.
    pub(super) fn blocked(&mut self, now: Instant) -> Instant {
        let (since, _) = self.since.get_or_insert((now, 0));
        *since + self.limit
    }

    /// The client took some.
    pub(super) fn took(&mut self, bytes: usize) {
        if let Some((_, taken)) = &mut self.since {
            *taken += bytes as u64;
            if *taken >= BYTES_MIN {
                self.since = None;
            }
        }
    }

    /// Everything there was to send is sent.
    pub(super) const fn idle(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn one_byte_now_and_then_is_not_enough() {
        let begun = Instant::now();
        let mut patience = Patience::new(LIMIT);
        assert_eq!(patience.blocked(begun), begun + LIMIT);
        patience.took(1);
        assert_eq!(patience.blocked(begun + Duration::from_secs(50)), begun + LIMIT);
    }

    #[test]
    fn who_goes_on_taking_is_never_given_up() {
        let begun = Instant::now();
        let mut patience = Patience::new(LIMIT);
        for minute in 0..10 {
            let now = begun + LIMIT * minute;
            assert_eq!(patience.blocked(now), now + LIMIT, "{minute}");
            patience.took(40 << 10);
            patience.took(40 << 10);
        }
    }

    #[test]
    fn time_without_anything_to_send_does_not_count() {
        let begun = Instant::now();
        let mut patience = Patience::new(LIMIT);
        patience.blocked(begun);
        patience.idle();
        let later = begun + LIMIT * 5;
        assert_eq!(patience.blocked(later), later + LIMIT);
    }
}
