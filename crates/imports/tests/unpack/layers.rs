//! Layers over layers: what stays, what goes, what is shared.

use std::os::unix::fs::MetadataExt;

use imports::{ImportError, NoteKind};

use super::support::{Images, Tar, Unpacked, is_root, listing, paths, unpack};

fn layers(layers: &[Tar]) -> Result<Unpacked, ImportError> {
    let layers: Vec<Vec<u8>> = layers.iter().map(|layer| layer.clone().finish()).collect();
    let layout = Images::of(&layers).layout();
    unpack(layout.source())
}

#[test]
fn a_whiteout_hides_what_is_below_and_nothing_of_its_own_layer() {
    if !is_root() {
        return;
    }
    let below = Tar::new()
        .folder("etc/")
        .file("etc/gone", "1")
        .file("etc/stays", "1")
        .file("etc/both", "old")
        .folder("etc/folder/")
        .file("etc/folder/old", "1");
    // In any order: the whiteout may stand before or after what its layer brings.
    let above = Tar::new()
        .file("etc/.wh.gone", "")
        .file("etc/both", "new")
        .file("etc/.wh.both", "")
        .file("etc/folder/new", "2")
        .file("etc/.wh.folder", "")
        .file("etc/.wh.never-there", "")
        .file("nowhere/.wh.x", "");
    let root = layers(&[below, above]).unwrap();
    assert_eq!(
        listing(&root.root),
        [
            "etc 0755 0:0 folder",
            "etc/both 0644 0:0 \"new\"",
            "etc/folder 0755 0:0 folder",
            "etc/folder/new 0644 0:0 \"2\"",
            "etc/stays 0644 0:0 \"1\"",
        ]
    );
}

#[test]
fn an_opaque_folder_hides_all_that_was_in_it() {
    if !is_root() {
        return;
    }
    let below = Tar::new()
        .folder("opt/")
        .folder("opt/a/")
        .file("opt/a/old", "1")
        .file("opt/a/deep/er/old", "1")
        .file("opt/b", "1")
        .file("other", "1");
    for first in [true, false] {
        let opaque = |tar: Tar| tar.file("opt/.wh..wh..opq", "");
        let mut above = Tar::new().folder("opt/");
        if first {
            above = opaque(above);
        }
        above = above
            .file("opt/a/new", "2")
            .file("opt/c", "2")
            .file("opt/.wh..wh.plnk", "");
        if !first {
            above = opaque(above);
        }
        let root = layers(&[below.clone(), above]).unwrap();
        assert_eq!(paths(&root.root), ["opt", "opt/a", "opt/a/new", "opt/c", "other"]);
    }
}

#[test]
fn files_folders_and_links_replace_each_other() {
    if !is_root() {
        return;
    }
    let below = Tar::new()
        .folder("folder/")
        .file("folder/in/it", "1")
        .file("file", "1")
        .symlink("link", "folder")
        .folder("kept/")
        .file("kept/old", "1");
    let above = Tar::new()
        .file("folder", "now a file")
        .folder("file/")
        .file("file/in", "2")
        // Writing "through" the link would put it into the folder.
        .file("link", "now a file")
        .entry(tar::EntryType::Directory, b"kept/", b"", |header| {
            header.set_mode(0o2750);
            header.set_gid(7);
        });
    let root = layers(&[below, above]).unwrap();
    assert_eq!(
        listing(&root.root),
        [
            "file 0755 0:0 folder",
            "file/in 0644 0:0 \"2\"",
            "folder 0644 0:0 \"now a file\"",
            "kept 2750 0:7 folder",
            "kept/old 0644 0:0 \"1\"",
            "link 0644 0:0 \"now a file\"",
        ]
    );
}

/// A file that a later layer writes anew is not changed under its other names.
#[test]
fn hard_links_hold_across_layers_and_do_not_carry_changes() {
    if !is_root() {
        return;
    }
    let below = Tar::new().file("a", "one").link("b", "a").symlink("s", "a");
    let above = Tar::new()
        .folder("sub/")
        .link("sub/c", "b")
        .link("sub/absolute", "/b")
        .link("t", "s")
        .file("a", "two");
    let root = layers(&[below, above]).unwrap();
    assert_eq!(
        listing(&root.root),
        [
            "a 0644 0:0 \"two\"",
            "b 0644 0:0 \"one\" (3 links)",
            "s 0777 0:0 -> a",
            "sub 0755 0:0 folder",
            "sub/absolute 0644 0:0 \"one\" (3 links)",
            "sub/c 0644 0:0 \"one\" (3 links)",
            "t 0777 0:0 -> a",
        ]
    );
}

/// `/var/run` is an absolute link on every Debian: what a layer puts there belongs into `/run` of this root.
#[test]
fn links_in_the_way_are_followed_inside_the_root() {
    if !is_root() {
        return;
    }
    let below = Tar::new()
        .folder("run/")
        .folder("var/")
        .symlink("var/run", "/run")
        .symlink("bin", "usr/bin")
        .folder("usr/bin/");
    let above = Tar::new()
        .file("var/run/lock", "1")
        .file("bin/tool", "2")
        .file("bin/.wh.nothing", "")
        .link("bin/again", "bin/tool");
    let root = layers(&[below, above]).unwrap();
    let found = paths(&root.root);
    for path in ["run/lock", "usr/bin/tool", "usr/bin/again", "bin", "var/run"] {
        assert!(found.contains(&path.to_owned()), "{path}: {found:?}");
    }
}

/// The way to a folder may change between two entries of one folder.
#[test]
fn a_link_that_is_replaced_leads_nowhere_any_more() {
    if !is_root() {
        return;
    }
    let tar = Tar::new()
        .folder("old/")
        .symlink("way", "old")
        .file("way/first", "1")
        .folder("way/")
        .file("way/second", "2")
        .folder("gone/")
        .file("gone/x", "1")
        .file("gone", "a file")
        .folder("gone/")
        .file("gone/y", "2");
    let root = super::support::tarball(&tar.finish()).unwrap();
    assert_eq!(
        paths(&root.root),
        ["gone", "gone/y", "old", "old/first", "way", "way/second"]
    );
}

#[test]
fn device_nodes_are_left_out_and_noted_with_links_to_them() {
    if !is_root() {
        return;
    }
    let below = Tar::new().folder("dev/").file("dev/null", "a file by mistake");
    let above = Tar::new().device("dev/null").link("dev/zero", "dev/null").entry(
        tar::EntryType::Fifo,
        b"pipe",
        b"",
        |header| header.set_mode(0o620),
    );
    let root = layers(&[below, above]).unwrap();
    assert_eq!(listing(&root.root), ["dev 0755 0:0 folder", "pipe 0620 0:0 fifo"]);
    let notes: Vec<_> = root
        .imported
        .notes
        .iter()
        .map(|note| (note.kind, note.path.as_str()))
        .collect();
    assert_eq!(
        notes,
        [
            (NoteKind::DeviceSkipped, "dev/null"),
            (NoteKind::LinkSkipped, "dev/zero")
        ]
    );
}

#[test]
fn times_of_folders_are_those_of_the_archive_whatever_comes_into_them_later() {
    if !is_root() {
        return;
    }
    let below = Tar::new().folder("a/").folder("a/b/");
    let above = Tar::new().file("a/b/c", "1").file("a/.wh.x", "");
    let root = layers(&[below, above]).unwrap();
    for path in ["a", "a/b", "a/b/c"] {
        assert_eq!(
            root.root.join(path).metadata().unwrap().mtime(),
            1_700_000_000,
            "{path}"
        );
    }
}

/// In a root's own archive a name that looks like a whiteout is a name.
#[test]
fn whiteouts_mean_nothing_in_the_lowest_layer_and_in_a_tarball() {
    if !is_root() {
        return;
    }
    let tar = Tar::new().file("a", "1").file(".wh.a", "");
    assert_eq!(paths(&layers(std::slice::from_ref(&tar)).unwrap().root), ["a"]);
    let root = super::support::tarball(&tar.finish()).unwrap();
    assert_eq!(paths(&root.root), [".wh.a", "a"]);
}
