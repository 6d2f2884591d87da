//! Tarballs: what GNU tar writes in all its forms, compression, attributes.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use imports::{Limits, NoteKind, OriginKind, Source};
use tar::EntryType;

use super::support::{Tar, file, is_root, listing, sha256, tarball, tarball_with, unpack};

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 4096];
    match rustix::fs::lgetxattr(path, name, &mut value) {
        Ok(length) => Some(value[..length].to_vec()),
        Err(_) => None,
    }
}

/// `VFS_CAP_REVISION_2`, effective, `cap_net_raw`; with a line feed in it.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn owners_modes_times_and_attributes_are_kept() {
    if !is_root() {
        return;
    }
    let acl = hex::decode("0200000001000600ffffffff02000600e803000004000400ffffffff10000600ffffffff20000400ffffffff");
    let acl = acl.unwrap();
    let tar = Tar::new()
        .entry(EntryType::Directory, b"./", b"", |header| header.set_mode(0o711))
        .pax(&[
            ("SCHILY.xattr.security.capability", &CAPABILITY),
            ("SCHILY.xattr.user.text", b"a\nb=c"),
            ("mtime", b"1600000000.123456789"),
            ("uid", b"3000000"),
        ])
        .entry(EntryType::Regular, b"ping", b"program", |header| {
            header.set_mode(0o4755)
        })
        .pax(&[("SCHILY.xattr.system.posix_acl_access", &acl)])
        .file("acl", "1")
        .pax(&[(
            "SCHILY.acl.access",
            b"user::rw-,user:1000:rw-,group::r--,mask::rw-,other::r--",
        )])
        .file("acl-text", "1")
        .pax(&[(
            "SCHILY.acl.access",
            b"user::rw-,user:alice:rw-,group::r--,mask::rw-,other::r--",
        )])
        .file("acl-name", "1")
        // More than fits in octal: base 256, as GNU tar writes it.
        .entry(EntryType::Regular, b"big-owner", b"", |header| {
            header.set_uid(4_000_000_000);
            header.set_gid(2_500_000);
        });
    let root = tarball(&tar.finish()).unwrap();
    let path = |name: &str| root.root.join(name);
    let ping = path("ping").metadata().unwrap();
    assert_eq!((ping.mode() & 0o7777, ping.uid()), (0o4755, 3_000_000));
    assert_eq!((ping.mtime(), ping.mtime_nsec()), (1_600_000_000, 123_456_789));
    assert_eq!(
        attribute(&path("ping"), "security.capability"),
        Some(CAPABILITY.to_vec())
    );
    assert_eq!(attribute(&path("ping"), "user.text"), Some(b"a\nb=c".to_vec()));
    for name in ["acl", "acl-text"] {
        assert_eq!(
            attribute(&path(name), "system.posix_acl_access"),
            Some(acl.clone()),
            "{name}"
        );
    }
    let big = path("big-owner").metadata().unwrap();
    assert_eq!((big.uid(), big.gid()), (4_000_000_000, 2_500_000));
    assert_eq!(root.root.metadata().unwrap().mode() & 0o7777, 0o711);
    // A user's name means nobody in particular here: left out, and said.
    assert_eq!(attribute(&path("acl-name"), "system.posix_acl_access"), None);
    let notes: Vec<_> = root
        .imported
        .notes
        .iter()
        .map(|note| (note.kind, note.path.as_str()))
        .collect();
    assert_eq!(notes, [(NoteKind::AttributeSkipped, "acl-name")]);
}

#[test]
fn the_record_says_what_was_read() {
    if !is_root() {
        return;
    }
    let tar = Tar::new().folder("a/").file("a/b", "12345").finish();
    let file = file("root.tar", &tar);
    let root = unpack(Source::detect(&file.path, &Limits::default()).unwrap()).unwrap();
    let imported = &root.imported;
    assert_eq!(imported.origin.kind, OriginKind::Tarball);
    assert_eq!(imported.tarball_digest.as_deref(), Some(sha256(&tar).as_str()));
    assert_eq!((imported.entries, imported.content_bytes), (2, 5));
    let text = serde_json::to_string(imported).unwrap();
    assert_eq!(&serde_json::from_str::<imports::Imported>(&text).unwrap(), imported);
}

/// A tree as GNU tar writes it, in each of its formats.
#[test]
fn what_gnu_tar_writes_is_read_in_every_format() {
    if !is_root() {
        return;
    }
    let source = tempfile::tempdir().unwrap();
    let path = |name: &str| source.path().join(name);
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(200));
    std::fs::create_dir_all(path(&long).parent().unwrap()).unwrap();
    std::fs::write(path(&long), "long").unwrap();
    std::os::unix::fs::symlink("t".repeat(180), path("long-link")).unwrap();
    std::fs::hard_link(path(&long), path("hard")).unwrap();
    // 40 runs of data: more than the four of an old header and the 21 of the record after it.
    let sparse = std::fs::File::create(path("sparse")).unwrap();
    for run in 0..40_u64 {
        std::os::unix::fs::FileExt::write_all_at(&sparse, format!("run {run}").as_bytes(), run << 20).unwrap();
    }
    sparse.set_len(100 << 20).unwrap();
    std::fs::File::create(path("hole")).unwrap().set_len(10 << 30).unwrap();
    let chown = |name: &str, id| std::os::unix::fs::lchown(path(name), Some(id), Some(id)).unwrap();
    chown("sparse", 5000);
    rustix::fs::setxattr(path("hard"), "user.x", b"y\nz", rustix::fs::XattrFlags::empty()).unwrap();

    let formats: [&[&str]; 6] = [
        &["--format=gnu", "--sparse"],
        &["--format=posix", "--sparse", "--xattrs"],
        &["--format=posix", "--sparse", "--sparse-version=0.0"],
        &["--format=posix", "--sparse", "--sparse-version=0.1"],
        &["--format=posix", "--sparse", "--sparse-version=1.0"],
        &["--format=oldgnu", "--sparse"],
    ];
    for format in formats {
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join("root.tar");
        let status = Command::new("tar")
            .args(format)
            .arg("-cf")
            .arg(&archive)
            .arg("-C")
            .arg(source.path())
            .arg(".")
            .status()
            .unwrap();
        assert!(status.success(), "{format:?}");
        let root = unpack(Source::Tarball { path: archive }).unwrap();
        let unpacked = |name: &str| root.root.join(name);
        assert_eq!(std::fs::read(unpacked(&long)).unwrap(), b"long", "{format:?}");
        assert_eq!(unpacked("hard").metadata().unwrap().nlink(), 2);
        assert_eq!(
            std::fs::read_link(unpacked("long-link")).unwrap().as_os_str().len(),
            180
        );
        let found = std::fs::read(unpacked("sparse")).unwrap();
        assert!(found == std::fs::read(path("sparse")).unwrap(), "{format:?}");
        assert_eq!(unpacked("sparse").metadata().unwrap().uid(), 5000);
        let hole = unpacked("hole").metadata().unwrap();
        assert_eq!((hole.len(), hole.blocks()), (10 << 30, 0), "a hole costs nothing");
        assert_eq!(root.imported.content_bytes, (10 << 30) + (100 << 20) + 4);
        if format.contains(&"--xattrs") {
            assert_eq!(attribute(&unpacked(&long), "user.x"), Some(b"y\nz".to_vec()));
        }
    }
}

#[test]
fn what_follows_the_end_of_an_archive_is_noted() {
    if !is_root() {
        return;
    }
    let mut two = Tar::new().file("a", "1").finish();
    two.extend(Tar::new().file("b", "2").finish());
    let root = tarball(&two).unwrap();
    assert_eq!(listing(&root.root), ["a 0644 0:0 \"1\""]);
    assert_eq!(root.imported.notes[0].kind, NoteKind::DataAfterEnd);
}

#[test]
fn notes_are_bounded_and_counted() {
    if !is_root() {
        return;
    }
    let mut tar = Tar::new();
    for number in 0..5 {
        tar = tar.device(&format!("dev{number}"));
    }
    let limits = Limits {
        notes_max: 2,
        ..Limits::default()
    };
    let root = tarball_with(&tar.finish(), &limits).unwrap();
    assert_eq!((root.imported.notes.len(), root.imported.notes_left_out), (2, 3));
}
