//! What the writer leaves on the disk, with good data, damaged data and hostile manifests.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;

use manifest::packs::{PackIndex, Part};
use manifest::{Digest, EntryKind, Manifest};
use plumbline_agent::deploy::{PackSource, Tracker, Tree, WriteError, write_layer};
use plumbline_agent::ramdisk::Console;

use super::image::{Served, entry, file, folder, link, manifest, noise, packed, packed_apart};

fn written(
    root: &Path,
    manifest: &Manifest,
    index: &PackIndex,
    source: &dyn PackSource,
) -> Result<Tracker, WriteError> {
    let tree = Tree::open(root, vec!["/boot/efi".parse().unwrap()]).unwrap();
    let tracker = Tracker::new(Console::silent());
    write_layer(&tree, manifest, index, source, &tracker)?;
    for entry in manifest
        .entries
        .iter()
        .rev()
        .filter(|entry| entry.kind == EntryKind::Directory)
    {
        tree.finish_folder(entry).unwrap();
    }
    Ok(tracker)
}

#[test]
fn a_layer_is_written_with_everything_the_manifest_says() {
    let root = tempfile::tempdir().unwrap();
    let large = noise(3 << 20, 1);
    let mut setuid = file("/bin/su", b"su");
    setuid.mode = 0o4755;
    let is_root = rustix::process::getuid().is_root();
    if is_root {
        (setuid.uid, setuid.gid) = (1234, 4321);
        // cap_net_raw=ep, revision 2 (capability.h, vfs_cap_data).
        let mut capability = vec![1, 0, 0, 2, 0, 0x20];
        capability.resize(20, 0);
        setuid.xattrs.insert("security.capability".to_owned(), capability);
    }
    let mut closed = folder("/root");
    (closed.mode, closed.mtime) = (0o700, 1_600_000_000);
    let manifest = manifest(vec![
        folder("/"),
        folder("/bin"),
        setuid,
        file("/bin/large", &large),
        file("/bin/large-again", &large),
        link("/bin/sh", "dash"),
        folder("/boot"),
        folder("/boot/efi"),
        file("/boot/efi/BOOTX64.EFI", b"loader"),
        file("/empty", b""),
        entry("/pipe", EntryKind::Fifo, 0o640),
        closed,
        file("/root/.profile", b"su"),
    ]);
    let (index, packs) = packed(&[b"su", &large, b"loader"]);
    let tracker = written(root.path(), &manifest, &index, &Served::new(packs, |_, _| ())).unwrap();

    let at = |path: &str| root.path().join(path);
    assert_eq!(fs::read(at("bin/large")).unwrap(), large);
    assert_eq!(fs::read(at("bin/large-again")).unwrap(), large);
    assert_eq!(fs::read(at("root/.profile")).unwrap(), b"su");
    assert_eq!(fs::read(at("empty")).unwrap(), b"");
    assert_eq!(fs::read(at("boot/efi/BOOTX64.EFI")).unwrap(), b"loader");
    assert_eq!(fs::read_link(at("bin/sh")).unwrap(), Path::new("dash"));
    assert!(fs::symlink_metadata(at("pipe")).unwrap().file_type().is_fifo());
    assert_eq!(fs::symlink_metadata(at("pipe")).unwrap().mode() & 0o7777, 0o640);
    let su = fs::metadata(at("bin/su")).unwrap();
    assert_eq!((su.mode() & 0o7777, su.mtime()), (0o4755, 1_700_000_000));
    if is_root {
        assert_eq!((su.uid(), su.gid()), (1234, 4321));
        assert!(xattr::get(at("bin/su"), "security.capability").unwrap().is_some());
    }
    let closed = fs::metadata(at("root")).unwrap();
    assert_eq!((closed.mode() & 0o7777, closed.mtime()), (0o700, 1_600_000_000));
    let progress = tracker.snapshot();
    assert_eq!(
        (progress.files_done, progress.bytes_done),
        (6, 2 * large.len() as u64 + 2 + 2 + 6)
    );
}

#[test]
fn a_later_layer_replaces_files_and_links_without_following_them() {
    let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let precious = outside.path().join("precious");
    fs::write(&precious, "precious").unwrap();
    symlink(&precious, root.path().join("resolv.conf")).unwrap();
    fs::write(root.path().join("hosts"), "old").unwrap();
    let manifest = manifest(vec![file("/resolv.conf", b"new"), link("/hosts", "resolv.conf")]);
    let (index, packs) = packed(&[b"new"]);
    written(root.path(), &manifest, &index, &Served::new(packs, |_, _| ())).unwrap();
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    assert_eq!(fs::read_to_string(root.path().join("resolv.conf")).unwrap(), "new");
    assert_eq!(
        fs::read_link(root.path().join("hosts")).unwrap(),
        Path::new("resolv.conf")
    );
}

#[test]
fn a_manifest_cannot_write_through_a_link_out_of_the_tree() {
    for target in ["absolute", "../outside"] {
        let base = tempfile::tempdir().unwrap();
        let (root, outside) = (base.path().join("root"), base.path().join("outside"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&outside).unwrap();
        let target = if target == "absolute" {
            outside.to_str().unwrap()
        } else {
            target
        };
        let evil = file("/etc/cron.d", b"evil");
        let (index, packs) = packed(&[b"evil"]);
        for hostile in [
            vec![link("/etc", target), evil],
            vec![link("/etc", target), folder("/etc/cron.d")],
        ] {
            let source = Served::new(packs.clone(), |_, _| ());
            let error = written(&root, &manifest(hostile), &index, &source).unwrap_err();
            assert!(error.to_string().contains("/etc/cron.d"), "{error}");
            assert_eq!(
                fs::read_dir(&outside).unwrap().count(),
                0,
                "nothing was written outside"
            );
        }
    }
}

#[test]
fn what_a_fat_cannot_hold_is_refused_by_name() {
    let root = tempfile::tempdir().unwrap();
    let manifest = manifest(vec![folder("/boot"), folder("/boot/efi"), link("/boot/efi/link", "x")]);
    let error = written(
        root.path(),
        &manifest,
        &PackIndex::default(),
        &Served::new([].into(), |_, _| ()),
    )
    .unwrap_err();
    assert!(error.to_string().contains("/boot/efi/link"), "{error}");
}

#[test]
fn a_pack_damaged_once_is_fetched_again_and_installs() {
    let root = tempfile::tempdir().unwrap();
    let content = noise(2 << 20, 2);
    let (index, packs) = packed(&[&content]);
    let source = Served::new(packs, |bytes, again| {
        if again == 0 {
            bytes[5000] ^= 1;
        }
    });
    let tracker = written(root.path(), &manifest(vec![file("/data", &content)]), &index, &source).unwrap();
    assert_eq!(fs::read(root.path().join("data")).unwrap(), content);
    assert_eq!(tracker.snapshot().files_done, 1, "a file written twice counts once");
    let pack = index.packs[0].digest;
    assert_eq!(*source.requests.lock().unwrap(), [(pack, 0), (pack, 1)]);
}

#[test]
fn a_pack_that_stays_damaged_fails_by_name_with_the_first_file() {
    type Change = fn(&mut Vec<u8>);
    let content = noise(2 << 20, 3);
    let changes: [(Change, &str); 2] = [
        (|bytes| bytes[1_500_000] ^= 1, "damaged"),
        (|bytes| bytes.truncate(1_500_000), "expected"),
    ];
    for (change, problem) in changes {
        let root = tempfile::tempdir().unwrap();
        let (index, packs) = packed(&[b"first", &content]);
        let source = Served::new(packs, move |bytes, _| change(bytes));
        let manifest = manifest(vec![file("/a", b"first"), file("/data", &content)]);
        let error = written(root.path(), &manifest, &index, &source)
            .unwrap_err()
            .to_string();
        let pack = index.packs[0].digest;
        for part in [pack.to_string().as_str(), problem, "first file: /data"] {
            assert!(error.contains(part), "{error} should say {part}");
        }
        assert_eq!(source.requests.lock().unwrap().len(), 3);
    }
}

#[test]
fn content_that_is_not_what_the_manifest_says_is_never_accepted() {
    let root = tempfile::tempdir().unwrap();
    let (mut index, packs) = packed(&[b"good", b"evil"]);
    // The pack is sound, and its index lies.
    index.packs[0].extents[1].blob = Digest::of(b"root");
    let source = Served::new(packs, |_, _| ());
    let manifest = manifest(vec![file("/etc-shadow", b"root"), file("/good", b"good")]);
    let error = written(root.path(), &manifest, &index, &source)
        .unwrap_err()
        .to_string();
    let expected = Digest::of(b"root").to_string();
    assert!(error.contains("/etc-shadow") && error.contains(&expected), "{error}");
}

#[test]
fn a_file_in_two_packs_survives_damage_in_either() {
    let (first, second) = (noise(700_000, 4), noise(500_000, 5));
    let whole = [first.as_slice(), &second].concat();
    let (index, packs) = packed_apart(&first, &second);
    let [one, two] = [index.packs[0].digest, index.packs[1].digest];
    let manifest = manifest(vec![file("/large", &whole)]);

    // The second is cut short once: only it is fetched again.
    let root = tempfile::tempdir().unwrap();
    let short = packs[&two].len() - 7;
    let cut_at = packs[&two].len();
    let source = Served::new(packs.clone(), move |bytes, again| {
        if again == 0 && bytes.len() == cut_at {
            bytes.truncate(short);
        }
    });
    written(root.path(), &manifest, &index, &source).unwrap();
    assert_eq!(fs::read(root.path().join("large")).unwrap(), whole);
    assert_eq!(*source.requests.lock().unwrap(), [(one, 0), (two, 0), (two, 1)]);

    // The first brings other content once, soundly packed: the digest at the end tells, and both are fetched again.
    let root = tempfile::tempdir().unwrap();
    let (other, others) = packed(&[&noise(700_000, 6)]);
    assert_eq!(
        other.packs[0].frames, index.packs[0].frames,
        "noise of one size packs to one size"
    );
    let (wrong, right) = (others[&other.packs[0].digest].clone(), packs[&one].clone());
    let source = Served::new(packs, move |bytes, again| {
        if again == 0 && *bytes == right {
            bytes.clone_from(&wrong);
        }
    });
    written(root.path(), &manifest, &index, &source).unwrap();
    assert_eq!(fs::read(root.path().join("large")).unwrap(), whole);
    assert_eq!(
        *source.requests.lock().unwrap(),
        [(one, 0), (two, 0), (one, 1), (two, 0)]
    );
}

struct Gone;

impl PackSource for Gone {
    fn open(&self, _: &Part<'_>, _: u32) -> Box<dyn Read + Send> {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(std::io::Error::other("the server is gone"))
            }
        }
        Box::new(Broken)
    }
}

#[test]
fn a_server_that_is_gone_is_not_called_damage() {
    let root = tempfile::tempdir().unwrap();
    let (index, _) = packed(&[b"content"]);
    let error = written(root.path(), &manifest(vec![file("/a", b"content")]), &index, &Gone).unwrap_err();
    assert!(
        matches!(error, WriteError::Fetch { pack, .. } if pack == index.packs[0].digest),
        "{error}"
    );
    let reason = plumbline_agent::deploy::chain(&error);
    assert!(reason.contains("the server is gone"), "{reason}");
}

#[test]
fn a_folder_is_not_replaced_by_a_file() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("etc/kept")).unwrap();
    let (index, packs) = packed(&[b"x"]);
    let error = written(
        root.path(),
        &manifest(vec![file("/etc", b"x")]),
        &index,
        &Served::new(packs, |_, _| ()),
    );
    assert!(error.unwrap_err().to_string().contains("/etc"));
    assert!(root.path().join("etc/kept").is_dir());
}
