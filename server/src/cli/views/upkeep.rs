//! Channels, and what tidying the image store did.

use jiff::Timestamp;
use serde::Deserialize;

/// A channel; with the nodes that follow it, where one is shown.
#[derive(Debug, Deserialize)]
pub struct Channel {
    pub name: String,
    pub image: String,
    pub version: String,
    pub previous: Option<String>,
    pub previous_version: Option<String>,
    pub moved_by: String,
    pub moved_at: Timestamp,
    pub reason: String,
    pub nodes: u64,
    pub behind: u64,
    #[serde(default)]
    pub moved: Option<bool>,
    #[serde(default)]
    pub followers: Vec<ChannelNode>,
}

/// A node that follows a channel.
#[derive(Debug, Deserialize)]
pub struct ChannelNode {
    pub name: String,
    pub group: String,
    pub version: String,
    pub behind: bool,
}

/// A move of a channel.
#[derive(Debug, Deserialize)]
pub struct ChannelMove {
    pub kind: String,
    pub from_version: Option<String>,
    pub to_version: Option<String>,
    pub reason: String,
    pub moved_by: String,
    pub moved_at: Timestamp,
}

/// What a group of nodes is to have.
#[derive(Debug, Deserialize)]
pub struct GroupImage {
    pub group: String,
    pub image: String,
    pub set_by: String,
    pub set_at: Timestamp,
}

/// What tidying the image store did, or would do.
#[derive(Debug, Deserialize)]
pub struct Collection {
    pub dry_run: bool,
    pub images: Vec<CollectedImage>,
    pub unfinished: u64,
    #[serde(default)]
    pub unsigned: u64,
    pub packs_removed: u64,
    pub packs_waiting: u64,
    pub repacked: Vec<RepackedPack>,
    pub damaged: Vec<String>,
    pub bytes_freed: u64,
}

/// One image version, kept or removed.
#[derive(Debug, Deserialize)]
pub struct CollectedImage {
    pub name: String,
    pub version: String,
    pub digest: String,
    pub removed: bool,
    pub reasons: Vec<String>,
    pub bytes_freed: u64,
}

/// A pack of which most was needed no more.
#[derive(Debug, Deserialize)]
pub struct RepackedPack {
    pub pack: String,
    pub size: u64,
    pub new_size: u64,
}
