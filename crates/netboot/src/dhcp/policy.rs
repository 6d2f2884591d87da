//! What to answer, and where to: a function of values.
//!
//! Idea: [`answer`] sees one request and a [`Context`] of facts somebody else looked up. It opens nothing, remembers
//! nothing and asks no clock, so each case from the field is a line in a table of tests.
//!
//! Invariants:
//! - a machine that is [`NodeStanding::Unlisted`] is never answered;
//! - a proxy never offers an address, and never speaks to a client that is not booting from the network;
//! - the server identifier is the configured address and stays the same across restarts and instances, so a renewal
//!   finds whoever is alive;
//! - a relayed client is answered through its relay, whatever the broadcast bit says.
//!
//! Refused: unicast to a client that has no address yet. It needs an entry in the kernel's ARP table for an address
//! nobody answers for; broadcast is allowed by RFC 2131 section 4.1 and reaches the same client.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::boot::{BootAnswer, ClientKind, LoaderTable, boot_answer, client_kind};
use super::options::{OptionList, code};
use super::packet::{Header, MessageType, Request};
use super::reply::Reply;

/// How the appliance takes part in DHCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Beside the site's server: adds boot answers, gives no addresses.
    Proxy,
    /// The server of this network: addresses and boot answers.
    Full,
    /// Silent; the site's server points here.
    Off,
}

/// What is known of the machine that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodeStanding {
    /// Nobody listed it and discovery is not armed: it is left alone.
    Unlisted,
    /// Not listed, and discovery is armed where it asks.
    Discovering,
    /// A node of the rack plan.
    Listed,
}

/// Which port the request came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Port {
    /// The DHCP server port, 67.
    Server67,
    /// The PXE boot server port, 4011 (PXE 2.1 section 2.2).
    Pxe4011,
}

/// The address a machine may have, in full mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseOffer {
    /// The address.
    pub ip: Ipv4Addr,
    /// Mask of its subnet.
    pub subnet_mask: Ipv4Addr,
    /// Default router, where there is one.
    pub router: Option<Ipv4Addr>,
    /// Name servers, best first.
    pub dns: Vec<Ipv4Addr>,
    /// How long it may be used, in seconds.
    pub lease_secs: u32,
}

/// Everything the decision depends on besides the request.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// How the appliance takes part.
    pub mode: Mode,
    /// The advertised address: server identifier, next server. Configured, never the address of the moment.
    pub server_ip: Ipv4Addr,
    /// Base of the boot HTTP service, such as `http://10.77.0.1:8081`.
    pub http_base: &'a str,
    /// What is known of the machine.
    pub node: NodeStanding,
    /// Its address, in full mode; none when there is none to give.
    pub lease: Option<&'a LeaseOffer>,
    /// Loaders by architecture.
    pub loaders: &'a LoaderTable,
    /// Where the request came in.
    pub port: Port,
}

/// Why a request is not answered. The name is stored with the boot event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IgnoreReason {
    /// DHCP is switched off.
    Off,
    /// Nobody listed this machine.
    Unlisted,
    /// The request names no port that could be looked up.
    NoIdentity,
    /// A proxy does not speak to clients that do not boot from the network.
    NotNetboot,
    /// The client chose another server.
    OtherServer,
    /// A proxy has no addresses to confirm.
    ProxyHasNoLeases,
    /// No loader fits any architecture the client has.
    NoLoader,
    /// No address is free or configured for it.
    NoLease,
    /// A request that neither asks for an address nor has one.
    NoAddressAsked,
    /// It gives back an address that is not its own.
    NotItsLease,
    /// A message that is not for this port.
    WrongPort,
}

impl IgnoreReason {
    /// Every reason, for metrics that start at zero.
    pub const ALL: [Self; 11] = [
        Self::Off,
        Self::Unlisted,
        Self::NoIdentity,
        Self::NotNetboot,
        Self::OtherServer,
        Self::ProxyHasNoLeases,
        Self::NoLoader,
        Self::NoLease,
        Self::NoAddressAsked,
        Self::NotItsLease,
        Self::WrongPort,
    ];

    /// A stable name for events and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Unlisted => "unlisted",
            Self::NoIdentity => "no_identity",
            Self::NotNetboot => "not_netboot",
            Self::OtherServer => "other_server",
            Self::ProxyHasNoLeases => "proxy_has_no_leases",
            Self::NoLoader => "no_loader",
            Self::NoLease => "no_lease",
            Self::NoAddressAsked => "no_address_asked",
            Self::NotItsLease => "not_its_lease",
            Self::WrongPort => "wrong_port",
        }
    }
}

/// What a client did to its lease without wanting an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseEvent {
    /// It gave the address back.
    Released {
        /// The address.
        ip: Ipv4Addr,
    },
    /// It found the address in use by somebody else; the address must not be given out again soon.
    Declined {
        /// The address.
        ip: Ipv4Addr,
    },
}

/// Where a reply goes. Ports are the protocol's: 67 for relays, 68 for clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// The relay that passed the request on, at the server port.
    Relay(Ipv4Addr),
    /// The client, at the address it already has.
    Client(Ipv4Addr),
    /// Everybody on the interface, at the client port.
    Broadcast,
    /// The client, at the address it already has and the port it sent from; only for the PXE port, where some firmware
    /// waits for its answer at 68 and some at 4011.
    Asker(Ipv4Addr),
    /// Whoever sent the datagram, address and port; only for the PXE port.
    Sender,
}

impl Destination {
    /// The socket address, given where the request came from and the ports that relays and clients listen on.
    pub fn resolve(self, sender: SocketAddrV4, relay_port: u16, client_port: u16) -> SocketAddrV4 {
        match self {
            Self::Relay(ip) => SocketAddrV4::new(ip, relay_port),
            Self::Client(ip) => SocketAddrV4::new(ip, client_port),
            Self::Broadcast => SocketAddrV4::new(Ipv4Addr::BROADCAST, client_port),
            Self::Asker(ip) => SocketAddrV4::new(ip, sender.port()),
            Self::Sender => sender,
        }
    }
}

/// A reply, where it goes, and what it makes the machine boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyPlan {
    /// The message.
    pub reply: Reply,
    /// Where it goes.
    pub destination: Destination,
    /// What the machine is told to boot.
    pub boot: BootAnswer,
}

/// The outcome for one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// No answer, and why.
    Ignore {
        /// Why.
        reason: IgnoreReason,
    },
    /// An answer. An ack with a `yiaddr` is the moment at which the lease begins.
    Reply(Box<ReplyPlan>),
    /// No answer is due, but a lease changed.
    Lease(LeaseEvent),
}

/// Decides one request.
pub fn answer(request: &Request, context: &Context<'_>) -> Decision {
    match decide(request, context) {
        Ok(decision) => decision,
        Err(reason) => Decision::Ignore { reason },
    }
}

fn decide(request: &Request, context: &Context<'_>) -> Result<Decision, IgnoreReason> {
    match (context.mode, context.node) {
        (Mode::Off, _) => return Err(IgnoreReason::Off),
        (_, NodeStanding::Unlisted) => return Err(IgnoreReason::Unlisted),
        _ if request.identity().mac().is_none() => return Err(IgnoreReason::NoIdentity),
        _ => {}
    }
    if context.port == Port::Pxe4011 {
        return pxe_port(request, context);
    }
    match context.mode {
        Mode::Proxy => proxy(request, context),
        Mode::Full | Mode::Off => full(request, context),
    }
}

/// The PXE boot server port: firmware that was offered no boot file, or insists, asks here with an address it
/// already has. It names the server it got that address from, or none, so option 54 is not looked at.
fn pxe_port(request: &Request, context: &Context<'_>) -> Result<Decision, IgnoreReason> {
    if client_kind(request) == ClientKind::Plain {
        return Err(IgnoreReason::NotNetboot);
    }
    match request.message_type() {
        MessageType::Request | MessageType::Inform => boot_only(request, context, MessageType::Ack),
        MessageType::Discover => boot_only(request, context, MessageType::Offer),
        _ => Err(IgnoreReason::WrongPort),
    }
}

fn proxy(request: &Request, context: &Context<'_>) -> Result<Decision, IgnoreReason> {
    if client_kind(request) == ClientKind::Plain {
        return Err(IgnoreReason::NotNetboot);
    }
    match (request.message_type(), request.server_id()) {
        (MessageType::Discover, _) => boot_only(request, context, MessageType::Offer),
        // Only when it is said to us: the site's server confirms the address, and two acks would be one too many.
        (MessageType::Request, Some(server)) if server == context.server_ip => {
            boot_only(request, context, MessageType::Ack)
        }
        (MessageType::Inform, None) => boot_only(request, context, MessageType::Ack),
        (MessageType::Inform, Some(server)) if server == context.server_ip => {
            boot_only(request, context, MessageType::Ack)
        }
        (MessageType::Request | MessageType::Inform, Some(_)) => Err(IgnoreReason::OtherServer),
        _ => Err(IgnoreReason::ProxyHasNoLeases),
    }
}

fn full(request: &Request, context: &Context<'_>) -> Result<Decision, IgnoreReason> {
    let ciaddr = Some(request.header().ciaddr).filter(|ip| !ip.is_unspecified());
    if request.message_type() != MessageType::Discover
        && request.server_id().is_some_and(|server| server != context.server_ip)
    {
        return Err(IgnoreReason::OtherServer);
    }
    match request.message_type() {
        MessageType::Discover => {
            let lease = context.lease.ok_or(IgnoreReason::NoLease)?;
            Ok(with_lease(request, context, MessageType::Offer, lease))
        }
        MessageType::Request => {
            // RFC 2131 section 4.3.2: option 50 while selecting and after a reboot, ciaddr while renewing.
            let asked = request
                .requested_address()
                .or(ciaddr)
                .ok_or(IgnoreReason::NoAddressAsked)?;
            match context.lease {
                Some(lease) if lease.ip == asked => Ok(with_lease(request, context, MessageType::Ack, lease)),
                Some(_) => Ok(refuse(request, context, "that address is not this machine's")),
                // It chose this server by name, so it waits for this server's word.
                None if request.server_id().is_some() => Ok(refuse(request, context, "no address is free")),
                None => Err(IgnoreReason::NoLease),
            }
        }
        MessageType::Inform => boot_only(request, context, MessageType::Ack),
        MessageType::Release => {
            let ip = own_lease(context, ciaddr)?;
            Ok(Decision::Lease(LeaseEvent::Released { ip }))
        }
        MessageType::Decline => {
            let ip = own_lease(context, request.requested_address())?;
            Ok(Decision::Lease(LeaseEvent::Declined { ip }))
        }
        MessageType::Offer | MessageType::Ack | MessageType::Nak => Err(IgnoreReason::WrongPort),
    }
}

/// Only the machine that has an address may give it back: anybody can write any address into a message.
fn own_lease(context: &Context<'_>, ip: Option<Ipv4Addr>) -> Result<Ipv4Addr, IgnoreReason> {
    let ip = ip.ok_or(IgnoreReason::NoAddressAsked)?;
    if context.lease.is_some_and(|lease| lease.ip == ip) {
        Ok(ip)
    } else {
        Err(IgnoreReason::NotItsLease)
    }
}

/// A reply without an address: a proxy's offer, an ack on the PXE port, the answer to an inform.
fn boot_only(request: &Request, context: &Context<'_>, kind: MessageType) -> Result<Decision, IgnoreReason> {
    let boot = boot_answer(request, context.loaders, context.http_base).ok_or(IgnoreReason::NoLoader)?;
    let mut reply = reply_base(request, context, kind);
    if context.mode == Mode::Full
        && let Some(lease) = context.lease
    {
        add_network(&mut reply.options, lease);
    }
    add_boot(&mut reply, context, &boot);
    add_echoes(&mut reply.options, request);
    Ok(planned(reply, destination(request, context.port), boot))
}

fn with_lease(request: &Request, context: &Context<'_>, kind: MessageType, lease: &LeaseOffer) -> Decision {
    // A client whose architecture has no loader still is a machine of this network: it gets its address.
    let boot = boot_answer(request, context.loaders, context.http_base).unwrap_or(BootAnswer::Address);
    let mut reply = reply_base(request, context, kind);
    reply.header.yiaddr = lease.ip;
    reply.options.set(code::LEASE_TIME, lease.lease_secs.to_be_bytes());
    // RFC 2131 section 4.4.5: half and seven eighths of the lease.
    reply
        .options
        .set(code::RENEWAL_TIME, (lease.lease_secs / 2).to_be_bytes());
    reply.options.set(
        code::REBINDING_TIME,
        (lease.lease_secs - lease.lease_secs / 8).to_be_bytes(),
    );
    add_network(&mut reply.options, lease);
    add_boot(&mut reply, context, &boot);
    add_echoes(&mut reply.options, request);
    planned(reply, destination(request, context.port), boot)
}

fn refuse(request: &Request, context: &Context<'_>, why: &str) -> Decision {
    let mut reply = reply_base(request, context, MessageType::Nak);
    reply.header.ciaddr = Ipv4Addr::UNSPECIFIED;
    reply.options.set(code::MESSAGE, why);
    add_echoes(&mut reply.options, request);
    // RFC 2131 section 4.3.2: a nak is broadcast, by the relay where there is one, as the client's address is wrong.
    let destination = match request.header().giaddr {
        Ipv4Addr::UNSPECIFIED => Destination::Broadcast,
        relay => {
            reply.header.flags |= Header::BROADCAST;
            Destination::Relay(relay)
        }
    };
    planned(reply, destination, BootAnswer::Address)
}

fn planned(reply: Reply, destination: Destination, boot: BootAnswer) -> Decision {
    Decision::Reply(Box::new(ReplyPlan {
        reply,
        destination,
        boot,
    }))
}

fn destination(request: &Request, port: Port) -> Destination {
    let Header { giaddr, ciaddr, .. } = *request.header();
    if !giaddr.is_unspecified() {
        Destination::Relay(giaddr)
    } else {
        match (port, ciaddr.is_unspecified()) {
            (Port::Server67, false) => Destination::Client(ciaddr),
            (Port::Server67, true) => Destination::Broadcast,
            (Port::Pxe4011, false) => Destination::Asker(ciaddr),
            (Port::Pxe4011, true) => Destination::Sender,
        }
    }
}

/// Header and identity options that every reply has (RFC 2131 table 3).
fn reply_base(request: &Request, context: &Context<'_>, message_type: MessageType) -> Reply {
    let mut header = request.header().clone();
    header.hops = 0;
    header.secs = 0;
    header.yiaddr = Ipv4Addr::UNSPECIFIED;
    header.siaddr = Ipv4Addr::UNSPECIFIED;
    if message_type == MessageType::Offer {
        header.ciaddr = Ipv4Addr::UNSPECIFIED;
    }
    let options = OptionList::new()
        .with(code::MESSAGE_TYPE, [message_type.value()])
        .with(code::SERVER_ID, context.server_ip.octets());
    Reply {
        header,
        message_type,
        server_name: Vec::new(),
        boot_file: Vec::new(),
        options,
    }
}

fn add_network(options: &mut OptionList, lease: &LeaseOffer) {
    options.set(code::SUBNET_MASK, lease.subnet_mask.octets());
    if let Some(router) = lease.router {
        options.set(code::ROUTER, router.octets());
    }
    if !lease.dns.is_empty() {
        options.set(
            code::DNS_SERVER,
            lease.dns.iter().flat_map(|ip| ip.octets()).collect::<Vec<u8>>(),
        );
    }
}

/// The boot file, everywhere that some firmware looks for it.
fn add_boot(reply: &mut Reply, context: &Context<'_>, boot: &BootAnswer) {
    let (class, file) = match boot {
        BootAnswer::Address => return,
        BootAnswer::Loader { file, .. } => ("PXEClient", file),
        BootAnswer::Script { url } => ("PXEClient", url),
        BootAnswer::HttpLoader { url, .. } => ("HTTPClient", url),
    };
    reply.options.set(code::VENDOR_CLASS, class);
    if class == "PXEClient" {
        // PXE 2.1 table 2-1, tag 6: discovery control 8, just use the boot file. Without it EDK II takes the offer
        // for a boot menu's and goes asking on port 4011.
        reply.options.set(code::VENDOR_OPTIONS, [6, 1, 8, code::END]);
    }
    let server = context.server_ip.to_string();
    reply.header.siaddr = context.server_ip;
    reply.options.set(code::TFTP_SERVER_NAME, server.as_str());
    reply.options.set(code::BOOTFILE_NAME, file.as_str());
    reply.server_name = server.into_bytes();
    // A name that does not fit with its NUL would be cut into another name: option 67 alone carries it then.
    if file.len() < 128 {
        reply.boot_file = file.clone().into_bytes();
    }
}

/// What comes back exactly as it was sent, and is never made up.
fn add_echoes(options: &mut OptionList, request: &Request) {
    // RFC 4578 section 2.3; RFC 6842; RFC 3046 section 2.2.
    for code in [code::MACHINE_ID, code::CLIENT_ID, code::RELAY_AGENT] {
        if let Some(value) = request.options().get(code) {
            options.set(code, value);
        }
    }
}
