//! One root, from its handle down.
//!
//! Depth first, names in byte order, one filesystem. Nothing is opened but folders and regular files, no link is
//! followed, and an entry that cannot be looked at never ends the walk: it is noted.

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use drift::{
    Content, Kind, Observation, ObservedDigest, ObservedEntry, ObservedKind, ObservedXattrs, Sight, Step,
    TreeComparison,
};
use manifest::{EntryKind, Root, TreePath};
use rustix::fs::{FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

use super::ScanOptions;
use super::cache::DigestCache;
use super::file::{FileReader, Reading};
use super::mounts::Mounts;
use super::stat::{Stat, observation};
use super::xattrs::read_xattrs;

/// Looks at a path that changes while it is looked at.
const ATTEMPTS_MAX: usize = 3;
const NAMES_BUFFER_BYTES: usize = 32 << 10;

/// What a walk needs beside the comparison.
pub(super) struct Walk<'a> {
    pub root: &'a Root,
    /// Mount points of the baseline's other roots.
    pub other_roots: &'a [TreePath],
    pub mounts: &'a Mounts,
    pub options: &'a ScanOptions<'a>,
    pub reader: &'a mut FileReader,
    pub cache: &'a mut DigestCache,
    /// Paths seen in this root.
    pub entries: u64,
    /// Every folder was read to its end.
    pub complete: bool,
}

struct Name {
    bytes: Box<[u8]>,
    kind: FileType,
}

struct Frame {
    handle: OwnedFd,
    path: TreePath,
    stat: Stat,
    names: std::vec::IntoIter<Name>,
}

/// What came of looking once.
enum Glance {
    Done(ObservedEntry, Step, Stat),
    Ignored,
    Gone,
    /// Changed meanwhile; what was certain of it.
    Changed(Option<(ObservedEntry, Step, Stat)>),
    Failed(Observation),
}

impl Walk<'_> {
    /// Walks everything below an open root.
    pub(super) fn run(&mut self, handle: OwnedFd, comparison: &mut TreeComparison<'_>) {
        let path = self.root.mount.clone();
        let stat = match Stat::of(&handle) {
            Ok(stat) => stat,
            Err(error) => return self.unread(comparison, &path, observation("stat", error)),
        };
        let sight = Sight {
            kind: Kind::Directory,
            size: 0,
        };
        let step = comparison.step(&path, sight, self.root);
        let xattrs = self.xattrs_if(step.look.xattrs, handle.as_fd(), OsStr::new("."));
        comparison.record(
            &path,
            &step,
            &observed(ObservedKind::Other(EntryKind::Directory), &stat, xattrs),
        );
        self.entries += 1;
        let mut stack: Vec<Frame> = Vec::new();
        stack.extend(self.enter(handle, path, stat, comparison));
        while let Some(frame) = stack.last_mut() {
            let Some(name) = frame.names.next() else {
                stack.pop();
                continue;
            };
            if let Some(detail) = self.reason_to_end() {
                for frame in &stack {
                    let detail = detail.clone();
                    self.unread(comparison, &frame.path, Observation::NotScanned { detail });
                }
                return;
            }
            let Ok(path) = frame.path.join(&name.bytes) else {
                let detail = "a path longer than 4,096 bytes".to_owned();
                let path = frame.path.clone();
                self.unread(comparison, &path, Observation::NotScanned { detail });
                continue;
            };
            let depth = stack.len();
            if let Some(frame) = stack
                .last()
                .and_then(|frame| self.visit(frame, &name, path, depth, comparison))
            {
                stack.push(frame);
            }
        }
    }

    fn reason_to_end(&self) -> Option<String> {
        if self.options.is_stopped() {
            return Some("the agent was told to stop".to_owned());
        }
        let entries_max = self.options.bounds.entries_max;
        (self.entries >= entries_max).then(|| format!("more than {entries_max} paths"))
    }

    fn unread(&mut self, comparison: &mut TreeComparison<'_>, path: &TreePath, observation: Observation) {
        self.complete = false;
        comparison.unread_folder(path, observation);
    }

    /// Looks at one path; a folder to walk next is handed back.
    fn visit(
        &mut self,
        frame: &Frame,
        name: &Name,
        path: TreePath,
        depth: usize,
        comparison: &mut TreeComparison<'_>,
    ) -> Option<Frame> {
        if self.other_roots.contains(&path) {
            // Walked, or found not to be mounted, on its own.
            return None;
        }
        if self.mounts.contains(path.as_bytes()) {
            self.entries += 1;
            mounted(comparison, &path, name.kind);
            return None;
        }
        let os_name = OsStr::from_bytes(&name.bytes);
        let mut last = None;
        for _ in 0..ATTEMPTS_MAX {
            match self.glance(frame, os_name, &path, comparison) {
                Glance::Done(observed, step, stat) => {
                    self.entries += 1;
                    comparison.record(&path, &step, &observed);
                    return if stat.kind == FileType::Directory && step.look.descend {
                        self.descend(frame, os_name, path, stat, depth, comparison)
                    } else {
                        None
                    };
                }
                Glance::Ignored => return None,
                Glance::Gone => return None,
                Glance::Changed(certain) => last = certain,
                Glance::Failed(Observation::NotScanned { .. }) => {
                    self.entries += 1;
                    mounted(comparison, &path, name.kind);
                    return None;
                }
                Glance::Failed(observation) => {
                    self.entries += 1;
                    comparison.record_unknown(&path, observation);
                    return None;
                }
            }
        }
        self.entries += 1;
        match last {
            Some((observed, step, _)) => comparison.record(&path, &step, &observed),
            None => comparison.record_unknown(&path, Observation::Unstable),
        }
        None
    }

    fn glance(&mut self, frame: &Frame, name: &OsStr, path: &TreePath, comparison: &TreeComparison<'_>) -> Glance {
        let folder = frame.handle.as_fd();
        let stat = match Stat::at(folder, name) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Glance::Gone,
            Err(error) => return Glance::Failed(observation("stat", error)),
        };
        if !stat.is_on_mount_of(&frame.stat) {
            let detail = "another filesystem is mounted here".to_owned();
            return Glance::Failed(Observation::NotScanned { detail });
        }
        let kind = match stat.kind {
            FileType::Directory => Kind::Directory,
            FileType::RegularFile => Kind::File,
            FileType::Symlink => Kind::Symlink,
            _ => Kind::Other,
        };
        let sight = Sight {
            kind,
            size: stat.key.size,
        };
        let step = comparison.step(path, sight, self.root);
        if step.look.ignore {
            return Glance::Ignored;
        }
        self.options.interference.after_stat(path);
        let xattrs = self.xattrs_if(step.look.xattrs, folder, name);
        let kind = match stat.kind {
            FileType::RegularFile => {
                let digest = if step.look.content == Content::No {
                    ObservedDigest::NotRead
                } else {
                    match self.digest(folder, name, path, &stat) {
                        Reading::Hashed(_, digest) => ObservedDigest::Hashed(digest),
                        Reading::Failed(error) => ObservedDigest::Unknown(observation("read", error)),
                        Reading::Changed => {
                            // If it never comes to rest, what is certain is that nobody knows its content.
                            let kind = ObservedKind::File {
                                size: stat.key.size,
                                digest: ObservedDigest::Unknown(Observation::Unstable),
                            };
                            return Glance::Changed(Some((observed(kind, &stat, xattrs), step, stat)));
                        }
                    }
                };
                let size = stat.key.size;
                ObservedKind::File { size, digest }
            }
            FileType::Symlink => match rustix::fs::readlinkat(folder, name, Vec::new()) {
                Ok(target) => ObservedKind::Other(EntryKind::Symlink(target.into_bytes())),
                Err(Errno::NOENT | Errno::INVAL) => return Glance::Changed(None),
                Err(error) => return Glance::Failed(observation("readlink", error)),
            },
            _ => match stat.special_kind() {
                Some(kind) => ObservedKind::Other(kind),
                None => {
                    let detail = "a file of unknown type".to_owned();
                    return Glance::Failed(Observation::Error { detail });
                }
            },
        };
        Glance::Done(observed(kind, &stat, xattrs), step, stat)
    }

    fn digest(&mut self, folder: BorrowedFd<'_>, name: &OsStr, path: &TreePath, stat: &Stat) -> Reading {
        if let Some(digest) = self.cache.get(path, &stat.key) {
            return Reading::Hashed(*stat, digest);
        }
        let reading = self.reader.read(folder, name, path, stat, self.options);
        if let Reading::Hashed(stat, digest) = &reading {
            self.cache.put(path, &stat.key, *digest);
        }
        reading
    }

    fn xattrs_if(&self, wanted: bool, folder: BorrowedFd<'_>, name: &OsStr) -> ObservedXattrs {
        if wanted {
            read_xattrs(folder, name)
        } else {
            ObservedXattrs::NotRead
        }
    }

    fn descend(
        &mut self,
        frame: &Frame,
        name: &OsStr,
        path: TreePath,
        seen: Stat,
        depth: usize,
        comparison: &mut TreeComparison<'_>,
    ) -> Option<Frame> {
        if depth >= self.options.bounds.depth_max {
            let detail = format!("more than {} folders deep", self.options.bounds.depth_max);
            self.unread(comparison, &path, Observation::NotScanned { detail });
            return None;
        }
        let opened = match self.options.interference.open_folder(&path) {
            Some(error) => Err(error),
            None => open_folder(frame.handle.as_fd(), name),
        };
        let handle = match opened {
            Ok(handle) => handle,
            Err(error) => {
                self.unread(comparison, &path, observation("open", error));
                return None;
            }
        };
        match Stat::of(&handle) {
            Ok(stat) if stat.is_same_file(&seen) => self.enter(handle, path, stat, comparison),
            Ok(_) => {
                self.unread(comparison, &path, Observation::Unstable);
                None
            }
            Err(error) => {
                self.unread(comparison, &path, observation("stat", error));
                None
            }
        }
    }

    fn enter(
        &mut self,
        handle: OwnedFd,
        path: TreePath,
        stat: Stat,
        comparison: &mut TreeComparison<'_>,
    ) -> Option<Frame> {
        let mut names = Vec::new();
        let mut buffer = vec![MaybeUninit::uninit(); NAMES_BUFFER_BYTES];
        let mut folder = RawDir::new(&handle, &mut buffer);
        while let Some(entry) = folder.next() {
            match entry {
                Ok(entry) => {
                    let name = entry.file_name().to_bytes();
                    if name == b"." || name == b".." {
                        continue;
                    }
                    if names.len() >= self.options.bounds.folder_entries_max {
                        let detail = format!(
                            "more than {} names in this folder",
                            self.options.bounds.folder_entries_max
                        );
                        self.unread(comparison, &path, Observation::NotScanned { detail });
                        break;
                    }
                    names.push(Name {
                        bytes: name.into(),
                        kind: entry.file_type(),
                    });
                }
                Err(error) => {
                    self.unread(comparison, &path, observation("read folder", error));
                    break;
                }
            }
        }
        names.sort_unstable_by(|a, b| a.bytes.cmp(&b.bytes));
        Some(Frame {
            handle,
            path,
            stat,
            names: names.into_iter(),
        })
    }
}

/// What came of looking at one path alone.
pub(super) enum One {
    Seen(ObservedEntry),
    Ignored,
    Gone,
    Unknown(Observation),
}

impl Walk<'_> {
    /// Looks at one path whose folder is open; the path of a root is looked at as `.` in itself.
    pub(super) fn look_at(&mut self, folder: OwnedFd, path: &TreePath, comparison: &TreeComparison<'_>) -> One {
        let stat = match Stat::of(&folder) {
            Ok(stat) => stat,
            Err(error) => return One::Unknown(observation("stat", error)),
        };
        let is_root = *path == self.root.mount;
        let frame = Frame {
            handle: folder,
            path: path.parent().unwrap_or_else(TreePath::root),
            stat,
            names: Vec::new().into_iter(),
        };
        let name = OsStr::from_bytes(if is_root { b"." } else { path.name() });
        let mut last = None;
        for _ in 0..ATTEMPTS_MAX {
            match self.glance(&frame, name, path, comparison) {
                Glance::Done(observed, ..) => return One::Seen(observed),
                Glance::Ignored => return One::Ignored,
                Glance::Gone => return One::Gone,
                Glance::Changed(certain) => last = certain,
                Glance::Failed(observation) => return One::Unknown(observation),
            }
        }
        match last {
            Some((observed, ..)) => One::Seen(observed),
            None => One::Unknown(Observation::Unstable),
        }
    }
}

/// Something else is mounted on a path: a folder is there and free to hold a filesystem or not, anything else
/// (a bind mount over a file) hides what it should be.
fn mounted(comparison: &mut TreeComparison<'_>, path: &TreePath, kind: FileType) {
    if matches!(kind, FileType::Directory | FileType::Unknown) {
        comparison.mount_point(path);
    } else {
        let detail = "another filesystem is mounted here".to_owned();
        comparison.record_unknown(path, Observation::NotScanned { detail });
    }
}

fn observed(kind: ObservedKind, stat: &Stat, xattrs: ObservedXattrs) -> ObservedEntry {
    ObservedEntry {
        kind,
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        xattrs,
    }
}

/// Opens a folder in a folder, on the same mount, through no link.
pub(super) fn open_folder(folder: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV | ResolveFlags::BENEATH;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |flags| match rustix::fs::openat2(folder, name, flags, Mode::empty(), resolve) {
        // Before Linux 5.6, or under a filter that does not know it.
        Err(Errno::NOSYS) => rustix::fs::openat(folder, name, flags, Mode::empty()),
        result => result,
    };
    match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(flags),
        result => result,
    }
}
