//! Other filesystems, in a mount namespace of their own. Needs root; without it there is nothing to mount.

use std::process::Command;

use drift::Expected;
use manifest::{FilesystemKind, Root};

use super::tree::{Tree, lines};

const INSIDE: &str = "PLUMBLINE_TEST_IN_NAMESPACE";

fn mount(arguments: &[&str], target: &std::path::Path) {
    let status = Command::new("mount").args(arguments).arg(target).status().unwrap();
    assert!(status.success());
}

/// wazuh/wazuh#36077 (a root whose path is a link is no root, and that is said), prometheus/node_exporter#244 (mounts are known
/// from text before any is touched).
#[test]
fn mounts_are_roots_of_their_own_or_not_looked_at() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    if std::env::var_os(INSIDE).is_none() {
        let output = Command::new("unshare")
            .args(["--mount", "--propagation", "private"])
            .arg(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "scan::mounts::mounts_are_roots_of_their_own_or_not_looked_at",
                "--nocapture",
            ])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let mut tree = Tree::new();
    for folder in ["boot/efi/EFI", "proc", "var/log/data"] {
        std::fs::create_dir_all(tree.path(folder)).unwrap();
    }
    std::fs::write(tree.path("boot/efi/EFI/grub.cfg"), "menu").unwrap();
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
