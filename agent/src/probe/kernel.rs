//! Modules: loaded ones from `/proc/modules`, built-in ones from the running kernel's `modules.builtin`.

use std::collections::BTreeMap;
use std::path::Path;

use drift::{ExpectedFacts, ModuleState, Observation};

use super::{read_text, read_text_or_absent, under};

/// Names of the loaded modules, `_` for `-`.
pub fn parse_modules(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines()
        .filter_map(|line| Some(line.split_whitespace().next()?.replace('-', "_")))
}

/// Names of the built-in modules, `_` for `-`.
pub fn parse_builtin(text: &str) -> impl Iterator<Item = String> + '_ {
    text.lines().filter_map(|line| {
        let file = line.trim().rsplit('/').next()?;
        Some(file.strip_suffix(".ko")?.replace('-', "_"))
    })
}

/// The modules that the baseline names, as far as they are there.
pub(super) fn read_modules(
    base: &Path,
    expected: &ExpectedFacts,
) -> Result<BTreeMap<String, ModuleState>, Observation> {
    let is_named =
        |name: &String| expected.modules_required.contains(name) || expected.modules_forbidden.contains(name);
    let release = read_text(&under(base, "/proc/sys/kernel/osrelease"))?;
    let mut modules = BTreeMap::new();
    // An image without modules has no list.
    let builtin = under(base, &format!("/lib/modules/{}/modules.builtin", release.trim()));
    if let Some(text) = read_text_or_absent(&builtin)? {
        modules.extend(
            parse_builtin(&text)
                .filter(is_named)
                .map(|name| (name, ModuleState::BuiltIn)),
        );
    }
    // A kernel without loadable modules has no such file.
    if let Some(text) = read_text_or_absent(&under(base, "/proc/modules"))? {
        modules.extend(
            parse_modules(&text)
                .filter(is_named)
                .map(|name| (name, ModuleState::Loaded)),
        );
    }
    Ok(modules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaded_and_built_in_modules_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = under(folder.path(), path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("/proc/sys/kernel/osrelease", "6.1.0\n");
        write(
            "/proc/modules",
            "nvme_core 1 2 nvme, Live 0x0\nrds 1 0 - Live 0x0\nxfs 1 0 - Live 0x0\n",
        );
        write(
            "/lib/modules/6.1.0/modules.builtin",
            "kernel/fs/ext4/ext4.ko\nkernel/x/virtio-net.ko\n",
        );
        let expected = ExpectedFacts {
            modules_required: ["ext4", "nvme_core", "virtio_net"].map(str::to_owned).into(),
            modules_forbidden: ["rds", "tipc"].map(str::to_owned).into(),
            ..ExpectedFacts::default()
        };
        let modules = read_modules(folder.path(), &expected).unwrap();
        let (loaded, built_in) = (ModuleState::Loaded, ModuleState::BuiltIn);
        assert_eq!(
            modules.into_iter().collect::<Vec<_>>(),
            [
                ("ext4", built_in),
                ("nvme_core", loaded),
                ("rds", loaded),
                ("virtio_net", built_in)
            ]
            .map(|(name, state)| (name.to_owned(), state))
        );
    }
}
