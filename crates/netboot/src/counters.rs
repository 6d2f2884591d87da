//! Counts by kind, for metrics.
//!
//! Idea: the kinds are known when the program is built, so a count is one atomic addition and needs no lock.
//! Invariant: a kind that is not in the list is counted as `other`, so a snapshot always adds up to what happened.
//! Refused: a map that grows by key. A hostile sender must not be able to choose keys.

use std::sync::atomic::{AtomicU64, Ordering};

/// A fixed set of named counters. Counts never go back; they start at zero with the process.
#[derive(Debug)]
pub struct CounterSet {
    entries: Vec<(&'static str, AtomicU64)>,
}

const OTHER: &str = "other";

impl CounterSet {
    /// Counters for `kinds`, each at zero, and one more called `other`.
    pub fn new(kinds: &[&'static str]) -> Self {
        let entries = kinds
            .iter()
            .copied()
            .chain([OTHER])
            .map(|kind| (kind, AtomicU64::new(0)))
            .collect();
        Self { entries }
    }

    /// Adds one to `kind`. True when this was the first, which is the moment to log it.
    pub fn increment(&self, kind: &str) -> bool {
        let entry = self
            .entries
            .iter()
            .find(|(name, _)| *name == kind)
            .or(self.entries.last());
        entry.is_some_and(|(_, count)| count.fetch_add(1, Ordering::Relaxed) == 0)
    }

    /// The count of `kind`; zero for one that is not in the set.
    pub fn get(&self, kind: &str) -> u64 {
        self.entries
            .iter()
            .find(|(name, _)| *name == kind)
            .map_or(0, |(_, count)| count.load(Ordering::Relaxed))
    }

    /// All kinds with their counts, in the order given to [`CounterSet::new`], `other` last.
    pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
        self.entries
            .iter()
            .map(|(kind, count)| (*kind, count.load(Ordering::Relaxed)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_counted_and_the_first_is_told() {
        let counters = CounterSet::new(&["truncated", "busy"]);
        assert!(counters.increment("busy"));
        assert!(!counters.increment("busy"));
        counters.increment("never heard of");
        assert_eq!(counters.snapshot(), vec![("truncated", 0), ("busy", 2), ("other", 1)]);
        assert_eq!(counters.get("busy"), 2);
    }
}
