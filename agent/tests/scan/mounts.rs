//! Other filesystems, in a mount namespace of their own. Needs root; without it there is nothing to mount.

use std::os::fd::AsRawFd;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use drift::Expected;
use drift::Observation::NotScanned;
use manifest::{FilesystemKind, Root};
use plumbline_agent::scan::{Looker, Place, ScanOptions, scan_tree};
use plumbline_agent::watch::WatchSet;
use rustix::fs::{Mode, OFlags};

use super::tree::{Tree, lines};

const INSIDE: &str = "PLUMBLINE_TEST_IN_NAMESPACE";

fn mount(arguments: &[&str], target: &std::path::Path) {
    let status = Command::new("mount").args(arguments).arg(target).status().unwrap();
    assert!(status.success());
}

/// Whether this process may mount: it is root, in a mount namespace of its own. If not, the test of this name runs once
/// more in one, as far as there is root.
fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    if rustix::process::geteuid().is_root() {
        let output = Command::new("unshare")
            .args(["--mount", "--propagation", "private"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", &format!("scan::mounts::{test}"), "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
    false
}

/// A folder of the base and its ESP, which is a mount of its own.
fn roots() -> Vec<Root> {
    vec![
        Root {
            mount: "/".parse().unwrap(),
            filesystem: FilesystemKind::Ext4,
        },
        Root {
            mount: "/boot/efi".parse().unwrap(),
            filesystem: FilesystemKind::Vfat,
        },
    ]
}

/// prometheus/node_exporter#244, #868, #475, #578, #1353: a mount whose server does not answer holds nothing up. Mounts
/// are known from text, and no system call is made on one that has to answer.
#[test]
fn node_exporter_244_a_mount_that_never_answers_is_not_touched() {
    if !is_inside("node_exporter_244_a_mount_that_never_answers_is_not_touched") {
        return;
    }
    // A filesystem in user space whose server does not even answer the first greeting.
    let flags = OFlags::RDWR | OFlags::NONBLOCK;
    let Ok(server) = rustix::fs::open("/dev/fuse", flags, Mode::empty()) else {
        return;
    };
    let mut tree = Tree::new();
    for folder in ["boot/efi/EFI", "srv", "var/log/data"] {
        std::fs::create_dir_all(tree.path(folder)).unwrap();
    }
    std::fs::write(tree.path("srv/listed"), "x").unwrap();
    tree.roots = roots();
    let expected = Arc::new(tree.expected());
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", server.as_raw_fd());
    // One server answers, or does not, for one mount; the others are the same one bound to other places.
    mount(&["-i", "-t", "fuse", "-o", &options, "dead"], &tree.path("srv"));
    for place in ["boot/efi", "etc/ssl", "var/log/data"] {
        mount(&["--bind", tree.path("srv").to_str().unwrap()], &tree.path(place));
    }

    let (sender, receiver) = std::sync::mpsc::channel();
    let (base, moved) = (tree.base().to_owned(), expected.clone());
    std::thread::spawn(move || {
        let watched = WatchSet::open(moved.clone(), 1_000).unwrap().arm(&base, false);
        let options = ScanOptions::new(&base);
        let scan = scan_tree(&moved, &options);
        let mut looker = Looker::new(&moved, &options);
        let looks = ["/etc/ssl", "/etc/ssl/a", "/boot/efi/EFI"].map(|path| looker.look(&path.parse().unwrap()).place);
        let _ = sender.send((watched, scan, looks));
    });
    let found = receiver.recv_timeout(Duration::from_secs(30));
    // Whoever still waits for an answer gets an error now.
    drop(server);
    let (_, scan, looks) = found.expect("the scan hangs on a mount");
    assert_eq!(
        lines(&scan.findings),
        [
            "/boot/efi ? not_scanned",
            "/etc/ssl ? not_scanned",
            "/srv ? not_scanned"
        ],
        "where a rule allows anything, it is no news"
    );
    let NotScanned { detail } = &scan.findings.unknown[0].observation else {
        panic!()
    };
    assert!(detail.contains("fuse is mounted here"), "{detail}");
    assert_eq!(
        scan.roots.iter().map(|root| root.complete).collect::<Vec<_>>(),
        [true, false]
    );
    assert_eq!(looks, [Place::Mounted, Place::Mounted, Place::Unknown]);
}

/// wazuh/wazuh#36077: a root whose path is a link is no root, and that is said; so is one that is not mounted.
#[test]
fn wazuh_36077_mounts_are_roots_of_their_own_or_not_looked_at() {
    if !is_inside("wazuh_36077_mounts_are_roots_of_their_own_or_not_looked_at") {
        return;
    }
    let mut tree = Tree::new();
    for folder in ["boot/efi/EFI", "proc", "var/log/data"] {
        std::fs::create_dir_all(tree.path(folder)).unwrap();
    }
    std::fs::write(tree.path("boot/efi/EFI/grub.cfg"), "menu").unwrap();
    tree.roots = roots();
    let expected: Expected = tree.expected();

    // The second root is not mounted: nobody knows what is on it.
    let scan = tree.scan(&expected);
    assert_eq!(lines(&scan.findings), ["/boot/efi ? not_scanned"]);
    assert_eq!(
        scan.roots.iter().map(|root| root.complete).collect::<Vec<_>>(),
        [true, false]
    );

    mount(&["-t", "tmpfs", "-o", "mode=0700", "esp"], &tree.path("boot/efi"));
    std::fs::create_dir_all(tree.path("boot/efi/EFI/evil")).unwrap();
    std::fs::write(tree.path("boot/efi/EFI/grub.cfg"), "MENU").unwrap();
    let scan = tree.scan(&expected);
    assert_eq!(
        lines(&scan.findings),
        [
            "/boot/efi/EFI/evil - > type=directory",
            "/boot/efi/EFI/grub.cfg digest=3989 > digest=1136"
        ],
        "only type and content mean anything on vfat"
    );
    assert!(scan.is_complete());
    assert_eq!(scan.roots[1].entries, 4);
    std::fs::remove_dir(tree.path("boot/efi/EFI/evil")).unwrap();
    std::fs::write(tree.path("boot/efi/EFI/grub.cfg"), "menu").unwrap();

    // What may hold anything may hold a filesystem; a kernel filesystem is never entered.
    mount(&["-t", "tmpfs", "data"], &tree.path("var/log/data"));
    assert_eq!(lines(&tree.scan(&expected).findings), [""; 0]);
    mount(&["-t", "proc", "proc"], &tree.path("proc"));
    assert_eq!(lines(&tree.scan(&expected).findings), ["/proc ? not_scanned"]);

    // A bind mount is on the same device, and hides all the same.
    mount(&["--bind", tree.path("usr").to_str().unwrap()], &tree.path("etc/ssl"));
    mount(
        &["--bind", tree.path("etc/key").to_str().unwrap()],
        &tree.path("etc/motd"),
    );
    let scan = tree.scan(&expected);
    assert_eq!(
        lines(&scan.findings),
        [
            "/etc/motd ? not_scanned",
            "/etc/ssl ? not_scanned",
            "/proc ? not_scanned"
        ]
    );

    // A root in whose place a link lies is no root.
    let status = Command::new("umount").arg(tree.path("boot/efi")).status().unwrap();
    assert!(status.success());
    std::fs::rename(tree.path("boot/efi"), tree.path("boot/real")).unwrap();
    std::os::unix::fs::symlink("real", tree.path("boot/efi")).unwrap();
    let scan = tree.scan(&expected);
    assert!(lines(&scan.findings).contains(&"/boot/efi ? not_scanned".to_owned()));
    assert!(!lines(&scan.findings).iter().any(|line| line.starts_with("/boot/efi/")));
}
