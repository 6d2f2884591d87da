//! What can be wrong with a source, each with what, where, and what was expected.

use std::io;
use std::path::PathBuf;

/// An error of opening, pulling or unpacking a source. After one of them nothing stands at the target path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// Owners, modes of other users' files and `security.*` attributes can only be set by root.
    #[error("an import keeps owners and capabilities, so it must run as root")]
    NotRoot,
    /// The progress callback said stop.
    #[error("stopped as asked")]
    Stopped,
    /// The file or folder is not a source.
    #[error("{}: {problem}", path.display())]
    Source {
        /// The path that was given.
        path: PathBuf,
        /// What was found and what was expected.
        problem: String,
    },
    /// Something stands at the target path already.
    #[error("{} exists already; an import makes a new folder", path.display())]
    TargetExists {
        /// The target.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{action} {path}")]
    Io {
        /// What was tried ("create", "read").
        action: &'static str,
        /// Where: a path of this machine, or one inside the root, escaped.
        path: String,
        /// The system's word.
        #[source]
        source: io::Error,
    },
    /// The filesystem of the target is full, or a quota is.
    #[error("no space left for {path}")]
    DiskFull {
        /// What was being written.
        path: String,
    },
    /// Bytes that are no tar archive, or a broken one.
    #[error("{archive} at byte {offset}: {problem}")]
    Archive {
        /// Which archive or layer.
        archive: String,
        /// Offset in the uncompressed archive.
        offset: u64,
        /// What was found and what was expected.
        problem: String,
    },
    /// The data end before the archive or the compressed stream does.
    #[error("{archive} is cut off: its data end at byte {offset} of the uncompressed archive, before its end")]
    Truncated {
        /// Which archive or layer.
        archive: String,
        /// Offset in the uncompressed archive.
        offset: u64,
    },
    /// A compressed stream does not decompress.
    #[error("{archive}: {format} data are damaged at byte {offset} of what they hold: {problem}")]
    Compression {
        /// Which archive or layer.
        archive: String,
        /// Name of the format.
        format: &'static str,
        /// Offset in the uncompressed archive.
        offset: u64,
        /// The decoder's word.
        problem: String,
    },
    /// One entry cannot be taken.
    #[error("{archive}: entry {path}: {problem}")]
    Entry {
        /// Which archive, layer or folder.
        archive: String,
        /// The entry's name, escaped.
        path: String,
        /// Why.
        problem: EntryProblem,
    },
    /// A bound was passed.
    #[error("{what} of {place}: {found} is over the limit of {limit}")]
    Limit {
        /// What is bounded.
        what: &'static str,
        /// Where: an archive, or an entry of one, escaped.
        place: String,
        /// What was found; where counting stops at the limit, one more.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// A blob's content is not what its digest says.
    #[error("{blob}: expected digest {expected}, found {found}")]
    Digest {
        /// The blob's name in the source.
        blob: String,
        /// The digest in the manifest or in the image's configuration.
        expected: String,
        /// The digest of what is there.
        found: String,
    },
    /// A blob is longer or shorter than the manifest says.
    #[error("{blob}: expected {expected} bytes, found {found}")]
    Size {
        /// The blob's name in the source.
        blob: String,
        /// Bytes that the manifest says.
        expected: u64,
        /// Bytes that are there, or that had come when there were too many.
        found: u64,
    },
    /// A file that the image names is not in the source.
    #[error("{name} is named by the image and is not in {source_name}")]
    Absent {
        /// The missing file.
        name: String,
        /// The layout or archive.
        source_name: String,
    },
    /// A blob of a kind that is not read.
    #[error("{blob} has media type {media_type:?}: expected {expected}")]
    MediaType {
        /// Digest of the blob.
        blob: String,
        /// What it says it is.
        media_type: String,
        /// What can be read.
        expected: &'static str,
    },
    /// A layer is encrypted; its keys are not ours to ask for.
    #[error("layer {blob} is encrypted ({media_type}): decrypt the image first")]
    Encrypted {
        /// Digest of the layer.
        blob: String,
        /// Its media type.
        media_type: String,
    },
    /// No image for the nodes' platform.
    #[error("{place} has no image for linux/amd64; it has {}", if found.is_empty() { "none at all".to_owned() } else { found.join(", ") })]
    Platform {
        /// The layout, archive or reference.
        place: String,
        /// Platforms that are there.
        found: Vec<String>,
    },
    /// Several images; one must be named.
    #[error("{place} holds {} images ({}): say which one", found.len(), found.join(", "))]
    Ambiguous {
        /// The layout or archive.
        place: String,
        /// Names that are there, or digests of those that have none.
        found: Vec<String>,
    },
    /// An image of this name is not there.
    #[error("{place} holds no image named {name:?}; it has {}", found.join(", "))]
    NoSuchImage {
        /// The layout or archive.
        place: String,
        /// The name that was asked for.
        name: String,
        /// Names that are there.
        found: Vec<String>,
    },
    /// A JSON document of the image is not what its specification says.
    #[error("{document}: {problem}")]
    Document {
        /// Which one.
        document: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// Text that is not an image reference.
    #[error("{reference:?} is not an image reference: {problem}")]
    Reference {
        /// The text.
        reference: String,
        /// What is wrong.
        problem: String,
    },
    /// The registry wants credentials, or other ones.
    #[error("{reference}: the registry refuses these credentials, or wants some")]
    Unauthorized {
        /// The image.
        reference: String,
    },
    /// The registry does not deliver.
    #[error("{reference}: {what} failed after {attempts} attempts; the last: {problem}")]
    Registry {
        /// The image.
        reference: String,
        /// What was asked for.
        what: String,
        /// How often.
        attempts: u32,
        /// The last attempt's error.
        problem: String,
    },
}

/// Why one entry of an archive cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryProblem {
    /// The name starts with `/`.
    #[error("the name is absolute; expected one relative to the root")]
    Absolute,
    /// The name has a `..` component.
    #[error("the name climbs out with '..'")]
    Climbs,
    /// A name or link target holds a NUL byte.
    #[error("the name holds a NUL byte")]
    Nul,
    /// A name or link target is empty.
    #[error("the name or the link's target is empty")]
    Empty,
    /// Longer than Linux takes.
    #[error("the name is too long: a path has at most 4,096 bytes, a component 255")]
    TooLong,
    /// Deeper than the limit.
    #[error("the name has more than {0} components")]
    TooDeep(usize),
    /// A component of the name is a file.
    #[error("{0} is no folder")]
    NotAFolder(String),
    /// Links in the folders of the name lead above the root.
    #[error("the link {0} leads out of the root")]
    LinksOut(String),
    /// Links in the folders of the name go in circles.
    #[error("more than 40 links stand in the way of its folder")]
    LinkLoop,
    /// A hard link to something that is not there.
    #[error("hard link to {0}, which is not there")]
    LinkMissing(String),
    /// A hard link to a folder.
    #[error("hard link to {0}, which is a folder")]
    LinkToFolder(String),
    /// A whiteout that names nothing.
    #[error("a whiteout must name one entry of its folder")]
    Whiteout,
    /// A type that is not read.
    #[error("type {0:?} is not read; expected a file, folder, link, FIFO or device")]
    Type(char),
    /// A number out of range.
    #[error("{0} {1} is out of range")]
    Number(&'static str, String),
    /// The map of a sparse file does not fit its size.
    #[error("map of a sparse file: {0}")]
    Sparse(String),
    /// The file changed while it was read.
    #[error("it changed while it was copied")]
    Changed,
}

impl ImportError {
    /// Wraps what a system call said. A full disk has an error of its own, since the remedy is another one.
    pub(crate) fn io(action: &'static str, path: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| match source.raw_os_error() {
            Some(code) if code == FULL || code == QUOTA => Self::DiskFull { path },
            _ => Self::Io { action, path, source },
        }
    }

    /// The same for errors of rustix.
    pub(crate) fn errno(action: &'static str, path: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> Self {
        let wrap = Self::io(action, path);
        move |errno| wrap(errno.into())
    }
}

const FULL: i32 = rustix::io::Errno::NOSPC.raw_os_error();
const QUOTA: i32 = rustix::io::Errno::DQUOT.raw_os_error();

/// Bytes of a name as a person may read them: whatever is not plainly printable as `\xNN`, so that no name forges a
/// line of a log.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes.iter().take(512) {
        match byte {
            b'\\' => text.push_str("\\\\"),
            0x20..=0x7e => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    if bytes.len() > 512 {
        text.push('…');
    }
    text
}
