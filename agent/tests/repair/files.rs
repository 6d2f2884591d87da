//! Paths.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use manifest::{EntryKind, FilesystemKind, PathClass, Root};
use protocol::latest::{StepOutcome, Verb};

use super::node::{Node, is_done, reason, remove, restore};
use crate::scan::tree::Tree;

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// A change and the verb that takes it back.
type Case = (&'static str, fn(&Tree), fn() -> Verb);

#[test]
fn every_way_of_being_wrong_is_put_right() {
    let cases: [Case; 13] = [
        (
            "content",
            |t| std::fs::write(t.path("etc/motd"), "other").unwrap(),
            || restore("/etc/motd"),
        ),
        (
            "same size",
            |t| std::fs::write(t.path("etc/motd"), "ETC/motd").unwrap(),
            || restore("/etc/motd"),
        ),
        (
            "mode",
            |t| set_mode(&t.path("usr/bin/tool"), 0o755),
            || restore("/usr/bin/tool"),
        ),
        (
            "missing",
            |t| std::fs::remove_file(t.path("usr/bin/tool")).unwrap(),
            || restore("/usr/bin/tool"),
        ),
        (
            "attributes",
            |t| {
                xattr::remove(t.path("usr/bin/tool"), "user.note").unwrap();
                xattr::set(t.path("usr/bin/tool"), "user.evil", b"x").unwrap();
            },
            || restore("/usr/bin/tool"),
        ),
        (
            "link target",
            |t| {
                std::fs::remove_file(t.path("usr/bin/alias")).unwrap();
                std::os::unix::fs::symlink("/bin/sh", t.path("usr/bin/alias")).unwrap();
            },
            || restore("/usr/bin/alias"),
        ),
        (
            "file for a link",
            |t| {
                std::fs::remove_file(t.path("usr/bin/alias")).unwrap();
                std::fs::write(t.path("usr/bin/alias"), "x").unwrap();
            },
            || restore("/usr/bin/alias"),
        ),
        (
            "folder for a file",
            |t| {
                std::fs::remove_file(t.path("etc/motd")).unwrap();
                std::fs::create_dir_all(t.path("etc/motd/deep")).unwrap();
                std::fs::write(t.path("etc/motd/deep/x"), "x").unwrap();
            },
            || restore("/etc/motd"),
        ),
        (
            "file for a folder",
            |t| {
                std::fs::remove_dir_all(t.path("etc/ssl")).unwrap();
                std::fs::write(t.path("etc/ssl"), "x").unwrap();
            },
            || restore("/etc/ssl"),
        ),
        (
            "missing folder",
            |t| std::fs::remove_dir_all(t.path("etc/ssl")).unwrap(),
            || restore("/etc/ssl"),
        ),
        (
            "mode of a folder",
            |t| set_mode(&t.path("etc/ssl"), 0o777),
            || restore("/etc/ssl"),
        ),
        ("mode of the root", |t| set_mode(t.base(), 0o777), || restore("/")),
        (
            "pipe",
            |t| std::fs::remove_file(t.path("etc/pipe")).unwrap(),
            || restore("/etc/pipe"),
        ),
    ];
    for (name, change, verb) in cases {
        let tree = Tree::new();
        let pipe = std::process::Command::new("mkfifo").arg(tree.path("etc/pipe")).status();
        assert!(pipe.unwrap().success());
        let node = Node::new(tree, |_| {});
        change(&node.tree);
        assert!(!node.findings().is_empty(), "{name}");
        let outcome = node.repair(verb());
        assert!(is_done(&outcome), "{name}: {}", reason(&outcome));
        assert_eq!(node.findings(), [""; 0], "{name}");
        let left_over = std::fs::read_dir(node.tree.path("etc")).unwrap().flatten();
        assert!(
            !left_over
                .map(|e| e.file_name())
                .any(|n| n.as_encoded_bytes().starts_with(b".plumbline")),
            "{name}"
        );
        assert_eq!(node.repair(verb()), StepOutcome::NothingToDo, "{name}: a second time");
    }
}

#[test]
fn capabilities_acls_owners_and_times_come_back() {
    let tree = Tree::new();
    // CAP_NET_RAW, permitted and effective, VFS_CAP_REVISION_2.
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let tool = tree.path("usr/bin/tool");
    std::os::unix::fs::chown(&tool, Some(1234), Some(55)).unwrap();
    set_mode(&tool, 0o4755);
    xattr::set(&tool, "security.capability", &capability).unwrap();
    // user::rw- user:103221:r-- group::r-- mask::r-- other::r--
    let acl = |id: u32| -> Vec<u8> {
        let entry = |tag: u16, permissions: u16, id: u32| {
            [
                tag.to_le_bytes().as_slice(),
                &permissions.to_le_bytes(),
                &id.to_le_bytes(),
            ]
            .concat()
        };
        let none = u32::MAX;
        [
            2_u32.to_le_bytes().to_vec(),
            entry(1, 6, none),
            entry(2, 4, id),
            entry(4, 4, none),
            entry(0x10, 4, none),
            entry(0x20, 4, none),
        ]
        .concat()
    };
    xattr::set(tree.path("etc/motd"), "system.posix_acl_access", &acl(103_221)).unwrap();
    let time = std::fs::metadata(&tool).unwrap().mtime() - 1_000_000;
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(time as u64);
    std::fs::File::open(&tool).unwrap().set_modified(old).unwrap();
    let node = Node::new(tree, |_| {});
    std::fs::remove_file(&tool).unwrap();
    std::fs::remove_file(node.tree.path("etc/motd")).unwrap();
    // What a folder hands down to new files must not stay on a restored one.
    xattr::set(node.tree.path("usr/bin"), "system.posix_acl_default", &acl(7)).unwrap();
    for path in ["/usr/bin/tool", "/etc/motd", "/usr/bin"] {
        let outcome = node.repair(restore(path));
        assert!(is_done(&outcome), "{path}: {}", reason(&outcome));
    }
    assert_eq!(node.findings(), [""; 0]);
    let metadata = std::fs::metadata(&tool).unwrap();
    assert_eq!(
        (metadata.mode() & 0o7777, metadata.uid(), metadata.mtime()),
        (0o4755, 1234, time)
    );
    assert_eq!(xattr::get(&tool, "security.capability").unwrap().unwrap(), capability);
}

#[test]
fn metadata_alone_leaves_the_content_and_the_file_itself_alone() {
    let node = Node::plain();
    let motd = node.tree.path("etc/motd");
    let inode = std::fs::metadata(&motd).unwrap().ino();
    set_mode(&motd, 0o666);
    std::os::unix::fs::chown(&motd, Some(99), None).unwrap();
    let outcome = node.repair(restore("/etc/motd"));
    assert_eq!(
        outcome,
        StepOutcome::Done {
            detail: "set mode, uid".to_owned()
        }
    );
    assert_eq!(std::fs::metadata(&motd).unwrap().ino(), inode);
    assert!(node.undone().is_empty());
}

#[test]
fn what_is_replaced_or_removed_is_kept() {
    let node = Node::plain();
    std::fs::write(node.tree.path("etc/motd"), "precious").unwrap();
    std::fs::create_dir(node.tree.path("etc/new")).unwrap();
    std::fs::write(node.tree.path("etc/new/file"), "also").unwrap();
    let steps = vec![node.step(restore("/etc/motd")), node.step(remove("/etc/new"))];
    assert!(node.run(steps).iter().all(is_done));
    let undone = node.undone();
    assert_eq!(std::fs::read_to_string(&undone["/etc/motd"]).unwrap(), "precious");
    assert_eq!(
        std::fs::read_to_string(undone["/etc/new"].join("file")).unwrap(),
        "also"
    );
    let folder = undone["/etc/motd"].parent().unwrap();
    assert_eq!(
        std::fs::metadata(folder).unwrap().mode() & 0o777,
        0o700,
        "what was setuid stays out of reach"
    );
}

#[test]
fn what_differs_in_another_way_by_now_is_left_alone() {
    let node = Node::plain();
    let motd = node.tree.path("etc/motd");
    std::fs::write(&motd, "as the server saw it").unwrap();
    std::fs::write(node.tree.path("etc/added"), "x").unwrap();
    let steps = vec![node.step(restore("/etc/motd")), node.step(remove("/etc/added"))];
    std::fs::write(&motd, "changed by a person since").unwrap();
    std::fs::write(node.tree.path("etc/added"), "changed").unwrap();
    for outcome in node.run(steps) {
        assert!(
            reason(&outcome).starts_with("refused: it differs in another way"),
            "{outcome:?}"
        );
    }
    assert_eq!(std::fs::read_to_string(&motd).unwrap(), "changed by a person since");
    assert!(node.tree.path("etc/added").exists());
}

#[test]
fn a_failed_step_does_not_stop_the_others_and_a_bad_content_touches_nothing() {
    let mut node = Node::plain();
    std::fs::write(node.tree.path("etc/motd"), "other").unwrap();
    std::fs::write(node.tree.path("etc/ssl/a"), "other").unwrap();
    std::fs::remove_file(node.tree.path("etc/ssl/b/c")).unwrap();
    let digest = manifest::Digest::of(b"etc/motd");
    node.contents.0.insert(digest, b"etc/m0td".to_vec());
    node.contents.0.remove(&manifest::Digest::of(b"etc/ssl/a"));
    let verbs = [restore("/etc/motd"), restore("/etc/ssl/a"), restore("/etc/ssl/b/c")];
    let outcomes = node.run(verbs.map(|verb| node.step(verb)).to_vec());
    assert!(
        reason(&outcomes[0]).contains("failed: the server's content has the digest"),
        "{outcomes:?}"
    );
    assert_eq!(reason(&outcomes[1]), "failed: the server does not have it");
    assert!(is_done(&outcomes[2]));
    assert_eq!(std::fs::read_to_string(node.tree.path("etc/motd")).unwrap(), "other");
    let names = std::fs::read_dir(node.tree.path("etc")).unwrap();
    assert!(
        names
            .flatten()
            .all(|entry| !entry.file_name().to_string_lossy().starts_with(".plumbline"))
    );
}

#[test]
fn a_secret_is_restored_by_the_keyed_digest_it_was_reported_with() {
    let tree = Tree::new();
    std::fs::write(tree.path("etc/shadow"), "root:*:").unwrap();
    let node = Node::new(tree, |_| {});
    std::fs::write(node.tree.path("etc/shadow"), "root::").unwrap();
    let (_, state) = node.scan();
    let digest = state.differences[0].actual.as_ref().unwrap().get("digest").unwrap();
    assert!(digest.starts_with("hmac-sha256:"), "{digest}");
    assert!(is_done(&node.repair(restore("/etc/shadow"))));
    assert_eq!(
        std::fs::read_to_string(node.tree.path("etc/shadow")).unwrap(),
        "root:*:"
    );
}

#[test]
fn what_the_baseline_does_not_say_is_refused() {
    let tree = Tree::new();
    let node = Node::new(tree, |manifest| {
        for entry in &mut manifest.entries {
            if entry.class == PathClass::Seeded {
                entry.kind = EntryKind::File(None);
            }
        }
    });
    std::fs::remove_file(node.tree.path("etc/key")).unwrap();
    assert_eq!(
        reason(&node.repair(restore("/etc/key"))),
        "refused: its content is the node's own"
    );
    std::fs::write(node.tree.path("etc/key"), "x").unwrap();
    set_mode(&node.tree.path("etc/key"), 0o666);
    assert!(is_done(&node.repair(restore("/etc/key"))), "its mode is known");
    assert_eq!(std::fs::read_to_string(node.tree.path("etc/key")).unwrap(), "x");
    for (verb, expected) in [
        (restore("/etc/unlisted"), "refused: the baseline does not list it"),
        (restore("/../etc/passwd"), "refused: no path"),
        (remove("/etc/motd"), "NothingToDo"),
        (remove("/"), "NothingToDo"),
        (remove("/var/log/free"), "NothingToDo"),
    ] {
        std::fs::write(node.tree.path("var/log/free"), "x").unwrap();
        assert_eq!(reason(&node.repair(verb)), expected);
    }
    std::fs::write(node.tree.path("etc/motd"), "x").unwrap();
    let listed = reason(&node.repair(remove("/etc/motd")));
    assert!(listed.contains("refused: the baseline lists it"), "{listed}");
    assert!(node.tree.path("etc/motd").exists() && node.tree.path("var/log/free").exists());
}

#[test]
fn nothing_is_reached_through_a_link() {
    for target in ["../var/log/elsewhere", "/var/log/elsewhere"] {
        let node = Node::plain();
        let elsewhere = node.tree.path("var/log/elsewhere");
        std::fs::create_dir_all(elsewhere.join("b")).unwrap();
        // What differs there differs in the same way, so that only the link keeps it from being touched.
        for folder in [&elsewhere, &node.tree.path("etc/ssl")] {
            std::fs::write(folder.join("a"), "other").unwrap();
            std::fs::write(folder.join("evil"), "other").unwrap();
        }
        let steps = vec![node.step(restore("/etc/ssl/a")), node.step(remove("/etc/ssl/evil"))];
        std::fs::rename(node.tree.path("etc/ssl"), node.tree.path("etc/moved")).unwrap();
        std::os::unix::fs::symlink(target, node.tree.path("etc/ssl")).unwrap();
        let outcomes = node.run(steps);
        assert!(outcomes.iter().all(|outcome| !is_done(outcome)), "{outcomes:?}");
        let untouched = |name: &str| std::fs::read_to_string(elsewhere.join(name)).unwrap() == "other";
        assert!(untouched("a") && untouched("evil"));
        assert!(
            is_done(&node.repair(restore("/etc/ssl"))),
            "the link itself is put right"
        );
        assert!(untouched("a") && untouched("evil"));
    }
}

#[test]
fn a_mount_is_never_touched_and_another_root_is_reached() {
    let tree = Tree::new();
    std::fs::create_dir_all(tree.path("boot/efi/EFI")).unwrap();
    std::fs::write(tree.path("boot/efi/EFI/grub.cfg"), "good").unwrap();
    let mut tree = tree;
    tree.roots = vec![
        Root {
            mount: "/".parse().unwrap(),
            filesystem: FilesystemKind::Ext4,
        },
        Root {
            mount: "/boot/efi".parse().unwrap(),
            filesystem: FilesystemKind::Vfat,
        },
    ];
    let node = Node::new(tree, |_| {});
    let config = node.tree.path("boot/efi/EFI/grub.cfg");
    std::fs::write(&config, "evil").unwrap();
    set_mode(&config, 0o600);
    std::fs::write(node.tree.path("boot/efi/EFI/added"), "x").unwrap();
    let steps = [restore("/boot/efi/EFI/grub.cfg"), remove("/boot/efi/EFI/added")];
    let outcomes = node.run(steps.map(|verb| node.step(verb)).to_vec());
    assert!(outcomes.iter().all(is_done), "{outcomes:?}");
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "good");
    assert_eq!(node.findings(), [""; 0]);

    std::fs::create_dir_all(node.tree.path("etc/new/mnt")).unwrap();
    let step = node.step(remove("/etc/new"));
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "none"])
        .arg(node.tree.path("etc/new/mnt"))
        .status()
        .unwrap();
    if !mounted.success() {
        // Some sandboxes do not let even root mount.
        return;
    }
    let outcome = node.run(vec![step]).remove(0);
    let unmounted = std::process::Command::new("umount")
        .arg(node.tree.path("etc/new/mnt"))
        .status();
    assert!(unmounted.unwrap().success());
    assert_eq!(reason(&outcome), "failed: another filesystem is mounted there");
}
