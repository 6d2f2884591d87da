//! Looking at what is beside the files: packages, units, sysctls, the kernel, accounts.
//!
//! Parsers take text; [`read_facts`] reads. What could not be read is an [`Observation`], never an empty list. A probe
//! that a baseline does not ask for is not run.

mod accounts;
mod dpkg;
mod kernel;
mod ownership;
mod sysctl;
mod units;

use std::io::Read;
use std::path::{Path, PathBuf};

use drift::{ExpectedFacts, Observation, ObservedFacts};

pub use accounts::{parse_groups, parse_users};
pub use dpkg::parse_status;
pub use kernel::{parse_builtin, parse_modules};
pub use ownership::{keep_package_lists, ownership_of};
pub use sysctl::{Assignments, persisted_values};
pub use units::{list_units, parse_units};

/// Largest file a probe reads, in bytes; dpkg's status of 10,000 packages has about 15 MB.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Reads everything that the baseline speaks of. `units` was listed before, because it needs another program.
#[must_use]
pub fn read_facts(
    base: &Path,
    expected: &ExpectedFacts,
    units: Result<std::collections::BTreeMap<String, String>, Observation>,
) -> ObservedFacts {
    let file = |path: &str| read_text(&under(base, path));
    let not_asked = || Observation::NotScanned {
        detail: "the baseline does not ask for it".to_owned(),
    };
    let packages = if expected.packages.is_empty() {
        Err(not_asked())
    } else {
        file("/var/lib/dpkg/status").and_then(|text| parse_status(&text).map_err(error))
    };
    let modules = if expected.modules_required.is_empty() && expected.modules_forbidden.is_empty() {
        Err(not_asked())
    } else {
        kernel::read_modules(base, expected)
    };
    ObservedFacts {
        packages,
        units,
        sysctls_running: sysctl::read_running(base, expected.sysctls.keys()),
        sysctls_persisted: if expected.sysctls.is_empty() {
            Err(not_asked())
        } else {
            sysctl::read_persisted(base, expected.sysctls.keys())
        },
        command_line: file("/proc/cmdline"),
        kernel_release: file("/proc/sys/kernel/osrelease"),
        modules,
        users: file("/etc/passwd").and_then(|text| parse_users(&text).map_err(error)),
        groups: file("/etc/group").and_then(|text| parse_groups(&text).map_err(error)),
    }
}

fn error(detail: String) -> Observation {
    Observation::Error { detail }
}

/// A path of the node under its base folder.
fn under(base: &Path, path: &str) -> PathBuf {
    base.join(path.trim_start_matches('/'))
}

/// Reads a bounded regular file as text; bytes that are not UTF-8 become the replacement character.
fn read_text(path: &Path) -> Result<String, Observation> {
    read_text_or_absent(path)?.ok_or_else(|| Observation::Error {
        detail: format!("{}: not there", path.display()),
    })
}

/// As [`read_text`]; `None` when there is no such file.
fn read_text_or_absent(path: &Path) -> Result<Option<String>, Observation> {
    let failed = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::PermissionDenied => Observation::Denied,
        _ => Observation::Error {
            detail: format!("{}: {source}", path.display()),
        },
    };
    let file = match std::fs::metadata(path) {
        // A pipe in the place of a file would hold the probe up for ever.
        Ok(metadata) if !metadata.is_file() => return Err(error(format!("{}: no regular file", path.display()))),
        Ok(_) => std::fs::File::open(path),
        Err(source) => Err(source),
    };
    let file = match file {
        Ok(file) => file,
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed(source)),
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(error(format!("{}: larger than {FILE_BYTES_MAX} bytes", path.display())));
    }
    Ok(Some(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_an_observation() {
        let folder = tempfile::tempdir().unwrap();
        let missing = read_text(&folder.path().join("x"));
        assert!(matches!(missing, Err(Observation::Error { detail }) if detail.contains("not there")));
        assert_eq!(read_text_or_absent(&folder.path().join("x")), Ok(None));
        assert!(matches!(read_text(folder.path()), Err(Observation::Error { .. })));
        std::fs::write(folder.path().join("x"), b"V\xEDctor").unwrap();
        assert_eq!(read_text(&folder.path().join("x")).unwrap(), "V\u{fffd}ctor");
    }
}
