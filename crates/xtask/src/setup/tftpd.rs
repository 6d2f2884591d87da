//! tftpd-hpa, a yardstick of the benchmarks: this machine's own release of the program alone.
//!
//! Debian's package starts a server on port 69 when it is installed, which nobody here asked for. So it is downloaded
//! and unpacked, and never installed; the one library that it links beyond the C library is an installed package.
//! Refused: Debian 13's program as for the boot loaders. It would need that release's C library on an older machine.

use super::packages::apt_get;
use crate::run::{output_of, run_announced};
use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGE: &str = "tftpd-hpa";
const PROGRAM: &str = "usr/sbin/in.tftpd";

/// Fetches the program to `path` unless it is there; `work` is where temporary files go.
///
/// # Errors
/// When the mirror cannot be reached, or the package lost its program.
pub fn fetch_missing(work: &Path, path: &Path) -> Result<()> {
    if path.is_file() {
        return Ok(());
    }
    let scratch = work.join("tftpd.tmp");
    if scratch.exists() {
        fs::remove_dir_all(&scratch)?;
    }
    fs::create_dir_all(&scratch)?;
    // The lists of packages may be of another day, or not be there.
    if download(&scratch).is_err() {
        run_announced("update the package lists", apt_get().arg("update"))?;
        download(&scratch).with_context(|| format!("cannot download {PACKAGE}, which the benchmarks compare with"))?;
    }
    let unpacked = scratch.join("unpacked");
    output_of(
        Command::new("dpkg-deb")
            .arg("--extract")
            .arg(find_archive(&scratch)?)
            .arg(&unpacked),
    )?;
    fs::rename(unpacked.join(PROGRAM), path).with_context(|| format!("{PACKAGE} has no /{PROGRAM} any more"))?;
    fs::remove_dir_all(&scratch).context("cannot remove a temporary folder")
}

/// apt checks the archive's signature and the package's digest.
fn download(folder: &Path) -> Result<()> {
    let mut command = apt_get();
    command.current_dir(folder);
    // The unprivileged download user cannot reach into somebody's checkout.
    command.args(["-o", "APT::Sandbox::User=root", "download", PACKAGE]);
    output_of(&mut command).map(drop)
}

fn find_archive(folder: &Path) -> Result<PathBuf> {
    let mut paths = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let archive = paths.find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    archive.with_context(|| format!("apt-get downloaded no {PACKAGE}"))
}
