//! Mount points, known from text before any of them is touched: a system call on a dead network mount never returns.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Filesystems without a block device that lie in this machine all the same.
const LOCAL: [&str; 8] = [
    "bcachefs", "btrfs", "overlay", "ramfs", "squashfs", "tmpfs", "ubifs", "zfs",
];

/// What is mounted on one point.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mounted {
    filesystem: String,
    /// Its files come from this machine's own memory and disks, so that somebody will answer.
    is_local: bool,
}

/// Mount points below a folder, as paths inside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts(BTreeMap<Vec<u8>, Mounted>);

impl Mounts {
    /// From `/proc/self/mountinfo` (proc_pid_mountinfo(5)); `base` is an absolute path without links.
    #[must_use]
    pub fn parse(mountinfo: &[u8], base: &Path) -> Self {
        let base = base.as_os_str().as_bytes();
        let base = base.strip_suffix(b"/").unwrap_or(base);
        let point = |line: &[u8]| {
            let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
            let point = unescape(words.get(4)?);
            let below = point.strip_prefix(base)?;
            let mounted = Mounted::of_words(&words);
            (below.len() > 1 && below.starts_with(b"/")).then(|| (below.to_vec(), mounted))
        };
        // Of several on one point the last one counts.
        Self(mountinfo.split(|&byte| byte == b'\n').filter_map(point).collect())
    }

    /// Reads the mount points of this process. Where they cannot be read, mounts are only told by their mount id.
    #[must_use]
    pub fn read(base: &Path) -> Self {
        let base = base.canonicalize().unwrap_or_else(|_| base.to_owned());
        match std::fs::read("/proc/self/mountinfo") {
            Ok(text) => Self::parse(&text, &base),
            Err(error) => {
                tracing::warn!(%error, "mount points cannot be read");
                Self::default()
            }
        }
    }

    /// Whether something is mounted exactly here.
    #[must_use]
    pub fn contains(&self, path: &[u8]) -> bool {
        self.0.contains_key(path)
    }

    /// The filesystem that is mounted exactly here, where somebody outside this machine or outside its kernel must
    /// answer for it: no system call may be made on it, since it may never return.
    #[must_use]
    pub fn foreign_at(&self, path: &[u8]) -> Option<&str> {
        let mounted = self.0.get(path).filter(|mounted| !mounted.is_local)?;
        Some(&mounted.filesystem)
    }
}

impl Mounted {
    /// From the words of a line: `25 22 0:44 / /srv rw master:1 - nfs4 host:/export rw`.
    fn of_words(words: &[&[u8]]) -> Self {
        let dash = words.iter().skip(6).position(|word| *word == b"-");
        let filesystem = dash.and_then(|at| words.get(6 + at + 1));
        let filesystem = String::from_utf8_lossy(filesystem.copied().unwrap_or_default()).into_owned();
        // Block devices have a major number; NFS, FUSE, Lustre and all others have none.
        let has_device = words.get(2).is_some_and(|device| !device.starts_with(b"0:"));
        let is_fuse = filesystem.starts_with("fuse");
        Self {
            is_local: !is_fuse && (has_device || LOCAL.contains(&filesystem.as_str())),
            filesystem,
        }
    }
}

impl Mounts {
    /// Whether something is mounted on this path or anywhere below it.
    #[must_use]
    pub fn any_within(&self, path: &manifest::TreePath) -> bool {
        let is_within =
            |point: &Vec<u8>| manifest::TreePath::from_bytes(point.clone()).is_ok_and(|p| p.is_within(path));
        self.0.keys().any(is_within)
    }
}

/// `\040` and the like, as the kernel writes white space and backslashes.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let octal = (text[at] == b'\\')
            .then(|| text.get(at + 1..at + 4))
            .flatten()
            .and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(text[at]));
        at += if octal.is_some() { 4 } else { 1 };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &[u8] = b"22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        23 22 0:21 / /proc rw - proc proc rw\n\
        24 22 254:1 / /boot/efi rw - vfat /dev/vda1 rw\n\
        25 22 0:44 / /srv/with\\040space\\134x rw master:1 - nfs4 dead:/export rw\n\
        26 22 8:17 / /srv/disk rw - fuseblk /dev/sdb1 rw\n\
        27 22 0:30 / /tmp rw shared:5 master:1 - tmpfs tmpfs rw\n\
        garbage\n";

    #[test]
    fn mount_points_are_paths_inside_the_base() {
        let mounts = Mounts::parse(MOUNTINFO, Path::new("/"));
        for (path, expected) in [
            (b"/proc".as_slice(), true),
            (b"/boot/efi", true),
            (b"/srv/with space\\x", true),
            (b"/", false),
            (b"/boot", false),
        ] {
            assert_eq!(mounts.contains(path), expected, "{}", path.escape_ascii());
        }
        for (path, expected) in [
            (b"/srv/with space\\x".as_slice(), Some("nfs4")),
            (b"/srv/disk", Some("fuseblk")),
            (b"/tmp", None),
            (b"/boot/efi", None),
            (b"/srv", None),
        ] {
            assert_eq!(mounts.foreign_at(path), expected, "{}", path.escape_ascii());
        }
        let below = Mounts::parse(MOUNTINFO, Path::new("/boot"));
        assert!(below.contains(b"/efi"));
        assert!(!Mounts::parse(MOUNTINFO, Path::new("/bo")).contains(b"ot/efi"));
    }
}
