//! The drift policy: the site's file, or the built-in one.

use std::path::Path;

use drift::Policy;

use yaml::YamlError;

const BUILT_IN: &str = include_str!("policy.yaml");

/// Reads the site's policy; the built-in one where the configuration names none.
///
/// # Errors
/// [`YamlError`], with file, line and column.
pub fn load(path: Option<&Path>) -> Result<Policy, YamlError> {
    match path {
        Some(path) => yaml::read(path),
        None => yaml::parse(Path::new("(built-in policy)"), BUILT_IN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drift::{Difference, FindingKind, Severity};

    fn added(kind: FindingKind, key: &str) -> Difference {
        Difference {
            kind,
            key: key.into(),
            expected: None,
            actual: Some(Default::default()),
        }
    }

    #[test]
    fn what_opens_a_door_is_grave() {
        let policy = load(None).unwrap();
        for (difference, severity) in [
            (
                added(FindingKind::File, "/etc/ssh/sshd_config.d/90-x.conf"),
                Severity::High,
            ),
            (added(FindingKind::File, "/etc/cron.daily/x"), Severity::High),
            (added(FindingKind::File, "/usr/local/bin/x"), Severity::High),
            (added(FindingKind::File, "/etc/motd"), Severity::Low),
            (added(FindingKind::File, "/etc/default/x"), Severity::Medium),
            (added(FindingKind::Package, "netcat:amd64"), Severity::High),
            (added(FindingKind::Unit, "x.service"), Severity::Medium),
        ] {
            assert_eq!(policy.severity(&difference), severity, "{difference:?}");
        }
    }

    #[test]
    fn a_mistake_says_where_and_what_was_expected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.yaml");
        for (text, place, words) in [
            ("default_severity: grave\n", ":1:19: ", "critical"),
            (
                "default_severity: low\nrules:\n  - kind: files\n    severity: low\n",
                ":3:11: ",
                "file",
            ),
            (
                "default_severity: low\nrules:\n  - keys: ['/a//b']\n    severity: low\n",
                ":3:",
                "/a//b",
            ),
            ("default_severity: low\nrule: []\n", ":2:1: ", "rules"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = load(Some(&path)).unwrap_err().to_string();
            assert!(
                error.contains(place) && error.contains(words),
                "{error} should say {place} {words}"
            );
        }
    }
}
