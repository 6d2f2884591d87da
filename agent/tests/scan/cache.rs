//! Digests kept between scans save reading and never hide a change.

use std::path::Path;

use drift::Expected;
use plumbline_agent::scan::cache::AGE_SECS_MAX;
use plumbline_agent::scan::{ScanOptions, TreeScan, scan_tree};

use super::tree::{Tree, lines};

/// Past the time in which a file may change twice within one time stamp.
fn later(secs: u64) -> u64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    now.as_secs() + 10 + secs
}

fn scan(tree: &Tree, expected: &Expected, folder: &Path, now: u64) -> TreeScan {
    let options = ScanOptions {
        cache_folder: Some(folder),
        now_unix_secs: now,
        ..tree.options()
    };
    scan_tree(expected, &options)
}

#[test]
fn an_unchanged_file_is_read_once_a_day() {
    let (tree, folder) = (Tree::new(), tempfile::tempdir().unwrap());
    let expected = tree.expected();
    let all = scan(&tree, &expected, folder.path(), later(0)).hashed_bytes;
    assert!(all > 0);
    let again = scan(&tree, &expected, folder.path(), later(3600));
    assert_eq!((again.hashed_bytes, again.findings.difference_count), (0, 0));
    assert_eq!(
        scan(&tree, &expected, folder.path(), later(AGE_SECS_MAX)).hashed_bytes,
        all
    );
    std::fs::write(folder.path().join("digests.0"), "damaged").unwrap();
    assert_eq!(
        scan(&tree, &expected, folder.path(), later(AGE_SECS_MAX)).hashed_bytes,
        all
    );
}

/// wazuh/wazuh#7829, #8825: the inode is a validator and never a key.
#[test]
fn wazuh_7829_no_way_of_changing_a_file_goes_unseen() {
    type Change = fn(&Tree);
    let changes: [Change; 4] = [
        // In place, with size and modification time put back.
        |tree| {
            let path = tree.path("etc/motd");
            let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
            std::fs::write(&path, "ETC/motd").unwrap();
            std::fs::File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .set_modified(modified)
                .unwrap();
        },
        // As package managers do.
        |tree| {
            std::fs::write(tree.path("etc/motd.new"), "ETC/motd").unwrap();
            std::fs::rename(tree.path("etc/motd.new"), tree.path("etc/motd")).unwrap();
        },
        // The inode is likely the same.
        |tree| {
            std::fs::remove_file(tree.path("etc/motd")).unwrap();
            std::fs::write(tree.path("etc/motd"), "ETC/motd").unwrap();
        },
        // Two files change places.
        |tree| {
            std::fs::write(tree.path("etc/x"), "ETC/motd").unwrap();
            rustix::fs::renameat_with(
                rustix::fs::CWD,
                tree.path("etc/x"),
                rustix::fs::CWD,
                tree.path("etc/motd"),
                rustix::fs::RenameFlags::EXCHANGE,
            )
            .unwrap();
            std::fs::remove_file(tree.path("etc/x")).unwrap();
        },
    ];
    for change in changes {
        let (tree, folder) = (Tree::new(), tempfile::tempdir().unwrap());
        let expected = tree.expected();
        scan(&tree, &expected, folder.path(), later(0));
        change(&tree);
        let found = scan(&tree, &expected, folder.path(), later(1));
        assert_eq!(lines(&found.findings), ["/etc/motd digest=993a > digest=96a4"]);
        assert_eq!(found.hashed_bytes, 8);
        let again = scan(&tree, &expected, folder.path(), later(2));
        assert_eq!(again.findings, found.findings);
        assert_eq!(again.hashed_bytes, 0);
    }
}
