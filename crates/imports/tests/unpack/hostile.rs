//! Bad input: an error that says what, where, and what was expected; and nothing left behind.

use std::ops::ControlFlow;

use imports::{EntryProblem, Import, ImportError, Limits, Source, Stage};
use tar::EntryType;

use super::support::{Images, Tar, file, gzip, is_root, tarball, tarball_with, unpack};

fn problem_of(tar: Tar) -> EntryProblem {
    match tarball(&tar.finish()).map(|_| ()) {
        Err(ImportError::Entry { problem, .. }) => problem,
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    if !is_root() {
        return;
    }
    let long = "x".repeat(300);
    let deep = "d/".repeat(300);
    let cases = [
        (Tar::new().file("../evil", ""), EntryProblem::Climbs),
        (Tar::new().file("a/../../evil", ""), EntryProblem::Climbs),
        (Tar::new().file("/etc/evil", ""), EntryProblem::Absolute),
        (Tar::new().pax(&[("path", b"a\0b")]).file("a", ""), EntryProblem::Nul),
        (
            Tar::new().pax(&[("path", long.as_bytes())]).file("a", ""),
            EntryProblem::TooLong,
        ),
        (
            Tar::new().pax(&[("path", deep.as_bytes())]).file("a", ""),
            EntryProblem::TooDeep(256),
        ),
        (Tar::new().link("a", "../../etc/passwd"), EntryProblem::Climbs),
        (Tar::new().symlink("a", ""), EntryProblem::Empty),
        (
            Tar::new().pax(&[("linkpath", b"a\0b")]).symlink("a", "x"),
            EntryProblem::Nul,
        ),
        (
            Tar::new().symlink("out", "../../..").file("out/evil", ""),
            EntryProblem::LinksOut("out".to_owned()),
        ),
        (
            Tar::new()
                .symlink("a", "b")
                .symlink("b", "c")
                .symlink("c", "../x")
                .folder("a/evil/"),
            EntryProblem::LinksOut("c".to_owned()),
        ),
        (
            Tar::new().symlink("a", "b").symlink("b", "a").file("a/x", ""),
            EntryProblem::LinkLoop,
        ),
        (
            Tar::new().file("a", "").file("a/b", ""),
            EntryProblem::NotAFolder("a".to_owned()),
        ),
        (
            Tar::new().link("a", "missing"),
            EntryProblem::LinkMissing("missing".to_owned()),
        ),
        (
            Tar::new().folder("d/").link("a", "d"),
            EntryProblem::LinkToFolder("d".to_owned()),
        ),
        (
            Tar::new().entry(EntryType::new(b'M'), b"a", b"", |_| {}),
            EntryProblem::Type('M'),
        ),
        (
            Tar::new().pax(&[("uid", b"4294967295")]).file("a", ""),
            EntryProblem::Number("uid", "4294967295".to_owned()),
        ),
        (
            Tar::new().pax(&[("gid", b"-1")]).file("a", ""),
            EntryProblem::Number("gid", "-1".to_owned()),
        ),
    ];
    for (tar, expected) in cases {
        assert_eq!(problem_of(tar), expected);
    }
}

/// A link of an earlier layer or entry must not carry a later one out of the root.
#[test]
fn no_file_outside_is_touched() {
    if !is_root() {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let victim = outside.path().join("victim");
    std::fs::write(&victim, "untouched").unwrap();
    let folder = outside.path().to_str().unwrap();
    // An absolute target is one inside the root.
    let tar = Tar::new()
        .symlink("way", folder)
        .file("way/victim", "evil")
        .symlink("file", victim.to_str().unwrap())
        .file("file", "evil");
    let root = tarball(&tar.finish()).unwrap();
    let inside = root.root.join(folder.trim_start_matches('/')).join("victim");
    assert_eq!(std::fs::read_to_string(inside).unwrap(), "evil");
    assert_eq!(std::fs::read_to_string(root.root.join("file")).unwrap(), "evil");
    // A hard link takes the link itself, never what it leads to.
    let tar = Tar::new()
        .symlink("link", victim.to_str().unwrap())
        .link("hard", "link");
    let root = tarball(&tar.finish()).unwrap();
    assert!(root.root.join("hard").is_symlink());
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "untouched");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[test]
fn whiteouts_cannot_name_their_folder_or_the_one_above() {
    if !is_root() {
        return;
    }
    for name in [".wh.", ".wh..", ".wh..."] {
        let above = Tar::new().file(&format!("a/{name}"), "").finish();
        let below = Tar::new().folder("a/").file("b", "").finish();
        let layout = Images::of(&[below, above]).layout();
        let error = unpack(layout.source()).map(|_| ()).unwrap_err();
        let expected = EntryProblem::Whiteout;
        assert!(
            matches!(&error, ImportError::Entry { problem, .. } if *problem == expected),
            "{name}: {error}"
        );
    }
}

#[test]
fn bounds_hold_before_anything_is_written() {
    if !is_root() {
        return;
    }
    assert_eq!(Limits::default().entries_max, 2_000_000);
    let limits = Limits {
        entries_max: 4,
        content_bytes_max: 100,
        file_bytes_max: 60,
        extension_bytes_max: 2000,
        ..Limits::default()
    };
    let many = (0..5).fold(Tar::new(), |tar, number| tar.file(&number.to_string(), ""));
    let terabyte = (1_u64 << 40).to_string();
    let map = format!("1\n{terabyte}\n0\n");
    let mut padded = map.into_bytes();
    padded.resize(512, 0);
    let sparse = Tar::new()
        .pax(&[
            ("GNU.sparse.major", b"1"),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.realsize", terabyte.as_bytes()),
        ])
        .entry(EntryType::Regular, b"huge", &padded, |_| {});
    let old_sparse = Tar::new().entry(EntryType::GNUSparse, b"huge", b"", |header| {
        header.as_gnu_mut().unwrap().set_real_size(1 << 40);
    });
    let claimed = Tar::new().entry(EntryType::Regular, b"claims", b"", |header| header.set_size(1 << 40));
    let note = "x".repeat(3000);
    let cases = [
        (many, "entries", 5),
        (sparse, "bytes of the file", 1 << 40),
        (old_sparse, "bytes of the file", 1 << 40),
        (claimed, "bytes of the file", 1 << 40),
        (
            Tar::new().file("a", &"1".repeat(60)).file("b", &"2".repeat(60)),
            "bytes of content",
            120,
        ),
        (
            Tar::new().pax(&[("comment", note.as_bytes())]).file("a", ""),
            "a tar extension",
            3014,
        ),
    ];
    for (tar, expected, count) in cases {
        match tarball_with(&tar.finish(), &limits).map(|_| ()) {
            Err(ImportError::Limit { what, found, .. }) => assert_eq!((what, found), (expected, count)),
            other => panic!("{expected}: {other:?}"),
        }
    }
}

/// A megabyte of zeros packs into a kilobyte: what counts is what comes out.
#[test]
fn a_decompression_bomb_ends_at_the_bound() {
    if !is_root() {
        return;
    }
    let limits = Limits {
        entries_max: 1,
        content_bytes_max: 1 << 20,
        ..Limits::default()
    };
    let mut bomb = Tar::new().file("a", "").finish();
    bomb.resize(8 << 20, 0);
    let error = tarball_with(&gzip(&bomb), &limits).map(|_| ()).unwrap_err();
    assert!(
        matches!(
            error,
            ImportError::Limit {
                what: "the uncompressed archive",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn an_archive_that_is_cut_off_is_no_root() {
    if !is_root() {
        return;
    }
    let noise: String = (0..20_000_u32)
        .map(|number| char::from(b'a' + (number * number % 26) as u8))
        .collect();
    let tar = Tar::new().file("a", &noise).file("b", "2");
    let whole = tar.clone().finish();
    let mut cases = vec![
        ("in a file", whole[..9000].to_vec()),
        ("in a header", whole[..whole.len() - 1024 - 700].to_vec()),
        ("before its end", tar.unfinished()),
        ("after an extension", Tar::new().pax(&[("path", b"x")]).unfinished()),
    ];
    let packed = gzip(&whole);
    cases.push(("gzip", packed[..packed.len() / 2].to_vec()));
    cases.push(("gzip without its checksum", packed[..packed.len() - 6].to_vec()));
    let packed = zstd::encode_all(whole.as_slice(), 3).unwrap();
    cases.push(("zstd", packed[..packed.len() / 2].to_vec()));
    let mut packed = Vec::new();
    let options = lzma_rust2::XzOptions::with_preset(1);
    let mut encoder = lzma_rust2::XzWriter::new(&mut packed, options).unwrap();
    std::io::Write::write_all(&mut encoder, &whole).unwrap();
    encoder.finish().unwrap();
    assert!(tarball(&packed).is_ok());
    cases.push(("xz", packed[..packed.len() / 2].to_vec()));
    for (name, bytes) in cases {
        let error = tarball(&bytes).map(|_| ()).unwrap_err();
        assert!(matches!(error, ImportError::Truncated { .. }), "{name}: {error}");
    }
}

#[test]
fn damage_is_told_from_a_cut() {
    if !is_root() {
        return;
    }
    let whole = Tar::new().file("a", &"abc".repeat(5000)).finish();
    let mut damaged = whole.clone();
    damaged[100] ^= 1;
    let error = tarball(&damaged).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("no tar header (its checksum does not match)"), "{error}");
    let mut packed = gzip(&whole);
    let end = packed.len();
    packed[end - 8] ^= 1;
    let error = tarball(&packed).map(|_| ()).unwrap_err();
    assert!(
        matches!(error, ImportError::Compression { format: "gzip", .. }),
        "{error}"
    );
    for (bytes, expected) in [
        (b"".to_vec(), "too short for a tar archive"),
        (b"hello".to_vec(), "too short for a tar archive"),
        (b"BZh91AY".to_vec(), "bzip2 is not read"),
        (b"PK\x03\x04".to_vec(), "a zip archive"),
        (b"hsqs".to_vec(), "a squashfs image"),
        (b"QFI\xfb".to_vec(), "a qcow2 disk image"),
    ] {
        let error = tarball(&bytes).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_map_that_does_not_fit_its_file_is_refused() {
    if !is_root() {
        return;
    }
    for map in ["0,5,3,5", "0,20", "0,5", "0,x", "0"] {
        let tar = Tar::new()
            .pax(&[("GNU.sparse.size", b"10"), ("GNU.sparse.map", map.as_bytes())])
            .file("a", "0123456789");
        assert!(matches!(problem_of(tar), EntryProblem::Sparse(_)), "{map}");
    }
}

#[test]
fn an_import_stops_when_told_to_and_leaves_nothing() {
    if !is_root() {
        return;
    }
    let tar = (0..2000).fold(Tar::new(), |tar, number| tar.file(&format!("file-{number}"), "x"));
    let file = file("root.tar", &tar.finish());
    let base = tempfile::tempdir().unwrap();
    let source = Source::Tarball {
        path: file.path.clone(),
    };
    let import = Import::open(source, &Limits::default()).unwrap();
    let mut seen = Vec::new();
    let error = import
        .unpack_into(&base.path().join("root"), &mut |progress| {
            seen.push((progress.stage, progress.entries));
            if progress.entries > 500 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .unwrap_err();
    assert!(matches!(error, ImportError::Stopped));
    assert_eq!(seen, [(Stage::Unpack, 0), (Stage::Unpack, 256), (Stage::Unpack, 512)]);
    assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0);
}

#[test]
fn a_target_that_exists_is_left_alone() {
    if !is_root() {
        return;
    }
    let file = file("root.tar", &Tar::new().file("a", "1").finish());
    let base = tempfile::tempdir().unwrap();
    std::fs::write(base.path().join("kept"), "1").unwrap();
    let source = Source::Tarball {
        path: file.path.clone(),
    };
    let import = Import::open(source, &Limits::default()).unwrap();
    let error = import
        .unpack_into(base.path(), &mut |_| ControlFlow::Continue(()))
        .unwrap_err();
    assert!(matches!(error, ImportError::TargetExists { .. }));
    assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 1);
}
