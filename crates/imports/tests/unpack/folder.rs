//! A folder that holds a root.

use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;

use imports::{ImportError, Limits, NoteKind, Source};
use rustix::fs::{CWD, FileType, Mode, XattrFlags};

use super::support::{is_root, listing, unpack, unpack_with};

#[test]
fn a_folder_is_copied_with_all_that_belongs_to_it() {
    if !is_root() {
        return;
    }
    let source = tempfile::tempdir().unwrap();
    let path = |name: &str| source.path().join(name);
    std::fs::create_dir_all(path("etc/deep")).unwrap();
    std::fs::write(path("etc/file"), "content").unwrap();
    std::fs::hard_link(path("etc/file"), path("etc/deep/other")).unwrap();
    symlink("/etc/passwd", path("link")).unwrap();
    symlink("/", path("root-link")).unwrap();
    rustix::fs::mknodat(CWD, path("pipe"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    rustix::fs::mknodat(
        CWD,
        path("node"),
        FileType::CharacterDevice,
        Mode::from_raw_mode(0o666),
        rustix::fs::makedev(1, 3),
    )
    .unwrap();
    let _listener = UnixListener::bind(path("socket")).unwrap();
    for (name, id) in [("etc/file", 3_000_000), ("link", 77), ("etc", 5)] {
        std::os::unix::fs::lchown(path(name), Some(id), Some(id)).unwrap();
    }
    rustix::fs::chmod(path("etc/file"), Mode::from_raw_mode(0o4755)).unwrap();
    rustix::fs::chmod(path("etc"), Mode::from_raw_mode(0o2711)).unwrap();
    rustix::fs::setxattr(path("etc/file"), "user.x", b"y", XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(path("etc"), "trusted.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
    let sparse = std::fs::File::create(path("sparse")).unwrap();
    sparse.set_len(32 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", (32 << 20) - 3).unwrap();

    let root = unpack(Source::detect(source.path(), &Limits::default()).unwrap()).unwrap();
    let lines: Vec<String> = listing(&root.root)
        .into_iter()
        .filter(|line| !line.starts_with("sparse"))
        .collect();
    assert_eq!(
        lines,
        [
            "etc 2711 5:5 folder",
            "etc/deep 0755 0:0 folder",
            "etc/deep/other 4755 3000000:3000000 \"content\" (2 links)",
            "etc/file 4755 3000000:3000000 \"content\" (2 links)",
            "link 0777 77:77 -> /etc/passwd",
            "pipe 0640 0:0 fifo",
            "root-link 0777 0:0 -> /",
        ]
    );
    let mut value = [0; 8];
    assert_eq!(
        rustix::fs::getxattr(root.root.join("etc/file"), "user.x", &mut value),
        Ok(1)
    );
    assert!(rustix::fs::getxattr(root.root.join("etc"), "trusted.overlay.opaque", &mut value).is_err());
    for name in ["etc", "etc/file", "link"] {
        let times = |path: std::path::PathBuf| {
            let metadata = path.symlink_metadata().unwrap();
            (metadata.mtime(), metadata.mtime_nsec())
        };
        assert_eq!(times(root.root.join(name)), times(path(name)), "{name}");
    }
    let copy = root.root.join("sparse").metadata().unwrap();
    assert_eq!(copy.len(), 32 << 20);
    assert!(copy.blocks() * 512 < 1 << 20, "holes stay holes");
    let mut notes: Vec<_> = root
        .imported
        .notes
        .iter()
        .map(|note| (note.path.as_str(), note.kind))
        .collect();
    notes.sort_unstable_by_key(|&(path, _)| path);
    assert_eq!(
        notes,
        [
            ("etc", NoteKind::AttributeSkipped),
            ("node", NoteKind::DeviceSkipped),
            ("socket", NoteKind::SocketSkipped),
        ]
    );
}

#[test]
fn a_folder_is_bounded_like_an_archive() {
    if !is_root() {
        return;
    }
    let source = tempfile::tempdir().unwrap();
    std::fs::write(source.path().join("a"), "12345").unwrap();
    std::fs::File::create(source.path().join("b"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    let of = |limits: &Limits| {
        let source = Source::Folder {
            path: source.path().to_owned(),
        };
        match unpack_with(source, limits).map(|_| ()) {
            Err(ImportError::Limit { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(of(&Limits::default()), "bytes of the file");
    let mut limits = Limits {
        file_bytes_max: u64::MAX,
        ..Limits::default()
    };
    assert_eq!(of(&limits), "bytes of content");
    limits.entries_max = 1;
    assert_eq!(of(&limits), "entries");
}

#[test]
fn a_target_inside_of_its_source_is_refused() {
    if !is_root() {
        return;
    }
    let source = tempfile::tempdir().unwrap();
    let import = imports::Import::open(
        Source::Folder {
            path: source.path().to_owned(),
        },
        &Limits::default(),
    )
    .unwrap();
    let target = source.path().join("copy");
    let error = import
        .unpack_into(&target, &mut |_| std::ops::ControlFlow::Continue(()))
        .unwrap_err()
        .to_string();
    assert!(error.contains("the copy would copy itself"), "{error}");
    assert_eq!(std::fs::read_dir(source.path()).unwrap().count(), 0);
}
