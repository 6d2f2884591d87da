//! A root folder, or the running node, behind [`Place`].
//!
//! Invariant: every path is walked one component at a time from the handle of the root, and a link on the way is taken
//! inside the root, as it would be once that root is `/`. So a link to `/etc/shadow`, or to `../../..`, in a built root
//! never reads the machine's own file. Refused: `openat2` with RESOLVE_IN_ROOT, which does the same and is missing where
//! some builds run.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use manifest::TreePath;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;

use crate::place::{FILE_BYTES_MAX, FOLDER_NAMES_MAX, FileKind, Metadata, Place, Unlooked, WALK_ENTRIES_MAX};

/// Links followed before a path counts as a circle, as the kernel does.
const LINKS_MAX: usize = 40;
/// Folders on the way to a path; each takes a handle.
const DEPTH_MAX: usize = 200;
/// Folders of a root that are mount points of the kernel's and of memory's filesystems.
const NOT_WALKED: [&[u8]; 4] = [b"/dev", b"/proc", b"/run", b"/sys"];

/// A root folder, or the running node.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    folder: PathBuf,
    device: u64,
    running: bool,
    command_line: Option<String>,
}

/// Where a path really lies.
pub(crate) struct Located {
    /// The folder.
    pub(crate) folder: OwnedFd,
    /// Its name there; `.` for the folder itself.
    pub(crate) name: Vec<u8>,
    /// What it is.
    pub(crate) stat: Stat,
    /// Its path with no link on the way.
    pub(crate) path: TreePath,
}

impl Tree {
    /// A root folder as an image build leaves it. Only files answer.
    ///
    /// # Errors
    /// The system's, when the folder cannot be opened.
    pub fn folder(folder: &Path) -> std::io::Result<Self> {
        Self::open(folder, false)
    }

    /// The running node whose root is at this folder: `/`, or where a container sees it. /proc and /sys answer too.
    ///
    /// # Errors
    /// The system's, when the folder cannot be opened.
    pub fn running_at(folder: &Path) -> std::io::Result<Self> {
        Self::open(folder, true)
    }

    /// Says what command line a built root will be started with.
    #[must_use]
    pub fn with_command_line(mut self, command_line: &str) -> Self {
        self.command_line = Some(command_line.to_owned());
        self
    }

    fn open(folder: &Path, running: bool) -> std::io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, folder, flags, Mode::empty())?;
        let device = fstat(&root)?.st_dev;
        Ok(Self {
            root,
            folder: folder.to_owned(),
            device,
            running,
            command_line: None,
        })
    }

    /// Finds a path. `None`: not there.
    pub(crate) fn locate(&self, path: &TreePath, follow_last: bool) -> Result<Option<Located>, Unlooked> {
        let failed = |error: Errno| Unlooked::unreadable(path, error);
        let mut pending = parts(path.as_bytes());
        let mut way: Vec<(OwnedFd, TreePath)> = Vec::new();
        let mut links = 0;
        while let Some(part) = pending.pop() {
            if part == b".." {
                way.pop();
                continue;
            }
            let (top, at) = way.last().map_or((self.root.as_fd(), TreePath::root()), |(fd, at)| {
                (fd.as_fd(), at.clone())
            });
            let here = at.join(&part).map_err(|error| Unlooked::unreadable(path, error))?;
            let name = OsStr::from_bytes(&part);
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let found = match openat(top, name, flags, Mode::empty()) {
                Ok(found) => found,
                Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
                Err(error) => return Err(failed(error)),
            };
            let stat = fstat(&found).map_err(failed)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink if follow_last || !pending.is_empty() => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Unlooked::unreadable(path, "too many links"));
                    }
                    let link = readlinkat(&found, "", Vec::new()).map_err(failed)?;
                    if link.as_bytes().starts_with(b"/") {
                        way.clear();
                    }
                    pending.extend(parts(link.as_bytes()));
                }
                FileType::Directory => {
                    if way.len() >= DEPTH_MAX {
                        return Err(Unlooked::too_large(path, format!("{DEPTH_MAX} folders deep")));
                    }
                    way.push((found, here));
                }
                _ if pending.is_empty() => {
                    let folder = top
                        .try_clone_to_owned()
                        .map_err(|error| Unlooked::unreadable(path, error))?;
                    return Ok(Some(Located {
                        folder,
                        name: part,
                        stat,
                        path: here,
                    }));
                }
                // Something below what is no folder.
                _ => return Ok(None),
            }
        }
        let (folder, at) = match way.pop() {
            Some(last) => last,
            None => {
                let root = self
                    .root
                    .try_clone()
                    .map_err(|error| Unlooked::unreadable(path, error))?;
                (root, TreePath::root())
            }
        };
        let stat = fstat(&folder).map_err(failed)?;
        Ok(Some(Located {
            folder,
            name: b".".to_vec(),
            stat,
            path: at,
        }))
    }

    /// Whether a file carries capabilities. `path` has no link on the way: it comes from a walk.
    fn has_capabilities(&self, path: &TreePath) -> Result<bool, Unlooked> {
        let place = self.folder.join(OsStr::from_bytes(path.relative()));
        let mut value = [0; 64];
        match rustix::fs::lgetxattr(&place, "security.capability", &mut value[..]) {
            Ok(_) | Err(Errno::RANGE) => Ok(true),
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOENT) => Ok(false),
            Err(error) => Err(Unlooked::unreadable(path, error)),
        }
    }
}

impl Place for Tree {
    fn read(&self, path: &TreePath) -> Result<Option<Vec<u8>>, Unlooked> {
        let Some(found) = self.locate(path, true)? else {
            return Ok(None);
        };
        if FileType::from_raw_mode(found.stat.st_mode) != FileType::RegularFile {
            return Err(Unlooked::unreadable(path, "no regular file"));
        }
        let failed = |error: std::io::Error| Unlooked::unreadable(path, error);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&found.folder, OsStr::from_bytes(&found.name), flags, Mode::empty())
            .map_err(|error| failed(error.into()))?;
        let mut bytes = Vec::new();
        // Files of /proc have no size: what is read counts.
        std::io::Read::read_to_end(
            &mut std::io::Read::take(std::fs::File::from(file), FILE_BYTES_MAX + 1),
            &mut bytes,
        )
        .map_err(failed)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(Unlooked::too_large(path, format!("{FILE_BYTES_MAX} bytes")));
        }
        Ok(Some(bytes))
    }

    fn list(&self, path: &TreePath) -> Result<Option<Vec<Vec<u8>>>, Unlooked> {
        let Some(found) = self.locate(path, true)? else {
            return Ok(None);
        };
        if FileType::from_raw_mode(found.stat.st_mode) != FileType::Directory {
            return Ok(None);
        }
        names(&found.folder, path).map(|(_, names)| Some(names))
    }

    fn metadata(&self, path: &TreePath) -> Result<Option<Metadata>, Unlooked> {
        Ok(self.locate(path, true)?.map(|found| metadata(&found.stat)))
    }

    fn read_link(&self, path: &TreePath) -> Result<Option<Vec<u8>>, Unlooked> {
        let Some(found) = self.locate(path, false)? else {
            return Ok(None);
        };
        if FileType::from_raw_mode(found.stat.st_mode) != FileType::Symlink {
            return Ok(None);
        }
        readlinkat(&found.folder, OsStr::from_bytes(&found.name), Vec::new())
            .map(|link| Some(link.into_bytes()))
            .map_err(|error| Unlooked::unreadable(path, error))
    }

    fn walk(&self, visit: &mut dyn FnMut(&TreePath, &Metadata)) -> Result<(), Unlooked> {
        let mut pending = vec![TreePath::root()];
        let mut entries = 0;
        while let Some(folder) = pending.pop() {
            // Gone since its parent was listed.
            let Some(found) = self.locate(&folder, false)? else {
                continue;
            };
            if FileType::from_raw_mode(found.stat.st_mode) != FileType::Directory {
                continue;
            }
            let (handle, names) = names(&found.folder, &folder)?;
            for name in names {
                entries += 1;
                if entries > WALK_ENTRIES_MAX {
                    return Err(Unlooked::too_large(&folder, format!("{WALK_ENTRIES_MAX} files in all")));
                }
                let path = folder
                    .join(&name)
                    .map_err(|error| Unlooked::unreadable(&folder, error))?;
                let stat = match statat(&handle, OsStr::from_bytes(&name), AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => stat,
                    Err(Errno::NOENT) => continue,
                    Err(error) => return Err(Unlooked::unreadable(&path, error)),
                };
                let mut metadata = metadata(&stat);
                if metadata.kind == FileKind::File && metadata.mode & 0o111 != 0 {
                    metadata.has_capabilities = self.has_capabilities(&path)?;
                }
                visit(&path, &metadata);
                let is_walked = !NOT_WALKED.contains(&path.as_bytes()) && stat.st_dev == self.device;
                if metadata.kind == FileKind::Folder && is_walked {
                    pending.push(path);
                }
            }
        }
        Ok(())
    }

    fn is_running(&self) -> bool {
        self.running
    }

    fn command_line(&self) -> Result<String, Unlooked> {
        if let Some(command_line) = &self.command_line {
            return Ok(command_line.clone());
        }
        let unknown = || Unlooked::NotKnown {
            what: "the kernel command line".to_owned(),
        };
        if !self.running {
            return Err(unknown());
        }
        let path = TreePath::from_bytes(b"/proc/cmdline").map_err(|_| unknown())?;
        let bytes = self.read(&path)?.ok_or_else(unknown)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }
}

/// Components in the order in which they are popped.
fn parts(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut parts: Vec<_> = bytes
        .split(|&byte| byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .map(<[u8]>::to_vec)
        .collect();
    parts.reverse();
    parts
}

/// Opens a folder for reading and lists it, in order of bytes.
fn names(folder: &OwnedFd, path: &TreePath) -> Result<(OwnedFd, Vec<Vec<u8>>), Unlooked> {
    let failed = |error: Errno| Unlooked::unreadable(path, error);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = openat(folder, ".", flags, Mode::empty()).map_err(failed)?;
    let mut names = Vec::new();
    for entry in Dir::read_from(&handle).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if names.len() >= FOLDER_NAMES_MAX {
            return Err(Unlooked::too_large(path, format!("{FOLDER_NAMES_MAX} names")));
        }
        names.push(name.to_vec());
    }
    names.sort();
    Ok((handle, names))
}

fn metadata(stat: &Stat) -> Metadata {
    Metadata {
        kind: match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Folder,
            FileType::Symlink => FileKind::Link,
            _ => FileKind::Other,
        },
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        bytes: u64::try_from(stat.st_size).unwrap_or(0),
        has_capabilities: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn path(text: &str) -> TreePath {
        text.parse().unwrap()
    }

    #[test]
    fn links_never_leave_the_root() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(outer.path().join("secret"), "outside").unwrap();
        let secret = outer.path().join("secret");
        // By an absolute link, by climbing, through a linked folder.
        symlink(&secret, root.join("etc/absolute")).unwrap();
        symlink("../../secret", root.join("etc/climbing")).unwrap();
        symlink("../../../../../../..", root.join("up")).unwrap();
        symlink(outer.path(), root.join("folder")).unwrap();
        let tree = Tree::folder(&root).unwrap();
        for name in ["/etc/absolute", "/etc/climbing", "/folder/secret"] {
            assert_eq!(tree.read(&path(name)).unwrap(), None, "{name}");
            assert_eq!(tree.metadata(&path(name)).unwrap(), None, "{name}");
        }
        // Climbing ends at the root, as it does at `/`.
        fs::write(root.join("secret"), "inside").unwrap();
        assert_eq!(tree.read(&path("/etc/climbing")).unwrap().unwrap(), b"inside");
        assert_eq!(tree.read(&path("/up/secret")).unwrap().unwrap(), b"inside");
        assert_eq!(tree.list(&path("/folder")).unwrap(), None);
        let mut seen = Vec::new();
        tree.walk(&mut |path, _| seen.push(path.to_string())).unwrap();
        assert!(!seen.iter().any(|path| path.starts_with("/folder/")), "{seen:?}");
    }

    #[test]
    fn links_inside_the_root_lead_on_and_circles_end() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("usr/lib")).unwrap();
        fs::write(root.path().join("usr/lib/os-release"), "ID=debian").unwrap();
        symlink("usr/lib", root.path().join("lib")).unwrap();
        symlink("/lib/os-release", root.path().join("usr/lib/again")).unwrap();
        symlink("circle", root.path().join("circle")).unwrap();
        let tree = Tree::folder(root.path()).unwrap();
        assert_eq!(tree.read(&path("/lib/again")).unwrap().unwrap(), b"ID=debian");
        assert_eq!(
            tree.read_link(&path("/lib/again")).unwrap().unwrap(),
            b"/lib/os-release"
        );
        assert_eq!(tree.read_link(&path("/usr/lib/os-release")).unwrap(), None);
        assert!(matches!(tree.read(&path("/circle")), Err(Unlooked::Unreadable { .. })));
        assert_eq!(tree.read(&path("/lib/os-release/below")).unwrap(), None);
        assert_eq!(
            tree.metadata(&TreePath::root()).unwrap().unwrap().kind,
            FileKind::Folder
        );
    }

    #[test]
    fn what_is_no_file_or_too_large_is_not_read() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("folder")).unwrap();
        fs::File::create(root.path().join("large"))
            .unwrap()
            .set_len(FILE_BYTES_MAX + 1)
            .unwrap();
        let tree = Tree::folder(root.path()).unwrap();
        assert!(matches!(tree.read(&path("/folder")), Err(Unlooked::Unreadable { .. })));
        assert!(matches!(tree.read(&path("/large")), Err(Unlooked::TooLarge { .. })));
        assert!(matches!(tree.command_line(), Err(Unlooked::NotKnown { .. })));
    }
}
