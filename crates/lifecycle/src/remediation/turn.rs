//! Whose turn it is.

use std::collections::BTreeMap;

use protocol::NodeId;

use super::Limits;

/// A node of a run that has not been touched yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The node.
    pub node: NodeId,
    /// Its group.
    pub group: String,
    /// Its rack, if known.
    pub rack: Option<String>,
}

/// A node whose job is out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Active {
    /// Its group.
    pub group: String,
    /// Its rack, if known.
    pub rack: Option<String>,
}

/// The nodes that may begin now, in the order of `waiting`.
///
/// `begun` counts, by group, the nodes begun within the last hour, those in `active` included; `sizes` is the size of
/// each group. A group that is not in `sizes` has one node.
#[must_use]
pub fn next_turns(
    waiting: &[Waiting],
    active: &[Active],
    begun: &BTreeMap<String, usize>,
    sizes: &BTreeMap<String, usize>,
    limits: &Limits,
) -> Vec<NodeId> {
    let mut by_group: BTreeMap<&str, usize> = BTreeMap::new();
    let mut by_rack: BTreeMap<&str, usize> = BTreeMap::new();
    for node in active {
        *by_group.entry(&node.group).or_default() += 1;
        if let Some(rack) = &node.rack {
            *by_rack.entry(rack).or_default() += 1;
        }
    }
    let mut begun: BTreeMap<&str, usize> = begun.iter().map(|(group, count)| (group.as_str(), *count)).collect();
    let mut turns = Vec::new();
    for node in waiting {
        let in_group = by_group.entry(&node.group).or_default();
        let this_hour = begun.entry(&node.group).or_default();
        let at_once = limits.at_once(sizes.get(&node.group).copied().unwrap_or(1));
        let is_rack_busy = node
            .rack
            .as_deref()
            .is_some_and(|rack| by_rack.get(rack).copied().unwrap_or(0) >= limits.rack_at_once_max);
        if *in_group >= at_once || *this_hour >= limits.hourly_max || is_rack_busy {
            continue;
        }
        *in_group += 1;
        *this_hour += 1;
        if let Some(rack) = &node.rack {
            *by_rack.entry(rack).or_default() += 1;
        }
        turns.push(node.node);
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn waiting(count: u128, group: &str, rack: impl Fn(u128) -> Option<String>) -> Vec<Waiting> {
        (1..=count)
            .map(|number| Waiting {
                node: NodeId(Uuid::from_u128(number)),
                group: group.to_owned(),
                rack: rack(number),
            })
            .collect()
    }

    fn turns(waiting: &[Waiting], active: &[Active], begun: usize, size: usize) -> usize {
        let begun = BTreeMap::from([("gpu".to_owned(), begun)]);
        let sizes = BTreeMap::from([("gpu".to_owned(), size)]);
        next_turns(waiting, active, &begun, &sizes, &Limits::default()).len()
    }

    fn active(count: usize, rack: Option<&str>) -> Vec<Active> {
        let one = Active {
            group: "gpu".to_owned(),
            rack: rack.map(str::to_owned),
        };
        vec![one; count]
    }

    #[test]
    fn one_of_a_small_group_and_two_percent_of_a_large_one() {
        let nodes = waiting(300, "gpu", |_| None);
        assert_eq!(turns(&nodes, &[], 0, 40), 1);
        assert_eq!(turns(&nodes, &active(1, None), 1, 40), 0);
        assert_eq!(turns(&nodes, &[], 0, 1_000), 20);
        assert_eq!(turns(&nodes, &active(15, None), 15, 1_000), 5);
    }

    #[test]
    fn no_two_of_a_rack() {
        let nodes = waiting(100, "gpu", |number| Some(format!("r{}", number % 4)));
        assert_eq!(turns(&nodes, &[], 0, 1_000), 4);
        assert_eq!(turns(&nodes, &active(1, Some("r1")), 1, 1_000), 3);
    }

    #[test]
    fn an_hour_has_a_cap() {
        let nodes = waiting(100, "gpu", |_| None);
        assert_eq!(turns(&nodes, &[], 58, 10_000), 2);
        assert_eq!(turns(&nodes, &[], 60, 10_000), 0);
    }

    #[test]
    fn groups_do_not_wait_for_each_other() {
        let mut nodes = waiting(2, "gpu", |_| None);
        nodes.push(Waiting {
            node: NodeId(Uuid::from_u128(9)),
            group: "login".to_owned(),
            rack: None,
        });
        let found = next_turns(&nodes, &[], &BTreeMap::new(), &BTreeMap::new(), &Limits::default());
        assert_eq!(found, [1, 9].map(|number| NodeId(Uuid::from_u128(number))));
    }
}
