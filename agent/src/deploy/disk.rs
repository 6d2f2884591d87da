//! The disk: from what it was to all files of the layers written. Over an installation of this node, or after a wipe.

use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use protocol::latest::{DeployMode, DeploySpec, Layout, Stage};
use uuid::Uuid;

use super::in_place::{Counts, Examined, Found, check_filesystem, examine, save};
use super::mounted::Mounted;
use super::partition::{make_esp_again, make_filesystems, write_table};
use super::plan::DiskPlan;
use super::progress::Tracker;
use super::target::Target;
use super::tree::Tree;
use super::verify::{Layer, Layers};
use super::wipe::wipe;
use super::write::{PackSource, write_layer, write_layer_over};
use super::{MOUNT_POINT, blocking};

/// Where the old EFI system partition is mounted while it is read.
const OLD_ESP: &str = "/old-esp";
/// Attempts after which a disk that could not be installed over is wiped.
const ATTEMPTS_IN_PLACE: u32 = 2;

/// A disk with all files of the layers on it.
pub(super) struct Written {
    pub(super) mounted: Mounted,
    pub(super) tree: Arc<Tree>,
    /// The root filesystem that was there before.
    pub(super) root: Option<Uuid>,
    /// Why it was done so.
    pub(super) reason: String,
    /// What came of the old files.
    pub(super) counts: Counts,
}

/// Makes the disk ready and writes the layers.
///
/// # Errors
/// What cannot be done; everything is unmounted then.
pub(super) async fn write(
    spec: &DeploySpec,
    layers: &Arc<Layers>,
    target: &Target,
    plan: DiskPlan,
    source: impl PackSource + Send + 'static,
    tracker: &Tracker,
) -> anyhow::Result<Written> {
    match decide(spec, target, plan, tracker).await? {
        Ok(examined) => over(spec, layers, target, plan, source, tracker, examined.root).await,
        Err(reason) => anew(spec, layers, target, plan, source, tracker, reason).await,
    }
}

/// Whether the disk is installed over; otherwise the reason why it is wiped.
async fn decide(
    spec: &DeploySpec,
    target: &Target,
    plan: DiskPlan,
    tracker: &Tracker,
) -> anyhow::Result<Result<Examined, String>> {
    let decided = match refused_before_looking(spec) {
        Some(reason) => Err(reason),
        None => {
            tracker.say("looking at what is on the disk, and checking its filesystem");
            let (target, known) = (target.clone(), spec.known_roots.clone());
            blocking(move || {
                let look = || {
                    let examined = examine(&target, &plan, &known)?;
                    check_filesystem(&target)?;
                    Ok(examined)
                };
                Ok(look())
            })
            .await?
        }
    };
    match decided {
        Err(reason) if !spec.keep.is_empty() => {
            bail!("paths are to be kept on the disk, and it cannot be installed over: {reason}")
        }
        decided => Ok(decided),
    }
}

/// The reason to wipe a disk whatever is on it.
fn refused_before_looking(spec: &DeploySpec) -> Option<String> {
    match spec.mode {
        DeployMode::Wipe => Some("a wipe was asked for".to_owned()),
        DeployMode::InPlace if spec.attempt > ATTEMPTS_IN_PLACE && spec.keep.is_empty() => {
            Some(format!("{} attempts did not come to their end", spec.attempt - 1))
        }
        DeployMode::InPlace => None,
    }
}

async fn anew(
    spec: &DeploySpec,
    layers: &Arc<Layers>,
    target: &Target,
    plan: DiskPlan,
    source: impl PackSource + Send + 'static,
    tracker: &Tracker,
    reason: String,
) -> anyhow::Result<Written> {
    tracker.stage(Stage::Wipe, format!("clearing {}: {reason}", target.describe()));
    let cleared = target.clone();
    blocking(move || wipe(&cleared)).await?;

    tracker.stage(Stage::Partition, format!("partitioning {}", target.describe()));
    let (divided, layout, esp) = (target.clone(), spec.layout.clone(), layers.esp_mount.clone());
    let mounted = blocking(move || {
        write_table(&divided, &plan)?;
        make_filesystems(&divided, &plan, &layout)?;
        let mut mounted = Mounted::root(&divided, Path::new(MOUNT_POINT))?;
        mounted.add_esp(&divided, &esp)?;
        Ok(mounted)
    })
    .await?;

    tracker.stage(Stage::Write, "writing files");
    let tree = Arc::new(Tree::open(Path::new(MOUNT_POINT), vec![layers.esp_mount.clone()])?);
    let (written, from, progress) = (Arc::clone(layers), Arc::clone(&tree), tracker.clone());
    blocking(move || write_fresh(&from, &written.all(), &source, &progress)).await?;
    Ok(Written {
        mounted,
        tree,
        root: None,
        reason,
        counts: Counts::default(),
    })
}

async fn over(
    spec: &DeploySpec,
    layers: &Arc<Layers>,
    target: &Target,
    plan: DiskPlan,
    source: impl PackSource + Send + 'static,
    tracker: &Tracker,
    root: Uuid,
) -> anyhow::Result<Written> {
    tracker.stage(
        Stage::Partition,
        format!(
            "{} stays as it is divided, and what is right on it stays",
            target.describe()
        ),
    );
    let (target, spec, layers, tracker) = (target.clone(), spec.clone(), Arc::clone(layers), tracker.clone());
    blocking(move || {
        let mut mounted = Mounted::root(&target, Path::new(MOUNT_POINT))?;
        let tree = Arc::new(Tree::open(Path::new(MOUNT_POINT), vec![layers.esp_mount.clone()])?);
        let layout = Layout {
            root_uuid: root,
            ..spec.layout
        };
        empty_esp(&tree, &target, &plan, &layout, &layers, &tracker)?;
        tracker.stage(Stage::Write, "comparing files, and writing what differs");
        let ready = || mounted.add_esp(&target, &layers.esp_mount);
        let counts = write_over(&tree, &layers.all(), &spec.keep, &source, &tracker, ready)?;
        Ok(Written {
            mounted,
            tree,
            root: Some(root),
            reason: format!("the disk has this node's root filesystem {root}"),
            counts,
        })
    })
    .await
}

/// Makes the ESP anew. From here on nothing on the disk starts, until its configuration is written at the end.
fn empty_esp(
    tree: &Tree,
    target: &Target,
    plan: &DiskPlan,
    layout: &Layout,
    layers: &Layers,
    tracker: &Tracker,
) -> anyhow::Result<()> {
    let manifests = [&layers.image.manifest, &layers.agent.manifest];
    let esp = target.partition_node(1);
    match save(tree, &esp, Path::new(OLD_ESP), &layers.esp_mount, &manifests) {
        Ok(saved) => tracing::info!(saved, "files of the old EFI system partition"),
        Err(error) => tracker.say(format!(
            "nothing of the old EFI system partition is used again: {error:#}"
        )),
    }
    make_esp_again(target, plan, layout)
}

/// Writes the layers into an empty tree. Blocks.
pub(super) fn write_fresh(
    tree: &Tree,
    layers: &[&Layer],
    source: &dyn PackSource,
    tracker: &Tracker,
) -> anyhow::Result<()> {
    for layer in layers {
        write_layer(tree, &layer.manifest, &layer.index, source, tracker)?;
    }
    Ok(())
}

/// Makes a tree of the layers out of whatever it is. `ready` is called when only what stays is left, and before anything
/// is written. Blocks.
pub(super) fn write_over(
    tree: &Tree,
    layers: &[&Layer],
    keep: &[manifest::TreePath],
    source: &dyn PackSource,
    tracker: &Tracker,
    ready: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Counts> {
    let manifests: Vec<&manifest::Manifest> = layers.iter().map(|layer| &layer.manifest).collect();
    let mut found = Found::survey(tree, &manifests, keep, |done, all| {
        tracker.detail(format!("compared {done} of {all} paths"));
    })?;
    ready()?;
    tracker.detail("writing what differs");
    for layer in layers {
        write_layer_over(tree, &layer.manifest, &layer.index, source, tracker, Some(&mut found))?;
    }
    Ok(found.finish(tree)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(mode: DeployMode, attempt: u32, keep: &[&str]) -> DeploySpec {
        let digest = manifest::Digest::of(b"");
        DeploySpec {
            deployment_id: protocol::DeploymentId::new(),
            attempt,
            node_name: "n1".to_owned(),
            image: digest,
            agent_layer: digest,
            disk: Default::default(),
            layout: Layout {
                esp_mib: 256,
                esp_volume_id: "12AB34CD".to_owned(),
                esp_label: "PL12AB34CD".to_owned(),
                root_uuid: Uuid::nil(),
            },
            trust: None,
            mode,
            known_roots: Vec::new(),
            keep: keep.iter().map(|path| path.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn a_disk_that_could_not_be_installed_over_twice_is_wiped_unless_something_is_to_be_kept() {
        assert!(refused_before_looking(&spec(DeployMode::InPlace, 2, &[])).is_none());
        let reason = refused_before_looking(&spec(DeployMode::InPlace, 3, &[])).unwrap();
        assert!(reason.contains("2 attempts"), "{reason}");
        assert!(refused_before_looking(&spec(DeployMode::InPlace, 3, &["/srv"])).is_none());
        assert!(refused_before_looking(&spec(DeployMode::Wipe, 1, &[])).is_some());
    }
}
