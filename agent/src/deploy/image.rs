//! One image into a folder: what the deployer does between a made filesystem and a node's configuration, for people who
//! look into an image, and for measuring.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use manifest::{Digest, ManifestKind, PublicKey, TrustedKeys};
use protocol::latest::Stage;
use serde::Serialize;

use super::disk::{write_fresh, write_over};
use super::in_place::Counts;
use super::progress::Tracker;
use super::tree::Tree;
use super::{HttpPacks, blocking, finish, verify};
use crate::api::Api;
use crate::ramdisk::Console;

/// What to write where.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Base URL of a boot listener.
    pub from: String,
    /// The image.
    pub image: Digest,
    /// The public key that signs it (minisign).
    pub key: String,
    /// An existing folder. It becomes the image's root: whatever else is in it is removed when `over` is set.
    pub folder: PathBuf,
    /// Use what is right in the folder, and remove everything else.
    pub over: bool,
}

/// What it took.
#[derive(Clone, Debug, Serialize)]
pub struct Taken {
    /// Regular files with content, written or kept.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// HTTP requests.
    pub requests: u64,
    /// Bytes from the server as they travelled: manifest, index, packs.
    pub bytes_fetched: u64,
    /// Bytes of content that were there already.
    pub bytes_kept: u64,
    /// Files that were there already, at their path or at another.
    pub files_kept: u64,
    /// Files, links and devices that were removed.
    pub files_removed: u64,
    /// Seconds for manifest and index.
    pub manifest_secs: f64,
    /// Seconds for everything, the data being on the disk.
    pub secs: f64,
    /// The most memory that this process has held so far, in bytes; 0 when the kernel does not say.
    pub memory_peak_bytes: u64,
}

/// Writes the image, checks types, sizes and modes, and flushes. All filesystems of the image are folders; nothing is
/// configured for a node. Contents are read on another thread, so the runtime must have one for that.
///
/// # Errors
/// What could not be fetched, verified or written.
pub async fn write(wanted: &Wanted) -> anyhow::Result<Taken> {
    let begun = Instant::now();
    let tracker = Tracker::new(Console::silent());
    let images = Api::plain(&wanted.from)?;
    let order = verify::Order {
        digest: wanted.image,
        kind: ManifestKind::Os,
        keys: PublicKey::parse(&wanted.key)
            .and_then(TrustedKeys::of)
            .context("the key")?,
    };
    let (layer, _) = verify::layer(order, &images, &tracker)
        .await
        .with_context(|| format!("image {}", wanted.image))?;
    let manifest_secs = begun.elapsed().as_secs_f64();
    tracker.stage(Stage::Write, "writing files");
    let source = HttpPacks::new(images, tokio::runtime::Handle::current(), tracker.clone());
    let (folder, over, progress) = (wanted.folder.clone(), wanted.over, tracker.clone());
    let counts = blocking(move || {
        let tree = open(&folder, &layer)?;
        let counts = if over {
            write_over(&tree, &[&layer], &[], &source, &progress, || Ok(()))?
        } else {
            write_fresh(&tree, &[&layer], &source, &progress)?;
            Counts::default()
        };
        finish::settle_folder(&tree, &[&layer.manifest])?;
        Ok(counts)
    })
    .await?;
    let done = tracker.snapshot();
    Ok(Taken {
        files: done.files_done,
        bytes: done.bytes_done,
        requests: tracker.requests(),
        bytes_fetched: tracker.fetched_bytes(),
        bytes_kept: counts.bytes_kept,
        files_kept: counts.files_kept,
        files_removed: counts.files_removed,
        manifest_secs,
        secs: begun.elapsed().as_secs_f64(),
        memory_peak_bytes: memory_peak_bytes(),
    })
}

fn open(folder: &Path, layer: &verify::Layer) -> anyhow::Result<Tree> {
    let esp = verify::esp_mount(&layer.manifest.header)?;
    Ok(Tree::open(folder, vec![esp])?)
}

fn memory_peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
