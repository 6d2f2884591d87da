//! What a machine boots: its standing for DHCP, its script, its token.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::Ipv4Net;
use lifecycle::{AttemptEnd, BootOrder, DeploymentState, NodeState};
use netboot::script::{self, DeployerBoot, Language};
use netboot::{Architecture, MacAddr};
use protocol::latest::Authority as AuthorityFile;
use protocol::{DeploymentId, NodeId};
use store::{BootOrderRecord, DeploymentRecord, ImageRecord, Lease, NewEvent, NodeRecord};
use time::OffsetDateTime;

use super::deployments::esp_label;
use super::trace::{SCRIPT_HELD, SCRIPT_LOCAL, SCRIPT_NO_DEPLOYER, SCRIPT_REFUSED};
use super::{App, AppError, boot_orders, foreign_lease};
use crate::config::{BootConfig, DhcpMode};

/// Kernel arguments of the deployer: both consoles, so that a screen and a serial line show it; restart on a panic.
const DEPLOYER_ARGUMENTS: &str = "console=tty0 console=ttyS0,115200n8 panic=30 loglevel=5";

/// From a loader's own DHCP request to its script.
const LOADER_TIME: time::Duration = time::Duration::minutes(5);

/// What is known of a machine's architecture when its loader asks for a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// Nothing.
    Nothing,
    /// What its DHCP request said; none: a number without a loader here.
    ByDhcp(Option<Architecture>),
    /// What the loader itself said; none: a name that is not known.
    ByLoader(Option<Architecture>),
}

impl Said {
    const fn architecture(self) -> Option<Architecture> {
        match self {
            Self::Nothing => None,
            Self::ByDhcp(found) | Self::ByLoader(found) => found,
        }
    }
}

/// What a node boots next.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Next {
    /// Its own disk.
    Local { reason: String },
    /// Nothing: a person has to look first.
    Refuse { reason: String },
    /// Nothing, until a person lifts their order.
    Hold { reason: String },
    /// The deployer, for a deployment's attempt or to be looked at.
    Deployer {
        attempt: Option<(DeploymentId, i32)>,
        title: String,
    },
}

/// Decides from the records alone. `claimed`: the current attempt's token was claimed.
fn next_boot(
    node: &NodeRecord,
    order: Option<&BootOrderRecord>,
    open: Option<&DeploymentRecord>,
    claimed: bool,
) -> Next {
    if node.state == NodeState::Quarantined {
        return Next::Refuse {
            reason: format!("quarantined: {}", node.state_reason),
        };
    }
    if let Some(order) = order {
        let reason = format!("{} ({})", order.reason, order.ordered_by);
        return match order.kind {
            BootOrder::Hold => Next::Hold { reason },
            BootOrder::Rescue | BootOrder::Commission => Next::Deployer {
                attempt: None,
                title: format!("{}: {}: {reason}", node_title(node), order.kind.as_str()),
            },
        };
    }
    if let Some(deployment) = open {
        let attempt = if deployment.attempt == 0 || claimed {
            deployment.attempt + 1
        } else {
            deployment.attempt
        };
        let title = format!(
            "{}: deploying image {}, attempt {attempt} of {}",
            node_title(node),
            deployment.image.short(),
            deployment.attempts_max
        );
        return Next::Deployer {
            attempt: Some((deployment.id, attempt)),
            title,
        };
    }
    match node.state {
        NodeState::Installed | NodeState::Deployed => Next::Local {
            reason: "nothing to do".to_owned(),
        },
        NodeState::Listed | NodeState::Discovering | NodeState::WaitingApproval | NodeState::Deploying => {
            Next::Deployer {
                attempt: None,
                title: format!("{}: taking inventory", node_title(node)),
            }
        }
        // Its disk holds nothing that starts; in the deployer it shows why, and can be deployed without a reboot.
        NodeState::Failed => Next::Deployer {
            attempt: None,
            title: format!(
                "{}: the last deployment failed: {}",
                node_title(node),
                node.state_reason
            ),
        },
        NodeState::Quarantined => Next::Refuse {
            reason: node.state_reason.clone(),
        },
    }
}

fn node_title(node: &NodeRecord) -> String {
    node.name
        .clone()
        .unwrap_or_else(|| node.macs.first().cloned().unwrap_or_else(|| node.id.to_string()))
}

/// A loader's request for a script.
#[derive(Clone, Copy, Debug)]
pub struct ScriptAsked {
    /// The machine, as its loader says.
    pub mac: MacAddr,
    /// Where it asks from.
    pub peer: IpAddr,
    /// The address by which it reached this server; its script leads on to the same. None: the first interface's.
    pub local: Option<IpAddr>,
    /// What its loader understands.
    pub language: Language,
    /// What is known of its architecture.
    pub said: Said,
    /// HEAD: nothing begins with it.
    pub is_probe: bool,
}

/// The script for a machine in its loader's language, and the event of having asked for it; none for a probe (HEAD).
///
/// # Errors
/// [`AppError`] when the database does not answer, or no deployer is published.
pub async fn script(app: &App, asked: &ScriptAsked) -> Result<String, AppError> {
    let ScriptAsked {
        mac,
        peer,
        language,
        said,
        is_probe,
        ..
    } = *asked;
    let mac_text = mac.to_string();
    let known = app.store.node_find_by_mac(&mac_text).await?;
    let node_id = match (known, peer) {
        (Some(node), _) => Some(node),
        // Where the site's own DHCP points here, this is the first that is seen of a machine.
        (None, IpAddr::V4(from)) => admit(app, &mac_text, from, None, "by its boot script").await?,
        (None, IpAddr::V6(_)) => None,
    };
    let Some(node_id) = node_id else {
        app.store
            .sighting_record(&mac_text, Some("iPXE script"), None, &store::RelaySeen::default())
            .await?;
        return Ok(script::refuse(language, "it is not listed and discovery is not armed"));
    };
    let lease = lease_address(app, &mac_text, peer).await?;
    if let Some(lease) = lease.filter(|lease| *lease != peer) {
        let since = OffsetDateTime::now_utc() - LOADER_TIME;
        let (kind, detail) = match foreign_lease::explanation(app, node_id, (lease, peer), since).await? {
            Some(reason) => ("foreign_lease", format!("its script was asked for, and {reason}")),
            None => (
                "script_refused",
                format!("its script was asked for from {peer}; the node's address is {lease}"),
            ),
        };
        event(app, node_id, &mac_text, kind, &detail).await?;
        return Ok(script::refuse(
            language,
            "this address is not the one the machine was given",
        ));
    }
    let node = app.store.node_get(node_id).await?;
    let mut open = app.store.deployment_find_open(node_id).await?;
    if let Some(running) = open
        .as_ref()
        .filter(|deployment| deployment.state == DeploymentState::Running)
    {
        // Its deployer cannot be alive if its machine asks for a script.
        let why = "the node booted again before the deployment ended";
        event(app, node_id, &mac_text, "attempt_lost", why).await?;
        if app.store.deployment_attempt_lost(running.id, why).await? == AttemptEnd::GiveUp {
            event(app, node_id, &mac_text, "deployment_failed", why).await?;
        }
        open = app.store.deployment_find_open(node_id).await?;
    }
    let node = if open.is_none() {
        app.store.node_get(node_id).await?
    } else {
        node
    };
    let claimed = match &open {
        Some(deployment) => app.store.token_is_claimed(deployment.id, deployment.attempt).await?,
        None => false,
    };
    let order = match is_probe {
        true => app.store.boot_order_find(node_id).await?,
        false => boot_orders::at_script(app, node_id, &mac_text).await?,
    };
    let (text, what) = match next_boot(&node, order.as_ref(), open.as_ref(), claimed) {
        Next::Local { reason } => (
            script::boot_local(language, &node_title(&node), &reason, &esp_label(node_id)),
            format!("{SCRIPT_LOCAL}{reason}"),
        ),
        Next::Hold { reason } => {
            let url = script_url(app, asked)?;
            let text = script::hold(language, &reason, &url).map_err(AppError::internal)?;
            (text, format!("{SCRIPT_HELD}{reason}"))
        }
        Next::Refuse { reason } => (script::refuse(language, &reason), format!("{SCRIPT_REFUSED}{reason}")),
        Next::Deployer { attempt, title } => {
            let image = deployer_image(app).await?;
            match said.architecture() {
                Some(found) if found.as_str() != image.architecture => no_deployer(language, found, &image),
                _ => (
                    deployer(app, asked, lease, (node_id, attempt), &image, &title).await?,
                    title,
                ),
            }
        }
    };
    if !is_probe {
        event(app, node_id, &mac_text, "script", &format!("to {peer}: {what}")).await?;
    }
    Ok(text)
}

async fn deployer_image(app: &App) -> Result<ImageRecord, AppError> {
    app.store
        .image_newest("deployer")
        .await?
        .ok_or_else(|| AppError::Unavailable("no deployer image: plumbline image build images/deployer".to_owned()))
}

/// The script for a machine that the deployer does not run on, and what its timeline says of it.
fn no_deployer(language: Language, found: Architecture, image: &ImageRecord) -> (String, String) {
    let (found, built) = (found.as_str(), &image.architecture);
    let reason =
        format!("it is {found}, and there is no deployer for {found}, only for {built}: it cannot be installed");
    let what = format!("{SCRIPT_NO_DEPLOYER}{found}, only for {built}");
    (script::refuse(language, &reason), what)
}

/// Where a machine asks for its script, as an iPXE is told.
fn script_url(app: &App, asked: &ScriptAsked) -> Result<String, AppError> {
    let base = http_base(app, asked.local)?;
    Ok(format!("{base}{}?mac={}", netboot::dhcp::boot::SCRIPT_PATH, asked.mac))
}

async fn deployer(
    app: &App,
    asked: &ScriptAsked,
    lease: Option<IpAddr>,
    (node, attempt): (NodeId, Option<(DeploymentId, i32)>),
    image: &ImageRecord,
    title: &str,
) -> Result<String, AppError> {
    let (mac, peer) = (asked.mac, asked.peer);
    let token = app
        .store
        .token_issue(node, attempt, &mac.to_string(), &peer.to_string())
        .await?;
    let base = format!("/boot/v1/deployer/{}", image.digest);
    let query = format!("?mac={mac}");
    let command_line = format!(
        "{DEPLOYER_ARGUMENTS} plumbline.token={} BOOTIF=01-{}{}",
        app.token_key.token(token),
        mac.to_string().replace(':', "-"),
        foreign_lease::own_lease(boot_config(app)?, lease, asked.local)
    );
    let boot = DeployerBoot {
        http_base: http_base(app, asked.local)?,
        kernel_path: format!("{base}/vmlinuz{query}"),
        initrd_paths: vec![
            format!("{base}/initrd.img{query}"),
            format!("/boot/v1/authority.cpio{query}"),
        ],
        command_line,
        title: title.to_owned(),
        // The one that said it would say the same again.
        script_url: match asked.said {
            Said::ByLoader(_) => None,
            Said::Nothing | Said::ByDhcp(_) => Some(script_url(app, asked)?),
        },
    };
    script::deployer(asked.language, &boot).map_err(AppError::internal)
}

/// The boot plane's configuration.
///
/// # Errors
/// [`AppError::Unavailable`] on a server without one.
pub fn boot_config(app: &App) -> Result<&BootConfig, AppError> {
    app.config
        .boot
        .as_ref()
        .ok_or_else(|| AppError::Unavailable("this server has no boot plane".to_owned()))
}

/// Base URL of the boot listener, for a machine that reached this server by `local`.
///
/// # Errors
/// [`AppError::Unavailable`] on a server without a boot plane.
pub fn http_base(app: &App, local: Option<IpAddr>) -> Result<String, AppError> {
    let boot = boot_config(app)?;
    Ok(boot.http_url(boot.interface_at(local)))
}

/// What the deployer trusts and whom it asks, as the cpio archive the loader puts behind the deployer's own initramfs.
/// `local`: the address by which the loader reached this server.
///
/// # Errors
/// [`AppError`] on a server without a boot plane.
pub fn authority_archive(app: &App, local: Option<IpAddr>) -> Result<Vec<u8>, AppError> {
    let image_keys = image_keys(app);
    let file = AuthorityFile {
        ca_certificate: app.authority.certificate_pem().to_owned(),
        image_key: image_keys.last().cloned().unwrap_or_default(),
        image_keys,
        agent_release_key: app.keys.agent_release.public().as_str().to_owned(),
        agent_url: app.config.agents_url(local),
        boot_url: http_base(app, local)?,
    };
    let text = serde_json::to_vec_pretty(&file).map_err(AppError::internal)?;
    newc_archive(&[
        ("etc", None),
        ("etc/plumbline", None),
        ("etc/plumbline/authority.json", Some(&text)),
    ])
    .map_err(AppError::internal)
}

/// The public keys whose signatures of images count, the newest last.
pub fn image_keys(app: &App) -> Vec<String> {
    let signers = app.keys.signers();
    signers.image.trusted().map(|key| key.as_str().to_owned()).collect()
}

/// A cpio archive in the form the kernel unpacks ("newc"): folders (`None`) and files.
fn newc_archive(entries: &[(&str, Option<&[u8]>)]) -> std::io::Result<Vec<u8>> {
    let mut archive = Vec::new();
    for (number, (name, content)) in entries.iter().enumerate() {
        let mode = if content.is_some() { 0o100_644 } else { 0o040_755 };
        let content = content.unwrap_or_default();
        let size = u32::try_from(content.len()).map_err(std::io::Error::other)?;
        let builder = cpio::newc::Builder::new(name)
            .ino(u32::try_from(number + 1).unwrap_or(1))
            .mode(mode)
            .nlink(1);
        let mut writer = builder.write(&mut archive, size);
        std::io::Write::write_all(&mut writer, content)?;
        writer.finish()?;
    }
    cpio::newc::trailer(&mut archive)?;
    // The kernel wants archives that follow each other on 4-byte boundaries.
    archive.resize(archive.len().next_multiple_of(512), 0);
    Ok(archive)
}

/// Gives a machine without a record one, if discovery is armed where it asks from: for its subnet, or for the circuit
/// that its relay named.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn admit(
    app: &App,
    mac: &str,
    from: Ipv4Addr,
    circuit: Option<&str>,
    what: &str,
) -> Result<Option<NodeId>, AppError> {
    for window in app.store.discovery_list_open().await? {
        let is_meant = match &window.relay_circuit {
            Some(armed) => circuit.is_some_and(|circuit| circuit_fits(armed, circuit)),
            None => window
                .subnet
                .parse::<Ipv4Net>()
                .is_ok_and(|subnet| subnet.contains(&from)),
        };
        if !is_meant {
            continue;
        }
        let machine_id = uuid::Uuid::new_v4().simple().to_string();
        if let Some(node) = app.store.discovery_admit(window.id, mac, &machine_id).await? {
            let detail = format!("new machine {mac}, {what}; discovery was armed by {}", window.armed_by);
            event(app, node, mac, "discovered", &detail).await?;
            return Ok(Some(node));
        }
    }
    Ok(None)
}

/// Whether a circuit is the one armed, or begins as it says up to its `*`.
fn circuit_fits(armed: &str, circuit: &str) -> bool {
    match armed.strip_suffix('*') {
        Some(beginning) => circuit.starts_with(beginning),
        None => circuit == armed,
    }
}

/// The address that a machine has to come from: the one that this server gave it. None where it gave none, or where it
/// gave one elsewhere that has run out since, while at `peer` somebody else gives the addresses.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn lease_address(app: &App, mac: &str, peer: IpAddr) -> Result<Option<IpAddr>, AppError> {
    let Some(boot) = app.config.boot.as_ref().filter(|boot| boot.gives_addresses()) else {
        return Ok(None);
    };
    let lease = app.store.lease_find(mac).await?;
    Ok(lease.and_then(|lease| binding(boot, &lease, peer, OffsetDateTime::now_utc())))
}

/// What a lease says of where its machine is. One that has run out binds too: a machine comes back to its address, and
/// nobody else is to be taken for it meanwhile.
fn binding(boot: &BootConfig, lease: &Lease, peer: IpAddr, now: OffsetDateTime) -> Option<IpAddr> {
    let mode_at = |address| boot.subnet_of(address).map(|subnet| subnet.dhcp);
    let address: Ipv4Addr = lease.address.parse().ok()?;
    if mode_at(address) != Some(DhcpMode::Full) {
        return None;
    }
    let is_elsewhere = match peer {
        IpAddr::V4(peer) => mode_at(peer).is_some_and(|mode| mode != DhcpMode::Full),
        IpAddr::V6(_) => false,
    };
    (!is_elsewhere || lease.expires_at > now).then_some(IpAddr::V4(address))
}

/// Keeps an event of a node.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn event(app: &App, node: NodeId, mac: &str, kind: &str, detail: &str) -> Result<(), AppError> {
    let event = NewEvent {
        node_id: Some(node),
        mac: Some(mac).filter(|mac| !mac.is_empty()),
        kind,
        detail,
    };
    Ok(app.store.event_add(event).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_one_the_kernel_unpacks() {
        let archive = newc_archive(&[("etc", None), ("etc/x", Some(b"hello"))]).unwrap();
        assert!(archive.starts_with(b"070701"));
        assert_eq!(archive.len() % 512, 0);
        let mut reader = cpio::newc::Reader::new(archive.as_slice()).unwrap();
        assert_eq!(reader.entry().name(), "etc");
        reader = cpio::newc::Reader::new(reader.finish().unwrap()).unwrap();
        assert_eq!(reader.entry().name(), "etc/x");
        let mut content = String::new();
        std::io::Read::read_to_string(&mut reader, &mut content).unwrap();
        assert_eq!(content, "hello");
    }

    fn node(state: NodeState) -> NodeRecord {
        NodeRecord {
            id: NodeId::new(),
            name: Some("gpu-001".into()),
            state,
            state_reason: "because".into(),
            state_since: time::OffsetDateTime::UNIX_EPOCH,
            macs: vec!["52:54:00:aa:00:01".into()],
            address: None,
            fixed_address: None,
            ssh_host_keys: Vec::new(),
            inventory: None,
            machine_id: String::new(),
            agent: None,
            group: "default".into(),
            rack: None,
            unit: None,
            relay: None,
            relay_circuit: None,
            relay_remote: None,
            discovery_rule: None,
            image_channel: None,
            image_problem: None,
            chain: lifecycle::Chain::Auto,
            hold: None,
            findings: 0,
            allowed: 0,
            scanned_at: None,
            not_looked_at: None,
            scan_complete: None,
        }
    }

    fn deployment(attempt: i32) -> DeploymentRecord {
        DeploymentRecord {
            id: DeploymentId::new(),
            node_id: NodeId::new(),
            image: manifest::Digest::of(b"image"),
            channel: None,
            agent_layer: manifest::Digest::of(b"agent"),
            disk_rule: Default::default(),
            mode: protocol::latest::DeployMode::InPlace,
            keep: Vec::new(),
            layout: protocol::latest::Layout {
                esp_mib: 256,
                esp_volume_id: "0".into(),
                esp_label: "PL12AB34CD".to_owned(),
                root_uuid: uuid::Uuid::nil(),
            },
            state: DeploymentState::Waiting,
            reason: String::new(),
            attempt,
            attempts_max: 3,
            progress: None,
            progress_at: None,
            outcome: None,
            requested_by: "admin".into(),
            created_at: time::OffsetDateTime::UNIX_EPOCH,
            started_at: None,
            finished_at: None,
        }
    }

    /// cobbler#1374, infra-controller#5066: the default answer is the node's own disk.
    #[test]
    fn cobbler_1374_a_node_with_nothing_to_do_boots_its_disk() {
        for state in [NodeState::Installed, NodeState::Deployed] {
            assert!(
                matches!(next_boot(&node(state), None, None, false), Next::Local { .. }),
                "{state:?}"
            );
        }
    }

    #[test]
    fn a_quarantined_node_boots_nothing_even_with_a_deployment() {
        let open = deployment(1);
        assert!(matches!(
            next_boot(&node(NodeState::Quarantined), None, Some(&open), false),
            Next::Refuse { .. }
        ));
    }

    /// cobbler#1374: what was fetched and never claimed is no installation; what was claimed is one.
    #[test]
    fn cobbler_1374_an_attempt_is_counted_when_its_token_was_claimed() {
        let attempt =
            |before, claimed| match next_boot(&node(NodeState::Deploying), None, Some(&deployment(before)), claimed) {
                Next::Deployer {
                    attempt: Some((_, attempt)),
                    ..
                } => attempt,
                other => panic!("{other:?}"),
            };
        assert_eq!(attempt(0, false), 1);
        assert_eq!(attempt(1, false), 1, "fetched again before it was claimed");
        assert_eq!(attempt(1, true), 2);
    }
}
