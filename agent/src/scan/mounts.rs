//! Mount points, known from text before any of them is touched: a system call on a dead network mount never returns.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Mount points below a folder, as paths inside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts(BTreeSet<Vec<u8>>);

impl Mounts {
    /// From `/proc/self/mountinfo` (proc_pid_mountinfo(5)); `base` is an absolute path without links.
    #[must_use]
    pub fn parse(mountinfo: &[u8], base: &Path) -> Self {
        let base = base.as_os_str().as_bytes();
        let base = base.strip_suffix(b"/").unwrap_or(base);
        let point = |line: &[u8]| {
            let point = unescape(line.split(|&byte| byte == b' ').nth(4)?);
            let below = point.strip_prefix(base)?;
            (below.len() > 1 && below.starts_with(b"/")).then(|| below.to_vec())
        };
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
        self.0.contains(path)
    }
}

impl Mounts {
    /// Whether something is mounted on this path or anywhere below it.
    #[must_use]
    pub fn any_within(&self, path: &manifest::TreePath) -> bool {
        let is_within =
            |point: &Vec<u8>| manifest::TreePath::from_bytes(point.clone()).is_ok_and(|p| p.is_within(path));
        self.0.iter().any(is_within)
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
        let below = Mounts::parse(MOUNTINFO, Path::new("/boot"));
        assert!(below.contains(b"/efi"));
        assert!(!Mounts::parse(MOUNTINFO, Path::new("/bo")).contains(b"ot/efi"));
    }
}
