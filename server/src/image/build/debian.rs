//! A Debian tree from packages, by mmdebstrap.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::recipe::{PackagesBase, Word};
use super::command::{Watch, command, output, run_watched};
use super::progress::Count;
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
    let mut counter = PackageCounter::new(extent);
    let watch = Watch {
        limit: None,
        count: Some(&mut |line| counter.heard(line)),
    };
    run_watched("mmdebstrap", "packages", mmdebstrap, &build.reporter, watch)?;
    Ok(root)
}

/// Counts packages by what apt and dpkg say of each. mmdebstrap installs in two rounds, so the total grows once.
struct PackageCounter {
    extent: Extent,
    total: u64,
    fetched: u64,
    unpacked: u64,
    set_up: u64,
}

impl PackageCounter {
    const fn new(extent: Extent) -> Self {
        Self {
            extent,
            total: 0,
            fetched: 0,
            unpacked: 0,
            set_up: 0,
        }
    }

    /// Takes a line; none when it says nothing of packages.
    fn heard(&mut self, line: &str) -> Option<Count> {
        if let Some(total) = newly_installed(line) {
            self.total += total;
        } else if self.total == 0 {
            return None;
        } else if line.starts_with("Get:") {
            self.fetched += 1;
        } else if line.starts_with("Unpacking ") {
            self.unpacked += 1;
        } else if line.starts_with("Setting up ") {
            self.set_up += 1;
        } else {
            return None;
        }
        let done = match self.extent {
            // Unpacking and setting up take about as long as each other.
            Extent::Install => (self.unpacked + self.set_up) / 2,
            Extent::Unpack => self.fetched,
        };
        Some(Count {
            done: done.min(self.total),
            total: Some(self.total),
            unit: "packages",
        })
    }
}

/// What apt is about to install: "0 upgraded, 69 newly installed, 0 to remove and 0 not upgraded."
fn newly_installed(line: &str) -> Option<u64> {
    let (before, _) = line.split_once(" newly installed, ")?;
    before.rsplit(' ').next()?.parse().ok()
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
    fn packages_are_counted_over_both_rounds() {
        let said = "Get:1 http://deb.debian.org/debian bookworm InRelease [151 kB]\n\
            0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.\n\
            Get:2 http://deb.debian.org/debian bookworm/main amd64 a amd64 1 [2 kB]\n\
            Unpacking a (1) ...\nUnpacking b (1) ...\nSetting up a (1) ...\nSetting up b (1) ...\n\
            0 upgraded, 1 newly installed, 0 to remove and 0 not upgraded.\nReading database ...\n\
            Unpacking c (1) ...\nSetting up c (1) ...\n";
        let counts = |extent| -> Vec<(u64, u64)> {
            let mut counter = PackageCounter::new(extent);
            let counts = said.lines().filter_map(|line| counter.heard(line));
            counts.map(|count| (count.done, count.total.unwrap())).collect()
        };
        let install = [(0, 2), (0, 2), (0, 2), (1, 2), (1, 2), (2, 2), (2, 3), (2, 3), (3, 3)];
        assert_eq!(counts(Extent::Install), install);
        assert_eq!(counts(Extent::Unpack).last(), Some(&(1, 3)));
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
