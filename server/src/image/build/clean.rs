//! What a build leaves in a tree and no node should find there.

use std::path::Path;

use manifest::{PathPattern, TreePath};

use super::{BuildError, debian, files};

/// Removed with all below: what the package tools keep for themselves, logs of the build, and what the packages'
/// scripts made that belongs to one machine. Identities a recipe's own files bring are not touched here: they fail the
/// build.
const REMOVED: [&str; 18] = [
    "/dev/*",
    "/proc/*",
    "/run/*",
    "/sys/*",
    "/tmp/*",
    "/var/tmp/*",
    "/var/lib/apt/lists/*",
    "/var/cache/apt/*",
    "/var/cache/debconf/*-old",
    "/var/lib/dpkg/*-old",
    "/var/log/apt",
    "/var/log/*.log",
    "/var/log/btmp",
    "/var/log/faillog",
    "/var/log/lastlog",
    "/var/log/wtmp",
    "/var/lib/systemd/random-seed",
    "/var/lib/systemd/credential.secret",
];

/// Made by the packages' scripts; removed before the recipe's files are copied.
const IDENTITIES: [&str; 5] = [
    "/etc/munge/munge.key",
    "/etc/ssh/ssh_host_*",
    "/var/lib/dbus/machine-id",
    // DKMS signs with a key that it makes for itself.
    "/var/lib/dkms/mok.key",
    "/var/lib/dkms/mok.pub",
];

/// Brings what the package tools left of the build machine and of an identity to the state of an image. Before the
/// recipe's files are copied, so that an identity among those is noticed.
pub(super) fn after_packages(root: &Path) -> Result<(), BuildError> {
    let patterns = parse(IDENTITIES.into_iter().chain(debian::LEFT_BEHIND))?;
    files::remove(root, &patterns)?;
    // mmdebstrap copies the build machine's; nodes get theirs rendered.
    for (path, placeholder) in [
        ("/etc/hostname", "localhost\n"),
        ("/etc/resolv.conf", "# Rendered for each node.\n"),
        ("/etc/machine-id", ""),
    ] {
        files::write(root, &path.parse::<TreePath>()?, placeholder.as_bytes())?;
    }
    Ok(())
}

/// Removes what no node should find. Says how many paths that were.
pub(super) fn at_the_end(root: &Path) -> Result<u64, BuildError> {
    files::remove(root, &parse(REMOVED)?)
}

fn parse(patterns: impl IntoIterator<Item = &'static str>) -> Result<Vec<PathPattern>, BuildError> {
    patterns
        .into_iter()
        .map(|pattern| pattern.parse().map_err(BuildError::from))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_tree_comes_out_as_nobodys() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        for path in [
            "etc/ssh/ssh_host_rsa_key",
            "etc/ssh/moduli",
            "etc/munge/munge.key",
            "var/lib/dkms/mok.key",
            "etc/machine-id",
            "etc/hostname",
            "etc/apt/sources.list.d/0000plumbline.sources",
            "dev/null",
            "var/log/apt/term.log",
            "var/log/dpkg.log",
            "var/log/journal/keep",
            "var/lib/dpkg/status",
            "var/lib/dpkg/status-old",
        ] {
            std::fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            std::fs::write(root.join(path), "build machine").unwrap();
        }
        after_packages(root).unwrap();
        at_the_end(root).unwrap();
        let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
        assert_eq!(text("etc/machine-id").unwrap(), "");
        assert_eq!(text("etc/hostname").unwrap(), "localhost\n");
        for kept in ["etc/ssh/moduli", "var/log/journal/keep", "var/lib/dpkg/status"] {
            assert!(text(kept).is_some(), "{kept} stays");
        }
        for gone in [
            "etc/ssh/ssh_host_rsa_key",
            "etc/munge/munge.key",
            "var/lib/dkms/mok.key",
            "etc/apt/sources.list.d/0000plumbline.sources",
            "dev/null",
            "var/log/apt/term.log",
            "var/log/dpkg.log",
            "var/lib/dpkg/status-old",
        ] {
            assert!(text(gone).is_none(), "{gone} goes");
        }
        assert!(root.join("dev").is_dir(), "mount points stay");
    }
}
