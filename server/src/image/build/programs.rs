//! Drawing programs with the libraries they are linked with from one tree into another.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use manifest::TreePath;

use super::BuildError;
use super::command::{command, output};
use super::files::{create_folders, place};

/// The dynamic loader of amd64, which also lists what a program is linked with.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
/// Links followed before a path counts as a circle, as the kernel does.
const LINKS_MAX: usize = 40;

/// Copies a path from one tree to another: a file with its libraries, a link with what it leads to.
pub(super) fn copy(from: &Path, to: &Path, path: &TreePath) -> Result<(), BuildError> {
    let missing = || BuildError::Tree {
        path: path.clone(),
        problem: "programs names it, no package of the recipe brings it".to_owned(),
    };
    // The folder's own links (/sbin) are resolved; the program's own name stays.
    let parent = path.parent().ok_or_else(missing)?;
    let Some(parent) = resolve(from, &parent)? else {
        return Err(missing());
    };
    let path = parent.join(path.name())?;
    let source = place(from, &path);
    let target = place(to, &path);
    let Ok(found) = source.symlink_metadata() else {
        return Err(missing());
    };
    if target.symlink_metadata().is_ok() {
        return Ok(());
    }
    create_folders(to, &parent)?;
    let failed = || BuildError::io(format!("copying {path}"));
    if found.is_symlink() {
        symlink(fs::read_link(&source).map_err(failed())?, &target).map_err(failed())?;
        let real = resolve(from, &path)?.ok_or_else(missing)?;
        return copy(from, to, &real);
    }
    if !found.is_file() {
        return Err(missing());
    }
    fs::copy(&source, &target).map_err(failed())?;
    for library in libraries(from, &path)? {
        copy(from, to, &library)?;
    }
    Ok(())
}

/// Where a path of the tree really lies, with every link on the way taken inside the tree. `None` when it is not there.
pub(super) fn resolve(root: &Path, path: &TreePath) -> Result<Option<TreePath>, BuildError> {
    let split = |bytes: &[u8]| -> Vec<Vec<u8>> {
        let mut parts: Vec<_> = bytes
            .split(|&b| b == b'/')
            .filter(|p| !p.is_empty() && *p != b".")
            .map(<[u8]>::to_vec)
            .collect();
        parts.reverse();
        parts
    };
    let mut pending = split(path.as_bytes());
    let mut at = TreePath::root();
    let mut links = 0;
    while let Some(part) = pending.pop() {
        if part == b".." {
            at = at.parent().unwrap_or_else(TreePath::root);
            continue;
        }
        let next = at.join(&part)?;
        let Ok(found) = place(root, &next).symlink_metadata() else {
            return Ok(None);
        };
        if !found.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            let problem = "too many links".to_owned();
            return Err(BuildError::Tree { path: next, problem });
        }
        let link = fs::read_link(place(root, &next)).map_err(BuildError::io(format!("{next}: reading the link")))?;
        let link = link.as_os_str().as_bytes();
        if link.starts_with(b"/") {
            at = TreePath::root();
        }
        pending.extend(split(link));
    }
    Ok(Some(at))
}

/// The libraries a program of the tree is linked with, directly or not; none for a static one, a script, or data.
fn libraries(root: &Path, path: &TreePath) -> Result<Vec<TreePath>, BuildError> {
    let content = fs::read(place(root, path)).map_err(BuildError::io(format!("{path}: reading")))?;
    if !content.starts_with(b"\x7fELF") {
        return Ok(Vec::new());
    }
    let ask = |option: &str| {
        let mut loader = command("chroot");
        let program = std::ffi::OsStr::from_bytes(path.as_bytes());
        loader.arg(root).args([LOADER, option]).arg(program);
        loader
    };
    // Exit status 1: no dynamic object, so there is nothing to list.
    let verified = ask("--verify").output().map_err(BuildError::io("starting chroot"))?;
    if verified.status.code() == Some(1) {
        return Ok(Vec::new());
    }
    let listing = output(&format!("listing the libraries of {path}"), ask("--list"))?;
    parse_libraries(&String::from_utf8_lossy(&listing), path)
}

/// Reads what `ld.so --list` (or `ldd`) says.
fn parse_libraries(listing: &str, program: &TreePath) -> Result<Vec<TreePath>, BuildError> {
    let mut libraries = Vec::new();
    for line in listing.lines().map(str::trim) {
        if line.ends_with("=> not found") {
            return Err(BuildError::Tree {
                path: program.clone(),
                problem: format!("needs a library that no package of the recipe brings: {line}"),
            });
        }
        let file = line.split_once(" => ").map_or(line, |(_, file)| file);
        // Without a path: the kernel's own (linux-vdso).
        if let Some(file) = file.split(" (").next().filter(|file| file.starts_with('/')) {
            libraries.push(file.parse()?);
        }
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> TreePath {
        text.parse().unwrap()
    }

    #[test]
    fn links_are_taken_inside_the_tree() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        fs::write(root.join("usr/bin/kmod"), "").unwrap();
        symlink("usr/bin", root.join("bin")).unwrap();
        symlink("/bin/kmod", root.join("usr/bin/modprobe")).unwrap();
        symlink("../../../../bin/kmod", root.join("usr/bin/lsmod")).unwrap();
        symlink("circle", root.join("circle")).unwrap();
        for name in ["/bin/modprobe", "/usr/bin/lsmod", "/bin/kmod"] {
            assert_eq!(
                resolve(root, &path(name)).unwrap(),
                Some(path("/usr/bin/kmod")),
                "{name}"
            );
        }
        assert_eq!(resolve(root, &path("/bin/gone")).unwrap(), None);
        assert!(resolve(root, &path("/circle")).is_err());
    }

    #[test]
    fn a_link_brings_what_it_leads_to() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(from.path().join("usr/sbin")).unwrap();
        fs::create_dir_all(from.path().join("usr/bin")).unwrap();
        fs::write(from.path().join("usr/bin/kmod"), "#!/bin/sh\n").unwrap();
        symlink("/usr/bin/kmod", from.path().join("usr/sbin/modprobe")).unwrap();
        symlink("usr/sbin", from.path().join("sbin")).unwrap();
        copy(from.path(), to.path(), &path("/sbin/modprobe")).unwrap();
        assert!(to.path().join("usr/bin/kmod").is_file());
        assert_eq!(
            fs::read_link(to.path().join("usr/sbin/modprobe")).unwrap(),
            Path::new("/usr/bin/kmod")
        );
        let error = copy(from.path(), to.path(), &path("/usr/bin/lsblk"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("/usr/bin/lsblk: programs names it"), "{error}");
    }

    #[test]
    fn libraries_are_read_from_what_the_loader_says() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibblkid.so.1 => /lib/x86_64-linux-gnu/libblkid.so.1 (0x7f)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let found = parse_libraries(listing, &path("/x")).unwrap();
        assert_eq!(
            found,
            [
                path("/lib/x86_64-linux-gnu/libblkid.so.1"),
                path("/lib64/ld-linux-x86-64.so.2")
            ]
        );
        let error = parse_libraries("\tlibaio.so.1 => not found\n", &path("/usr/sbin/lvm"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("/usr/sbin/lvm") && error.contains("libaio"), "{error}");
    }
}
