//! Deployers: claiming a token, inventory, tasks, and the course of a deployment.

use std::net::IpAddr;
use std::time::Duration;

use base64::Engine as _;
use lifecycle::placement::is_identity;
use lifecycle::{NodeState, Observed};
use manifest::Digest;
use protocol::latest::{
    Claim, ClaimReply, DeployMode, DeploySpec, DiskWork, Inventory, LldpListening, Outcome, Progress, RenderReply,
    RenderRequest, RenderedFile, Task,
};
use protocol::limits::KNOWN_ROOTS_MAX;
use protocol::{DeploymentId, NodeId};
use store::{BootToken, CertificateRecord, DeploymentRecord};
use time::OffsetDateTime;
use uuid::Uuid;

use super::boot::event;
use super::render::{self, RenderInput};
use super::{App, AppError, boot_orders, burn_ins, foreign_lease};

/// How long after its script was fetched a token may be claimed.
const TOKEN_LIFE: time::Duration = time::Duration::minutes(20);
/// A deployer waits for a day at most, and may then begin the longest burn-in (three days).
const RAMDISK_LIFE: time::Duration = time::Duration::days(5);
const AGENT_LIFE: time::Duration = time::Duration::days(397);
/// Pause between two looks for a task.
const TASK_POLL: Duration = Duration::from_millis(500);

/// A deployer, known by its client certificate.
#[derive(Clone, Debug)]
pub struct Ramdisk {
    /// The node it runs on.
    pub node: NodeId,
    /// The token it claimed.
    pub token: Uuid,
}

/// Why a claim is not taken.
#[derive(Debug, PartialEq, Eq)]
enum ClaimProblem {
    /// It may be tried again after another boot.
    Refused(String),
    /// Somebody has a token that is not theirs.
    Theft(String),
    /// It comes from another address than the node's, which is this one.
    Elsewhere(String),
}

/// Checks a claim against the token's record; the key comes later, as it needs the row's lock.
fn check_claim(
    token: &BootToken,
    mac: &str,
    peer: IpAddr,
    lease: Option<IpAddr>,
    now: OffsetDateTime,
) -> Result<(), ClaimProblem> {
    if token.mac != mac {
        return Err(ClaimProblem::Theft(format!(
            "claimed by {mac} at {peer}; it was made for {}",
            token.mac
        )));
    }
    // The loader and the deployer ask DHCP with the same client id, the MAC: other servers too give them one address.
    let expected = lease.map_or_else(|| token.peer.clone(), |lease| lease.to_string());
    if expected != peer.to_string() {
        return Err(ClaimProblem::Elsewhere(expected));
    }
    if now - token.fetched_at > TOKEN_LIFE {
        let minutes = (now - token.fetched_at).whole_minutes();
        return Err(ClaimProblem::Refused(format!(
            "the token is {minutes} minutes old; boot the node again"
        )));
    }
    Ok(())
}

/// Turns a token into a certificate for the deployer's key.
///
/// # Errors
/// [`AppError::Forbidden`] with the reason; it is an event on the node too, and a theft stops its deployment.
pub async fn claim(app: &App, claim: &Claim, peer: IpAddr) -> Result<ClaimReply, AppError> {
    let id = app
        .token_key
        .check(&claim.token)
        .ok_or_else(|| AppError::Forbidden("the token is not one of this appliance's".to_owned()))?;
    let token = app.store.token_get(id).await?;
    let node = token.node_id;
    let lease = super::boot::lease_address(app, &token.mac, peer).await?;
    match check_claim(&token, &claim.boot_mac, peer, lease, OffsetDateTime::now_utc()) {
        Ok(()) => {}
        Err(ClaimProblem::Refused(reason)) => {
            event(app, node, &claim.boot_mac, "claim_refused", &reason).await?;
            return Err(AppError::Forbidden(reason));
        }
        Err(ClaimProblem::Theft(reason)) => return theft(app, node, &claim.boot_mac, reason).await,
        Err(ClaimProblem::Elsewhere(expected)) => {
            return elsewhere(app, &token, &claim.boot_mac, (expected, peer)).await;
        }
    }
    let (issued, key) = app
        .authority
        .issue_node(&claim.certificate_request, node, RAMDISK_LIFE)
        .map_err(|error| AppError::Invalid(crate::http::error::chain(&error)))?;
    if !app.store.token_claim(id, key.as_bytes()).await? {
        let reason = format!("a token was claimed a second time, from {peer}, with another key");
        return theft(app, node, &claim.boot_mac, reason).await;
    }
    let record = CertificateRecord {
        node_id: node,
        purpose: "ramdisk".to_owned(),
        token_id: Some(id),
    };
    app.store
        .certificate_record(issued.fingerprint.as_bytes(), &record, issued.not_after)
        .await?;
    let detail = format!("deployer {} at {peer} claimed its token", claim.agent_version);
    event(app, node, &claim.boot_mac, "claimed", &detail).await?;
    let node_name = app.store.node_get(node).await?.name;
    Ok(ClaimReply {
        node_id: node,
        node_name,
        certificate: issued.pem,
    })
}

/// A claim from another address than the node's: another DHCP server gave it, or the token is in other hands.
async fn elsewhere(
    app: &App,
    token: &BootToken,
    mac: &str,
    (expected, peer): (String, IpAddr),
) -> Result<ClaimReply, AppError> {
    if let Ok(expected) = expected.parse()
        && let Some(reason) = foreign_lease::explanation(app, token.node_id, (expected, peer), token.fetched_at).await?
    {
        event(app, token.node_id, mac, "foreign_lease", &reason).await?;
        tracing::warn!(node.id = %token.node_id, reason, "a deployer has the lease of another DHCP server");
        return Err(AppError::Forbidden(reason));
    }
    let reason = format!("claimed from {peer}; the node's address is {expected}");
    theft(app, token.node_id, mac, reason).await
}

async fn theft(app: &App, node: NodeId, mac: &str, reason: String) -> Result<ClaimReply, AppError> {
    let observed = Observed::TokenMisused {
        reason: format!("possible theft of a boot token: {reason}"),
    };
    app.store
        .deployment_stop(node, &observed, &format!("stopped: {reason}"))
        .await?;
    event(app, node, mac, "token_misused", &reason).await?;
    tracing::warn!(node.id = %node, reason, "boot token misused; the node is quarantined");
    Err(AppError::Forbidden(reason))
}

/// Keeps a deployer's inventory.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn inventory(app: &App, ramdisk: &Ramdisk, inventory: &Inventory) -> Result<(), AppError> {
    let aliases = aliases(inventory);
    let taken = app.store.node_set_inventory(ramdisk.node, inventory, &aliases).await?;
    let gib = inventory.memory_bytes as f64 / f64::from(1 << 30);
    let detail = format!(
        "{} threads, {gib:.1} GiB of memory, {} disks, {} NICs, {} PCI functions, {}",
        inventory.cpu.threads,
        inventory.disks.len(),
        inventory.nics.len(),
        inventory.pci.len(),
        inventory.dmi.product.as_deref().unwrap_or("no product name")
    );
    // The second one comes while the node may be installed already, and is no step of its start.
    let (kind, detail) = match &inventory.lldp {
        LldpListening::Listened { .. } | LldpListening::Failed { .. } => ("switch_ports", ports_text(inventory)),
        _ => ("inventory", detail),
    };
    event(app, ramdisk.node, "", kind, &detail).await?;
    for adopted in taken.adopted {
        event(app, ramdisk.node, "", "identified", &adopted).await?;
    }
    for other in taken.foreign {
        event(app, ramdisk.node, "", "identity_conflict", &other).await?;
    }
    super::rules::inventory_arrived(app, ramdisk, inventory).await
}

/// Which switch ports a machine's interfaces are plugged into, for its timeline.
fn ports_text(inventory: &Inventory) -> String {
    if let LldpListening::Failed { reason } = &inventory.lldp {
        return format!("no switch could be listened for: {reason}");
    }
    let heard = inventory.nics.iter().filter_map(|nic| {
        let neighbour = nic.lldp.as_ref()?;
        Some(format!("{} on {}", nic.name, neighbour.switch_port()))
    });
    let heard: Vec<String> = heard.collect();
    match heard.is_empty() {
        true => "no switch said which port an interface is plugged into".to_owned(),
        false => heard.join(", "),
    }
}

/// Whether a serial, UUID or asset tag is filler that vendors leave in.
#[must_use]
pub fn is_filler(value: &str) -> bool {
    const FILLER: [&str; 11] = [
        "to be filled by o.e.m.",
        "default string",
        "not specified",
        "not applicable",
        "system serial number",
        "chassis serial number",
        "unknown",
        "none",
        "0",
        "00000000-0000-0000-0000-000000000000",
        "03000200-0400-0500-0006-000700080009",
    ];
    FILLER.contains(&value.trim().to_lowercase().as_str())
}

/// Names a machine is known by. Filler that vendors leave in is no identity, and neither is an interface to a BMC.
fn aliases(inventory: &Inventory) -> Vec<(&'static str, String)> {
    let mut aliases: Vec<(&'static str, String)> = inventory
        .nics
        .iter()
        .map(|nic| (nic.mac.to_lowercase(), nic))
        .filter(|(mac, nic)| is_identity(mac, nic.driver.as_deref(), nic.boot))
        .map(|(mac, _)| ("mac", mac))
        .collect();
    let dmi = &inventory.dmi;
    for (kind, value) in [
        ("uuid", &dmi.uuid),
        ("serial", &dmi.serial),
        ("asset_tag", &dmi.asset_tag),
    ] {
        if let Some(value) = value.as_deref().map(str::trim)
            && !value.is_empty()
            && value.len() <= 128
            && !is_filler(value)
        {
            aliases.push((kind, value.to_owned()));
        }
    }
    aliases
}

/// What a deployer is to do next; waits up to `wait` for something to do.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn task(app: &App, ramdisk: &Ramdisk, wait: Duration) -> Result<Task, AppError> {
    let until = tokio::time::Instant::now() + wait;
    loop {
        let task = task_now(app, ramdisk).await?;
        if !matches!(task, Task::Wait { .. }) || tokio::time::Instant::now() + TASK_POLL > until {
            return Ok(task);
        }
        tokio::time::sleep(TASK_POLL).await;
    }
}

async fn task_now(app: &App, ramdisk: &Ramdisk) -> Result<Task, AppError> {
    let node = app.store.node_get(ramdisk.node).await?;
    if let Some(deployment) = app.store.deployment_find_open(ramdisk.node).await? {
        if app.store.deployment_start(deployment.id, ramdisk.token).await? {
            return Ok(Task::Deploy(Box::new(spec(app, deployment.id).await?)));
        }
        return Ok(Task::Reboot {
            reason: "this deployment belongs to another boot of the node".to_owned(),
        });
    }
    if let Some(task) = boot_orders::task(app, ramdisk).await? {
        return Ok(task);
    }
    if let Some(task) = burn_ins::task_of_new(app, ramdisk, &node).await? {
        return Ok(task);
    }
    Ok(match node.state {
        NodeState::Installed | NodeState::Deployed => Task::Reboot {
            reason: node.state_reason,
        },
        NodeState::WaitingApproval => Task::Wait {
            reason: match app.store.burn_in_find(node.id).await? {
                Some(last) => format!("waiting for approval; its burn-in: {}", last.standing_reason),
                None => "waiting for approval".to_owned(),
            },
        },
        NodeState::Failed => Task::Wait {
            reason: format!("the deployment failed: {}", node.state_reason),
        },
        other => Task::Wait {
            reason: format!("{}: {}", other.as_str(), node.state_reason),
        },
    })
}

async fn spec(app: &App, id: DeploymentId) -> Result<DeploySpec, AppError> {
    let deployment = app.store.deployment_get(id).await?;
    let node = app.store.node_get(deployment.node_id).await?;
    let attempt = u32::try_from(deployment.attempt).unwrap_or(1);
    let detail = format!(
        "attempt {attempt} of {}: image {}",
        deployment.attempts_max,
        deployment.image.short()
    );
    event(app, node.id, "", "deployment_started", &detail).await?;
    Ok(DeploySpec {
        deployment_id: id,
        attempt,
        node_name: node.name.unwrap_or_else(|| node.id.to_string()),
        image: deployment.image,
        agent_layer: deployment.agent_layer,
        disk: deployment.disk_rule,
        layout: deployment.layout,
        trust: Some(super::trust::of_deployment(
            app,
            [deployment.image, deployment.agent_layer],
        )),
        mode: deployment.mode,
        known_roots: app.store.deployment_roots(node.id, KNOWN_ROOTS_MAX).await?,
        keep: deployment.keep,
    })
}

/// The deployment a deployer speaks of, if it is the one it was given.
async fn own_deployment(app: &App, ramdisk: &Ramdisk, id: DeploymentId) -> Result<DeploymentRecord, AppError> {
    let refused = || AppError::Forbidden("this deployment was not given to this boot of the node".to_owned());
    let token = app.store.token_get(ramdisk.token).await?;
    let deployment = app.store.deployment_get(id).await.map_err(|_| refused())?;
    match deployment.node_id == ramdisk.node
        && token.deployment_id == Some(id)
        && token.attempt == Some(deployment.attempt)
    {
        true => Ok(deployment),
        false => Err(refused()),
    }
}

/// Keeps a deployer's progress; each new stage is an event.
///
/// # Errors
/// [`AppError::Forbidden`] when it is another deployer's, [`AppError::Conflict`] when it does not run.
pub async fn progress(app: &App, ramdisk: &Ramdisk, id: DeploymentId, progress: &Progress) -> Result<(), AppError> {
    own_deployment(app, ramdisk, id).await?;
    if app.store.deployment_progress(id, progress).await? {
        let detail = format!("{}: {}", progress.stage.as_str(), progress.detail);
        event(app, ramdisk.node, "", "stage", &detail).await?;
    }
    Ok(())
}

/// The public key that an agent of this image begins with: the one that signed it, so that an agent that knows only one
/// key has the right one. Others learn of the rest as soon as they speak with the server.
async fn image_key(app: &App, image: Digest) -> Result<String, AppError> {
    let signer = app.images.signature(image).await?.key_id();
    let signers = app.keys.signers();
    let trusted = signer.and_then(|signer| signers.image.check_id(signer).ok());
    let key = trusted.or_else(|| signers.image.trusted().last());
    Ok(key.map(|key| key.as_str().to_owned()).unwrap_or_default())
}

/// Renders a node's configuration and enrols its agent. `local`: the address by which its deployer reached this server,
/// and by which its agent will.
///
/// # Errors
/// [`AppError::Invalid`] for a request that is not one, [`AppError::Forbidden`] as for [`progress`].
pub async fn render(
    app: &App,
    ramdisk: &Ramdisk,
    id: DeploymentId,
    local: Option<IpAddr>,
    request: &RenderRequest,
) -> Result<RenderReply, AppError> {
    let deployment = own_deployment(app, ramdisk, id).await?;
    if request.ssh_host_keys.len() > 8 {
        return Err(AppError::Invalid("expected at most 8 SSH host keys".to_owned()));
    }
    for key in &request.ssh_host_keys {
        ssh_key::PublicKey::from_openssh(key).map_err(|error| AppError::Invalid(format!("ssh_host_keys: {error}")))?;
    }
    let boot_mac: netboot::MacAddr = request
        .boot_mac
        .parse()
        .map_err(|_| AppError::Invalid("boot_mac: expected a MAC address".to_owned()))?;
    let mut layout = deployment.layout;
    if let Some(root) = request.root_uuid.filter(|root| *root != layout.root_uuid) {
        if !app
            .store
            .deployment_roots(ramdisk.node, KNOWN_ROOTS_MAX)
            .await?
            .contains(&root)
        {
            return Err(AppError::Invalid(format!(
                "root_uuid {root}: expected one that this node was given"
            )));
        }
        app.store.deployment_set_root(id, root).await?;
        layout.root_uuid = root;
    }
    let node = app.store.node_get(ramdisk.node).await?;
    let header = app.images.manifest(deployment.image).await?.header;
    let kernel = header
        .kernel
        .ok_or_else(|| AppError::Conflict("the image has no kernel".to_owned()))?;
    let image_key = image_key(app, deployment.image).await?;
    let site = &app.config.site;
    let (name, mac) = (node.name.unwrap_or_else(|| node.id.to_string()), boot_mac.to_string());
    let overlay = render::overlay(&RenderInput {
        node_name: &name,
        machine_id: &node.machine_id,
        boot_mac: &mac,
        domain: site.domain.as_deref(),
        dns: &site.dns,
        authorized_keys: &site.authorized_keys,
        ssh_host_keys: &request.ssh_host_keys,
        layout: &layout,
        kernel: &kernel,
        kernel_arguments: &site.kernel_arguments,
        agents_url: &app.config.agents_url(local),
        ca_certificate: app.authority.certificate_pem(),
        image_key: &image_key,
        agent_release_key: app.keys.agent_release.public().as_str(),
        job_key: app.keys.job.public().as_str(),
        scan_interval_secs: site.scan_interval_secs,
        mtime: deployment.created_at.unix_timestamp(),
    })?;
    let (issued, _) = app
        .authority
        .issue_node(&request.agent_certificate_request, ramdisk.node, AGENT_LIFE)
        .map_err(|error| AppError::Invalid(crate::http::error::chain(&error)))?;
    let record = CertificateRecord {
        node_id: ramdisk.node,
        purpose: "agent".to_owned(),
        token_id: None,
    };
    app.store
        .certificate_record(issued.fingerprint.as_bytes(), &record, issued.not_after)
        .await?;
    // Kept for repair: a rendered file that drifts is put back from here.
    let contents: Vec<(Digest, &[u8])> = overlay
        .files
        .iter()
        .map(|(digest, bytes)| (*digest, bytes.as_slice()))
        .collect();
    app.store.content_put(&contents, true).await?;
    app.store
        .deployment_set_overlay(id, overlay.digest, &overlay.manifest, &request.ssh_host_keys)
        .await?;
    let encode = |(digest, content): (Digest, Vec<u8>)| {
        (
            digest,
            RenderedFile {
                base64: base64::engine::general_purpose::STANDARD.encode(content),
            },
        )
    };
    Ok(RenderReply {
        overlay_manifest: overlay.manifest,
        files: overlay.files.into_iter().map(encode).collect(),
        agent_certificate: issued.pem,
    })
}

/// Ends a deployment as its deployer reports.
///
/// # Errors
/// [`AppError::Forbidden`] as for [`progress`], [`AppError::Conflict`] when it ended otherwise already.
pub async fn outcome(app: &App, ramdisk: &Ramdisk, id: DeploymentId, outcome: &Outcome) -> Result<(), AppError> {
    own_deployment(app, ramdisk, id).await?;
    app.store.deployment_finish(id, outcome).await?;
    let (kind, detail) = match outcome {
        Outcome::Installed {
            files,
            bytes,
            requests,
            duration_secs,
            work,
        } => (
            "installed",
            format!(
                "{files} files, {} MB written and checked in {duration_secs} s, {requests} requests{}",
                bytes / 1_000_000,
                work.as_ref().map(work_text).unwrap_or_default()
            ),
        ),
        Outcome::Failed { stage, reason } => ("deployment_failed", format!("{}: {reason}", stage.as_str())),
    };
    event(app, ramdisk.node, "", kind, &detail).await
}

/// How an image came to be on a disk, as the rest of an event's line.
fn work_text(work: &DiskWork) -> String {
    let fetched = work.bytes_fetched / 1_000_000;
    match work.mode {
        DeployMode::InPlace => format!(
            ", {fetched} MB fetched; in place: {} files kept, {} written, {} removed",
            work.files_kept, work.files_written, work.files_removed
        ),
        DeployMode::Wipe => format!(", {fetched} MB fetched; the disk was wiped: {}", work.reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> BootToken {
        BootToken {
            id: Uuid::new_v4(),
            node_id: NodeId::new(),
            deployment_id: None,
            attempt: None,
            mac: "52:54:00:aa:00:01".into(),
            peer: "10.77.0.100".into(),
            fetched_at: OffsetDateTime::UNIX_EPOCH,
            claimed_at: None,
            claimed_key: None,
        }
    }

    #[test]
    fn a_claim_must_come_from_the_machine_that_booted() {
        let now = OffsetDateTime::UNIX_EPOCH + time::Duration::minutes(1);
        let (mac, peer) = ("52:54:00:aa:00:01", IpAddr::from([10, 77, 0, 100]));
        assert_eq!(check_claim(&token(), mac, peer, None, now), Ok(()));
        assert_eq!(check_claim(&token(), mac, peer, Some(peer), now), Ok(()));
        for lease in [Some(peer), None] {
            let elsewhere = check_claim(&token(), mac, IpAddr::from([10, 77, 0, 66]), lease, now);
            assert_eq!(elsewhere, Err(ClaimProblem::Elsewhere(peer.to_string())), "{lease:?}");
        }
        assert!(matches!(
            check_claim(&token(), "52:54:00:aa:00:02", peer, None, now),
            Err(ClaimProblem::Theft(_))
        ));
        let late = OffsetDateTime::UNIX_EPOCH + time::Duration::minutes(21);
        assert!(matches!(
            check_claim(&token(), mac, peer, None, late),
            Err(ClaimProblem::Refused(_))
        ));
    }

    #[test]
    fn vendors_filler_is_no_identity() {
        let mut inventory = Inventory::default();
        inventory.dmi.serial = Some("To Be Filled By O.E.M.".into());
        inventory.dmi.uuid = Some("4c4c4544-0042-3510-8054-b4c04f4d3232".into());
        inventory.dmi.asset_tag = Some("  ".into());
        assert_eq!(
            aliases(&inventory),
            [("uuid", "4c4c4544-0042-3510-8054-b4c04f4d3232".to_owned())]
        );
    }
}
