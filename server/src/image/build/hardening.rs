//! Hardening in a build: what a profile asks for beforehand, its rules written into the tree, and the look at the end.
//!
//! Days are those of the image's own time, so that a locked build is the same image on any day; only whether a waiver is
//! over is asked of the calendar, and one that is over ends the build before it begins.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use ::hardening::{Applied, Carried, Demands, Report, RuleReport, Tree, apply, demands, evaluate};
use manifest::{HARDENING_PROFILE_PATH, HARDENING_REPORT_PATH};
use serde::Serialize;

use super::super::recipe::{Hardening, Line, Word};
use super::command::{command_in, output};
use super::{Build, BuildError, files};

/// Rules named in one error.
const NAMED_MAX: usize = 30;

/// What the recipe's profile asks of packages and the kernel command line.
pub(super) fn wanted(build: &Build, hardening: &Hardening, packages: &[Word]) -> Result<Demands, BuildError> {
    let today = time::OffsetDateTime::now_utc().date();
    if let Some(over) = hardening.waivers.iter().find(|waiver| !waiver.is_in_force(today)) {
        return Err(BuildError::WaiverOver {
            rule: over.rule.to_string(),
            approver: over.approver.clone(),
            until: over.expires_at.to_string(),
        });
    }
    let demands = demands(&hardening.profile, &hardening.waivers, build.day());
    let unwanted = packages
        .iter()
        .find(|package| demands.packages_unwanted.contains(package.as_str()));
    match unwanted {
        Some(package) => Err(BuildError::PackageUnwanted {
            package: package.to_string(),
            profile: hardening.profile.name.clone(),
        }),
        None => Ok(demands),
    }
}

/// The packages of the recipe, and those that its profile needs.
pub(super) fn packages(recipe: &[Word], demands: &Demands) -> Result<Vec<Word>, BuildError> {
    let mut packages = recipe.to_vec();
    for name in &demands.packages_needed {
        let word = Word::try_from(name.clone()).map_err(|problem| BuildError::Hardening {
            profile: "packages".to_owned(),
            rules: problem,
        })?;
        if !packages.contains(&word) {
            packages.push(word);
        }
    }
    Ok(packages)
}

/// The recipe's kernel command line, and behind it the arguments that its profile needs. What the recipe says of an
/// argument stays: the profile's rule tells whether it will do.
pub(super) fn command_line(recipe: Option<&Line>, demands: &Demands) -> String {
    let mut line = recipe.map(ToString::to_string).unwrap_or_default();
    let name = |argument: &str| argument.split('=').next().unwrap_or_default().to_owned();
    let known: BTreeSet<String> = line.split_ascii_whitespace().map(name).collect();
    for argument in &demands.command_line_tokens {
        if !known.contains(&name(argument)) {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(argument);
        }
    }
    line
}

/// Writes the rules into the tree.
pub(super) fn bring_about(build: &Build, root: &Path, hardening: &Hardening) -> Result<Applied, BuildError> {
    let applied =
        apply(&hardening.profile, root, &hardening.waivers, build.day()).map_err(BuildError::HardeningApply)?;
    audit_rules(build, root)?;
    let line = format!(
        "profile {}: {} paths changed, {} rules waived",
        hardening.profile.name,
        applied.written.len(),
        applied.waived.len()
    );
    build.reporter.say("hardening", line)?;
    Ok(applied)
}

/// Puts the files of `/etc/audit/rules.d` together as auditd would at a node's first start, so that it finds nothing to
/// write then.
fn audit_rules(build: &Build, root: &Path) -> Result<(), BuildError> {
    if !root.join("usr/sbin/augenrules").is_file() && !root.join("sbin/augenrules").is_file() {
        return Ok(());
    }
    output("augenrules", command_in(root, "augenrules", build.epoch))?;
    files::remove(root, &["/etc/audit/audit.rules.prev".parse()?])?;
    Ok(())
}

/// Looks at the finished tree, refuses it where a rule fails or could not be looked at, and leaves profile and report
/// in it.
pub(super) fn look(build: &Build, root: &Path, hardening: &Hardening, command_line: &str) -> Result<(), BuildError> {
    let profile = &hardening.profile;
    let tree = Tree::folder(root)
        .map_err(BuildError::io("opening the tree"))?
        .with_command_line(command_line);
    let report = evaluate(profile, &tree, &hardening.waivers, build.day());
    let counts = &report.counts;
    let line = format!(
        "profile {}: {} passed, {} waived, {} not applicable, {} for a running node only",
        profile.name, counts.passed, counts.waived, counts.not_applicable, counts.not_looked_at
    );
    if let Some(rules) = refused(&report) {
        return Err(BuildError::Hardening {
            profile: profile.name.clone(),
            rules,
        });
    }
    build.reporter.say("hardening", line)?;
    let carried = Carried {
        profile: profile.clone(),
        waivers: hardening.waivers.clone(),
    };
    write_json(root, HARDENING_PROFILE_PATH, &carried)?;
    write_json(root, HARDENING_REPORT_PATH, &report)
}

fn write_json<T: Serialize>(root: &Path, path: &str, value: &T) -> Result<(), BuildError> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(std::io::Error::other)
        .map_err(BuildError::io(format!("writing {path}")))?;
    text.push('\n');
    files::write(root, &path.parse()?, text.as_bytes())
}

/// The rules that stand against an image, in words; `None` where nothing does.
fn refused(report: &Report) -> Option<String> {
    let mut rules: Vec<&RuleReport> = report.failed();
    rules.extend(report.could_not_look());
    if rules.is_empty() {
        return None;
    }
    let mut text = String::new();
    for rule in rules.iter().take(NAMED_MAX) {
        let result = rule.result.as_str().replace('_', " ");
        let _ = write!(
            text,
            "\n  {} {result}: {}\n    {}",
            rule.id,
            rule.title,
            rule.result.why()
        );
    }
    if rules.len() > NAMED_MAX {
        let _ = write!(text, "\n  and {} more", rules.len() - NAMED_MAX);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demands_of(arguments: &[&str], packages: &[&str]) -> Demands {
        let set = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Demands {
            packages_needed: set(packages),
            packages_unwanted: BTreeSet::new(),
            command_line_tokens: set(arguments),
        }
    }

    #[test]
    fn the_profiles_arguments_come_behind_and_replace_nothing() {
        let demands = demands_of(&["audit=1", "lockdown=integrity"], &[]);
        let line = |text: &str| {
            let line = Line::try_from(text.to_owned()).unwrap();
            command_line(Some(&line), &demands)
        };
        assert_eq!(line("ro quiet"), "ro quiet audit=1 lockdown=integrity");
        assert_eq!(line("audit=0 ro"), "audit=0 ro lockdown=integrity");
        assert_eq!(command_line(None, &demands), "audit=1 lockdown=integrity");
    }

    #[test]
    fn the_profiles_packages_are_added_once() {
        let word = |text: &str| Word::try_from(text.to_owned()).unwrap();
        let packages = packages(&[word("chrony"), word("nano")], &demands_of(&[], &["auditd", "chrony"])).unwrap();
        let names: Vec<_> = packages.iter().map(Word::as_str).collect();
        assert_eq!(names, ["chrony", "nano", "auditd"]);
    }
}
