//! Installed packages of an rpm distribution, read from its database without rpm.
//!
//! The database is a table of header blobs (rpm's own format, see `header`) in one of three containers: SQLite (RHEL 9,
//! Rocky 9, Fedora), ndb (SUSE), Berkeley DB (RHEL 8 and older). The first two are read; the third is refused by name,
//! since its format is a B-tree and hash library of its own and `rpmdb --rebuilddb` turns it into the first.
//!
//! The root is somebody else's: links are followed inside it only, and every number of a blob is checked.

mod header;
mod ndb;
mod sqlite;

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::inside::Inside;

/// Where distributions keep it; newer ones first.
const FOLDERS: [&str; 2] = ["usr/lib/sysimage/rpm", "var/lib/rpm"];

/// Most packages of a root; a full distribution has some ten thousand.
pub const PACKAGES_MAX: usize = 100_000;
/// Longest header. That of a kernel's modules has about 2 MB.
pub const HEADER_BYTES_MAX: usize = 32 << 20;
/// Longest database.
pub const DATABASE_BYTES_MAX: u64 = 2 << 30;

/// One installed package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RpmPackage {
    /// Name.
    pub name: String,
    /// Epoch; without one it counts as 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u32>,
    /// Version.
    pub version: String,
    /// Release.
    pub release: String,
    /// Architecture; keys that are kept as packages (`gpg-pubkey`) have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
}

impl RpmPackage {
    /// `epoch:version-release`, without an epoch if it has none: what identifies the build.
    #[must_use]
    pub fn evr(&self) -> String {
        match self.epoch {
            Some(epoch) => format!("{epoch}:{}-{}", self.version, self.release),
            None => format!("{}-{}", self.version, self.release),
        }
    }

    /// `name-epoch:version-release.architecture`, as `rpm -q --qf '%{NEVRA}'` prints it.
    #[must_use]
    pub fn nevra(&self) -> String {
        let architecture = self
            .architecture
            .as_ref()
            .map_or(String::new(), |text| format!(".{text}"));
        format!("{}-{}{architecture}", self.name, self.evr())
    }
}

/// Why the packages cannot be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RpmError {
    /// No database.
    #[error("no rpm database: neither rpmdb.sqlite nor Packages.db is in /usr/lib/sysimage/rpm or /var/lib/rpm")]
    Absent,
    /// An old database.
    #[error(
        "/{path} is a Berkeley DB, which is not read: run `rpmdb --rebuilddb --define '_db_backend sqlite'` in the root, \
         with rpm 4.16 or newer"
    )]
    BerkeleyDb {
        /// Its path in the root.
        path: String,
    },
    /// The database could not be read.
    #[error("read /{path}")]
    Io {
        /// Its path in the root.
        path: String,
        /// The system's word.
        #[source]
        source: io::Error,
    },
    /// The database is damaged, or not what its name says.
    #[error("/{path}: {problem}")]
    Damaged {
        /// Its path in the root.
        path: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// A bound was passed.
    #[error("/{path}: {what} is over the limit of {limit}")]
    Limit {
        /// Its path in the root.
        path: String,
        /// What is bounded.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
}

/// All installed packages, sorted.
///
/// # Errors
/// [`RpmError`]; a root without a database is an error, so that "no packages" is never read from "could not look".
pub fn packages(root: &Path) -> Result<Vec<RpmPackage>, RpmError> {
    let fail = |path: &str| {
        let path = path.to_owned();
        move |source| RpmError::Io { path, source }
    };
    let inside = Inside::open(root).map_err(fail(""))?;
    let open = |path: &str| inside.file(path).map_err(fail(path));
    let mut old = None;
    for folder in FOLDERS {
        let path = format!("{folder}/rpmdb.sqlite");
        if let Some(file) = open(&path)? {
            let log = open(&format!("{path}-wal"))?;
            return finish(sqlite::headers(&file, log.as_ref(), &path)?, &path);
        }
        let path = format!("{folder}/Packages.db");
        if let Some(file) = open(&path)? {
            return finish(ndb::headers(&file, &path)?, &path);
        }
        let path = format!("{folder}/Packages");
        if old.is_none() && open(&path)?.is_some() {
            old = Some(path);
        }
    }
    Err(old.map_or(RpmError::Absent, |path| RpmError::BerkeleyDb { path }))
}

fn finish(headers: Vec<header::Parsed>, path: &str) -> Result<Vec<RpmPackage>, RpmError> {
    let mut packages = Vec::with_capacity(headers.len());
    for (number, header) in headers {
        packages.push(header.map_err(|problem| RpmError::Damaged {
            path: path.to_owned(),
            problem: format!("header {number}: {problem}"),
        })?);
    }
    packages.sort();
    Ok(packages)
}

/// The length of a database file, within the bound.
fn length(file: &std::fs::File, path: &str) -> Result<u64, RpmError> {
    let length = file.metadata().map_err(|source| RpmError::Io {
        path: path.to_owned(),
        source,
    })?;
    if length.len() > DATABASE_BYTES_MAX {
        return Err(RpmError::Limit {
            path: path.to_owned(),
            what: "length of the database",
            limit: DATABASE_BYTES_MAX,
        });
    }
    Ok(length.len())
}

fn too_many(path: &str) -> RpmError {
    RpmError::Limit {
        path: path.to_owned(),
        what: "number of packages",
        limit: PACKAGES_MAX as u64,
    }
}

#[cfg(test)]
mod tests;
