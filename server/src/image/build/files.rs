//! Changing the tree: copying a recipe's files into it, owners and modes, removing what does not belong.
//!
//! Everything here resolves paths inside the tree. A link in the tree is followed only by the tools that run inside it;
//! here a link on the way is an error, since an absolute one would lead to the build machine.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use manifest::{PathPattern, TreePath};

use super::super::recipe::ModeRule;
use super::BuildError;

/// Where a path of the tree lies on the build machine.
pub(super) fn place(root: &Path, path: &TreePath) -> PathBuf {
    root.join(OsStr::from_bytes(path.relative()))
}

/// Fails when a folder on the way to this path is a link.
fn check_way(root: &Path, path: &TreePath) -> Result<(), BuildError> {
    let mut folder = path.parent();
    while let Some(path) = folder {
        let found = place(root, &path).symlink_metadata();
        if found.is_ok_and(|found| found.is_symlink()) {
            let problem = "is a link: name the folder it leads to".to_owned();
            return Err(BuildError::Tree { path, problem });
        }
        folder = path.parent();
    }
    Ok(())
}

/// Copies a recipe's folder `files` over the tree. Owner is root, folders are 0755, files 0755 or 0644 after their
/// execute bit, as git keeps them.
pub(super) fn copy(from: &Path, root: &Path) -> Result<(), BuildError> {
    if from.exists() {
        copy_folder(from, root, &TreePath::root())?;
    }
    Ok(())
}

fn copy_folder(from: &Path, root: &Path, at: &TreePath) -> Result<(), BuildError> {
    let failed = |path: &Path| BuildError::io(format!("copying {}", path.display()));
    for item in fs::read_dir(from).map_err(failed(from))? {
        let item = item.map_err(failed(from))?;
        let source = item.path();
        let path = at.join(item.file_name().as_bytes())?;
        check_way(root, &path)?;
        let target = place(root, &path);
        let there = target.symlink_metadata().ok();
        let kind = item.file_type().map_err(failed(&source))?;
        if kind.is_dir() {
            match there {
                Some(there) if there.is_dir() => {}
                Some(_) => {
                    let problem = "the recipe's files have a folder here, the packages do not".to_owned();
                    return Err(BuildError::Tree { path, problem });
                }
                None => {
                    fs::create_dir(&target).map_err(failed(&source))?;
                    own(&target, 0, 0, 0o755)?;
                }
            }
            copy_folder(&source, root, &path)?;
            continue;
        }
        if there.is_some() {
            // A link stands there at times (resolv.conf): it is replaced and not written through.
            fs::remove_file(&target).map_err(failed(&source))?;
        }
        if kind.is_symlink() {
            let link = fs::read_link(&source).map_err(failed(&source))?;
            symlink(link, &target).map_err(failed(&source))?;
            lchown(&target, Some(0), Some(0)).map_err(failed(&source))?;
        } else {
            let executable = item.metadata().map_err(failed(&source))?.mode() & 0o100 != 0;
            fs::copy(&source, &target).map_err(failed(&source))?;
            own(&target, 0, 0, if executable { 0o755 } else { 0o644 })?;
        }
    }
    Ok(())
}

/// Writes a file of the tree, mode 0644, with the folders on its way.
pub(super) fn write(root: &Path, path: &TreePath, content: &[u8]) -> Result<(), BuildError> {
    check_way(root, path)?;
    let target = place(root, path);
    if let Some(parent) = path.parent() {
        create_folders(root, &parent)?;
    }
    if target.symlink_metadata().is_ok() {
        fs::remove_file(&target).map_err(BuildError::io(format!("replacing {path}")))?;
    }
    fs::write(&target, content).map_err(BuildError::io(format!("writing {path}")))?;
    own(&target, 0, 0, 0o644)
}

/// Makes a folder of the tree and those on its way, mode 0755.
pub(super) fn create_folders(root: &Path, path: &TreePath) -> Result<(), BuildError> {
    let target = place(root, path);
    if target.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        create_folders(root, &parent)?;
    }
    fs::create_dir(&target).map_err(BuildError::io(format!("making {path}")))?;
    own(&target, 0, 0, 0o755)
}

/// Sets owner and mode of the paths that the recipe names.
pub(super) fn apply_modes(root: &Path, modes: &[ModeRule]) -> Result<(), BuildError> {
    for rule in modes {
        check_way(root, &rule.path)?;
        let target = place(root, &rule.path);
        match target.symlink_metadata() {
            Ok(found) if !found.is_symlink() => own(&target, rule.uid, rule.gid, rule.mode.0)?,
            _ => {
                let problem = "modes names it, expected a file or folder there".to_owned();
                let path = rule.path.clone();
                return Err(BuildError::Tree { path, problem });
            }
        }
    }
    Ok(())
}

/// Sets owner and mode of a file or folder that is there.
pub(super) fn set_owner_mode(root: &Path, path: &TreePath, uid: u32, gid: u32, mode: u32) -> Result<(), BuildError> {
    check_way(root, path)?;
    own(&place(root, path), uid, gid, mode)
}

fn own(target: &Path, uid: u32, gid: u32, mode: u32) -> Result<(), BuildError> {
    let failed = || BuildError::io(format!("owner and mode of {}", target.display()));
    // Changing the owner clears setuid: mode comes last.
    lchown(target, Some(uid), Some(gid)).map_err(failed())?;
    fs::set_permissions(target, fs::Permissions::from_mode(mode)).map_err(failed())
}

/// Removes whatever a pattern covers, with all below it. Says how many paths that were.
pub(super) fn remove(root: &Path, patterns: &[PathPattern]) -> Result<u64, BuildError> {
    if patterns.is_empty() {
        return Ok(0);
    }
    remove_in(root, &TreePath::root(), patterns)
}

fn remove_in(root: &Path, folder: &TreePath, patterns: &[PathPattern]) -> Result<u64, BuildError> {
    let failed = |path: &TreePath| BuildError::io(format!("removing {path}"));
    let mut removed = 0;
    for item in fs::read_dir(place(root, folder)).map_err(failed(folder))? {
        let item = item.map_err(failed(folder))?;
        let path = folder.join(item.file_name().as_bytes())?;
        let is_folder = item.file_type().map_err(failed(&path))?.is_dir();
        if patterns.iter().any(|pattern| pattern.matches(&path)) {
            removed += 1;
            if is_folder {
                fs::remove_dir_all(item.path()).map_err(failed(&path))?;
            } else {
                fs::remove_file(item.path()).map_err(failed(&path))?;
            }
        } else if is_folder {
            removed += remove_in(root, &path, patterns)?;
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::super::super::recipe::OctalMode;
    use super::*;

    fn path(text: &str) -> TreePath {
        text.parse().unwrap()
    }

    #[test]
    fn files_are_laid_over_the_tree_and_replace_links() {
        let (from, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(from.path().join("etc/x")).unwrap();
        fs::write(from.path().join("etc/resolv.conf"), "# rendered\n").unwrap();
        fs::write(from.path().join("etc/x/run"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(from.path().join("etc/x/run"), fs::Permissions::from_mode(0o770)).unwrap();
        symlink("x/run", from.path().join("etc/link")).unwrap();
        fs::create_dir(tree.path().join("etc")).unwrap();
        let outside = tree.path().join("outside");
        fs::write(&outside, "untouched").unwrap();
        symlink(&outside, tree.path().join("etc/resolv.conf")).unwrap();

        copy(from.path(), tree.path()).unwrap();
        assert_eq!(fs::read_to_string(&outside).unwrap(), "untouched");
        assert_eq!(
            fs::read_to_string(tree.path().join("etc/resolv.conf")).unwrap(),
            "# rendered\n"
        );
        assert!(!tree.path().join("etc/resolv.conf").is_symlink());
        assert_eq!(
            fs::metadata(tree.path().join("etc/x/run")).unwrap().mode() & 0o7777,
            0o755
        );
        assert_eq!(fs::read_link(tree.path().join("etc/link")).unwrap(), Path::new("x/run"));
    }

    #[test]
    fn a_link_on_the_way_out_of_the_tree_is_an_error() {
        let (from, tree, outside) = (
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
        );
        fs::create_dir_all(from.path().join("lib/modules")).unwrap();
        fs::write(from.path().join("lib/modules/x"), "").unwrap();
        symlink(outside.path(), tree.path().join("lib")).unwrap();
        let error = copy(from.path(), tree.path()).unwrap_err().to_string();
        assert!(error.contains("/lib: "), "{error}");
        assert!(write(tree.path(), &path("/lib/x"), b"").is_err());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn modes_are_applied_and_a_missing_path_is_named() {
        let tree = tempfile::tempdir().unwrap();
        fs::write(tree.path().join("su"), "").unwrap();
        let rule = |name: &str| ModeRule {
            path: path(name),
            mode: OctalMode(0o4750),
            uid: 0,
            gid: 0,
        };
        apply_modes(tree.path(), &[rule("/su")]).unwrap();
        assert_eq!(fs::metadata(tree.path().join("su")).unwrap().mode() & 0o7777, 0o4750);
        let error = apply_modes(tree.path(), &[rule("/sudo")]).unwrap_err().to_string();
        assert!(error.contains("/sudo"), "{error}");
    }

    #[test]
    fn removal_takes_what_the_patterns_cover_and_follows_no_link() {
        let (tree, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(tree.path().join("usr/share/doc/a/examples/x")).unwrap();
        fs::write(tree.path().join("usr/share/doc/a/copyright"), "").unwrap();
        fs::write(outside.path().join("keep"), "").unwrap();
        symlink(outside.path(), tree.path().join("usr/share/doc/b")).unwrap();
        let patterns = ["/usr/share/doc/*/examples", "/usr/share/doc/*/keep"].map(|p| p.parse().unwrap());
        assert_eq!(remove(tree.path(), &patterns).unwrap(), 1);
        assert!(tree.path().join("usr/share/doc/a/copyright").exists());
        assert!(!tree.path().join("usr/share/doc/a/examples").exists());
        assert!(outside.path().join("keep").exists());
    }
}
