//! Installing an image on a disk of this machine.
//!
//! Idea: seven stages in a fixed order, each of which either did all it says or names what it found and what it
//! expected. Everything that decides (which disk, where partitions lie, whether a manifest is good, what a pack holds)
//! is a function of values; programs and devices are touched in thin layers around them.
//!
//! Invariants: nothing is written before both manifests are verified; nothing outside the chosen disk is touched; every
//! byte of content is hashed against the signed manifest while it is written, or where it was found; [`Installed`] exists
//! only when all was done, flushed and unmounted.

mod bios_boot;
pub mod configure;
mod disk;
mod disk_choice;
mod fetch;
pub mod finish;
mod folder;
pub(crate) mod holders;
pub mod image;
pub mod in_place;
pub mod keys;
mod mounted;
mod partition;
mod plan;
pub mod program;
mod progress;
mod target;
mod tree;
pub mod verify;
mod wipe;
mod write;

use std::path::Path;
use std::sync::Arc;

use protocol::latest::{Authority, DeployMode, DeploySpec, Disk, DiskWork, Stage};

use crate::api::Api;
use crate::ramdisk::{Console, inventory};
use verify::Layers;

pub use bios_boot::{BiosBootError, BiosGrub};
pub use disk_choice::{Refusal, choose};
pub use fetch::HttpPacks;
pub use folder::into_folder;
pub use partition::{make_filesystems, write_table};
pub use plan::{DiskPlan, PlanError};
pub use progress::Tracker;
pub use target::Target;
pub use tree::{Tree, TreeError};
pub use wipe::wipe;
pub use write::{PackSource, WriteError, write_layer, write_layer_over};

/// Where the new root is mounted while it is written.
const MOUNT_POINT: &str = "/target";

/// What every deployment of this boot shares.
#[derive(Clone, Debug)]
pub struct Context {
    /// Speaks as this machine.
    pub api: Api,
    /// Plain HTTP, for image data.
    pub images: Api,
    /// Keys and addresses.
    pub authority: Authority,
    /// MAC of the interface the machine booted from.
    pub boot_mac: String,
    /// Where a person reads along.
    pub console: Console,
}

/// A disk that holds a complete system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Regular files written or kept, and checked.
    pub files: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// HTTP requests made for image data.
    pub requests: u64,
    /// What became of what was on the disk.
    pub work: DiskWork,
}

impl Installed {
    /// What is counted, of an installation that has come to its end.
    fn of(tracker: &Tracker, mode: DeployMode, reason: String, counts: in_place::Counts) -> Self {
        let done = tracker.snapshot();
        Self {
            files: done.files_done,
            bytes: done.bytes_done,
            requests: tracker.requests(),
            work: DiskWork {
                mode,
                reason,
                bytes_fetched: tracker.fetched_bytes(),
                bytes_kept: counts.bytes_kept,
                files_kept: counts.files_kept,
                files_written: done.files_done.saturating_sub(counts.files_kept),
                files_removed: counts.files_removed,
            },
        }
    }
}

/// Why there is no complete system on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Where it stopped.
    pub stage: Stage,
    /// What was found and what was expected; at most [`protocol::limits::TEXT_BYTES_MAX`] bytes.
    pub reason: String,
}

/// Installs. Comes back with everything unmounted, whatever happened.
///
/// # Errors
/// [`Failure`] names the stage and the reason.
pub async fn run(spec: &DeploySpec, context: &Context) -> Result<Installed, Failure> {
    let tracker = Tracker::new(context.console.clone());
    let _reports = tracker.report_to(context.api.clone(), spec.deployment_id);
    let result = stages(spec, context, &tracker).await;
    result.map_err(|error| Failure {
        stage: tracker.snapshot().stage,
        reason: bounded(&format!("{error:#}")),
    })
}

async fn stages(spec: &DeploySpec, context: &Context, tracker: &Tracker) -> anyhow::Result<Installed> {
    tracker.stage(Stage::Verify, "fetching manifests and checking their signatures");
    let layers = Arc::new(verify::fetch(spec, context, tracker).await?);
    let (files, bytes) = layers.totals();
    tracker.totals(files, bytes);

    tracker.stage(Stage::SelectDisk, "choosing the disk");
    let disk = select(spec, &layers, tracker).await?;
    bios_boot::ensure_possible(&layers.image.manifest, &disk, bios_boot::machine_starts_by_bios())?;
    let target = Target::of_machine(&disk);

    let plan = DiskPlan::new(&disk, &spec.layout)?;
    let runtime = tokio::runtime::Handle::current();
    let source = HttpPacks::new(context.images.clone(), runtime, tracker.clone());
    let written = disk::write(spec, &layers, &target, plan, source, tracker).await?;
    let disk::Written {
        mounted,
        tree,
        root,
        reason,
        counts,
    } = written;

    tracker.stage(Stage::Configure, "rendering the node's configuration");
    let overlay = configure::run(spec, context, (disk, root), &layers, &tree, tracker).await?;

    tracker.stage(Stage::Finish, "checking and flushing");
    let checked = Arc::clone(&layers);
    let boots = blocking(move || {
        finish::settle(&tree, &[&checked.image.manifest, &checked.agent.manifest, &overlay])?;
        let boots = bios_boot::install(&tree, &checked.image.manifest, &target, &plan)?;
        drop(tree);
        mounted.unmount()?;
        Ok(boots)
    })
    .await?;
    tracker.say(boots);
    let mode = match root {
        Some(_) => DeployMode::InPlace,
        None => DeployMode::Wipe,
    };
    Ok(Installed::of(tracker, mode, reason, counts))
}

async fn select(spec: &DeploySpec, layers: &Layers, tracker: &Tracker) -> anyhow::Result<Disk> {
    let disks = blocking(|| {
        let mut problems = Vec::new();
        let disks = inventory::disks(Path::new("/"), &mut problems);
        for problem in problems {
            tracing::warn!(problem, "disks");
        }
        Ok(disks)
    })
    .await?;
    let needed = plan::needed_bytes(&[&layers.image.manifest, &layers.agent.manifest], &spec.layout);
    let disk = choose(&disks, &spec.disk, needed)?;
    tracker.say(format!("disk: {}", disk_choice::describe(disk)));
    Ok(disk.clone())
}

/// Runs blocking work off the runtime's thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> anyhow::Result<T> + Send + 'static) -> anyhow::Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(anyhow::anyhow!("the deployer is broken: {error}")),
    }
}

/// An error with its causes in one line.
#[must_use]
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    bounded(&text)
}

/// The text, cut to what a reason may hold.
fn bounded(text: &str) -> String {
    let mut end = text.len().min(protocol::limits::TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
