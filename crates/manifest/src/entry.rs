//! One path of an image.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Digest, PathClass, TreePath, escape_bytes, unescape_bytes};

/// Extended attributes: full name (`security.capability`) to raw value.
pub type Xattrs = BTreeMap<String, Vec<u8>>;

/// Size and digest of a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileContent {
    /// Bytes.
    pub size: u64,
    /// SHA-256 of the content.
    pub digest: Digest,
}

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A folder.
    Directory,
    /// A regular file. Without content: made on the node itself (a private key), which only the classes `seeded` and
    /// `volatile` may say.
    File(Option<FileContent>),
    /// A symbolic link and the bytes it holds.
    Symlink(Vec<u8>),
    /// A character device: major, minor.
    CharacterDevice(u32, u32),
    /// A block device: major, minor.
    BlockDevice(u32, u32),
    /// A named pipe.
    Fifo,
    /// A unix socket. Images hold none; nodes do.
    Socket,
}

impl EntryKind {
    /// The name used in manifests and reports.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::File(_) => "file",
            Self::Symlink(_) => "symlink",
            Self::CharacterDevice(..) => "character_device",
            Self::BlockDevice(..) => "block_device",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
        }
    }
}

/// One path with everything the image says of it.
///
/// Hard links are kept as files of their own with the same digest: an image promises content, not link counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawEntry", into = "RawEntry")]
pub struct Entry {
    /// Where.
    pub path: TreePath,
    /// What may change.
    pub class: PathClass,
    /// What it is.
    pub kind: EntryKind,
    /// Permission bits with setuid, setgid and sticky (`07777`).
    pub mode: u32,
    /// Numeric owner.
    pub uid: u32,
    /// Numeric group.
    pub gid: u32,
    /// Modification time in seconds since 1970, restored when written and never compared.
    pub mtime: i64,
    /// Extended attributes, capabilities included.
    pub xattrs: Xattrs,
}

/// The line as it stands in the manifest; field order is part of the canonical form.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEntry {
    path: TreePath,
    #[serde(rename = "type")]
    kind: String,
    class: PathClass,
    mode: String,
    uid: u32,
    gid: u32,
    mtime: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<(u32, u32)>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    xattrs: BTreeMap<String, String>,
}

impl From<Entry> for RawEntry {
    fn from(entry: Entry) -> Self {
        let mut raw = Self {
            kind: entry.kind.type_name().to_owned(),
            path: entry.path,
            class: entry.class,
            mode: format!("{:04o}", entry.mode),
            uid: entry.uid,
            gid: entry.gid,
            mtime: entry.mtime,
            size: None,
            digest: None,
            target: None,
            device: None,
            xattrs: entry
                .xattrs
                .into_iter()
                .map(|(name, value)| (name, hex::encode(value)))
                .collect(),
        };
        match entry.kind {
            EntryKind::File(Some(content)) => {
                raw.size = Some(content.size);
                raw.digest = Some(content.digest);
            }
            EntryKind::Symlink(target) => raw.target = Some(escape_bytes(&target)),
            EntryKind::CharacterDevice(major, minor) | EntryKind::BlockDevice(major, minor) => {
                raw.device = Some((major, minor));
            }
            EntryKind::Directory | EntryKind::File(None) | EntryKind::Fifo | EntryKind::Socket => {}
        }
        raw
    }
}

impl TryFrom<RawEntry> for Entry {
    type Error = String;

    fn try_from(raw: RawEntry) -> Result<Self, Self::Error> {
        let path = raw.path;
        let kind = match (raw.kind.as_str(), raw.size, raw.digest, raw.target, raw.device) {
            ("directory", None, None, None, None) => EntryKind::Directory,
            ("file", Some(size), Some(digest), None, None) => EntryKind::File(Some(FileContent { size, digest })),
            ("file", None, None, None, None) if matches!(raw.class, PathClass::Seeded | PathClass::Volatile) => {
                EntryKind::File(None)
            }
            ("symlink", None, None, Some(target), None) => {
                let target = unescape_bytes(&target).map_err(|e| e.to_string())?;
                if target.is_empty() || target.len() > crate::path::PATH_BYTES_MAX || target.contains(&0) {
                    return Err(format!("{path}: a link target has 1 to 4,096 bytes and no NUL"));
                }
                EntryKind::Symlink(target)
            }
            ("character_device", None, None, None, Some((major, minor))) => EntryKind::CharacterDevice(major, minor),
            ("block_device", None, None, None, Some((major, minor))) => EntryKind::BlockDevice(major, minor),
            ("fifo", None, None, None, None) => EntryKind::Fifo,
            ("socket", None, None, None, None) => EntryKind::Socket,
            (kind, ..) => return Err(format!("{path}: fields do not fit the type {kind:?}")),
        };
        let mode = u32::from_str_radix(&raw.mode, 8).ok().filter(|mode| *mode <= 0o7777);
        let mode = mode.ok_or_else(|| format!("{path}: mode {:?}: expected four octal digits", raw.mode))?;
        let mut xattrs = Xattrs::new();
        for (name, value) in raw.xattrs {
            let value = hex::decode(&value).map_err(|_| format!("{path}: xattr {name}: expected hexadecimal"))?;
            xattrs.insert(name, value);
        }
        if raw.class == PathClass::Ignored {
            return Err(format!("{path}: an ignored path is not listed"));
        }
        Ok(Self {
            path,
            class: raw.class,
            kind,
            mode,
            uid: raw.uid,
            gid: raw.gid,
            mtime: raw.mtime,
            xattrs,
        })
    }
}
