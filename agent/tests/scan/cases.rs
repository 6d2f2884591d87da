//! Faults that others met in the field, each with the right answer. Those that other tests cover are named there.

use plumbline_agent::scan::{Bounds, ScanOptions, scan_tree};

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

/// wazuh/wazuh#29516: after a rename both names are told, by their paths.
#[test]
fn wazuh_29516_a_rename_is_one_gone_and_one_added() {
    let found = Tree::new().changed(|tree| std::fs::rename(tree.path("etc/motd"), tree.path("etc/motd2")).unwrap());
    let ends: Vec<&str> = found.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(ends, ["/etc/motd", "/etc/motd2"]);
}
