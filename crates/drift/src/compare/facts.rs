//! Packages, units, sysctls, kernel, modules and accounts.

use std::collections::BTreeMap;

use manifest::{Group, Package, User};

use super::value_text;
use crate::{Attributes, Difference, ExpectedFacts, FindingKind, ModuleState, Observation, ObservedFacts, Unknown};

/// Arguments that are of one node or one boot and say nothing about configuration.
const ARGUMENTS_OF_A_BOOT: [&str; 4] = ["BOOT_IMAGE", "root", "initrd", "BOOTIF"];
/// Prefix of the appliance's own arguments.
const ARGUMENTS_OF_THE_APPLIANCE: &str = "plumbline.";

/// What comparing facts found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FactFindings {
    /// Differences by kind, then key.
    pub differences: Vec<Difference>,
    /// What could not be looked at.
    pub unknown: Vec<Unknown>,
    /// How many facts were compared, by kind.
    pub facts_by_kind: BTreeMap<FindingKind, u64>,
}

impl FactFindings {
    pub(super) fn differs(
        &mut self,
        kind: FindingKind,
        key: &str,
        expected: Option<Attributes>,
        actual: Option<Attributes>,
    ) {
        self.differences.push(Difference {
            kind,
            key: value_text(key.as_bytes()),
            expected,
            actual,
        });
    }

    pub(super) fn unknown(&mut self, kind: FindingKind, key: &str, observation: &Observation) {
        self.unknown.push(Unknown {
            kind,
            key: value_text(key.as_bytes()),
            observation: observation.clone(),
        });
    }

    pub(super) fn counted(&mut self, kind: FindingKind, count: usize) {
        *self.facts_by_kind.entry(kind).or_default() += count as u64;
    }

    /// The value, or a note that all of this kind is unknown.
    pub(super) fn known<'a, T>(&mut self, kind: FindingKind, observed: &'a Result<T, Observation>) -> Option<&'a T> {
        match observed {
            Ok(value) => Some(value),
            Err(observation) => {
                self.unknown(kind, Unknown::ALL, observation);
                None
            }
        }
    }

    /// One value that should hold: differs when it is another or none.
    pub(super) fn value(&mut self, kind: FindingKind, key: &str, name: &str, expected: &str, actual: Option<&str>) {
        if actual != Some(expected) {
            let side = |text: &str| Attributes::from_pairs([(name, value_text(text.as_bytes()))]);
            self.differs(kind, key, Some(side(expected)), actual.map(side));
        }
    }
}

/// Compares what a baseline says beside its files. What it does not speak of is not compared.
#[must_use]
pub fn compare_facts(expected: &ExpectedFacts, observed: &ObservedFacts) -> FactFindings {
    let mut findings = FactFindings::default();
    packages(&mut findings, expected, observed);
    units(&mut findings, expected, observed);
    super::sysctls::compare(&mut findings, expected, observed);
    kernel(&mut findings, expected, observed);
    modules(&mut findings, expected, observed);
    accounts(&mut findings, expected, observed);
    super::hardening::compare(&mut findings, expected, observed);
    findings
        .differences
        .sort_by(|a, b| (a.kind, &a.key).cmp(&(b.kind, &b.key)));
    findings
}

fn packages(findings: &mut FactFindings, expected: &ExpectedFacts, observed: &ObservedFacts) {
    let kind = FindingKind::Package;
    if expected.packages.is_empty() {
        return;
    }
    let Some(observed) = findings.known(kind, &observed.packages) else {
        return;
    };
    findings.counted(kind, expected.packages.len());
    let by_key = |packages: &[Package]| -> BTreeMap<String, String> {
        let key = |package: &Package| format!("{}:{}", package.name, package.architecture);
        packages
            .iter()
            .map(|package| (key(package), package.version.clone()))
            .collect()
    };
    let (expected, observed) = (by_key(&expected.packages), by_key(observed));
    for (key, version) in &expected {
        findings.value(kind, key, "version", version, observed.get(key).map(String::as_str));
    }
    for (key, version) in observed.iter().filter(|(key, _)| !expected.contains_key(*key)) {
        let actual = Attributes::from_pairs([("version", value_text(version.as_bytes()))]);
        findings.differs(kind, key, None, Some(actual));
    }
}

fn units(findings: &mut FactFindings, expected: &ExpectedFacts, observed: &ObservedFacts) {
    let kind = FindingKind::Unit;
    if expected.units.is_empty() {
        return;
    }
    let Some(observed) = findings.known(kind, &observed.units) else {
        return;
    };
    findings.counted(kind, expected.units.len());
    // Unit files beyond the baseline's are added files; a running node also has generated and transient ones.
    for (name, state) in &expected.units {
        let actual = observed.get(name).map(String::as_str);
        let follows = |actual| is_enabled_by_generator(state, actual) || is_of_instances(name, state, actual);
        if !actual.is_some_and(follows) {
            findings.value(kind, name, "state", state, actual);
        }
    }
}

/// A template has no life of its own: systemctl calls it `indirect` as soon as one instance is enabled, and each
/// instance is a unit of its own. That it is masked, or gone, counts.
fn is_of_instances(name: &str, expected: &str, actual: &str) -> bool {
    let follows = |state| matches!(state, "enabled" | "disabled" | "indirect");
    name.contains("@.") && follows(expected) && follows(actual)
}

/// Generators (systemd.generator(7)) pull units in for one boot by links below `/run`, which a running system calls
/// `enabled-runtime` (`systemd-remount-fs.service` on every Debian node); an image at rest knows nothing of them. A
/// unit masked for one boot is drift all the same.
fn is_enabled_by_generator(expected: &str, actual: &str) -> bool {
    actual == "enabled-runtime" && matches!(expected, "static" | "disabled" | "indirect")
}

fn kernel(findings: &mut FactFindings, expected: &ExpectedFacts, observed: &ObservedFacts) {
    let kind = FindingKind::KernelRelease;
    if let Some(release) = &expected.kernel_release
        && let Some(actual) = findings.known(kind, &observed.kernel_release)
    {
        findings.counted(kind, 1);
        findings.value(kind, "release", "release", release, Some(actual.trim()));
    }
    let kind = FindingKind::KernelCommandLine;
    if let Some(line) = &expected.command_line
        && let Some(actual) = findings.known(kind, &observed.command_line)
    {
        let (expected, actual) = (arguments_by_name(line), arguments_by_name(actual));
        findings.counted(kind, expected.len());
        for (name, arguments) in &expected {
            findings.value(kind, name, "arguments", arguments, actual.get(name).map(String::as_str));
        }
        for (name, arguments) in actual.iter().filter(|(name, _)| !expected.contains_key(*name)) {
            let actual = Attributes::from_pairs([("arguments", value_text(arguments.as_bytes()))]);
            findings.differs(kind, name, None, Some(actual));
        }
    }
}

/// Arguments of a kernel command line; a double quote holds white space together.
fn command_line_arguments(line: &str) -> Vec<&str> {
    let mut arguments = Vec::new();
    let (mut start, mut quoted) = (None, false);
    for (at, character) in line.char_indices() {
        if character == '"' {
            quoted = !quoted;
        }
        if character.is_ascii_whitespace() && !quoted {
            if let Some(start) = start.take() {
                arguments.push(&line[start..at]);
            }
        } else if start.is_none() {
            start = Some(at);
        }
    }
    if let Some(start) = start {
        arguments.push(&line[start..]);
    }
    arguments
}

/// All arguments of one name in their order (`console=tty0 console=ttyS0`), without those of a node or a boot. Between
/// different names the order means nothing.
fn arguments_by_name(line: &str) -> BTreeMap<String, String> {
    let mut by_name: BTreeMap<String, String> = BTreeMap::new();
    for argument in command_line_arguments(line) {
        let name = argument.split_once('=').map_or(argument, |(name, _)| name);
        if ARGUMENTS_OF_A_BOOT.contains(&name) || name.starts_with(ARGUMENTS_OF_THE_APPLIANCE) {
            continue;
        }
        let known = by_name.entry(name.to_owned()).or_default();
        if !known.is_empty() {
            known.push(' ');
        }
        known.push_str(argument);
    }
    by_name
}

fn modules(findings: &mut FactFindings, expected: &ExpectedFacts, observed: &ObservedFacts) {
    let kind = FindingKind::Module;
    let named = expected.modules_required.len() + expected.modules_forbidden.len();
    if named == 0 {
        return;
    }
    let Some(observed) = findings.known(kind, &observed.modules) else {
        return;
    };
    findings.counted(kind, named);
    let state = |state: &str| Some(Attributes::from_pairs([("state", state)]));
    for name in &expected.modules_required {
        if !observed.contains_key(name) {
            findings.differs(kind, name, state("loaded"), None);
        }
    }
    for name in &expected.modules_forbidden {
        match observed.get(name) {
            Some(ModuleState::Loaded) => findings.differs(kind, name, None, state("loaded")),
            Some(ModuleState::BuiltIn) => findings.differs(kind, name, None, state("built_in")),
            None => {}
        }
    }
}

fn accounts(findings: &mut FactFindings, expected: &ExpectedFacts, observed: &ObservedFacts) {
    if !expected.users.is_empty()
        && let Some(users) = findings.known(FindingKind::User, &observed.users)
    {
        let side = |user: &User| {
            Attributes::from_pairs([
                ("uid", user.uid.to_string()),
                ("gid", user.gid.to_string()),
                ("home", value_text(user.home.as_bytes())),
                ("shell", value_text(user.shell.as_bytes())),
            ])
        };
        let expected = expected
            .users
            .iter()
            .map(|(name, user)| (name.clone(), side(user)))
            .collect();
        let observed = users.iter().map(|user| (user.name.clone(), side(user))).collect();
        records(findings, FindingKind::User, &expected, &observed);
    }
    if !expected.groups.is_empty()
        && let Some(groups) = findings.known(FindingKind::Group, &observed.groups)
    {
        let side = |group: &Group| {
            let mut members = group.members.clone();
            members.sort();
            Attributes::from_pairs([
                ("gid", group.gid.to_string()),
                ("members", value_text(members.join(",").as_bytes())),
            ])
        };
        let expected = expected
            .groups
            .iter()
            .map(|(name, group)| (name.clone(), side(group)))
            .collect();
        let observed = groups.iter().map(|group| (group.name.clone(), side(group))).collect();
        records(findings, FindingKind::Group, &expected, &observed);
    }
}

/// Records of several attributes by name: added, removed, or only the attributes that differ.
fn records(
    findings: &mut FactFindings,
    kind: FindingKind,
    expected: &BTreeMap<String, Attributes>,
    observed: &BTreeMap<String, Attributes>,
) {
    findings.counted(kind, expected.len());
    for (name, should) in expected {
        let Some(is) = observed.get(name) else {
            findings.differs(kind, name, Some(should.clone()), None);
            continue;
        };
        if should != is {
            let only = |of: &Attributes, other: &Attributes| {
                Attributes::from_pairs(
                    of.0.iter()
                        .filter(|(name, value)| other.get(name) != Some(value))
                        .map(|(name, value)| (name.clone(), value.clone())),
                )
            };
            findings.differs(kind, name, Some(only(should, is)), Some(only(is, should)));
        }
    }
    for (name, is) in observed.iter().filter(|(name, _)| !expected.contains_key(*name)) {
        findings.differs(kind, name, None, Some(is.clone()));
    }
}

#[cfg(test)]
#[path = "facts_tests.rs"]
mod tests;
