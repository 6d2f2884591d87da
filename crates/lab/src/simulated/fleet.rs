//! The fleet's process.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use manifest::{Digest, Header, Manifest};
use plumbline_agent::api::Api;
use plumbline_agent::ramdisk::Backoff;
use protocol::latest::Authority;

use super::node::SimulatedNode;
use crate::interrupt;

/// Most nodes of a fleet.
const NODES_MAX: u32 = 4_000;
/// Between two nodes' first boots: a rack is powered on row by row.
const STAGGER: Duration = Duration::from_millis(50);
/// Between two looks at whether to stop.
const STOP_PAUSE: Duration = Duration::from_millis(200);
/// Largest authority archive, in bytes.
const AUTHORITY_BYTES_MAX: usize = 1 << 20;

/// What a fleet is started with.
#[derive(Clone, Debug, Args)]
pub struct FleetOptions {
    /// URL of the server's boot listener
    #[arg(long, value_name = "URL")]
    pub boot_url: String,
    /// Folder for the nodes' disks
    #[arg(long, value_name = "FOLDER")]
    pub folder: PathBuf,
    /// How many nodes
    #[arg(long, default_value_t = 40)]
    pub nodes: u32,
    /// Number of the first one, from 1
    #[arg(long, default_value_t = 1)]
    pub first: u32,
    /// Folders that each node watches for changes; 0: changes are seen by scans alone
    #[arg(long, default_value_t = 2_000)]
    pub watches_max: usize,
}

/// The name of a node: `sim-01`, …
#[must_use]
pub fn node_name(number: u32) -> String {
    format!("sim-{number:02}")
}

/// The MAC address of a node, of the locally administered ones.
#[must_use]
pub fn node_mac(number: u32) -> String {
    let [_, high, middle, low] = number.to_be_bytes();
    format!("52:54:5a:{high:02x}:{middle:02x}:{low:02x}")
}

/// The folder of a node; its disk is `root` in there.
#[must_use]
pub fn node_folder(fleet: &Path, number: u32) -> PathBuf {
    fleet.join(node_name(number))
}

/// Runs the fleet until the process is ended.
///
/// # Errors
/// When the server's authority cannot be read, or the options make no sense.
pub fn run_fleet(options: &FleetOptions) -> Result<()> {
    ensure!(
        options.first >= 1 && options.first.saturating_add(options.nodes) <= NODES_MAX,
        "expected nodes 1 to {NODES_MAX}"
    );
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        // Scans and pack readers block; more of them at the same time only get in each other's way.
        .max_blocking_threads(64)
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        let authority = authority(&options.boot_url).await?;
        let mut nodes = tokio::task::JoinSet::new();
        for number in options.first..options.first + options.nodes {
            let node = SimulatedNode::new(number, options, authority.clone())?;
            nodes.spawn(node.live());
            tokio::time::sleep(STAGGER).await;
        }
        println!("{} nodes are powered on", options.nodes);
        while !interrupt::requested() {
            tokio::time::sleep(STOP_PAUSE).await;
        }
        nodes.abort_all();
        Ok(())
    });
    // Scans that are under way are left behind.
    runtime.shutdown_timeout(STOP_PAUSE);
    result
}

/// What a deployer trusts, out of the second initrd that the boot plane serves.
async fn authority(boot_url: &str) -> Result<Authority> {
    let archive = Api::plain(boot_url)?
        .get_bytes("/boot/v1/authority.cpio", AUTHORITY_BYTES_MAX)
        .await
        .context("the authority")?;
    // An uncompressed archive of one JSON file.
    let text = String::from_utf8_lossy(&archive);
    let (from, to) = text.find('{').zip(text.rfind('}')).context("the authority's JSON")?;
    serde_json::from_str(&text[from..=to]).context("the authority's JSON")
}

/// The header of the image a folder was installed from, as its agent keeps it or the server serves it.
pub(super) fn installed_header(root: &Path) -> Result<Header> {
    let path = root.join("var/lib/plumbline/image-header.json");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(serde_json::from_str(&text)?)
}

/// Keeps it there after an installation.
pub(super) async fn keep_header(images: &Api, image: Digest, root: &Path) -> Result<()> {
    let path = format!("{}/{image}/manifest", protocol::latest::paths::IMAGES);
    let mut backoff = Backoff::default();
    // A server that is away is waited for, as the ramdisk does.
    let bytes = loop {
        match images.get_bytes(&path, 256 << 20).await {
            Ok(bytes) => break bytes,
            Err(error) if error.is_temporary() => tokio::time::sleep(backoff.pause()).await,
            Err(error) => return Err(error.into()),
        }
    };
    let header = Manifest::decode(&bytes)?.header;
    let path = root.join("var/lib/plumbline/image-header.json");
    fs::create_dir_all(path.parent().context("a folder")?)?;
    Ok(fs::write(path, serde_json::to_vec(&header)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_has_a_name_and_a_mac_of_its_own() {
        let mut macs: Vec<String> = (1..1_000).map(node_mac).collect();
        macs.dedup();
        assert_eq!(macs.len(), 999);
        assert_eq!(
            (node_name(7), node_mac(258)),
            ("sim-07".to_owned(), "52:54:5a:00:01:02".to_owned())
        );
    }
}
