//! The boot loaders, from Debian 13's packages: Debian 12's own signed GRUB has no HTTP and its iPXE is of 2019. One
//! program is run from the unpacked packages: the one that puts GRUB for BIOS together (see `grub_pc`).

use super::grub_pc;
use super::newer_debian::{Fetched, Wanted, is_complete, wanted};
use anyhow::Result;
use std::path::Path;

/// `grubx64.efi.signed` keeps its package name on purpose: it is the GRUB of installed disks, while the `grubx64.efi` that
/// shim asks for over the network is `grubnetx64.efi`.
const LOADERS: [Wanted; 7] = [
    wanted("ipxe", "usr/lib/ipxe/snponly.efi", "snponly.efi"),
    wanted("ipxe", "usr/lib/ipxe/undionly.kpxe", "undionly.kpxe"),
    wanted("ipxe", "usr/lib/ipxe/ipxe-arm64.efi", "ipxe-arm64.efi"),
    wanted("shim-signed", "usr/lib/shim/shimx64.efi.signed", "shimx64.efi"),
    wanted(
        "shim-helpers-amd64-signed",
        "usr/lib/shim/mmx64.efi.signed",
        "mmx64.efi",
    ),
    wanted(
        "grub-efi-amd64-signed",
        "usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed",
        "grubnetx64.efi",
    ),
    wanted(
        "grub-efi-amd64-signed",
        "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed",
        "grubx64.efi.signed",
    ),
];
const PACKAGES: [&str; 4] = [
    "ipxe",
    "grub-efi-amd64-signed",
    "shim-helpers-amd64-signed",
    "shim-signed",
];

/// All packages: those with loaders in them, and what GRUB for BIOS is made of and with.
fn packages() -> impl Iterator<Item = &'static str> {
    PACKAGES.into_iter().chain(grub_pc::PACKAGES)
}

/// Fetches the loaders into `folder` unless all are there; `work` is where temporary files go.
///
/// # Errors
/// When the mirror cannot be reached, its signature does not check, or a package lost a file.
pub fn fetch_missing(work: &Path, folder: &Path) -> Result<()> {
    if is_complete(folder, LOADERS.iter().map(|loader| loader.name).chain(grub_pc::FILES)) {
        return Ok(());
    }
    let packages: Vec<&str> = packages().collect();
    let mut fetched = Fetched::download(&work.join("loaders.tmp"), "boot loaders", &packages)?;
    for loader in &LOADERS {
        fetched.take(loader)?;
    }
    grub_pc::make(fetched.scratch(), fetched.fresh())?;
    for name in grub_pc::FILES {
        fetched.note(grub_pc::PACKAGE, name)?;
    }
    fetched.finish(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loader_comes_from_a_downloaded_package() {
        for loader in &LOADERS {
            assert!(PACKAGES.contains(&loader.package), "{}", loader.name);
        }
    }
}
