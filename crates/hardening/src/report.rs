//! What an evaluation found, rule by rule.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::place::Unlooked;
use crate::rule::{RuleId, Severity};
use crate::waiver::Day;

/// One thing that is not as the rule asks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// What the rule asks for.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// Where: a path with its line, a name, a part of the running system.
    #[serde(rename = "where")]
    pub place: String,
}

/// A waiver that no longer helps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaiverExpired {
    /// Who answered for it.
    pub approver: String,
    /// The last day it held.
    pub until: Day,
}

/// How one rule came out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum RuleResult {
    /// All as it should be.
    Passed,
    /// Something is not.
    Failed {
        /// What, in order of places.
        problems: Vec<Problem>,
        /// There was a waiver and its time is over.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waiver_expired: Option<WaiverExpired>,
    },
    /// Something is not, and somebody answers for it.
    Waived {
        /// What.
        problems: Vec<Problem>,
        /// Why it may be so.
        reason: String,
        /// Who answers for it.
        approver: String,
        /// The last day of the waiver.
        until: Day,
    },
    /// There is nothing here the rule is about, or the profile turned it off.
    NotApplicable {
        /// Why.
        why: String,
    },
    /// Nobody could look. Never a pass.
    NotLookedAt {
        /// Why.
        why: Unlooked,
    },
}

impl RuleResult {
    /// The name used everywhere outside this code.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed { .. } => "failed",
            Self::Waived { .. } => "waived",
            Self::NotApplicable { .. } => "not_applicable",
            Self::NotLookedAt { .. } => "not_looked_at",
        }
    }

    /// In one line, for people; empty when there is nothing to say.
    #[must_use]
    pub fn why(&self) -> String {
        match self {
            Self::Passed => String::new(),
            Self::Failed {
                problems,
                waiver_expired,
            } => {
                let mut text = problems_text(problems);
                if let Some(WaiverExpired { approver, until }) = waiver_expired {
                    let _ = write!(text, "; the waiver by {approver} expired after {until}");
                }
                text
            }
            Self::Waived {
                reason,
                approver,
                until,
                ..
            } => format!("{reason} ({approver}, until {until})"),
            Self::NotApplicable { why } => why.clone(),
            Self::NotLookedAt { why } => why.to_string(),
        }
    }
}

fn problems_text(problems: &[Problem]) -> String {
    let texts: Vec<_> = problems
        .iter()
        .map(|problem| format!("{}: {}, expected {}", problem.place, problem.found, problem.expected))
        .collect();
    texts.join("; ")
}

/// One rule of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleReport {
    /// Which.
    pub id: RuleId,
    /// Its title.
    pub title: String,
    /// How much a failure matters.
    pub severity: Severity,
    /// How it came out.
    #[serde(flatten)]
    pub result: RuleResult,
}

/// How many rules came out how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Passed.
    pub passed: usize,
    /// Failed.
    pub failed: usize,
    /// Waived.
    pub waived: usize,
    /// Not applicable.
    pub not_applicable: usize,
    /// Not looked at.
    pub not_looked_at: usize,
}

/// What an evaluation found, in order of rule ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The profile's name.
    pub profile: String,
    /// Whether a running node was looked at, rather than a built root.
    pub running: bool,
    /// The day waivers were held against.
    pub on: Day,
    /// How many came out how.
    pub counts: Counts,
    /// Every rule of the profile, those that are off included.
    pub rules: Vec<RuleReport>,
}

impl Report {
    pub(crate) fn new(profile: &str, running: bool, on: Day, mut rules: Vec<RuleReport>) -> Self {
        rules.sort_by(|a, b| a.id.cmp(&b.id));
        let mut counts = Counts::default();
        for rule in &rules {
            match rule.result {
                RuleResult::Passed => counts.passed += 1,
                RuleResult::Failed { .. } => counts.failed += 1,
                RuleResult::Waived { .. } => counts.waived += 1,
                RuleResult::NotApplicable { .. } => counts.not_applicable += 1,
                RuleResult::NotLookedAt { .. } => counts.not_looked_at += 1,
            }
        }
        Self {
            profile: profile.to_owned(),
            running,
            on,
            counts,
            rules,
        }
    }

    /// Rules that failed; an image with any is refused, on a node each is a finding.
    #[must_use]
    pub fn failed(&self) -> Vec<&RuleReport> {
        let failed = |rule: &&RuleReport| matches!(rule.result, RuleResult::Failed { .. });
        self.rules.iter().filter(failed).collect()
    }

    /// Rules that this place should have answered and did not: unreadable, too large, not understood, not said. Those
    /// that only another place can answer are not among them.
    #[must_use]
    pub fn could_not_look(&self) -> Vec<&RuleReport> {
        let could_not =
            |rule: &&RuleReport| matches!(&rule.result, RuleResult::NotLookedAt { why } if !why.is_elsewhere());
        self.rules.iter().filter(could_not).collect()
    }

    /// One rule.
    #[must_use]
    pub fn rule(&self, id: &str) -> Option<&RuleReport> {
        self.rules.iter().find(|rule| rule.id.as_str() == id)
    }

    /// A table for people: id, result, severity, title and why, then the counts.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut rows = vec![["id", "result", "severity", "title", "why"].map(str::to_owned)];
        rows.extend(self.rules.iter().map(|rule| {
            [
                rule.id.to_string(),
                rule.result.as_str().replace('_', " "),
                rule.severity.as_str().to_owned(),
                rule.title.clone(),
                rule.result.why(),
            ]
        }));
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths = [width(0), width(1), width(2), width(3)];
        let mut text = String::new();
        for row in &rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(widths) {
                let _ = write!(line, "{cell:width$}  ");
            }
            line.push_str(&row[4]);
            text.push_str(line.trim_end());
            text.push('\n');
        }
        let counts = &self.counts;
        let _ = writeln!(
            text,
            "\n{} of profile {} on {}: {} passed, {} failed, {} waived, {} not applicable, {} not looked at",
            if self.running { "Running node" } else { "Built root" },
            self.profile,
            self.on,
            counts.passed,
            counts.failed,
            counts.waived,
            counts.not_applicable,
            counts.not_looked_at,
        );
        text
    }
}
