//! Waivers: a rule that may fail, until a day, because somebody answers for it.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use yaml::{Spanned, YamlError, parse, read_text};

use crate::profile::Profile;
use crate::rule::RuleId;

/// A calendar day, written `2027-01-31`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Day(pub time::Date);

impl TryFrom<String> for Day {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no day, expected one like 2027-01-31");
        let mut fields = text.split('-');
        let mut number = |digits: usize| {
            let field = fields.next().filter(|field| field.len() == digits)?;
            field
                .bytes()
                .all(|byte| byte.is_ascii_digit())
                .then(|| field.parse::<u16>().ok())?
        };
        let (year, month, day) = (number(4), number(2), number(2));
        let (Some(year), Some(month), Some(day), None) = (year, month, day, fields.next()) else {
            return Err(wrong());
        };
        let month = u8::try_from(month)
            .ok()
            .and_then(|month| time::Month::try_from(month).ok());
        let day = u8::try_from(day).ok();
        month
            .zip(day)
            .and_then(|(month, day)| time::Date::from_calendar_date(i32::from(year), month, day).ok())
            .map(Self)
            .ok_or_else(wrong)
    }
}

impl From<Day> for String {
    fn from(day: Day) -> Self {
        day.to_string()
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.0.to_calendar_date();
        write!(f, "{year:04}-{:02}-{day:02}", u8::from(month))
    }
}

/// Lets one rule fail until a day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiver {
    /// The rule.
    pub rule: RuleId,
    /// Why it may fail.
    pub reason: String,
    /// Who answers for it.
    pub approver: String,
    /// The last day it holds. After it the rule fails and says so.
    pub expires_at: Day,
    /// Only this found value is let through; without it, any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

impl Waiver {
    /// Whether it still holds.
    #[must_use]
    pub fn is_in_force(&self, today: time::Date) -> bool {
        today <= self.expires_at.0
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WaiverFile {
    waivers: Vec<WaiverLine>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WaiverLine {
    rule: Spanned<RuleId>,
    reason: String,
    approver: String,
    expires_at: Day,
    #[serde(default)]
    value: Option<String>,
}

/// What is wrong with a waiver of this profile: a rule that the profile does not check, no reason, or no approver.
#[must_use]
pub fn waiver_problem(waiver: &Waiver, profile: &Profile) -> Option<String> {
    let id = &waiver.rule;
    if profile.rule(id).is_none() {
        return Some(format!(
            "waiver for {id}, which profile {} does not check",
            profile.name
        ));
    }
    let is_empty = waiver.reason.trim().is_empty() || waiver.approver.trim().is_empty();
    is_empty.then(|| format!("the waiver for {id} needs a reason and an approver"))
}

/// Reads a file of waivers (`waivers:` and a list).
///
/// # Errors
/// [`YamlError`], with file, line and column; also for a rule that the profile does not have, for a second waiver of
/// one rule, and for a waiver without reason or approver.
pub fn waivers_read(path: &Path, profile: &Profile) -> Result<Vec<Waiver>, YamlError> {
    waivers_parse(path, &read_text(path)?, profile)
}

/// Parses waivers; `path` only names the text in errors.
///
/// # Errors
/// As [`waivers_read`].
pub fn waivers_parse(path: &Path, text: &str, profile: &Profile) -> Result<Vec<Waiver>, YamlError> {
    let file: WaiverFile = parse(path, text)?;
    let mut waivers: Vec<Waiver> = Vec::new();
    for line in file.waivers {
        let at = line.rule.referenced;
        let id = line.rule.value;
        let is_second = waivers.iter().any(|waiver| waiver.rule == id);
        let waiver = Waiver {
            rule: id,
            reason: line.reason,
            approver: line.approver,
            expires_at: line.expires_at,
            value: line.value,
        };
        let second = is_second.then(|| format!("a second waiver for {}", waiver.rule));
        if let Some(problem) = waiver_problem(&waiver, profile).or(second) {
            return Err(YamlError::at(path, text, (at.line(), at.column()), problem));
        }
        waivers.push(waiver);
    }
    Ok(waivers)
}
