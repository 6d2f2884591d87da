//! Each kind of change gives exactly the difference it is.

use std::os::unix::fs::PermissionsExt;

use drift::state_digest;
use plumbline_agent::scan::scan_tree;

use super::tree::{Tree, lines};

fn set_mode(path: &std::path::Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn a_tree_as_it_should_be_has_no_differences() {
    let tree = Tree::new();
    let expected = tree.expected();
    let scan = tree.scan(&expected);
    assert_eq!(lines(&scan.findings), [""; 0]);
    assert!(scan.is_complete());
    assert_eq!(scan.roots[0].entries, 15);
    assert_eq!(scan.findings.entries_by_class.values().sum::<u64>(), 15);
    let pinned = ["etc/motd", "etc/ssl/a", "etc/ssl/b/c", "usr/bin/tool"];
    assert_eq!(scan.hashed_bytes, pinned.map(str::len).iter().sum::<usize>() as u64);
}

#[test]
fn each_change_gives_the_difference_it_is() {
    type Change = fn(&Tree);
    let cases: [(Change, &[&str]); 13] = [
        (
            |t| std::fs::write(t.path("etc/motd"), "ETC/motd").unwrap(),
            &["/etc/motd digest=993a > digest=96a4"],
        ),
        (
            |t| std::fs::write(t.path("etc/motd"), "").unwrap(),
            &["/etc/motd digest=993a size=8 > digest=e3b0 size=0"],
        ),
        (
            |t| set_mode(&t.path("etc/motd"), 0o666),
            &["/etc/motd mode=0644 > mode=0666"],
        ),
        (
            |t| set_mode(&t.path("usr/bin/tool"), 0o755),
            &["/usr/bin/tool mode=4755 > mode=0755"],
        ),
        (
            |t| xattr::remove(t.path("usr/bin/tool"), "user.note").unwrap(),
            &["/usr/bin/tool xattr.user.note=0100 > "],
        ),
        (
            |t| xattr::set(t.path("etc"), "user.x", b"y").unwrap(),
            &["/etc  > xattr.user.x=79"],
        ),
        (
            |t| std::fs::remove_file(t.path("etc/motd")).unwrap(),
            &["/etc/motd type=file > -"],
        ),
        (
            |t| std::fs::remove_dir_all(t.path("etc/ssl")).unwrap(),
            &["/etc/ssl type=directory > -"],
        ),
        (
            |t| {
                std::fs::create_dir_all(t.path("etc/new/deep")).unwrap();
                std::fs::write(t.path("etc/new/deep/file"), "x").unwrap();
            },
            &["/etc/new - > mode=0755 type=directory"],
        ),
        (
            |t| {
                std::fs::remove_file(t.path("usr/bin/alias")).unwrap();
                std::os::unix::fs::symlink("/bin/sh", t.path("usr/bin/alias")).unwrap();
            },
            &["/usr/bin/alias target=tool > target=/bin/sh"],
        ),
        (
            |t| {
                std::fs::rename(t.path("etc/ssl"), t.path("var/log/ssl")).unwrap();
                std::os::unix::fs::symlink("../var/log/ssl", t.path("etc/ssl")).unwrap();
            },
            &["/etc/ssl type=directory > target=../var/log/ssl type=symlink"],
        ),
        // The inode is no key: a second name is an added file, a rename is one gone and one added.
        (
            |t| {
                std::fs::hard_link(t.path("etc/motd"), t.path("etc/copy")).unwrap();
                std::fs::rename(t.path("etc/ssl/a"), t.path("etc/ssl/z")).unwrap();
            },
            &[
                "/etc/copy - > digest=993a mode=0644 size=8 type=file",
                "/etc/ssl/a type=file > -",
                "/etc/ssl/z - > digest=9dde mode=0644 size=9 type=file",
            ],
        ),
        // Class rules: volatile content is free, a seeded file keeps its mode only.
        (
            |t| {
                std::fs::write(t.path("var/log/wtmp"), "more").unwrap();
                std::fs::write(t.path("var/log/new"), "x").unwrap();
                std::fs::write(t.path("etc/key"), "other").unwrap();
                set_mode(&t.path("etc/key"), 0o600);
            },
            &["/etc/key mode=0644 > mode=0600"],
        ),
    ];
    for (change, expected) in cases {
        assert_eq!(Tree::new().changed(change), expected);
    }
}

#[test]
fn the_state_is_the_same_in_every_scan_and_another_after_another_change() {
    let tree = Tree::new();
    let expected = tree.expected();
    std::fs::write(tree.path("etc/motd"), "other").unwrap();
    std::fs::write(tree.path("etc/added"), "x").unwrap();
    let state = || state_digest(&scan_tree(&expected, &tree.options()).findings.differences);
    let first = state();
    assert_eq!(state(), first);
    std::fs::write(tree.path("etc/added"), "y").unwrap();
    assert_ne!(state(), first);
}
