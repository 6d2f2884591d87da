//! DHCP and TFTP with the appliance's knowledge behind them.

pub(crate) mod address_probe;
mod after_shim;
mod loaders;
pub mod others;
mod place;
mod tftp;

use std::net::{Ipv4Addr, SocketAddrV4};

use lifecycle::{Chain, NodeState};
use netboot::MacAddr;
use netboot::dhcp::{
    BackendError, Decision, DhcpBackend, DhcpConfig, DhcpServer, Exchange, IgnoreReason, LeaseEvent, LeaseOffer,
    LoaderSet, MessageType, Mode, NodeStanding, RelayAgentInfo, Request, Stance, Standing,
};
use store::{BootPacket, NewEvent, NodeRecord, RelaySeen};
use time::OffsetDateTime;

pub(crate) use after_shim::is_optional;
pub use loaders::{GRUB_START, Loaders};
pub use tftp::{Tftp, tftp_server};

use crate::app::{App, AppError, boot, leases, trace};
use crate::config::{BootConfig, BootInterface, DhcpMode, Subnet};
use place::{Place, place};

/// The DHCP server on one interface; `None` in mode `off`.
///
/// # Errors
/// A port that cannot be bound.
pub fn dhcp_server(
    app: &App,
    config: &BootConfig,
    interface: &BootInterface,
) -> std::io::Result<Option<DhcpServer<Dhcp>>> {
    let mode = match interface.dhcp {
        DhcpMode::Proxy => Mode::Proxy,
        DhcpMode::Full => Mode::Full,
        DhcpMode::Off => return Ok(None),
    };
    let mut dhcp = DhcpConfig::new(mode, interface.address.addr(), &config.http_url(interface));
    dhcp.interface = Some(interface.name.clone());
    let server = DhcpServer::bind(dhcp, Dhcp::new(app, config, interface))?;
    app.metrics.add_protocol("dhcp", &interface.name, server.counters());
    Ok(Some(server))
}

/// What DHCP on one interface asks.
pub struct Dhcp {
    app: App,
    config: BootConfig,
    interface: BootInterface,
}

impl std::fmt::Debug for Dhcp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dhcp")
    }
}

impl Dhcp {
    fn new(app: &App, config: &BootConfig, interface: &BootInterface) -> Self {
        Self {
            app: app.clone(),
            config: config.clone(),
            interface: interface.clone(),
        }
    }

    fn place(&self, request: &Request) -> Place<'_> {
        place(&self.config, &self.interface, request)
    }

    async fn standing(&self, request: &Request, mode: Mode) -> Result<Standing, AppError> {
        let unlisted = Standing {
            node: NodeStanding::Unlisted,
            lease: None,
            loaders: LoaderSet::Ipxe,
        };
        let Some(mac) = request.identity().mac().filter(|_| mode != Mode::Off) else {
            return Ok(unlisted);
        };
        let address = mac;
        let mac = mac.to_string();
        let node = match self.app.store.node_find_by_mac(&mac).await? {
            Some(node) => Some(node),
            None => self.admit(request, &mac).await?,
        };
        let Some(node) = node else { return Ok(unlisted) };
        let relay = relay_seen(request);
        if relay != RelaySeen::default() {
            self.app.store.node_set_relay(node, &relay).await?;
        }
        let record = self.app.store.node_get(node).await?;
        let loaders = self.loaders(address, &record);
        let node = if record.state == NodeState::Discovering {
            NodeStanding::Discovering
        } else {
            NodeStanding::Listed
        };
        let asks = matches!(
            request.message_type(),
            MessageType::Discover | MessageType::Request | MessageType::Inform
        );
        let lease = match mode {
            Mode::Full if asks => self.lease(request, &record, &mac).await?,
            Mode::Full => {
                let lease = self.app.store.lease_find(&mac).await?;
                let address = lease.and_then(|lease| lease.address.parse().ok());
                address.and_then(|ip| Some(self.offer(ip, self.config.subnet_of(ip)?)))
            }
            Mode::Proxy | Mode::Off => {
                self.leave_lease(request, &mac).await?;
                None
            }
        };
        Ok(Standing { node, lease, loaders })
    }

    fn loaders(&self, mac: MacAddr, node: &NodeRecord) -> LoaderSet {
        let secure_boot = node.inventory.as_ref().and_then(|inventory| inventory.secure_boot);
        match self.config.chain_of(mac, node.chain, &node.group, secure_boot) {
            Chain::Auto | Chain::Ipxe => LoaderSet::Ipxe,
            Chain::Grub => LoaderSet::Grub,
            Chain::Http => LoaderSet::Http,
        }
    }

    /// The address in the subnet that it asks from. Where that is unknown here there is none, and one from a subnet that
    /// is known would be worse: the machine could not use it.
    async fn lease(&self, request: &Request, node: &NodeRecord, mac: &str) -> Result<Option<LeaseOffer>, AppError> {
        let Some(subnet) = self.place(request).subnet else {
            return Ok(None);
        };
        let address = leases::lease_choose(&self.app, &self.config, subnet, node, mac).await?;
        Ok(address.map(|ip| self.offer(ip, subnet)))
    }

    /// A machine that starts where somebody else gives the addresses has moved from where this server does: from its old
    /// address nobody is to be taken for it, and it itself comes from another.
    async fn leave_lease(&self, request: &Request, mac: &str) -> Result<(), AppError> {
        let is_start = request.message_type() == MessageType::Discover && !request.client_arches().is_empty();
        if is_start && self.config.gives_addresses() {
            self.app.store.lease_release(mac).await?;
        }
        Ok(())
    }

    fn offer(&self, ip: Ipv4Addr, subnet: &Subnet) -> LeaseOffer {
        LeaseOffer {
            ip,
            subnet_mask: subnet.network.netmask(),
            router: subnet.router,
            dns: self.app.config.site.dns.clone(),
            lease_secs: self.config.lease_secs,
        }
    }

    /// A machine without a record: admitted where discovery is armed, else seen and nothing more.
    async fn admit(&self, request: &Request, mac: &str) -> Result<Option<protocol::NodeId>, AppError> {
        let arches = request.client_arches();
        let relay = Some(request.header().giaddr).filter(|relay| !relay.is_unspecified());
        let seen = relay_seen(request);
        // Only what boots from the network: a laptop asking for an address is nobody's node.
        if let Some(arch) = arches.first() {
            let from = relay.unwrap_or_else(|| self.interface.address.addr());
            let what = format!("architecture {arch:#06x}");
            if let Some(node) = boot::admit(&self.app, mac, from, seen.circuit.as_deref(), &what).await? {
                return Ok(Some(node));
            }
            let class = request.vendor_class().map(manifest::escape_bytes);
            let arch = Some(i32::from(*arch));
            self.app
                .store
                .sighting_record(mac, class.as_deref(), arch, &seen)
                .await?;
        }
        Ok(None)
    }

    /// A machine that takes another server's offer says so to everybody. Beside the site's own server that is as it should
    /// be; where this server gives the addresses, the node's timeline says who won.
    async fn keep_other_server(&self, request: &Request, decision: &Decision, mac: &str) -> Result<(), AppError> {
        let is_foreign = |server: &Ipv4Addr| !self.config.is_own(*server);
        let Some(server) = request.server_id().filter(is_foreign) else {
            return Ok(());
        };
        if request.message_type() != MessageType::Request {
            return Ok(());
        }
        let server = server.to_string();
        let heard_at = others::heard_at(&self.interface, request.header().giaddr);
        self.app.store.dhcp_server_seen(&server, &heard_at, mac).await?;
        let lost = matches!(
            decision,
            Decision::Ignore {
                reason: IgnoreReason::OtherServer
            }
        );
        if lost && self.place(request).mode() == Mode::Full {
            let event = NewEvent {
                node_id: None,
                mac: Some(mac),
                kind: "dhcp_other_server",
                detail: &server,
            };
            self.app.store.event_add(event).await?;
        }
        Ok(())
    }

    async fn keep(&self, request: &Request, decision: &Decision) -> Result<(), AppError> {
        let Some(mac) = request.identity().mac().map(|mac: MacAddr| mac.to_string()) else {
            return Ok(());
        };
        self.keep_other_server(request, decision, &mac).await?;
        match decision {
            // A node that is wanted and cannot be helped: its timeline says why. The others are only counted.
            Decision::Ignore {
                reason: reason @ (IgnoreReason::NoLoader | IgnoreReason::NoLease),
            } => {
                let detail = format!("{} not answered: {}", request.message_type().name(), reason.as_str());
                let event = NewEvent {
                    node_id: None,
                    mac: Some(&mac),
                    kind: "dhcp_ignored",
                    detail: &detail,
                };
                Ok(self.app.store.event_add(event).await?)
            }
            Decision::Ignore { .. } => Ok(()),
            Decision::Lease(LeaseEvent::Released { .. }) => Ok(self.app.store.lease_release(&mac).await?),
            Decision::Lease(LeaseEvent::Declined { .. }) => Ok(self.app.store.lease_decline(&mac).await?),
            Decision::Reply(plan) => {
                let reply = &plan.reply;
                let detail = trace::dhcp_detail(
                    request.message_type(),
                    reply.message_type,
                    reply.header.yiaddr,
                    plan.boot.stage(),
                );
                let event = NewEvent {
                    node_id: None,
                    mac: Some(&mac),
                    kind: "dhcp",
                    detail: &detail,
                };
                Ok(self.app.store.event_add(event).await?)
            }
        }
    }
}

/// Through which relay a request came, and what that relay said of it.
fn relay_seen(request: &Request) -> RelaySeen {
    let relay = Some(request.header().giaddr).filter(|relay| !relay.is_unspecified());
    let info = request
        .relay_agent_info()
        .map(RelayAgentInfo::parse)
        .unwrap_or_default();
    RelaySeen {
        address: relay.map(|relay| relay.to_string()),
        circuit: info.circuit,
        remote: info.remote,
    }
}

impl DhcpBackend for Dhcp {
    fn stance(&self, request: &Request, _usual: &Stance) -> Stance {
        self.place(request).stance(&self.config)
    }

    async fn lookup(&self, request: &Request, mode: Mode) -> Result<Standing, BackendError> {
        self.standing(request, mode)
            .await
            .map_err(|error| BackendError(Box::new(error)))
    }

    async fn decided(&self, request: &Request, decision: &Decision) {
        if let Err(error) = self.keep(request, decision).await {
            tracing::warn!(error = %crate::http::error::chain(&error), "a DHCP event was not kept");
        }
    }

    async fn exchanged(&self, request: &Request, exchange: &Exchange<'_>) {
        let Some(mac) = request.identity().mac() else { return };
        let (at, ours) = (OffsetDateTime::now_utc(), self.interface.address.addr());
        let sent_to = match exchange.sender.ip().is_unspecified() {
            true => Ipv4Addr::BROADCAST,
            false => ours,
        };
        let mut packets = vec![BootPacket {
            at,
            source: exchange.sender,
            destination: SocketAddrV4::new(sent_to, exchange.port),
            payload: exchange.request.to_vec(),
        }];
        packets.extend(exchange.answer.map(|(payload, destination)| BootPacket {
            at,
            source: SocketAddrV4::new(ours, exchange.port),
            destination,
            payload: payload.to_vec(),
        }));
        if let Err(error) = self.app.store.packet_keep(&mac.to_string(), &packets).await {
            tracing::warn!(error = %crate::http::error::chain(&error), "DHCP messages were not kept");
        }
    }
}

#[cfg(test)]
#[path = "boot_plane/tests.rs"]
mod tests;
