//! What ties a running test to whoever waits for it: its end, a word to break it off, and how far it is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Watch {
    end: Instant,
    is_cancelled: Arc<AtomicBool>,
    said: Arc<Mutex<String>>,
}

impl Watch {
    pub fn new(end: Instant) -> Self {
        Self {
            end,
            is_cancelled: Arc::default(),
            said: Arc::default(),
        }
    }

    /// Whether the test has to end.
    pub fn is_over(&self) -> bool {
        self.is_cancelled() || Instant::now() >= self.end
    }

    /// Time that is left.
    pub fn left(&self) -> Duration {
        match self.is_cancelled() {
            true => Duration::ZERO,
            false => self.end.saturating_duration_since(Instant::now()),
        }
    }

    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// Says how far the test is.
    pub fn say(&self, text: impl Into<String>) {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = text.into();
    }

    pub fn said(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match said.is_empty() {
            true => "begun".to_owned(),
            false => said,
        }
    }
}
