//! Remediation: planned by `lifecycle::remediation`, carried out by agents, proved by scans.
//!
//! [`plan`] shows what a run would do and changes nothing. [`begin`] keeps a run; the background task
//! ([`advance`]) gives its jobs out a few at a time. All state is in PostgreSQL, so a server that dies carries the run
//! on after its restart, or another server does.

mod advance;
mod job;

use std::collections::{BTreeMap, BTreeSet};

use lifecycle::NodeState;
use lifecycle::remediation::{self as rules, Held, HeldReason, Limits, NodePlan, NodeStanding, Plan, Selection};
use manifest::Digest;
use protocol::latest::RepairStep;
use protocol::{NodeId, RunId};
use serde::Serialize;
use store::{HeldFinding, NewRun, NodeRecord, RunRecord};
use time::OffsetDateTime;

use super::auth::User;
use super::drift::{self, Verdict};
use super::reviews::reason_check;
use super::{App, AppError, nodes};

pub use advance::advance;
pub use job::{outcome, pull};

/// Longest release of a wide-spread finding, in hours.
const RELEASE_HOURS_MAX: i64 = 7 * 24;

/// What would be done on one node.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct PlannedNode {
    /// The node.
    pub node_id: NodeId,
    /// Its name, or its id.
    pub node: String,
    /// Node group.
    pub group: String,
    /// Rack, if known.
    pub rack: Option<String>,
    /// In the order in which they would run.
    pub steps: Vec<RepairStep>,
}

/// What a run would do, and what it would leave.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct PlanView {
    /// Nodes with something to repair.
    pub nodes: Vec<PlannedNode>,
    /// Findings it would repair.
    pub findings: u64,
    /// Findings it would leave, with the reason.
    pub held: Vec<HeldFinding>,
    /// Findings it would leave, counted on every node.
    pub held_findings: u64,
    /// Findings that people have waived or accepted.
    pub allowed: u64,
    /// Nodes of each group at once.
    pub at_once: BTreeMap<String, usize>,
    /// Nodes whose drift nobody knows, and which may therefore hide more.
    pub unknown: Vec<String>,
}

/// What a selection by people's names means.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Nodes: ids, names or MACs.
    pub nodes: Vec<String>,
    /// Node groups.
    pub node_groups: Vec<String>,
    /// Finding groups: hashes.
    pub findings: Vec<Digest>,
}

/// Finds what people name.
///
/// # Errors
/// [`AppError::NotFound`] for a node or node group that there is not.
pub async fn select(app: &App, asked: Asked) -> Result<Selection, AppError> {
    let mut selection = Selection {
        findings: asked.findings.into_iter().collect(),
        ..Selection::default()
    };
    for node in &asked.nodes {
        selection.nodes.insert(nodes::node_find(app, node).await?);
    }
    let sizes = app.store.node_group_sizes().await?;
    for group in asked.node_groups {
        if !sizes.contains_key(&group) {
            return Err(AppError::NotFound {
                what: "node group".to_owned(),
                key: group,
            });
        }
        selection.node_groups.insert(group);
    }
    Ok(selection)
}

/// Everything a plan follows from, read at one time.
struct Basis {
    records: BTreeMap<NodeId, NodeRecord>,
    standings: BTreeMap<NodeId, NodeStanding>,
    plan: Plan,
}

async fn basis(app: &App, selection: &Selection, limits: &Limits) -> Result<Basis, AppError> {
    let now = OffsetDateTime::now_utc();
    let records: BTreeMap<NodeId, NodeRecord> = app
        .store
        .node_list(None)
        .await?
        .into_iter()
        .map(|record| (record.id, record))
        .collect();
    let standings = records
        .iter()
        .map(|(id, record)| (*id, standing(record, now)))
        .collect();
    let candidates = app.store.finding_candidates().await?;
    let released = app.store.release_set().await?;
    let plan = rules::plan(&standings, &candidates, &released, selection, limits);
    Ok(Basis {
        records,
        standings,
        plan,
    })
}

/// What bears on whether a node may be touched.
fn standing(record: &NodeRecord, now: OffsetDateTime) -> NodeStanding {
    let evidence = drift::Evidence::of_node(record, now);
    let unreachable = if record.state != NodeState::Deployed {
        Some(format!("the node is {}", record.state.as_str()))
    } else {
        evidence.silence()
    };
    NodeStanding {
        group: record.group.clone(),
        rack: record.rack.clone(),
        hold: record
            .hold
            .as_ref()
            .map(|hold| format!("{} ({})", hold.reason, hold.by)),
        unreachable,
        image_problem: record.image_problem.clone(),
    }
}

/// What a run would do now.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn plan(app: &App, selection: &Selection) -> Result<PlanView, AppError> {
    let limits = app.config.remediation;
    let basis = basis(app, selection, &limits).await?;
    let now = OffsetDateTime::now_utc();
    let sizes = group_sizes(&basis.standings);
    let is_selected = |record: &&NodeRecord| {
        (selection.nodes.is_empty() || selection.nodes.contains(&record.id))
            && (selection.node_groups.is_empty() || selection.node_groups.contains(&record.group))
    };
    let is_unknown = |record: &&NodeRecord| {
        let (verdict, _) = drift::verdict(&drift::Evidence::of_node(record, now));
        matches!(record.state, NodeState::Installed | NodeState::Deployed)
            && matches!(verdict, Verdict::Unknown | Verdict::Incomplete)
    };
    Ok(PlanView {
        findings: basis.plan.nodes.iter().map(|node| node.steps.len() as u64).sum(),
        held: held_findings(&basis.plan.held, &basis.standings),
        held_findings: basis.plan.held.len() as u64,
        allowed: basis.plan.allowed as u64,
        at_once: sizes
            .into_iter()
            .map(|(group, size)| (group, limits.at_once(size)))
            .collect(),
        unknown: basis
            .records
            .values()
            .filter(is_selected)
            .filter(is_unknown)
            .map(node_title)
            .collect(),
        nodes: basis
            .plan
            .nodes
            .iter()
            .filter_map(|node| planned(node, &basis.records))
            .collect(),
    })
}

fn planned(plan: &NodePlan, records: &BTreeMap<NodeId, NodeRecord>) -> Option<PlannedNode> {
    let record = records.get(&plan.node)?;
    Some(PlannedNode {
        node_id: plan.node,
        node: node_title(record),
        group: record.group.clone(),
        rack: record.rack.clone(),
        steps: plan.steps.clone(),
    })
}

fn node_title(record: &NodeRecord) -> String {
    record.name.clone().unwrap_or_else(|| record.id.to_string())
}

fn group_sizes(standings: &BTreeMap<NodeId, NodeStanding>) -> BTreeMap<String, usize> {
    let mut sizes = BTreeMap::new();
    for standing in standings.values() {
        *sizes.entry(standing.group.clone()).or_default() += 1;
    }
    sizes
}

/// One entry for the same finding held in the same node group for the same reason.
fn held_findings(held: &[Held], standings: &BTreeMap<NodeId, NodeStanding>) -> Vec<HeldFinding> {
    let mut entries: BTreeMap<(String, Digest, String), HeldFinding> = BTreeMap::new();
    for held in held {
        let node_group = standings
            .get(&held.node)
            .map_or(String::new(), |standing| standing.group.clone());
        let (group, reason) = (held.difference.group(), held.reason.text());
        let entry = entries
            .entry((node_group.clone(), group, reason.clone()))
            .or_insert_with(|| HeldFinding {
                group,
                kind: held.difference.kind.as_str().to_owned(),
                key: held.difference.key.clone(),
                node_group,
                why: held.reason.name().to_owned(),
                reason,
                nodes: 0,
            });
        entry.nodes += 1;
    }
    let mut entries: Vec<HeldFinding> = entries.into_values().collect();
    // What a person must look at first.
    let suspect = HeldReason::BaselineSuspect {
        nodes: 0,
        group_size: 0,
    };
    entries.sort_by_key(|entry| {
        (
            entry.why != suspect.name(),
            std::cmp::Reverse(entry.nodes),
            entry.key.clone(),
        )
    });
    entries
}

/// Begins a run.
///
/// # Errors
/// [`AppError::Conflict`] while another one runs.
pub async fn begin(app: &App, selection: Selection, user: &User) -> Result<RunRecord, AppError> {
    let limits = app.config.remediation;
    let basis = basis(app, &selection, &limits).await?;
    let held = held_findings(&basis.plan.held, &basis.standings);
    let place = |plan: NodePlan| {
        let standing = basis.standings.get(&plan.node)?;
        Some((plan, standing.group.clone(), standing.rack.clone()))
    };
    let new = NewRun {
        requested_by: user.name.clone(),
        selection,
        limits,
        nodes: basis.plan.nodes.into_iter().filter_map(place).collect(),
        held,
        allowed: basis.plan.allowed as u64,
    };
    let run = app.store.run_create(&new).await?;
    tracing::info!(run.id = %run, user.name, nodes = new.nodes.len(), "remediation begun");
    app.remediation_nudge.notify_one();
    Ok(app.store.run_get(run).await?)
}

/// Stops a run: no further node is begun.
///
/// # Errors
/// [`AppError::NotFound`]; [`AppError::Conflict`] when it is over.
pub async fn stop(app: &App, run: RunId, user: &User) -> Result<RunRecord, AppError> {
    app.store.run_stop(run, &user.name).await?;
    tracing::info!(run.id = %run, user.name, "remediation stopped");
    Ok(app.store.run_get(run).await?)
}

/// Lets a wide-spread finding be repaired in one group of nodes for some hours: somebody has looked.
///
/// # Errors
/// [`AppError::Invalid`], [`AppError::NotFound`].
pub async fn release(
    app: &App,
    node_group: &str,
    group: Digest,
    reason: &str,
    hours: i64,
    user: &User,
) -> Result<(), AppError> {
    reason_check(reason)?;
    if !(1..=RELEASE_HOURS_MAX).contains(&hours) {
        return Err(AppError::Invalid(format!(
            "hours = {hours}: expected 1 to {RELEASE_HOURS_MAX}"
        )));
    }
    let until = OffsetDateTime::now_utc() + time::Duration::hours(hours);
    app.store
        .release_create(node_group, group, reason, &user.name, until)
        .await?;
    Ok(())
}

/// Findings of a job that may still be repaired: as the plan has them now, and of those the job was made for.
fn still_planned(plan: &Plan, node: NodeId, steps: &[RepairStep]) -> Vec<RepairStep> {
    let wanted: BTreeSet<Digest> = steps.iter().map(|step| step.group).collect();
    let planned = plan.nodes.iter().find(|planned| planned.node == node);
    planned
        .map(|planned| {
            planned
                .steps
                .iter()
                .filter(|step| wanted.contains(&step.group))
                .cloned()
                .collect()
        })
        .unwrap_or_default()
}
