//! Installing over what is there: the end is the image and nothing else, and little is fetched.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use manifest::packs::PackIndex;
use manifest::{ClassRule, EntryKind, Manifest, PathClass, TreePath};
use plumbline_agent::deploy::in_place::{Counts, Found};
use plumbline_agent::deploy::{Tracker, Tree, WriteError, finish, write_layer, write_layer_over};
use plumbline_agent::ramdisk::Console;

use super::image::{Packs, Served, entry, file, folder, link, manifest, noise, packed};

const ESP: &str = "/boot/efi";

fn tree(root: &Path) -> Tree {
    Tree::open(root, vec![ESP.parse().unwrap()]).unwrap()
}

fn fresh(root: &Path, image: &Manifest, index: &PackIndex, packs: &Packs) {
    let (tree, source) = (tree(root), Served::new(packs.clone(), |_, _| ()));
    write_layer(&tree, image, index, &source, &Tracker::new(Console::silent())).unwrap();
    finish::check_all(&tree, &[image]).unwrap();
}

/// Installs over the tree; what came of it, and the bytes of packs asked for.
fn over_keeping(
    root: &Path,
    image: &Manifest,
    index: &PackIndex,
    packs: &Packs,
    keep: &[&str],
) -> Result<(Counts, u64, usize), WriteError> {
    let (tree, source) = (tree(root), Served::new(packs.clone(), |_, _| ()));
    let keep: Vec<TreePath> = keep.iter().map(|path| path.parse().unwrap()).collect();
    let mut found = Found::survey(&tree, &[image], &keep, |_, _| ())?;
    let tracker = Tracker::new(Console::silent());
    write_layer_over(&tree, image, index, &source, &tracker, Some(&mut found))?;
    let counts = found.finish(&tree)?;
    finish::check_all(&tree, &[image]).unwrap();
    let requests = source.requests.lock().unwrap().len();
    let bytes = *source.asked_bytes.lock().unwrap();
    Ok((counts, bytes, requests))
}

fn over(root: &Path, image: &Manifest, index: &PackIndex, packs: &Packs) -> (Counts, u64, usize) {
    over_keeping(root, image, index, packs, &[]).unwrap()
}

/// Every path below, with what a digest of the image would tell.
fn listing(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(at) = folders.pop() {
        for item in fs::read_dir(&at).unwrap() {
            let path = item.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_symlink() {
                fs::read_link(&path).unwrap().display().to_string()
            } else if meta.is_file() {
                manifest::Digest::of(&fs::read(&path).unwrap()).to_string()
            } else {
                if meta.is_dir() {
                    folders.push(path.clone());
                }
                String::new()
            };
            let name = path.strip_prefix(root).unwrap().display();
            let time = if meta.is_dir() { 0 } else { meta.mtime() };
            lines.push(format!(
                "{name} {:o} {} {} {time} {content}",
                meta.mode(),
                meta.uid(),
                meta.nlink()
            ));
        }
    }
    lines.sort();
    lines
}

/// A small root: two large files, small ones, a link, a volatile folder, an ESP.
fn sample(large: &[u8], kernel: &str, kernel_bytes: &[u8]) -> Manifest {
    let mut image = manifest(vec![
        folder("/"),
        folder("/boot"),
        folder(ESP),
        file("/boot/efi/BOOTX64.EFI", b"loader"),
        file(kernel, kernel_bytes),
        folder("/etc"),
        file("/etc/conf", b"conf"),
        file("/etc/empty", b""),
        link("/etc/mtab", "../proc/self/mounts"),
        entry("/pipe", EntryKind::Fifo, 0o640),
        folder("/usr"),
        file("/usr/large", large),
        folder("/var"),
        folder("/var/lib"),
        file("/var/lib/conf-again", b"conf"),
    ]);
    let rule = |path: &str| ClassRule::new(path.parse().unwrap(), PathClass::Volatile);
    image.header.classes.0 = vec![rule("/var/lib/**"), rule("/home/**")];
    image
}

#[test]
fn an_installation_over_itself_fetches_nothing_but_what_was_changed() {
    let root = tempfile::tempdir().unwrap();
    let (large, kernel) = (noise(3 << 20, 1), noise(2 << 20, 2));
    let image = sample(&large, "/boot/vmlinuz-1", &kernel);
    let (index, packs) = packed(&[b"loader", &kernel, b"conf", &large]);
    fresh(root.path(), &image, &index, &packs);
    let expected = listing(root.path());
    let (counts, bytes, requests) = over(root.path(), &image, &index, &packs);
    assert_eq!((bytes, requests), (0, 0));
    assert_eq!((counts.files_kept, counts.bytes_kept), (6, 5 * (1 << 20) + 4 + 4 + 6));
    assert_eq!(listing(root.path()), expected);

    // Content, mode, time; a file of the image gone; another kind of thing in a place.
    let at = |path: &str| root.path().join(path);
    fs::write(at("etc/conf"), "fond").unwrap();
    fs::set_permissions(at("usr/large"), fs::Permissions::from_mode(0o4777)).unwrap();
    fs::remove_file(at("boot/vmlinuz-1")).unwrap();
    fs::create_dir_all(at("boot/vmlinuz-1/deep")).unwrap();
    fs::remove_file(at("etc/mtab")).unwrap();
    symlink("/etc/shadow", at("etc/mtab")).unwrap();
    let (_, bytes, _) = over(root.path(), &image, &index, &packs);
    assert_eq!(listing(root.path()), expected);
    assert!(
        (2 << 20..4 << 20).contains(&bytes),
        "the kernel's frames, and no more: {bytes}"
    );
}

#[test]
fn what_the_image_does_not_list_is_gone_the_volatile_too() {
    let root = tempfile::tempdir().unwrap();
    let (large, kernel) = (noise(1 << 20, 1), noise(1 << 20, 2));
    let image = sample(&large, "/boot/vmlinuz-1", &kernel);
    let (index, packs) = packed(&[b"loader", &kernel, b"conf", &large]);
    fresh(root.path(), &image, &index, &packs);
    let expected = listing(root.path());
    let at = |path: &str| root.path().join(path);
    fs::write(at("etc/cron.evil"), "evil").unwrap();
    fs::create_dir_all(at("var/lib/db/deep/er")).unwrap();
    fs::write(at("var/lib/db/deep/er/data"), "data").unwrap();
    fs::create_dir_all(at("opt/a")).unwrap();
    symlink("/", at("opt/a/everything")).unwrap();
    fs::write(at("boot/efi/left"), "left").unwrap();
    // A second name for a file of the image: whoever has it changes the image.
    fs::hard_link(at("usr/large"), at("var/lib/handle")).unwrap();
    let (counts, _, _) = over(root.path(), &image, &index, &packs);
    assert_eq!(listing(root.path()), expected);
    assert!(Path::new("/etc/passwd").exists(), "nothing outside");
    assert!(counts.files_removed >= 5, "{counts:?}");
}

#[test]
fn a_file_under_a_new_name_is_moved_and_swapped_contents_are_not_fetched() {
    let root = tempfile::tempdir().unwrap();
    let (large, kernel) = (noise(3 << 20, 1), noise(2 << 20, 2));
    let before = sample(&large, "/boot/vmlinuz-1", &kernel);
    let (index, packs) = packed(&[b"loader", &kernel, b"conf", &large]);
    fresh(root.path(), &before, &index, &packs);
    let at = |path: &str| root.path().join(path);
    // The kernel under a new name, in a folder that is no longer listed; the two large files have changed places.
    fs::create_dir(at("boot/old")).unwrap();
    fs::rename(at("usr/large"), at("boot/old/x")).unwrap();
    fs::rename(at("boot/vmlinuz-1"), at("usr/large")).unwrap();
    let now = sample(&large, "/boot/vmlinuz-2", &kernel);
    let (counts, bytes, requests) = over(root.path(), &now, &index, &packs);
    assert_eq!((bytes, requests), (0, 0));
    assert_eq!(counts.files_kept, 6);
    let other = tempfile::tempdir().unwrap();
    fresh(other.path(), &now, &index, &packs);
    assert_eq!(listing(root.path()), listing(other.path()));
}

#[test]
fn content_that_another_path_has_is_copied_from_there() {
    let root = tempfile::tempdir().unwrap();
    let (large, kernel) = (noise(1 << 20, 1), noise(1 << 20, 2));
    let image = sample(&large, "/boot/vmlinuz-1", &kernel);
    let (index, packs) = packed(&[b"loader", &kernel, b"conf", &large]);
    fresh(root.path(), &image, &index, &packs);
    let expected = listing(root.path());
    fs::remove_file(root.path().join("var/lib/conf-again")).unwrap();
    let (_, bytes, _) = over(root.path(), &image, &index, &packs);
    assert_eq!(bytes, 0);
    assert_eq!(listing(root.path()), expected);
}

/// An attempt that ended anywhere leaves a tree that the next one makes right, with little to fetch.
#[test]
fn an_attempt_that_was_cut_off_is_gone_on_with() {
    let root = tempfile::tempdir().unwrap();
    let (large, kernel) = (noise(3 << 20, 1), noise(2 << 20, 2));
    let before = sample(&large, "/boot/vmlinuz-1", &kernel);
    let (index, packs) = packed(&[b"loader", &kernel, b"conf", &large]);
    fresh(root.path(), &before, &index, &packs);
    let now = sample(&large, "/boot/vmlinuz-2", &kernel);
    for _ in 0..3 {
        // Cut after the survey: what can be used again lies in the stash, and nothing is at its place.
        let found = Found::survey(&tree(root.path()), &[&now], &[], |_, _| ()).unwrap();
        drop(found);
        assert!(!root.path().join("boot/vmlinuz-1").exists());
        // A file that was being written.
        fs::write(root.path().join("usr/large"), &large[..1000]).unwrap();
    }
    let (_, bytes, _) = over(root.path(), &now, &index, &packs);
    assert!(bytes < 4 << 20, "only the half-written file is fetched: {bytes}");
    let other = tempfile::tempdir().unwrap();
    fresh(other.path(), &now, &index, &packs);
    assert_eq!(listing(root.path()), listing(other.path()));
}

#[test]
fn paths_to_keep_stay_where_the_image_allows_it_and_nowhere_else() {
    let root = tempfile::tempdir().unwrap();
    let (large, kernel) = (noise(1 << 20, 1), noise(1 << 20, 2));
    let mut image = sample(&large, "/boot/vmlinuz-1", &kernel);
    image.entries.push(folder("/home"));
    let image = Manifest::new(image.header, image.entries).unwrap();
    let (index, packs) = packed(&[b"loader", &kernel, b"conf", &large]);
    fresh(root.path(), &image, &index, &packs);
    let at = |path: &str| root.path().join(path);
    for path in ["home/alice/data", "home/bob", "etc/mine", "var/lib/db/x"] {
        fs::create_dir_all(at(path)).unwrap();
        fs::write(at(path).join("file"), path).unwrap();
    }
    fs::write(at("var/lib/conf-again"), "mine").unwrap();
    over_keeping(
        root.path(),
        &image,
        &index,
        &packs,
        &["/home/alice", "/etc/mine", "/var/lib"],
    )
    .unwrap();
    assert_eq!(
        fs::read_to_string(at("home/alice/data/file")).unwrap(),
        "home/alice/data"
    );
    assert_eq!(fs::read_to_string(at("var/lib/db/x/file")).unwrap(), "var/lib/db/x");
    assert!(!at("home/bob").exists() && !at("etc/mine").exists());
    // What the image lists is the image's, wherever it lies.
    assert_eq!(fs::read_to_string(at("var/lib/conf-again")).unwrap(), "conf");
}

#[test]
fn flags_and_attributes_that_protect_a_file_protect_nothing() {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: file flags need root");
        return;
    }
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let (large, kernel) = (noise(1 << 20, 1), noise(1 << 20, 2));
    let image = sample(&large, "/boot/vmlinuz-1", &kernel);
    let (index, packs) = packed(&[b"loader", &kernel, b"conf", &large]);
    fresh(root.path(), &image, &index, &packs);
    let expected = listing(root.path());
    let at = |path: &str| root.path().join(path);
    fs::create_dir(at("etc/evil.d")).unwrap();
    fs::write(at("etc/evil.d/evil"), "evil").unwrap();
    xattr::set(at("usr/large"), "user.evil", b"1").unwrap();
    xattr::set(at("usr"), "user.evil", b"1").unwrap();
    fs::write(at("etc/conf"), "evil").unwrap();
    let chattr = |flag: &str, path: &str| {
        let done = std::process::Command::new("chattr").arg(flag).arg(at(path)).status();
        done.is_ok_and(|status| status.success())
    };
    let protected = ["etc/evil.d/evil", "etc/evil.d", "etc/conf", "usr/large", "etc"];
    if !protected.iter().all(|path| chattr("+i", path)) {
        for path in protected {
            chattr("-i", path);
        }
        eprintln!("skipped: this filesystem has no immutable files");
        return;
    }
    let (_, bytes, _) = over(root.path(), &image, &index, &packs);
    assert_eq!(listing(root.path()), expected);
    assert!(xattr::get(at("usr/large"), "user.evil").unwrap().is_none());
    assert!(xattr::get(at("usr"), "user.evil").unwrap().is_none());
    assert_eq!(bytes, 0, "the content of /etc/conf stands at another path");
}

/// However deep and however long its names are, what does not belong goes.
#[test]
fn a_tree_deeper_than_any_path_is_removed() {
    let root = tempfile::tempdir().unwrap();
    let image = manifest(vec![folder("/"), file("/a", b"a")]);
    let (index, packs) = packed(&[b"a"]);
    fresh(root.path(), &image, &index, &packs);
    let name = "d".repeat(200);
    let mut at = rustix::fs::open(root.path(), rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
    for _ in 0..300 {
        let mode = rustix::fs::Mode::from_raw_mode(0o700);
        rustix::fs::mkdirat(&at, &name, mode).unwrap();
        at = rustix::fs::openat(&at, &name, rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
    }
    over(root.path(), &image, &index, &packs);
    assert_eq!(listing(root.path()).len(), 1);
}
