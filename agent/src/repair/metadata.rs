//! Owner, mode, extended attributes and time of what stands at a path.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use drift::ObservedXattrs;
use manifest::{Entry, EntryKind};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};

use crate::scan::{Stat, read_xattrs};

/// Gives what stands at `name` the metadata of its entry. Extended attributes only where the baseline speaks of them;
/// those it does not list are taken away. A link is never followed: the handle that was looked at is the one changed.
pub(super) fn apply(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    entry: &Entry,
    with_xattrs: bool,
    mtime: Option<i64>,
) -> Result<(), String> {
    let say = |what: &'static str| move |error: rustix::io::Errno| format!("{what}: {error}");
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::openat(folder, name, flags, Mode::empty()).map_err(say("opening it"))?;
    let stat = Stat::of(&handle).map_err(say("looking at it"))?;
    let is_link = stat.kind == FileType::Symlink;
    if is_link != matches!(entry.kind, EntryKind::Symlink(_)) {
        return Err("it was exchanged meanwhile".to_owned());
    }
    let itself = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()));
    // The owner first: a change of owner clears setuid and capabilities.
    if (stat.uid, stat.gid) != (entry.uid, entry.gid) {
        let (uid, gid) = (Some(Uid::from_raw(entry.uid)), Some(Gid::from_raw(entry.gid)));
        rustix::fs::chownat(&handle, "", uid, gid, AtFlags::EMPTY_PATH).map_err(say("setting its owner"))?;
    }
    if !is_link {
        rustix::fs::chmod(&itself, Mode::from_raw_mode(entry.mode)).map_err(say("setting its mode"))?;
    }
    if with_xattrs {
        // A link's own attributes have no handle to go by.
        let place = if is_link {
            let mut place = format!("/proc/self/fd/{}/", folder.as_raw_fd()).into_bytes();
            place.extend_from_slice(name.as_bytes());
            PathBuf::from(std::ffi::OsString::from_vec(place))
        } else {
            itself
        };
        let found = match read_xattrs(folder, name) {
            ObservedXattrs::Value(found) => found,
            ObservedXattrs::NotRead | ObservedXattrs::Unknown(_) => {
                return Err("its extended attributes cannot be read".to_owned());
            }
        };
        for attribute in found.keys().filter(|attribute| !entry.xattrs.contains_key(*attribute)) {
            let removed = if is_link {
                rustix::fs::lremovexattr(&place, attribute.as_str())
            } else {
                rustix::fs::removexattr(&place, attribute.as_str())
            };
            removed.map_err(say("removing an extended attribute"))?;
        }
        for (attribute, value) in &entry.xattrs {
            if found.get(attribute) == Some(value) {
                continue;
            }
            let set = if is_link {
                rustix::fs::lsetxattr(&place, attribute.as_str(), value, XattrFlags::empty())
            } else {
                rustix::fs::setxattr(&place, attribute.as_str(), value, XattrFlags::empty())
            };
            set.map_err(say("setting an extended attribute"))?;
        }
    }
    if let Some(seconds) = mtime {
        let time = Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        rustix::fs::utimensat(folder, name, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(say("setting its time"))?;
    }
    Ok(())
}
