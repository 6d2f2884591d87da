//! Many clients in one thread: one socket each, one poll for all.
//!
//! Idea: the load shares the machine with the server under test, so it must cost little: blocks are compared with the
//! file instead of hashed, a socket is read once for each time it is ready, and timers are looked at in turns.
//!
//! Invariant: it stops by itself. A transfer has a bound of timeouts in a row, the whole load one of time.
//!
//! Refused: a task for each client. Its scheduling would cost about as much as the server's.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::event::epoll;
use rustix::time::{ClockId, clock_gettime};

use super::client::{Ask, Client, Step};

/// How often timers are looked at.
const TIMER_TURN: Duration = Duration::from_millis(20);
/// Requests sent before answers are read.
const REQUESTS_AT_ONCE: usize = 16;
/// Sockets reported ready at a time.
const READY_MAX: usize = 256;
/// The largest datagram there is.
const DATAGRAM_BYTES_MAX: usize = 65536;

/// A load.
#[derive(Debug, Clone)]
pub struct Load {
    /// The server.
    pub server: SocketAddr,
    /// What each client reads.
    pub ask: Arc<Ask>,
    /// How many clients, all at once.
    pub clients: usize,
    /// The part of packets lost, each way, 0 to 1.
    pub loss: f64,
    /// What decides which: the same seed loses the same packets of each client.
    pub seed: u64,
    /// Silence after which a client sends again.
    pub retransmit: Duration,
    /// Timeouts in a row after which a client gives up.
    pub timeouts_max: u32,
    /// Time after which all that still run have failed.
    pub duration_max: Duration,
}

/// What came of a load.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Transfers that were complete and right.
    pub completed: usize,
    /// Why others failed, and how many each.
    pub failures: BTreeMap<String, usize>,
    /// From the first request to the last end.
    pub wall: Duration,
    /// Content of complete transfers, in bytes.
    pub bytes: u64,
    /// From each client's request to its first answer.
    pub first_replies: Vec<Duration>,
    /// From each complete client's request to its end.
    pub durations: Vec<Duration>,
    /// Packets received, the dropped ones aside.
    pub packets: u64,
    /// Packets dropped on purpose, both ways.
    pub dropped: u64,
    /// Blocks received that a client had already.
    pub duplicates: u64,
    /// Timeouts of clients.
    pub timeouts: u64,
    /// Processor time of the load itself.
    pub processor: Duration,
}

impl Outcome {
    /// Content of complete transfers in megabytes (10⁶ bytes) a second.
    pub fn throughput_mb_per_s(&self) -> f64 {
        let seconds = self.wall.as_secs_f64();
        if seconds > 0.0 {
            self.bytes as f64 / seconds / 1e6
        } else {
            0.0
        }
    }
}

/// Plays `load` to its end.
///
/// # Errors
/// When sockets cannot be opened. What goes wrong with single transfers is in the outcome.
pub fn play(load: &Load) -> Result<Outcome> {
    let mut generator = Generator::open(load)?;
    let (begun, processor) = (Instant::now(), processor_time());
    generator.run(begun)?;
    generator.outcome.wall = begun.elapsed();
    generator.outcome.processor = processor_time().saturating_sub(processor);
    Ok(generator.outcome)
}

struct Generator<'a> {
    load: &'a Load,
    poll: rustix::fd::OwnedFd,
    peers: Vec<Peer>,
    live: usize,
    outcome: Outcome,
}

/// One client and its socket.
struct Peer {
    client: Client,
    socket: UdpSocket,
    /// The port that the server answers from.
    server: Option<SocketAddr>,
    dice: StdRng,
    asked: Option<Instant>,
    /// When the timer started.
    since: Instant,
    is_ended: bool,
}

impl<'a> Generator<'a> {
    fn open(load: &'a Load) -> Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot make an epoll")?;
        let now = Instant::now();
        let mut peers = Vec::with_capacity(load.clients);
        for index in 0..load.clients {
            let address = SocketAddr::new(client_address(load.server.ip(), index), 0);
            let socket = UdpSocket::bind(address)
                .with_context(|| format!("cannot open the socket of client {index} at {address}"))?;
            socket.set_nonblocking(true)?;
            let number = index as u64;
            epoll::add(&poll, &socket, epoll::EventData::new_u64(number), epoll::EventFlags::IN)
                .context("cannot watch a socket")?;
            peers.push(Peer {
                client: Client::new(Arc::clone(&load.ask), load.timeouts_max),
                socket,
                server: None,
                dice: StdRng::seed_from_u64(load.seed.wrapping_mul(1_000_003).wrapping_add(number)),
                asked: None,
                since: now,
                is_ended: false,
            });
        }
        Ok(Self {
            load,
            poll,
            live: peers.len(),
            peers,
            outcome: Outcome::default(),
        })
    }

    fn run(&mut self, begun: Instant) -> Result<()> {
        let mut inbound = vec![0; DATAGRAM_BYTES_MAX];
        let mut outbound = Vec::new();
        let mut ready = Vec::with_capacity(READY_MAX);
        let mut started = 0;
        let mut timers_due = begun + TIMER_TURN;
        while self.live > 0 {
            let until = (started + REQUESTS_AT_ONCE).min(self.peers.len());
            for index in started..until {
                self.start(index, &mut outbound);
            }
            started = until;
            let wait = if started < self.peers.len() {
                Duration::ZERO
            } else {
                TIMER_TURN
            };
            let wait = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: wait.subsec_nanos().into(),
            };
            ready.clear();
            match epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut ready), Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot wait for packets"),
            }
            for event in &ready {
                let index = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
                self.receive(index, &mut inbound, &mut outbound);
            }
            let now = Instant::now();
            if now >= timers_due {
                timers_due = now + TIMER_TURN;
                self.look_at_timers(now, started, now - begun > self.load.duration_max, &mut outbound);
            }
        }
        Ok(())
    }

    fn start(&mut self, index: usize, outbound: &mut Vec<u8>) {
        let Some(peer) = self.peers.get_mut(index) else { return };
        let now = Instant::now();
        peer.asked = Some(now);
        peer.since = now;
        peer.client.request(outbound);
        peer.send(outbound, self.load, &mut self.outcome);
    }

    /// Reads what has come for a client: one packet in lock step, else up to a window.
    fn receive(&mut self, index: usize, inbound: &mut [u8], outbound: &mut Vec<u8>) {
        let Some(peer) = self.peers.get_mut(index) else { return };
        for _ in 0..self.load.ask.window_blocks {
            if peer.is_ended {
                return;
            }
            let (length, from) = match peer.socket.recv_from(inbound) {
                Ok(received) => received,
                Err(error) if is_passing(&error) => return,
                Err(error) => return self.end(index, Step::Failed(format!("cannot receive: {error}"))),
            };
            let now = Instant::now();
            if self.load.loss > 0.0 && peer.dice.random_bool(self.load.loss) {
                self.outcome.dropped += 1;
                continue;
            }
            match peer.server {
                None => {
                    // A connected socket sends without looking for a route each time.
                    if let Err(error) = peer.socket.connect(from) {
                        return self.end(index, Step::Failed(format!("cannot connect: {error}")));
                    }
                    peer.server = Some(from);
                    let asked = peer.asked.unwrap_or(now);
                    self.outcome.first_replies.push(now - asked);
                }
                // The answer to a request that was sent twice.
                Some(server) if server != from => continue,
                Some(_) => {}
            }
            self.outcome.packets += 1;
            match peer.client.packet(&inbound[..length], outbound) {
                Step::Nothing => {}
                Step::Progress => peer.since = now,
                Step::Send => {
                    peer.since = now;
                    peer.send(outbound, self.load, &mut self.outcome);
                }
                Step::Complete => {
                    peer.send(outbound, self.load, &mut self.outcome);
                    return self.end(index, Step::Complete);
                }
                failed @ Step::Failed(_) => return self.end(index, failed),
            }
        }
    }

    fn look_at_timers(&mut self, now: Instant, started: usize, is_over: bool, outbound: &mut Vec<u8>) {
        for index in 0..started {
            let Some(peer) = self.peers.get_mut(index).filter(|peer| !peer.is_ended) else {
                continue;
            };
            if is_over {
                self.end(index, Step::Failed("the load's time was over".to_owned()));
            } else if now.saturating_duration_since(peer.since) >= self.load.retransmit {
                peer.since = now;
                match peer.client.timed_out(outbound) {
                    Step::Send => peer.send(outbound, self.load, &mut self.outcome),
                    step => self.end(index, step),
                }
            }
        }
    }

    fn end(&mut self, index: usize, step: Step) {
        let Some(peer) = self.peers.get_mut(index) else { return };
        // It can no longer be ready; when the socket cannot be taken out, its packets are read and ignored.
        let _taken_out = epoll::delete(&self.poll, &peer.socket);
        peer.is_ended = true;
        self.live -= 1;
        let counts = peer.client.counts();
        self.outcome.duplicates += counts.duplicates;
        self.outcome.timeouts += counts.timeouts;
        match step {
            Step::Failed(reason) => *self.outcome.failures.entry(reason).or_default() += 1,
            _ => {
                self.outcome.completed += 1;
                self.outcome.bytes += self.load.ask.content.len() as u64;
                let asked = peer.asked.unwrap_or(peer.since);
                self.outcome.durations.push(asked.elapsed());
            }
        }
    }
}

impl Peer {
    /// Sends, or loses. A packet that cannot be sent is a lost one: the timer makes it good.
    fn send(&mut self, bytes: &[u8], load: &Load, outcome: &mut Outcome) {
        if load.loss > 0.0 && self.dice.random_bool(load.loss) {
            outcome.dropped += 1;
            return;
        }
        let _sent = match self.server {
            None => self.socket.send_to(bytes, load.server),
            Some(_) => self.socket.send(bytes),
        };
    }
}

/// Nothing to read now, or the answer to a packet that went to a port nobody listens on: neither ends a transfer.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted | ConnectionRefused)
}

/// On loopback, each client has an address of its own, as machines have: 127.1.0.1 and on. Elsewhere, the kernel's choice.
pub fn client_address(server: IpAddr, index: usize) -> IpAddr {
    match server {
        IpAddr::V4(server) if server.is_loopback() => {
            let [_, a, b, c] = u32::try_from(index % 50_000 / 250 * 256 + index % 250 + 1)
                .unwrap_or(1)
                .to_be_bytes();
            IpAddr::V4(Ipv4Addr::new(127, a + 1, b, c))
        }
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
    }
}

/// Processor time of this process.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

#[cfg(test)]
#[path = "generator_tests.rs"]
mod tests;
