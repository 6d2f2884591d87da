//! What is different between two images.
//!
//! Idea: both lists of paths are in byte order, so one pass over both finds everything. Times are no difference: two builds
//! of one recipe write nearly every file at another time.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::{Entry, EntryKind, Header, Manifest, TreePath};

/// What of a path is different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathField {
    /// It is of another type.
    Type,
    /// A file's content.
    Content,
    /// A link's target.
    Link,
    /// A device's numbers.
    Device,
    /// Permission bits.
    Mode,
    /// Owner or group.
    Owner,
    /// Extended attributes: capabilities, ACLs.
    Xattrs,
    /// What may change on a node.
    Class,
}

impl PathField {
    /// The name used in the API and the CLI.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Type => "type",
            Self::Content => "content",
            Self::Link => "link",
            Self::Device => "device",
            Self::Mode => "mode",
            Self::Owner => "owner",
            Self::Xattrs => "xattrs",
            Self::Class => "class",
        }
    }
}

/// A path that is different.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathChange<'a> {
    /// It before; none when it is new.
    pub before: Option<&'a Entry>,
    /// It now; none when it is gone.
    pub now: Option<&'a Entry>,
    /// What is different of a path that both have.
    pub fields: Vec<PathField>,
}

impl PathChange<'_> {
    /// The path.
    #[must_use]
    pub fn path(&self) -> TreePath {
        let entry = self.now.or(self.before);
        entry.map_or_else(TreePath::root, |entry| entry.path.clone())
    }
}

/// A part of an image beside its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FactArea {
    /// Kernel release and command line.
    Kernel,
    /// Packages, by `NAME:ARCHITECTURE`.
    Package,
    /// States of unit files.
    Unit,
    /// Sysctls that must hold.
    Sysctl,
    /// Modules that must be loaded, or must not be.
    Module,
    /// Accounts.
    User,
    /// Groups.
    Group,
    /// Filesystems of an installed node.
    Filesystem,
}

impl FactArea {
    /// The name used in the API and the CLI.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Package => "package",
            Self::Unit => "unit",
            Self::Sysctl => "sysctl",
            Self::Module => "module",
            Self::User => "user",
            Self::Group => "group",
            Self::Filesystem => "filesystem",
        }
    }
}

/// A fact that is different.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FactChange {
    /// Of what.
    pub area: FactArea,
    /// Its name there.
    pub name: String,
    /// It before; none when it is new.
    pub before: Option<String>,
    /// It now; none when it is gone.
    pub now: Option<String>,
}

/// The paths that differ, in their order.
pub fn path_changes<'a>(before: &'a Manifest, now: &'a Manifest) -> Vec<PathChange<'a>> {
    let (mut old, mut new) = (before.entries.iter().peekable(), now.entries.iter().peekable());
    let mut changes = Vec::new();
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return changes,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.path.cmp(&b.path),
        };
        let before = if order == Ordering::Greater { None } else { old.next() };
        let now = if order == Ordering::Less { None } else { new.next() };
        let fields = match (before, now) {
            (Some(before), Some(now)) => fields(before, now),
            _ => Vec::new(),
        };
        if order != Ordering::Equal || !fields.is_empty() {
            changes.push(PathChange { before, now, fields });
        }
    }
}

fn fields(before: &Entry, now: &Entry) -> Vec<PathField> {
    let mut fields = Vec::new();
    if before.kind.type_name() != now.kind.type_name() {
        fields.push(PathField::Type);
    } else if before.kind != now.kind {
        fields.push(match now.kind {
            EntryKind::File(_) => PathField::Content,
            EntryKind::Symlink(_) => PathField::Link,
            _ => PathField::Device,
        });
    }
    for (is_other, field) in [
        (before.mode != now.mode, PathField::Mode),
        ((before.uid, before.gid) != (now.uid, now.gid), PathField::Owner),
        (before.xattrs != now.xattrs, PathField::Xattrs),
        (before.class != now.class, PathField::Class),
    ] {
        if is_other {
            fields.push(field);
        }
    }
    fields
}

/// The facts that differ, by area and name.
#[must_use]
pub fn fact_changes(before: &Header, now: &Header) -> Vec<FactChange> {
    let (mut old, new) = (facts(before), facts(now));
    let mut changes = Vec::new();
    for ((area, name), value) in new {
        let before = old.remove(&(area, name.clone()));
        if before.as_ref() != Some(&value) {
            changes.push(FactChange {
                area,
                name,
                before,
                now: Some(value),
            });
        }
    }
    changes.extend(old.into_iter().map(|((area, name), before)| FactChange {
        area,
        name,
        before: Some(before),
        now: None,
    }));
    changes.sort();
    changes
}

fn facts(header: &Header) -> BTreeMap<(FactArea, String), String> {
    let mut facts = BTreeMap::new();
    if let Some(kernel) = &header.kernel {
        facts.insert((FactArea::Kernel, "release".to_owned()), kernel.release.clone());
        facts.insert(
            (FactArea::Kernel, "command line".to_owned()),
            kernel.command_line.clone(),
        );
    }
    for package in &header.packages {
        let name = format!("{}:{}", package.name, package.architecture);
        // A package may be installed in two versions only under two names; the last one counts.
        facts.insert((FactArea::Package, name), package.version.clone());
    }
    for unit in &header.units {
        facts.insert((FactArea::Unit, unit.name.clone()), unit.state.clone());
    }
    for (key, value) in &header.sysctls {
        facts.insert((FactArea::Sysctl, key.clone()), value.clone());
    }
    for (modules, word) in [
        (&header.modules_required, "required"),
        (&header.modules_forbidden, "forbidden"),
    ] {
        for module in modules {
            facts.insert((FactArea::Module, module.clone()), word.to_owned());
        }
    }
    for user in &header.users {
        let text = format!("{}:{}:{}:{}", user.uid, user.gid, user.home, user.shell);
        facts.insert((FactArea::User, user.name.clone()), text);
    }
    for group in &header.groups {
        let text = format!("{}:{}", group.gid, group.members.join(","));
        facts.insert((FactArea::Group, group.name.clone()), text);
    }
    for root in &header.roots {
        let text = root.filesystem.as_str().to_owned();
        facts.insert((FactArea::Filesystem, root.mount.to_string()), text);
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Digest, FileContent, ManifestKind, Package, PathClass, Unit, Xattrs};

    fn file(path: &str, content: &str) -> Entry {
        Entry {
            path: path.parse().unwrap(),
            class: PathClass::Pinned,
            kind: EntryKind::File(Some(FileContent {
                size: content.len() as u64,
                digest: Digest::of(content.as_bytes()),
            })),
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime: 1,
            xattrs: Xattrs::new(),
        }
    }

    fn manifest(entries: Vec<Entry>) -> Manifest {
        Manifest::new(Header::new(ManifestKind::Os, "x", "1"), entries).unwrap()
    }

    #[test]
    fn paths_that_differ_are_told_with_what_differs_of_them() {
        let root = || Entry {
            kind: EntryKind::Directory,
            mode: 0o755,
            ..file("/", "")
        };
        let before = manifest(vec![
            root(),
            file("/a", "1"),
            file("/b", "1"),
            file("/c", "1"),
            file("/d", "1"),
            file("/same", "1"),
        ]);
        let link = Entry {
            kind: EntryKind::Symlink(b"a".to_vec()),
            mode: 0o777,
            ..file("/d", "")
        };
        let now = manifest(vec![
            root(),
            file("/b", "2"),
            Entry {
                mode: 0o600,
                uid: 7,
                ..file("/c", "1")
            },
            link,
            file("/e", "1"),
            Entry {
                mtime: 9,
                ..file("/same", "1")
            },
        ]);
        let told: Vec<_> = path_changes(&before, &now)
            .iter()
            .map(|change| {
                let fields: Vec<_> = change.fields.iter().map(|field| field.as_str()).collect();
                let (before, now) = (change.before.is_some(), change.now.is_some());
                (change.path().to_string(), before, now, fields.join(" "))
            })
            .collect();
        let row = |path: &str, before, now, fields: &str| (path.to_owned(), before, now, fields.to_owned());
        assert_eq!(
            told,
            [
                row("/a", true, false, ""),
                row("/b", true, true, "content"),
                row("/c", true, true, "mode owner"),
                row("/d", true, true, "type mode"),
                row("/e", false, true, ""),
            ]
        );
        assert_eq!(path_changes(&now, &now), []);
    }

    #[test]
    fn facts_that_differ_are_told_by_area_and_name() {
        let package = |name: &str, version: &str| Package {
            name: name.to_owned(),
            architecture: "amd64".to_owned(),
            version: version.to_owned(),
        };
        let mut before = Header::new(ManifestKind::Os, "x", "1");
        before.packages = vec![package("bash", "1"), package("gone", "1")];
        before.modules_forbidden = vec!["rds".to_owned()];
        let mut now = Header::new(ManifestKind::Os, "x", "2");
        now.packages = vec![package("bash", "2")];
        now.modules_required = vec!["rds".to_owned()];
        now.units = vec![Unit {
            name: "ssh.service".to_owned(),
            state: "enabled".to_owned(),
        }];
        let told: Vec<_> = fact_changes(&before, &now)
            .into_iter()
            .map(|change| {
                let value = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
                format!(
                    "{} {}: {} {}",
                    change.area.as_str(),
                    change.name,
                    value(change.before),
                    value(change.now)
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                "package bash:amd64: 1 2",
                "package gone:amd64: 1 -",
                "unit ssh.service: - enabled",
                "module rds: forbidden required",
            ]
        );
        assert_eq!(fact_changes(&now, &now), []);
    }
}
