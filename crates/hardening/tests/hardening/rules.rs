//! Every rule of every profile has a root that keeps it and one that breaks it.

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::{RootSpec, day, profiles};
use hardening::{Profile, RuleId, RuleResult, evaluate};
use serde::Deserialize;

/// What nothing inside a node can answer, so no root keeps or breaks it.
const OUTSIDE: [&str; 1] = ["GPU-05"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    rule: RuleId,
    #[serde(default = "base")]
    profile: String,
    passes: RootSpec,
    fails: RootSpec,
}

fn base() -> String {
    "base".to_owned()
}

fn cases() -> Vec<Case> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/rules.yaml");
    yaml::read(&file).unwrap()
}

/// Whether a case tells about a rule as this profile has it.
fn is_of(case: &Case, profile: &Profile) -> bool {
    let is_changed = profile.changes.iter().any(|change| change.id == case.rule);
    profile.rule(&case.rule).is_some() && (case.profile == profile.name || !is_changed && case.profile == "base")
}

fn result(profile: &Profile, case: &Case, spec: &RootSpec) -> RuleResult {
    let mut alone = profile.clone();
    alone.rules.retain(|rule| rule.id == case.rule);
    let report = evaluate(&alone, &spec.make(), &[], day("2026-06-01"));
    report.rule(case.rule.as_str()).unwrap().result.clone()
}

#[test]
fn each_rule_passes_where_it_is_kept_and_fails_where_it_is_broken() {
    let cases = cases();
    let mut wrong = Vec::new();
    for profile in &profiles() {
        for case in cases.iter().filter(|case| is_of(case, profile)) {
            let kept = result(profile, case, &case.passes);
            if kept != RuleResult::Passed {
                wrong.push(format!("{} {}: should pass: {}", profile.name, case.rule, kept.why()));
            }
            let broken = result(profile, case, &case.fails);
            if !matches!(&broken, RuleResult::Failed { problems, .. } if !problems.is_empty()) {
                wrong.push(format!("{} {}: should fail: {broken:?}", profile.name, case.rule));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_rule_is_without_such_roots() {
    let cases = cases();
    for profile in &profiles() {
        let tested: BTreeSet<&RuleId> = cases
            .iter()
            .filter(|case| is_of(case, profile))
            .map(|case| &case.rule)
            .collect();
        for rule in &profile.rules {
            let is_outside = OUTSIDE.contains(&rule.id.as_str());
            assert!(
                tested.contains(&rule.id) != is_outside,
                "{} of {}",
                rule.id,
                profile.name
            );
        }
    }
}

#[test]
fn what_only_a_running_node_or_its_bmc_answers_is_never_a_pass_on_a_root() {
    let profiles = profiles();
    let cases = cases();
    for (id, kind) in [
        ("GPU-05", "not from inside the node"),
        ("KRN-15", "only on a running node"),
        ("NET-13", "only on a running node"),
        ("KRN-16", "only on a running node"),
    ] {
        // All that files can say about AppArmor is as it should be.
        let case = cases.iter().find(|case| case.rule.as_str() == "KRN-16").unwrap();
        let made = case.passes.make();
        let root = hardening::Tree::folder(made.folder.path()).unwrap();
        let report = evaluate(&profiles[0], &root, &[], day("2026-06-01"));
        let result = &report.rule(id).unwrap().result;
        assert!(
            matches!(result, RuleResult::NotLookedAt { why } if why.is_elsewhere()),
            "{id} {result:?}"
        );
        assert!(result.why().starts_with(kind), "{id} {}", result.why());
        assert!(!report.could_not_look().iter().any(|rule| rule.id.as_str() == id));
    }
}

#[test]
fn the_profiles_have_every_rule_of_the_list() {
    let expected = [
        ("SSH", 14),
        ("ACC", 11),
        ("FS", 11),
        ("MOD", 11),
        ("KRN", 16),
        ("NET", 13),
        ("SVC", 10),
        ("BAN", 1),
        ("GPU", 5),
    ];
    let base = &profiles()[0];
    for (area, count) in expected {
        for number in 1..=count {
            let id: RuleId = format!("{area}-{number:02}").parse().unwrap();
            let is_off = base.off.iter().any(|off| off.id == id);
            assert_eq!(base.rule(&id).is_some(), id.as_str() != "NET-11", "{id}");
            assert_eq!(is_off, id.as_str() == "NET-11", "{id}");
        }
    }
    assert_eq!(base.rules.len(), 91);
}
