//! Checks and fixes in words, for documents and reports.

use crate::check::{Accounts, Check, FileCheck, Live, PackageState, Presence, TreeCheck, UnitExpected};
use crate::fix::{AccountsFix, Fix, Unfixed, UnitWanted};
use crate::rule::Condition;

fn listed<T: ToString>(items: &[T]) -> String {
    let items: Vec<_> = items.iter().map(|item| format!("`{}`", item.to_string())).collect();
    items.join(", ")
}

/// A check in words.
pub(crate) fn check_in_words(check: &Check) -> String {
    match check {
        Check::AnyOf(groups) => {
            let groups: Vec<_> = groups
                .iter()
                .map(|group| {
                    let group: Vec<_> = group.iter().map(check_in_words).collect();
                    group.join(" and ")
                })
                .collect();
            format!("either {}", groups.join("; or "))
        }
        Check::Sshd(check) => format!("sshd `{}` {}", check.key, check.expect.in_words()),
        Check::Sysctl(check) => {
            let more = match (&check.default, check.optional) {
                (Some(default), _) => format!(" (the kernel's own: {default})"),
                (None, true) => " (where the kernel has it)".to_owned(),
                (None, false) => String::new(),
            };
            format!("sysctl `{}` {}{more}", check.key, check.expect.in_words())
        }
        Check::File(check) => file_in_words(check),
        Check::ModuleDisabled(module) => format!("module `{module}` cannot be loaded"),
        Check::ModuleOption(check) => {
            format!(
                "module {}: `{}` {}",
                listed(&check.modules),
                check.option,
                check.expect.in_words()
            )
        }
        Check::Mount(check) => {
            let without = if check.without.is_empty() {
                String::new()
            } else {
                format!(", without {}", listed(&check.without))
            };
            format!("`{}` mounted with {}{without}", check.path, listed(&check.options))
        }
        Check::Unit(check) => {
            let state = match check.state {
                UnitExpected::Enabled => "enabled",
                UnitExpected::Masked => "masked or not there",
                UnitExpected::Off => "not enabled",
            };
            format!("unit `{}` {state}", check.name)
        }
        Check::OneUnit(units) => format!("exactly one of {} enabled", listed(units)),
        Check::Package(check) => match check.state {
            PackageState::Present => format!("packages {} installed", listed(&check.names)),
            PackageState::Absent => format!("packages {} not installed", listed(&check.names)),
        },
        Check::LoginDefs(check) => format!("login.defs `{}` {}", check.key, check.expect.in_words()),
        Check::Pam(check) => {
            let arguments = if check.arguments.is_empty() {
                String::new()
            } else {
                format!(" with {}", listed(&check.arguments))
            };
            format!(
                "PAM service `{}`: {} `{}`{arguments}",
                check.service, check.kind, check.module
            )
        }
        Check::CommandLine(check) => {
            let mut parts = Vec::new();
            if !check.any.is_empty() {
                let any: Vec<_> = check.any.iter().map(|one| format!("`{one}`")).collect();
                parts.push(any.join(" or "));
            }
            if !check.none.is_empty() {
                parts.push(format!("none of {}", listed(&check.none)));
            }
            format!("kernel command line: {}", parts.join(", "))
        }
        Check::Accounts(check) => match check {
            Accounts::RootLocked => "root's password is locked".to_owned(),
            Accounts::OneUidZero => "only root has UID 0".to_owned(),
            Accounts::NoEmptyPasswords => "no account opens without a password".to_owned(),
            Accounts::NoPasswords => "no account has a password".to_owned(),
            Accounts::Unique => "no user, group or number twice".to_owned(),
            Accounts::SystemNologin(except) if except.is_empty() => "system accounts have nologin".to_owned(),
            Accounts::SystemNologin(except) => format!("system accounts but {} have nologin", listed(except)),
            Accounts::HomesWithout(names) => format!("no home folder holds {}", listed(names)),
        },
        Check::AuditRules(check) => {
            let mut parts = Vec::new();
            let patterns = |patterns: &[crate::expect::Pattern]| {
                listed(&patterns.iter().map(|pattern| pattern.as_str()).collect::<Vec<_>>())
            };
            if !check.contains.is_empty() {
                parts.push(format!("rules that match {}", patterns(&check.contains)));
            }
            if !check.lacks.is_empty() {
                parts.push(format!("none that matches {}", patterns(&check.lacks)));
            }
            if let Some(last) = &check.last {
                parts.push(format!("`{last}` last"));
            }
            format!("audit: {}", parts.join(", "))
        }
        Check::Inventory(check) => format!(
            "setuid, setgid and file capabilities on nothing but the list ({} entries)",
            check.allowed.len()
        ),
        Check::Tree(TreeCheck::WorldWritable) => "what everybody may write is a folder with the sticky bit".to_owned(),
        Check::Tree(TreeCheck::Owned) => "every file has a known owner and group".to_owned(),
        Check::Limits(check) => {
            format!(
                "limits `{} {} {}` {}",
                check.domain,
                check.kind,
                check.item,
                check.expect.in_words()
            )
        }
        Check::SystemdSetting(check) => format!("{} `{}` {}", check.file, check.key, check.expect.in_words()),
        Check::AptSources(check) if check.hosts.is_empty() => "each source of packages names its keyring".to_owned(),
        Check::AptSources(check) => format!("each source names its keyring, and is on {}", listed(&check.hosts)),
        Check::Kubelet(check) => format!("kubelet `{}` {}", check.key, check.expect.in_words()),
        Check::Live(check @ Live::Outside(_)) => format!("{} (not from inside the node)", live_in_words(check)),
        Check::Live(check) => format!("{} (running node only)", live_in_words(check)),
    }
}

/// A check of the running node in words.
pub(crate) fn live_in_words(check: &Live) -> String {
    match check {
        Live::SecureBoot => "Secure Boot is on".to_owned(),
        Live::ModuleSignatures => "the kernel takes signed modules only".to_owned(),
        Live::ApparmorEnforced(least) => format!("AppArmor enforces at least {least} profiles"),
        Live::Listening(allowed) => format!("TCP listens beyond loopback on nothing but {}", listed(allowed)),
        Live::Outside(who) => who.clone(),
    }
}

fn file_in_words(check: &FileCheck) -> String {
    let mut parts = Vec::new();
    match check.state {
        Presence::Present => parts.push("there".to_owned()),
        Presence::Absent => parts.push("not there".to_owned()),
        Presence::Optional => {}
    }
    if let Some(mode) = check.mode_at_most {
        parts.push(format!("mode {mode} or less"));
    }
    match (&check.owner, &check.group) {
        (Some(owner), Some(group)) => parts.push(format!("{owner}:{group}")),
        (Some(owner), None) => parts.push(format!("owner {owner}")),
        (None, Some(group)) => parts.push(format!("group {group}")),
        (None, None) => {}
    }
    parts.extend(
        check
            .contains
            .iter()
            .map(|pattern| format!("has `{}`", pattern.as_str())),
    );
    parts.extend(
        check
            .lacks
            .iter()
            .map(|pattern| format!("lacks `{}`", pattern.as_str())),
    );
    format!("{}: {}", listed(&check.paths), parts.join(", "))
}

/// A condition in words.
pub(crate) fn condition_in_words(condition: &Condition) -> String {
    match condition {
        Condition::AnyPath(paths) => format!("where {} is there", or_listed(paths)),
        Condition::NoPath(paths) => format!("where {} is not there", or_listed(paths)),
    }
}

fn or_listed<T: ToString>(items: &[T]) -> String {
    listed(items).replace(", ", " or ")
}

/// A fix in words.
pub(crate) fn fix_in_words(fix: &Fix) -> String {
    match fix {
        Fix::Sshd(key, value) => format!("sshd `{key} {value}`"),
        Fix::Sysctl(key, value) => format!("sysctl `{key}={value}`"),
        Fix::ModuleDisabled(module) => format!("modprobe: `{module}` off"),
        Fix::ModuleOption(module, option, value) => format!("modprobe: `{module} {option}={value}`"),
        Fix::File(fix) => format!("writes `{}` ({})", fix.path, fix.mode),
        Fix::Mode(fix) => format!("mode {} of {}", fix.mode, listed(&fix.paths)),
        Fix::Remove(paths) => format!("removes {}", listed(paths)),
        Fix::LoginDefs(key, value) => format!("login.defs `{key} {value}`"),
        Fix::Pam(fix) => format!("PAM service `{}`: `{}`", fix.service, fix.line),
        Fix::Unit(fix) => match fix.state {
            UnitWanted::Enabled => format!("enables `{}`", fix.name),
            UnitWanted::Masked => format!("masks `{}`", fix.name),
        },
        Fix::OneUnit(units) => format!("enables the first there of {}, masks the others", listed(units)),
        Fix::Mount(fix) => format!("mounts `{}` with `{}`", fix.path, fix.options.join(",")),
        Fix::Accounts(AccountsFix::LockRoot) => "locks root's password".to_owned(),
        Fix::Accounts(AccountsFix::LockEmptyPasswords) => "locks accounts without a password".to_owned(),
        Fix::Accounts(AccountsFix::SystemNologin) => "gives system accounts nologin".to_owned(),
        Fix::AptSignedBy(keyring) => format!("ties sources to `{keyring}`"),
        Fix::PackageInstall(name) => format!("asks for package `{name}`"),
        Fix::PackageRemove(names) => format!("asks for the packages to go ({})", names.len()),
        Fix::CommandLine(argument) => format!("asks for the kernel argument `{argument}`"),
    }
}

/// Why there is no fix, in words.
pub(crate) fn unfixed_in_words(unfixed: Unfixed) -> &'static str {
    match unfixed {
        Unfixed::ReportOnly => "none: a person decides",
        Unfixed::ReImageOnly => "none: a new image",
        Unfixed::Outside => "none: firmware or BMC",
    }
}
