//! Drift: over all nodes, and of one.

use drift::Observation;

use crate::cli::sizes::size_text;
use crate::cli::table::table;
use crate::cli::text::{Context, cell, count};
use crate::cli::views::{Attributes, Diff, FindingEvent, Group, NodeDrift, Report, Review, Variant};

/// Nodes named for a variant; the rest is counted.
const NODES_SHOWN: usize = 20;

/// What differs over all nodes, a line for the same thing on many; `all`: also what people allow everywhere.
#[must_use]
pub fn groups(groups: &[Group], all: bool, context: &Context) -> String {
    let shown: Vec<&Group> = groups
        .iter()
        .filter(|group| all || group.open + group.acknowledged > 0)
        .collect();
    let allowed = groups.len() - shown.len();
    let mut text = open_groups(&shown, context);
    if allowed > 0 {
        text.push_str(&format!("{allowed} more are allowed by people (--all shows them)\n"));
    }
    text
}

fn open_groups(groups: &[&Group], context: &Context) -> String {
    if groups.is_empty() {
        return "no differences were reported (`plumbline node list` shows which nodes could not be looked at)\n"
            .into();
    }
    let heading = [
        "SEVERITY", "KIND", "WHAT", "NODES", "VARIANTS", "SINCE", "GROUP", "STANDING",
    ];
    let rows = groups.iter().map(|group| {
        [
            group.severity.clone(),
            group.kind.clone(),
            group.key.clone(),
            group.nodes.to_string(),
            group.variants.to_string(),
            context.age(group.first_at),
            group.group.chars().take(12).collect(),
            standing(group),
        ]
    });
    table(context, heading, rows)
}

fn standing(group: &Group) -> String {
    let parts = [
        (group.open, "open"),
        (group.acknowledged, "acknowledged"),
        (group.waived, "waived"),
        (group.accepted, "accepted"),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(nodes, _)| *nodes > 0)
        .map(|(nodes, word)| {
            if nodes == group.nodes {
                word.to_owned()
            } else {
                format!("{nodes} {word}")
            }
        })
        .collect();
    parts.join(", ")
}

/// The ways in which a group's thing differs.
#[must_use]
pub fn variants(group: &Group, variants: &[Variant], context: &Context) -> String {
    let mut text = cell(&format!(
        "{} {} {}: on {}, first seen {}",
        group.severity,
        group.kind,
        group.key,
        count(group.nodes, "node"),
        context.age(group.first_at)
    ));
    text.push('\n');
    for variant in variants {
        let short: String = variant.variant.chars().take(12).collect();
        text.push_str(&format!("\nvariant {}\n", cell(&short)));
        text.push_str(&difference(variant.expected.as_ref(), variant.actual.as_ref()));
        let shown = variant.nodes.iter().take(NODES_SHOWN);
        let mut nodes: Vec<String> = shown.map(|node| cell(node)).collect();
        let left_out = variant
            .node_count
            .saturating_sub(u64::try_from(nodes.len()).unwrap_or(0));
        if left_out > 0 {
            nodes.push(format!("and {left_out} more"));
        }
        text.push_str(&format!(
            "  on {}: {}\n",
            count(variant.node_count, "node"),
            nodes.join(", ")
        ));
    }
    text
}

/// One node's drift: the verdict first, then what it rests on, then what differs and what nobody could look at.
#[must_use]
pub fn node_drift(node: &NodeDrift, context: &Context) -> String {
    let label = node.name.as_deref().unwrap_or(&node.node);
    let mut text = cell(&format!("{label}: {}: {}", node.verdict, node.reason));
    text.push('\n');
    if let Some(report) = &node.report {
        text.push_str(&scan(report, context));
    }
    for finding in &node.findings {
        let head = format!(
            "{} {} {}  ({}, since {})",
            finding.severity,
            finding.kind,
            finding.key,
            finding.standing,
            context.age(finding.opened_at)
        );
        text.push_str(&format!("\n{}\n", cell(&head)));
        text.push_str(&difference(finding.expected.as_ref(), finding.actual.as_ref()));
    }
    if let Some(report) = &node.report {
        text.push_str(&gaps(report));
    }
    text
}

fn scan(report: &Report, context: &Context) -> String {
    let scan = &report.scan;
    let end = if report.complete { "complete" } else { "INCOMPLETE" };
    let facts: u64 = scan.facts_by_kind.values().sum();
    format!(
        "last scan: {}, {end}: {} paths, {facts} facts, {} hashed, {} ms\n",
        context.age_and_local(report.received_at),
        scan.entries(),
        size_text(scan.hashed_bytes),
        scan.duration_ms
    )
}

fn gaps(report: &Report) -> String {
    let listed = u64::try_from(report.not_looked_at.len()).unwrap_or(0);
    let places = report.scan.not_looked_at_count.max(listed);
    if places == 0 {
        return String::new();
    }
    let mut text = format!("\n{} could not be looked at:\n", count(places, "place"));
    for place in &report.not_looked_at {
        let why = match &place.observation {
            Observation::Error { detail } | Observation::NotScanned { detail } => {
                format!("{}: {detail}", place.observation.name())
            }
            other => other.name().to_owned(),
        };
        text.push_str(&cell(&format!("  {} {}: {why}", place.kind, place.key)));
        text.push('\n');
    }
    if places > listed {
        text.push_str(&format!("  and {} more\n", places - listed));
    }
    text
}

/// Both sides, an attribute a line.
fn difference(expected: Option<&Attributes>, actual: Option<&Attributes>) -> String {
    match (expected, actual) {
        (None, _) => format!("  should not be there; is {}\n", attributes(actual)),
        (_, None) => format!("  is not there; should be {}\n", attributes(expected)),
        (Some(expected), Some(actual)) => {
            let names: std::collections::BTreeSet<&String> = expected.keys().chain(actual.keys()).collect();
            let side = |attributes: &Attributes, name: &str| {
                attributes
                    .get(name)
                    .map_or_else(|| "(none)".to_owned(), |value| cell(value))
            };
            names
                .into_iter()
                .map(|name| {
                    let (should, is) = (side(expected, name), side(actual, name));
                    format!("  {}: should be {should}, is {is}\n", cell(name))
                })
                .collect()
        }
    }
}

fn attributes(attributes: Option<&Attributes>) -> String {
    let Some(attributes) = attributes.filter(|attributes| !attributes.is_empty()) else {
        return "there".to_owned();
    };
    let each = attributes.iter().map(|(name, value)| cell(&format!("{name}={value}")));
    each.collect::<Vec<_>>().join(" ")
}

/// What changed in a text file.
#[must_use]
pub fn diff(diff: &Diff, _: &Context) -> String {
    match (&diff.unified, &diff.reason) {
        (Some(unified), _) => unified.clone(),
        (None, reason) => format!(
            "no text to show: {}\n",
            reason.as_deref().unwrap_or("the server does not say why")
        ),
    }
}

/// What became of findings.
#[must_use]
pub fn finding_events(events: &[FindingEvent], context: &Context) -> String {
    if events.is_empty() {
        return "nothing was ever found\n".into();
    }
    let heading = ["WHEN", "NODE", "EVENT", "KIND", "WHAT", "BY"];
    let rows = events.iter().map(|event| {
        [
            context.local(event.at),
            event.node.clone(),
            event.event.clone(),
            event.kind.clone(),
            event.key.clone(),
            event.cause.clone(),
        ]
    });
    table(context, heading, rows)
}

/// What people have decided.
#[must_use]
pub fn reviews(reviews: &[Review], context: &Context) -> String {
    if reviews.is_empty() {
        return "nothing was decided\n".into();
    }
    let heading = [
        "DECISION", "WHAT", "SCOPE", "FINDINGS", "BY", "SINCE", "UNTIL", "ID", "REASON",
    ];
    let rows = reviews.iter().map(|review| {
        let until = match (review.in_force, review.expires_at) {
            (false, _) => "over".to_owned(),
            (true, Some(at)) => context.local(at),
            (true, None) => "-".to_owned(),
        };
        [
            review.kind.clone(),
            format!("{} {}", review.finding_kind, review.finding_key),
            format!("{} {}", review.scope, review.scope_value).trim_end().to_owned(),
            review.findings.to_string(),
            review.made_by.clone(),
            context.age(review.made_at),
            until,
            review.id.clone(),
            review.reason.clone(),
        ]
    });
    table(context, heading, rows)
}
