//! Packages, put back from the image and taken away.

use manifest::Package;
use protocol::latest::{StepOutcome, Verb};

use super::node::{Node, is_done, reason};
use crate::scan::tree::Tree;

const STATUS: &str = "var/lib/dpkg/status";

fn write(tree: &Tree, path: &str, text: &str) {
    let path = tree.path(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn paragraph(name: &str, version: &str) -> String {
    format!("Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {version}\n\n")
}

/// `less` and `zstd` are installed.
fn node() -> Node {
    let tree = Tree::new();
    write(&tree, STATUS, &(paragraph("less", "1") + &paragraph("zstd", "5")));
    write(
        &tree,
        "var/lib/dpkg/info/less.list",
        "/.\n/bin\n/bin/less\n/usr/share/less\n/usr/share/less/a\n",
    );
    write(&tree, "var/lib/dpkg/info/less.postinst", "#!/bin/sh\n");
    write(&tree, "var/lib/dpkg/info/zstd.list", "/.\n/usr/bin/zstd\n");
    write(&tree, "usr/bin/less", "less 1");
    write(&tree, "usr/bin/zstd", "zstd 5");
    write(&tree, "usr/share/less/a", "a");
    std::os::unix::fs::symlink("usr/bin", tree.path("bin")).unwrap();
    Node::new(tree, |manifest| {
        let package = |name: &str, version: &str| Package {
            name: name.to_owned(),
            architecture: "amd64".to_owned(),
            version: version.to_owned(),
        };
        manifest.header.packages = vec![package("less", "1"), package("zstd", "5")];
    })
}

/// Upgrades `less`: its files change, one is new, one is gone.
fn upgrade(tree: &Tree) {
    write(tree, STATUS, &(paragraph("less", "2") + &paragraph("zstd", "5")));
    write(
        tree,
        "var/lib/dpkg/info/less.list",
        "/.\n/bin/less\n/usr/share/less\n/usr/share/less/b\n/usr/share/more\n",
    );
    write(tree, "var/lib/dpkg/info/less.prerm", "#!/bin/sh\n");
    std::fs::remove_file(tree.path("var/lib/dpkg/info/less.postinst")).unwrap();
    write(tree, "usr/bin/less", "less 2");
    write(tree, "usr/share/less/b", "b");
    write(tree, "usr/share/more", "more");
    std::fs::remove_file(tree.path("usr/share/less/a")).unwrap();
}

fn reinstall() -> Verb {
    Verb::ReinstallPackage {
        package: "less:amd64".to_owned(),
    }
}

fn take_away(package: &str) -> Verb {
    Verb::RemovePackage {
        package: package.to_owned(),
    }
}

#[test]
fn an_upgraded_package_comes_back_from_the_image_as_it_was() {
    let node = node();
    upgrade(&node.tree);
    assert_eq!(node.findings(), ["package less:amd64"], "one cause, one finding");
    let outcome = node.repair(reinstall());
    assert!(is_done(&outcome), "{}", reason(&outcome));
    assert_eq!(node.findings(), [""; 0]);
    assert_eq!(
        std::fs::read_to_string(node.tree.path("usr/bin/less")).unwrap(),
        "less 1"
    );
    let undone = node.undone();
    for moved in ["/usr/share/less/b", "/usr/share/more", "/var/lib/dpkg/info/less.prerm"] {
        assert!(undone.contains_key(moved), "{moved} in {undone:?}");
    }
    assert_eq!(node.repair(reinstall()), StepOutcome::NothingToDo);
}

#[test]
fn a_removed_package_comes_back_with_its_folders() {
    let node = node();
    write(&node.tree, STATUS, &paragraph("zstd", "5"));
    for name in ["list", "postinst"] {
        std::fs::remove_file(node.tree.path(&format!("var/lib/dpkg/info/less.{name}"))).unwrap();
    }
    std::fs::remove_file(node.tree.path("usr/bin/less")).unwrap();
    std::fs::remove_dir_all(node.tree.path("usr/share/less")).unwrap();
    write(&node.tree, "var/lib/dpkg/status-old", "what dpkg leaves behind");
    assert_eq!(node.findings(), ["package less:amd64"], "one cause, one finding");
    let outcome = node.repair(reinstall());
    assert!(is_done(&outcome), "{}", reason(&outcome));
    assert_eq!(node.findings(), [""; 0]);
}

#[test]
fn the_version_is_not_the_images_before_its_files_are() {
    let mut node = node();
    upgrade(&node.tree);
    node.contents.0.remove(&manifest::Digest::of(b"less 1"));
    let outcome = reason(&node.repair(reinstall()));
    assert!(
        outcome.starts_with("failed: ") && outcome.contains("/usr/bin/less"),
        "{outcome}"
    );
    assert_eq!(node.findings(), ["package less:amd64"]);
}

#[test]
fn a_list_cannot_take_away_what_the_baseline_knows_or_reach_out_of_the_tree() {
    let node = node();
    let forged = "/usr/bin/evil\n/usr/bin/zstd\n/etc/motd\n/etc\n/../../etc/passwd\n/\n/var/log/free\n";
    write(&node.tree, "var/log/free", "x");
    write(&node.tree, "usr/bin/evil", "evil");
    write(&node.tree, "var/lib/dpkg/info/evil.list", forged);
    write(
        &node.tree,
        STATUS,
        &(paragraph("evil", "1") + &paragraph("less", "1") + &paragraph("zstd", "5")),
    );
    let outcome = node.repair(take_away("evil:amd64"));
    assert!(is_done(&outcome), "{}", reason(&outcome));
    assert_eq!(node.findings(), [""; 0]);
    assert!(node.tree.path("usr/bin/zstd").exists() && node.tree.path("var/log/free").exists());
    let undone: Vec<String> = node.undone().into_keys().collect();
    assert_eq!(undone, ["/usr/bin/evil", "/var/lib/dpkg/info/evil.list"]);
    let status = std::fs::read_to_string(node.tree.path(STATUS)).unwrap();
    assert_eq!(status, paragraph("less", "1") + &paragraph("zstd", "5"));
    for (package, expected) in [
        ("less:amd64", "refused: the image has this package"),
        ("--force-all", "refused: no name of a package"),
        ("gone:amd64", "NothingToDo"),
    ] {
        assert_eq!(reason(&node.repair(take_away(package))), expected);
    }
}
