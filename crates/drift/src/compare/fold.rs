//! One cause, one finding.
//!
//! A package that was upgraded changes 214 files, and all of them mean one thing. What is folded is only what the
//! package is known to own: a path of the baseline by the lists as they were while the node was as it should be, a new
//! path by the lists as they are now. So a forged list cannot make the change of somebody else's file disappear.

use std::collections::BTreeSet;

use crate::{Difference, FindingKind};

/// Folder of dpkg's own records.
const DPKG: &[u8] = b"/var/lib/dpkg";
/// Records of dpkg that every change of any package writes: a package's finding stands for them.
pub const DPKG_SHARED: [&[u8]; 6] = [
    b"/var/lib/dpkg/available",
    b"/var/lib/dpkg/diversions",
    b"/var/lib/dpkg/diversions-old",
    b"/var/lib/dpkg/status",
    b"/var/lib/dpkg/status-old",
    b"/var/lib/dpkg/triggers/File",
];
/// Where the site's links to units lie.
const UNIT_LINKS: &[u8] = b"/etc/systemd/system/";
/// Top folders that are links into `/usr`; package lists still name some files by them.
const MERGED: [&[u8]; 6] = [b"/bin/", b"/sbin/", b"/lib/", b"/lib32/", b"/lib64/", b"/libx32/"];

/// Paths of the packages that differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    before: BTreeSet<Vec<u8>>,
    now: BTreeSet<Vec<u8>>,
}

impl Ownership {
    /// Takes a package's file list as it was in the last scan without package differences.
    pub fn add_before(&mut self, list: &[u8]) {
        self.before.extend(list_paths(list));
    }

    /// Takes a package's file list as it is now.
    pub fn add_now(&mut self, list: &[u8]) {
        self.now.extend(list_paths(list));
    }
}

fn list_paths(list: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    list.split(|&byte| byte == b'\n')
        .filter(|line| line.first() == Some(&b'/'))
        .map(real_path)
}

/// The path with `/usr` before a merged top folder.
fn real_path(path: &[u8]) -> Vec<u8> {
    if MERGED.iter().any(|top| path.starts_with(top)) {
        [b"/usr".as_slice(), path].concat()
    } else {
        path.to_vec()
    }
}

/// Takes away the file findings that a package or unit finding of the same node explains, and the rules of hardening
/// that any other finding does.
#[must_use]
pub fn fold_findings(differences: Vec<Difference>, ownership: &Ownership) -> Vec<Difference> {
    let keys = |kind| -> BTreeSet<String> {
        let of_kind = differences.iter().filter(|difference| difference.kind == kind);
        of_kind.map(|difference| difference.key.clone()).collect()
    };
    let (packages, units) = (keys(FindingKind::Package), keys(FindingKind::Unit));
    // Rules are the last kind, so the order stays.
    let is_rule = |difference: &Difference| difference.kind == FindingKind::Hardening;
    let (mut rules, mut differences): (Vec<_>, Vec<_>) = differences.into_iter().partition(is_rule);
    rules.retain(|rule| !super::hardening::is_explained(rule, &differences));
    differences.append(&mut rules);
    if packages.is_empty() && units.is_empty() {
        return differences;
    }
    let is_explained = |difference: &Difference| {
        let Ok(path) = manifest::unescape_bytes(&difference.key) else {
            return false;
        };
        is_of_package(difference, &path, &packages, ownership) || is_link_of_unit(difference, &path, &units)
    };
    differences
        .into_iter()
        .filter(|difference| difference.kind != FindingKind::File || !is_explained(difference))
        .collect()
}

fn is_of_package(difference: &Difference, path: &[u8], packages: &BTreeSet<String>, ownership: &Ownership) -> bool {
    if packages.is_empty() {
        return false;
    }
    if DPKG_SHARED.contains(&path) {
        return true;
    }
    if let Some(name) = path.strip_prefix(DPKG).and_then(|rest| rest.strip_prefix(b"/info/")) {
        return is_record_of_package(name, packages);
    }
    let owned = if difference.expected.is_some() {
        &ownership.before
    } else {
        &ownership.now
    };
    owned.contains(&real_path(path))
}

/// `openssh-server.postinst`, `libc6:amd64.list`.
fn is_record_of_package(file: &[u8], packages: &BTreeSet<String>) -> bool {
    let Ok(file) = str::from_utf8(file) else { return false };
    let Some((stem, _)) = file.rsplit_once('.') else {
        return false;
    };
    packages.iter().any(|key| {
        let name = key.split_once(':').map_or(key.as_str(), |(name, _)| name);
        stem == name || stem == key
    })
}

/// A link that enables or masks a unit whose state differs.
fn is_link_of_unit(difference: &Difference, path: &[u8], units: &BTreeSet<String>) -> bool {
    let is_link = [&difference.expected, &difference.actual]
        .into_iter()
        .flatten()
        .any(|attributes| attributes.get("type") == Some("symlink"));
    is_link && unit_of_link(path).is_some_and(|unit| units.contains(unit))
}

/// The unit that a link at this path enables or masks: `/etc/systemd/system/multi-user.target.wants/ssh.service`,
/// `/etc/systemd/system/ssh.service`.
#[must_use]
pub fn unit_of_link(path: &[u8]) -> Option<&str> {
    let rest = str::from_utf8(path.strip_prefix(UNIT_LINKS)?).ok()?;
    let (folder, name) = rest.rsplit_once('/').unwrap_or(("", rest));
    let is_dependency = [".wants", ".requires", ".upholds"]
        .iter()
        .any(|end| folder.ends_with(end));
    (folder.is_empty() || is_dependency).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attributes;

    fn difference(kind: FindingKind, key: &str, expected: Option<&str>, actual: Option<&str>) -> Difference {
        let side = |value: Option<&str>| value.map(|value| Attributes::from_pairs([("type", value)]));
        Difference {
            kind,
            key: key.to_owned(),
            expected: side(expected),
            actual: side(actual),
        }
    }

    fn keys(differences: &[Difference]) -> Vec<&str> {
        differences.iter().map(|difference| difference.key.as_str()).collect()
    }

    #[test]
    fn a_changed_package_stands_for_its_files() {
        let file = |key, expected, actual| difference(FindingKind::File, key, expected, actual);
        let (is, not) = (Some("file"), None);
        let found = vec![
            file("/etc/shadow", is, is),
            file("/usr/bin/ssh", is, is),
            file("/usr/lib/ssh/new", not, is),
            file("/usr/lib/ssh/old", is, not),
            file("/usr/sbin/sshd", is, is),
            file("/var/lib/dpkg/info/openssh-client.md5sums", is, is),
            file("/var/lib/dpkg/info/openssh-client:amd64.list", is, is),
            file("/var/lib/dpkg/info/openssh-server.list", is, is),
            file("/var/lib/dpkg/status", is, is),
            difference(FindingKind::Package, "openssh-client:amd64", is, is),
        ];
        let mut ownership = Ownership::default();
        ownership.add_before(b"/.\n/usr\n/usr/bin/ssh\n/lib/ssh/old\n");
        // The new list claims a file that it did not own before.
        ownership.add_now(b"/usr/bin/ssh\n/lib/ssh/new\n/usr/sbin/sshd\n");
        assert_eq!(
            keys(&fold_findings(found.clone(), &ownership)),
            [
                "/etc/shadow",
                "/usr/sbin/sshd",
                "/var/lib/dpkg/info/openssh-server.list",
                "openssh-client:amd64"
            ]
        );
        let without_package: Vec<_> = found.into_iter().take(9).collect();
        assert_eq!(fold_findings(without_package.clone(), &ownership), without_package);
    }

    #[test]
    fn a_unit_stands_for_the_links_that_make_its_state() {
        let link = |key| difference(FindingKind::File, key, None, Some("symlink"));
        let found = vec![
            link("/etc/systemd/system/evil.service"),
            link("/etc/systemd/system/multi-user.target.wants/ssh.service"),
            link("/etc/systemd/system/multi-user.target.wants/evil.service"),
            link("/etc/systemd/system/ssh.service"),
            difference(FindingKind::File, "/etc/systemd/system/ssh.service", None, Some("file")),
            link("/etc/systemd/system/ssh.service.d/ssh.service"),
            difference(FindingKind::Unit, "ssh.service", None, Some("masked")),
        ];
        assert_eq!(
            keys(&fold_findings(found, &Ownership::default())),
            [
                "/etc/systemd/system/evil.service",
                "/etc/systemd/system/multi-user.target.wants/evil.service",
                "/etc/systemd/system/ssh.service",
                "/etc/systemd/system/ssh.service.d/ssh.service",
                "ssh.service"
            ]
        );
    }
}
