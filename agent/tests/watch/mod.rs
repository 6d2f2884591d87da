//! Changes that are heard of, and looks at what they are about.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use drift::FindingKind;
use manifest::TreePath;
use plumbline_agent::service::told;
use plumbline_agent::watch::{Batch, Change, WatchSet, Watcher};

use crate::repair::node::{KEY, Node};
use crate::scan::tree::Tree;

fn watcher(node: &Node) -> Watcher {
    let set = Arc::new(WatchSet::open(node.expected.clone(), 1_000).unwrap());
    let armed = set.arm(node.tree.base(), true);
    assert_eq!(armed.unwatched, 0);
    Watcher::new(set).unwrap().at_once()
}

/// All that is heard until nothing more comes, and whether something was lost. Events are queued by the call that makes
/// them, so that nothing is waited for but the reader.
async fn heard(watcher: &mut Watcher) -> (BTreeMap<TreePath, Change>, bool) {
    let (mut hints, mut is_overflown) = (BTreeMap::new(), false);
    while let Ok(next) = tokio::time::timeout(Duration::from_millis(20), watcher.next()).await {
        let next = next.unwrap();
        is_overflown |= next.is_overflown;
        for (path, change) in next.hints {
            if hints.get(&path) != Some(&Change::NewFolder) {
                hints.insert(path, change);
            }
        }
    }
    (hints, is_overflown)
}

fn path(text: &str) -> TreePath {
    text.parse().unwrap()
}

/// osquery/osquery#1720: a package manager replaces files by renaming over them.
#[tokio::test]
async fn osquery_1720_an_atomic_replace_is_heard_of() {
    let node = Node::plain();
    let mut watcher = watcher(&node);
    std::fs::write(node.tree.path("etc/motd.new"), "new").unwrap();
    std::fs::rename(node.tree.path("etc/motd.new"), node.tree.path("etc/motd")).unwrap();
    let (hints, _) = heard(&mut watcher).await;
    assert_eq!(hints.get(&path("/etc/motd")), Some(&Change::Touched), "{hints:?}");
    assert!(hints.contains_key(&path("/etc/motd.new")));
}

#[tokio::test]
async fn only_what_is_compared_is_heard_of() {
    let node = Node::plain();
    let mut watcher = watcher(&node);
    std::fs::write(node.tree.path("var/log/wtmp"), "more").unwrap();
    std::fs::write(node.tree.path("var/log/new"), "x").unwrap();
    std::fs::write(node.tree.path("etc/key"), "the node's own").unwrap();
    let _ = std::fs::read(node.tree.path("etc/motd")).unwrap();
    assert_eq!(heard(&mut watcher).await.0, BTreeMap::new());
    std::fs::remove_file(node.tree.path("var/log/wtmp")).unwrap();
    assert!(
        heard(&mut watcher).await.0.contains_key(&path("/var/log/wtmp")),
        "that it is gone counts"
    );
}

#[tokio::test]
async fn a_new_folder_is_heard_of_and_watched_once_it_is_listed() {
    let node = Node::plain();
    std::fs::remove_dir_all(node.tree.path("etc/ssl")).unwrap();
    let mut watcher = watcher(&node);
    std::fs::create_dir_all(node.tree.path("etc/ssl/b")).unwrap();
    let (hints, _) = heard(&mut watcher).await;
    assert_eq!(hints.get(&path("/etc/ssl")), Some(&Change::NewFolder));
    watcher.set().arm(node.tree.base(), true);
    std::fs::write(node.tree.path("etc/ssl/b/c"), "x").unwrap();
    assert!(heard(&mut watcher).await.0.contains_key(&path("/etc/ssl/b/c")));
}

/// osquery/osquery#3290: events that do not fit into the kernel's queue are lost, and that must not go unheard.
#[tokio::test]
async fn osquery_3290_an_overflow_is_said() {
    let node = Node::plain();
    let mut watcher = watcher(&node);
    let most: usize = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    if most > 100_000 {
        return;
    }
    for number in 0..=most / 2 {
        // Each makes more than one event.
        std::fs::write(node.tree.path(&format!("etc/{number}")), "x").unwrap();
    }
    let (_, is_overflown) = heard(&mut watcher).await;
    assert!(is_overflown);
    std::fs::write(node.tree.path("etc/motd"), "after").unwrap();
    assert!(
        heard(&mut watcher).await.0.contains_key(&path("/etc/motd")),
        "and it goes on"
    );
}

#[tokio::test]
async fn folders_beyond_the_bound_are_counted() {
    let node = Node::plain();
    let set = WatchSet::open(node.expected.clone(), 3).unwrap();
    let armed = set.arm(node.tree.base(), true);
    assert_eq!((armed.watched, armed.unwatched), (3, 5), "{armed:?}");
}

/// wazuh/wazuh#5242: a file that was looked at half written is looked at again when it is whole.
#[tokio::test]
async fn wazuh_5242_half_written_file_is_hashed_again() {
    use std::io::Write;
    let node = Node::plain();
    let mut watcher = watcher(&node);
    let mut file = std::fs::File::create(node.tree.path("etc/motd")).unwrap();
    file.write_all(b"etc/").unwrap();
    let (mut found, _) = node.scan();
    assert_eq!(found.tree.findings.differences.len(), 1, "half of it is there");
    heard(&mut watcher).await;
    file.write_all(b"motd").unwrap();
    let (hints, _) = heard(&mut watcher).await;
    assert_eq!(hints.get(&path("/etc/motd")), Some(&Change::Writing));
    drop(file);
    let (hints, _) = heard(&mut watcher).await;
    assert_eq!(hints.get(&path("/etc/motd")), Some(&Change::Touched), "closed");
    let batch = Batch {
        paths: hints.into_keys().map(|path| (path, (false, 0))).collect(),
    };
    let seen = node.look().glimpse(&found, &batch, &BTreeSet::new());
    found.apply(seen, &BTreeSet::new());
    assert_eq!(found.tree.findings.differences, []);
}

/// A small generator: the same edits in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides
    }
}

/// One random change of the tree. What cannot be done is not done.
fn edit(tree: &Tree, dice: &mut Dice) {
    const PLACES: [&str; 12] = [
        "etc/motd",
        "etc/ssl",
        "etc/ssl/a",
        "etc/ssl/b",
        "etc/ssl/b/c",
        "etc/new",
        "etc/new/x",
        "usr/bin/tool",
        "usr/bin/alias",
        "var/log/wtmp",
        "var/log/new",
        "usr/lib",
    ];
    let at = tree.path(PLACES[dice.roll(PLACES.len())]);
    let _ = match dice.roll(8) {
        0 | 1 => std::fs::write(&at, ["x", "yy", "etc/motd"][dice.roll(3)]),
        2 => std::fs::remove_file(&at),
        3 => std::fs::remove_dir_all(&at),
        4 => std::fs::create_dir(&at),
        5 => std::os::unix::fs::symlink("motd", &at),
        6 => std::fs::rename(&at, tree.path(PLACES[dice.roll(PLACES.len())])),
        _ => {
            let mode = [0o644, 0o600, 0o755][dice.roll(3)];
            std::fs::symlink_metadata(&at).and_then(|metadata| {
                if metadata.is_symlink() {
                    return Ok(());
                }
                std::fs::set_permissions(&at, std::os::unix::fs::PermissionsExt::from_mode(mode))
            })
        }
    };
}

#[tokio::test]
async fn a_look_at_what_was_heard_of_says_what_a_scan_says() {
    let mut judged = 0;
    for seed in 0..40 {
        let node = Node::plain();
        let mut dice = Dice(seed);
        let mut watcher = watcher(&node);
        let (mut found, _) = node.scan();
        heard(&mut watcher).await;
        for round in 0..6 {
            for _ in 0..=dice.roll(3) {
                edit(&node.tree, &mut dice);
            }
            let (hints, _) = heard(&mut watcher).await;
            let batch = Batch {
                paths: hints
                    .iter()
                    .map(|(path, change)| (path.clone(), (*change == Change::NewFolder, 0)))
                    .collect(),
            };
            let look = node.look();
            let seen = look.glimpse(&found, &batch, &BTreeSet::new());
            let needs_scan = seen.needs_scan;
            found.apply(seen, &BTreeSet::new());
            let (scanned, state) = node.scan();
            if needs_scan {
                watcher.set().arm(node.tree.base(), true);
                found = scanned;
                continue;
            }
            judged += 1;
            let patched = told(found.clone(), Some(&KEY()), None);
            assert_eq!(
                patched.differences, state.differences,
                "seed {seed}, round {round}: {hints:?}"
            );
            assert_eq!(patched.state, state.state);
            assert_eq!(patched.scan.difference_count, state.scan.difference_count);
            assert_eq!(patched.not_looked_at, state.not_looked_at);
        }
    }
    assert!(judged > 100, "only {judged} rounds were judged without a scan");
}

#[test]
fn facts_are_looked_at_where_a_path_concerns_them() {
    let states = [("ssh.service", "enabled")];
    let node = Node::with_units(Tree::new(), &states);
    let (mut found, _) = node.scan();
    node.units
        .0
        .lock()
        .unwrap()
        .insert("ssh.service".to_owned(), "disabled".to_owned());
    let at = |text: &str| Batch {
        paths: BTreeMap::from([(path(text), (false, 0))]),
    };
    let look = node.look();
    let nothing = look.glimpse(&found, &at("/etc/motd"), &BTreeSet::new());
    assert!(nothing.kinds.is_empty());
    let link = at("/etc/systemd/system/multi-user.target.wants/ssh.service");
    let seen = look.glimpse(&found, &link, &BTreeSet::new());
    found.apply(seen, &BTreeSet::new());
    let kinds = |found: &plumbline_agent::report::Found| -> Vec<FindingKind> {
        found
            .facts
            .differences
            .iter()
            .map(|difference| difference.kind)
            .collect()
    };
    assert_eq!(kinds(&found), [FindingKind::Unit]);
    node.units
        .0
        .lock()
        .unwrap()
        .insert("ssh.service".to_owned(), "enabled".to_owned());
    let seen = look.glimpse(&found, &Batch::default(), &BTreeSet::from([FindingKind::Unit]));
    found.apply(seen, &BTreeSet::new());
    assert_eq!(kinds(&found), []);
}
