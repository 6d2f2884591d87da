//! One `statx` of a path or a handle.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};

use drift::Observation;
use manifest::EntryKind;
use rustix::fs::{AtFlags, FileType, StatxFlags};
use rustix::io::Errno;

use super::cache::FileKey;

/// What `statx` says of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub kind: FileType,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub key: FileKey,
    pub device: (u32, u32),
    /// 0 where the kernel does not tell (before Linux 5.8).
    pub mount_id: u64,
}

impl Stat {
    /// Of a name in a folder; never follows a link, never mounts anything, never asks a server.
    pub(crate) fn at(folder: BorrowedFd<'_>, name: &OsStr) -> Result<Self, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
        Self::read(folder, name, flags)
    }

    /// Of an open file or folder.
    pub(crate) fn of(handle: impl AsFd) -> Result<Self, Errno> {
        Self::read(handle.as_fd(), OsStr::new(""), AtFlags::EMPTY_PATH)
    }

    fn read(folder: BorrowedFd<'_>, name: &OsStr, flags: AtFlags) -> Result<Self, Errno> {
        let raw = rustix::fs::statx(folder, name, flags, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
        let nanoseconds = |time: rustix::fs::StatxTimestamp| {
            time.tv_sec
                .saturating_mul(1_000_000_000)
                .saturating_add(i64::from(time.tv_nsec))
        };
        let has_mount_id = raw.stx_mask & StatxFlags::MNT_ID.bits() != 0;
        Ok(Self {
            kind: FileType::from_raw_mode(u32::from(raw.stx_mode)),
            mode: u32::from(raw.stx_mode) & 0o7777,
            uid: raw.stx_uid,
            gid: raw.stx_gid,
            key: FileKey {
                device: u64::from(raw.stx_dev_major) << 32 | u64::from(raw.stx_dev_minor),
                inode: raw.stx_ino,
                size: raw.stx_size,
                mtime_ns: nanoseconds(raw.stx_mtime),
                ctime_ns: nanoseconds(raw.stx_ctime),
            },
            device: (raw.stx_rdev_major, raw.stx_rdev_minor),
            mount_id: if has_mount_id { raw.stx_mnt_id } else { 0 },
        })
    }

    /// Whether both are the same file, whatever is in it.
    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        self.kind == other.kind && self.key.device == other.key.device && self.key.inode == other.key.inode
    }

    /// Whether both lie on the same mount.
    pub(crate) fn is_on_mount_of(&self, other: &Self) -> bool {
        self.key.device == other.key.device && self.mount_id == other.mount_id
    }

    /// The entry kind of anything that is neither a file nor a link.
    pub(crate) fn special_kind(&self) -> Option<EntryKind> {
        let (major, minor) = self.device;
        match self.kind {
            FileType::Directory => Some(EntryKind::Directory),
            FileType::CharacterDevice => Some(EntryKind::CharacterDevice(major, minor)),
            FileType::BlockDevice => Some(EntryKind::BlockDevice(major, minor)),
            FileType::Fifo => Some(EntryKind::Fifo),
            FileType::Socket => Some(EntryKind::Socket),
            FileType::RegularFile | FileType::Symlink | FileType::Unknown => None,
        }
    }
}

/// Why the system would not let us look.
pub(crate) fn observation(what: &str, error: Errno) -> Observation {
    match error {
        Errno::ACCESS | Errno::PERM => Observation::Denied,
        Errno::TIMEDOUT => Observation::TimedOut,
        error => Observation::Error {
            detail: format!("{what}: {error}"),
        },
    }
}
