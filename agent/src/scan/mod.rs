//! Looking at the files of a node.
//!
//! [`scan_tree`] walks every root of the baseline and compares as it goes; nothing of the node is kept in memory but
//! what differs. It blocks, reads at its own pace and is meant for one thread at idle priority.
//!
//! Refused: watching (inotify, fanotify) as the source of truth. Events get lost; a scan does not.

pub mod cache;
mod file;
mod mounts;
mod single;
mod stat;
mod walk;
mod xattrs;

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use drift::{Expected, Limits, Observation, TreeComparison, TreeFindings};
use manifest::{Root, TreePath};
use protocol::latest::RootSummary;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use cache::DigestCache;
use file::FileReader;
pub(crate) use mounts::Mounts;
pub use single::{Looker, PathLook, Place};
pub(crate) use single::{entry_of, open_folder_at, open_parent};
pub(crate) use stat::Stat;
use stat::observation;
use walk::Walk;
pub(crate) use xattrs::read_xattrs;

/// Bounds of one scan; what lies beyond them is said to be not looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most paths in one root.
    pub entries_max: u64,
    /// Most names in one folder: they are held in memory to be sorted.
    pub folder_entries_max: usize,
    /// Most folders inside each other: each holds one open handle.
    pub depth_max: usize,
    /// Bounds on findings.
    pub limits: Limits,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            entries_max: 8_000_000,
            folder_entries_max: 250_000,
            depth_max: 256,
            limits: Limits {
                differences_max: protocol::limits::DIFFERENCES_MAX,
                unknown_max: protocol::limits::NOT_LOOKED_AT_MAX,
                explain_bytes_max: 256 << 20,
            },
        }
    }
}

/// What may happen to a tree while it is scanned, for tests. In production nothing of it is used.
pub trait Interference: Sync {
    /// Called between looking at a path and opening it.
    fn after_stat(&self, _path: &TreePath) {}
    /// Called before each read of a file, with the bytes read so far.
    fn while_reading(&self, _path: &TreePath, _bytes: u64) {}
    /// An error to meet instead of opening a folder.
    fn open_folder(&self, _path: &TreePath) -> Option<Errno> {
        None
    }
}

/// Nobody interferes.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoInterference;

impl Interference for NoInterference {}

/// How to scan.
pub struct ScanOptions<'a> {
    /// The folder that is the node's `/`.
    pub base: &'a Path,
    /// Where digests are kept between scans; none: every file is read.
    pub cache_folder: Option<&'a Path>,
    /// Now, in seconds since 1970.
    pub now_unix_secs: u64,
    /// Bounds.
    pub bounds: Bounds,
    /// Set when the process is to end: the scan then ends within one read and is incomplete.
    pub stop: Option<&'a AtomicBool>,
    /// Roots are folders of the base and not mounted (a folder that stands for a node).
    pub roots_are_folders: bool,
    /// For tests.
    pub interference: &'a dyn Interference,
}

impl<'a> ScanOptions<'a> {
    fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// The usual bounds, without a cache.
    #[must_use]
    pub fn new(base: &'a Path) -> Self {
        Self {
            base,
            cache_folder: None,
            now_unix_secs: 0,
            bounds: Bounds::default(),
            stop: None,
            roots_are_folders: false,
            interference: &NoInterference,
        }
    }
}

/// What a scan of the files found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeScan {
    /// Differences and what could not be looked at.
    pub findings: TreeFindings,
    /// Each root.
    pub roots: Vec<RootSummary>,
    /// Bytes read and hashed.
    pub hashed_bytes: u64,
}

impl TreeScan {
    /// Whether every root was walked to its end.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.roots.iter().all(|root| root.complete)
    }
}

/// Walks all roots of the baseline and compares.
#[must_use]
pub fn scan_tree(expected: &Expected, options: &ScanOptions<'_>) -> TreeScan {
    let mut comparison = TreeComparison::new(expected, options.bounds.limits);
    let mounts = Mounts::read(options.base);
    let mut reader = FileReader::new();
    let mut roots = Vec::new();
    for (at, root) in expected.roots().iter().enumerate() {
        let mut summary = RootSummary {
            mount: root.mount.to_string(),
            entries: 0,
            complete: false,
        };
        match open_root(options.base, root, options.roots_are_folders) {
            Ok(handle) => {
                let mut cache = match options.cache_folder {
                    // FAT has neither inodes nor change times to go by, and an ESP is small.
                    Some(folder) if root.filesystem.keeps_metadata() => {
                        DigestCache::open(folder, &format!("digests.{at}"), options.now_unix_secs)
                    }
                    _ => DigestCache::disabled(),
                };
                let other_roots: Vec<TreePath> = expected
                    .roots()
                    .iter()
                    .map(|other| other.mount.clone())
                    .filter(|other| *other != root.mount)
                    .collect();
                let mut walk = Walk {
                    root,
                    other_roots: &other_roots,
                    mounts: &mounts,
                    options,
                    reader: &mut reader,
                    cache: &mut cache,
                    entries: 0,
                    complete: true,
                };
                walk.run(handle, &mut comparison);
                (summary.entries, summary.complete) = (walk.entries, walk.complete);
                // The old digests are better than a part of the new ones.
                if !options.is_stopped() {
                    cache.finish();
                }
            }
            Err(reason) => {
                tracing::warn!(mount = %root.mount, reason = reason.name(), "a root was not scanned");
                comparison.record_unknown(&root.mount, reason);
            }
        }
        roots.push(summary);
    }
    TreeScan {
        findings: comparison.finish(),
        roots,
        hashed_bytes: reader.bytes,
    }
}

/// Opens a root. What is mounted there decides by its text whether it is touched at all. A link in its place, a root that
/// is not mounted, and a filesystem of the kernel's own are no roots.
pub(crate) fn open_root(base: &Path, root: &Root, is_folder: bool) -> Result<OwnedFd, Observation> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let failed = |error| observation("open root", error);
    let top = rustix::fs::openat(CWD, base, flags, Mode::empty()).map_err(failed)?;
    if root.mount.is_root() {
        if !is_folder {
            check_filesystem(&top)?;
        }
        return Ok(top);
    }
    if !is_folder && let Some(filesystem) = Mounts::read(base).foreign_at(root.mount.as_bytes()) {
        return Err(not_scanned(&format!(
            "{filesystem} is mounted here, which may never answer"
        )));
    }
    let relative = OsStr::from_bytes(root.mount.relative());
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    let handle = match rustix::fs::openat2(&top, relative, flags, Mode::empty(), resolve) {
        Err(Errno::NOSYS) => rustix::fs::openat(&top, relative, flags | OFlags::NOFOLLOW, Mode::empty()),
        result => result,
    };
    let handle = handle.map_err(|error| match error {
        Errno::LOOP => not_scanned("the path of this root leads through a link"),
        error => failed(error),
    })?;
    if is_folder {
        return Ok(handle);
    }
    let above = rustix::fs::openat(&handle, "..", flags, Mode::empty()).map_err(failed)?;
    let (inside, outside) = (
        Stat::of(&handle).map_err(failed)?,
        Stat::of(above.as_fd()).map_err(failed)?,
    );
    if inside.is_on_mount_of(&outside) {
        return Err(not_scanned("nothing is mounted here"));
    }
    check_filesystem(&handle)?;
    Ok(handle)
}

fn not_scanned(detail: &str) -> Observation {
    Observation::NotScanned {
        detail: detail.to_owned(),
    }
}

/// Filesystems (statfs(2)) whose files are made up by the kernel: some block for ever, some never end.
const KERNEL_FILESYSTEMS: [u64; 14] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x1cd1,      // devpts
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x6367_7270, // cgroup2
    0x0027_e0eb, // cgroup
    0xcafe_4a11, // bpf
    0x7363_6673, // securityfs
    0x6165_676c, // pstore
    0xde5e_81e4, // efivarfs
    0x6265_6570, // configfs
    0x1980_0202, // mqueue
    0x0187,      // autofs
];

fn check_filesystem(handle: &OwnedFd) -> Result<(), Observation> {
    let stat = rustix::fs::fstatfs(handle).map_err(|error| observation("statfs", error))?;
    if KERNEL_FILESYSTEMS.contains(&(stat.f_type as u64)) {
        return Err(not_scanned("a filesystem of the kernel's own"));
    }
    Ok(())
}
