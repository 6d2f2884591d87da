//! Sysctls and units.

use protocol::latest::{StepOutcome, Verb};

use super::node::{Node, is_done, reason};
use crate::scan::tree::Tree;

fn write(tree: &Tree, path: &str, text: &str) {
    let path = tree.path(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn node() -> Node {
    let tree = Tree::new().with_rule("/proc/**").with_rule("/run/**");
    write(&tree, "proc/sys/kernel/printk", "4\t4\t1\t7\n");
    write(&tree, "proc/sys/net/ipv4/conf/all/send_redirects", "0\n");
    write(&tree, "usr/lib/sysctl.d/50-image.conf", "kernel.printk = 4 4 1 7\n");
    write(
        &tree,
        "etc/sysctl.d/90-site.conf",
        "net.ipv4.conf.all.send_redirects=0\n",
    );
    std::fs::create_dir_all(tree.path("run/sysctl.d")).unwrap();
    Node::new(tree, |manifest| {
        for (key, value) in [("kernel.printk", "4 4 1 7"), ("net.ipv4.conf.all.send_redirects", "0")] {
            manifest.header.sysctls.insert(key.to_owned(), value.to_owned());
        }
    })
}

fn set(key: &str) -> Verb {
    Verb::SetSysctl { key: key.to_owned() }
}

fn persist(key: &str) -> Verb {
    Verb::PersistSysctl { key: key.to_owned() }
}

#[test]
fn a_running_value_is_set_and_read_back() {
    let node = node();
    write(&node.tree, "proc/sys/kernel/printk", "7 7 7 7\n");
    assert!(is_done(&node.repair(set("kernel.printk"))));
    assert_eq!(
        std::fs::read_to_string(node.tree.path("proc/sys/kernel/printk")).unwrap(),
        "4 4 1 7\n"
    );
    assert_eq!(node.repair(set("kernel.printk")), StepOutcome::NothingToDo);
    std::fs::remove_file(node.tree.path("proc/sys/kernel/printk")).unwrap();
    assert_eq!(
        reason(&node.repair(set("kernel.printk"))),
        "failed: this kernel has no such key"
    );
    assert!(!node.tree.path("proc/sys/kernel/printk").exists());
    assert_eq!(
        reason(&node.repair(set("kernel.other"))),
        "refused: the baseline does not speak of it"
    );
}

#[test]
fn the_file_that_sets_another_value_is_put_right() {
    // Each way of setting another value, by the file that is at fault.
    type Case = (&'static str, fn(&Tree), &'static str);
    let cases: [Case; 4] = [
        (
            "added",
            |t| write(t, "etc/sysctl.d/99-evil.conf", "kernel.printk=7\n"),
            "99-evil.conf to the undo folder",
        ),
        (
            "changed",
            |t| write(t, "usr/lib/sysctl.d/50-image.conf", "kernel.printk=7\n"),
            "restored /usr/lib/sysctl.d",
        ),
        (
            "gone",
            |t| std::fs::remove_file(t.path("usr/lib/sysctl.d/50-image.conf")).unwrap(),
            "restored /usr/lib",
        ),
        (
            "hidden",
            |t| write(t, "etc/sysctl.d/50-image.conf", "# nothing\n"),
            "/etc/sysctl.d/50-image.conf to the undo",
        ),
    ];
    for (name, change, expected) in cases {
        let node = node();
        change(&node.tree);
        let outcome = node.repair(persist("kernel.printk"));
        assert!(is_done(&outcome), "{name}: {}", reason(&outcome));
        assert!(format!("{outcome:?}").contains(expected), "{name}: {outcome:?}");
        assert_eq!(node.findings(), [""; 0], "{name}");
    }
    let node = node();
    // Allowed by a rule: nobody may take it away.
    write(&node.tree, "run/sysctl.d/99-evil.conf", "kernel.printk=7\n");
    let outcome = reason(&node.repair(persist("kernel.printk")));
    assert!(
        outcome.starts_with("failed: /run/sysctl.d/99-evil.conf sets it"),
        "{outcome}"
    );
}

#[test]
fn a_unit_gets_the_state_of_the_baseline() {
    let states = [("ssh.service", "enabled"), ("stubborn.service", "masked")];
    let node = Node::with_units(Tree::new(), &states);
    let unit = |unit: &str| Verb::SetUnit { unit: unit.to_owned() };
    assert_eq!(node.repair(unit("ssh.service")), StepOutcome::NothingToDo);
    for name in ["ssh.service", "stubborn.service"] {
        node.units
            .0
            .lock()
            .unwrap()
            .insert(name.to_owned(), "disabled".to_owned());
    }
    let outcome = node.repair(unit("ssh.service"));
    assert_eq!(
        outcome,
        StepOutcome::Done {
            detail: "switched: enabled, was disabled".to_owned()
        }
    );
    let outcome = reason(&node.repair(unit("stubborn.service")));
    assert!(
        outcome.contains("still state=disabled instead of state=masked"),
        "{outcome}"
    );
    assert_eq!(
        reason(&node.repair(unit("x.service"))),
        "refused: the baseline does not speak of it"
    );
}

#[test]
fn a_unit_gets_its_links_back_although_another_link_made_its_state_right_already() {
    let tree = Tree::new();
    let wants = "etc/systemd/system/multi-user.target.wants";
    std::fs::create_dir_all(tree.path(wants)).unwrap();
    let link = tree.path(&format!("{wants}/ssh.service"));
    std::os::unix::fs::symlink("/lib/systemd/system/ssh.service", &link).unwrap();
    let node = Node::with_units(tree, &[("ssh.service", "enabled")]);
    let unit = Verb::SetUnit {
        unit: "ssh.service".to_owned(),
    };
    std::fs::remove_file(&link).unwrap();
    let stray = node.tree.path("etc/systemd/system/ssh.service");
    std::os::unix::fs::symlink("/opt/ssh.service", &stray).unwrap();
    assert!(!node.findings().is_empty());
    let outcome = node.repair(unit.clone());
    assert!(is_done(&outcome), "{}", reason(&outcome));
    assert_eq!(node.findings(), [""; 0]);
    assert!(link.is_symlink() && !stray.is_symlink());
    assert_eq!(node.repair(unit), StepOutcome::NothingToDo);
}
