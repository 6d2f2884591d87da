//! From a tree to manifest entries.
//!
//! The walk goes from a directory handle, never follows a link, never leaves the filesystem it started on, and takes
//! names as bytes in sorted order, so that the same tree gives the same manifest.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use manifest::{ClassRules, Entry, EntryKind, FileContent, Hasher, PathClass, TreePath, Xattrs};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use super::BuildError;
use super::progress::Reporter;

/// Read at once while hashing.
const CHUNK_BYTES: usize = 256 << 10;

/// What a walk needs beside the tree.
pub(super) struct Walk<'a> {
    /// The tree's top.
    pub root: &'a Path,
    /// Class rules of the recipe.
    pub classes: &'a ClassRules,
    /// Times after this instant (seconds since 1970) are brought back to it: they only say when the build ran.
    pub epoch: i64,
    /// Says how far it is.
    pub reporter: &'a Reporter,
}

struct Progressing {
    entries: Vec<Entry>,
    bytes: u64,
    said_at: std::time::Instant,
    device: u64,
}

impl Walk<'_> {
    /// Every path of the tree with its class, in byte order; ignored paths are left out, and everything below them.
    ///
    /// # Errors
    /// [`BuildError::Tree`] for what an image cannot hold: a socket, another filesystem mounted inside.
    pub fn entries(&self) -> Result<Vec<Entry>, BuildError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = rustix::fs::open(self.root, flags, Mode::empty()).map_err(io_error(&TreePath::root()))?;
        let stat = rustix::fs::fstat(&handle).map_err(io_error(&TreePath::root()))?;
        let mut state = Progressing {
            entries: Vec::new(),
            bytes: 0,
            said_at: std::time::Instant::now(),
            device: stat.st_dev,
        };
        let root = self.entry(&TreePath::root(), &stat, EntryKind::Directory)?;
        state.entries.push(root);
        self.folder(&handle, &TreePath::root(), &mut state)?;
        // Depth first gives /a/b before /a-b; the manifest sorts by bytes.
        state.entries.sort_by(|a, b| a.path.cmp(&b.path));
        self.reporter.say(
            "walk",
            format!("{} paths, {} MB", state.entries.len(), state.bytes / 1_000_000),
        )?;
        Ok(state.entries)
    }

    fn folder(&self, handle: &OwnedFd, path: &TreePath, state: &mut Progressing) -> Result<(), BuildError> {
        let mut names = Vec::new();
        for item in Dir::read_from(handle).map_err(io_error(path))? {
            let item = item.map_err(io_error(path))?;
            let name = item.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        names.sort();
        for name in names {
            let path = path.join(&name)?;
            if self.classes.class_of(&path) != PathClass::Ignored {
                self.path(handle, &name, &path, state)?;
            }
        }
        Ok(())
    }

    fn path(&self, folder: &OwnedFd, name: &[u8], path: &TreePath, state: &mut Progressing) -> Result<(), BuildError> {
        let name = OsStr::from_bytes(name);
        let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io_error(path))?;
        if stat.st_dev != state.device {
            return Err(tree_error(path, "another filesystem is mounted here"));
        }
        let open = |flags: OFlags| {
            let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            rustix::fs::openat(folder, name, flags, Mode::empty()).map_err(io_error(path))
        };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                state.entries.push(self.entry(path, &stat, EntryKind::Directory)?);
                return self.folder(&open(OFlags::DIRECTORY)?, path, state);
            }
            FileType::RegularFile => {
                let content = hash(open(OFlags::empty())?, path)?;
                state.bytes += content.size;
                EntryKind::File(Some(content))
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(folder, name, Vec::new()).map_err(io_error(path))?;
                EntryKind::Symlink(target.into_bytes())
            }
            FileType::CharacterDevice => EntryKind::CharacterDevice(major(&stat), minor(&stat)),
            FileType::BlockDevice => EntryKind::BlockDevice(major(&stat), minor(&stat)),
            FileType::Fifo => EntryKind::Fifo,
            FileType::Socket => return Err(tree_error(path, "a socket: images hold none")),
            _ => return Err(tree_error(path, "a file of unknown type")),
        };
        state.entries.push(self.entry(path, &stat, kind)?);
        if state.said_at.elapsed().as_secs() >= 2 {
            state.said_at = std::time::Instant::now();
            let line = format!("{} paths, {} MB", state.entries.len(), state.bytes / 1_000_000);
            self.reporter.show("walk", line)?;
        }
        Ok(())
    }

    fn entry(&self, path: &TreePath, stat: &Stat, kind: EntryKind) -> Result<Entry, BuildError> {
        Ok(Entry {
            path: path.clone(),
            class: self.classes.class_of(path),
            kind,
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            mtime: stat.st_mtime.min(self.epoch),
            xattrs: self.xattrs(path)?,
        })
    }

    /// All extended attributes of the path itself. They cannot be read by handle without opening, which a device or a
    /// link does not allow; nobody else writes in the tree.
    fn xattrs(&self, path: &TreePath) -> Result<Xattrs, BuildError> {
        let file = self.root.join(OsStr::from_bytes(path.relative()));
        let failed = || BuildError::io(format!("{path}: extended attributes"));
        let mut xattrs = Xattrs::new();
        for name in xattr::list(&file).map_err(failed())? {
            let text = name
                .to_str()
                .ok_or_else(|| tree_error(path, "an extended attribute's name is not UTF-8"))?;
            if let Some(value) = xattr::get(&file, &name).map_err(failed())? {
                xattrs.insert(text.to_owned(), value);
            }
        }
        Ok(xattrs)
    }
}

fn hash(handle: OwnedFd, path: &TreePath) -> Result<FileContent, BuildError> {
    let failed = || BuildError::io(format!("{path}: reading"));
    let before = rustix::fs::fstat(handle.as_fd()).map_err(io_error(path))?;
    let mut file = File::from(handle);
    let mut hasher = Hasher::new();
    let mut chunk = vec![0; CHUNK_BYTES.min(usize::try_from(before.st_size).unwrap_or(CHUNK_BYTES).max(1))];
    let mut size = 0;
    loop {
        let read = file.read(&mut chunk).map_err(failed())?;
        if read == 0 {
            break;
        }
        hasher.update(&chunk[..read]);
        size += read as u64;
    }
    Ok(FileContent {
        size,
        digest: hasher.finish(),
    })
}

fn major(stat: &Stat) -> u32 {
    rustix::fs::major(stat.st_rdev)
}

fn minor(stat: &Stat) -> u32 {
    rustix::fs::minor(stat.st_rdev)
}

fn io_error(path: &TreePath) -> impl FnOnce(rustix::io::Errno) -> BuildError {
    let what = path.to_string();
    move |error| BuildError::Io {
        what,
        source: error.into(),
    }
}

fn tree_error(path: &TreePath, problem: &str) -> BuildError {
    BuildError::Tree {
        path: path.clone(),
        problem: problem.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use manifest::Digest;

    use super::*;

    fn walk(root: &Path, rules: &str) -> Result<Vec<Entry>, BuildError> {
        let (reporter, _lines) = Reporter::channel();
        let classes: ClassRules = serde_json::from_str(rules).unwrap();
        Walk {
            root,
            classes: &classes,
            epoch: 1_000_000_000,
            reporter: &reporter,
        }
        .entries()
    }

    fn paths(entries: &[Entry]) -> Vec<String> {
        entries.iter().map(|entry| entry.path.to_string()).collect()
    }

    #[test]
    fn a_tree_is_described_as_it_lies_there() {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a-b"), "abc").unwrap();
        std::fs::write(root.join("a/b/set"), "").unwrap();
        std::fs::set_permissions(root.join("a/b/set"), std::fs::Permissions::from_mode(0o4755)).unwrap();
        std::fs::write(root.join(OsStr::from_bytes(b"V\xedctor\n")), "x").unwrap();
        symlink("/etc/shadow", root.join("link")).unwrap();
        symlink("..", root.join("a/loop")).unwrap();
        let entries = walk(root, "[]").unwrap();
        assert_eq!(
            paths(&entries),
            [
                "/",
                "/V\\xedctor\\x0a",
                "/a",
                "/a-b",
                "/a/b",
                "/a/b/set",
                "/a/loop",
                "/link"
            ]
        );
        let content = FileContent {
            size: 3,
            digest: Digest::of(b"abc"),
        };
        assert_eq!(entries[3].kind, EntryKind::File(Some(content)));
        assert_eq!(
            entries[3].mtime, 1_000_000_000,
            "times after the build's instant are brought back"
        );
        assert_eq!(entries[5].mode, 0o4755);
        assert_eq!(entries[7].kind, EntryKind::Symlink(b"/etc/shadow".to_vec()));
    }

    #[test]
    fn classes_come_from_the_rules_and_ignored_paths_are_left_out() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join("var/log/x")).unwrap();
        std::fs::write(tree.path().join("var/log/x/y"), "").unwrap();
        std::fs::write(tree.path().join("var/keep"), "").unwrap();
        let rules = r#"[{"path":"/var/log/**","class":"ignored"},{"path":"/var/keep","class":"volatile"}]"#;
        let entries = walk(tree.path(), rules).unwrap();
        assert_eq!(paths(&entries), ["/", "/var", "/var/keep"]);
        assert_eq!(entries[2].class, PathClass::Volatile);
        assert_eq!(entries[1].class, PathClass::Pinned);
    }

    #[test]
    fn extended_attributes_are_kept() {
        let tree = tempfile::tempdir().unwrap();
        let file = tree.path().join("file");
        std::fs::write(&file, "").unwrap();
        xattr::set(&file, "user.note", b"\x00\xff").unwrap();
        let entries = walk(tree.path(), "[]").unwrap();
        assert_eq!(entries[1].xattrs["user.note"], b"\x00\xff");
    }

    #[test]
    fn a_socket_is_no_part_of_an_image() {
        let tree = tempfile::tempdir().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(tree.path().join("s")).unwrap();
        let error = walk(tree.path(), "[]").unwrap_err().to_string();
        assert!(error.contains("/s: a socket"), "{error}");
    }
}
