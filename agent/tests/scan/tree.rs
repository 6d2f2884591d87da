//! A tree in a temporary folder and the manifest of what it was when it was taken, made by another way than the
//! agent's: by path names and whole files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use drift::{Attributes, Expected, TreeFindings};
use manifest::{
    ClassRule, ClassRules, Digest, Entry, EntryKind, FileContent, Header, Manifest, ManifestKind, PathClass, Root,
    TreePath, Xattrs,
};
use plumbline_agent::scan::{NoInterference, ScanOptions, TreeScan, scan_tree};

/// A tree of a node.
pub struct Tree {
    folder: tempfile::TempDir,
    rules: Vec<(&'static str, PathClass)>,
    pub roots: Vec<Root>,
}

impl Tree {
    /// `/etc/motd`, `/etc/ssl/{a,b/c}`, `/usr/bin/tool` (setuid, with a capability), `/usr/bin/alias`, `/var/log`.
    pub fn new() -> Self {
        let tree = Self {
            folder: tempfile::tempdir().unwrap(),
            rules: vec![("/var/log/**", PathClass::Volatile), ("/etc/key", PathClass::Seeded)],
            roots: Vec::new(),
        };
        for folder in ["etc/ssl/b", "usr/bin", "var/log"] {
            std::fs::create_dir_all(tree.path(folder)).unwrap();
        }
        for file in [
            "etc/motd",
            "etc/ssl/a",
            "etc/ssl/b/c",
            "usr/bin/tool",
            "var/log/wtmp",
            "etc/key",
        ] {
            std::fs::write(tree.path(file), file).unwrap();
        }
        std::fs::set_permissions(tree.path("usr/bin/tool"), PermissionsExt::from_mode(0o4755)).unwrap();
        xattr::set(tree.path("usr/bin/tool"), "user.note", b"\x01\x00").unwrap();
        std::os::unix::fs::symlink("tool", tree.path("usr/bin/alias")).unwrap();
        tree
    }

    /// The same, where anything may be below this pattern.
    pub fn with_rule(mut self, pattern: &'static str) -> Self {
        self.rules.push((pattern, PathClass::Volatile));
        self
    }

    pub fn base(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.base().join(name)
    }

    pub fn raw_path(&self, name: &[u8]) -> PathBuf {
        self.base().join(OsStr::from_bytes(name))
    }

    /// The manifest of the tree as it is now.
    pub fn manifest(&self) -> Manifest {
        let mut header = Header::new(ManifestKind::Os, "tree", "1");
        header.roots = self.roots.clone();
        let rule = |(pattern, class): &(&str, PathClass)| ClassRule::new(pattern.parse().unwrap(), *class);
        header.classes = ClassRules(self.rules.iter().map(rule).collect());
        let mut entries = Vec::new();
        let mut folders = vec![TreePath::root()];
        entries.push(self.entry(&TreePath::root(), &header.classes));
        while let Some(folder) = folders.pop() {
            for item in std::fs::read_dir(self.raw_path(folder.relative())).unwrap() {
                let path = folder.join(item.unwrap().file_name().as_bytes()).unwrap();
                let entry = self.entry(&path, &header.classes);
                if entry.kind == EntryKind::Directory {
                    folders.push(path);
                }
                entries.push(entry);
            }
        }
        Manifest::new(header, entries).unwrap()
    }

    pub fn expected(&self) -> Expected {
        Expected::from_manifests([&self.manifest()]).unwrap()
    }

    fn entry(&self, path: &TreePath, rules: &ClassRules) -> Entry {
        let file = self.raw_path(path.relative());
        let stat = std::fs::symlink_metadata(&file).unwrap();
        let kind = if stat.is_dir() {
            EntryKind::Directory
        } else if stat.is_symlink() {
            EntryKind::Symlink(std::fs::read_link(&file).unwrap().as_os_str().as_bytes().to_vec())
        } else if stat.file_type().is_fifo() {
            EntryKind::Fifo
        } else if stat.file_type().is_socket() {
            EntryKind::Socket
        } else {
            EntryKind::File(Some(FileContent {
                size: stat.len(),
                digest: Digest::of(&std::fs::read(&file).unwrap()),
            }))
        };
        let xattrs: Xattrs = xattr::list(&file)
            .unwrap()
            .map(|name| {
                (
                    name.to_str().unwrap().to_owned(),
                    xattr::get(&file, &name).unwrap().unwrap(),
                )
            })
            .collect();
        Entry {
            path: path.clone(),
            class: rules.class_of(path),
            kind,
            mode: stat.mode() & 0o7777,
            uid: stat.uid(),
            gid: stat.gid(),
            mtime: stat.mtime(),
            xattrs,
        }
    }

    pub fn options(&self) -> ScanOptions<'_> {
        ScanOptions {
            interference: &NoInterference,
            ..ScanOptions::new(self.base())
        }
    }

    pub fn scan(&self, expected: &Expected) -> TreeScan {
        scan_tree(expected, &self.options())
    }

    /// The tree is as it should be; then `change` happens to it: what a scan says.
    pub fn changed(&self, change: impl FnOnce(&Self)) -> Vec<String> {
        let expected = self.expected();
        change(self);
        let scan = self.scan(&expected);
        assert!(scan.is_complete());
        lines(&scan.findings)
    }
}

/// One line for each finding: `/etc/motd mode=0644 > mode=0600`, `/etc/x - > type=fifo …`, `/etc/y ? denied`.
pub fn lines(findings: &TreeFindings) -> Vec<String> {
    let side = |value: &Option<Attributes>| value.as_ref().map_or("-".to_owned(), short);
    let differences = findings
        .differences
        .iter()
        .map(|d| format!("{} {} > {}", d.key, side(&d.expected), side(&d.actual)));
    let unknown = findings
        .unknown
        .iter()
        .map(|u| format!("{} ? {}", u.key, u.observation.name()));
    differences.chain(unknown).collect()
}

/// Digests cut to four digits; owner left out, which depends on who runs the tests.
fn short(attributes: &Attributes) -> String {
    let kept: BTreeMap<_, _> = attributes
        .0
        .iter()
        .filter(|(name, _)| !matches!(name.as_str(), "uid" | "gid"))
        .map(|(name, value)| {
            (
                name.clone(),
                if name == "digest" {
                    value[..4].to_owned()
                } else {
                    value.clone()
                },
            )
        })
        .collect();
    Attributes(kept).to_string()
}
