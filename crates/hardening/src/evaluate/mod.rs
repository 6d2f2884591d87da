//! Looking: each check of each rule, at a built root or a running node.
//!
//! A check gives a [`Verdict`], or [`Unlooked`] for an error: `?` carries "could not look" up to the rule, and nothing
//! on the way can turn it into a pass. Files that many rules ask about are read once.

mod accounts;
mod configuration;
mod files;
mod kernel;
mod live;
mod services;

use std::cell::OnceCell;
use std::collections::BTreeSet;

use manifest::escape_bytes;

use crate::check::Check;
use crate::facts::accounts::{Group, User};
use crate::facts::modprobe::Command;
use crate::facts::sshd::Setting;
use crate::facts::sysctl::Assignment;
use crate::facts::{self};
use crate::place::{Place, Unlooked};
use crate::profile::Profile;
use crate::report::{Problem, Report, RuleReport, RuleResult, WaiverExpired};
use crate::rule::{Condition, Rule};
use crate::waiver::{Day, Waiver};

/// Longest found value that is reported, in characters.
const FOUND_CHARACTERS_MAX: usize = 300;
/// Problems of one rule that are reported; more are counted.
const PROBLEMS_MAX: usize = 20;

/// Looks at every rule of a profile. A waiver holds through its last day; `today` is that of whoever asks.
#[must_use]
pub fn evaluate(profile: &Profile, place: &dyn Place, waivers: &[Waiver], today: time::Date) -> Report {
    let context = Context::new(place);
    let mut rules: Vec<RuleReport> = Vec::with_capacity(profile.rules.len() + profile.off.len());
    for rule in &profile.rules {
        let waiver = waivers.iter().find(|waiver| waiver.rule == rule.id);
        rules.push(RuleReport {
            id: rule.id.clone(),
            title: rule.title.clone(),
            severity: rule.severity,
            result: settle(look(&context, rule), waiver, today),
        });
    }
    for off in &profile.off {
        rules.push(RuleReport {
            id: off.id.clone(),
            title: off.title.clone(),
            severity: crate::rule::Severity::Info,
            result: RuleResult::NotApplicable {
                why: format!("off in this profile: {}", off.reason),
            },
        });
    }
    Report::new(&profile.name, place.is_running(), Day(today), rules)
}

/// How one check came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// As it should be.
    Pass,
    /// Not so.
    Fail(Vec<Problem>),
    /// Nothing here that it is about.
    NotApplicable(String),
}

impl Verdict {
    /// Fails with one problem, or passes.
    pub(crate) fn of(holds: bool, problem: impl FnOnce() -> Problem) -> Self {
        if holds { Self::Pass } else { Self::Fail(vec![problem()]) }
    }

    /// Fails when there is any problem.
    pub(crate) fn from_problems(problems: Vec<Problem>) -> Self {
        if problems.is_empty() {
            Self::Pass
        } else {
            Self::Fail(problems)
        }
    }
}

/// What one check gives.
pub(crate) type Look = Result<Verdict, Unlooked>;

/// A problem; what was found comes from files of the place, so it is escaped and cut.
pub(crate) fn problem(expected: impl Into<String>, found: &str, place: impl Into<String>) -> Problem {
    let mut found: String = escape_bytes(found.as_bytes());
    if found.chars().count() > FOUND_CHARACTERS_MAX {
        found = found.chars().take(FOUND_CHARACTERS_MAX).collect();
        found.push('…');
    }
    Problem {
        expected: expected.into(),
        found,
        place: place.into(),
    }
}

/// The place with what has been read of it.
pub(crate) struct Context<'a> {
    pub(crate) place: &'a dyn Place,
    sshd: OnceCell<Result<Option<Vec<Setting>>, Unlooked>>,
    sysctls: OnceCell<Result<Vec<Assignment>, Unlooked>>,
    modprobe: OnceCell<Result<Vec<Command>, Unlooked>>,
    packages: OnceCell<Result<BTreeSet<String>, Unlooked>>,
    users: OnceCell<Result<Vec<User>, Unlooked>>,
    groups: OnceCell<Result<Vec<Group>, Unlooked>>,
    walk: OnceCell<Result<files::Walked, Unlooked>>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(place: &'a dyn Place) -> Self {
        Self {
            place,
            sshd: OnceCell::new(),
            sysctls: OnceCell::new(),
            modprobe: OnceCell::new(),
            packages: OnceCell::new(),
            users: OnceCell::new(),
            groups: OnceCell::new(),
            walk: OnceCell::new(),
        }
    }

    pub(crate) fn sshd(&self) -> Result<Option<&[Setting]>, Unlooked> {
        let settings = kept(&self.sshd, || facts::sshd::settings(self.place))?;
        Ok(settings.as_deref())
    }

    pub(crate) fn sysctls(&self) -> Result<&[Assignment], Unlooked> {
        kept(&self.sysctls, || facts::sysctl::assignments(self.place)).map(Vec::as_slice)
    }

    pub(crate) fn modprobe(&self) -> Result<&[Command], Unlooked> {
        kept(&self.modprobe, || facts::modprobe::commands(self.place)).map(Vec::as_slice)
    }

    pub(crate) fn packages(&self) -> Result<&BTreeSet<String>, Unlooked> {
        kept(&self.packages, || facts::dpkg::installed(self.place))
    }

    pub(crate) fn users(&self) -> Result<&[User], Unlooked> {
        kept(&self.users, || facts::accounts::users(self.place)).map(Vec::as_slice)
    }

    pub(crate) fn groups(&self) -> Result<&[Group], Unlooked> {
        kept(&self.groups, || facts::accounts::groups(self.place)).map(Vec::as_slice)
    }

    pub(crate) fn walked(&self) -> Result<&files::Walked, Unlooked> {
        kept(&self.walk, || files::walk(self))
    }
}

fn kept<T>(cell: &OnceCell<Result<T, Unlooked>>, read: impl FnOnce() -> Result<T, Unlooked>) -> Result<&T, Unlooked> {
    cell.get_or_init(read).as_ref().map_err(Clone::clone)
}

/// Looks at one rule.
fn look(context: &Context<'_>, rule: &Rule) -> Look {
    for condition in &rule.applies_when {
        if let Some(why) = unmet(context, condition)? {
            return Ok(Verdict::NotApplicable(why));
        }
    }
    all(context, &rule.checks)
}

/// Why a condition does not hold here; `None` when it does.
pub(crate) fn unmet(context: &Context<'_>, condition: &Condition) -> Result<Option<String>, Unlooked> {
    let (paths, wanted) = match condition {
        Condition::AnyPath(paths) => (paths, true),
        Condition::NoPath(paths) => (paths, false),
    };
    for path in paths {
        if context.place.metadata(path)?.is_some() {
            return Ok((!wanted).then(|| format!("{path} is there")));
        }
    }
    let names: Vec<_> = paths.iter().map(ToString::to_string).collect();
    Ok(wanted.then(|| format!("no {} here", names.join(" or "))))
}

/// All must hold. A failure that was seen stands whatever else could not be looked at; without one, what could not be
/// looked at stands before what passed.
fn all(context: &Context<'_>, checks: &[Check]) -> Look {
    let mut problems = Vec::new();
    let mut unlooked: Option<Unlooked> = None;
    let mut not_applicable = None;
    let mut passed = false;
    for check in checks {
        match one(context, check) {
            Ok(Verdict::Pass) => passed = true,
            Ok(Verdict::Fail(found)) => problems.extend(found),
            Ok(Verdict::NotApplicable(why)) => not_applicable = not_applicable.or(Some(why)),
            // What went wrong here tells more than what only another place can answer.
            Err(why)
                if unlooked
                    .as_ref()
                    .is_none_or(|known| known.is_elsewhere() && !why.is_elsewhere()) =>
            {
                unlooked = Some(why);
            }
            Err(_) => {}
        }
    }
    if !problems.is_empty() {
        return Ok(Verdict::Fail(problems));
    }
    match (unlooked, not_applicable) {
        (Some(why), _) => Err(why),
        (None, Some(why)) if !passed => Ok(Verdict::NotApplicable(why)),
        _ => Ok(Verdict::Pass),
    }
}

/// One group must hold. Only when none does, what could not be looked at counts; then the failures of all.
fn any(context: &Context<'_>, groups: &[Vec<Check>]) -> Look {
    let mut problems = Vec::new();
    let mut unlooked = None;
    let mut not_applicable = None;
    for group in groups {
        match all(context, group) {
            Ok(Verdict::Pass) => return Ok(Verdict::Pass),
            Ok(Verdict::Fail(found)) => problems.extend(found),
            Ok(Verdict::NotApplicable(why)) => not_applicable = not_applicable.or(Some(why)),
            Err(why) => unlooked = unlooked.or(Some(why)),
        }
    }
    match (unlooked, not_applicable) {
        (Some(why), _) => Err(why),
        (None, Some(why)) if problems.is_empty() => Ok(Verdict::NotApplicable(why)),
        _ => Ok(Verdict::Fail(problems)),
    }
}

fn one(context: &Context<'_>, check: &Check) -> Look {
    match check {
        Check::AnyOf(groups) => any(context, groups),
        Check::Sshd(check) => configuration::sshd(context, check),
        Check::Sysctl(check) => kernel::sysctl(context, check),
        Check::File(check) => files::file(context, check),
        Check::ModuleDisabled(module) => kernel::module_disabled(context, module),
        Check::ModuleOption(check) => kernel::module_option(context, check),
        Check::Mount(check) => kernel::mount(context, check),
        Check::Unit(check) => services::unit(context, check),
        Check::OneUnit(units) => services::one_unit(context, units),
        Check::Package(check) => services::package(context, check),
        Check::LoginDefs(check) => configuration::login_defs(context, check),
        Check::Pam(check) => accounts::pam(context, check),
        Check::CommandLine(check) => kernel::command_line(context, check),
        Check::Accounts(check) => accounts::accounts(context, check),
        Check::AuditRules(check) => services::audit_rules(context, check),
        Check::Inventory(check) => files::inventory(context, check),
        Check::Tree(check) => files::tree(context, *check),
        Check::Limits(check) => configuration::limits(context, check),
        Check::SystemdSetting(check) => configuration::systemd_setting(context, check),
        Check::AptSources(check) => services::apt_sources(context, check),
        Check::Kubelet(check) => configuration::kubelet(context, check),
        Check::Live(check) => live::live(context, check),
    }
}

/// Holds what was seen against the rule's waiver.
fn settle(look: Look, waiver: Option<&Waiver>, today: time::Date) -> RuleResult {
    let mut problems = match look {
        Ok(Verdict::Pass) => return RuleResult::Passed,
        Ok(Verdict::NotApplicable(why)) => return RuleResult::NotApplicable { why },
        // A waiver lets a failure through, not ignorance.
        Err(why) => return RuleResult::NotLookedAt { why },
        Ok(Verdict::Fail(problems)) => problems,
    };
    problems.sort();
    problems.dedup();
    let covers = |waiver: &&Waiver| {
        let value = waiver.value.as_ref();
        value.is_none_or(|value| problems.iter().all(|problem| problem.found == *value))
    };
    let waiver = waiver.filter(covers);
    if problems.len() > PROBLEMS_MAX {
        let more = problems.len() - PROBLEMS_MAX;
        problems.truncate(PROBLEMS_MAX);
        problems.push(problem("none", &format!("{more} more"), "elsewhere"));
    }
    match waiver {
        Some(waiver) if waiver.is_in_force(today) => RuleResult::Waived {
            problems,
            reason: waiver.reason.clone(),
            approver: waiver.approver.clone(),
            until: waiver.expires_at,
        },
        expired => RuleResult::Failed {
            problems,
            waiver_expired: expired.map(|waiver| WaiverExpired {
                approver: waiver.approver.clone(),
                until: waiver.expires_at,
            }),
        },
    }
}
