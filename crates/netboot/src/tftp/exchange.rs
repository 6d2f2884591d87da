//! One transfer's packets: its socket, its timer, and the state between them.
//!
//! Everything here returns at once: [`super::pump`] says when something can be read and when a time has passed.

use std::io::{self, IoSlice};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use tokio::sync::oneshot;
use tracing::warn;

use super::options::Agreed;
use super::pace::Pace;
use super::packet::{ErrorCode, Packet};
use super::source::TftpFile;
use super::transfer::{Action, Event, Outcome, Transfer};
use crate::counters::CounterSet;

/// An acknowledgement is 4 bytes, an error a line of text; longer packets are cut and still say enough.
const INBOUND_BYTES_MAX: usize = 512;
/// Packets read from one transfer's socket when the listener has a word for it. What came before that word is seen
/// before it; a sender of garbage does not keep the others waiting.
const DRAINED_MAX: usize = 32;
/// Opcode and block number.
const DATA_HEADER_BYTES: usize = 4;
/// Packets the kernel cuts out of one send (UDP_MAX_SEGMENTS of the older ones).
const SEGMENTS_MAX: usize = 64;
/// Bytes in one send: what an IP packet could hold.
const SEGMENTS_BYTES_MAX: usize = 65_000;

/// The way to one peer.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub(super) socket: Arc<UdpSocket>,
    /// The socket is this transfer's alone (RFC 1350 section 4), and connected: the kernel keeps everybody else out. Else
    /// it is the listener's, which does the reading.
    pub(super) is_own: bool,
    pub(super) peer: SocketAddr,
    pub(super) counters: Arc<CounterSet>,
}

impl Link {
    /// A packet that cannot be sent is a lost packet: the timer sends it again.
    pub(super) fn send(&self, bytes: &[u8]) {
        let sent = if self.is_own {
            // The first send after the peer's host refused a packet tells only that.
            match self.socket.send(bytes) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => self.socket.send(bytes),
                sent => sent,
            }
        } else {
            self.socket.send_to(bytes, self.peer)
        };
        if let Err(error) = sent {
            self.send_failed(&error);
        }
    }

    pub(super) fn send_error(&self, code: ErrorCode, message: &str) {
        let message = message.as_bytes();
        self.send(&Packet::Error { code, message }.encode());
    }

    /// Sends `packets`, each `packet_bytes` long but for the last.
    fn send_many(&self, packets: &[u8], packet_bytes: usize) {
        if self.is_own && packets.len() > packet_bytes && self.send_segments(packets, packet_bytes).is_ok() {
            return;
        }
        for packet in packets.chunks(packet_bytes.max(1)) {
            self.send(packet);
        }
    }

    /// Has the kernel cut the packets (UDP_SEGMENT, udp(7)): one way through its layers for a whole window. Fails where a
    /// network card will not have it, or the path takes no packet of that size in one piece.
    fn send_segments(&self, packets: &[u8], packet_bytes: usize) -> io::Result<()> {
        let segment = u16::try_from(packet_bytes).map_err(io::Error::other)?;
        let control = [ControlMessage::UdpGsoSegments(&segment)];
        for packets in packets.chunks(packet_bytes * (SEGMENTS_BYTES_MAX / packet_bytes).clamp(1, SEGMENTS_MAX)) {
            let content = [IoSlice::new(packets)];
            sendmsg::<()>(self.socket.as_raw_fd(), &content, &control, MsgFlags::empty(), None)?;
        }
        Ok(())
    }

    fn send_failed(&self, error: &io::Error) {
        if self.counters.increment("send_failed") {
            warn!(peer = %self.peer, %error, "TFTP send failed; more are counted and not logged");
        }
    }
}

/// What the listener has to say to a transfer.
#[derive(Debug)]
pub(super) enum Word {
    /// The request came once more.
    RequestRepeated,
    /// The peer began another request from the same port.
    Replaced,
    /// A packet for this transfer, which came to the listener's port.
    Packet(Vec<u8>),
    /// The server stops.
    Stop,
}

/// The end of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    /// How it ended.
    pub(super) outcome: Outcome,
    /// What the peer confirmed, in bytes.
    pub(super) acked_bytes: u64,
    /// How many words of the listener's it heard. Later ones came to its end too late.
    pub(super) words_heard: u64,
}

/// Buffers that one thread's exchanges share.
pub(super) struct Buffers {
    inbound: [u8; INBOUND_BYTES_MAX],
    outbound: Vec<u8>,
    /// A window's packets, one behind the other.
    window: Vec<u8>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            inbound: [0; INBOUND_BYTES_MAX],
            outbound: Vec::new(),
            window: Vec::new(),
        }
    }
}

/// A transfer from its first packet to its last.
pub(super) struct Exchange {
    link: Link,
    transfer: Transfer,
    agreed: Agreed,
    content: TftpFile,
    pace: Pace,
    /// When the last packets were sent.
    sent: Instant,
    /// When they are sent again.
    timer: Instant,
    /// When the transfer is given up.
    end: Instant,
    words_heard: u64,
    done: Option<oneshot::Sender<Ended>>,
}

/// How long a transfer may take, and waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) retransmit_first: Duration,
    pub(super) retransmit_max: Duration,
    pub(super) duration_max: Duration,
}

impl Exchange {
    /// A transfer of `content` that has sent nothing yet, and where its end will be told. Dropped before its end, it
    /// tells nothing.
    pub(super) fn new(
        link: Link,
        transfer: Transfer,
        agreed: Agreed,
        content: TftpFile,
        times: Times,
    ) -> (Self, oneshot::Receiver<Ended>) {
        let (done, ended) = oneshot::channel();
        let now = Instant::now();
        let end = now + times.duration_max;
        let exchange = Self {
            link,
            transfer,
            agreed,
            content,
            pace: Pace::new(times.retransmit_first, times.retransmit_max),
            sent: now,
            timer: end,
            end,
            words_heard: 0,
            done: Some(done),
        };
        (exchange, ended)
    }

    /// Its socket, where it has one of its own.
    pub(super) fn own_socket(&self) -> Option<&UdpSocket> {
        self.link.is_own.then_some(&*self.link.socket)
    }

    /// When [`Exchange::time_passed`] is due.
    pub(super) fn due(&self) -> Instant {
        self.timer.min(self.end)
    }

    /// Whether it ended.
    pub(super) fn has_ended(&self) -> bool {
        self.done.is_none()
    }

    /// Sends the first packets.
    pub(super) fn begin(&mut self, buffers: &mut Buffers) {
        self.event(Event::Started, buffers);
    }

    /// Its time came.
    pub(super) fn time_passed(&mut self, now: Instant, buffers: &mut Buffers) {
        if now >= self.end {
            self.finish(Outcome::TooSlow);
        } else if now >= self.timer {
            self.event(Event::TimedOut, buffers);
        }
    }

    /// Reads one packet; none were left where this gives false.
    ///
    /// # Errors
    /// When the socket cannot be read. The timer decides then.
    pub(super) fn receive(&mut self, buffers: &mut Buffers) -> io::Result<bool> {
        let length = match self.link.socket.recv(&mut buffers.inbound) {
            Ok(length) => length,
            Err(error) => {
                return match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(false),
                    // Nothing listens on the peer's port any more, or so somebody says. The timer decides.
                    io::ErrorKind::ConnectionRefused => Ok(true),
                    _ => {
                        if self.link.counters.increment("receive_failed") {
                            warn!(%error, "TFTP receive failed; more are counted and not logged");
                        }
                        Err(error)
                    }
                };
            }
        };
        if let Some(event) = decode(&buffers.inbound[..length], &self.link.counters) {
            self.event(event, buffers);
        }
        Ok(true)
    }

    /// The listener has a word. An abort that arrived before a repeated request is seen before it.
    pub(super) fn word(&mut self, word: Word, buffers: &mut Buffers) {
        if self.link.is_own {
            for _ in 0..DRAINED_MAX {
                if self.has_ended() || !self.receive(buffers).unwrap_or(false) {
                    break;
                }
            }
        }
        if self.has_ended() {
            return;
        }
        self.words_heard += 1;
        match word {
            Word::RequestRepeated => self.event(Event::RequestRepeated, buffers),
            Word::Replaced => self.finish(Outcome::Replaced),
            Word::Packet(bytes) => {
                if let Some(event) = decode(&bytes, &self.link.counters) {
                    self.event(event, buffers);
                }
            }
            Word::Stop => {
                self.link.send_error(ErrorCode::Undefined, "the server stops");
                self.finish(Outcome::Replaced);
            }
        }
    }

    fn event(&mut self, event: Event, buffers: &mut Buffers) {
        let was_sent_once = self.transfer.timeouts() == 0;
        let action = self.transfer.step(event);
        match action {
            Action::Nothing => return,
            Action::Finish(outcome) => return self.finish(outcome),
            Action::SendOptions => {
                let answer = self.agreed.answer.clone().unwrap_or_default();
                Packet::OptionAck(answer).encode_into(&mut buffers.outbound);
                self.link.send(&buffers.outbound);
            }
            Action::SendBlocks { first, count } => {
                if was_sent_once && matches!(event, Event::Acked(_)) {
                    self.pace.measured(self.sent.elapsed());
                }
                buffers.window.clear();
                for block in first..first + count {
                    let payload = slice(&self.content, self.transfer.block_range(block));
                    let block = self.transfer.wire_number(block);
                    Packet::Data { block, payload }.encode_into(&mut buffers.outbound);
                    buffers.window.extend_from_slice(&buffers.outbound);
                }
                // Every block but the file's last is full.
                let packet_bytes = DATA_HEADER_BYTES + usize::from(self.agreed.block_bytes);
                self.link.send_many(&buffers.window, packet_bytes);
            }
        }
        self.sent = Instant::now();
        let timeouts = self.transfer.timeouts();
        self.timer = self.sent + self.agreed.timeout.unwrap_or_else(|| self.pace.wait(timeouts));
    }

    fn finish(&mut self, outcome: Outcome) {
        if let Some(done) = self.done.take() {
            // Who asked for it may be gone.
            let _ = done.send(Ended {
                outcome,
                acked_bytes: self.transfer.acked_bytes(),
                words_heard: self.words_heard,
            });
        }
    }
}

/// What a packet of the peer's says, if it says anything.
fn decode(bytes: &[u8], counters: &CounterSet) -> Option<Event> {
    match Packet::decode(bytes) {
        Ok(Packet::Ack { block }) => Some(Event::Acked(block)),
        Ok(Packet::Error { code, .. }) => Some(Event::PeerError(code)),
        Ok(_) => {
            counters.increment("stray");
            None
        }
        Err(error) => {
            counters.increment(error.kind());
            None
        }
    }
}

fn slice(content: &TftpFile, range: std::ops::Range<u64>) -> &[u8] {
    let start = usize::try_from(range.start).unwrap_or(usize::MAX);
    let end = usize::try_from(range.end).unwrap_or(usize::MAX);
    content.get(start..end).unwrap_or_default()
}
