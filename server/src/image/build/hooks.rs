//! A recipe's scripts, run inside the tree.
//!
//! They have no network, so that what they do depends on the recipe and the packages alone, leave nothing running, and
//! have a time limit, since nobody sits beside a build and sees that one waits for ever.

use std::path::Path;
use std::time::Duration;

use super::super::recipe::Beside;
use super::command::{Watch, command_isolated, run_watched};
use super::{Build, BuildError, files};

/// Where a script lies while it runs; `/tmp` is emptied when the tree is done.
const PLACE: &str = "/tmp/plumbline-hook";
/// Largest script, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// Runs one script to its end, or ends it after so many seconds.
pub(super) fn run(build: &Build, root: &Path, hook: &Beside, secs_max: u32) -> Result<(), BuildError> {
    let path = hook.path();
    let failed = || BuildError::io(format!("reading the hook {}", path.display()));
    let found = std::fs::metadata(&path).map_err(failed())?.len();
    if found > BYTES_MAX {
        return Err(BuildError::Size {
            what: "hook",
            found,
            limit: BYTES_MAX,
        });
    }
    let content = std::fs::read(&path).map_err(failed())?;
    let place = PLACE.parse()?;
    files::write(root, &place, &content)?;
    files::set_owner_mode(root, &place, 0, 0, 0o700)?;
    build.reporter.say("hooks", hook.name.to_string())?;
    let what = format!("hook {}", path.display());
    let watch = Watch {
        limit: Some((Duration::from_secs(secs_max.into()), "the recipe's hook_secs_max")),
        count: None,
    };
    let command = command_isolated(root, PLACE, build.epoch);
    run_watched(&what, "hooks", command, &build.reporter, watch)
}
