//! Whether what stands at a path is what the manifest says, and making its metadata so.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

use manifest::{Digest, Entry, EntryKind, FileContent, Hasher, Xattrs};
use rustix::fs::{AtFlags, FileType, IFlags, OFlags, Stat, ioctl_getflags, ioctl_setflags};
use rustix::io::Errno;

use crate::deploy::tree::{Tree, owner, times};

const READ_BYTES: usize = 1 << 20;
/// Flags of a file that a fresh one has: only the kernel's own bookkeeping (include/uapi/linux/fs.h, FS_EXTENT_FL,
/// FS_INDEX_FL, FS_INLINE_DATA_FL, FS_EOFBLOCKS_FL, FS_HUGE_FILE_FL).
const FLAGS_KERNEL: u32 = 0x0008_0000 | 0x0000_1000 | 0x1000_0000 | 0x0040_0000 | 0x0004_0000;
/// Flags that cannot be taken away (FS_ENCRYPT_FL, FS_VERITY_FL, FS_CASEFOLD_FL).
const FLAGS_LASTING: u32 = 0x0000_0800 | 0x0010_0000 | 0x4000_0000;

/// Whether the path is as the manifest says after its metadata are set; files made on the node never are. Whatever goes
/// wrong here means that it is not.
pub(super) fn is_right(tree: &Tree, entry: &Entry) -> bool {
    match &entry.kind {
        EntryKind::Directory => tree
            .open_here(&entry.path, OFlags::RDONLY | OFlags::DIRECTORY)
            // It gets its own attributes at the end, with its owner and mode.
            .is_ok_and(|folder| free(&folder) && remove_xattrs(&folder)),
        EntryKind::File(Some(content)) => is_file(tree, entry, *content).unwrap_or(false),
        EntryKind::Symlink(target) => is_link(tree, entry, target).unwrap_or(false),
        _ => false,
    }
}

/// Takes away flags that would keep others from changing or removing it; whether it is free of all.
pub(super) fn free(place: impl AsFd) -> bool {
    let flags = match ioctl_getflags(&place) {
        Ok(flags) => flags.bits(),
        // A filesystem without flags.
        Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::INVAL) => return true,
        Err(_) => return false,
    };
    if flags & FLAGS_LASTING != 0 {
        return false;
    }
    flags & !FLAGS_KERNEL == 0 || ioctl_setflags(&place, IFlags::from_bits_retain(flags & FLAGS_KERNEL)).is_ok()
}

fn is_file(tree: &Tree, entry: &Entry, content: FileContent) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = tree.open_here(&entry.path, flags)?;
    let stat = rustix::fs::fstat(&file)?;
    // A second name would let somebody change the file without touching this path.
    let fits = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && u64::try_from(stat.st_size) == Ok(content.size)
        && stat.st_nlink == 1;
    if !fits || !free(&file) {
        return Ok(false);
    }
    let file = File::from(file);
    if digest_of(&file, content.size) != Some(content.digest) {
        return Ok(false);
    }
    let is_same = has_xattrs(&file, &entry.xattrs);
    if is_same && has_metadata(&stat, entry) {
        return Ok(true);
    }
    // Kept for its content: what does not go with it is taken away first.
    Ok((is_same || remove_xattrs(&file)) && tree.finish_file(&file, entry).is_ok())
}

/// The digest of the first `size` bytes; none when they cannot be read.
pub(super) fn digest_of(file: &File, size: u64) -> Option<Digest> {
    let (mut hasher, mut at) = (Hasher::new(), 0);
    let mut buffer = vec![0_u8; usize::try_from(size).unwrap_or(READ_BYTES).min(READ_BYTES)];
    while at < size {
        let wanted = usize::try_from(size - at).unwrap_or(READ_BYTES).min(buffer.len());
        match file.read_at(&mut buffer[..wanted], at) {
            Ok(0) => return None,
            Ok(read) => {
                hasher.update(&buffer[..read]);
                at += read as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            // A part of the disk that cannot be read: the file is written anew.
            Err(_) => return None,
        }
    }
    Some(hasher.finish())
}

fn has_metadata(stat: &Stat, entry: &Entry) -> bool {
    (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid, stat.st_mtime) == (entry.mode, entry.uid, entry.gid, entry.mtime)
}

fn is_link(tree: &Tree, entry: &Entry, target: &[u8]) -> Result<bool, Errno> {
    let parent = entry.path.parent().ok_or(Errno::INVAL)?;
    let parent = tree.open_here(&parent, OFlags::PATH | OFlags::DIRECTORY)?;
    let name = entry.path.name();
    let stat = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink || stat.st_nlink != 1 {
        return Ok(false);
    }
    let found = rustix::fs::readlinkat(&parent, name, Vec::new())?;
    if found.as_bytes() != target || !entry.xattrs.is_empty() {
        return Ok(false);
    }
    let mut place = format!("/proc/self/fd/{}/", parent.as_raw_fd()).into_bytes();
    place.extend_from_slice(name);
    if rustix::fs::llistxattr(place.as_slice(), &mut [0_u8; 0][..]) != Ok(0) {
        return Ok(false);
    }
    let (user, group) = owner(entry);
    rustix::fs::chownat(&parent, name, user, group, AtFlags::SYMLINK_NOFOLLOW)?;
    rustix::fs::utimensat(&parent, name, &times(entry), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(true)
}

/// Whether exactly these extended attributes are there.
fn has_xattrs(place: &impl AsFd, expected: &Xattrs) -> bool {
    xattr_names(place).is_some_and(|names| names.len() == expected.len())
        && expected.iter().all(|(name, value)| {
            let mut buffer = vec![0_u8; value.len() + 1];
            rustix::fs::fgetxattr(place, name.as_str(), &mut buffer[..])
                .is_ok_and(|length| buffer[..length] == value[..])
        })
}

/// Removes all extended attributes; whether none is left.
pub(super) fn remove_xattrs(place: &impl AsFd) -> bool {
    xattr_names(place).is_some_and(|names| remove_all(place, &names))
}

fn remove_all(place: &impl AsFd, names: &[Vec<u8>]) -> bool {
    names.iter().all(|name| {
        matches!(
            rustix::fs::fremovexattr(place, name.as_slice()),
            Ok(()) | Err(Errno::NODATA)
        )
    })
}

/// Names of all extended attributes; `None` when they cannot be listed.
fn xattr_names(place: &impl AsFd) -> Option<Vec<Vec<u8>>> {
    let mut list = [0_u8; 4096];
    let length = match rustix::fs::flistxattr(place, &mut list[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => 0,
        // More than any image has.
        Err(_) => return None,
    };
    let names = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Some(names.map(<[u8]>::to_vec).collect())
}
