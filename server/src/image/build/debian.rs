//! A Debian tree from packages, by mmdebstrap.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::recipe::{PackagesBase, Word};
use super::command::{command, output, run};
use super::{Build, BuildError, sources};

/// Programs this needs, with the packages that bring them.
pub(super) const PROGRAMS: [(&str, &str); 5] = [
    ("mmdebstrap", "mmdebstrap"),
    ("apt-config", "apt"),
    ("unshare", "util-linux"),
    ("mount", "mount"),
    ("chroot", "coreutils"),
];

/// Name of the source file in the build's folder; mmdebstrap puts a number before it in the tree.
const SOURCES: &str = "plumbline.sources";
/// Where a lock's pins lie while packages are chosen.
const PINS: &str = "/etc/apt/preferences.d/plumbline-lock";
/// What mmdebstrap writes for apt, and no image should hold.
pub(super) const LEFT_BEHIND: [&str; 3] = [
    PINS,
    "/etc/apt/sources.list.d/????plumbline.sources",
    "/etc/apt/apt.conf.d/99mmdebstrap",
];

/// Groups of apt settings of the build machine that decide whether and how it reaches its mirrors.
const ACQUIRE: [&str; 6] = [
    "Acquire::http",
    "Acquire::https",
    "Acquire::ForceIPv",
    "Acquire::Check-",
    "Acquire::Max-ValidTime",
    "Acquire::Retries",
];

/// What to do with the packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// Install them: their scripts run.
    Install,
    /// Only unpack them, and keep the package files in apt's cache.
    Unpack,
}

/// Makes a tree of these packages.
pub(super) fn tree(build: &Build, wanted: &PackagesBase, extent: Extent) -> Result<PathBuf, BuildError> {
    let distribution = &wanted.distribution;
    if !rustix::process::geteuid().is_root() {
        return Err(BuildError::NotRoot);
    }
    super::command::require(&PROGRAMS)?;
    let list = build.work.join(SOURCES);
    let text = sources::text(Path::new("/etc/apt"), wanted, &build.work)?;
    std::fs::write(&list, text).map_err(BuildError::io(format!("writing {}", list.display())))?;
    let mut apt_config = command("apt-config");
    apt_config.args(["dump", "Acquire"]);
    let settings = String::from_utf8_lossy(&output("apt-config", apt_config)?).into_owned();

    let root = build.work.join("root");
    let mut packages: Vec<_> = wanted.packages.iter().map(Word::as_str).collect();
    packages.push(wanted.kernel.as_str());
    packages.sort_unstable();
    packages.dedup();
    build
        .reporter
        .say("packages", format!("{} packages and what they need", packages.len()))?;
    // mmdebstrap mounts inside the tree. In a mount namespace of its own, no mount outlives it, whatever ends it: a
    // tree that still had the machine's /dev in it could not be removed safely.
    let mut mmdebstrap = command("unshare");
    mmdebstrap
        .args(["--mount", "--propagation", "private", "mmdebstrap"])
        .args([
            "--verbose",
            "--mode=root",
            "--format=directory",
            "--architectures=amd64",
        ])
        .arg(format!("--include={}", packages.join(",")))
        .arg("--aptopt=APT::Install-Recommends \"false\"")
        // The kernel's hook makes no initramfs: it is made once, when the recipe's files are in place.
        .env("INITRD", "No")
        .env("SOURCE_DATE_EPOCH", build.epoch.to_string());
    merged_usr(&mut mmdebstrap);
    match extent {
        Extent::Install => {
            mmdebstrap.arg(format!(
                "--variant={}",
                distribution.variant.as_ref().map_or("minbase", Word::as_str)
            ));
        }
        Extent::Unpack => {
            mmdebstrap.args(["--variant=extract", "--skip=cleanup/apt/cache"]);
        }
    }
    for setting in acquire_settings(&settings) {
        mmdebstrap.arg(format!("--aptopt={setting}"));
    }
    if let Some(proxy) = &distribution.proxy {
        // After the machine's own: apt takes the last.
        mmdebstrap.arg(format!("--aptopt=Acquire::http::Proxy \"{proxy}\""));
        mmdebstrap.arg(format!("--aptopt=Acquire::https::Proxy \"{proxy}\""));
    }
    if let Some((_, lock)) = &build.lock {
        let pins = build.work.join("pins");
        std::fs::write(&pins, lock.pins()).map_err(BuildError::io("writing the lock's pins"))?;
        mmdebstrap.arg(format!("--setup-hook=upload {} {PINS}", pins.display()));
    }
    mmdebstrap.arg(distribution.suite.as_str()).arg(&root).arg(&list);
    run("mmdebstrap", "packages", mmdebstrap, &build.reporter)?;
    Ok(root)
}

/// The links of a merged /usr come first, as Debian's own installer makes them; without the hook, a package converts
/// the tree afterwards and leaves Perl behind for it.
fn merged_usr(mmdebstrap: &mut Command) {
    let hook = "/usr/share/mmdebstrap/hooks/maybe-merged-usr";
    if Path::new(hook).is_dir() {
        mmdebstrap.arg(format!("--hook-dir={hook}"));
    }
}

/// Settings from `apt-config dump` that a tree's apt needs as well; with them in the tree's own file, the machine's
/// folder of settings is not read.
fn acquire_settings(dump: &str) -> Vec<String> {
    let wanted = |line: &&str| {
        let has_value = !line.ends_with("\"\";");
        has_value && ACQUIRE.iter().any(|prefix| line.starts_with(prefix))
    };
    dump.lines()
        .filter(wanted)
        .map(|line| line.trim_end_matches(';').to_owned())
        .collect()
}

/// The one kernel of a tree, by the name of its file in `/boot`.
pub(super) fn kernel_release(root: &Path) -> Result<String, BuildError> {
    let failed = || BuildError::io("reading /boot of the tree");
    let mut releases = Vec::new();
    for item in std::fs::read_dir(root.join("boot")).map_err(failed())? {
        let name = item.map_err(failed())?.file_name();
        if let Some(release) = name.to_str().and_then(|name| name.strip_prefix("vmlinuz-")) {
            releases.push(release.to_owned());
        }
    }
    match releases.as_slice() {
        [release] => Ok(release.clone()),
        _ => Err(BuildError::Tree {
            path: "/boot".parse()?,
            problem: format!("expected one kernel, found {}: {}", releases.len(), releases.join(", ")),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_way_to_its_mirrors_is_taken_along() {
        let dump = "Acquire \"\";\nAcquire::http \"\";\nAcquire::http::Proxy \"http://p:3142\";\n\
            Acquire::Check-Date \"false\";\nAcquire::Languages \"none\";\nAcquire::IndexTargets::deb::x \"y\";\n";
        assert_eq!(
            acquire_settings(dump),
            [
                "Acquire::http::Proxy \"http://p:3142\"",
                "Acquire::Check-Date \"false\""
            ]
        );
    }

    #[test]
    fn a_tree_has_exactly_one_kernel() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir(tree.path().join("boot")).unwrap();
        assert!(kernel_release(tree.path()).unwrap_err().to_string().contains("found 0"));
        std::fs::write(tree.path().join("boot/vmlinuz-6.1.0-57-amd64"), "").unwrap();
        assert_eq!(kernel_release(tree.path()).unwrap(), "6.1.0-57-amd64");
        std::fs::write(tree.path().join("boot/vmlinuz-6.1.0-58-amd64"), "").unwrap();
        assert!(kernel_release(tree.path()).unwrap_err().to_string().contains("found 2"));
    }
}
