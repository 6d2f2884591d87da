//! One file, folder or special file with all that belongs to it.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use crate::ImportError;
use crate::archive::{Entry, Reader, Segment, Time};
use crate::error::escape;
use crate::progress::Meter;
use crate::tree::{self, Folder};

const BUFFER_BYTES: usize = 256 << 10;

/// Makes a file that is not there yet, from the archive's data. Holes stay holes.
pub(super) fn file<R: Read>(
    archive: &mut Reader<R>,
    entry: &Entry,
    folder: &Folder,
    name: &[u8],
    meter: &mut Meter<'_>,
) -> Result<(), ImportError> {
    let failed = |action| ImportError::errno(action, escape(&entry.name));
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, name, flags, Mode::from_raw_mode(0o600)).map_err(failed("create"))?;
    let file = File::from(file);
    let whole = [Segment {
        offset: 0,
        length: archive.left(),
    }];
    let segments = entry.segments.as_deref().unwrap_or(&whole);
    let mut buffer = vec![0; BUFFER_BYTES.min(usize::try_from(archive.left()).unwrap_or(BUFFER_BYTES))];
    for segment in segments {
        let mut at = segment.offset;
        let end = segment.offset + segment.length;
        while at < end {
            let want = usize::try_from(end - at).map_or(buffer.len(), |left| left.min(buffer.len()));
            let got = archive.data(&mut buffer[..want])?;
            if got == 0 {
                // The map was checked against the data's length.
                return Err(ImportError::Truncated {
                    archive: archive.archive().to_owned(),
                    offset: archive.offset(),
                });
            }
            file.write_all_at(&buffer[..got], at)
                .map_err(ImportError::io("write", escape(&entry.name)))?;
            at += got as u64;
            meter.bytes(got as u64)?;
        }
    }
    if entry.segments.is_some() {
        file.set_len(entry.size)
            .map_err(ImportError::io("set the size of", escape(&entry.name)))?;
    }
    metadata(&file, entry)?;
    let times = timestamps(entry.modified);
    rustix::fs::futimens(&file, &times).map_err(failed("set the time of"))
}

/// Owner, mode and attributes of a folder. Those that it had before go.
pub(super) fn folder(folder: &Folder, entry: &Entry) -> Result<(), ImportError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = rustix::fs::openat(folder, ".", flags, Mode::empty())
        .map_err(ImportError::errno("open", escape(&entry.name)))?;
    tree::clear_xattrs(&handle).map_err(ImportError::errno("clear the attributes of", escape(&entry.name)))?;
    metadata(handle, entry)
}

fn metadata(file: impl AsFd, entry: &Entry) -> Result<(), ImportError> {
    let file = file.as_fd();
    let failed = |action| ImportError::errno(action, escape(&entry.name));
    let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
    rustix::fs::fchown(file, Some(uid), Some(gid)).map_err(failed("set the owner of"))?;
    rustix::fs::fchmod(file, Mode::from_raw_mode(entry.mode)).map_err(failed("set the mode of"))?;
    for (name, value) in &entry.xattrs {
        let what = || format!("{} ({})", escape(&entry.name), escape(name));
        tree::set_xattr(file, name, value).map_err(|errno| ImportError::errno("set an attribute of", what())(errno))?;
    }
    Ok(())
}

/// Owner, attributes and time of what cannot be opened: links and FIFOs. A FIFO's mode was set before.
pub(super) fn special_metadata(folder: &Folder, name: &[u8], entry: &Entry) -> Result<(), ImportError> {
    let failed = |action| ImportError::errno(action, escape(&entry.name));
    let (uid, gid) = (Uid::from_raw(entry.uid), Gid::from_raw(entry.gid));
    rustix::fs::chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(failed("set the owner of"))?;
    for (attribute, value) in &entry.xattrs {
        tree::set_xattr_nofollow(folder, name, attribute, value).map_err(failed("set an attribute of"))?;
    }
    set_time(folder, name, entry.modified).map_err(failed("set the time of"))
}

pub(super) fn set_time(folder: impl AsFd, name: &[u8], time: Time) -> Result<(), Errno> {
    rustix::fs::utimensat(folder, name, &timestamps(time), AtFlags::SYMLINK_NOFOLLOW)
}

fn timestamps(time: Time) -> Timestamps {
    let time = Timespec {
        tv_sec: time.seconds,
        tv_nsec: time.nanoseconds.into(),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}
