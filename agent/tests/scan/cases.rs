//! Faults that others met in the field, each with the right answer (docs/drift-cases.md lists all).

use plumbline_agent::scan::{Bounds, Looker, Place, ScanOptions, scan_tree};

use super::tree::{Tree, lines};

/// wazuh/wazuh#3198, osquery/osquery#3080: a file that outgrows what is read is neither gone nor empty.
#[test]
fn wazuh_3198_a_file_that_crosses_the_limit_is_told_by_its_size() {
    let tree = Tree::new();
    let expected = tree.expected();
    let mut bounds = Bounds::default();
    bounds.limits.explain_bytes_max = 16;
    let scan = || {
        let options = ScanOptions {
            bounds: bounds.clone(),
            ..tree.options()
        };
        lines(&scan_tree(&expected, &options).findings)
    };
    std::fs::write(tree.path("etc/motd"), "sixteen bytes at").unwrap();
    assert_eq!(scan(), ["/etc/motd digest=993a size=8 > digest=0ae7 size=16"]);
    std::fs::write(tree.path("etc/motd"), "seventeen bytes a").unwrap();
    assert_eq!(scan(), ["/etc/motd size=8 > size=17"], "no digest is made up");
    std::fs::write(tree.path("etc/motd"), "etc/motd").unwrap();
    assert_eq!(scan(), [""; 0]);
}

/// nebius/soperator PR#2684: a library of no bytes is a fault of its own.
#[test]
fn soperator_2684_an_empty_file_is_told() {
    let found = Tree::new().changed(|tree| std::fs::write(tree.path("usr/bin/tool"), "").unwrap());
    assert!(
        found[0].contains("size=12 >") && found[0].contains("size=0"),
        "{found:?}"
    );
}

/// wazuh/wazuh#29516: hard links are paths of their own, each with what it is.
#[test]
fn wazuh_29516_hard_links_are_told_each_by_its_path() {
    let tree = Tree::new();
    std::fs::hard_link(tree.path("etc/motd"), tree.path("usr/bin/motd")).unwrap();
    let found = tree.changed(|tree| {
        std::fs::write(tree.path("etc/motd"), "ETC/motd").unwrap();
        std::fs::hard_link(tree.path("etc/motd"), tree.path("etc/third")).unwrap();
    });
    assert_eq!(
        found,
        [
            "/etc/motd digest=993a > digest=96a4",
            "/etc/third - > digest=96a4 mode=0644 size=8 type=file",
            "/usr/bin/motd digest=993a > digest=96a4",
        ]
    );
}

/// wazuh/wazuh#29516: after a rename both names are told, by their paths.
#[test]
fn wazuh_29516_a_rename_is_one_gone_and_one_added() {
    let found = Tree::new().changed(|tree| std::fs::rename(tree.path("etc/motd"), tree.path("etc/motd2")).unwrap());
    let ends: Vec<&str> = found.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(ends, ["/etc/motd", "/etc/motd2"]);
}

/// systemd/systemd#8328: a drop-in is told by itself, by a scan as by a look at it alone.
#[test]
fn systemd_8328_a_drop_in_is_a_finding_of_its_own() {
    let tree = Tree::new();
    std::fs::create_dir_all(tree.path("etc/systemd/system")).unwrap();
    let expected = tree.expected();
    let folder = "/etc/systemd/system/ssh.service.d";
    std::fs::create_dir(tree.path(&folder[1..])).unwrap();
    std::fs::write(tree.path("etc/systemd/system/ssh.service.d/x.conf"), "x").unwrap();
    let scan = tree.scan(&expected);
    let line = "/etc/systemd/system/ssh.service.d/x.conf - > digest=2d71 mode=0644 size=1 type=file";
    assert_eq!(lines(&scan.findings), [line]);
    let options = tree.options();
    let mut looker = Looker::new(&expected, &options);
    let look = looker.look(&folder.parse().unwrap());
    assert_eq!((look.difference, look.place), (None, Place::Folder));
    let look = looker.look(&format!("{folder}/x.conf").parse().unwrap());
    assert_eq!(look.difference.as_ref(), scan.findings.differences.first());
}
