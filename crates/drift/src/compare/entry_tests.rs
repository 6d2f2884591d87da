use manifest::{Digest, Xattrs};

use super::*;

fn path() -> TreePath {
    "/etc/x".parse().unwrap()
}

fn entry(kind: EntryKind) -> Entry {
    Entry {
        path: path(),
        class: PathClass::Pinned,
        kind,
        mode: 0o644,
        uid: 0,
        gid: 0,
        mtime: 5,
        xattrs: Xattrs::new(),
    }
}

fn file(text: &str) -> EntryKind {
    EntryKind::File(Some(FileContent {
        size: text.len() as u64,
        digest: Digest::of(text.as_bytes()),
    }))
}

fn seen(kind: ObservedKind) -> ObservedEntry {
    ObservedEntry {
        kind,
        mode: 0o644,
        uid: 0,
        gid: 0,
        xattrs: ObservedXattrs::Value(Xattrs::new()),
    }
}

fn seen_file(text: &str) -> ObservedEntry {
    seen(ObservedKind::File {
        size: text.len() as u64,
        digest: ObservedDigest::Hashed(Digest::of(text.as_bytes())),
    })
}

fn text(outcome: &Outcome) -> String {
    let side = |attributes: &Option<Attributes>| attributes.as_ref().map_or("-".to_owned(), ToString::to_string);
    let difference = outcome.difference.as_ref().map_or("same".to_owned(), |d| {
        format!("{} => {}", side(&d.expected), side(&d.actual))
    });
    match &outcome.unknown {
        None => difference,
        Some(observation) => format!("{difference} ? {}", observation.name()),
    }
}

/// `(what, class, expected, observed, filesystem, outcome)`.
type Case<'a> = (
    &'static str,
    PathClass,
    Option<Entry>,
    ObservedEntry,
    FilesystemKind,
    &'a str,
);

#[test]
fn each_class_holds_a_path_to_what_it_promises() {
    use FilesystemKind::{Ext4, Vfat};
    use PathClass::{Ignored, Pinned, Rendered, Seeded, Volatile};
    let changed = |mode, uid, text: &str| ObservedEntry {
        mode,
        uid,
        ..seen_file(text)
    };
    let link = |target: &str| EntryKind::Symlink(target.as_bytes().to_vec());
    let with_xattr = |value: &[u8]| Xattrs::from([("security.capability".to_owned(), value.to_vec())]);
    let capable = Entry {
        xattrs: with_xattr(&[1, 0]),
        ..entry(file("a"))
    };
    let not_read = seen(ObservedKind::File {
        size: 1,
        digest: ObservedDigest::NotRead,
    });
    let unstable = |size| {
        seen(ObservedKind::File {
            size,
            digest: ObservedDigest::Unknown(Observation::Unstable),
        })
    };
    let a = Digest::of(b"a");
    let b = Digest::of(b"b");
    let content = format!("digest={a} => digest={b}");
    #[rustfmt::skip]
    let cases: Vec<Case<'_>> = vec![
        ("as it should be", Pinned, Some(entry(file("a"))), seen_file("a"), Ext4, "same"),
        ("content", Pinned, Some(entry(file("a"))), seen_file("b"), Ext4, &content),
        ("content, rendered", Rendered, Some(entry(file("a"))), seen_file("b"), Ext4, &content),
        ("content, seeded", Seeded, Some(entry(file("a"))), seen_file("b"), Ext4, "same"),
        ("content, volatile", Volatile, Some(entry(file("a"))), seen_file("b"), Ext4, "same"),
        ("content on vfat", Pinned, Some(entry(file("a"))), changed(0o755, 7, "b"), Vfat, &content),
        ("mode", Pinned, Some(entry(file("a"))), changed(0o4755, 0, "a"), Ext4, "mode=0644 => mode=4755"),
        ("owner", Pinned, Some(entry(file("a"))), changed(0o644, 7, "a"), Ext4, "uid=0 => uid=7"),
        ("mode, seeded", Seeded, Some(entry(file("a"))), changed(0o600, 7, "b"), Ext4, "mode=0644 uid=0 => mode=0600 uid=7"),
        ("mode, volatile", Volatile, Some(entry(file("a"))), changed(0o600, 7, "b"), Ext4, "same"),
        ("mode on vfat", Pinned, Some(entry(file("a"))), changed(0o755, 7, "a"), Vfat, "same"),
        ("made on the node", Seeded, Some(entry(EntryKind::File(None))), seen_file("key"), Ext4, "same"),
        ("link target", Pinned, Some(entry(link("a"))), seen(ObservedKind::Other(link("b\n"))), Ext4, "target=a => target=b\\x0a"),
        ("link mode", Pinned, Some(Entry { mode: 0o777, ..entry(link("a")) }), seen(ObservedKind::Other(link("a"))), Ext4, "same"),
        ("device", Pinned, Some(entry(EntryKind::CharacterDevice(1, 3))), seen(ObservedKind::Other(EntryKind::CharacterDevice(1, 5))), Ext4, "device=1:3 => device=1:5"),
        ("type, volatile", Volatile, Some(entry(EntryKind::Directory)), seen(ObservedKind::Other(link("/evil"))), Ext4, "type=directory => target=/evil type=symlink"),
        ("type on vfat", Pinned, Some(entry(EntryKind::Directory)), seen(ObservedKind::Other(EntryKind::Fifo)), Vfat, "type=directory => type=fifo"),
        ("capability lost", Pinned, Some(capable.clone()), seen_file("a"), Ext4, "xattr.security.capability=0100 => "),
        ("capability gained", Pinned, Some(entry(file("a"))), ObservedEntry { xattrs: ObservedXattrs::Value(with_xattr(&[2])), ..seen_file("a") }, Ext4, " => xattr.security.capability=02"),
        ("capability, seeded", Seeded, Some(capable.clone()), seen_file("a"), Ext4, "same"),
        ("capability on vfat", Pinned, Some(capable.clone()), seen_file("a"), Vfat, "same"),
        ("xattrs unreadable", Pinned, Some(capable), ObservedEntry { xattrs: ObservedXattrs::Unknown(Observation::Denied), ..seen_file("a") }, Ext4, "same ? denied"),
        ("content not read", Pinned, Some(entry(file("a"))), not_read.clone(), Ext4, "same ? not_scanned"),
        ("not read, other size", Pinned, Some(entry(file("aa"))), not_read.clone(), Ext4, "size=2 => size=1"),
        ("not read, seeded", Seeded, Some(entry(file("a"))), not_read, Ext4, "same"),
        ("unstable", Pinned, Some(entry(file("a"))), unstable(1), Ext4, "same ? unstable"),
        ("unstable and smaller", Pinned, Some(entry(file("ab"))), unstable(1), Ext4, "size=2 => size=1 ? unstable"),
        ("unstable and chmod", Pinned, Some(entry(file("a"))), ObservedEntry { mode: 0o600, ..unstable(1) }, Ext4, "mode=0644 => mode=0600 ? unstable"),
        ("unlisted", Pinned, None, seen(ObservedKind::Other(EntryKind::Directory)), Ext4, "- => gid=0 mode=0644 type=directory uid=0"),
        ("unlisted link", Rendered, None, seen(ObservedKind::Other(link("x"))), Ext4, "- => gid=0 target=x type=symlink uid=0"),
        ("unlisted on vfat", Pinned, None, seen(ObservedKind::Other(EntryKind::Directory)), Vfat, "- => type=directory"),
        ("unlisted, seeded", Seeded, None, seen_file("a"), Ext4, "same"),
        ("unlisted, volatile", Volatile, None, unstable(1), Ext4, "same"),
        ("unlisted, ignored", Ignored, None, seen_file("a"), Ext4, "same"),
    ];
    for (what, class, expected, observed, filesystem, outcome) in cases {
        let found = compare_entry(&path(), expected.as_ref(), class, &observed, filesystem);
        assert_eq!(text(&found), outcome, "{what}");
        assert_eq!(found.is_same(), outcome == "same", "{what}");
    }
}

#[test]
fn an_added_file_tells_its_content_so_that_variants_can_be_told_apart() {
    let of = |text: &str| {
        let outcome = compare_entry(&path(), None, PathClass::Pinned, &seen_file(text), FilesystemKind::Ext4);
        outcome.difference.unwrap()
    };
    assert_ne!(of("a").variant(), of("b").variant());
    assert_eq!(of("a").group(), of("b").group());
    assert_eq!(of("a").expected, None);
}

#[test]
fn sizes_are_64_bit_and_long_xattrs_are_named_by_digest() {
    let huge = seen(ObservedKind::File {
        size: 5 << 30,
        digest: ObservedDigest::NotRead,
    });
    let outcome = compare_entry(
        &path(),
        Some(&entry(file("a"))),
        PathClass::Pinned,
        &huge,
        FilesystemKind::Ext4,
    );
    assert_eq!(text(&outcome), "size=1 => size=5368709120");
    let long = Xattrs::from([("user.x".to_owned(), vec![0; 60_000])]);
    let seen = ObservedEntry {
        xattrs: ObservedXattrs::Value(long),
        ..seen_file("a")
    };
    let outcome = compare_entry(
        &path(),
        Some(&entry(file("a"))),
        PathClass::Pinned,
        &seen,
        FilesystemKind::Ext4,
    );
    assert!(text(&outcome).len() < 120, "{}", text(&outcome));
    assert!(text(&outcome).contains("xattr.user.x=sha256:"));
}
