//! Extended attributes of a path in an open folder.
//!
//! They are read by way of `/proc/self/fd`, which works for links and devices that must not be opened, and keeps the
//! folder the one that was walked. Values stay raw bytes: an ACL names numeric ids, and resolving them is nobody's job
//! here.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use drift::{Observation, ObservedXattrs};
use manifest::{Xattrs, escape_bytes};
use rustix::io::Errno;

/// Tries with a larger buffer when attributes grow meanwhile.
const ATTEMPTS_MAX: usize = 5;

/// All extended attributes; a filesystem without any has none.
pub(crate) fn read_xattrs(folder: BorrowedFd<'_>, name: &OsStr) -> ObservedXattrs {
    let mut path = format!("/proc/self/fd/{}/", folder.as_raw_fd()).into_bytes();
    path.extend_from_slice(name.as_bytes());
    let path = PathBuf::from(std::ffi::OsString::from_vec(path));
    let names = match grown(|buffer| rustix::fs::llistxattr(&path, buffer)) {
        Ok(names) => names,
        Err(Errno::NOTSUP | Errno::NOSYS) => return ObservedXattrs::Value(Xattrs::new()),
        Err(error) => return ObservedXattrs::Unknown(unreadable(error)),
    };
    let mut xattrs = Xattrs::new();
    for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        match grown(|buffer| rustix::fs::lgetxattr(&path, OsStr::from_bytes(name), buffer)) {
            Ok(value) => {
                xattrs.insert(text(name), value);
            }
            // It went away between the list and the read.
            Err(Errno::NODATA) => {}
            Err(error) => return ObservedXattrs::Unknown(unreadable(error)),
        }
    }
    ObservedXattrs::Value(xattrs)
}

/// Asks for the size, then for the value; less than was announced is accepted, more is asked for again.
fn grown(mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    for _ in 0..ATTEMPTS_MAX {
        let size = read(&mut [])?;
        let mut buffer = vec![0; size + 64];
        match read(&mut buffer) {
            Err(Errno::RANGE) => {}
            Err(error) => return Err(error),
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
        }
    }
    Err(Errno::RANGE)
}

fn unreadable(error: Errno) -> Observation {
    match error {
        Errno::ACCESS | Errno::PERM => Observation::Denied,
        error => Observation::Error {
            detail: format!("extended attributes: {error}"),
        },
    }
}

fn text(name: &[u8]) -> String {
    String::from_utf8(name.to_vec()).unwrap_or_else(|_| escape_bytes(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// canonical/lxd#10090: a filesystem announces more than there is. grke/burp#409: a value grows in between.
    #[test]
    fn lxd_10090_growing_and_over_reported_values_are_read() {
        let mut sizes = [3usize, 10, 200, 100].into_iter();
        // Announced 3, then grown beyond the buffer; announced 200, then only 100.
        let value = grown(|buffer| {
            let size = sizes.next().unwrap();
            if buffer.is_empty() {
                Ok(size)
            } else if size + 60 > buffer.len() && size < 100 {
                Err(Errno::RANGE)
            } else {
                Ok(size)
            }
        });
        assert_eq!(value.unwrap().len(), 100);
        assert_eq!(
            grown(|buffer| if buffer.is_empty() { Ok(1) } else { Err(Errno::RANGE) }),
            Err(Errno::RANGE)
        );
        assert_eq!(grown(|_| Err(Errno::TOOBIG)), Err(Errno::TOOBIG));
    }

    /// restic/restic#3422: such a path is told as one whose attributes nobody could read, and the scan goes on.
    #[test]
    fn restic_3422_a_list_that_is_too_big_is_unknown_and_not_empty() {
        let Observation::Error { detail } = unreadable(Errno::TOOBIG) else {
            panic!()
        };
        assert!(detail.contains("extended attributes"), "{detail}");
        assert_eq!(unreadable(Errno::ACCESS), Observation::Denied);
    }
}
