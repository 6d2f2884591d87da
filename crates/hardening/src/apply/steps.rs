//! The steps of rules, written with the [`Writer`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use manifest::TreePath;

use super::writer::Writer;
use super::{ApplyError, edit};
use crate::facts::units::{self, UnitState};
use crate::facts::{accounts, apt, glob, join, mounts, path, sshd, sysctl, text};
use crate::fix::{AccountsFix, Fix, MountFix, UnitWanted};
use crate::place::Place;
use crate::rule::{Rule, RuleId};

/// Before all others: sshd takes the first value, modprobe the first `install`.
const SSHD_DROP_IN: &str = "/etc/ssh/sshd_config.d/00-plumbline-hardening.conf";
const MODULES: &str = "/etc/modprobe.d/00-plumbline-hardening.conf";
/// After all others: the last option wins.
const MODULE_OPTIONS: &str = "/etc/modprobe.d/zz-plumbline-hardening.conf";
const SYSCTL_NAME: &str = "60-plumbline-hardening.conf";
/// For keys that a later file of the image sets otherwise.
const SYSCTL_LATE_NAME: &str = "zz-plumbline-hardening.conf";
const SYSTEM: &str = "/etc/systemd/system";

/// Drop-ins that many rules write into together.
pub(super) fn collected(writer: &mut Writer, profile: &str, rules: &[&Rule]) -> Result<(), ApplyError> {
    let mut keys: BTreeMap<&str, (&str, &RuleId)> = BTreeMap::new();
    let mut sysctls: BTreeMap<&str, (&str, &RuleId)> = BTreeMap::new();
    let mut modules: BTreeMap<&str, &RuleId> = BTreeMap::new();
    let mut options: BTreeMap<(&str, &str), (&str, &RuleId)> = BTreeMap::new();
    for (rule, fix) in rules
        .iter()
        .flat_map(|rule| rule.fixes.iter().map(move |fix| (rule, fix)))
    {
        match fix {
            Fix::Sshd(key, value) => {
                keys.insert(key, (value, &rule.id));
            }
            Fix::Sysctl(key, value) => {
                sysctls.insert(key, (value, &rule.id));
            }
            Fix::ModuleDisabled(module) => {
                modules.insert(module, &rule.id);
            }
            Fix::ModuleOption(module, option, value) => {
                options.insert((module, option), (value, &rule.id));
            }
            _ => {}
        }
    }
    let head = format!("# Written from the hardening profile {profile}; changes here are drift.\n");
    if !keys.is_empty() && sshd::settings(writer.tree())?.is_some() {
        sshd_drop_in(writer, &head, &keys)?;
    }
    if !sysctls.is_empty() {
        sysctl_drop_ins(writer, &head, &sysctls)?;
    }
    if !modules.is_empty() {
        let mut content = head.clone();
        for (module, rule) in modules {
            let _ = write!(content, "# {rule}\ninstall {module} /bin/false\nblacklist {module}\n");
        }
        writer.file(&path(MODULES)?, &content, 0o644)?;
    }
    if !options.is_empty() {
        let mut content = head;
        for ((module, option), (value, rule)) in options {
            let _ = write!(content, "# {rule}\noptions {module} {option}={value}\n");
        }
        writer.file(&path(MODULE_OPTIONS)?, &content, 0o644)?;
    }
    Ok(())
}

fn sshd_drop_in(writer: &mut Writer, head: &str, keys: &BTreeMap<&str, (&str, &RuleId)>) -> Result<(), ApplyError> {
    let mut content = head.to_owned();
    for (key, (value, rule)) in keys {
        let _ = write!(content, "# {rule}\n{key} {value}\n");
    }
    writer.file(&path(SSHD_DROP_IN)?, &content, 0o600)?;
    let settings = sshd::settings(writer.tree())?.unwrap_or_default();
    let is_first =
        |key: &&str| sshd::global(&settings, &sshd::keyword(key)).is_some_and(|(_, at)| at.starts_with(SSHD_DROP_IN));
    if keys.keys().all(is_first) {
        return Ok(());
    }
    // No Include in the main file, or something before it: then the drop-in is named before everything else.
    let config = path("/etc/ssh/sshd_config")?;
    let include = format!("Include {SSHD_DROP_IN}\n");
    match text(writer.tree(), &config)? {
        Some(_) => writer.edit(&config, |text| format!("{include}{text}")),
        None => writer.file(&config, &include, 0o600),
    }
}

fn sysctl_drop_ins(
    writer: &mut Writer,
    head: &str,
    sysctls: &BTreeMap<&str, (&str, &RuleId)>,
) -> Result<(), ApplyError> {
    let late: BTreeSet<String> = sysctl::assignments(writer.tree())?
        .into_iter()
        .filter(|one| one.file.as_str() > SYSCTL_NAME && one.file != SYSCTL_LATE_NAME)
        .filter(|one| {
            sysctls
                .get(one.key.as_str())
                .is_some_and(|(value, _)| one.value.as_deref() != Some(*value))
        })
        .map(|one| one.key)
        .collect();
    let (mut content, mut content_late) = (head.to_owned(), head.to_owned());
    for (key, (value, rule)) in sysctls {
        let line = format!("# {rule}\n{key} = {value}\n");
        content.push_str(&line);
        if late.contains(*key) {
            content_late.push_str(&line);
        }
    }
    let folder = path("/etc/sysctl.d")?;
    writer.file(&join(&folder, SYSCTL_NAME.as_bytes())?, &content, 0o644)?;
    let late_path = join(&folder, SYSCTL_LATE_NAME.as_bytes())?;
    if late.is_empty() {
        writer.remove(&late_path)
    } else {
        writer.file(&late_path, &content_late, 0o644)
    }
}

/// One step of one rule.
pub(super) fn step(writer: &mut Writer, rule: &RuleId, fix: &Fix) -> Result<(), ApplyError> {
    match fix {
        // Written together, or nothing that files can do.
        Fix::Sshd(..) | Fix::Sysctl(..) | Fix::ModuleDisabled(_) | Fix::ModuleOption(..) => Ok(()),
        Fix::PackageInstall(_) | Fix::PackageRemove(_) | Fix::CommandLine(_) => Ok(()),
        Fix::File(fix) => writer.file(&fix.path, &fix.content, fix.mode.0),
        Fix::Mode(fix) => {
            let users = accounts::users(writer.tree())?;
            let groups = accounts::groups(writer.tree())?;
            // An owner that this root does not know cannot be set; looking at it afterwards says so.
            let uid = |name: &String| match name.as_str() {
                "root" => Some(0),
                name => users.iter().find(|user| user.name == name).map(|user| user.uid),
            };
            let gid = |name: &String| match name.as_str() {
                "root" => Some(0),
                name => groups.iter().find(|group| group.name == name).map(|group| group.gid),
            };
            let (uid, gid) = (fix.owner.as_ref().and_then(uid), fix.group.as_ref().and_then(gid));
            for pattern in &fix.paths {
                for path in glob(writer.tree(), pattern)? {
                    writer.restrict(&path, fix.mode.0, uid, gid)?;
                }
            }
            Ok(())
        }
        Fix::Remove(patterns) => {
            for pattern in patterns {
                for path in glob(writer.tree(), pattern)? {
                    writer.remove(&path)?;
                }
            }
            Ok(())
        }
        Fix::LoginDefs(key, value) => writer.edit(&path("/etc/login.defs")?, |text| edit::login_defs(text, key, value)),
        Fix::Pam(fix) => {
            let service = path(&format!("/etc/pam.d/{}", fix.service))?;
            writer.edit(&service, |text| edit::pam(text, &fix.line, &fix.after))
        }
        Fix::Unit(fix) => match fix.state {
            UnitWanted::Masked => mask(writer, &fix.name),
            UnitWanted::Enabled => enable(writer, &fix.name),
        },
        Fix::OneUnit(names) => one_unit(writer, names),
        Fix::Mount(fix) => mount(writer, rule, fix),
        Fix::Accounts(fix) => change_accounts(writer, *fix),
        Fix::AptSignedBy(keyring) => {
            for (path, _) in apt::files(writer.tree())? {
                writer.edit(&path, |text| edit::apt_signed_by(&path, text, &keyring.to_string()))?;
            }
            Ok(())
        }
    }
}

fn unit_path(name: &str) -> Result<TreePath, ApplyError> {
    Ok(join(&path(SYSTEM)?, name.as_bytes())?)
}

fn mask(writer: &mut Writer, name: &str) -> Result<(), ApplyError> {
    writer.link(&unit_path(name)?, "/dev/null")
}

/// Makes the links that the unit's own file asks for, as `systemctl enable` does.
fn enable(writer: &mut Writer, name: &str) -> Result<(), ApplyError> {
    let own = unit_path(name)?;
    if writer.tree().read_link(&own)?.is_some_and(|link| link == b"/dev/null") {
        writer.remove(&own)?;
    }
    if matches!(units::state(writer.tree(), name)?, UnitState::Enabled(_)) {
        return Ok(());
    }
    let Some(file) = units::file(writer.tree(), name)? else {
        return Ok(());
    };
    let Some(text) = text(writer.tree(), &file)? else {
        return Ok(());
    };
    let (folders, aliases) = units::install(&file, &text);
    let target = file.to_string();
    for folder in folders {
        let folder = unit_path(&folder)?;
        writer.link(&join(&folder, name.as_bytes())?, &target)?;
    }
    for alias in aliases {
        writer.link(&unit_path(&alias)?, &target)?;
    }
    Ok(())
}

fn one_unit(writer: &mut Writer, names: &[String]) -> Result<(), ApplyError> {
    let mut chosen = false;
    for name in names {
        let is_there = !matches!(units::state(writer.tree(), name)?, UnitState::Absent);
        match (is_there, chosen) {
            (true, false) => {
                chosen = true;
                enable(writer, name)?;
            }
            (true, true) => mask(writer, name)?,
            (false, _) => {}
        }
    }
    Ok(())
}

fn mount(writer: &mut Writer, rule: &RuleId, fix: &MountFix) -> Result<(), ApplyError> {
    let stem = mounts::unit_stem(fix.path.as_bytes());
    let options = fix.options.join(",");
    let place = &fix.path;
    let (name, content) = match fix.what.as_deref() {
        Some(what) => {
            let (what, kind, options) = match what {
                "bind" => (place.to_string(), "none", format!("bind,{options}")),
                other => (other.to_owned(), other, options),
            };
            let content = format!(
                "# Rule {rule}.\n[Unit]\nDescription={place} with restricted options\nDefaultDependencies=no\n\
                 Conflicts=umount.target\nBefore=local-fs.target umount.target\n\n\
                 [Mount]\nWhat={what}\nWhere={place}\nType={kind}\nOptions={options}\n\n\
                 [Install]\nWantedBy=local-fs.target\n"
            );
            (format!("{stem}.mount"), content)
        }
        None => {
            let content = format!(
                "# Rule {rule}. systemd mounts {place} itself and takes options for it from no unit.\n\
                 [Unit]\nDescription={place} with restricted options\nDefaultDependencies=no\n\
                 After=systemd-remount-fs.service\nBefore=sysinit.target shutdown.target\nConflicts=shutdown.target\n\n\
                 [Service]\nType=oneshot\nRemainAfterExit=yes\n\
                 ExecStart=/usr/bin/mount -o remount,{options} {place}\n\n\
                 [Install]\nWantedBy=sysinit.target\n"
            );
            (format!("plumbline-remount-{stem}.service"), content)
        }
    };
    writer.file(&unit_path(&name)?, &content, 0o644)?;
    enable(writer, &name)
}

fn change_accounts(writer: &mut Writer, fix: AccountsFix) -> Result<(), ApplyError> {
    writer.edit(&path("/etc/passwd")?, |text| edit::passwd(text, fix))?;
    let hashes = accounts::hashes(writer.tree())?;
    let has_root = hashes.iter().any(|hash| hash.name == "root");
    let missing = match fix {
        AccountsFix::LockRoot if !has_root => vec!["root".to_owned()],
        _ => Vec::new(),
    };
    let shadow = path("/etc/shadow")?;
    if !missing.is_empty() && writer.tree().metadata(&shadow)?.is_none() {
        return writer.file(&shadow, &edit::shadow("", fix, &missing), 0o600);
    }
    writer.edit(&shadow, |text| edit::shadow(text, fix, &missing))
}
