//! Programs that measurements and racks start by themselves: this machine's own release of the programs alone.
//!
//! Debian's packages start a server when they are installed, which nobody here asked for. So they are downloaded and
//! unpacked, and never installed. The libraries that they link are installed packages; where those would bring a server's
//! configuration with them, they are unpacked too, beside the program. Refused: Debian 13's programs as for the boot
//! loaders. They would need that release's C library on an older machine.

use super::packages::apt_get;
use crate::run::{output_of, run_announced};
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program, the package it is in, and who needs it.
pub struct Program {
    package: &'static str,
    program: &'static str,
    purpose: &'static str,
}

/// TFTP.
pub const TFTPD_HPA: Program = Program {
    package: "tftpd-hpa",
    program: "usr/sbin/in.tftpd",
    purpose: "the benchmarks compare with",
};
/// HTTP.
pub const NGINX: Program = Program {
    package: "nginx",
    program: "usr/sbin/nginx",
    purpose: "the benchmarks compare with",
};
/// A DHCP relay.
pub const DHCRELAY: Program = Program {
    package: "isc-dhcp-relay",
    program: "usr/sbin/dhcrelay",
    purpose: "virtual racks put before a subnet",
};

/// A DHCP server.
pub const DHCPD: Program = Program {
    package: "isc-dhcp-server",
    program: "usr/sbin/dhcpd",
    purpose: "virtual racks have as the site's own",
};

/// A registry for images of containers.
pub const REGISTRY: Program = Program {
    package: "docker-registry",
    program: "usr/bin/docker-registry",
    purpose: "virtual racks import roots from",
};

/// A program with libraries of its own: packages unpacked into one folder.
pub struct ProgramFolder {
    packages: &'static [&'static str],
    program: &'static str,
    purpose: &'static str,
}

/// A DHCP server, with the libraries that nothing else here has.
pub const KEA: ProgramFolder = ProgramFolder {
    packages: &["kea-dhcp4-server", "kea-common", "liblog4cplus-2.0.5", "libmariadb3"],
    program: "usr/sbin/kea-dhcp4",
    purpose: "virtual racks have as the site's own",
};

/// Fetches the program to `path` unless it is there; `work` is where temporary files go.
///
/// # Errors
/// When the mirror cannot be reached, or the package lost its program.
pub fn fetch_missing(wanted: &Program, work: &Path, path: &Path) -> Result<()> {
    let Program {
        package,
        program,
        purpose,
    } = wanted;
    if path.is_file() {
        return Ok(());
    }
    let scratch = fresh_folder(&work.join(format!("{package}.tmp")))?;
    let unpacked = scratch.join("unpacked");
    fetch(package, purpose, &scratch, &unpacked)?;
    fs::rename(unpacked.join(program), path).with_context(|| format!("{package} has no /{program} any more"))?;
    fs::remove_dir_all(&scratch).context("cannot remove a temporary folder")
}

/// Fetches the program with its libraries into the folder `path` unless it is there; `work` is where temporary files go.
///
/// # Errors
/// As [`fetch_missing`].
pub fn fetch_missing_folder(wanted: &ProgramFolder, work: &Path, path: &Path) -> Result<()> {
    let ProgramFolder {
        packages,
        program,
        purpose,
    } = wanted;
    // The folder appears whole or not at all.
    if path.join(program).is_file() {
        return Ok(());
    }
    let name = path.file_name().unwrap_or_default().display();
    let scratch = fresh_folder(&work.join(format!("{name}.tmp")))?;
    let unpacked = scratch.join("unpacked");
    for package in *packages {
        fetch(package, purpose, &fresh_folder(&scratch.join(package))?, &unpacked)?;
    }
    ensure!(
        unpacked.join(program).is_file(),
        "{} have no /{program} any more",
        packages.join(", ")
    );
    fs::rename(&unpacked, path).with_context(|| format!("cannot put {} in place", path.display()))?;
    fs::remove_dir_all(&scratch).context("cannot remove a temporary folder")
}

fn fresh_folder(path: &Path) -> Result<PathBuf> {
    if path.exists() {
        fs::remove_dir_all(path)?;
    }
    fs::create_dir_all(path)?;
    Ok(path.to_owned())
}

/// Downloads a package into the folder `scratch` and adds what is in it to the folder `unpacked`.
fn fetch(package: &str, purpose: &str, scratch: &Path, unpacked: &Path) -> Result<()> {
    // The lists of packages may be of another day, or not be there.
    if download(package, scratch).is_err() {
        run_announced("update the package lists", apt_get().arg("update"))?;
        download(package, scratch).with_context(|| format!("cannot download {package}, which {purpose}"))?;
    }
    let archive = find_archive(package, scratch)?;
    output_of(Command::new("dpkg-deb").arg("--extract").arg(archive).arg(unpacked)).map(drop)
}

/// apt checks the archive's signature and the package's digest.
fn download(package: &str, folder: &Path) -> Result<()> {
    let mut command = apt_get();
    command.current_dir(folder);
    // The unprivileged download user cannot reach into somebody's checkout.
    command.args(["-o", "APT::Sandbox::User=root", "download", package]);
    output_of(&mut command).map(drop)
}

fn find_archive(package: &str, folder: &Path) -> Result<PathBuf> {
    let mut paths = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let archive = paths.find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    archive.with_context(|| format!("apt-get downloaded no {package}"))
}
