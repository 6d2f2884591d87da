//! The boot loaders, from Debian 13's packages, on any Debian: a package list of its own, so that releases never mix.
//!
//! Debian 12's own signed GRUB has no HTTP and its iPXE is of 2019, hence the newer release. apt checks the archive's
//! signature and the packages' digests; the packages are only unpacked, and one program is run from there: the one that
//! puts GRUB for BIOS together (see `grub_pc`).
//!
//! The invariant: the folder appears whole or not at all; `versions.json` inside says what it was made from.

use super::apt_sources::debian_mirror;
use super::grub_pc;
use super::packages::apt_get;
use crate::run::{output_of, run_announced};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SUITE: &str = "trixie";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const VERSIONS: &str = "versions.json";

/// A loader: its package, its path there, and its name in the folder.
struct Loader {
    package: &'static str,
    source: &'static str,
    name: &'static str,
}

const fn loader(package: &'static str, source: &'static str, name: &'static str) -> Loader {
    Loader { package, source, name }
}

/// `grubx64.efi.signed` keeps its package name on purpose: it is the GRUB of installed disks, while the `grubx64.efi` that
/// shim asks for over the network is `grubnetx64.efi`.
const LOADERS: [Loader; 6] = [
    loader("ipxe", "usr/lib/ipxe/snponly.efi", "snponly.efi"),
    loader("ipxe", "usr/lib/ipxe/undionly.kpxe", "undionly.kpxe"),
    loader("ipxe", "usr/lib/ipxe/ipxe-arm64.efi", "ipxe-arm64.efi"),
    loader("shim-signed", "usr/lib/shim/shimx64.efi.signed", "shimx64.efi"),
    loader(
        "grub-efi-amd64-signed",
        "usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed",
        "grubnetx64.efi",
    ),
    loader(
        "grub-efi-amd64-signed",
        "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed",
        "grubx64.efi.signed",
    ),
];
const PACKAGES: [&str; 3] = ["ipxe", "grub-efi-amd64-signed", "shim-signed"];

/// All packages: those with loaders in them, and what GRUB for BIOS is made of and with.
fn packages() -> impl Iterator<Item = &'static str> {
    PACKAGES.into_iter().chain(grub_pc::PACKAGES)
}

/// Fetches the loaders into `folder` unless all are there; `work` is where temporary files go.
///
/// # Errors
/// When the mirror cannot be reached, its signature does not check, or a package lost a file.
pub fn fetch_missing(work: &Path, folder: &Path) -> Result<()> {
    let complete = LOADERS
        .iter()
        .map(|loader| loader.name)
        .chain(grub_pc::FILES)
        .chain([VERSIONS])
        .all(|name| folder.join(name).is_file());
    if complete {
        return Ok(());
    }
    ensure!(
        Path::new(KEYRING).exists(),
        "{KEYRING} is missing: install debian-archive-keyring"
    );
    let mirror = debian_mirror()?;
    eprintln!("• boot loaders of Debian {SUITE} from {mirror}");
    let scratch = work.join("loaders.tmp");
    remove_folder(&scratch)?;
    let apt = Apt::prepare(&scratch, &mirror)?;
    run_announced("read the package list", apt.command(&["update"]).arg("--error-on=any")).with_context(|| {
        format!(
            "cannot read Debian {SUITE}'s package list from {mirror}; where the keys are unknown (NO_PUBKEY), upgrade \
             the package debian-archive-keyring"
        )
    })?;
    run_announced("download the packages", apt.command(&["download"]).args(packages()))?;
    let fresh = scratch.join("loaders");
    fs::create_dir_all(&fresh)?;
    let mut versions = Map::new();
    for package in packages() {
        let (archive, unpacked) = (find_archive(&scratch, package)?, scratch.join(package));
        output_of(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(&unpacked))?;
        let version = output_of(Command::new("dpkg-deb").arg("--field").arg(&archive).arg("Version"))?;
        versions.insert(package.to_owned(), Value::String(version.trim().to_owned()));
    }
    let mut files = Map::new();
    for Loader { package, source, name } in LOADERS {
        let from = scratch.join(package).join(source);
        fs::copy(&from, fresh.join(name)).with_context(|| format!("{package} has no /{source} any more"))?;
        files.insert(
            name.to_owned(),
            json!({ "package": package, "sha256": sha256_of(&fresh.join(name))? }),
        );
    }
    grub_pc::make(&scratch, &fresh)?;
    for name in grub_pc::FILES {
        let package = grub_pc::PACKAGE;
        files.insert(
            name.to_owned(),
            json!({ "package": package, "sha256": sha256_of(&fresh.join(name))? }),
        );
    }
    let description = json!({ "suite": SUITE, "packages": versions, "files": files });
    fs::write(fresh.join(VERSIONS), format!("{description:#}\n"))?;
    remove_folder(folder)?;
    fs::rename(&fresh, folder).context("cannot put the loaders in place")?;
    remove_folder(&scratch)
}

/// An apt of its own: no source, list, cache or status of the machine takes part.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn prepare(folder: &Path, mirror: &str) -> Result<Self> {
        fs::create_dir_all(folder.join("lists/partial"))?;
        fs::create_dir_all(folder.join("cache/archives/partial"))?;
        fs::write(folder.join("status"), "")?;
        fs::write(folder.join("debian.sources"), sources_text(mirror))?;
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = apt_get();
        command.current_dir(&self.folder);
        let folder = self.folder.display();
        for option in [
            format!("Dir::Etc::SourceList={folder}/debian.sources"),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            format!("Dir::State::Lists={folder}/lists"),
            format!("Dir::State::Status={folder}/status"),
            format!("Dir::Cache={folder}/cache"),
            // The unprivileged download user cannot reach into somebody's checkout.
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Languages=none".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
        ] {
            command.args(["-o", &option]);
        }
        command.args(words);
        command
    }
}

fn sources_text(mirror: &str) -> String {
    format!(
        "Types: deb\nURIs: {mirror}\nSuites: {SUITE}\nComponents: main\nArchitectures: amd64\nSigned-By: {KEYRING}\n"
    )
}

/// `PACKAGE_VERSION_ARCH.deb` in `folder`.
fn find_archive(folder: &Path, package: &str) -> Result<PathBuf> {
    let prefix = format!("{package}_");
    let mut names = fs::read_dir(folder)?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let name = names.find(|name| name.starts_with(&prefix) && name.ends_with(".deb"));
    Ok(folder.join(name.with_context(|| format!("apt-get downloaded no {package}"))?))
}

fn sha256_of(path: &Path) -> Result<String> {
    let line = output_of(Command::new("sha256sum").arg("--").arg(path))?;
    Ok(line
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .trim_start_matches('\\')
        .to_owned())
}

fn remove_folder(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_checked_against_debians_keys() {
        let text = sources_text("http://mirror.example/debian");
        assert!(
            text.contains("Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg"),
            "{text}"
        );
        assert!(!text.to_lowercase().contains("trusted"), "{text}");
    }

    #[test]
    fn every_loader_comes_from_a_downloaded_package() {
        for loader in LOADERS {
            assert!(PACKAGES.contains(&loader.package), "{}", loader.name);
        }
    }
}
