//! The dashboard: installs its packages and builds it when something changed.

use crate::run::run_announced;
use crate::workspace::program_exists;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

/// Brings `web/node_modules` and `web/dist` up to date, where there is a dashboard and Node.js.
///
/// # Errors
/// When npm fails.
pub fn build_if_needed(root: &Path) -> Result<()> {
    let web = root.join("web");
    if !web.join("package.json").exists() {
        return Ok(());
    }
    if !program_exists("npm") {
        eprintln!("note: npm is missing, so the dashboard is not built: install Node.js 20 or later");
        return Ok(());
    }
    let lock = modified(&web.join("package-lock.json"));
    // npm writes this file last, so that an interrupted installation is seen.
    if is_older(modified(&web.join("node_modules/.package-lock.json")), lock) {
        run_announced(
            "install the dashboard's packages",
            npm(&web).args(["ci", "--no-audit", "--no-fund"]),
        )?;
    }
    let newest_source = newest_below(&web)?.max(modified(&root.join("docs/openapi.json")));
    if is_older(modified(&web.join("dist/index.html")), newest_source) {
        run_announced("build the dashboard", npm(&web).args(["run", "build"]))?;
    }
    Ok(())
}

/// Runs the dashboard's own checks and tests, those that its package.json has.
///
/// # Errors
/// When one fails.
pub fn test(root: &Path) -> Result<()> {
    let web = root.join("web");
    let Ok(text) = fs::read_to_string(web.join("package.json")) else {
        return Ok(());
    };
    let package: Value = serde_json::from_str(&text).context("web/package.json is not JSON")?;
    for script in ["check", "test"] {
        if package.get("scripts").and_then(|scripts| scripts.get(script)).is_some() {
            run_announced(
                &format!("dashboard: npm run {script}"),
                npm(&web).args(["run", script]).env("CI", "true"),
            )?;
        }
    }
    Ok(())
}

fn npm(web: &Path) -> Command {
    let mut command = Command::new("npm");
    command.current_dir(web);
    command
}

/// Whether what was made at `made` must be made again from what changed at `source`.
fn is_older(made: Option<SystemTime>, source: Option<SystemTime>) -> bool {
    match (made, source) {
        (None, _) => true,
        (Some(made), Some(source)) => made < source,
        (Some(_), None) => false,
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// The newest file below `folder`, without what npm and the build make.
fn newest_below(folder: &Path) -> Result<Option<SystemTime>> {
    let mut newest = None;
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.file_type()?.is_file() {
            newest = newest.max(modified(&entry.path()));
        } else if entry.file_type()?.is_dir() && name != "node_modules" && name != "dist" && name != ".svelte-kit" {
            newest = newest.max(newest_below(&entry.path())?);
        }
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_absent_or_older_is_made_again() {
        let early = SystemTime::UNIX_EPOCH;
        let late = early + Duration::from_secs(1);
        assert!(is_older(None, Some(early)) && is_older(None, None));
        assert!(is_older(Some(early), Some(late)));
        assert!(!is_older(Some(late), Some(early)) && !is_older(Some(late), Some(late)) && !is_older(Some(late), None));
    }
}
