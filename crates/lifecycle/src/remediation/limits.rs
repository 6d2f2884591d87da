//! How much may be touched at once.

use serde::{Deserialize, Serialize};

/// Limits of remediation. All of them hold by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Nodes of a group at once, in percent of the group, rounded down; never less than one.
    pub at_once_percent: u32,
    /// Nodes of a rack at once; nodes without a rack share none.
    pub rack_at_once_max: usize,
    /// Nodes of a group begun within an hour.
    pub hourly_max: usize,
    /// Groups of this size and larger are judged for a suspect baseline.
    pub suspect_group_min: usize,
    /// A finding on more than this percentage of such a group makes the baseline suspect.
    pub suspect_percent: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            at_once_percent: 2,
            rack_at_once_max: 1,
            hourly_max: 60,
            suspect_group_min: 10,
            suspect_percent: 20,
        }
    }
}

impl Limits {
    /// Nodes at once in a group of this size: max(1, 2 %).
    #[must_use]
    pub fn at_once(&self, group_size: usize) -> usize {
        percent_of(group_size, self.at_once_percent).max(1)
    }

    /// Whether a finding on `nodes` nodes of a group of `group_size` says that the baseline is wrong.
    #[must_use]
    pub fn is_suspect(&self, nodes: usize, group_size: usize) -> bool {
        group_size >= self.suspect_group_min
            && nodes.saturating_mul(100) > group_size.saturating_mul(self.suspect_percent as usize)
    }
}

fn percent_of(count: usize, percent: u32) -> usize {
    count.saturating_mul(percent as usize) / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_one_and_two_in_a_hundred() {
        let limits = Limits::default();
        let at_once = [0, 1, 40, 99, 100, 149, 150, 10_000].map(|size| limits.at_once(size));
        assert_eq!(at_once, [1, 1, 1, 1, 2, 2, 3, 200]);
    }

    #[test]
    fn more_than_a_fifth_of_a_group_of_ten_is_suspect() {
        let limits = Limits::default();
        for (nodes, size, suspect) in [
            (9, 9, false),
            (2, 10, false),
            (3, 10, true),
            (8, 40, false),
            (9, 40, true),
            (40, 40, true),
        ] {
            assert_eq!(limits.is_suspect(nodes, size), suspect, "{nodes} of {size}");
        }
    }
}
