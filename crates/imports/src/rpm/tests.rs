//! The fixture was made by rpm 4.18 itself (`rpm --initdb --root`, four tiny packages of rpmbuild).

use std::io::Read;
use std::path::Path;

use super::*;

fn fixture() -> Vec<u8> {
    let packed = include_bytes!("../../testdata/rpmdb.sqlite.gz").as_slice();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    bytes
}

fn put(root: &Path, path: &str, content: &[u8]) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn nevras(packages: &[RpmPackage]) -> Vec<String> {
    packages.iter().map(RpmPackage::nevra).collect()
}

/// As `rpm -qa --qf '%{NEVRA}\n' | sort` printed them.
const EXPECTED: [&str; 4] = [
    "plumb-basic-1.2.3-4.el9.noarch",
    "plumb-epoch-7:2.0~rc1-1.el9.noarch",
    "plumb-i18n-1.2.3-4.el9.noarch",
    "plumb-native-1.2.3-4.el9.x86_64",
];

#[test]
fn a_database_that_rpm_made_is_read_in_both_places() {
    for folder in FOLDERS {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), &format!("{folder}/rpmdb.sqlite"), &fixture());
        // As rpm leaves it behind.
        put(root.path(), &format!("{folder}/rpmdb.sqlite-wal"), b"");
        assert_eq!(nevras(&packages(root.path()).unwrap()), EXPECTED);
        let names = std::fs::read_dir(root.path().join(folder)).unwrap().count();
        assert_eq!(names, 2, "reading makes no file beside the database");
    }
}

/// A root copied from a running system: the newest packages stand in the write-ahead log alone.
#[test]
fn packages_in_a_write_ahead_log_count() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("var/lib/rpm");
    put(root.path(), "live.sqlite", &fixture());
    let live = root.path().join("live.sqlite");
    let connection = rusqlite::Connection::open(&live).unwrap();
    let mode: String = connection
        .query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "wal");
    connection.pragma_update(None, "foreign_keys", false).unwrap();
    connection
        .execute("DELETE FROM Packages WHERE hnum = (SELECT min(hnum) FROM Packages)", [])
        .unwrap();
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(&live, folder.join("rpmdb.sqlite")).unwrap();
    let log = live.with_file_name("live.sqlite-wal");
    assert!(std::fs::metadata(&log).unwrap().len() > 0);
    std::fs::copy(log, folder.join("rpmdb.sqlite-wal")).unwrap();
    assert_eq!(packages(root.path()).unwrap().len(), EXPECTED.len() - 1);
}

#[test]
fn what_is_not_read_is_named() {
    let root = tempfile::tempdir().unwrap();
    assert!(matches!(packages(root.path()), Err(RpmError::Absent)));
    put(root.path(), "var/lib/rpm/Packages", b"\0\0\0\0");
    let error = packages(root.path()).unwrap_err();
    assert!(matches!(&error, RpmError::BerkeleyDb { path } if path == "var/lib/rpm/Packages"));
    assert!(error.to_string().contains("rpmdb --rebuilddb"), "{error}");
}

#[test]
fn a_damaged_database_is_an_error_and_no_shorter_list() {
    let whole = fixture();
    let connection_less = |bytes: &[u8]| {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "usr/lib/sysimage/rpm/rpmdb.sqlite", bytes);
        packages(root.path()).map(|packages| packages.len())
    };
    assert!(connection_less(b"").is_err());
    assert!(connection_less(&whole[..whole.len() / 2]).is_err());
    assert!(connection_less(b"no database at all, but long enough to be looked at").is_err());
    // A header whose lengths lie.
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "usr/lib/sysimage/rpm/rpmdb.sqlite", &whole);
    let path = root.path().join("usr/lib/sysimage/rpm/rpmdb.sqlite");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute(
            "UPDATE Packages SET blob = x'ffffffffffffffff00000000' WHERE hnum = 2",
            [],
        )
        .unwrap();
    drop(connection);
    let error = packages(root.path()).unwrap_err().to_string();
    assert!(
        error.contains("header 2: 4294967295 entries; expected 1 to 65535"),
        "{error}"
    );
}

/// A link in the root may lead to its own files, not to those of this machine.
#[test]
fn a_database_outside_of_the_root_is_not_the_roots() {
    let base = tempfile::tempdir().unwrap();
    put(base.path(), "outside/rpmdb.sqlite", &fixture());
    let root = base.path().join("root");
    std::fs::create_dir_all(root.join("var/lib")).unwrap();
    std::os::unix::fs::symlink("../../../outside", root.join("var/lib/rpm")).unwrap();
    assert!(matches!(packages(&root), Err(RpmError::Absent)));
    put(&root, "usr/lib/sysimage/rpm/rpmdb.sqlite", &fixture());
    std::fs::remove_file(root.join("var/lib/rpm")).unwrap();
    std::os::unix::fs::symlink("/usr/lib/sysimage/rpm", root.join("var/lib/rpm")).unwrap();
    assert_eq!(packages(&root).unwrap().len(), EXPECTED.len());
}

/// The header blobs of the fixture.
fn blobs() -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rpmdb.sqlite");
    std::fs::write(&path, fixture()).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let mut statement = connection.prepare("SELECT blob FROM Packages").unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

/// An ndb file with these blobs, as rpm lays it out.
fn ndb(blobs: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    bytes[..4].copy_from_slice(b"RpmP");
    bytes[12..16].copy_from_slice(&1_u32.to_le_bytes());
    for slot in bytes[32..].chunks_exact_mut(16) {
        slot[..4].copy_from_slice(b"Slot");
    }
    for (index, blob) in blobs.iter().enumerate() {
        let number = (index as u32 + 1).to_le_bytes();
        let blocks = (blob.len() + 16 + 12).div_ceil(16) as u32;
        let at = (bytes.len() / 16) as u32;
        let slot = 32 + index * 16;
        bytes[slot + 4..slot + 8].copy_from_slice(&number);
        bytes[slot + 8..slot + 12].copy_from_slice(&at.to_le_bytes());
        bytes[slot + 12..slot + 16].copy_from_slice(&blocks.to_le_bytes());
        let start = bytes.len();
        bytes.extend(b"BlbS");
        bytes.extend(number);
        bytes.extend([0; 4]);
        bytes.extend((blob.len() as u32).to_le_bytes());
        bytes.extend(blob);
        bytes.resize(start + blocks as usize * 16, 0);
    }
    bytes
}

#[test]
fn the_ndb_container_is_read_too_and_checked() {
    let good = ndb(&blobs());
    let read = |bytes: &[u8]| {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "usr/lib/sysimage/rpm/Packages.db", bytes);
        packages(root.path())
    };
    assert_eq!(nevras(&read(&good).unwrap()), EXPECTED);
    type Change = fn(&mut Vec<u8>);
    let bad: [(&str, Change); 5] = [
        ("expected an ndb database", |bytes| bytes[0] = b'X'),
        ("pages of slots", |bytes| bytes[12..16].copy_from_slice(&[0xff; 4])),
        ("outside of the file", |bytes| bytes[40..44].copy_from_slice(&[0xff; 4])),
        ("does not fit its slot", |bytes| {
            bytes[4096 + 12..4096 + 16].copy_from_slice(&[0xff; 4])
        }),
        ("it ends before", |bytes| bytes.truncate(2000)),
    ];
    for (problem, change) in bad {
        let mut bytes = good.clone();
        change(&mut bytes);
        let error = read(&bytes).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}

/// Every byte changed, every length: an error or a package, never a panic.
#[test]
fn no_header_blob_brings_the_parser_down() {
    let blob = blobs().remove(0);
    for at in 0..blob.len() {
        let _ = header::parse(&blob[..at]);
        for value in [0, 0x7f, 0xff] {
            let mut changed = blob.clone();
            changed[at] = value;
            let _ = header::parse(&changed);
        }
    }
}
