//! Remediation: the plan, what is left, runs.

use protocol::latest::{JobOutcome, RepairStep, StepOutcome};

use crate::cli::table::table;
use crate::cli::text::{Context, cell, count};
use crate::cli::views::{Audit, Held, Job, Plan, Release, Run};

/// Steps shown of one node; the rest is counted.
const STEPS_SHOWN: usize = 40;

/// What a remediation would do, and what it would leave.
#[must_use]
pub fn plan(plan: &Plan, context: &Context) -> String {
    let mut text = String::new();
    for node in &plan.nodes {
        let place = node
            .rack
            .as_ref()
            .map_or(node.group.clone(), |rack| format!("{}, {rack}", node.group));
        text.push_str(&cell(&format!(
            "{} ({place}): {}",
            node.node,
            count(len(&node.steps), "step")
        )));
        text.push('\n');
        text.push_str(&steps(&node.steps));
    }
    if !text.is_empty() {
        let limits: Vec<String> = plan
            .at_once
            .iter()
            .map(|(group, nodes)| format!("{group}: {nodes}"))
            .collect();
        text.push_str(&cell(&format!("nodes at once, by group: {}", limits.join(", "))));
        text.push_str("\n\n");
    }
    text.push_str(&held(&plan.held, context));
    text.push_str(&unknown(&plan.unknown));
    let verdict = match (plan.findings, plan.held_findings) {
        (0, 0) if plan.unknown.is_empty() => "nothing to repair".to_owned(),
        (0, 0) => "nothing is known to need repair".to_owned(),
        (0, left) => format!("nothing to repair; {} left alone", count(left, "finding")),
        (findings, 0) => format!(
            "would repair {} on {}",
            count(findings, "finding"),
            count(len(&plan.nodes), "node")
        ),
        (findings, left) => format!(
            "would repair {} on {}; {} left alone",
            count(findings, "finding"),
            count(len(&plan.nodes), "node"),
            count(left, "finding")
        ),
    };
    let allowed = match plan.allowed {
        0 => String::new(),
        allowed => format!("; {} allowed by people", count(allowed, "finding")),
    };
    text.push_str(&format!("{verdict}{allowed}\n"));
    if plan.findings > 0 {
        text.push_str("nothing was changed: `plumbline remediate --apply` carries it out\n");
    }
    text
}

/// What is left after a remediation.
#[must_use]
pub fn left(plan: &Plan, context: &Context) -> String {
    let mut text = held(&plan.held, context);
    text.push_str(&unknown(&plan.unknown));
    let left = plan.findings + plan.held_findings;
    text.push_str(&match left {
        0 if plan.unknown.is_empty() => "nothing is left\n".to_owned(),
        0 => "nothing is known to be left\n".to_owned(),
        left => format!("{} left\n", count(left, "finding")),
    });
    text
}

fn len<T>(items: &[T]) -> u64 {
    u64::try_from(items.len()).unwrap_or(u64::MAX)
}

fn steps(steps: &[RepairStep]) -> String {
    let mut text: String = steps
        .iter()
        .take(STEPS_SHOWN)
        .map(|step| format!("  {:<18} {}\n", step.verb.name(), cell(step.verb.object())))
        .collect();
    if steps.len() > STEPS_SHOWN {
        text.push_str(&format!("  and {} more\n", steps.len() - STEPS_SHOWN));
    }
    text
}

fn held(held: &[Held], context: &Context) -> String {
    if held.is_empty() {
        return String::new();
    }
    let heading = ["LEFT ALONE", "WHAT", "NODES", "GROUP", "FINDING", "WHY"];
    let rows = held.iter().map(|held| {
        [
            held.kind.clone(),
            held.key.clone(),
            held.nodes.to_string(),
            held.node_group.clone(),
            held.group.chars().take(12).collect(),
            held.reason.clone(),
        ]
    });
    format!("{}\n", table(context, heading, rows))
}

fn unknown(nodes: &[String]) -> String {
    if nodes.is_empty() {
        return String::new();
    }
    let shown: Vec<String> = nodes.iter().take(20).map(|node| cell(node)).collect();
    let more = nodes.len().saturating_sub(shown.len());
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!(
        "{} could not be looked at, so more may be wrong there: {}{more}\n",
        count(len(nodes), "node"),
        shown.join(", ")
    )
}

/// All remediations.
#[must_use]
pub fn runs(runs: &[Run], context: &Context) -> String {
    if runs.is_empty() {
        return "there was no remediation yet\n".into();
    }
    let heading = ["STATE", "BEGUN", "BY", "NODES", "LEFT", "ID", "WHERE IT STANDS"];
    let rows = runs.iter().map(|run| {
        [
            run.state.clone(),
            context.age(run.created_at),
            run.requested_by.clone(),
            run.nodes.values().sum::<u64>().to_string(),
            run.left.to_string(),
            run.id.clone(),
            run.reason.clone(),
        ]
    });
    table(context, heading, rows)
}

/// One remediation, node by node.
#[must_use]
pub fn run(run: &Run, context: &Context) -> String {
    let mut text = cell(&format!(
        "remediation {} by {}, {}: {}: {}",
        run.id,
        run.requested_by,
        context.age(run.created_at),
        run.state,
        run.reason
    ));
    text.push('\n');
    for job in &run.jobs {
        text.push_str(&cell(&format!("{}: {}: {}", job.node, job.state, job.reason)));
        text.push('\n');
        text.push_str(&outcome(job));
    }
    text
}

fn outcome(job: &Job) -> String {
    let Some(JobOutcome::Ran { steps: results }) = &job.outcome else {
        return steps(&job.steps);
    };
    let step = |step: &RepairStep| {
        let result = results.iter().find(|result| result.group == step.group);
        let words = match result.map(|result| &result.outcome) {
            Some(StepOutcome::Done { detail }) => format!("done: {detail}"),
            Some(StepOutcome::NothingToDo) => "there was nothing to do".to_owned(),
            Some(StepOutcome::Refused { reason }) => format!("REFUSED: {reason}"),
            Some(StepOutcome::Failed { reason }) => format!("FAILED: {reason}"),
            None => "not told".to_owned(),
        };
        format!(
            "  {:<18} {}: {}\n",
            step.verb.name(),
            cell(step.verb.object()),
            cell(&words)
        )
    };
    job.steps.iter().take(STEPS_SHOWN).map(step).collect()
}

/// Released findings.
#[must_use]
pub fn releases(releases: &[Release], context: &Context) -> String {
    if releases.is_empty() {
        return "nothing is released\n".into();
    }
    let heading = ["GROUP", "KIND", "WHAT", "BY", "UNTIL", "REASON"];
    let rows = releases.iter().map(|release| {
        [
            release.node_group.clone(),
            release.finding_kind.clone(),
            release.finding_key.clone(),
            release.released_by.clone(),
            context.local(release.expires_at),
            release.reason.clone(),
        ]
    });
    table(context, heading, rows)
}

/// Who decided what.
#[must_use]
pub fn audit(events: &[Audit], context: &Context) -> String {
    if events.is_empty() {
        return "nothing was decided yet\n".into();
    }
    let heading = ["WHEN", "WHO", "DID", "TO", "HOW"];
    let rows = events.iter().map(|event| {
        [
            context.local(event.at),
            event.actor.clone(),
            event.action.clone(),
            event.object.clone(),
            event.detail.clone(),
        ]
    });
    table(context, heading, rows)
}
