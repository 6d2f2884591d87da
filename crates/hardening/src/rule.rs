//! One rule: why it is there, how it is checked, how it is brought about.

use std::fmt;

use manifest::TreePath;
use serde::{Deserialize, Serialize};

use crate::check::Check;
use crate::fix::{Fix, Unfixed};

/// Names a rule, like `SSH-01`: two to four capitals, a dash, two digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RuleId(String);

impl RuleId {
    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The letters in front: the area the rule belongs to.
    #[must_use]
    pub fn area(&self) -> &str {
        self.0.split('-').next().unwrap_or(&self.0)
    }
}

impl TryFrom<String> for RuleId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_id = text.split_once('-').is_some_and(|(area, number)| {
            (2..=4).contains(&area.len())
                && area.bytes().all(|byte| byte.is_ascii_uppercase())
                && number.len() == 2
                && number.bytes().all(|byte| byte.is_ascii_digit())
        });
        if is_id {
            Ok(Self(text))
        } else {
            Err(format!("{text:?} is no rule id, expected one like SSH-01"))
        }
    }
}

impl From<RuleId> for String {
    fn from(id: RuleId) -> Self {
        id.0
    }
}

impl std::str::FromStr for RuleId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.to_owned().try_into()
    }
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How much a failed rule matters; the names of drift's severities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// For the record.
    Info,
    /// Report.
    Low,
    /// Fix in place.
    Medium,
    /// Drain at the next idle moment.
    High,
    /// Drain.
    Critical,
}

impl Severity {
    /// The name used everywhere outside this code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// What a rule breaks for GPU and HPC work, and what is suggested there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuConflict {
    /// Who or what stops working.
    pub breaks: String,
    /// The value to use where that work is done.
    pub suggested: String,
}

/// Where a rule applies. All conditions of a rule must hold; otherwise it is not applicable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Condition {
    /// One of these paths is there.
    AnyPath(Vec<TreePath>),
    /// None of these paths is there.
    NoPath(Vec<TreePath>),
}

/// One rule of a profile.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name.
    pub id: RuleId,
    /// What holds where the rule is kept; one line.
    pub title: String,
    /// Why, and what differs on Debian.
    pub rationale: String,
    /// How much a failure matters.
    pub severity: Severity,
    /// Where the rule applies; empty means everywhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applies_when: Vec<Condition>,
    /// What is looked at; all must hold. At least one.
    pub checks: Vec<Check>,
    /// What brings the rule about; empty only with [`Rule::unfixed`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fixes: Vec<Fix>,
    /// Why nothing is written for this rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfixed: Option<Unfixed>,
    /// What it breaks for GPU and HPC work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_conflict: Option<GpuConflict>,
}

impl Rule {
    /// Whether looking at the rule walks the whole filesystem, which takes seconds where others take milliseconds: the
    /// agent may look at such rules less often.
    #[must_use]
    pub fn needs_walk(&self) -> bool {
        self.checks.iter().any(Check::needs_walk)
    }
}
