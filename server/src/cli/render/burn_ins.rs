//! What nodes were tested for, and what was found.

use lifecycle::burn_in::Standing;
use protocol::latest::{TestOutcome, TestResult};

use crate::cli::table::table;
use crate::cli::text::{Context, cell};
use crate::cli::views::BurnIn;

/// A node's burn-ins, newest first, each with its tests.
#[must_use]
pub fn burn_ins(burn_ins: &[BurnIn], context: &Context) -> String {
    if burn_ins.is_empty() {
        return "no burn-in: `plumbline node boot NODE --commission --reason …` orders one\n".to_owned();
    }
    let mut text = String::new();
    for one in burn_ins {
        let gap = if text.is_empty() { "" } else { "\n" };
        text.push_str(&format!(
            "{gap}{}, begun {}, by {}: {}\n",
            word(one.standing),
            context.age_and_local(one.started_at),
            cell(&one.ordered_by),
            cell(&one.reason)
        ));
        let rows = one.tests.iter().map(|order| {
            let result = one.results.iter().find(|result| result.kind == order.kind);
            let [outcome, time, found] = match result {
                Some(result) => done(result),
                None => left(one, order.kind.as_str(), order.limit_secs),
            };
            [format!("  {}", order.kind.as_str()), outcome, time, found]
        });
        text.push_str(&table(context, ["  TEST", "OUTCOME", "TIME", "FOUND"], rows));
        for reason in [&one.problem].into_iter().flatten() {
            text.push_str(&format!("  {}\n", cell(reason)));
        }
        if one.standing == Standing::Waived {
            text.push_str(&format!(
                "  may be installed all the same, {}\n",
                cell(&one.standing_reason)
            ));
        }
    }
    text
}

/// Where a burn-in stands, in a word.
#[must_use]
pub const fn word(standing: Standing) -> &'static str {
    match standing {
        Standing::None => "none",
        Standing::Running => "running",
        Standing::Passed => "passed",
        Standing::Failed => "failed",
        Standing::Waived => "failed, waived",
    }
}

fn done(result: &TestResult) -> [String; 3] {
    let outcome = match result.outcome {
        TestOutcome::Passed => "passed",
        TestOutcome::Failed => "FAILED",
        TestOutcome::NotRun => "not run",
    };
    let mut found = result.detail.clone();
    // What the sentence says already is not said twice.
    let figures = result.figures.iter();
    let figures: Vec<String> = figures
        .filter(|figure| !result.detail.contains(&number(figure.value)))
        .map(|figure| format!("{} {} {}", figure.name, number(figure.value), figure.unit))
        .collect();
    if !figures.is_empty() {
        found.push_str(&format!(" [{}]", figures.join(", ")));
    }
    [outcome.to_owned(), format!("{} s", result.secs), found]
}

fn left(one: &BurnIn, kind: &str, limit_secs: u32) -> [String; 3] {
    let begun = one
        .progress
        .as_deref()
        .and_then(|said| said.strip_prefix(kind)?.strip_prefix(": "));
    match (&one.ended_at, begun) {
        (None, Some(said)) => ["running".to_owned(), format!("up to {limit_secs} s"), said.to_owned()],
        (None, None) => ["waits".to_owned(), format!("up to {limit_secs} s"), String::new()],
        (Some(_), _) => ["not run".to_owned(), "-".to_owned(), String::new()],
    }
}

/// Two digits are enough of what was measured.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 10.0 || value.fract() == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}
