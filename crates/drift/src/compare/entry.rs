//! One path against its entry.

use manifest::{Entry, EntryKind, FileContent, FilesystemKind, PathClass, TreePath};

use super::value_text;
use crate::{
    Attributes, Difference, FindingKind, Observation, ObservedDigest, ObservedEntry, ObservedKind, ObservedXattrs,
};

/// Longest xattr value written out, in bytes; longer ones are named by their digest.
const XATTR_BYTES_MAX: usize = 128;

/// What came of comparing one path. Both may be set: the mode differs and the content could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What certainly differs.
    pub difference: Option<Difference>,
    /// What could not be looked at; without it and without a difference the path is as it should be.
    pub unknown: Option<Observation>,
}

impl Outcome {
    /// Whether everything that matters was looked at and is as it should be.
    #[must_use]
    pub const fn is_same(&self) -> bool {
        self.difference.is_none() && self.unknown.is_none()
    }
}

/// Compares what stands at `path` with what should: `expected` is `None` for a path that no manifest lists, whose
/// `class` is then that of the rules.
///
/// Pinned and rendered: type, mode, owner, xattrs, and content, link target or device. Seeded: type, mode, owner.
/// Volatile: type. Unlisted: allowed by its class, or added. On vfat only type and content mean anything.
#[must_use]
pub fn compare_entry(
    path: &TreePath,
    expected: Option<&Entry>,
    class: PathClass,
    observed: &ObservedEntry,
    filesystem: FilesystemKind,
) -> Outcome {
    let Some(expected) = expected else {
        return unlisted(path, class, observed, filesystem);
    };
    if class == PathClass::Ignored {
        return Outcome::default();
    }
    let mut pair = Pair::default();
    if expected.kind.type_name() != observed.kind.type_name() {
        pair.expected_kind(&expected.kind);
        pair.observed_kind(&observed.kind);
        return pair.outcome(path);
    }
    let metadata = filesystem.keeps_metadata();
    if class != PathClass::Volatile && metadata {
        // The mode of a link means nothing on Linux.
        if !matches!(expected.kind, EntryKind::Symlink(_)) {
            pair.differing("mode", &mode_text(expected.mode), &mode_text(observed.mode));
        }
        pair.differing("uid", &expected.uid.to_string(), &observed.uid.to_string());
        pair.differing("gid", &expected.gid.to_string(), &observed.gid.to_string());
    }
    if matches!(class, PathClass::Pinned | PathClass::Rendered) {
        content(&mut pair, &expected.kind, &observed.kind);
        if metadata {
            xattrs(&mut pair, expected, &observed.xattrs);
        }
    }
    pair.outcome(path)
}

fn unlisted(path: &TreePath, class: PathClass, observed: &ObservedEntry, filesystem: FilesystemKind) -> Outcome {
    if matches!(class, PathClass::Seeded | PathClass::Volatile | PathClass::Ignored) {
        return Outcome::default();
    }
    let mut pair = Pair::default();
    pair.observed_kind(&observed.kind);
    if filesystem.keeps_metadata() {
        if !matches!(observed.kind, ObservedKind::Other(EntryKind::Symlink(_))) {
            pair.actual("mode", mode_text(observed.mode));
        }
        pair.actual("uid", observed.uid.to_string());
        pair.actual("gid", observed.gid.to_string());
        match &observed.xattrs {
            ObservedXattrs::Value(xattrs) => {
                for (name, value) in xattrs {
                    pair.actual(&xattr_name(name), xattr_text(value));
                }
            }
            ObservedXattrs::NotRead => {}
            ObservedXattrs::Unknown(observation) => pair.unknown(observation),
        }
    }
    let mut outcome = pair.outcome(path);
    if let Some(difference) = &mut outcome.difference {
        difference.expected = None;
    }
    outcome
}

fn content(pair: &mut Pair, expected: &EntryKind, observed: &ObservedKind) {
    match (expected, observed) {
        (EntryKind::File(Some(expected)), ObservedKind::File { size, digest }) => {
            file_content(pair, expected, *size, digest);
        }
        (EntryKind::Symlink(expected), ObservedKind::Other(EntryKind::Symlink(observed))) => {
            pair.differing("target", &value_text(expected), &value_text(observed));
        }
        (
            EntryKind::CharacterDevice(a, b) | EntryKind::BlockDevice(a, b),
            ObservedKind::Other(EntryKind::CharacterDevice(x, y) | EntryKind::BlockDevice(x, y)),
        ) => pair.differing("device", &device_text(*a, *b), &device_text(*x, *y)),
        _ => {}
    }
}

fn file_content(pair: &mut Pair, expected: &FileContent, size: u64, digest: &ObservedDigest) {
    pair.differing("size", &expected.size.to_string(), &size.to_string());
    match digest {
        ObservedDigest::Hashed(digest) => {
            pair.differing("digest", &expected.digest.to_string(), &digest.to_string());
        }
        // Another size is another content; the same size says nothing.
        ObservedDigest::NotRead if size != expected.size => {}
        ObservedDigest::NotRead => pair.unknown(&Observation::NotScanned {
            detail: "the content was not read".to_owned(),
        }),
        ObservedDigest::Unknown(observation) => pair.unknown(observation),
    }
}

fn xattrs(pair: &mut Pair, expected: &Entry, observed: &ObservedXattrs) {
    let observed = match observed {
        ObservedXattrs::Value(xattrs) => xattrs,
        ObservedXattrs::NotRead => {
            return pair.unknown(&Observation::NotScanned {
                detail: "extended attributes were not read".to_owned(),
            });
        }
        ObservedXattrs::Unknown(observation) => return pair.unknown(observation),
    };
    for (name, value) in &expected.xattrs {
        if observed.get(name) != Some(value) {
            pair.expected(&xattr_name(name), xattr_text(value));
        }
    }
    for (name, value) in observed {
        if expected.xattrs.get(name) != Some(value) {
            pair.actual(&xattr_name(name), xattr_text(value));
        }
    }
}

fn mode_text(mode: u32) -> String {
    format!("{mode:04o}")
}

fn device_text(major: u32, minor: u32) -> String {
    format!("{major}:{minor}")
}

fn xattr_name(name: &str) -> String {
    format!("xattr.{}", value_text(name.as_bytes()))
}

fn xattr_text(value: &[u8]) -> String {
    if value.len() <= XATTR_BYTES_MAX {
        hex::encode(value)
    } else {
        format!("sha256:{}", manifest::Digest::of(value))
    }
}

/// Both sides of a difference while it is put together.
#[derive(Default)]
struct Pair {
    expected: Attributes,
    actual: Attributes,
    unknown: Option<Observation>,
}

impl Pair {
    fn expected(&mut self, name: &str, value: String) {
        self.expected.0.insert(name.to_owned(), value);
    }

    fn actual(&mut self, name: &str, value: String) {
        self.actual.0.insert(name.to_owned(), value);
    }

    fn differing(&mut self, name: &str, expected: &str, actual: &str) {
        if expected != actual {
            self.expected(name, expected.to_owned());
            self.actual(name, actual.to_owned());
        }
    }

    fn unknown(&mut self, observation: &Observation) {
        self.unknown.get_or_insert_with(|| observation.clone());
    }

    fn expected_kind(&mut self, kind: &EntryKind) {
        self.expected("type", kind.type_name().to_owned());
        match kind {
            EntryKind::File(Some(content)) => {
                self.expected("size", content.size.to_string());
                self.expected("digest", content.digest.to_string());
            }
            EntryKind::Symlink(target) => self.expected("target", value_text(target)),
            EntryKind::CharacterDevice(major, minor) | EntryKind::BlockDevice(major, minor) => {
                self.expected("device", device_text(*major, *minor));
            }
            EntryKind::Directory | EntryKind::File(None) | EntryKind::Fifo | EntryKind::Socket => {}
        }
    }

    fn observed_kind(&mut self, kind: &ObservedKind) {
        self.actual("type", kind.type_name().to_owned());
        match kind {
            ObservedKind::File { size, digest } => {
                self.actual("size", size.to_string());
                match digest {
                    ObservedDigest::Hashed(digest) => self.actual("digest", digest.to_string()),
                    ObservedDigest::NotRead => {}
                    ObservedDigest::Unknown(observation) => self.unknown(observation),
                }
            }
            ObservedKind::Other(EntryKind::Symlink(target)) => self.actual("target", value_text(target)),
            ObservedKind::Other(EntryKind::CharacterDevice(major, minor) | EntryKind::BlockDevice(major, minor)) => {
                self.actual("device", device_text(*major, *minor));
            }
            ObservedKind::Other(_) => {}
        }
    }

    fn outcome(self, path: &TreePath) -> Outcome {
        let differs = !self.expected.0.is_empty() || !self.actual.0.is_empty();
        Outcome {
            difference: differs.then(|| Difference {
                kind: FindingKind::File,
                key: path.to_string(),
                expected: Some(self.expected),
                actual: Some(self.actual),
            }),
            unknown: self.unknown,
        }
    }
}

#[cfg(test)]
#[path = "entry_tests.rs"]
mod tests;
