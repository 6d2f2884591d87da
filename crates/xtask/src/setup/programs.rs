//! Programs that measurements and racks start by themselves: this machine's own release of the programs alone.
//!
//! Debian's packages start a server when they are installed, which nobody here asked for. So they are downloaded and
//! unpacked, and never installed; the libraries that the programs link are installed packages. Refused: Debian 13's
//! programs as for the boot loaders. They would need that release's C library on an older machine.

use super::packages::apt_get;
use crate::run::{output_of, run_announced};
use anyhow::{Context as _, Result};
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
    let scratch = work.join(format!("{package}.tmp"));
    if scratch.exists() {
        fs::remove_dir_all(&scratch)?;
    }
    fs::create_dir_all(&scratch)?;
    // The lists of packages may be of another day, or not be there.
    if download(package, &scratch).is_err() {
        run_announced("update the package lists", apt_get().arg("update"))?;
        download(package, &scratch).with_context(|| format!("cannot download {package}, which {purpose}"))?;
    }
    let unpacked = scratch.join("unpacked");
    output_of(
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(find_archive(package, &scratch)?)
            .arg(&unpacked),
    )?;
    fs::rename(unpacked.join(program), path).with_context(|| format!("{package} has no /{program} any more"))?;
    fs::remove_dir_all(&scratch).context("cannot remove a temporary folder")
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
