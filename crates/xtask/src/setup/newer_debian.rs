//! Packages of Debian 13 on any Debian: fetched by a package list of its own and only unpacked, so that releases never
//! mix. apt checks the archive's signature and the packages' digests.
//!
//! The invariant: a folder that is made from such packages appears whole or not at all, and `versions.json` inside says
//! what it was made from.

use super::apt_sources::debian_mirror;
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

/// A file that is wanted: its package, its path there, and its name in the folder.
pub struct Wanted {
    /// The package.
    pub package: &'static str,
    /// The path in the package, without a leading slash.
    pub source: &'static str,
    /// The name in the folder.
    pub name: &'static str,
}

/// A file that is wanted.
pub const fn wanted(package: &'static str, source: &'static str, name: &'static str) -> Wanted {
    Wanted { package, source, name }
}

/// A folder in the making. Dropping it before [`Fetched::finish`] leaves the old folder as it was.
pub struct Fetched {
    scratch: PathBuf,
    fresh: PathBuf,
    files: Map<String, Value>,
    versions: Map<String, Value>,
}

/// Whether `folder` has all of these, and was finished.
pub fn is_complete<'a>(folder: &Path, names: impl IntoIterator<Item = &'a str>) -> bool {
    names
        .into_iter()
        .chain([VERSIONS])
        .all(|name| folder.join(name).is_file())
}

impl Fetched {
    /// Downloads and unpacks `packages`; `scratch` is a folder for temporary files, `what` is said to the person.
    ///
    /// # Errors
    /// When the mirror cannot be reached, or its signature does not check.
    pub fn download(scratch: &Path, what: &str, packages: &[&'static str]) -> Result<Self> {
        ensure!(
            Path::new(KEYRING).exists(),
            "{KEYRING} is missing: install debian-archive-keyring"
        );
        let mirror = debian_mirror()?;
        eprintln!("• {what} of Debian {SUITE} from {mirror}");
        remove_folder(scratch)?;
        let apt = Apt::prepare(scratch, &mirror)?;
        run_announced("read the package list", apt.command(&["update"]).arg("--error-on=any")).with_context(|| {
            format!(
                "cannot read Debian {SUITE}'s package list from {mirror}; where the keys are unknown (NO_PUBKEY), \
                 upgrade the package debian-archive-keyring"
            )
        })?;
        run_announced("download the packages", apt.command(&["download"]).args(packages))?;
        let fresh = scratch.join("fresh");
        fs::create_dir_all(&fresh)?;
        let mut versions = Map::new();
        for package in packages {
            let (archive, unpacked) = (find_archive(scratch, package)?, scratch.join(package));
            output_of(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(&unpacked))?;
            let version = output_of(Command::new("dpkg-deb").arg("--field").arg(&archive).arg("Version"))?;
            versions.insert((*package).to_owned(), Value::String(version.trim().to_owned()));
        }
        Ok(Self {
            scratch: scratch.to_owned(),
            fresh,
            files: Map::new(),
            versions,
        })
    }

    /// Where the packages lie unpacked, each in the folder of its name.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// The folder in the making.
    pub fn fresh(&self) -> &Path {
        &self.fresh
    }

    /// Takes a file of a package.
    ///
    /// # Errors
    /// When the package lost it.
    pub fn take(&mut self, file: &Wanted) -> Result<()> {
        let Wanted { package, source, name } = file;
        let from = self.scratch.join(package).join(source);
        fs::copy(&from, self.fresh.join(name)).with_context(|| format!("{package} has no /{source} any more"))?;
        self.note(package, name)
    }

    /// Notes a file that was made in the folder out of `package`.
    ///
    /// # Errors
    /// When it is not there.
    pub fn note(&mut self, package: &str, name: &str) -> Result<()> {
        let digest = sha256_of(&self.fresh.join(name))?;
        self.files
            .insert(name.to_owned(), json!({ "package": package, "sha256": digest }));
        Ok(())
    }

    /// Puts the folder in place of an older one.
    ///
    /// # Errors
    /// When it cannot be moved.
    pub fn finish(self, folder: &Path) -> Result<()> {
        let description = json!({ "suite": SUITE, "packages": self.versions, "files": self.files });
        fs::write(self.fresh.join(VERSIONS), format!("{description:#}\n"))?;
        remove_folder(folder)?;
        fs::rename(&self.fresh, folder).with_context(|| format!("cannot put {} in place", folder.display()))?;
        remove_folder(&self.scratch)
    }
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
    fn a_folder_counts_as_complete_only_when_it_was_finished() {
        let folder = std::env::temp_dir().join(format!("plumbline-newer-debian-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a"), "").unwrap();
        assert!(!is_complete(&folder, ["a"]));
        fs::write(folder.join(VERSIONS), "{}").unwrap();
        assert!(is_complete(&folder, ["a"]) && !is_complete(&folder, ["a", "b"]));
        fs::remove_dir_all(&folder).unwrap();
    }
}
