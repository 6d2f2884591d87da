//! Where PostgreSQL's programs are, and which version a cluster needs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ClusterError, MAJOR_VERSION_MIN};

/// Where Debian and its relatives put one folder for each major version.
const PACKAGE_ROOT: &str = "/usr/lib/postgresql";

/// The programs of one major version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Programs {
    /// 15, 16, ...
    pub major: u32,
    /// The folder with `postgres` and `initdb`.
    pub folder: PathBuf,
}

impl Programs {
    pub fn initdb(&self) -> PathBuf {
        self.folder.join("initdb")
    }

    pub fn postgres(&self) -> PathBuf {
        self.folder.join("postgres")
    }
}

/// Everything installed, newest first: the package's folders, then the first of PATH when its version is not among
/// them.
pub(super) fn installed() -> Vec<Programs> {
    let mut found = in_package_root(Path::new(PACKAGE_ROOT));
    if let Some(other) = std::env::var_os("PATH").as_deref().and_then(in_search_path)
        && found.iter().all(|programs| programs.major != other.major)
    {
        found.push(other);
    }
    found.sort_by_key(|programs| std::cmp::Reverse(programs.major));
    found
}

fn in_package_root(root: &Path) -> Vec<Programs> {
    let Ok(entries) = std::fs::read_dir(root) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .map(|(major, folder)| Programs { major, folder })
        .filter(is_complete)
        .collect()
}

fn in_search_path(search_path: &OsStr) -> Option<Programs> {
    std::env::split_paths(search_path).find_map(|folder| {
        // The real place: `postgres` finds its shared files relative to itself.
        let folder = folder.join("postgres").canonicalize().ok()?.parent()?.to_owned();
        let output = Command::new(folder.join("postgres")).arg("--version").output().ok()?;
        let major = major_of_version(std::str::from_utf8(&output.stdout).ok()?)?;
        Some(Programs { major, folder }).filter(is_complete)
    })
}

fn is_complete(programs: &Programs) -> bool {
    programs.initdb().is_file() && programs.postgres().is_file()
}

/// The major version in the answer of `postgres --version`: "postgres (PostgreSQL) 15.18 (Debian ...)".
fn major_of_version(text: &str) -> Option<u32> {
    let number = text.split_once("(PostgreSQL) ")?.1;
    // A beta says "19beta1".
    let digits = number.bytes().take_while(u8::is_ascii_digit).count();
    number.get(..digits)?.parse().ok()
}

/// The programs for a cluster: the newest for a new one (`written_by` is none), else exactly the version that wrote it.
pub(super) fn choose(installed: &[Programs], written_by: Option<u32>, data: &Path) -> Result<Programs, ClusterError> {
    match written_by {
        Some(found) if found < MAJOR_VERSION_MIN => Err(ClusterError::VersionTooOld {
            data: data.to_owned(),
            found,
        }),
        Some(found) => installed
            .iter()
            .find(|programs| programs.major == found)
            .cloned()
            .ok_or_else(|| {
                let installed = installed.iter().map(|programs| programs.major).collect();
                ClusterError::VersionMissing {
                    data: data.to_owned(),
                    found,
                    installed,
                }
            }),
        None => installed
            .iter()
            .filter(|programs| programs.major >= MAJOR_VERSION_MIN)
            .max_by_key(|programs| programs.major)
            .cloned()
            .ok_or(ClusterError::NotInstalled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn programs(majors: &[u32]) -> Vec<Programs> {
        majors
            .iter()
            .map(|&major| Programs {
                major,
                folder: format!("/pg/{major}").into(),
            })
            .collect()
    }

    #[test]
    fn a_new_cluster_takes_the_newest() {
        let chosen = choose(&programs(&[15, 17, 16]), None, Path::new("/d")).unwrap();
        assert_eq!(chosen.major, 17);
    }

    #[test]
    fn an_old_cluster_takes_exactly_its_version() {
        let chosen = choose(&programs(&[17, 15]), Some(15), Path::new("/d")).unwrap();
        assert_eq!(chosen.folder, Path::new("/pg/15"));
    }

    #[test]
    fn nothing_recent_installed_names_the_package() {
        let error = choose(&programs(&[13]), None, Path::new("/d")).unwrap_err();
        assert!(error.to_string().contains("apt-get install postgresql"), "{error}");
    }

    #[test]
    fn a_version_before_the_oldest_is_refused_even_when_installed() {
        let error = choose(&programs(&[14]), Some(14), Path::new("/d")).unwrap_err();
        assert!(
            matches!(error, ClusterError::VersionTooOld { found: 14, .. }),
            "{error}"
        );
    }

    #[test]
    fn versions_are_read() {
        for (text, major) in [
            ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n", Some(15)),
            ("postgres (PostgreSQL) 19beta1\n", Some(19)),
            ("postgres (PostgreSQL) \n", None),
            ("something else", None),
        ] {
            assert_eq!(major_of_version(text), major, "{text}");
        }
    }
}
