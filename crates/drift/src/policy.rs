//! How much a finding matters: the site's policy, as data.
//!
//! Policy is the server's and changes no digest: agents report the same whatever it says. Parsing the file it is
//! written in is the caller's.

use std::fmt;

use manifest::{PathPattern, wildcard_matches};
use serde::{Deserialize, Deserializer};

use crate::{Difference, FindingKind, Severity};

/// Rules in order; the first that matches decides.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Severity of what no rule matches.
    pub default_severity: Severity,
    /// The rules.
    #[serde(default)]
    pub rules: Vec<Rule>,
}

/// One rule: everything it names must hold.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The kind of thing; any when left out.
    #[serde(default)]
    pub kind: Option<FindingKind>,
    /// Patterns, one of which the key must match; any key when left out. For files they are path patterns (`*` within
    /// a component, `**` for any number of components), for everything else `*` stands for any text and `?` for one
    /// byte.
    #[serde(default)]
    pub keys: Vec<KeyPattern>,
    /// Added, removed or changed; any when left out.
    #[serde(default)]
    pub change: Option<Change>,
    /// What it says.
    pub severity: Severity,
}

/// In which way something differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// There, and should not be.
    Added,
    /// Not there, and should be.
    Removed,
    /// There in another way than it should be.
    Changed,
}

impl Change {
    /// The way in which this differs.
    #[must_use]
    pub const fn of(difference: &Difference) -> Self {
        match (&difference.expected, &difference.actual) {
            (None, _) => Self::Added,
            (Some(_), None) => Self::Removed,
            (Some(_), Some(_)) => Self::Changed,
        }
    }
}

/// A pattern over keys.
#[derive(Clone, PartialEq, Eq)]
pub enum KeyPattern {
    /// Of paths: it begins with `/`.
    Path(PathPattern),
    /// Of everything else.
    Text(String),
}

impl fmt::Debug for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(pattern) => fmt::Debug::fmt(pattern, f),
            Self::Text(text) => fmt::Debug::fmt(text, f),
        }
    }
}

impl<'de> Deserialize<'de> for KeyPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.starts_with('/') {
            let pattern = text.try_into().map_err(serde::de::Error::custom)?;
            return Ok(Self::Path(pattern));
        }
        if text.is_empty() {
            return Err(serde::de::Error::custom("an empty pattern matches nothing"));
        }
        Ok(Self::Text(text))
    }
}

impl KeyPattern {
    fn matches(&self, difference: &Difference) -> bool {
        match (self, difference.kind) {
            (Self::Path(pattern), FindingKind::File) => difference.key.parse().is_ok_and(|path| pattern.matches(&path)),
            (Self::Text(pattern), kind) if kind != FindingKind::File => {
                wildcard_matches(pattern.as_bytes(), difference.key.as_bytes())
            }
            _ => false,
        }
    }
}

impl Rule {
    fn matches(&self, difference: &Difference) -> bool {
        self.kind.is_none_or(|kind| kind == difference.kind)
            && self.change.is_none_or(|change| change == Change::of(difference))
            && (self.keys.is_empty() || self.keys.iter().any(|pattern| pattern.matches(difference)))
    }
}

impl Policy {
    /// How much this matters.
    #[must_use]
    pub fn severity(&self, difference: &Difference) -> Severity {
        let rule = self.rules.iter().find(|rule| rule.matches(difference));
        rule.map_or(self.default_severity, |rule| rule.severity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attributes;

    fn pattern(text: &str) -> KeyPattern {
        if text.starts_with('/') {
            KeyPattern::Path(text.to_owned().try_into().unwrap())
        } else {
            KeyPattern::Text(text.to_owned())
        }
    }

    fn rule(kind: Option<FindingKind>, keys: &[&str], change: Option<Change>, severity: Severity) -> Rule {
        Rule {
            kind,
            keys: keys.iter().map(|key| pattern(key)).collect(),
            change,
            severity,
        }
    }

    fn difference(kind: FindingKind, key: &str, change: Change) -> Difference {
        let side = Attributes::from_pairs([("x", "y")]);
        Difference {
            kind,
            key: key.into(),
            expected: (change != Change::Added).then(|| side.clone()),
            actual: (change != Change::Removed).then_some(side),
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let policy = Policy {
            default_severity: Severity::Low,
            rules: vec![
                rule(None, &["/etc/ssh/moduli"], None, Severity::Info),
                rule(
                    Some(FindingKind::File),
                    &["/etc/ssh/**", "/boot/**"],
                    None,
                    Severity::High,
                ),
                rule(Some(FindingKind::File), &[], Some(Change::Removed), Severity::Medium),
                rule(
                    Some(FindingKind::Package),
                    &["nvidia-*:amd64"],
                    None,
                    Severity::Critical,
                ),
            ],
        };
        let file = |key: &str| difference(FindingKind::File, key, Change::Changed);
        for (difference, expected) in [
            (file("/etc/ssh/moduli"), Severity::Info),
            (file("/etc/ssh/sshd_config.d/x.conf"), Severity::High),
            (file("/boot/vmlinuz"), Severity::High),
            (file("/etc/motd"), Severity::Low),
            (
                difference(FindingKind::File, "/etc/motd", Change::Removed),
                Severity::Medium,
            ),
            (
                difference(FindingKind::Package, "nvidia-kernel-dkms:amd64", Change::Added),
                Severity::Critical,
            ),
            (
                difference(FindingKind::Package, "nvidia:amd64", Change::Added),
                Severity::Low,
            ),
            // A path pattern says nothing of a unit that happens to look like one.
            (
                difference(FindingKind::Unit, "/etc/ssh/moduli", Change::Changed),
                Severity::Low,
            ),
        ] {
            assert_eq!(policy.severity(&difference), expected, "{difference:?}");
        }
    }

    #[test]
    fn stars_in_text_do_not_run_away() {
        assert!(wildcard_matches(b"*a*b*", b"xxaxxbxx"));
        assert!(!wildcard_matches(b"*a*b", b"xxaxxbxx"));
        let (pattern, text) = ([b"*a".repeat(40), b"b".to_vec()].concat(), b"a".repeat(4_000));
        assert!(!wildcard_matches(&pattern, &text));
    }
}
