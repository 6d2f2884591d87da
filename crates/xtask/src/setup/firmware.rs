//! The UEFI firmware of virtual machines, from Debian 13's package. Debian 12's OVMF (2022.11) ends a timer interrupt
//! only after the callbacks that it caused, so its clock stands still in them; on a busy host it then hangs at a
//! restart, in a loop that waits for that clock.

use super::newer_debian::{Fetched, Wanted, is_complete, wanted};
use anyhow::Result;
use std::path::Path;

const PACKAGE: &str = "ovmf";
/// The same for arm64.
const PACKAGE_ARM64: &str = "qemu-efi-aarch64";
/// With and without Secure Boot, and for arm64: code, and the variables that a new machine starts from.
const FILES: [Wanted; 6] = [
    wanted(PACKAGE, "usr/share/OVMF/OVMF_CODE_4M.fd", "OVMF_CODE_4M.fd"),
    wanted(PACKAGE, "usr/share/OVMF/OVMF_VARS_4M.fd", "OVMF_VARS_4M.fd"),
    wanted(
        PACKAGE,
        "usr/share/OVMF/OVMF_CODE_4M.secboot.fd",
        "OVMF_CODE_4M.secboot.fd",
    ),
    wanted(PACKAGE, "usr/share/OVMF/OVMF_VARS_4M.ms.fd", "OVMF_VARS_4M.ms.fd"),
    wanted(
        PACKAGE_ARM64,
        "usr/share/AAVMF/AAVMF_CODE.no-secboot.fd",
        "AAVMF_CODE.fd",
    ),
    wanted(PACKAGE_ARM64, "usr/share/AAVMF/AAVMF_VARS.fd", "AAVMF_VARS.fd"),
];

/// Fetches the firmware into `folder` unless it is there; `work` is where temporary files go.
///
/// # Errors
/// When the mirror cannot be reached, its signature does not check, or the package lost a file.
pub fn fetch_missing(work: &Path, folder: &Path) -> Result<()> {
    if is_complete(folder, FILES.iter().map(|file| file.name)) {
        return Ok(());
    }
    let mut fetched = Fetched::download(&work.join("firmware.tmp"), "UEFI firmware", &[PACKAGE, PACKAGE_ARM64])?;
    for file in &FILES {
        fetched.take(file)?;
    }
    fetched.finish(folder)
}
