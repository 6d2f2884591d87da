//! Debian packages: what is needed and for what, and installing the rest.

use crate::run::run_announced;
use crate::workspace::{is_root, program_exists};
use anyhow::{Context as _, Result, bail, ensure};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Packages and what needs them.
const REQUIRED: [(&str, &str); 31] = [
    ("ca-certificates", "downloads over HTTPS"),
    ("chromium", "the dashboard's browser tests"),
    ("cpio", "initramfs archives"),
    (
        "debian-archive-keyring",
        "checking the packages of boot loaders and firmware",
    ),
    (
        "dnsmasq-base",
        "another DHCP server of racks, and what benchmarks compare with",
    ),
    ("dosfstools", "EFI system partitions"),
    ("e2fsprogs", "ext4 filesystems"),
    ("g++", "libFuzzer, which the fuzz targets are linked with"),
    ("gdisk", "partition tables"),
    ("ipxe-qemu", "network boot of BIOS nodes"),
    ("iproute2", "network namespaces"),
    ("kmod", "kernel modules of images"),
    ("libcrypt1", "nginx, which the benchmarks compare with"),
    ("libpcre2-8-0", "nginx, which the benchmarks compare with"),
    ("libpq5", "Kea, a site's own DHCP server in racks"),
    ("libwrap0", "tftpd-hpa, which the benchmarks compare with"),
    ("minisign", "signatures of images, as people check and make them"),
    ("mmdebstrap", "golden images"),
    ("mold", "fast linking"),
    ("mtools", "EFI system partitions without mounting"),
    ("openssh-client", "commands on nodes"),
    ("openssl", "signatures of kernel modules"),
    ("postgresql", "the private database"),
    ("qemu-system-arm", "arm64 nodes"),
    ("qemu-system-x86", "nodes"),
    ("seabios", "BIOS firmware of nodes"),
    ("skopeo", "images of containers, for what racks import"),
    ("squashfs-tools", "golden images"),
    ("util-linux", "disks and namespaces"),
    ("zlib1g", "nginx, which the benchmarks compare with"),
    ("zstd", "packs and initramfs archives"),
];

/// Where Debian's scripts read whether a new PostgreSQL package makes a cluster.
const CLUSTER_CONFIGURATION: &str = "/etc/postgresql-common/createcluster.conf";

/// Installs what is missing; asks nothing.
///
/// # Errors
/// Without root or on another system than Debian when something is missing, and when apt fails.
pub fn install_missing() -> Result<()> {
    ensure!(
        program_exists("dpkg-query") && program_exists("apt-get"),
        "setup installs from Debian's packages; on another system install the like of: {}",
        REQUIRED.map(|(name, purpose)| format!("{name} ({purpose})")).join(", ")
    );
    let missing = missing_packages(&installed_packages()?);
    if missing.is_empty() {
        return Ok(());
    }
    for (name, purpose) in &missing {
        eprintln!("• missing: {name}, for {purpose}");
    }
    let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    ensure!(
        is_root(),
        "installing packages needs root; run as root: apt-get install {}",
        names.join(" ")
    );
    if names.contains(&"postgresql") {
        prevent_main_cluster()?;
    }
    run_announced("update the package lists", apt_get().arg("update"))?;
    let mut install = apt_get();
    install.args([
        "install",
        "--yes",
        "--no-install-recommends",
        "-o",
        "Dpkg::Options::=--force-confold",
    ]);
    run_announced(&format!("install {}", names.join(" ")), install.args(&names))?;
    let still_missing = missing_packages(&installed_packages()?);
    if let Some((name, _)) = still_missing.first() {
        bail!("apt-get succeeded, but {name} is still not installed");
    }
    Ok(())
}

/// An apt-get that asks nothing.
pub fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet");
    command
}

/// One line a package, `STATUS NAME`. dpkg-query fails for names it never heard of, and still lists the others.
fn installed_packages() -> Result<String> {
    let names = REQUIRED.map(|(name, _)| name);
    let mut query = Command::new("dpkg-query");
    query
        .args(["--show", "--showformat", "${db:Status-Status} ${Package}\n"])
        .args(names)
        .stderr(Stdio::null());
    let output = query.output().context("cannot start dpkg-query")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The required packages that `listed` (lines of `STATUS NAME`) does not show as installed.
fn missing_packages(listed: &str) -> Vec<(&'static str, &'static str)> {
    let installed: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.strip_prefix("installed "))
        .collect();
    REQUIRED
        .into_iter()
        .filter(|(name, _)| !installed.contains(name))
        .collect()
}

/// The package would start a cluster of its own on port 5432 that nobody uses: the server runs a private one. Only
/// before the package's first installation; on a machine that has it, its settings are somebody's.
fn prevent_main_cluster() -> Result<()> {
    let path = Path::new(CLUSTER_CONFIGURATION);
    if path.exists() || Path::new("/usr/share/postgresql-common").exists() {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, "create_main_cluster = false\n").with_context(|| format!("cannot write {CLUSTER_CONFIGURATION}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(skipped: &str) -> String {
        REQUIRED
            .iter()
            .filter(|(name, _)| *name != skipped)
            .map(|(name, _)| format!("installed {name}\n"))
            .collect()
    }

    #[test]
    fn nothing_is_missing_when_all_are_installed() {
        assert_eq!(missing_packages(&listing("")), []);
    }

    #[test]
    fn unknown_removed_and_half_installed_packages_are_missing() {
        for status in [
            "",
            "config-files seabios\n",
            "half-configured seabios\n",
            "installed seabios-ia32\n",
        ] {
            let listed = format!("{}{status}", listing("seabios"));
            assert_eq!(
                missing_packages(&listed),
                [("seabios", "BIOS firmware of nodes")],
                "{status}"
            );
        }
    }

    #[test]
    fn a_machine_without_any_of_them_misses_all() {
        assert_eq!(missing_packages("").len(), REQUIRED.len());
    }
}
