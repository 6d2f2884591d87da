//! From findings to a plan.

use std::collections::{BTreeMap, BTreeSet};

use drift::Difference;
use manifest::Digest;
use protocol::NodeId;
use protocol::latest::RepairStep;
use protocol::limits::JOB_STEPS_MAX;
use serde::{Deserialize, Serialize};

use super::verbs::{self, verb_for};
use super::{Limits, NoVerb};

/// What people have decided about a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing, or that they have seen it.
    Open,
    /// Allowed for a while.
    Waived,
    /// Expected from now on.
    Accepted,
}

/// A finding on a node, as a candidate for repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: NodeId,
    /// What differs.
    pub difference: Difference,
    /// What people have decided.
    pub standing: Standing,
}

/// What bears on whether a node may be touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStanding {
    /// Node group: what percentages are of.
    pub group: String,
    /// Rack, if known.
    pub rack: Option<String>,
    /// A person holds it back, with the reason.
    pub hold: Option<String>,
    /// Why nothing can be done on it now: not deployed, silent, being installed.
    pub unreachable: Option<String>,
    /// Why the image that it would be put back to must not be used any more.
    pub image_problem: Option<String>,
}

/// Why a finding is not repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldReason {
    /// No verb covers it.
    NoVerb(NoVerb),
    /// The node is held by a person.
    NodeHold(String),
    /// Nothing can be done on the node now.
    Unreachable(String),
    /// What it would be put back to must not be used any more.
    ImageRevoked(String),
    /// It stands on so much of the group that the baseline is suspect.
    BaselineSuspect {
        /// Nodes of the group that have it.
        nodes: usize,
        /// Nodes in the group.
        group_size: usize,
    },
    /// The job would be too large; the rest comes with the next run.
    JobFull,
}

impl HeldReason {
    /// One word, for JSON and tables.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NoVerb(_) => "no_verb",
            Self::NodeHold(_) => "node_hold",
            Self::Unreachable(_) => "unreachable",
            Self::ImageRevoked(_) => "image_revoked",
            Self::BaselineSuspect { .. } => "baseline_suspect",
            Self::JobFull => "job_full",
        }
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::NoVerb(reason) => reason.text().to_owned(),
            Self::NodeHold(reason) => format!("the node is held: {reason}"),
            Self::Unreachable(reason) => reason.clone(),
            Self::ImageRevoked(reason) => format!("{reason}; install the node again from another image"),
            Self::BaselineSuspect { nodes, group_size } => format!(
                "it stands on {nodes} of {group_size} nodes of the group: the baseline is suspect, release it after \
                 looking"
            ),
            Self::JobFull => format!("a job has at most {JOB_STEPS_MAX} steps; the rest comes with the next run"),
        }
    }
}

/// A finding that is not repaired, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The node.
    pub node: NodeId,
    /// What differs.
    pub difference: Difference,
    /// Why it stays.
    pub reason: HeldReason,
}

/// What is done on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlan {
    /// The node.
    pub node: NodeId,
    /// In the order in which they run.
    pub steps: Vec<RepairStep>,
}

/// What a run would do, and what it would leave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Nodes with something to repair, in order of id.
    pub nodes: Vec<NodePlan>,
    /// What stays, with the reason.
    pub held: Vec<Held>,
    /// Findings that people have waived or accepted: not drift, and not repaired.
    pub allowed: usize,
}

/// What a run is asked to repair: everything that all three name; one that is empty names everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Selection {
    /// These nodes.
    pub nodes: BTreeSet<NodeId>,
    /// Nodes of these node groups.
    pub node_groups: BTreeSet<String>,
    /// These findings, by group hash.
    pub findings: BTreeSet<Digest>,
}

impl Selection {
    fn names(&self, candidate: &Candidate, nodes: &BTreeMap<NodeId, NodeStanding>) -> bool {
        let node_group = nodes.get(&candidate.node).map(|node| &node.group);
        (self.nodes.is_empty() || self.nodes.contains(&candidate.node))
            && (self.node_groups.is_empty() || node_group.is_some_and(|group| self.node_groups.contains(group)))
            && (self.findings.is_empty() || self.findings.contains(&candidate.difference.group()))
    }
}

/// Plans the repair of the candidates that are selected. `nodes` holds every node and `candidates` every finding,
/// selected or not: how wide-spread a finding is does not depend on what somebody selects. `released`: findings (group
/// hash) a person has released in a node group after looking.
#[must_use]
pub fn plan(
    nodes: &BTreeMap<NodeId, NodeStanding>,
    candidates: &[Candidate],
    released: &BTreeSet<(String, Digest)>,
    selection: &Selection,
    limits: &Limits,
) -> Plan {
    let group_sizes = count(nodes.values().map(|node| node.group.as_str()));
    let open = || {
        candidates
            .iter()
            .filter(|candidate| candidate.standing == Standing::Open)
    };
    // A node that cannot be touched still says that the finding is wide-spread.
    let spread = count(open().filter_map(|candidate| {
        let node = nodes.get(&candidate.node)?;
        Some((node.group.as_str(), candidate.difference.group()))
    }));
    let is_selected = |candidate: &&Candidate| selection.names(candidate, nodes);
    let mut result = Plan {
        allowed: candidates.iter().filter(is_selected).count() - open().filter(is_selected).count(),
        ..Plan::default()
    };
    let mut by_node: BTreeMap<NodeId, Vec<RepairStep>> = BTreeMap::new();
    for candidate in open().filter(is_selected) {
        let judged = judge(candidate, nodes, &group_sizes, &spread, released, limits).and_then(|step| {
            let steps = by_node.entry(candidate.node).or_default();
            if steps.len() >= JOB_STEPS_MAX {
                return Err(HeldReason::JobFull);
            }
            steps.push(step);
            Ok(())
        });
        if let Err(reason) = judged {
            result.held.push(Held {
                node: candidate.node,
                difference: candidate.difference.clone(),
                reason,
            });
        }
    }
    for (node, mut steps) in by_node {
        steps.sort_by_key(|step| (verbs::rank(&step.verb), step.verb.object().to_owned()));
        result.nodes.push(NodePlan { node, steps });
    }
    result
}

fn judge(
    candidate: &Candidate,
    nodes: &BTreeMap<NodeId, NodeStanding>,
    group_sizes: &BTreeMap<&str, usize>,
    spread: &BTreeMap<(&str, Digest), usize>,
    released: &BTreeSet<(String, Digest)>,
    limits: &Limits,
) -> Result<RepairStep, HeldReason> {
    let difference = &candidate.difference;
    let Some(node) = nodes.get(&candidate.node) else {
        return Err(HeldReason::Unreachable("the node is gone".to_owned()));
    };
    let finding = difference.group();
    let group_size = group_sizes.get(node.group.as_str()).copied().unwrap_or(0);
    let with_it = spread.get(&(node.group.as_str(), finding)).copied().unwrap_or(0);
    // Whatever people decide about the finding, nothing is put back from there.
    if let Some(reason) = &node.image_problem {
        return Err(HeldReason::ImageRevoked(reason.clone()));
    }
    // First of the rest: what a person must look at is never hidden behind a smaller reason.
    if limits.is_suspect(with_it, group_size) && !released.contains(&(node.group.clone(), finding)) {
        return Err(HeldReason::BaselineSuspect {
            nodes: with_it,
            group_size,
        });
    }
    let verb = verb_for(difference).map_err(HeldReason::NoVerb)?;
    if let Some(reason) = &node.hold {
        return Err(HeldReason::NodeHold(reason.clone()));
    }
    if let Some(reason) = &node.unreachable {
        return Err(HeldReason::Unreachable(reason.clone()));
    }
    Ok(RepairStep {
        group: finding,
        variant: difference.variant(),
        verb,
    })
}

fn count<K: Ord>(keys: impl Iterator<Item = K>) -> BTreeMap<K, usize> {
    let mut counts = BTreeMap::new();
    for key in keys {
        *counts.entry(key).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use drift::{Attributes, FindingKind};
    use uuid::Uuid;

    fn id(number: u128) -> NodeId {
        NodeId(Uuid::from_u128(number))
    }

    fn fleet(size: u128) -> BTreeMap<NodeId, NodeStanding> {
        let standing = NodeStanding {
            group: "gpu".into(),
            rack: None,
            hold: None,
            unreachable: None,
            image_problem: None,
        };
        (1..=size).map(|number| (id(number), standing.clone())).collect()
    }

    fn difference(kind: FindingKind, key: &str) -> Difference {
        Difference {
            kind,
            key: key.into(),
            expected: Some(Attributes::from_pairs([("mode", "0644")])),
            actual: Some(Attributes::from_pairs([("mode", "0600")])),
        }
    }

    fn on(node: u128, difference: Difference) -> Candidate {
        Candidate {
            node: id(node),
            difference,
            standing: Standing::Open,
        }
    }

    fn motd() -> Difference {
        difference(FindingKind::File, "/etc/motd")
    }

    #[test]
    fn steps_come_in_the_order_they_build_on_each_other() {
        let kinds = [
            (FindingKind::Unit, "ssh.service"),
            (FindingKind::SysctlRunning, "kernel.panic"),
            (FindingKind::File, "/etc/motd"),
            (FindingKind::Package, "less:amd64"),
        ];
        let candidates = kinds.map(|(kind, key)| on(1, difference(kind, key)));
        let plan = plan(
            &fleet(1),
            &candidates,
            &BTreeSet::new(),
            &Selection::default(),
            &Limits::default(),
        );
        let verbs: Vec<&str> = plan.nodes[0].steps.iter().map(|step| step.verb.name()).collect();
        assert_eq!(verbs, ["reinstall_package", "restore_file", "set_sysctl", "set_unit"]);
        assert_eq!(plan.held, []);
    }

    #[test]
    fn nothing_is_put_back_from_a_revoked_image() {
        let mut nodes = fleet(2);
        nodes.get_mut(&id(1)).unwrap().image_problem = Some("debian@1 must not be used".into());
        let candidates = [on(1, motd()), on(2, motd())];
        let released = BTreeSet::from([("gpu".to_owned(), motd().group())]);
        let plan = plan(
            &nodes,
            &candidates,
            &released,
            &Selection::default(),
            &Limits::default(),
        );
        assert_eq!(plan.nodes.iter().map(|node| node.node).collect::<Vec<_>>(), [id(2)]);
        assert_eq!(plan.held[0].reason.name(), "image_revoked");
        assert!(plan.held[0].reason.text().contains("install the node again"));
    }

    #[test]
    fn the_same_finding_on_a_fifth_of_a_group_is_repaired_and_on_more_is_held() {
        let candidates = |count: u128| -> Vec<Candidate> { (1..=count).map(|node| on(node, motd())).collect() };
        let few = plan(
            &fleet(40),
            &candidates(8),
            &BTreeSet::new(),
            &Selection::default(),
            &Limits::default(),
        );
        assert_eq!((few.nodes.len(), few.held.len()), (8, 0));
        let many = plan(
            &fleet(40),
            &candidates(30),
            &BTreeSet::new(),
            &Selection::default(),
            &Limits::default(),
        );
        assert_eq!((many.nodes.len(), many.held.len()), (0, 30));
        assert_eq!(
            many.held[0].reason,
            HeldReason::BaselineSuspect {
                nodes: 30,
                group_size: 40
            }
        );
        let released = BTreeSet::from([("gpu".to_owned(), motd().group())]);
        let after = plan(
            &fleet(40),
            &candidates(30),
            &released,
            &Selection::default(),
            &Limits::default(),
        );
        assert_eq!((after.nodes.len(), after.held.len()), (30, 0));
        let elsewhere = BTreeSet::from([("cpu".to_owned(), motd().group())]);
        let still = plan(
            &fleet(40),
            &candidates(30),
            &elsewhere,
            &Selection::default(),
            &Limits::default(),
        );
        assert_eq!(still.nodes.len(), 0, "a release is for one group of nodes");
    }

    #[test]
    fn selecting_a_few_nodes_does_not_make_a_wide_spread_finding_a_rare_one() {
        let candidates: Vec<Candidate> = (1..=30).map(|node| on(node, motd())).collect();
        let selection = Selection {
            nodes: BTreeSet::from([id(1), id(2)]),
            ..Selection::default()
        };
        let few = plan(
            &fleet(40),
            &candidates,
            &BTreeSet::new(),
            &selection,
            &Limits::default(),
        );
        assert_eq!((few.nodes.len(), few.held.len()), (0, 2));
        let others = Selection {
            findings: BTreeSet::from([difference(FindingKind::File, "/etc/issue").group()]),
            ..Selection::default()
        };
        let none = plan(&fleet(40), &candidates, &BTreeSet::new(), &others, &Limits::default());
        assert_eq!(none, Plan::default());
    }

    #[test]
    fn variants_of_one_finding_count_together() {
        // 30 nodes with 30 different contents of one file: the same thing is wrong everywhere.
        let candidates: Vec<Candidate> = (1..=30)
            .map(|node| {
                let mut difference = motd();
                difference.actual = Some(Attributes::from_pairs([("digest", format!("{node:064x}"))]));
                on(node, difference)
            })
            .collect();
        let plan = plan(
            &fleet(40),
            &candidates,
            &BTreeSet::new(),
            &Selection::default(),
            &Limits::default(),
        );
        assert_eq!((plan.nodes.len(), plan.held.len()), (0, 30));
    }

    #[test]
    fn what_people_allow_is_neither_repaired_nor_held_nor_counted_as_wide_spread() {
        let mut candidates: Vec<Candidate> = (1..=30).map(|node| on(node, motd())).collect();
        for (number, candidate) in candidates.iter_mut().enumerate().skip(5) {
            candidate.standing = if number % 2 == 0 {
                Standing::Waived
            } else {
                Standing::Accepted
            };
        }
        let plan = plan(
            &fleet(40),
            &candidates,
            &BTreeSet::new(),
            &Selection::default(),
            &Limits::default(),
        );
        assert_eq!((plan.nodes.len(), plan.held.len(), plan.allowed), (5, 0, 25));
    }

    #[test]
    fn nodes_that_may_not_be_touched_are_left_with_the_reason() {
        let mut nodes = fleet(3);
        nodes.get_mut(&id(1)).unwrap().hold = Some("memory is swapped on Tuesday".into());
        nodes.get_mut(&id(2)).unwrap().unreachable = Some("nothing heard of the agent for 20 min".into());
        let candidates: Vec<Candidate> = (1..=4).map(|node| on(node, motd())).collect();
        let plan = plan(
            &nodes,
            &candidates,
            &BTreeSet::new(),
            &Selection::default(),
            &Limits::default(),
        );
        let reasons: Vec<_> = plan.held.iter().map(|held| held.reason.name()).collect();
        assert_eq!(reasons, ["node_hold", "unreachable", "unreachable"]);
        assert_eq!(plan.nodes.len(), 1);
        assert_eq!(plan.nodes[0].node, id(3));
    }

    #[test]
    fn what_no_verb_covers_is_left_and_said() {
        let candidates = [on(1, difference(FindingKind::KernelRelease, "release"))];
        let plan = plan(
            &fleet(1),
            &candidates,
            &BTreeSet::new(),
            &Selection::default(),
            &Limits::default(),
        );
        assert_eq!(plan.nodes, []);
        assert_eq!(plan.held[0].reason, HeldReason::NoVerb(NoVerb::NeedsRestart));
    }

    #[test]
    fn a_job_is_bounded_and_the_rest_is_not_forgotten() {
        let candidates: Vec<Candidate> = (0..JOB_STEPS_MAX + 3)
            .map(|number| on(1, difference(FindingKind::File, &format!("/etc/f{number}"))))
            .collect();
        let plan = plan(
            &fleet(1),
            &candidates,
            &BTreeSet::new(),
            &Selection::default(),
            &Limits::default(),
        );
        assert_eq!(plan.nodes[0].steps.len(), JOB_STEPS_MAX);
        assert_eq!(plan.held.len(), 3);
        assert!(plan.held.iter().all(|held| held.reason == HeldReason::JobFull));
    }
}
