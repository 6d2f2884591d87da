//! Hints, gathered until things are quiet. Pure: time comes in.

use std::collections::BTreeMap;
use std::time::Duration;

use manifest::TreePath;
use tokio::time::Instant;

/// Quiet for this long: what happened is over.
const QUIET: Duration = Duration::from_secs(1);
/// Longest wait for quiet.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Longest wait for a file that is written all the time.
const WRITING_MAX: Duration = Duration::from_secs(30);
/// Pause before a file that changed while it was read is read again.
const UNSTABLE_PAUSE: Duration = Duration::from_secs(2);
/// How often it is read again before it is said to be unstable.
const UNSTABLE_MAX: u32 = 5;

/// What an event said of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It changed and may be looked at.
    Touched,
    /// Somebody writes to it and has not closed it.
    Writing,
    /// A folder turned up.
    NewFolder,
}

#[derive(Clone, Copy, Debug)]
struct Hint {
    first: Instant,
    last: Instant,
    change: Change,
    /// Times it was unstable.
    unstable: u32,
}

/// Paths to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// With whether a folder turned up there, and how often it was found to change while it was read.
    pub paths: BTreeMap<TreePath, (bool, u32)>,
}

/// Gathers hints.
#[derive(Debug)]
pub struct Collector {
    hints: BTreeMap<TreePath, Hint>,
    paths_max: usize,
    is_too_much: bool,
}

impl Collector {
    /// Holds at most this many paths; more call for a scan.
    #[must_use]
    pub const fn new(paths_max: usize) -> Self {
        Self {
            hints: BTreeMap::new(),
            paths_max,
            is_too_much: false,
        }
    }

    /// Takes a hint.
    pub fn add(&mut self, path: TreePath, change: Change, now: Instant) {
        if self.is_too_much {
            return;
        }
        if let Some(hint) = self.hints.get_mut(&path) {
            hint.last = now;
            // A folder stays new; a file that was closed may be written again.
            if hint.change != Change::NewFolder {
                hint.change = change;
            }
        } else if self.hints.len() < self.paths_max {
            let hint = Hint {
                first: now,
                last: now,
                change,
                unstable: 0,
            };
            self.hints.insert(path, hint);
        } else {
            self.overflow();
        }
    }

    /// A file changed while it was read; `false` when it did so too often, and that is what is known of it.
    pub fn again(&mut self, path: TreePath, times: u32, now: Instant) -> bool {
        if times >= UNSTABLE_MAX {
            return false;
        }
        let hint = Hint {
            first: now + UNSTABLE_PAUSE,
            last: now + UNSTABLE_PAUSE,
            change: Change::Writing,
            unstable: times + 1,
        };
        self.hints.entry(path).or_insert(hint).unstable = times + 1;
        true
    }

    /// Hints were lost, or are too many: only a scan tells what happened.
    pub fn overflow(&mut self) {
        self.hints.clear();
        self.is_too_much = true;
    }

    /// Whether a scan is called for; asked once, it begins anew.
    pub const fn take_overflow(&mut self) -> bool {
        std::mem::replace(&mut self.is_too_much, false)
    }

    /// Forgets all hints: a scan begins that sees what they were about.
    pub fn clear(&mut self) {
        self.hints.clear();
        self.is_too_much = false;
    }

    /// When there is something to look at.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let settled = self.hints.values().filter(|hint| hint.change != Change::Writing);
        let (mut first, mut last) = (None, None);
        for hint in settled {
            first = Some(first.map_or(hint.first, |at: Instant| at.min(hint.first)));
            last = Some(last.map_or(hint.last, |at: Instant| at.max(hint.last)));
        }
        let settled = first
            .zip(last)
            .map(|(first, last)| (last + QUIET).min(first + WAIT_MAX));
        let written = self.hints.values().filter(|hint| hint.change == Change::Writing);
        settled.into_iter().chain(written.map(Hint::writing_due)).min()
    }

    /// The paths to look at now; those that are still written stay.
    pub fn take(&mut self, now: Instant) -> Batch {
        let mut batch = Batch::default();
        self.hints.retain(|path, hint| {
            let is_writing = hint.change == Change::Writing && now < hint.writing_due();
            if !is_writing {
                let is_new_folder = hint.change == Change::NewFolder;
                batch.paths.insert(path.clone(), (is_new_folder, hint.unstable));
            }
            is_writing
        });
        batch
    }
}

impl Hint {
    fn writing_due(&self) -> Instant {
        (self.last + QUIET).min(self.first + WRITING_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        text.parse().unwrap()
    }

    fn secs(collector: &Collector, start: Instant) -> Option<f64> {
        collector.due().map(|due| (due - start).as_secs_f64())
    }

    #[test]
    fn a_batch_waits_for_quiet_and_not_for_ever() {
        let (mut collector, start) = (Collector::new(10), Instant::now());
        assert_eq!(collector.due(), None);
        collector.add(path("/a"), Change::Touched, start);
        assert_eq!(secs(&collector, start), Some(1.0));
        for tenth in 1..=100 {
            collector.add(path("/b"), Change::Touched, start + Duration::from_millis(tenth * 100));
        }
        assert_eq!(secs(&collector, start), Some(5.0));
        assert_eq!(collector.take(start + WAIT_MAX).paths.len(), 2);
        assert_eq!(collector.due(), None);
    }

    /// wazuh/wazuh#5242: a file is looked at when it was closed or rests, not when its first bytes are there.
    #[test]
    fn wazuh_5242_a_file_that_is_written_waits_until_it_rests() {
        let (mut collector, start) = (Collector::new(10), Instant::now());
        for second in 0..20 {
            let now = start + Duration::from_millis(second * 500);
            collector.add(path("/large"), Change::Writing, now);
            assert!(collector.take(now).paths.is_empty(), "it is still written");
        }
        assert_eq!(secs(&collector, start), Some(10.5));
        collector.add(path("/large"), Change::Touched, start + Duration::from_secs(10));
        let now = collector.due().unwrap();
        assert_eq!(collector.take(now).paths.len(), 1, "closed: looked at once it is quiet");
        collector.add(path("/log"), Change::Writing, start);
        for second in 0..100 {
            collector.add(
                path("/log"),
                Change::Writing,
                start + Duration::from_millis(second * 500),
            );
        }
        assert_eq!(
            secs(&collector, start),
            Some(30.0),
            "what never rests is looked at anyway"
        );
    }

    #[test]
    fn more_than_can_be_held_calls_for_a_scan() {
        let (mut collector, start) = (Collector::new(2), Instant::now());
        for name in ["/a", "/b", "/a"] {
            collector.add(path(name), Change::Touched, start);
        }
        assert!(!collector.take_overflow());
        collector.add(path("/c"), Change::Touched, start);
        assert_eq!(collector.due(), None);
        assert!(collector.take_overflow() && !collector.take_overflow());
    }

    #[test]
    fn an_unstable_file_is_looked_at_again_and_not_for_ever() {
        let (mut collector, start) = (Collector::new(2), Instant::now());
        assert!(collector.again(path("/a"), 0, start));
        assert_eq!(secs(&collector, start), Some(3.0));
        let batch = collector.take(collector.due().unwrap());
        assert_eq!(batch.paths[&path("/a")], (false, 1));
        assert!(!collector.again(path("/a"), UNSTABLE_MAX, start));
    }
}
