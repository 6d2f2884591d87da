//! The listener: takes requests, starts transfers, keeps their number bounded.
//!
//! Idea: each transfer has a socket of its own, connected to its peer and bound to the address the request came to: the
//! listener's, or where that is unspecified, the one the kernel's route to the peer starts from. In *single-port* mode all
//! transfers share the listener's port instead, for networks where a reply from another port does not pass (address
//! translation, Kubernetes services).
//!
//! Invariant: there is at most one transfer for a peer's address and port. The same request again is handed to it; a
//! different one replaces it.
//!
//! Refused: answering "busy" with an error beyond the bound. Firmware gives up on an error and asks again on silence.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::exchange::{Link, Word};
use super::names::NameError;
use super::options::Limits;
use super::packet::{ErrorCode, FileRequest, Packet, PacketError, REQUEST_BYTES_MAX};
use super::pump::Pumps;
use super::session::Session;
use super::source::TftpSource;
use super::transfer::{Outcome, Rollover};
use crate::counters::CounterSet;
use crate::rate::{Rate, RateLimiter, RateLimits, Verdict};
use crate::socket::{UdpOptions, udp_open_std};

/// Words waiting for one transfer; more is dropped, as the network might have done.
const MAILBOX_MAX: usize = 8;
/// Asked of the kernel, so that a rack that powers on at once is not lost before the first read.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// Pause after a failed receive.
const RECEIVE_RETRY: Duration = Duration::from_millis(100);

/// Configuration of one TFTP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TftpConfig {
    /// Where it listens. With an interface of its own, the address of that interface.
    pub listen: SocketAddr,
    /// Interface it is tied to.
    pub interface: Option<String>,
    /// Answer from the listener's port instead of a fresh one.
    pub is_single_port: bool,
    /// Bounds for what clients may negotiate.
    pub limits: Limits,
    /// What follows block 65535.
    pub rollover: Rollover,
    /// How often one address, and all together, may ask; requests beyond are dropped.
    pub rate: RateLimits,
    /// Transfers at a time; further requests are dropped until one ended.
    pub transfers_max: usize,
    /// Timeouts in a row after which a peer counts as gone.
    pub timeouts_max: u32,
    /// Time to the first retransmission until the peer's round trips are measured, unless the client asked for another
    /// (RFC 2349); then as measured, at least half of this. Doubled from try to try.
    pub retransmit_first: Duration,
    /// The longest time between retransmissions.
    pub retransmit_max: Duration,
    /// The longest a transfer may take in all.
    pub transfer_duration_max: Duration,
}

impl TftpConfig {
    /// The usual configuration: 2048 transfers, blocks up to 1468 bytes, half a second to the first retransmission,
    /// about 25 seconds of silence, half an hour in all. A machine asks for some 20 files at a start, and may ask for
    /// 20 more a second after its first 100; a rack that starts at once asks for a few thousand.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            interface: None,
            is_single_port: false,
            limits: Limits::default(),
            rollover: Rollover::default(),
            rate: RateLimits {
                client: Rate {
                    burst: 100,
                    per_sec: 20,
                },
                all: Rate {
                    burst: 4000,
                    per_sec: 2000,
                },
                clients_max: 4096,
            },
            transfers_max: 2048,
            timeouts_max: 6,
            retransmit_first: Duration::from_millis(500),
            retransmit_max: Duration::from_secs(8),
            transfer_duration_max: Duration::from_secs(1800),
        }
    }
}

/// Counted beside the kinds of [`PacketError`], [`NameError`] and [`Outcome`].
const EVENTS: &[&str] = &[
    "started",
    "not_found",
    "refused",
    "unavailable",
    "write_refused",
    "mode_refused",
    "busy",
    "stray",
    "name_trimmed",
    "name_guessed",
    "client_too_often",
    "all_too_often",
    "socket_failed",
    "send_failed",
    "receive_failed",
];

/// A TFTP server with its socket open.
pub struct TftpServer<S> {
    config: Arc<TftpConfig>,
    source: Arc<S>,
    counters: Arc<CounterSet>,
    socket: UdpSocket,
    /// The same socket for the threads that send.
    shared: Arc<std::net::UdpSocket>,
    pumps: Arc<Pumps>,
}

/// A transfer, as the listener sees it.
struct Entry {
    request: FileRequest,
    mailbox: mpsc::Sender<Word>,
}

/// A read or write request by its opcode, whether or not the rest can be read.
fn is_request(bytes: &[u8]) -> bool {
    matches!(bytes, [0, 1 | 2, ..])
}

impl<S: TftpSource> TftpServer<S> {
    /// Opens the socket. Needs CAP_NET_BIND_SERVICE for port 69. Errors: a port in use, an interface that does not
    /// exist.
    pub fn bind(config: TftpConfig, source: S) -> io::Result<Self> {
        let shared = udp_open_std(&UdpOptions {
            address: config.listen,
            interface: config.interface.as_deref(),
            broadcast: false,
            // Two servers on one port would each lose half of the packets.
            reuse_address: false,
            receive_buffer_bytes: Some(RECEIVE_BUFFER_BYTES),
        })?;
        let kinds: Vec<&'static str> = [EVENTS, PacketError::KINDS, NameError::KINDS, Outcome::KINDS].concat();
        Ok(Self {
            config: Arc::new(config),
            source: Arc::new(source),
            counters: Arc::new(CounterSet::new(&kinds)),
            socket: UdpSocket::from_std(shared.try_clone()?)?,
            shared: Arc::new(shared),
            pumps: Arc::new(Pumps::start()?),
        })
    }

    /// Counts of requests, outcomes and dropped packets by kind; stays valid after the server ran.
    pub fn counters(&self) -> Arc<CounterSet> {
        Arc::clone(&self.counters)
    }

    /// Where it listens.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until cancelled, then waits for the transfers to end, which they do at once.
    pub async fn run(self, cancel: CancellationToken) {
        info!(listen = %self.config.listen, interface = self.config.interface, "TFTP serving");
        let mut peers: HashMap<SocketAddr, Entry> = HashMap::new();
        let mut tasks: JoinSet<SocketAddr> = JoinSet::new();
        let mut limiter = RateLimiter::new(self.config.rate, Instant::now());
        let mut buffer = vec![0; REQUEST_BYTES_MAX + 1];
        loop {
            let received = tokio::select! {
                () = cancel.cancelled() => break,
                Some(ended) = tasks.join_next() => {
                    match ended {
                        // A later transfer of the same peer has a mailbox that is still open.
                        Ok(peer) if peers.get(&peer).is_some_and(|entry| entry.mailbox.is_closed()) => {
                            peers.remove(&peer);
                        }
                        Ok(_) => {}
                        Err(error) => {
                            warn!(%error, "a TFTP transfer ended abnormally");
                            peers.retain(|_, entry| !entry.mailbox.is_closed());
                        }
                    }
                    continue;
                }
                received = self.socket.recv_from(&mut buffer) => received,
            };
            match received {
                Ok((length, peer)) => {
                    let bytes = &buffer[..length];
                    if is_request(bytes) && self.is_too_often(&mut limiter, peer) {
                        continue;
                    }
                    if let Some(session) = self.datagram(bytes, peer, &mut peers, tasks.len(), &cancel).await {
                        tasks.spawn(async move {
                            session.run().await;
                            peer
                        });
                    }
                }
                Err(error) => {
                    self.drop_counted("receive_failed", &error);
                    tokio::time::sleep(RECEIVE_RETRY).await;
                }
            }
        }
        drop(peers);
        while tasks.join_next().await.is_some() {}
        info!("TFTP stopped");
    }

    /// Whether a request is one too many. Silence makes firmware ask again later; an error would make it give up.
    fn is_too_often(&self, limiter: &mut RateLimiter<IpAddr>, peer: SocketAddr) -> bool {
        let kind = match limiter.decide(&peer.ip(), Instant::now()) {
            Verdict::Allowed => return false,
            Verdict::ClientTooOften => "client_too_often",
            Verdict::AllTooOften => "all_too_often",
        };
        self.drop_counted(kind, &format_args!("from {peer}: more requests than allowed"));
        true
    }

    /// Takes one datagram; gives the transfer to start, if it asks for one.
    async fn datagram(
        &self,
        bytes: &[u8],
        peer: SocketAddr,
        peers: &mut HashMap<SocketAddr, Entry>,
        transfers: usize,
        cancel: &CancellationToken,
    ) -> Option<Session<S>> {
        let decoded = if bytes.len() > REQUEST_BYTES_MAX {
            Err(PacketError::TooLong {
                bytes_max: REQUEST_BYTES_MAX,
            })
        } else {
            Packet::decode(bytes)
        };
        let request = match decoded {
            Ok(Packet::Request(request)) if request.is_write => {
                self.counters.increment("write_refused");
                self.send_error(ErrorCode::AccessViolation, "this server takes no files", peer)
                    .await;
                return None;
            }
            Ok(Packet::Request(request)) => request,
            Ok(Packet::Ack { .. } | Packet::Error { .. }) if self.config.is_single_port => {
                match peers.get(&peer) {
                    // A full mailbox loses a packet, which the timer makes good.
                    Some(entry) => drop(entry.mailbox.try_send(Word::Packet(bytes.to_vec()))),
                    None => drop(self.counters.increment("stray")),
                }
                return None;
            }
            Ok(_) => {
                self.counters.increment("stray");
                return None;
            }
            Err(error) => {
                self.drop_counted(error.kind(), &error);
                // A request that cannot be read is told so; an error must never answer an error.
                if is_request(bytes) {
                    self.send_error(ErrorCode::IllegalOperation, "the request cannot be read", peer)
                        .await;
                }
                return None;
            }
        };
        if let Some(entry) = peers.get(&peer) {
            let word = if entry.request == request {
                Word::RequestRepeated
            } else {
                Word::Replaced
            };
            let is_repeated = matches!(word, Word::RequestRepeated);
            match entry.mailbox.try_send(word) {
                Ok(()) | Err(TrySendError::Full(_)) if is_repeated => return None,
                // It ended, or ends now, and this request takes its place.
                _ => {}
            }
        }
        if transfers >= self.config.transfers_max {
            self.drop_counted("busy", &"as many transfers as allowed are running");
            return None;
        }
        let link = match self.link(peer) {
            Ok(link) => link,
            Err(error) => {
                self.drop_counted("socket_failed", &error);
                return None;
            }
        };
        let (sender, mailbox) = mpsc::channel(MAILBOX_MAX);
        peers.insert(
            peer,
            Entry {
                request: request.clone(),
                mailbox: sender,
            },
        );
        Some(Session {
            source: Arc::clone(&self.source),
            config: Arc::clone(&self.config),
            pumps: Arc::clone(&self.pumps),
            request,
            link,
            mailbox,
            cancel: cancel.clone(),
            is_repeat_unheard: false,
        })
    }

    fn link(&self, peer: SocketAddr) -> io::Result<Link> {
        let socket = if self.config.is_single_port {
            Arc::clone(&self.shared)
        } else {
            Arc::new(self.open_connected(peer)?)
        };
        Ok(Link {
            socket,
            is_own: !self.config.is_single_port,
            peer,
            counters: Arc::clone(&self.counters),
        })
    }

    /// A socket for one peer alone. Where the listener's address is unspecified, it has the one of this host from which
    /// the kernel reaches the peer.
    fn open_connected(&self, peer: SocketAddr) -> io::Result<std::net::UdpSocket> {
        let ip = match (self.config.listen.ip(), peer) {
            (ip, SocketAddr::V4(_)) if ip.is_unspecified() => Ipv4Addr::UNSPECIFIED.into(),
            (ip, SocketAddr::V6(_)) if ip.is_unspecified() => Ipv6Addr::UNSPECIFIED.into(),
            (ip, _) => ip,
        };
        let socket = udp_open_std(&UdpOptions {
            address: SocketAddr::new(ip, 0),
            interface: self.config.interface.as_deref(),
            broadcast: false,
            reuse_address: false,
            receive_buffer_bytes: None,
        })?;
        socket.connect(peer)?;
        Ok(socket)
    }

    async fn send_error(&self, code: ErrorCode, message: &str, peer: SocketAddr) {
        let packet = Packet::Error {
            code,
            message: message.as_bytes(),
        }
        .encode();
        if let Err(error) = self.socket.send_to(&packet, peer).await {
            self.drop_counted("send_failed", &error);
        }
        debug!(%peer, message, "TFTP request refused");
    }

    /// Counts, and logs the first of its kind: a broken sender must not fill the log.
    fn drop_counted(&self, kind: &str, why: &dyn std::fmt::Display) {
        if self.counters.increment(kind) {
            warn!(kind, %why, "TFTP packet dropped; more of this kind are counted and not logged");
        }
    }
}
