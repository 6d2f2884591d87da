//! Checks of what the kernel is told: sysctls, modules, mounts, command line. On a running node both what the files
//! will do at the next boot and what the kernel has now must hold.

use super::{Context, Look, Verdict, problem};
use crate::check::{CommandLine, ModuleOption, Mount, SysctlCheck};
use crate::facts::{modprobe, mounts, path, sysctl as sysctl_facts, text_at};
use crate::place::Unlooked;
use crate::report::Problem;

/// Puts together what the files say and what the kernel says. A failure in the files stands, whether or not the kernel
/// could be asked.
fn together(mut configured: Vec<Problem>, running: Result<Vec<Problem>, Unlooked>) -> Look {
    match running {
        Ok(running) => configured.extend(running),
        Err(why) if configured.is_empty() => return Err(why),
        Err(_) => {}
    }
    Ok(Verdict::from_problems(configured))
}

pub(super) fn sysctl(context: &Context<'_>, check: &SysctlCheck) -> Look {
    let SysctlCheck {
        key,
        expect,
        default,
        optional,
    } = check;
    let expected = format!("{key} {}", expect.in_words());
    let mut running = Ok(Vec::new());
    if context.place.is_running() {
        let at = sysctl_facts::running_path(key);
        running = match text_at(context.place, &at) {
            Ok(None) if key.starts_with("net.ipv6.") => {
                return Ok(Verdict::NotApplicable("the kernel runs without IPv6".to_owned()));
            }
            Ok(None) if *optional => {
                return Ok(Verdict::NotApplicable(format!("the running kernel has no {key}")));
            }
            Ok(None) => Ok(vec![problem(&expected, "the running kernel has no such setting", at)]),
            Ok(Some(value)) => {
                let value = sysctl_facts::words(&value);
                let holds = expect.holds(Some(&value));
                Ok(if holds {
                    Vec::new()
                } else {
                    vec![problem(&expected, &value, at)]
                })
            }
            Err(why) => Err(why),
        };
    }
    let found = sysctl_facts::effective(context.sysctls()?, key);
    let value = found.map(|(value, _)| value).or(default.as_deref());
    let mut configured = Vec::new();
    if !expect.holds(value) {
        let (found, at) = found.unwrap_or((value.unwrap_or("not set"), "/etc/sysctl.d"));
        configured.push(problem(&expected, found, at));
    }
    together(configured, running)
}

pub(super) fn module_disabled(context: &Context<'_>, module: &str) -> Look {
    let commands = context.modprobe()?;
    let mut configured = Vec::new();
    let expected = format!("install {module} /bin/false");
    match modprobe::install(commands, module) {
        Some(install) if modprobe::refuses(install) => {}
        Some(install) => configured.push(problem(expected, &format!("install {}", install.rest), &install.at)),
        None => configured.push(problem(expected, "no such line", "/etc/modprobe.d")),
    }
    if !modprobe::is_blacklisted(commands, module) {
        let expected = format!("blacklist {module}");
        configured.push(problem(expected, "no such line", "/etc/modprobe.d"));
    }
    together(configured, loaded(context, module))
}

/// Fails when the running kernel has the module.
fn loaded(context: &Context<'_>, module: &str) -> Result<Vec<Problem>, Unlooked> {
    const MODULES: &str = "/proc/modules";
    if !context.place.is_running() {
        return Ok(Vec::new());
    }
    let Some(loaded) = text_at(context.place, MODULES)? else {
        return Err(Unlooked::unreadable(&path(MODULES)?, "not there"));
    };
    let name = modprobe::underscored(module);
    if loaded.lines().any(|line| line.split(' ').next() == Some(name.as_str())) {
        return Ok(vec![problem(format!("{module} not loaded"), "loaded", MODULES)]);
    }
    Ok(Vec::new())
}

pub(super) fn module_option(context: &Context<'_>, check: &ModuleOption) -> Look {
    let found = modprobe::option(context.modprobe()?, &check.modules, &check.option);
    let expected = format!("{} {}", check.option, check.expect.in_words());
    Ok(Verdict::of(check.expect.holds(found.map(|(value, _)| value)), || {
        let (value, at) = found.unwrap_or(("not set", "/etc/modprobe.d"));
        problem(expected, value, at)
    }))
}

pub(super) fn mount(context: &Context<'_>, check: &Mount) -> Look {
    let mut expected = format!("{} with {}", check.path, check.options.join(","));
    if !check.without.is_empty() {
        expected.push_str(&format!(" and without {}", check.without.join(",")));
    }
    let holds = |options: &[String]| {
        check.options.iter().all(|option| mounts::has(options, option))
            && !check.without.iter().any(|option| mounts::has(options, option))
    };
    let judge = |found: Option<mounts::Options>, absent: &str, at: &str| match found {
        Some(found) if holds(&found.options) => Vec::new(),
        Some(found) => vec![problem(&expected, &found.options.join(","), found.at)],
        None => vec![problem(&expected, absent, at)],
    };
    let absent = "nothing mounts it with options of its own";
    let configured = judge(mounts::configured(context.place, &check.path)?, absent, "/etc/fstab");
    let running = if context.place.is_running() {
        mounts::running(context.place, &check.path).map(|found| judge(found, "not mounted", "/proc/self/mountinfo"))
    } else {
        Ok(Vec::new())
    };
    together(configured, running)
}

pub(super) fn command_line(context: &Context<'_>, check: &CommandLine) -> Look {
    let line = context.place.command_line()?;
    let arguments: Vec<&str> = line.split_whitespace().collect();
    let at = "the kernel command line";
    let mut problems = Vec::new();
    if !check.any.is_empty() && !check.any.iter().any(|one| arguments.contains(&one.as_str())) {
        problems.push(problem(check.any.join(" or "), "not there", at));
    }
    for none in check.none.iter().filter(|none| arguments.contains(&none.as_str())) {
        problems.push(problem(format!("no {none}"), none, at));
    }
    Ok(Verdict::from_problems(problems))
}
