//! Reading tar archives: records into entries, with every extension that root filesystems use.
//!
//! The headers are parsed by the `tar` crate; what stands between them is ours: PAX records (whose values are bytes,
//! line feeds included), GNU long names, both kinds of sparse files, and bounds on all of them.

mod acl;
mod pax;
mod reader;
mod sparse;

pub(crate) use reader::Reader;
pub(crate) use sparse::Segment;

use crate::tree::Xattrs;

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    File,
    Symlink(Vec<u8>),
    /// A hard link and the name of the entry it shares.
    Link(Vec<u8>),
    Fifo,
    /// A character or block device.
    Device,
}

/// Seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Time {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: u32,
}

/// One entry of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// As it stands in the archive.
    pub(crate) name: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) modified: Time,
    /// Apparent size in bytes; 0 for everything but files.
    pub(crate) size: u64,
    /// Where the data of a sparse file belong; `None` for a file without holes.
    pub(crate) segments: Option<Vec<Segment>>,
    pub(crate) xattrs: Xattrs,
    /// Attributes that were left out, and why.
    pub(crate) skipped: Vec<(String, String)>,
}
