//! What was imported, as a record to keep beside the image.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The kind of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OriginKind {
    /// A folder in the OCI image layout.
    OciLayout,
    /// An archive of `docker save`, or an OCI image layout in a tar.
    ImageArchive,
    /// A tarball of a root.
    Tarball,
    /// A folder that holds a root.
    Folder,
}

/// Where a root came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The kind of source.
    pub kind: OriginKind,
    /// The path that was given.
    pub location: String,
    /// The image's name in the source: a tag, or the reference it was pulled by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// One layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerDescription {
    /// Digest of the blob; absent in the older form of `docker save`, which says only `diff_id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Digest of the uncompressed archive, checked while unpacking.
    pub diff_id: String,
    /// Media type, as the manifest says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Bytes of the blob.
    pub bytes: u64,
}

/// What the image says of itself. Only os and architecture mean anything to a node; the rest is kept as information.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageDescription {
    /// Digest of the manifest; of the configuration ("image id") in the older form of `docker save`.
    pub digest: String,
    /// Digest of the configuration.
    pub config_digest: String,
    /// Operating system, `linux`.
    pub os: String,
    /// Architecture, `amd64`.
    pub architecture: String,
    /// When it was made, RFC 3339, as it says itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Environment of its process as a container; not set on a node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Its process as a container; not started on a node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// Arguments of that process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
    /// Layers, lowest first.
    pub layers: Vec<LayerDescription>,
}

/// What a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoteKind {
    /// A device node was left out: a node's `/dev` is filled by its kernel.
    DeviceSkipped,
    /// A socket was left out: whoever listens makes it anew.
    SocketSkipped,
    /// A hard link to something left out was left out.
    LinkSkipped,
    /// Another filesystem is mounted there; its content was not copied.
    OtherFilesystem,
    /// An extended attribute was left out.
    AttributeSkipped,
    /// Bytes after the end of the archive were not read.
    DataAfterEnd,
}

/// Something that a person may want to know of an import that succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// What it is about.
    pub kind: NoteKind,
    /// Where, escaped: a path in the root, or the name of an archive.
    pub path: String,
    /// More in words.
    pub detail: String,
}

/// The record of one import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// Where the root came from.
    pub origin: Origin,
    /// What the image says of itself, where the source was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageDescription>,
    /// SHA-256 of the file that was given, in hexadecimal, where the source was a tarball.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tarball_digest: Option<String>,
    /// Entries read, over all layers.
    pub entries: u64,
    /// Bytes of content, by apparent size, over all layers.
    pub content_bytes: u64,
    /// What a person may want to know.
    pub notes: Vec<Note>,
    /// Notes beyond [`crate::Limits::notes_max`].
    pub notes_left_out: u64,
}
