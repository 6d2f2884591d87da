//! The sockets: bytes in, one decision, bytes out.
//!
//! Idea: one loop receives; each request is answered in a task of its own, so that one slow look-up does not keep a
//! rack waiting. The number of tasks is bounded, and what comes beyond is dropped and counted: a client asks again.
//!
//! The sockets are tied to one interface (SO_BINDTODEVICE). Broadcast answers then leave by it with its primary
//! address as the source; unicast answers with the address the route prefers. Clients go by the server identifier in
//! the message, which is a configured one. Several interfaces are several servers, each with its own address; what a
//! relay brings may have to be answered in the name of another one ([`DhcpBackend::stance`]).
//!
//! Refused: IP_PKTINFO to choose the source of each datagram. None of the crates in use offers it without unsafe code,
//! and an interface with a socket of its own leaves nothing to choose.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::boot::{LoaderSet, LoaderTable};
use super::error::PacketError;
use super::packet::Request;
use super::policy::{Context, Decision, IgnoreReason, LeaseOffer, Mode, NodeStanding, Port, ReplyPlan, answer};
use crate::counters::CounterSet;
use crate::mac::MacAddr;
use crate::rate::{Rate, RateLimiter, RateLimits, Verdict};
use crate::socket::{UdpOptions, udp_open};

/// The longest datagram that is read, in bytes: an Ethernet frame holds less.
const DATAGRAM_BYTES_MAX: usize = 2048;
/// Pause after a failed receive, so that an interface that went away does not take a whole core.
const RECEIVE_RETRY: Duration = Duration::from_millis(100);
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;

/// What the backend knows of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Whether it may be answered.
    pub node: NodeStanding,
    /// The address it may have, in full mode.
    pub lease: Option<LeaseOffer>,
    /// Which loaders it is given.
    pub loaders: LoaderSet,
}

/// As whom a request is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stance {
    /// How the server takes part where the client is.
    pub mode: Mode,
    /// The advertised address: server identifier, next server. Configured, never the address of the moment.
    pub server_ip: Ipv4Addr,
    /// Base of the boot HTTP service as the client reaches it, such as `http://10.77.0.1:8081`.
    pub http_base: String,
}

/// The look-up failed; the request goes unanswered and the client asks again.
#[derive(Debug, thiserror::Error)]
#[error("looking the machine up failed")]
pub struct BackendError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// A request as it came, and its answer as it went.
#[derive(Debug, Clone, Copy)]
pub struct Exchange<'a> {
    /// Who sent the request.
    pub sender: SocketAddrV4,
    /// The port that it came to.
    pub port: u16,
    /// The request's bytes.
    pub request: &'a [u8],
    /// The answer's bytes, and where they went; none: it was not answered.
    pub answer: Option<(&'a [u8], SocketAddrV4)>,
}

/// Where knowledge of machines comes from. One call of each a request, both inside
/// [`DhcpConfig::request_timeout`].
pub trait DhcpBackend: Send + Sync + 'static {
    /// As whom this request is answered; `usual` is what the server was configured with. What comes through a relay may
    /// belong to a subnet of its own, or to another interface of the same host. Called before each look-up; must not
    /// wait.
    fn stance(&self, _request: &Request, usual: &Stance) -> Stance {
        usual.clone()
    }

    /// What is known of this machine and, in full mode, which address it may have. Also the place where the sighting
    /// is recorded. Look machines up by [`Request::identity`], never by option 61.
    fn lookup(&self, request: &Request, mode: Mode) -> impl Future<Output = Result<Standing, BackendError>> + Send;

    /// Told what was decided: what is answered, or why not. Awaited before the answer leaves, so that a lease is
    /// recorded before the client hears of it.
    fn decided(&self, request: &Request, decision: &Decision) -> impl Future<Output = ()> + Send;

    /// Told what was on the wire, once the answer has left or none is due; for whoever keeps it.
    fn exchanged(&self, _request: &Request, _exchange: &Exchange<'_>) -> impl Future<Output = ()> + Send {
        async {}
    }
}

impl<T: DhcpBackend> DhcpBackend for Arc<T> {
    fn stance(&self, request: &Request, usual: &Stance) -> Stance {
        T::stance(self, request, usual)
    }

    fn lookup(&self, request: &Request, mode: Mode) -> impl Future<Output = Result<Standing, BackendError>> + Send {
        T::lookup(self, request, mode)
    }

    fn decided(&self, request: &Request, decision: &Decision) -> impl Future<Output = ()> + Send {
        T::decided(self, request, decision)
    }

    fn exchanged(&self, request: &Request, exchange: &Exchange<'_>) -> impl Future<Output = ()> + Send {
        T::exchanged(self, request, exchange)
    }
}

/// The UDP ports in use. Only tests and simulations have reason to change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DhcpPorts {
    /// Where the server listens.
    pub server: u16,
    /// Where it listens for PXE boot server requests; none to leave that port alone.
    pub pxe: Option<u16>,
    /// Where relays listen.
    pub relay: u16,
    /// Where clients listen.
    pub client: u16,
}

impl Default for DhcpPorts {
    fn default() -> Self {
        Self {
            server: 67,
            pxe: Some(4011),
            relay: 67,
            client: 68,
        }
    }
}

/// Configuration of one server on one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DhcpConfig {
    /// How it takes part.
    pub mode: Mode,
    /// The interface it is tied to; none only where there is a single one, or in tests.
    pub interface: Option<String>,
    /// Address it binds to; the unspecified address in production, as broadcasts arrive at no other.
    pub listen_ip: Ipv4Addr,
    /// The advertised address: server identifier, next server.
    pub server_ip: Ipv4Addr,
    /// Base of the boot HTTP service, such as `http://10.77.0.1:8081`.
    pub http_base: String,
    /// UDP ports.
    pub ports: DhcpPorts,
    /// How often one machine, and all together, may ask; requests beyond are dropped.
    pub rate: RateLimits,
    /// Requests worked on at a time; more are dropped.
    pub requests_max: usize,
    /// How long the backend may take over one request.
    pub request_timeout: Duration,
}

impl DhcpConfig {
    /// The usual configuration: standard ports, 256 requests at a time, 5 seconds each. A machine sends a dozen messages
    /// at a start, and may send 5 more a second after its first 40; a rack that starts at once sends a few thousand.
    pub fn new(mode: Mode, server_ip: Ipv4Addr, http_base: &str) -> Self {
        Self {
            mode,
            interface: None,
            listen_ip: Ipv4Addr::UNSPECIFIED,
            server_ip,
            http_base: http_base.to_owned(),
            ports: DhcpPorts::default(),
            rate: RateLimits {
                client: Rate { burst: 40, per_sec: 5 },
                all: Rate {
                    burst: 4000,
                    per_sec: 1000,
                },
                clients_max: 4096,
            },
            requests_max: 256,
            request_timeout: Duration::from_secs(5),
        }
    }
}

/// Counted beside the kinds of [`PacketError`] and the reasons of [`IgnoreReason`].
const EVENTS: &[&str] = &[
    "answered",
    "lease_event",
    "busy",
    "client_too_often",
    "all_too_often",
    "backend_failed",
    "backend_timeout",
    "send_failed",
    "receive_failed",
];

/// A DHCP server with its sockets open.
pub struct DhcpServer<B> {
    shared: Arc<Shared<B>>,
    server: Arc<UdpSocket>,
    pxe: Option<Arc<UdpSocket>>,
}

struct Shared<B> {
    config: DhcpConfig,
    usual: Stance,
    backend: B,
    counters: Arc<CounterSet>,
    /// Held for one decision only, never across an await. Clients are hardware addresses.
    limiter: Mutex<RateLimiter<MacAddr>>,
}

impl<B: DhcpBackend> DhcpServer<B> {
    /// Opens the sockets. Needs CAP_NET_BIND_SERVICE for the standard ports. Errors: a port in use, an interface that
    /// does not exist.
    pub fn bind(config: DhcpConfig, backend: B) -> io::Result<Self> {
        let open = |port: u16| {
            let options = UdpOptions {
                address: SocketAddr::new(IpAddr::V4(config.listen_ip), port),
                interface: config.interface.as_deref(),
                broadcast: true,
                reuse_address: true,
                receive_buffer_bytes: Some(RECEIVE_BUFFER_BYTES),
            };
            udp_open(&options).map(Arc::new)
        };
        let server = open(config.ports.server)?;
        let pxe = config.ports.pxe.map(open).transpose()?;
        let reasons = IgnoreReason::ALL.map(IgnoreReason::as_str);
        let kinds: Vec<&'static str> = [EVENTS, PacketError::KINDS, &reasons].concat();
        let counters = Arc::new(CounterSet::new(&kinds));
        let limiter = Mutex::new(RateLimiter::new(config.rate, Instant::now()));
        Ok(Self {
            shared: Arc::new(Shared {
                usual: Stance {
                    mode: config.mode,
                    server_ip: config.server_ip,
                    http_base: config.http_base.clone(),
                },
                config,
                backend,
                counters,
                limiter,
            }),
            server,
            pxe,
        })
    }

    /// Counts of answers, ignored requests and dropped datagrams by kind; stays valid after the server ran.
    pub fn counters(&self) -> Arc<CounterSet> {
        Arc::clone(&self.shared.counters)
    }

    /// Where it listens for DHCP.
    pub fn server_address(&self) -> io::Result<SocketAddr> {
        self.server.local_addr()
    }

    /// Where it listens for PXE boot server requests.
    pub fn pxe_address(&self) -> Option<io::Result<SocketAddr>> {
        self.pxe.as_ref().map(|socket| socket.local_addr())
    }

    /// Serves until cancelled, then waits for the requests in work.
    pub async fn run(self, cancel: CancellationToken) {
        let config = &self.shared.config;
        info!(mode = ?config.mode, interface = config.interface, server.ip = %config.server_ip, "DHCP serving");
        // Requests of both ports share one bound.
        let permits = Arc::new(Semaphore::new(config.requests_max));
        let server = serve(
            Arc::clone(&self.shared),
            self.server,
            Port::Server67,
            Arc::clone(&permits),
            cancel.clone(),
        );
        let pxe = async {
            if let Some(socket) = self.pxe {
                serve(Arc::clone(&self.shared), socket, Port::Pxe4011, permits, cancel).await;
            }
        };
        tokio::join!(server, pxe);
        info!("DHCP stopped");
    }
}

async fn serve<B: DhcpBackend>(
    shared: Arc<Shared<B>>,
    socket: Arc<UdpSocket>,
    port: Port,
    permits: Arc<Semaphore>,
    cancel: CancellationToken,
) {
    let mut tasks = JoinSet::new();
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX + 1];
    loop {
        let received = tokio::select! {
            () = cancel.cancelled() => break,
            Some(ended) = tasks.join_next() => {
                if let Err(error) = ended {
                    warn!(%error, "a DHCP request ended abnormally");
                }
                continue;
            }
            received = socket.recv_from(&mut buffer) => received,
        };
        let (bytes, sender) = match received {
            Ok((length, SocketAddr::V4(sender))) => (&buffer[..length], sender),
            Ok((_, SocketAddr::V6(_))) => continue,
            Err(error) => {
                shared.drop_counted("receive_failed", &error);
                tokio::time::sleep(RECEIVE_RETRY).await;
                continue;
            }
        };
        let decoded = if bytes.len() > DATAGRAM_BYTES_MAX {
            Err(PacketError::TooLong {
                bytes_max: DATAGRAM_BYTES_MAX,
            })
        } else {
            Request::decode(bytes)
        };
        let request = match decoded {
            Ok(request) => request,
            Err(error) => {
                shared.drop_counted(error.kind(), &error);
                continue;
            }
        };
        if let Some(kind) = shared.too_often(&request) {
            shared.drop_counted(kind, &format_args!("from {sender}: more requests than allowed"));
            continue;
        }
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            shared.drop_counted("busy", &"as many requests as allowed are in work");
            continue;
        };
        let (shared, socket, bytes) = (Arc::clone(&shared), Arc::clone(&socket), bytes.to_vec());
        tasks.spawn(async move {
            let answered = shared.handle(&request, &socket, sender, port).await;
            let exchange = Exchange {
                sender,
                port: socket.local_addr().map_or(0, |address| address.port()),
                request: &bytes,
                answer: answered.as_ref().map(|(bytes, to)| (&bytes[..], *to)),
            };
            shared.backend.exchanged(&request, &exchange).await;
            drop(permit);
        });
    }
    while tasks.join_next().await.is_some() {}
}

impl<B: DhcpBackend> Shared<B> {
    /// The kind to count where a request is one too many.
    fn too_often(&self, request: &Request) -> Option<&'static str> {
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let verdict = match request.identity().mac() {
            Some(mac) => limiter.decide(&mac, Instant::now()),
            None => limiter.decide_unknown(Instant::now()),
        };
        match verdict {
            Verdict::Allowed => None,
            Verdict::ClientTooOften => Some("client_too_often"),
            Verdict::AllTooOften => Some("all_too_often"),
        }
    }

    /// Answers a request, or not; gives what was sent, and where.
    async fn handle(
        &self,
        request: &Request,
        socket: &UdpSocket,
        sender: SocketAddrV4,
        port: Port,
    ) -> Option<(Vec<u8>, SocketAddrV4)> {
        let decided = tokio::time::timeout(self.config.request_timeout, self.decide(request, port)).await;
        let decision = match decided {
            Ok(Ok(decision)) => decision,
            Ok(Err(error)) => {
                self.drop_counted("backend_failed", &error.0);
                return None;
            }
            Err(_) => {
                self.drop_counted("backend_timeout", &"the look-up took too long");
                return None;
            }
        };
        match decision {
            Decision::Ignore { reason } => {
                self.counters.increment(reason.as_str());
                debug!(reason = reason.as_str(), mac = ?request.mac(), "DHCP request not answered");
                None
            }
            Decision::Lease(event) => {
                self.counters.increment("lease_event");
                debug!(?event, mac = ?request.mac(), "lease changed by its client");
                None
            }
            Decision::Reply(plan) => self.send(request, socket, sender, &plan).await,
        }
    }

    async fn decide(&self, request: &Request, port: Port) -> Result<Decision, BackendError> {
        let stance = self.backend.stance(request, &self.usual);
        let standing = self.backend.lookup(request, stance.mode).await?;
        let loaders: LoaderTable = standing.loaders.table();
        let context = Context {
            mode: stance.mode,
            server_ip: stance.server_ip,
            http_base: &stance.http_base,
            node: standing.node,
            lease: standing.lease.as_ref(),
            loaders: &loaders,
            port,
        };
        let decision = answer(request, &context);
        self.backend.decided(request, &decision).await;
        Ok(decision)
    }

    async fn send(
        &self,
        request: &Request,
        socket: &UdpSocket,
        sender: SocketAddrV4,
        plan: &ReplyPlan,
    ) -> Option<(Vec<u8>, SocketAddrV4)> {
        let bytes = match plan.reply.encode(request.max_message_bytes()) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.drop_counted(error.kind(), &error);
                return None;
            }
        };
        let DhcpPorts { relay, client, .. } = self.config.ports;
        let destination = plan.destination.resolve(sender, relay, client);
        match socket.send_to(&bytes, destination).await {
            Ok(_) => {
                self.counters.increment("answered");
                debug!(
                    kind = plan.reply.message_type.name(),
                    stage = plan.boot.stage(),
                    mac = ?request.mac(),
                    %destination,
                    "DHCP answered"
                );
                Some((bytes, destination))
            }
            Err(error) => {
                self.drop_counted("send_failed", &error);
                None
            }
        }
    }

    /// Counts, and logs the first of its kind: a broken sender must not fill the log.
    fn drop_counted(&self, kind: &str, why: &dyn std::fmt::Display) {
        if self.counters.increment(kind) {
            warn!(kind, %why, "DHCP message dropped; more of this kind are counted and not logged");
        }
    }
}
