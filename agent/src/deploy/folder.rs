//! Installing into a plain folder, for simulated nodes: the same stages without a disk.

use std::path::Path;
use std::sync::Arc;

use protocol::latest::{DeployMode, DeploySpec, Disk, Stage};

use super::disk::write_fresh;
use super::in_place::Counts;
use super::progress::Tracker;
use super::tree::Tree;
use super::{Context, Failure, HttpPacks, Installed, blocking, bounded, configure, finish, verify};

/// Installs into `folder`, which is there and empty: manifests are fetched and verified, files written and checked, the
/// node's configuration is rendered by the server and written with keys made here. `disk` is what the server is told of
/// the disk. Nothing is partitioned or made bootable, and all filesystems of the image are folders.
///
/// The steps before and after it are those of the ramdisk: [`crate::ramdisk::claim()`], [`crate::ramdisk::next_task`],
/// and the outcome. Progress is reported while it runs. The contents of packs are read on a thread of their own, so
/// the runtime must have one more for them.
///
/// # Errors
/// [`Failure`] names the stage and the reason.
pub async fn into_folder(
    spec: &DeploySpec,
    context: &Context,
    folder: &Path,
    disk: Disk,
) -> Result<Installed, Failure> {
    let tracker = Tracker::new(context.console.clone());
    let _reports = tracker.report_to(context.api.clone(), spec.deployment_id);
    let result = stages(spec, context, folder, disk, &tracker).await;
    result.map_err(|error| Failure {
        stage: tracker.snapshot().stage,
        reason: bounded(&format!("{error:#}")),
    })
}

async fn stages(
    spec: &DeploySpec,
    context: &Context,
    folder: &Path,
    disk: Disk,
    tracker: &Tracker,
) -> anyhow::Result<Installed> {
    tracker.stage(Stage::Verify, "fetching manifests and checking their signatures");
    let layers = Arc::new(verify::fetch(spec, context, tracker).await?);
    let (files, bytes) = layers.totals();
    tracker.totals(files, bytes);

    tracker.stage(Stage::Write, "writing files");
    let tree = Arc::new(Tree::open(folder, vec![layers.esp_mount.clone()])?);
    let runtime = tokio::runtime::Handle::current();
    let source = HttpPacks::new(context.images.clone(), runtime, tracker.clone());
    let (written, from, progress) = (Arc::clone(&layers), Arc::clone(&tree), tracker.clone());
    blocking(move || write_fresh(&from, &written.all(), &source, &progress)).await?;

    tracker.stage(Stage::Configure, "rendering the node's configuration");
    let overlay = configure::run(spec, context, (disk, None), &layers, &tree, tracker).await?;

    tracker.stage(Stage::Finish, "checking");
    blocking(move || finish::check_all(&tree, &[&layers.image.manifest, &layers.agent.manifest, &overlay])).await?;
    let reason = "a folder for a simulated node".to_owned();
    Ok(Installed::of(tracker, DeployMode::Wipe, reason, Counts::default()))
}
