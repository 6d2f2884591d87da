//! Making archives and images, unpacking them, and reading what came of it.

mod images;
mod server;
mod tars;

use std::ops::ControlFlow;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use imports::{Import, ImportError, Imported, Limits, Source};

pub use images::{Images, gzip, sha256};
pub use server::{Behaviour, Server};
pub use tars::Tar;

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// An unpacked root.
pub struct Unpacked {
    _base: tempfile::TempDir,
    pub root: PathBuf,
    pub imported: Imported,
}

/// Unpacks with these limits. Whatever comes of it: there is a root, or nothing at all.
pub fn unpack_with(source: Source, limits: &Limits) -> Result<Unpacked, ImportError> {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().join("root");
    let result =
        Import::open(source, limits).and_then(|import| import.unpack_into(&root, &mut |_| ControlFlow::Continue(())));
    let names: Vec<_> = std::fs::read_dir(base.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    match result {
        Ok(imported) => {
            assert_eq!(names, ["root"], "only the root is left");
            Ok(Unpacked {
                _base: base,
                root,
                imported,
            })
        }
        Err(error) => {
            assert_eq!(names, [] as [&str; 0], "nothing is left after {error}");
            Err(error)
        }
    }
}

pub fn unpack(source: Source) -> Result<Unpacked, ImportError> {
    unpack_with(source, &Limits::default())
}

/// A tarball in a file of its own.
pub struct File {
    _folder: tempfile::TempDir,
    pub path: PathBuf,
}

pub fn file(name: &str, content: &[u8]) -> File {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    File { _folder: folder, path }
}

pub fn tarball(content: &[u8]) -> Result<Unpacked, ImportError> {
    tarball_with(content, &Limits::default())
}

pub fn tarball_with(content: &[u8], limits: &Limits) -> Result<Unpacked, ImportError> {
    let file = file("root.tar", content);
    unpack_with(
        Source::Tarball {
            path: file.path.clone(),
        },
        limits,
    )
}

/// One line for each path: type, mode, owner, and content, target or link count.
pub fn listing(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    list(root, "", &mut lines);
    lines.sort();
    lines
}

fn list(root: &Path, below: &str, lines: &mut Vec<String>) {
    for entry in std::fs::read_dir(root.join(below)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = if below.is_empty() {
            name
        } else {
            format!("{below}/{name}")
        };
        let full = root.join(&path);
        let metadata = full.symlink_metadata().unwrap();
        let kind = metadata.file_type();
        let what = if kind.is_dir() {
            "folder".to_owned()
        } else if kind.is_symlink() {
            format!("-> {}", std::fs::read_link(&full).unwrap().display())
        } else if kind.is_fifo() {
            "fifo".to_owned()
        } else {
            let content = std::fs::read(&full).unwrap();
            let links = if metadata.nlink() > 1 {
                format!(" ({} links)", metadata.nlink())
            } else {
                String::new()
            };
            format!(
                "{:?}{links}",
                String::from_utf8_lossy(&content[..content.len().min(40)])
            )
        };
        lines.push(format!(
            "{path} {:04o} {}:{} {what}",
            metadata.mode() & 0o7777,
            metadata.uid(),
            metadata.gid()
        ));
        if kind.is_dir() {
            list(root, &path, lines);
        }
    }
}

/// Only the paths.
pub fn paths(root: &Path) -> Vec<String> {
    listing(root)
        .iter()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect()
}
