//! Checks of files: presence, owner, mode, content, and of the whole tree.

use std::collections::{BTreeMap, BTreeSet};

use manifest::TreePath;

use super::{Context, Look, Verdict, problem};
use crate::check::{FileCheck, Inventory, Presence, TreeCheck};
use crate::facts::{glob, lines, text, text_at};
use crate::place::{FileKind, Metadata, Unlooked};

/// Files of one kind that a walk keeps; more are counted.
const KEPT_MAX: usize = 1000;

pub(super) fn file(context: &Context<'_>, check: &FileCheck) -> Look {
    let mut found = Vec::new();
    let mut problems = Vec::new();
    for pattern in &check.paths {
        let paths = glob(context.place, pattern)?;
        if paths.is_empty() && check.state == Presence::Present {
            problems.push(problem("there", "not there", pattern.to_string()));
        }
        found.extend(paths);
    }
    if check.state == Presence::Absent {
        problems.extend(found.iter().map(|path| problem("not there", "there", path.to_string())));
        return Ok(Verdict::from_problems(problems));
    }
    let mut texts = Vec::new();
    let mut looked = 0;
    for path in &found {
        // A link to nowhere is nothing that could have a mode.
        let Some(metadata) = context.place.metadata(path)? else {
            continue;
        };
        looked += 1;
        attributes(context, check, path, &metadata, &mut problems)?;
        if !check.contains.is_empty() || !check.lacks.is_empty() {
            texts.push((path, text(context.place, path)?.unwrap_or_default()));
        }
    }
    for pattern in check.contains.iter().filter(|_| !texts.is_empty()) {
        let is_there = texts
            .iter()
            .any(|(_, text)| lines(text).any(|(_, line)| pattern.is_match(line)));
        if !is_there {
            let expected = format!("a line that matches {}", pattern.as_str());
            problems.push(problem(expected, "no such line", names(check)));
        }
    }
    for (path, text) in &texts {
        for pattern in &check.lacks {
            for (number, line) in lines(text).filter(|(_, line)| pattern.is_match(line)) {
                let expected = format!("no line that matches {}", pattern.as_str());
                problems.push(problem(expected, line, format!("{path}:{number}")));
            }
        }
    }
    if problems.is_empty() && looked == 0 {
        return Ok(Verdict::NotApplicable(format!("no {} here", names(check))));
    }
    Ok(Verdict::from_problems(problems))
}

fn names(check: &FileCheck) -> String {
    let names: Vec<_> = check.paths.iter().map(ToString::to_string).collect();
    names.join(", ")
}

fn attributes(
    context: &Context<'_>,
    check: &FileCheck,
    path: &TreePath,
    metadata: &Metadata,
    problems: &mut Vec<crate::report::Problem>,
) -> Result<(), Unlooked> {
    if let Some(most) = check.mode_at_most.filter(|most| metadata.mode & !most.0 != 0) {
        let found = format!("{:04o}", metadata.mode);
        problems.push(problem(format!("mode {most} or less"), &found, path.to_string()));
    }
    if let Some(owner) = &check.owner {
        let users = context.users()?;
        let wanted = if owner == "root" {
            Some(0)
        } else {
            users.iter().find(|user| user.name == *owner).map(|user| user.uid)
        };
        if wanted != Some(metadata.uid) {
            let name = users
                .iter()
                .find(|user| user.uid == metadata.uid)
                .map(|user| user.name.clone());
            let found = name.unwrap_or_else(|| metadata.uid.to_string());
            problems.push(problem(
                format!("owner {owner}"),
                &format!("owner {found}"),
                path.to_string(),
            ));
        }
    }
    if let Some(group) = &check.group {
        let groups = context.groups()?;
        let wanted = if group == "root" {
            Some(0)
        } else {
            groups.iter().find(|one| one.name == *group).map(|one| one.gid)
        };
        if wanted != Some(metadata.gid) {
            let name = groups
                .iter()
                .find(|one| one.gid == metadata.gid)
                .map(|one| one.name.clone());
            let found = name.unwrap_or_else(|| metadata.gid.to_string());
            problems.push(problem(
                format!("group {group}"),
                &format!("group {found}"),
                path.to_string(),
            ));
        }
    }
    Ok(())
}

/// What one walk over the whole tree keeps.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    /// Programs with setuid, setgid or capabilities, and which of these.
    privileged: BTreeMap<TreePath, String>,
    /// What everybody may write and should not.
    writable: BTreeMap<TreePath, u32>,
    /// What belongs to nobody.
    unowned: BTreeMap<TreePath, (u32, u32)>,
}

/// Walks the tree once for all checks of it.
pub(super) fn walk(context: &Context<'_>) -> Result<Walked, Unlooked> {
    let uids: BTreeSet<u32> = context.users()?.iter().map(|user| user.uid).collect();
    let gids: BTreeSet<u32> = context.groups()?.iter().map(|group| group.gid).collect();
    // With a directory service, numbers that this root does not name may be somebody's.
    let names = text_at(context.place, "/etc/nsswitch.conf")?.unwrap_or_default();
    let is_local = !lines(&names)
        .filter(|(_, line)| line.starts_with("passwd:") || line.starts_with("group:"))
        .any(|(_, line)| {
            line.split_whitespace()
                .any(|word| matches!(word, "sss" | "ldap" | "winbind" | "nis"))
        });
    let is_known = |ids: &BTreeSet<u32>, id: u32| {
        // systemd makes users of 61184 to 65519 up while a service runs.
        ids.contains(&id) || (61_184..=65_519).contains(&id) || (!is_local && id >= 1000)
    };
    let mut walked = Walked::default();
    context.place.walk(&mut |path, metadata| {
        let mode = metadata.mode;
        if metadata.kind == FileKind::File && (mode & 0o6000 != 0 || metadata.has_capabilities) {
            let mut kinds = Vec::new();
            if mode & 0o4000 != 0 {
                kinds.push("setuid");
            }
            if mode & 0o2000 != 0 {
                kinds.push("setgid");
            }
            if metadata.has_capabilities {
                kinds.push("capabilities");
            }
            keep(&mut walked.privileged, path, kinds.join(", "));
        }
        let is_writable = match metadata.kind {
            FileKind::Folder => mode & 0o1002 == 0o0002,
            FileKind::File => mode & 0o0002 != 0,
            FileKind::Link | FileKind::Other => false,
        };
        if is_writable {
            keep(&mut walked.writable, path, mode);
        }
        if !is_known(&uids, metadata.uid) || !is_known(&gids, metadata.gid) {
            keep(&mut walked.unowned, path, (metadata.uid, metadata.gid));
        }
    })?;
    Ok(walked)
}

fn keep<T>(kept: &mut BTreeMap<TreePath, T>, path: &TreePath, value: T) {
    if kept.len() < KEPT_MAX {
        kept.insert(path.clone(), value);
    }
}

pub(super) fn inventory(context: &Context<'_>, check: &Inventory) -> Look {
    let walked = context.walked()?;
    let problems = walked
        .privileged
        .iter()
        .filter(|(path, _)| !check.allowed.iter().any(|allowed| allowed.matches(path)))
        .map(|(path, kinds)| problem("no setuid, setgid or capabilities", kinds, path.to_string()))
        .collect();
    Ok(Verdict::from_problems(problems))
}

pub(super) fn tree(context: &Context<'_>, check: TreeCheck) -> Look {
    let walked = context.walked()?;
    let problems = match check {
        TreeCheck::WorldWritable => walked
            .writable
            .iter()
            .map(|(path, mode)| {
                problem(
                    "not for everybody to write",
                    &format!("mode {mode:04o}"),
                    path.to_string(),
                )
            })
            .collect(),
        TreeCheck::Owned => walked
            .unowned
            .iter()
            .map(|(path, (uid, gid))| problem("a known owner and group", &format!("{uid}:{gid}"), path.to_string()))
            .collect(),
    };
    Ok(Verdict::from_problems(problems))
}
