//! What a path has to do with a baseline. Pure.

use std::collections::BTreeSet;

use drift::{Expected, FindingKind};
use manifest::{PathClass, TreePath};

/// Folders whose files say which units there are and in which state.
const UNIT_FOLDERS: [&str; 4] = [
    "/etc/systemd/system",
    "/usr/lib/systemd/system",
    "/usr/local/lib/systemd/system",
    "/lib/systemd/system",
];
/// Folders and files whose lines are sysctls of the next boot.
const SYSCTL_PLACES: [&str; 4] = [
    "/etc/sysctl.d",
    "/etc/sysctl.conf",
    "/usr/lib/sysctl.d",
    "/usr/local/lib/sysctl.d",
];

/// Kinds of facts that a change of this path may change.
#[must_use]
pub fn facts_concerned(path: &TreePath) -> BTreeSet<FindingKind> {
    let bytes = path.as_bytes();
    let within = |places: &[&str]| {
        places.iter().any(|place| {
            let rest = bytes.strip_prefix(place.as_bytes());
            rest.is_some_and(|rest| rest.is_empty() || rest.first() == Some(&b'/'))
        })
    };
    let mut kinds = BTreeSet::new();
    if within(&["/var/lib/dpkg/status"]) {
        kinds.insert(FindingKind::Package);
    }
    if within(&UNIT_FOLDERS) {
        kinds.insert(FindingKind::Unit);
    }
    if within(&SYSCTL_PLACES) {
        kinds.insert(FindingKind::SysctlPersisted);
    }
    if within(&["/etc/passwd"]) {
        kinds.insert(FindingKind::User);
    }
    if within(&["/etc/group"]) {
        kinds.insert(FindingKind::Group);
    }
    kinds
}

/// Whether anything directly in this folder is compared.
#[must_use]
pub fn is_worth_watching(expected: &Expected, folder: &TreePath) -> bool {
    // A name that no pattern was made for stands for all that may turn up.
    let any = folder.join(b"\x01").ok();
    let may_hold_anything = any.as_ref().is_some_and(|any| expected.allows_unlisted(any));
    !may_hold_anything || expected.lists_below(folder)
}

/// Whether a path can be in a finding at all.
#[must_use]
pub(super) fn is_compared(expected: &Expected, path: &TreePath, is_content_only: bool) -> bool {
    match expected.position(path.as_bytes()) {
        // Of a volatile path only the type counts, and of a seeded one not the content.
        Some(position) => match expected.class(position) {
            PathClass::Volatile | PathClass::Seeded => !is_content_only,
            _ => true,
        },
        None => !expected.allows_unlisted(path) || expected.lists_below(path),
    }
}

/// Whether a folder that has just come needs to be walked: it may hold what is compared.
#[must_use]
pub(super) fn needs_walk(expected: &Expected, folder: &TreePath) -> bool {
    is_worth_watching(expected, folder)
}

#[cfg(test)]
mod tests {
    use manifest::{ClassRule, ClassRules, Entry, EntryKind, Header, Manifest, ManifestKind, Xattrs};

    use super::*;

    fn path(text: &str) -> TreePath {
        text.parse().unwrap()
    }

    fn expected() -> Expected {
        let mut header = Header::new(ManifestKind::Os, "x", "1");
        header.classes = ClassRules(
            [
                ("/tmp/**", PathClass::Volatile),
                ("/tmp", PathClass::Pinned),
                ("/etc/key", PathClass::Seeded),
            ]
            .map(|(pattern, class)| ClassRule::new(pattern.parse().unwrap(), class))
            .into(),
        );
        let entry = |at: &str, kind| Entry {
            path: path(at),
            class: header.classes.class_of(&path(at)),
            kind,
            mode: 0o755,
            uid: 0,
            gid: 0,
            mtime: 0,
            xattrs: Xattrs::new(),
        };
        let entries = ["/", "/etc", "/tmp"]
            .map(|at| entry(at, EntryKind::Directory))
            .into_iter()
            .chain([entry("/etc/key", EntryKind::File(None))])
            .collect();
        Expected::from_manifests([&Manifest::new(header.clone(), entries).unwrap()]).unwrap()
    }

    #[test]
    fn only_what_can_be_a_finding_is_looked_at() {
        let expected = expected();
        assert!(is_worth_watching(&expected, &path("/etc")) && is_worth_watching(&expected, &path("/")));
        assert!(!is_worth_watching(&expected, &path("/tmp")) && !is_worth_watching(&expected, &path("/tmp/job")));
        assert!(is_compared(&expected, &path("/etc/new"), true) && is_compared(&expected, &path("/etc/key"), false));
        assert!(!is_compared(&expected, &path("/etc/key"), true) && !is_compared(&expected, &path("/tmp/x"), false));
    }

    #[test]
    fn a_file_is_known_to_say_something_about_a_fact() {
        for (at, kind) in [
            ("/var/lib/dpkg/status", FindingKind::Package),
            (
                "/etc/systemd/system/multi-user.target.wants/x.service",
                FindingKind::Unit,
            ),
            ("/etc/sysctl.d/99-x.conf", FindingKind::SysctlPersisted),
            ("/etc/passwd", FindingKind::User),
            ("/etc/group", FindingKind::Group),
        ] {
            assert_eq!(facts_concerned(&path(at)), BTreeSet::from([kind]), "{at}");
        }
        assert!(facts_concerned(&path("/etc/passwd-")).is_empty());
    }
}
