//! Groups and accounts that a recipe makes.
//!
//! The tree's own tools write the account files, so that their order and locks are as the distribution has them. Every
//! account is locked for passwords: who logs in has a key.

use std::path::Path;

use manifest::TreePath;

use super::super::recipe::{GroupRecipe, OsRecipe, UserRecipe};
use super::command::{command_in, output};
use super::{Build, BuildError, files};

/// Makes what the recipe names, groups first.
pub(super) fn create(build: &Build, root: &Path, recipe: &OsRecipe) -> Result<(), BuildError> {
    for group in &recipe.groups {
        run(build, root, "groupadd", &group_arguments(group))?;
    }
    for user in &recipe.users {
        let own = GroupRecipe {
            name: user.name.clone(),
            gid: user.gid.unwrap_or(user.uid),
        };
        if !recipe.groups.iter().any(|group| group.gid == own.gid) {
            run(build, root, "groupadd", &group_arguments(&own))?;
        }
        let home = home(user)?;
        run(build, root, "useradd", &user_arguments(user, &own, &home))?;
        if !user.authorized_keys.is_empty() {
            let folder = home.join(b".ssh")?;
            let file = folder.join(b"authorized_keys")?;
            let lines: String = user.authorized_keys.iter().map(|line| format!("{line}\n")).collect();
            files::write(root, &file, lines.as_bytes())?;
            files::set_owner_mode(root, &file, user.uid, own.gid, 0o600)?;
            files::set_owner_mode(root, &folder, user.uid, own.gid, 0o700)?;
        }
    }
    Ok(())
}

fn run(build: &Build, root: &Path, program: &str, arguments: &[String]) -> Result<(), BuildError> {
    let mut command = command_in(root, program, build.epoch);
    command.args(arguments);
    output(program, command).map(|_| ())
}

fn home(user: &UserRecipe) -> Result<TreePath, BuildError> {
    match &user.home {
        Some(home) => Ok(home.clone()),
        None => Ok(format!("/home/{}", user.name).parse()?),
    }
}

fn group_arguments(group: &GroupRecipe) -> Vec<String> {
    vec![format!("--gid={}", group.gid), group.name.to_string()]
}

fn user_arguments(user: &UserRecipe, own: &GroupRecipe, home: &TreePath) -> Vec<String> {
    let shell = user
        .shell
        .as_ref()
        .map_or_else(|| "/bin/bash".to_owned(), ToString::to_string);
    let mut arguments = vec![
        format!("--uid={}", user.uid),
        format!("--gid={}", own.gid),
        format!("--home-dir={home}"),
        format!("--shell={shell}"),
        "--create-home".to_owned(),
        "--no-log-init".to_owned(),
    ];
    if !user.groups.is_empty() {
        let groups: Vec<_> = user.groups.iter().map(ToString::to_string).collect();
        arguments.push(format!("--groups={}", groups.join(",")));
    }
    arguments.push(user.name.to_string());
    arguments
}
