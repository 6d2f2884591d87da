//! Trees that killed or fooled other scanners.

use std::os::unix::net::UnixListener;

use plumbline_agent::scan::{Bounds, Interference, ScanOptions, scan_tree};
use rustix::io::Errno;

use super::tree::{Tree, lines};

/// wazuh/wazuh#3007: a pipe is named and never opened, which would wait for ever.
#[test]
fn wazuh_3007_pipes_are_named_and_never_opened() {
    let found = Tree::new().changed(|tree| {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, tree.path("etc/pipe"), kind, mode, 0).unwrap();
    });
    assert_eq!(found, ["/etc/pipe - > mode=0600 type=fifo"]);
}

/// linux-application-whitelisting/fapolicyd PR#355: a socket is named, has no content, and ends nothing.
#[test]
fn fapolicyd_355_sockets_are_named_and_have_no_content() {
    let mut socket = None;
    let found = Tree::new().changed(|tree| {
        socket = Some(UnixListener::bind(tree.path("etc/socket")).unwrap());
    });
    assert_eq!(found, ["/etc/socket - > mode=0755 type=socket"]);
}

/// What is left of lines without the targets of links.
fn ends(found: &[String]) -> Vec<&str> {
    let end = |line: &'_ String| line.find(" target=").map_or(line.len(), |at| at);
    found.iter().map(|line| &line[..end(line)]).collect()
}

/// OpenSCAP/openscap#2124: a link into sysfs beside an accelerator leads nowhere, and a folder that became a link holds
/// nothing.
#[test]
fn openscap_2124_links_are_never_followed() {
    let found = Tree::new().changed(|tree| {
        for (target, name) in [("/sys/class/pci_bus", "etc/gpu0"), ("missing", "etc/dangling")] {
            std::os::unix::fs::symlink(target, tree.path(name)).unwrap();
        }
        std::fs::remove_dir_all(tree.path("etc/ssl")).unwrap();
        std::os::unix::fs::symlink(tree.path("etc"), tree.path("etc/ssl")).unwrap();
    });
    assert_eq!(
        ends(&found),
        ["/etc/dangling - >", "/etc/gpu0 - >", "/etc/ssl type=directory >"]
    );
}

/// wazuh/wazuh#2207, #2308: a link to its own folder is one path, and its text is what it is.
#[test]
fn wazuh_2207_a_link_to_itself_is_one_path() {
    let found = Tree::new().changed(|tree| std::os::unix::fs::symlink(".", tree.path("etc/loop")).unwrap());
    assert_eq!(found, ["/etc/loop - > target=. type=symlink"]);
}

/// wazuh/wazuh#23354, #23545: names are bytes; one that is no text is told, and found again where it is listed.
#[test]
fn wazuh_23354_names_that_are_not_text_are_told() {
    let added = |tree: &Tree| std::fs::write(tree.raw_path(b"etc/V\xEDctor"), "y").unwrap();
    let found = Tree::new().changed(added);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("/etc/V\\xedctor - > "), "{found:?}");
    let tree = Tree::new();
    std::fs::write(tree.raw_path(b"etc/V\xEDctor"), "x").unwrap();
    assert_eq!(tree.changed(added), ["/etc/V\\xedctor digest=2d71 > digest=a1fc"]);
}

/// AIDE CVE-2025-54389, aide/aide#189: no name forges or hides a line, and none reads like another one.
#[test]
fn aide_cve_2025_54389_names_cannot_forge_lines() {
    let found = Tree::new().changed(|tree| {
        for name in [
            b"etc/ok\n\xc2\x85file ".as_slice(),
            b"etc/\x1b[2K",
            b"etc/back\\slash",
            b"etc/back\\x0aslash",
            "etc/\u{202e}txt".as_bytes(),
        ] {
            std::fs::write(tree.raw_path(name), "").unwrap();
        }
    });
    let keys: Vec<_> = found.iter().map(|line| line.split(" - >").next().unwrap()).collect();
    let is_plain = |key: &str| key.chars().all(|c| !c.is_control() && c.is_ascii());
    assert!(keys.iter().all(|key| is_plain(key)), "{keys:?}");
    assert_eq!(
        keys,
        [
            "/etc/\\x1b[2K",
            "/etc/\\xe2\\x80\\xaetxt",
            "/etc/back\\\\slash",
            "/etc/back\\\\x0aslash",
            "/etc/ok\\x0a\\xc2\\x85file ",
        ]
    );
}

/// aide/aide#75, #96: an ACL for an account that nobody knows is bytes; nobody is asked for names.
#[test]
fn aide_75_an_acl_for_an_account_that_nobody_knows_is_bytes() {
    // acl(5) as the kernel keeps it: version 2, then tag, permissions, id.
    let entry = |tag: u16, permissions: u16, id: u32| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let acl = [
        2u32.to_le_bytes().to_vec(),
        entry(0x01, 7, u32::MAX),
        entry(0x02, 6, 103_221),
        entry(0x04, 5, u32::MAX),
        entry(0x10, 7, u32::MAX),
        entry(0x20, 5, u32::MAX),
    ]
    .concat();
    let found = Tree::new().changed(|tree| xattr::set(tree.path("etc"), "system.posix_acl_access", &acl).unwrap());
    // The mask of an ACL is the group's part of the mode.
    assert_eq!(
        found,
        [format!(
            "/etc mode=0755 > mode=0775 xattr.system.posix_acl_access={}",
            hex::encode(acl)
        )]
    );
}

/// wazuh/wazuh PR#17415: sizes beyond 2 and 4 GiB are exact, also as JSON, and holes of 8 TiB are not read.
#[test]
fn wazuh_17415_huge_sparse_files_are_not_read() {
    let tree = Tree::new();
    let expected = tree.expected();
    for (name, size) in [("etc/motd", 5u64 << 30), ("etc/added", 8 << 40)] {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(tree.path(name))
            .unwrap();
        file.set_len(size).unwrap();
    }
    let scan = tree.scan(&expected);
    assert_eq!(
        lines(&scan.findings),
        [
            "/etc/added - > mode=0644 size=8796093022208 type=file",
            "/etc/motd size=8 > size=5368709120"
        ]
    );
    assert!(scan.hashed_bytes < 1000, "{}", scan.hashed_bytes);
    let text = serde_json::to_string(&scan.findings.differences).unwrap();
    assert!(
        text.contains("\"8796093022208\"") && text.contains("\"5368709120\""),
        "text, which no reader rounds: {text}"
    );
}

/// Folders that refuse to be opened.
struct Refusing(&'static str);

impl Interference for Refusing {
    fn open_folder(&self, path: &manifest::TreePath) -> Option<Errno> {
        (path.to_string() == self.0).then_some(Errno::ACCESS)
    }
}

/// osquery/osquery#7306: "removed" is only concluded from a complete look.
#[test]
fn osquery_7306_nothing_is_gone_that_could_not_be_looked_at() {
    let tree = Tree::new();
    let expected = tree.expected();
    std::fs::remove_dir_all(tree.path("etc/ssl/b")).unwrap();
    std::fs::remove_file(tree.path("etc/motd")).unwrap();
    let options = ScanOptions {
        interference: &Refusing("/etc/ssl"),
        ..tree.options()
    };
    let scan = scan_tree(&expected, &options);
    assert_eq!(lines(&scan.findings), ["/etc/motd type=file > -", "/etc/ssl ? denied"]);
    assert!(!scan.is_complete());
}

/// osquery/osquery#7291: a part is never told as the whole.
#[test]
fn osquery_7291_a_scan_that_stops_at_a_bound_says_so() {
    let tree = Tree::new();
    for at in 0..100 {
        std::fs::write(tree.path(&format!("var/log/{at}")), "").unwrap();
    }
    let expected = tree.expected();
    let with = |bounds: Bounds| {
        scan_tree(
            &expected,
            &ScanOptions {
                bounds,
                ..tree.options()
            },
        )
    };
    let usual = Bounds::default;
    assert!(with(usual()).is_complete());
    let scan = with(Bounds {
        entries_max: 8,
        ..usual()
    });
    assert!(!scan.is_complete());
    assert_eq!(scan.findings.difference_count, 0, "{:?}", lines(&scan.findings));
    assert!(lines(&scan.findings).contains(&"/ ? not_scanned".to_owned()));
    let scan = with(Bounds {
        folder_entries_max: 50,
        ..usual()
    });
    assert_eq!(lines(&scan.findings), ["/var/log ? not_scanned"]);
    assert!(!scan.is_complete());
    let scan = with(Bounds {
        depth_max: 3,
        ..usual()
    });
    assert_eq!(lines(&scan.findings), ["/etc/ssl/b ? not_scanned"]);
    assert!(!scan.is_complete());
}

#[test]
fn paths_that_are_too_long_are_said_to_be_unseen() {
    let tree = Tree::new();
    let expected = tree.expected();
    // Deeper than any path reaches: each step from the folder before.
    let mut folder = rustix::fs::open(
        tree.path("var/log"),
        rustix::fs::OFlags::PATH,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    let name = "x".repeat(200);
    for _ in 0..25 {
        rustix::fs::mkdirat(&folder, &name, rustix::fs::Mode::RWXU).unwrap();
        folder = rustix::fs::openat(&folder, &name, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    }
    let scan = tree.scan(&expected);
    assert!(!scan.is_complete());
    assert_eq!(scan.findings.difference_count, 0);
    assert_eq!(scan.findings.unknown_count, 1);
}
