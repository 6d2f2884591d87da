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

#[cfg(test)]
mod tests {
    use super::super::progress::Reporter;
    use super::*;
    use crate::image::keys::Keys;
    use crate::image::store::ImageStore;

    /// A tree with a shell and `sleep` of this machine, and what they are linked with.
    fn tree(root: &Path) {
        for folder in ["bin", "dev", "proc", "tmp"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        for program in ["/bin/sh", "/bin/sleep"] {
            let linked = std::process::Command::new("ldd").arg(program).output().unwrap();
            let linked = String::from_utf8(linked.stdout).unwrap();
            let libraries = linked.split_whitespace().filter(|word| word.starts_with('/'));
            for file in std::iter::once(program).chain(libraries) {
                let to = root.join(file.trim_start_matches('/'));
                std::fs::create_dir_all(to.parent().unwrap()).unwrap();
                std::fs::copy(file, to).unwrap();
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_hook_that_takes_too_long_fails_the_build_with_its_last_words() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: a tree's programs run in it, which needs root");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        tree(&root);
        let (reporter, mut lines) = Reporter::channel();
        let build = Build {
            reporter,
            store: ImageStore::open(folder.path()).unwrap(),
            keys: Keys::load_or_create(&folder.path().join("keys")).unwrap(),
            data_dir: folder.path().to_owned(),
            work: folder.path().to_owned(),
            epoch: 0,
            version: "1".to_owned(),
            lock: None,
            runtime: tokio::runtime::Handle::current(),
        };
        let hook = |name: &str, script: &str| {
            std::fs::write(folder.path().join(name), script).unwrap();
            Beside {
                folder: folder.path().to_owned(),
                name: name.to_owned().try_into().unwrap(),
            }
        };
        let quick = hook("quick.sh", "#!/bin/sh\necho fine\n");
        let hangs = hook("hangs.sh", "#!/bin/sh\necho waits for the license server\nsleep 600\n");
        let done = tokio::task::spawn_blocking(move || {
            (
                run(&build, &root, &quick, 60),
                run(&build, &root, &hangs, 1).unwrap_err(),
            )
        });
        while lines.recv().await.is_some() {}
        let (quick, error) = done.await.unwrap();
        quick.unwrap();
        let error = error.to_string();
        assert!(
            error.contains("hangs.sh took longer than 1 s (the recipe's hook_secs_max)")
                && error.ends_with("waits for the license server"),
            "{error}"
        );
    }
}
