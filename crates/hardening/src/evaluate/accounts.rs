//! Checks of users, groups and PAM.

use std::collections::BTreeMap;

use manifest::TreePath;

use super::{Context, Look, Verdict, problem};
use crate::check::{Accounts, PamCheck};
use crate::facts::accounts::{self, is_locked, is_nologin, is_system};
use crate::facts::{join, pam as pam_facts};
use crate::report::Problem;

pub(super) fn accounts(context: &Context<'_>, check: &Accounts) -> Look {
    let users = context.users()?;
    if users.is_empty() {
        return Ok(Verdict::Fail(vec![problem("users", "none", "/etc/passwd")]));
    }
    let problems = match check {
        Accounts::RootLocked => root_locked(context)?,
        Accounts::OneUidZero => users
            .iter()
            .filter(|user| user.uid == 0 && user.name != "root")
            .map(|user| problem("UID 0 for root alone", &format!("{} has UID 0", user.name), &user.at))
            .collect(),
        Accounts::NoEmptyPasswords => {
            let mut problems: Vec<Problem> = users
                .iter()
                .filter(|user| user.password.is_empty())
                .map(|user| problem("a password or a lock", &format!("{} needs none", user.name), &user.at))
                .collect();
            for hash in accounts::hashes(context.place)?
                .iter()
                .filter(|hash| hash.hash.is_empty())
            {
                problems.push(problem(
                    "a password or a lock",
                    &format!("{} needs none", hash.name),
                    &hash.at,
                ));
            }
            problems
        }
        Accounts::NoPasswords => {
            let mut problems: Vec<Problem> = users
                .iter()
                .filter(|user| user.password != "x" && !is_locked(&user.password))
                .map(|user| problem("no password", &format!("{} has one", user.name), &user.at))
                .collect();
            for hash in accounts::hashes(context.place)?
                .iter()
                .filter(|hash| !is_locked(&hash.hash))
            {
                problems.push(problem("no password", &format!("{} has one", hash.name), &hash.at));
            }
            problems
        }
        Accounts::Unique => {
            let mut problems = twice(users.iter().map(|user| (user.name.clone(), &user.at)));
            problems.extend(twice(users.iter().map(|user| (format!("UID {}", user.uid), &user.at))));
            let groups = context.groups()?;
            problems.extend(twice(
                groups.iter().map(|group| (format!("group {}", group.name), &group.at)),
            ));
            problems.extend(twice(
                groups.iter().map(|group| (format!("GID {}", group.gid), &group.at)),
            ));
            problems
        }
        Accounts::SystemNologin(except) => users
            .iter()
            .filter(|user| is_system(user.uid) && !is_nologin(&user.shell))
            .filter(|user| user.name != "root" && !(user.name == "sync" && user.shell == "/bin/sync"))
            .filter(|user| !except.contains(&user.name))
            .map(|user| {
                let found = format!(
                    "{} has {}",
                    user.name,
                    if user.shell.is_empty() { "/bin/sh" } else { &user.shell }
                );
                problem("/usr/sbin/nologin", &found, &user.at)
            })
            .collect(),
        Accounts::HomesWithout(names) => {
            let mut problems = Vec::new();
            for user in users {
                // Homes like /nonexistent, or of a form that is none, hold nothing.
                let Ok(home) = TreePath::from_bytes(user.home.as_bytes()) else {
                    continue;
                };
                for name in names {
                    let path = join(&home, name.as_bytes())?;
                    if context.place.metadata(&path)?.is_some() || context.place.read_link(&path)?.is_some() {
                        problems.push(problem("not there", "there", path.to_string()));
                    }
                }
            }
            problems
        }
    };
    Ok(Verdict::from_problems(problems))
}

fn root_locked(context: &Context<'_>) -> Result<Vec<Problem>, crate::place::Unlooked> {
    const EXPECTED: &str = "root locked";
    let Some(root) = context.users()?.iter().find(|user| user.name == "root") else {
        return Ok(vec![problem(EXPECTED, "no root", "/etc/passwd")]);
    };
    if root.password != "x" && !is_locked(&root.password) {
        return Ok(vec![problem(
            EXPECTED,
            "a password in passwd, or none needed",
            &root.at,
        )]);
    }
    let hashes = accounts::hashes(context.place)?;
    Ok(match hashes.iter().find(|hash| hash.name == "root") {
        Some(hash) if is_locked(&hash.hash) => Vec::new(),
        // The hash itself is nobody's business.
        Some(hash) => vec![problem(EXPECTED, "not locked", &hash.at)],
        None => vec![problem(EXPECTED, "no entry", "/etc/shadow")],
    })
}

fn twice<'a>(keys: impl Iterator<Item = (String, &'a String)>) -> Vec<Problem> {
    let mut seen = BTreeMap::new();
    let mut problems = Vec::new();
    for (key, at) in keys {
        if let Some(first) = seen.insert(key.clone(), at) {
            problems.push(problem("each once", &format!("{key} also at {first}"), at));
        }
    }
    problems
}

pub(super) fn pam(context: &Context<'_>, check: &PamCheck) -> Look {
    let at = format!("/etc/pam.d/{}", check.service);
    let Some(lines) = pam_facts::lines(context.place, &check.service)? else {
        return Ok(Verdict::NotApplicable(format!("no {at} here")));
    };
    let holds = lines.iter().any(|line| {
        line.kind == check.kind
            && line.module == check.module
            && check.arguments.iter().all(|argument| line.arguments.contains(argument))
    });
    let expected = format!("{} {} {}", check.kind, check.module, check.arguments.join(" "));
    Ok(Verdict::of(holds, || problem(expected.trim_end(), "no such line", at)))
}
