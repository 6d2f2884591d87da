//! Hardening rules that do not hold on a node.
//!
//! A rule says in other words what files, units, sysctls and modules say: whoever changes one of those breaks a rule as
//! well. One cause is one finding, so a rule is told only where nothing else that was found explains it: what runs
//! otherwise than the files say, what listens, what the firmware does, what a waiver allowed until yesterday.

use std::collections::BTreeMap;

use manifest::PathPattern;

use super::FactFindings;
use super::value_text;
use crate::{Attributes, Difference, ExpectedFacts, FindingKind, ObservedFacts, RuleProblem};

pub(super) fn compare(findings: &mut FactFindings, expected: &ExpectedFacts, observed: &ObservedFacts) {
    let kind = FindingKind::Hardening;
    if expected.hardening_profile.is_none() {
        return;
    }
    let Some(rules) = findings.known(kind, &observed.hardening) else {
        return;
    };
    findings.counted(kind, rules.looked_at);
    for (id, problems) in &rules.failed {
        // Two problems at one place are told together: neither may stand for the other.
        let side = |text: fn(&RuleProblem) -> &str| {
            let mut texts: BTreeMap<String, String> = BTreeMap::new();
            for problem in problems {
                let at = texts.entry(problem.place.clone()).or_default();
                if !at.is_empty() {
                    at.push_str("; ");
                }
                at.push_str(text(problem));
            }
            let pairs = texts.into_iter();
            Some(Attributes::from_pairs(
                pairs.map(|(place, text)| (place, value_text(text.as_bytes()))),
            ))
        };
        findings.differs(
            kind,
            id,
            side(|problem| &problem.expected),
            side(|problem| &problem.found),
        );
    }
    for (id, observation) in &rules.unknown {
        findings.unknown(kind, id, observation);
    }
}

/// Whether other findings of the node say all that a rule's finding says.
pub(super) fn is_explained(rule: &Difference, others: &[Difference]) -> bool {
    let Some(actual) = rule.actual.as_ref().filter(|actual| !actual.0.is_empty()) else {
        return false;
    };
    actual.0.iter().all(|(place, found)| {
        let wanted = rule
            .expected
            .as_ref()
            .and_then(|expected| expected.get(place))
            .unwrap_or_default();
        let is_of = |other: &Difference| match other.kind {
            FindingKind::Hardening => false,
            FindingKind::File => concerns(place, &other.key),
            _ => [place.as_str(), found, wanted]
                .into_iter()
                .any(|text| names(text, &other.key)),
        };
        others.iter().any(is_of)
    })
}

/// Whether a place is a path, or lies in it or above it, or is a list or pattern of paths that has it.
fn concerns(place: &str, path: &str) -> bool {
    let is_below = |inner: &str, outer: &str| {
        let rest = inner.strip_prefix(outer);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ':']))
    };
    let pattern: Option<PathPattern> = place.parse().ok();
    let path_of_tree = path.parse().ok();
    is_below(place, path)
        || is_below(path, place)
        || place.split(", ").any(|one| one == path)
        || pattern
            .zip(path_of_tree)
            .is_some_and(|(pattern, path)| pattern.matches(&path))
}

/// Whether a text holds a key as a word of its own.
fn names(text: &str, key: &str) -> bool {
    let name = key.split_once(':').map_or(key, |(name, _)| name);
    let is_word = |character: char| character.is_alphanumeric() || "._-".contains(character);
    text.split(|character| !is_word(character))
        .any(|word| !word.is_empty() && (word == name || word == key || word.replace('-', "_") == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(kind: FindingKind, key: &str, place: &str, found: &str) -> Difference {
        let side = Attributes::from_pairs([(place, found)]);
        Difference {
            kind,
            key: key.to_owned(),
            expected: Some(side.clone()),
            actual: Some(side),
        }
    }

    #[test]
    fn a_rule_is_told_where_nothing_else_says_it() {
        let rule = |place: &str, found: &str| finding(FindingKind::Hardening, "SSH-01", place, found);
        let file = |path: &str| finding(FindingKind::File, path, "digest", "x");
        let sysctl = finding(FindingKind::SysctlRunning, "kernel.kptr_restrict", "value", "0");
        let module = finding(FindingKind::Module, "usb_storage", "state", "loaded");
        for (rule, other, explained) in [
            (
                rule("/etc/ssh/sshd_config:3", "yes"),
                file("/etc/ssh/sshd_config"),
                true,
            ),
            (
                rule("/etc/ssh/sshd_config:3", "yes"),
                file("/etc/ssh/sshd_config.d/x.conf"),
                false,
            ),
            (rule("/etc/profile.d", "not set"), file("/etc/profile.d/umask.sh"), true),
            (
                rule("/etc/sudoers.d/*", "no such line"),
                file("/etc/sudoers.d/60-plumbline"),
                true,
            ),
            (
                rule("/etc/sudoers, /etc/sudoers.d/a", "no such line"),
                file("/etc/sudoers"),
                true,
            ),
            (rule("/proc/sys/kernel/kptr_restrict", "0"), sysctl.clone(), false),
            (rule("the kernel: kernel.kptr_restrict", "0"), sysctl, true),
            (rule("module usb-storage", "loaded"), module, true),
            (rule("/proc/net/tcp", "TCP port 111 listens"), file("/etc/motd"), false),
        ] {
            assert_eq!(
                is_explained(&rule, std::slice::from_ref(&other)),
                explained,
                "{rule:?} by {other:?}"
            );
        }
        let mut two = rule("/etc/motd", "x");
        two.actual = Some(Attributes::from_pairs([("/etc/motd", "x"), ("/tmp", "exec")]));
        assert!(
            !is_explained(&two, &[file("/etc/motd")]),
            "one of two places is not explained"
        );
        two.actual = Some(Attributes::default());
        assert!(
            !is_explained(&two, &[file("/etc/motd")]),
            "nothing said is nothing explained"
        );
    }
}
