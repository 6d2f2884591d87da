//! Looking at what is beside the files: packages, units, sysctls, the kernel, accounts, hardening rules.
//!
//! Parsers take text; [`read_facts`] reads. What could not be read is an [`Observation`], never an empty list. A probe
//! that a baseline does not ask for is not run.

mod accounts;
mod dpkg;
mod hardening;
mod kernel;
mod ownership;
mod sysctl;
mod units;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};

use drift::{ExpectedFacts, FactFindings, FindingKind, Observation, ObservedFacts, compare_facts};

pub use accounts::{parse_groups, parse_users};
pub use dpkg::parse_status;
pub use kernel::{parse_builtin, parse_modules};
pub(crate) use ownership::{INFO, LIST_BYTES_MAX, kept_list, list_stems};
pub use ownership::{keep_package_lists, ownership_of};
pub use sysctl::{Assignments, persisted_values};
pub(crate) use sysctl::{SYSCTL_FOLDERS, key_path, persisted_sources};
pub use units::{list_units, parse_units};

use crate::node::UnitManager;

/// Largest file a probe reads, in bytes; dpkg's status of 10,000 packages has about 15 MB.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Reads what the baseline speaks of, as far as its kind is `wanted`; the rest is not looked at. Blocks.
#[must_use]
pub fn read_facts(
    base: &Path,
    expected: &ExpectedFacts,
    units: &dyn UnitManager,
    wanted: &dyn Fn(FindingKind) -> bool,
) -> ObservedFacts {
    let file = |kind, path: &str| {
        if wanted(kind) {
            read_text(&under(base, path))
        } else {
            Err(not_asked())
        }
    };
    let packages = if expected.packages.is_empty() {
        Err(not_asked())
    } else {
        file(FindingKind::Package, "/var/lib/dpkg/status").and_then(|text| parse_status(&text).map_err(error))
    };
    let has_modules = !expected.modules_required.is_empty() || !expected.modules_forbidden.is_empty();
    let modules = if wanted(FindingKind::Module) && has_modules {
        kernel::read_modules(base, expected)
    } else {
        Err(not_asked())
    };
    ObservedFacts {
        packages,
        units: if wanted(FindingKind::Unit) && !expected.units.is_empty() {
            units.list()
        } else {
            Err(not_asked())
        },
        sysctls_running: if wanted(FindingKind::SysctlRunning) {
            sysctl::read_running(base, expected.sysctls.keys())
        } else {
            BTreeMap::new()
        },
        sysctls_persisted: if wanted(FindingKind::SysctlPersisted) && !expected.sysctls.is_empty() {
            sysctl::read_persisted(base, expected.sysctls.keys())
        } else {
            Err(not_asked())
        },
        command_line: file(FindingKind::KernelCommandLine, "/proc/cmdline"),
        kernel_release: file(FindingKind::KernelRelease, "/proc/sys/kernel/osrelease"),
        modules,
        users: file(FindingKind::User, "/etc/passwd").and_then(|text| parse_users(&text).map_err(error)),
        groups: file(FindingKind::Group, "/etc/group").and_then(|text| parse_groups(&text).map_err(error)),
        hardening: match expected.hardening_profile {
            Some(profile) if wanted(FindingKind::Hardening) => hardening::look(base, profile),
            _ => Err(not_asked()),
        },
    }
}

/// Looks at these kinds of facts only and compares them.
#[must_use]
pub fn look_at_facts(
    base: &Path,
    expected: &ExpectedFacts,
    units: &dyn UnitManager,
    kinds: &BTreeSet<FindingKind>,
) -> FactFindings {
    let wanted = |kind| kinds.contains(&kind);
    let mut findings = compare_facts(expected, &read_facts(base, expected, units, &wanted));
    findings
        .differences
        .retain(|difference| kinds.contains(&difference.kind));
    findings.unknown.retain(|unknown| kinds.contains(&unknown.kind));
    findings.facts_by_kind.retain(|kind, _| kinds.contains(kind));
    findings
}

fn not_asked() -> Observation {
    Observation::NotScanned {
        detail: "the baseline does not ask for it".to_owned(),
    }
}

fn error(detail: String) -> Observation {
    Observation::Error { detail }
}

/// A path of the node under its base folder.
pub(crate) fn under(base: &Path, path: &str) -> PathBuf {
    base.join(path.trim_start_matches('/'))
}

/// Reads a bounded regular file as text; bytes that are not UTF-8 become the replacement character.
pub(crate) fn read_text(path: &Path) -> Result<String, Observation> {
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
