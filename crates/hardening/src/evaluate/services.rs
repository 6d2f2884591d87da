//! Checks of units, packages, apt's sources and audit rules.

use manifest::wildcard_matches;

use super::{Context, Look, Verdict, problem};
use crate::check::{AptSources, AuditRules, PackageCheck, PackageState, UnitCheck, UnitExpected};
use crate::facts::units::{self, UnitState};
use crate::facts::{apt, audit};

pub(super) fn unit(context: &Context<'_>, check: &UnitCheck) -> Look {
    let state = units::state(context.place, &check.name)?;
    let (holds, expected) = match check.state {
        UnitExpected::Enabled => (matches!(state, UnitState::Enabled(_)), "enabled"),
        UnitExpected::Masked => (matches!(state, UnitState::Masked(_) | UnitState::Absent), "masked"),
        UnitExpected::Off => (!matches!(state, UnitState::Enabled(_)), "off"),
    };
    Ok(Verdict::of(holds, || {
        let (found, at) = state.describe();
        problem(format!("{} {expected}", check.name), found, at)
    }))
}

pub(super) fn one_unit(context: &Context<'_>, names: &[String]) -> Look {
    let mut enabled = Vec::new();
    for name in names {
        if matches!(units::state(context.place, name)?, UnitState::Enabled(_)) {
            enabled.push(name.as_str());
        }
    }
    Ok(Verdict::of(enabled.len() == 1, || {
        let found = if enabled.is_empty() {
            "none".to_owned()
        } else {
            enabled.join(", ")
        };
        problem(
            format!("exactly one of {} enabled", names.join(", ")),
            &found,
            units::FOLDERS[0],
        )
    }))
}

pub(super) fn package(context: &Context<'_>, check: &PackageCheck) -> Look {
    const AT: &str = "/var/lib/dpkg/status";
    let installed = context.packages()?;
    let matching = |name: &str| {
        installed
            .iter()
            .filter(|one| wildcard_matches(name.as_bytes(), one.as_bytes()))
            .collect::<Vec<_>>()
    };
    let mut problems = Vec::new();
    for name in &check.names {
        let found = matching(name);
        match check.state {
            PackageState::Present if found.is_empty() => {
                problems.push(problem(format!("{name} installed"), "not installed", AT));
            }
            PackageState::Present => {}
            PackageState::Absent => {
                problems.extend(
                    found
                        .iter()
                        .map(|one| problem(format!("{one} not installed"), "installed", AT)),
                );
            }
        }
    }
    Ok(Verdict::from_problems(problems))
}

pub(super) fn audit_rules(context: &Context<'_>, check: &AuditRules) -> Look {
    const AT: &str = "/etc/audit/rules.d";
    let rules = audit::rules(context.place)?;
    let mut problems = Vec::new();
    for pattern in &check.contains {
        if !rules.iter().any(|(rule, _)| pattern.is_match(rule)) {
            problems.push(problem(
                format!("a rule that matches {}", pattern.as_str()),
                "no such rule",
                AT,
            ));
        }
    }
    for pattern in &check.lacks {
        for (rule, at) in rules.iter().filter(|(rule, _)| pattern.is_match(rule)) {
            problems.push(problem(format!("no rule that matches {}", pattern.as_str()), rule, at));
        }
    }
    if let Some(last) = &check.last {
        let found = rules.last();
        if found.is_none_or(|(rule, _)| rule != last) {
            let (rule, at) = found.map_or(("no rules", AT), |(rule, at)| (rule, at));
            problems.push(problem(format!("{last} as the last rule"), rule, at));
        }
    }
    Ok(Verdict::from_problems(problems))
}

pub(super) fn apt_sources(context: &Context<'_>, check: &AptSources) -> Look {
    let mut problems = Vec::new();
    let mut count = 0;
    for (path, text) in apt::files(context.place)? {
        for source in apt::sources(&path, &text) {
            count += 1;
            let shown = source.uris.join(" ");
            if !source.is_signed_by {
                problems.push(problem("Signed-By and a keyring", &shown, &source.at));
            }
            if source.is_trusted {
                problems.push(problem("not trusted without a signature", &shown, &source.at));
            }
            for uri in source.uris.iter().filter(|_| !check.hosts.is_empty()) {
                let rest = uri.split_once("://").map_or(uri.as_str(), |(_, rest)| rest);
                let host = rest.split(['/', ':']).next().unwrap_or(rest);
                if !check.hosts.iter().any(|allowed| allowed == host) {
                    problems.push(problem(format!("only {}", check.hosts.join(", ")), uri, &source.at));
                }
            }
        }
    }
    if count == 0 {
        return Ok(Verdict::NotApplicable("no sources of packages here".to_owned()));
    }
    Ok(Verdict::from_problems(problems))
}
