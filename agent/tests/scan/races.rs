//! Files that change while they are looked at.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use manifest::TreePath;
use plumbline_agent::scan::{Interference, ScanOptions, scan_tree};

use super::tree::{Tree, lines};

/// Does something to `/etc/motd` the first `times` times that it is stopped at.
struct Meddler<'a> {
    tree: &'a Tree,
    times: AtomicU32,
    after_stat: Option<fn(&Tree, u32)>,
    while_reading: Option<fn(&Tree, u32)>,
}

impl Meddler<'_> {
    fn meddle(&self, path: &TreePath, with: Option<fn(&Tree, u32)>) {
        if let Some(with) = with
            && path.to_string() == "/etc/motd"
            && let Ok(left) = self
                .times
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
        {
            with(self.tree, left);
        }
    }
}

impl Interference for Meddler<'_> {
    fn after_stat(&self, path: &TreePath) {
        self.meddle(path, self.after_stat);
    }

    fn while_reading(&self, path: &TreePath, bytes: u64) {
        if (1..=256 << 10).contains(&bytes) {
            self.meddle(path, self.while_reading);
        }
    }
}

fn scanned(times: u32, after_stat: Option<fn(&Tree, u32)>, while_reading: Option<fn(&Tree, u32)>) -> Vec<String> {
    let tree = Tree::new();
    std::fs::write(tree.path("etc/motd"), vec![7; 10 << 20]).unwrap();
    let expected = tree.expected();
    std::fs::write(tree.path("etc/ssl/a"), "also changed").unwrap();
    let meddler = Meddler {
        tree: &tree,
        times: AtomicU32::new(times),
        after_stat,
        while_reading,
    };
    let scan = scan_tree(
        &expected,
        &ScanOptions {
            interference: &meddler,
            ..tree.options()
        },
    );
    assert!(scan.is_complete());
    let mut lines = lines(&scan.findings);
    // The scan goes on behind it.
    assert!(lines.iter().any(|line| line.starts_with("/etc/ssl/a ")), "{lines:?}");
    lines.retain(|line| line.starts_with("/etc/motd "));
    lines
}

fn truncate(tree: &Tree, _: u32) {
    std::fs::write(tree.path("etc/motd"), "").unwrap();
}

/// aide/aide#124: one handle, a look before and after, and never a half hash.
#[test]
fn aide_124_a_file_that_shrinks_while_it_is_read_is_read_again() {
    assert_eq!(
        scanned(1, None, Some(truncate)),
        ["/etc/motd digest=448c size=10485760 > digest=e3b0 size=0"]
    );
}

/// aide/aide#124, #72: tried again a few times, then said to be unstable; the scan goes on.
#[test]
fn aide_124_a_file_that_never_rests_is_unstable_and_has_no_digest() {
    fn append(tree: &Tree, left: u32) {
        std::fs::write(tree.path("etc/motd"), vec![left as u8; (11 << 20) + left as usize % 7]).unwrap();
    }
    let found = scanned(u32::MAX, None, Some(append));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("/etc/motd size=10485760 > size="), "{found:?}");
    assert_eq!(found[1], "/etc/motd ? unstable");
}

/// aide/aide#124: the same size says nothing.
#[test]
fn aide_124_a_file_rewritten_with_the_same_size_is_unstable_and_never_fine() {
    fn rewrite(tree: &Tree, _: u32) {
        // Only the change time tells: content, size and modification time are put back.
        let path = tree.path("etc/motd");
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        std::fs::write(&path, vec![7; 10 << 20]).unwrap();
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(modified)
            .unwrap();
    }
    assert_eq!(scanned(u32::MAX, None, Some(rewrite)), ["/etc/motd ? unstable"]);
    assert_eq!(scanned(1, None, Some(rewrite)), [""; 0]);
}

/// wazuh/wazuh#3007: what is swapped between the look and the opening does not hold a scan up.
#[test]
fn wazuh_3007_a_pipe_or_a_link_that_takes_the_place_of_a_file_is_what_is_found() {
    fn pipe(tree: &Tree, _: u32) {
        let path = tree.path("etc/motd");
        std::fs::remove_file(&path).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }
    fn link(tree: &Tree, _: u32) {
        std::fs::remove_file(tree.path("etc/motd")).unwrap();
        std::os::unix::fs::symlink("/etc/shadow", tree.path("etc/motd")).unwrap();
    }
    assert_eq!(
        scanned(1, Some(pipe), None),
        ["/etc/motd digest=448c size=10485760 type=file > type=fifo"]
    );
    assert_eq!(
        scanned(1, Some(link), None),
        ["/etc/motd digest=448c size=10485760 type=file > target=/etc/shadow type=symlink"]
    );
}

#[test]
fn a_file_that_goes_away_is_gone() {
    let remove = |tree: &Tree, _: u32| std::fs::remove_file(tree.path("etc/motd")).unwrap();
    assert_eq!(scanned(1, Some(remove), None), ["/etc/motd type=file > -"]);
}

/// Appends a block before each read, for a long while.
struct Growing<'a>(&'a Tree, AtomicU32);

impl Interference for Growing<'_> {
    fn while_reading(&self, path: &TreePath, _: u64) {
        use std::io::Write;
        let left = self
            .1
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if path.to_string() == "/etc/motd" && left.is_ok() {
            let mut file = std::fs::File::options()
                .append(true)
                .open(self.0.path("etc/motd"))
                .unwrap();
            file.write_all(&[1; 512 << 10]).unwrap();
        }
    }
}

#[test]
fn a_file_that_grows_as_fast_as_it_is_read_does_not_hold_the_scan_up() {
    let tree = Tree::new();
    std::fs::write(tree.path("etc/motd"), vec![7; 1 << 20]).unwrap();
    let expected = tree.expected();
    let growing = Growing(&tree, AtomicU32::new(200));
    let options = ScanOptions {
        interference: &growing,
        ..tree.options()
    };
    let scan = scan_tree(&expected, &options);
    assert!(lines(&scan.findings).contains(&"/etc/motd ? unstable".to_owned()));
    assert!(scan.hashed_bytes < 20 << 20, "{}", scan.hashed_bytes);
}

/// Tells the scan to stop in the middle of a file.
struct Stopping(AtomicBool);

impl Interference for Stopping {
    fn while_reading(&self, _: &TreePath, bytes: u64) {
        self.0.fetch_or(bytes > 0, Ordering::SeqCst);
    }
}

#[test]
fn a_scan_that_is_told_to_stop_stops_and_takes_nothing_for_gone() {
    let tree = Tree::new();
    std::fs::write(tree.path("etc/motd"), vec![7; 10 << 20]).unwrap();
    let expected = tree.expected();
    std::fs::remove_dir_all(tree.path("usr")).unwrap();
    let stopping = Stopping(AtomicBool::new(false));
    let options = ScanOptions {
        stop: Some(&stopping.0),
        interference: &stopping,
        ..tree.options()
    };
    let scan = scan_tree(&expected, &options);
    assert!(!scan.is_complete());
    assert_eq!(scan.findings.difference_count, 0, "{:?}", lines(&scan.findings));
    assert!(scan.hashed_bytes < 1 << 20, "{}", scan.hashed_bytes);
}
