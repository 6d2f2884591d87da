use std::collections::BTreeMap;

use manifest::{ClassRule, ClassRules, Digest, Entry, FileContent, Header, Manifest, ManifestKind, Xattrs};
use proptest::prelude::*;

use super::*;
use crate::{ObservedDigest, ObservedXattrs};

const LIMITS: Limits = Limits {
    differences_max: 100,
    unknown_max: 100,
    explain_bytes_max: 1000,
};

fn path(text: &str) -> TreePath {
    text.parse().unwrap()
}

/// `/a/b` is a folder when it ends in `/`, else a file whose content is its path.
fn entry(text: &str, class: PathClass) -> Entry {
    let name = text.trim_end_matches('/');
    let kind = if text.ends_with('/') {
        EntryKind::Directory
    } else {
        EntryKind::File(Some(FileContent {
            size: name.len() as u64,
            digest: Digest::of(name.as_bytes()),
        }))
    };
    Entry {
        path: if name.is_empty() { TreePath::root() } else { path(name) },
        class,
        kind,
        mode: 0o644,
        uid: 0,
        gid: 0,
        mtime: 0,
        xattrs: Xattrs::new(),
    }
}

fn manifest(kind: ManifestKind, entries: &[(&str, PathClass)], rules: &[(&str, PathClass)]) -> Manifest {
    let mut header = Header::new(kind, "x", "1");
    header.classes = ClassRules(
        rules
            .iter()
            .map(|(pattern, class)| ClassRule::new(pattern.parse().unwrap(), *class))
            .collect(),
    );
    let entries = entries.iter().map(|(text, class)| entry(text, *class)).collect();
    Manifest::new(header, entries).unwrap()
}

fn expected() -> Expected {
    use PathClass::{Ignored, Pinned, Rendered, Seeded, Volatile};
    let image = manifest(
        ManifestKind::Os,
        &[
            ("/", Pinned),
            ("/boot/", Pinned),
            ("/dev/", Volatile),
            ("/dev/null", Volatile),
            ("/etc/", Pinned),
            ("/etc/hostname", Rendered),
            ("/etc/motd", Pinned),
            ("/etc/ssl/", Pinned),
            ("/etc/ssl/a", Pinned),
            ("/etc/ssl/b/", Pinned),
            ("/etc/ssl/b/c", Pinned),
            ("/etc-x", Pinned),
            ("/key", Seeded),
            ("/log/", Pinned),
        ],
        &[
            ("/dev/**", Volatile),
            ("/log/**", Volatile),
            ("/log/pinned/**", Pinned),
            ("/junk/**", Ignored),
        ],
    );
    let agent = manifest(ManifestKind::Agent, &[("/usr/bin/agent", Pinned)], &[]);
    let mut overlay = manifest(
        ManifestKind::Overlay,
        &[("/etc/hostname", Rendered), ("/etc/agent/agent.toml", Rendered)],
        &[("/etc/agent/**", Rendered)],
    );
    overlay.entries.iter_mut().for_each(|entry| entry.mode = 0o600);
    Expected::from_manifests([&image, &agent, &overlay]).unwrap()
}

/// A node as a walk sees it: path to entry; folders end in `/`.
type Node = BTreeMap<String, ObservedEntry>;

fn observed(text: &str) -> ObservedEntry {
    let name = text.trim_end_matches('/');
    let kind = if text.ends_with('/') {
        ObservedKind::Other(EntryKind::Directory)
    } else {
        ObservedKind::File {
            size: name.len() as u64,
            digest: ObservedDigest::Hashed(Digest::of(name.as_bytes())),
        }
    };
    ObservedEntry {
        kind,
        mode: 0o644,
        uid: 0,
        gid: 0,
        xattrs: ObservedXattrs::Value(Xattrs::new()),
    }
}

fn clean() -> Node {
    let mut node: Node = [
        "/",
        "/boot/",
        "/dev/",
        "/dev/null",
        "/etc/",
        "/etc/hostname",
        "/etc/motd",
        "/etc/ssl/",
        "/etc/ssl/a",
        "/etc/ssl/b/",
        "/etc/ssl/b/c",
        "/etc-x",
        "/key",
        "/log/",
        "/usr/",
        "/usr/bin/",
        "/usr/bin/agent",
        "/etc/agent/",
        "/etc/agent/agent.toml",
    ]
    .into_iter()
    .map(|text| (text.to_owned(), observed(text)))
    .collect();
    for name in ["/etc/hostname", "/etc/agent/agent.toml"] {
        node.get_mut(name).unwrap().mode = 0o600;
    }
    node
}

fn add(node: &mut Node, text: &str) {
    node.insert(text.to_owned(), observed(text));
}

/// Walks like the agent: a folder's children only when told to descend.
fn scan(expected: &Expected, node: &Node, before_finish: impl FnOnce(&mut TreeComparison<'_>)) -> TreeFindings {
    let mut comparison = TreeComparison::new(expected, LIMITS);
    let mut not_entered: Vec<String> = Vec::new();
    let root = &expected.roots()[0];
    for (text, seen) in node {
        if not_entered
            .iter()
            .any(|folder| text.starts_with(folder) && text != folder)
        {
            continue;
        }
        let name = text.trim_end_matches('/');
        let path = if name.is_empty() { TreePath::root() } else { path(name) };
        let (kind, size) = match &seen.kind {
            ObservedKind::File { size, .. } => (Kind::File, *size),
            ObservedKind::Other(EntryKind::Directory) => (Kind::Directory, 0),
            ObservedKind::Other(_) => (Kind::Other, 0),
        };
        let step = comparison.step(&path, Sight { kind, size }, root);
        comparison.record(&path, &step, seen);
        if kind == Kind::Directory && !step.look.descend {
            not_entered.push(text.clone());
        }
    }
    before_finish(&mut comparison);
    comparison.finish()
}

fn lines(findings: &TreeFindings) -> Vec<String> {
    let side = |value: &Option<Attributes>| {
        value.as_ref().map_or("-".to_owned(), |attributes| {
            attributes.get("type").unwrap_or("same").to_owned()
        })
    };
    let differences = findings
        .differences
        .iter()
        .map(|d| format!("{} {}>{}", d.key, side(&d.expected), side(&d.actual)));
    let unknown = findings
        .unknown
        .iter()
        .map(|u| format!("{} ? {}", u.key, u.observation.name()));
    differences.chain(unknown).collect()
}

fn changed(change: impl FnOnce(&mut Node)) -> Vec<String> {
    let mut node = clean();
    change(&mut node);
    lines(&scan(&expected(), &node, |_| ()))
}

#[test]
fn a_node_as_it_should_be_has_no_findings() {
    let findings = scan(&expected(), &clean(), |_| ());
    assert_eq!(lines(&findings), [""; 0]);
    assert_eq!(findings.difference_count, 0);
    assert_eq!(findings.entries_by_class.values().sum::<u64>(), 19);
}

#[test]
fn one_change_gives_one_finding() {
    assert_eq!(changed(|node| add(node, "/etc/evil")), ["/etc/evil ->file"]);
    assert_eq!(changed(|node| drop(node.remove("/etc/motd"))), ["/etc/motd file>-"]);
    assert_eq!(
        changed(|node| node.get_mut("/etc/motd").unwrap().mode = 0o600),
        ["/etc/motd same>same"]
    );
    // Later manifests win: 0644 is what the image says of the host name, 0600 the overlay.
    assert_eq!(
        changed(|node| node.get_mut("/etc/hostname").unwrap().mode = 0o644),
        ["/etc/hostname same>same"]
    );
    assert_eq!(changed(|node| drop(node.remove("/key"))), ["/key file>-"]);
}

#[test]
fn a_folder_that_appeared_stands_for_what_is_in_it() {
    let found = changed(|node| {
        for text in ["/etc/new/", "/etc/new/a", "/etc/new/b/", "/etc/new/b/c", "/etc/new-x"] {
            add(node, text);
        }
    });
    assert_eq!(found, ["/etc/new ->directory", "/etc/new-x ->file"]);
}

/// systemd/systemd#8328: a drop-in changes a unit whose state stays as it is, so that each is told by itself.
#[test]
fn systemd_8328_each_drop_in_is_told_with_its_digest() {
    let mut node = clean();
    add(&mut node, "/etc/systemd/");
    add(&mut node, "/etc/systemd/system/");
    let expected = {
        let listed = [
            ("/", PathClass::Pinned),
            ("/etc/", PathClass::Pinned),
            ("/etc/systemd/", PathClass::Pinned),
            ("/etc/systemd/system/", PathClass::Pinned),
        ];
        Expected::from_manifests([&manifest(ManifestKind::Os, &listed, &[])]).unwrap()
    };
    node.retain(|path, _| path == "/" || path == "/etc/" || path.starts_with("/etc/systemd"));
    for added in [
        "/etc/systemd/system/x.service.d/",
        "/etc/systemd/system/x.service.d/a.conf",
        "/etc/systemd/system/x.service.d/deep/",
        "/etc/systemd/system/x.service.d/deep/b",
        "/etc/systemd/system/y.service.d/",
        "/etc/systemd/system/z.service.d",
    ] {
        add(&mut node, added);
    }
    let findings = scan(&expected, &node, |_| ());
    assert_eq!(
        lines(&findings),
        [
            "/etc/systemd/system/x.service.d/a.conf ->file",
            "/etc/systemd/system/x.service.d/deep ->directory",
            "/etc/systemd/system/z.service.d ->file",
        ],
        "an empty folder does nothing"
    );
    let digest = Digest::of(b"/etc/systemd/system/x.service.d/a.conf").to_string();
    let actual = findings.differences[0].actual.as_ref().unwrap();
    assert_eq!(actual.get("digest"), Some(digest.as_str()));
}

/// systemd/systemd#5395, #8373: `/etc/resolv.conf` is a link or a file, depending on who ran first.
#[test]
fn systemd_5395_a_rule_may_allow_either_of_several_links_or_a_file() {
    let mut image = manifest(
        ManifestKind::Os,
        &[("/", PathClass::Pinned)],
        &[("/etc/resolv.conf", PathClass::Pinned)],
    );
    let link = |target: &str| EntryKind::Symlink(target.as_bytes().to_vec());
    let mut listed = entry("/etc/resolv.conf", PathClass::Pinned);
    listed.kind = link("../run/systemd/resolve/stub-resolv.conf");
    image.entries.push(listed);
    let seen = |kind| {
        Node::from([
            ("/".to_owned(), observed("/")),
            (
                "/etc/resolv.conf".to_owned(),
                ObservedEntry {
                    kind,
                    uid: 101,
                    ..observed("/etc/resolv.conf")
                },
            ),
        ])
    };
    let nodes = [
        ObservedKind::Other(link("/run/systemd/resolve/resolv.conf")),
        observed("/etc/resolv.conf").kind,
        ObservedKind::Other(link("/home/evil/resolv.conf")),
        ObservedKind::Other(EntryKind::Fifo),
    ]
    .map(seen);
    let found = |or_file, or_links: &[&str]| {
        let mut image = image.clone();
        let rule = &mut image.header.classes.0[0];
        (rule.or_file, rule.or_links) = (or_file, or_links.iter().map(|&text| text.to_owned()).collect());
        let expected = Expected::from_manifests([&image]).unwrap();
        nodes
            .each_ref()
            .map(|node| scan(&expected, node, |_| ()).difference_count)
    };
    assert_eq!(found(false, &[]), [1, 1, 1, 1]);
    assert_eq!(found(false, &["/run/systemd/resolve/resolv.conf", "x"]), [0, 1, 1, 1]);
    assert_eq!(found(true, &["/run/systemd/resolve/resolv.conf"]), [0, 0, 1, 1]);
}

#[test]
fn a_folder_that_is_gone_stands_for_what_was_in_it() {
    let found = changed(|node| node.retain(|text, _| !text.starts_with("/etc/ssl")));
    assert_eq!(found, ["/etc/ssl directory>-"]);
    // A folder that nobody lists is only implied by what lies in it.
    let found = changed(|node| node.retain(|text, _| !text.starts_with("/etc/agent")));
    assert_eq!(found, ["/etc/agent/agent.toml file>-"]);
}

#[test]
fn a_folder_that_is_something_else_now_stands_for_what_was_in_it() {
    let link = ObservedEntry {
        kind: ObservedKind::Other(EntryKind::Symlink(b"/evil".to_vec())),
        ..observed("/x")
    };
    for (folder, name) in [("/etc/ssl/", "/etc/ssl"), ("/etc/agent/", "/etc/agent")] {
        let found = changed(|node| {
            node.retain(|text, _| !text.starts_with(folder));
            node.insert(name.to_owned(), link.clone());
        });
        assert_eq!(found, [format!("{name} directory>symlink")]);
    }
}

#[test]
fn rules_speak_for_unlisted_paths() {
    let found = changed(|node| {
        for text in [
            "/log/a/",
            "/log/a/b",
            "/log/pinned/",
            "/junk/",
            "/junk/x",
            "/etc/agent/extra",
        ] {
            add(node, text);
        }
    });
    assert_eq!(found, ["/etc/agent/extra ->file", "/log/pinned ->directory"]);
}

#[test]
fn nothing_below_a_folder_that_was_not_read_is_gone() {
    let denied = |comparison: &mut TreeComparison<'_>| comparison.unread_folder(&path("/etc"), Observation::Denied);
    let mut node = clean();
    node.retain(|text, _| !text.starts_with("/etc/"));
    add(&mut node, "/etc/");
    node.remove("/key");
    let found = lines(&scan(&expected(), &node, denied));
    assert_eq!(found, ["/key file>-", "/etc ? denied"], "/etc-x is not below /etc");
    let nothing = scan(&expected(), &Node::new(), |comparison| {
        comparison.unread_folder(&TreePath::root(), Observation::TimedOut);
    });
    assert_eq!(lines(&nothing), ["/ ? timed_out"]);
}

#[test]
fn a_path_that_could_not_be_looked_at_is_not_gone() {
    let mut node = clean();
    node.retain(|text, _| !text.starts_with("/etc/ssl"));
    let findings = scan(&expected(), &node, |comparison| {
        comparison.record_unknown(
            &path("/etc/ssl"),
            Observation::Error {
                detail: "EIO".to_owned(),
            },
        );
    });
    assert_eq!(lines(&findings), ["/etc/ssl ? error"]);
}

#[test]
fn a_mount_hides_but_never_removes() {
    let mut node = clean();
    node.retain(|text, _| !text.starts_with("/dev") && !text.starts_with("/etc/ssl") && !text.starts_with("/boot"));
    let findings = scan(&expected(), &node, |comparison| {
        for mount in ["/dev", "/etc/ssl", "/boot", "/log/data"] {
            comparison.mount_point(&path(mount));
        }
    });
    // What may hold anything may hold a filesystem; elsewhere nobody looked.
    assert_eq!(lines(&findings), ["/boot ? not_scanned", "/etc/ssl ? not_scanned"]);
}

#[test]
fn content_is_only_read_where_it_tells_something() {
    let expected = expected();
    let comparison = TreeComparison::new(&expected, LIMITS);
    let root = &expected.roots()[0];
    let content = |text: &str, size| {
        let sight = Sight { kind: Kind::File, size };
        comparison.step(&path(text), sight, root).look.content
    };
    assert_eq!(content("/etc/motd", 9), Content::Decides);
    assert_eq!(content("/etc/motd", 10), Content::Explains);
    assert_eq!(content("/etc/motd", 5 << 40), Content::No);
    assert_eq!(content("/etc/new", 10), Content::Explains);
    assert_eq!(content("/etc/new", 1001), Content::No);
    assert_eq!(content("/key", 4), Content::No);
    assert_eq!(content("/dev/null", 9), Content::No);
    assert_eq!(content("/log/x", 9), Content::No);
}

#[test]
fn names_fold_case_on_vfat_only() {
    let mut image = manifest(ManifestKind::Os, &[("/boot/efi/EFI/", PathClass::Pinned)], &[]);
    let mut of = |filesystem| {
        image.header.roots = vec![Root {
            mount: path("/boot/efi"),
            filesystem,
        }];
        let expected = Expected::from_manifests([&image]).unwrap();
        let root = expected.root_of(&path("/boot/efi/efi")).unwrap().clone();
        let mut comparison = TreeComparison::new(&expected, LIMITS);
        let sight = Sight {
            kind: Kind::Directory,
            size: 0,
        };
        let step = comparison.step(&path("/boot/efi/efi"), sight, &root);
        comparison.record(&path("/boot/efi/efi"), &step, &observed("/boot/efi/efi/"));
        lines(&comparison.finish())
    };
    assert_eq!(of(FilesystemKind::Vfat), [""; 0]);
    assert_eq!(
        of(FilesystemKind::Ext4),
        ["/boot/efi/EFI directory>-", "/boot/efi/efi ->directory"]
    );
}

#[test]
fn findings_are_bounded_and_counted() {
    let mut node = clean();
    for at in 0..300 {
        add(&mut node, &format!("/etc/new{at}"));
    }
    let findings = scan(&expected(), &node, |comparison| {
        for at in 0..300 {
            comparison.unread_folder(&path(&format!("/x{at}")), Observation::Denied);
        }
    });
    assert_eq!((findings.differences.len(), findings.difference_count), (100, 300));
    assert_eq!((findings.unknown.len(), findings.unknown_count), (100, 300));
}

proptest! {
    /// osquery/osquery#7306: whatever was removed or could not be read: a path is gone only if its folder was read to its end.
    #[test]
    fn osquery_7306_gone_is_only_concluded_from_a_complete_look(kept in proptest::collection::vec(any::<bool>(), 19), unread in 0usize..8) {
        let expected = expected();
        let all = clean();
        let mut node: Node = all.iter().zip(&kept).filter(|(_, kept)| **kept).map(|((k, v), _)| (k.clone(), v.clone())).collect();
        // What lies in a folder that is not there is not there.
        let folders: Vec<String> = all.keys().filter(|text| text.ends_with('/') && !node.contains_key(*text)).cloned().collect();
        node.retain(|text, _| !folders.iter().any(|folder| text.starts_with(folder.as_str())));
        let folder = ["/", "/boot", "/dev", "/etc", "/etc/ssl", "/etc/ssl/b", "/etc/agent", "/usr"][unread];
        let folder = path(folder);
        let findings = scan(&expected, &node, |comparison| comparison.unread_folder(&folder, Observation::Denied));
        for difference in &findings.differences {
            let key = path(&difference.key);
            prop_assert!(!key.is_within(&folder), "{key} is within {folder}");
            prop_assert!(difference.actual.is_none());
            prop_assert!(!node.contains_key(&difference.key));
            // And it is the topmost listed one that is gone.
            let above = key.parent().unwrap_or_else(TreePath::root);
            let text = if above.is_root() { "/".to_owned() } else { format!("{above}/") };
            prop_assert!(key.is_root() || node.contains_key(&text) || expected.position(above.as_bytes()).is_none());
        }
        prop_assert_eq!(findings.unknown_count, 1);
    }

    /// What is packed comes out again.
    #[test]
    fn entries_survive_packing(names in proptest::collection::btree_set("[a-z]{1,6}", 1..40), size in any::<u64>(), mode in 0u32..0o10000) {
        let kinds = |at: usize| match at % 8 {
            0 => EntryKind::Directory,
            1 => EntryKind::File(None),
            2 => EntryKind::Symlink(vec![0xed; 1 + at]),
            3 => EntryKind::CharacterDevice(at as u32, 1 << 20),
            4 => EntryKind::BlockDevice(8, at as u32),
            5 => EntryKind::Fifo,
            6 => EntryKind::Socket,
            _ => EntryKind::File(Some(FileContent { size, digest: Digest::of(&[at as u8]) })),
        };
        let entries: Vec<Entry> = names.iter().enumerate().map(|(at, name)| Entry {
            path: path(&format!("/{name}")),
            class: PathClass::ALL[at % 4],
            kind: kinds(at),
            mode,
            uid: u32::MAX - at as u32,
            gid: at as u32,
            mtime: 0,
            xattrs: if at % 5 == 0 { Xattrs::from([("user.x".to_owned(), vec![at as u8])]) } else { Xattrs::new() },
        }).collect();
        let manifest = Manifest::new(Header::new(ManifestKind::Os, "x", "1"), entries.clone()).unwrap();
        let expected = Expected::from_manifests([&manifest]).unwrap();
        for entry in &entries {
            prop_assert_eq!(expected.get(&entry.path), Some(entry.clone()));
        }
        prop_assert_eq!(expected.positions().count(), entries.len());
    }
}
