//! GRUB for BIOS, put together from Debian 13's packages: the same GRUB that starts a node by UEFI.
//!
//! Debian has no finished core for BIOS; grub-install makes one on each machine. Here it is made once, with everything in
//! it that a node's configuration uses, since a node has no folder of modules to load more from. The same packages give
//! the same bytes.
//!
//! `grub-mkimage` comes from the same release as the modules it packs, which may be newer than this machine; so it is
//! started by its own release's loader, with that release's libraries. Refused: this machine's own `grub-mkimage`. It is
//! another version than the modules, and it is there only where GRUB is.

use crate::run::run_announced;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The package the parts are from.
pub const PACKAGE: &str = "grub-pc-bin";
/// That package, `grub-mkimage`, and the libraries it is linked with.
pub const PACKAGES: [&str; 9] = [
    PACKAGE,
    "grub-common",
    "libc6",
    "libcap2",
    "libdevmapper1.02.1",
    "liblzma5",
    "libpcre2-8-0",
    "libselinux1",
    "libudev1",
];

/// A disk's first sector, and what that loads: names in the folder of loaders.
pub const FILES: [&str; 2] = ["grub-pc-boot.img", "grub-pc-core.img"];

/// Partition 1 of whichever disk the BIOS started from: the EFI system partition, where the UEFI loader's configuration
/// is. The deployer numbers the partitions so.
const PREFIX: &str = "(,gpt1)/EFI/debian";

/// Disk and filesystems; the menu and what rendered configurations use; the serial console; and what a person at GRUB's
/// prompt needs to find out why a node does not start.
const MODULES: [&str; 18] = [
    "biosdisk",
    "part_gpt",
    "fat",
    "ext2",
    "normal",
    "configfile",
    "linux",
    "search",
    "search_fs_uuid",
    "test",
    "echo",
    "serial",
    "terminal",
    "ls",
    "cat",
    "sleep",
    "reboot",
    "halt",
];
/// What all libraries of a release are in, merged or not.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Makes both files in `folder` from the packages unpacked in `unpacked/PACKAGE`.
///
/// # Errors
/// When a package lost a file, or `grub-mkimage` fails: it names the library or module that is missing.
pub fn make(unpacked: &Path, folder: &Path) -> Result<()> {
    let parts = unpacked.join(PACKAGE).join("usr/lib/grub/i386-pc");
    let [boot, core] = FILES.map(|name| folder.join(name));
    fs::copy(parts.join("boot.img"), &boot).with_context(|| format!("{PACKAGE} has no boot.img any more"))?;
    let libraries = PACKAGES.map(|package| unpacked.join(package).join(LIBRARIES));
    let search_path = std::env::join_paths(libraries.iter().filter(|folder| folder.is_dir()))?;
    let mut command = Command::new(unpacked.join("libc6").join(LIBRARIES).join("ld-linux-x86-64.so.2"));
    command.arg("--library-path").arg(search_path);
    command.arg(unpacked.join("grub-common/usr/bin/grub-mkimage"));
    command.args(["--format", "i386-pc", "--prefix", PREFIX]);
    command.arg("--directory").arg(&parts).arg("--output").arg(&core);
    run_announced("put GRUB for BIOS together", command.args(MODULES))
}
