//! Waiting for something to become true, with a limit and words for the error.

use crate::interrupt;
use anyhow::{Result, bail};
use std::thread;
use std::time::{Duration, Instant};

/// How often a condition is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Looks at `predicate` until it gives a value, at most for `limit`.
///
/// `what` names the awaited thing in a form that completes "waited for …".
///
/// # Errors
/// When the limit passes (the message says what was awaited and for how long), when the predicate itself fails, or
/// when the program has been asked to stop.
pub fn wait_until<T>(limit: Duration, what: &str, mut predicate: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    wait_regardless(limit, what, || match predicate()? {
        None if interrupt::requested() => bail!("asked to stop while waiting for {what}"),
        value => Ok(value),
    })
}

/// As [`wait_until`], but goes on when the program has been asked to stop: for what takes a rack down.
///
/// # Errors
/// As [`wait_until`], without the last case.
pub fn wait_regardless<T>(limit: Duration, what: &str, mut predicate: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let started = Instant::now();
    loop {
        if let Some(value) = predicate()? {
            return Ok(value);
        }
        let left = limit.saturating_sub(started.elapsed());
        if left.is_zero() {
            bail!("waited {:.1} s in vain for {what}", limit.as_secs_f64());
        }
        thread::sleep(POLL_INTERVAL.min(left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_says_what_was_awaited_and_for_how_long() {
        let error = wait_until::<()>(Duration::from_millis(300), "the moon", || Ok(None)).unwrap_err();
        assert_eq!(error.to_string(), "waited 0.3 s in vain for the moon");
    }

    #[test]
    fn a_failing_predicate_ends_the_wait_at_once() {
        let started = Instant::now();
        let error = wait_until::<()>(Duration::from_secs(60), "the moon", || bail!("clouds")).unwrap_err();
        assert_eq!(error.to_string(), "clouds");
        assert!(started.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn the_value_of_the_first_success_is_returned() {
        let mut count = 0;
        let value = wait_until(Duration::from_secs(10), "three looks", || {
            count += 1;
            Ok((count == 3).then_some(count))
        });
        assert_eq!(value.unwrap(), 3);
    }
}
