//! Extended attributes, of open files and of links.

use std::os::fd::AsFd;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::by_process;

/// Longest list of names and longest value that Linux has.
const BYTES_MAX: usize = 64 << 10;

/// Full names and raw values.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Sets one on an open file.
pub(crate) fn set_xattr(file: impl AsFd, name: &[u8], value: &[u8]) -> Result<(), Errno> {
    rustix::fs::fsetxattr(file, name, value, XattrFlags::empty())
}

/// Sets one on `name` in `folder` itself, be it a link.
pub(crate) fn set_xattr_nofollow(folder: impl AsFd, file: &[u8], name: &[u8], value: &[u8]) -> Result<(), Errno> {
    rustix::fs::lsetxattr(by_process(folder, file), name, value, XattrFlags::empty())
}

/// Removes all of an open file.
pub(crate) fn clear_xattrs(file: impl AsFd) -> Result<(), Errno> {
    let file = file.as_fd();
    for (name, _) in xattrs_of(file)? {
        match rustix::fs::fremovexattr(file, &*name) {
            Ok(()) | Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// All of an open file.
pub(crate) fn xattrs_of(file: impl AsFd) -> Result<Xattrs, Errno> {
    let file = file.as_fd();
    collect(
        |buffer| rustix::fs::flistxattr(file, buffer),
        |name, buffer| rustix::fs::fgetxattr(file, name, buffer),
    )
}

/// All of `name` in `folder` itself, be it a link.
pub(crate) fn xattrs_of_nofollow(folder: impl AsFd, name: &[u8]) -> Result<Xattrs, Errno> {
    let path = by_process(folder, name);
    collect(
        |buffer| rustix::fs::llistxattr(&*path, buffer),
        |name, buffer| rustix::fs::lgetxattr(&*path, name, buffer),
    )
}

fn collect(
    list: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    get: impl Fn(&[u8], &mut [u8]) -> Result<usize, Errno>,
) -> Result<Xattrs, Errno> {
    let mut names = vec![0; BYTES_MAX];
    let length = match list(&mut names) {
        Ok(length) => length,
        // A filesystem without attributes has none.
        Err(Errno::OPNOTSUPP) => 0,
        Err(errno) => return Err(errno),
    };
    let mut found = Vec::new();
    for name in names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; BYTES_MAX];
        let length = get(name, &mut value)?;
        value.truncate(length);
        found.push((name.to_vec(), value));
    }
    Ok(found)
}
