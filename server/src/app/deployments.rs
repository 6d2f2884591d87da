//! Asking for a deployment. What the deployer and the server then say to each other is elsewhere.

use lifecycle::{Observed, Step};
use manifest::TreePath;
use protocol::latest::{DeployMode, DiskRule, Layout};
use protocol::limits::{DEPLOYMENT_ATTEMPTS_MAX, KEEP_PATHS_MAX};
use protocol::{DeploymentId, NodeId};
use store::{ImageRecord, NewDeployment, NodeRecord};

use super::{App, AppError, burn_ins, nodes, trust};
use crate::image::BIOS_CORE_PATH;

/// Size of the EFI system partition: two kernels with their initramfs, and room.
const ESP_MIB: u32 = 256;

/// What is asked for, of what is on the disk.
#[derive(Clone, Debug, Default)]
pub struct OldDisk {
    /// Install over it where that is possible, or wipe it.
    pub mode: DeployMode,
    /// Paths that stay, with all below them, where the image allows something unlisted.
    pub keep: Vec<String>,
}

/// Asks for an image on a node, with the newest agent layer; the node's step is part of it. Without an image, the one that
/// is proposed for the node is taken.
///
/// # Errors
/// [`AppError::NotFound`] for the image, [`AppError::Invalid`] when it is no operating system, [`AppError::Conflict`]
/// when it must not be used, the node's state or its burn-in does not allow it, or there is no agent layer. `despite_burn_in` says why the
/// burn-in is not to hold it back.
pub async fn request(
    app: &App,
    node: NodeId,
    image: Option<&str>,
    disk_rule: DiskRule,
    old: OldDisk,
    despite_burn_in: Option<&str>,
    requested_by: &str,
) -> Result<DeploymentId, AppError> {
    let wanted = wanted(app, node, image, disk_rule, old).await?;
    burn_ins::gate(app, &wanted.node, despite_burn_in, requested_by).await?;
    create(app, wanted, requested_by).await
}

/// A deployment that nothing but its node's burn-in can refuse.
pub(super) struct Wanted {
    /// The node as it is now.
    pub(super) node: NodeRecord,
    image: ImageRecord,
    channel: Option<String>,
    agent_layer: ImageRecord,
    disk_rule: DiskRule,
    mode: DeployMode,
    keep: Vec<TreePath>,
}

/// Checks all that can be before anything is written.
///
/// # Errors
/// As [`request`], but for the burn-in.
pub(super) async fn wanted(
    app: &App,
    node: NodeId,
    image: Option<&str>,
    disk_rule: DiskRule,
    old: OldDisk,
) -> Result<Wanted, AppError> {
    let record = app.store.node_get(node).await?;
    if let Step::Refused { reason } = lifecycle::step(record.state, &Observed::DeploymentRequested) {
        return Err(AppError::Conflict(reason));
    }
    disk_rule_check(&disk_rule)?;
    let reference = match image {
        Some(image) => image.to_owned(),
        None => proposed(app, &record).await?,
    };
    let (image, agent_layer) = images_find(app, &reference).await?;
    let keep = keep_paths(&old)?;
    if !keep.is_empty() {
        keep_check(&app.images.manifest(image.digest).await?.header.classes, &keep)?;
    }
    // What has a slash is a channel.
    let channel = reference.contains('/').then_some(reference);
    if record.inventory.as_ref().is_some_and(|inventory| !inventory.uefi) {
        bios_check(app, &image).await?;
    }
    if let Some(order) = app
        .store
        .boot_order_find(node)
        .await?
        .filter(|order| order.kind.is_once())
    {
        return Err(AppError::Conflict(format!(
            "{} ordered {} for this node: lift that first (plumbline node boot NODE --normal)",
            order.ordered_by,
            order.kind.as_str()
        )));
    }
    Ok(Wanted {
        node: record,
        image,
        channel,
        agent_layer,
        disk_rule,
        mode: old.mode,
        keep,
    })
}

/// Asks for it.
///
/// # Errors
/// [`AppError::Conflict`] when the node's state has changed meanwhile.
pub(super) async fn create(app: &App, wanted: Wanted, requested_by: &str) -> Result<DeploymentId, AppError> {
    let Wanted {
        node: NodeRecord { id: node, .. },
        image,
        channel,
        agent_layer,
        disk_rule,
        mode,
        keep,
    } = wanted;
    let deployment = NewDeployment {
        node_id: node,
        image: image.digest,
        channel,
        agent_layer: agent_layer.digest,
        disk_rule,
        layout: layout(node),
        mode,
        keep,
        attempts_max: DEPLOYMENT_ATTEMPTS_MAX,
        requested_by: requested_by.to_owned(),
    };
    let id = app.store.deployment_create(&deployment).await?;
    tracing::info!(
        node.id = %node,
        deployment.id = %id,
        image.digest = %image.digest,
        user.name = requested_by,
        "deployment requested"
    );
    let channel = deployment.channel.as_deref();
    let detail = format!(
        "{}@{} ({}){} by {requested_by}",
        image.name,
        image.version,
        image.digest.short(),
        channel
            .map(|channel| format!(" of channel {channel}"))
            .unwrap_or_default()
    );
    nodes::event(app, node, "deployment_requested", &detail).await;
    Ok(id)
}

/// The image that is proposed for a node.
async fn proposed(app: &App, node: &NodeRecord) -> Result<String, AppError> {
    let proposed = app.store.node_image_proposed(node.id).await?;
    proposed.ok_or_else(|| {
        AppError::Invalid(format!(
            "image: none is named, and no channel, discovery rule or group ({}) proposes one for this node",
            node.group
        ))
    })
}

/// Refuses an image from before images carried GRUB for BIOS; the deployer would, too, after a boot.
async fn bios_check(app: &App, image: &ImageRecord) -> Result<(), AppError> {
    let manifest = app.images.manifest(image.digest).await?;
    if manifest.get(&BIOS_CORE_PATH.parse()?).is_some() {
        return Ok(());
    }
    Err(AppError::Conflict(format!(
        "the node starts by BIOS, and {}@{} starts by UEFI only: build the image again, or switch the node's firmware to UEFI",
        image.name, image.version
    )))
}

/// The operating system image somebody means, and the agent layer that goes with it now.
async fn images_find(app: &App, reference: &str) -> Result<(ImageRecord, ImageRecord), AppError> {
    let image = app.store.image_find(reference).await?;
    if image.kind != "os" {
        return Err(AppError::Invalid(format!(
            "image: {}@{} is of kind {}, expected os",
            image.name, image.version, image.kind
        )));
    }
    trust::usable(&image)?;
    let agent_layer = app.store.image_newest("agent").await?.ok_or_else(|| {
        AppError::Conflict("no agent layer published: run `plumbline image publish-agent BINARY`".to_owned())
    })?;
    Ok((image, agent_layer))
}

fn layout(node: NodeId) -> Layout {
    Layout {
        esp_mib: ESP_MIB,
        esp_label: esp_label(node),
        esp_volume_id: format!("{:08X}", rand::random::<u32>()),
        root_uuid: uuid::Uuid::new_v4(),
    }
}

/// The label of the EFI system partition that this node's installations have. The end of its id is random.
pub fn esp_label(node: NodeId) -> String {
    let id = node.0.simple().to_string().to_uppercase();
    format!("PL{}", &id[id.len() - 8..])
}

/// The paths that stay.
fn keep_paths(old: &OldDisk) -> Result<Vec<TreePath>, AppError> {
    if old.keep.is_empty() {
        return Ok(Vec::new());
    }
    if old.mode == DeployMode::Wipe {
        let problem = "keep: a disk that is wiped keeps nothing; ask for mode in_place";
        return Err(AppError::Invalid(problem.to_owned()));
    }
    if old.keep.len() > KEEP_PATHS_MAX {
        let problem = format!("keep: {} paths, expected at most {KEEP_PATHS_MAX}", old.keep.len());
        return Err(AppError::Invalid(problem));
    }
    let parse = |text: &String| {
        let path: Result<TreePath, _> = text.parse();
        path.map_err(|error| AppError::Invalid(format!("keep: {error}")))
    };
    old.keep.iter().map(parse).collect()
}

/// Refuses a path below which the image allows nothing of the node's own: it would be removed all the same.
fn keep_check(classes: &manifest::ClassRules, keep: &[TreePath]) -> Result<(), AppError> {
    for path in keep {
        let below = path.join(b"x").unwrap_or_else(|_| path.clone());
        if !classes.allows_unlisted(path) && !classes.allows_unlisted(&below) {
            return Err(AppError::Invalid(format!(
                "keep: {path}: the image pins what is there and below; expected a path whose class is volatile, seeded or ignored"
            )));
        }
    }
    Ok(())
}

fn disk_rule_check(rule: &DiskRule) -> Result<(), AppError> {
    let texts = [&rule.serial, &rule.wwn, &rule.model];
    if texts
        .into_iter()
        .flatten()
        .any(|text| text.is_empty() || text.len() > 256)
    {
        let problem = "disk: serial, wwn and model are 1 to 256 bytes where they are given";
        return Err(AppError::Invalid(problem.to_owned()));
    }
    match (rule.size_min_bytes, rule.size_max_bytes) {
        (Some(min), Some(max)) if min > max => Err(AppError::Invalid(format!(
            "disk: size_min_bytes {min} is above size_max_bytes {max}"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_what_the_tools_take() {
        let layout = layout(NodeId::new());
        let id = layout.esp_volume_id.as_bytes();
        assert!(id.len() == 8 && id.iter().all(|b| b.is_ascii_digit() || (b'A'..=b'F').contains(b)));
        assert_eq!(layout.root_uuid.get_version_num(), 4);
    }

    #[test]
    fn only_what_the_image_leaves_to_the_node_can_be_kept() {
        let old = |mode, keep: &[&str]| OldDisk {
            mode,
            keep: keep.iter().map(|path| (*path).to_owned()).collect(),
        };
        let classes = serde_json::from_str(r#"[{"path":"/home/**","class":"volatile"}]"#).unwrap();
        let keep = keep_paths(&old(DeployMode::InPlace, &["/home", "/home/alice"])).unwrap();
        keep_check(&classes, &keep).unwrap();
        let pinned = keep_paths(&old(DeployMode::InPlace, &["/etc/mine"])).unwrap();
        let error = keep_check(&classes, &pinned).unwrap_err().to_string();
        assert!(error.contains("/etc/mine") && error.contains("volatile"), "{error}");
        assert!(keep_paths(&old(DeployMode::Wipe, &["/home"])).is_err());
        assert!(keep_paths(&old(DeployMode::InPlace, &["home"])).is_err());
        assert!(keep_paths(&old(DeployMode::InPlace, &["/home/a"; 33])).is_err());
    }

    #[test]
    fn a_disk_rule_that_fits_no_disk_is_refused() {
        disk_rule_check(&DiskRule::default()).unwrap();
        let empty = DiskRule {
            serial: Some(String::new()),
            ..DiskRule::default()
        };
        let crossed = DiskRule {
            size_min_bytes: Some(2),
            size_max_bytes: Some(1),
            ..DiskRule::default()
        };
        assert!(disk_rule_check(&empty).is_err() && disk_rule_check(&crossed).is_err());
    }
}
