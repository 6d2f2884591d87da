//! One transfer's I/O: its socket or its share of one, its timer, and the state between them.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::names::{FileName, NameError};
use super::options::Agreed;
use super::pace::Pace;
use super::packet::{ErrorCode, FileRequest, Packet, TransferMode};
use super::server::TftpConfig;
use super::source::{OpenError, TftpFile, TftpSource, TransferEvent, TransferEventKind};
use super::transfer::{Action, Event, Outcome, Transfer};
use crate::counters::CounterSet;

/// An acknowledgement is 4 bytes, an error a line of text; longer packets are cut and still say enough.
const INBOUND_BYTES_MAX: usize = 512;

/// What the listener passes on to a transfer.
#[derive(Debug)]
pub(crate) enum Mail {
    /// The request came once more.
    RequestRepeated,
    /// The peer began another request from the same port.
    Replaced,
    /// A packet for this transfer, in single-port mode.
    Packet(Vec<u8>),
}

/// How a transfer reaches its peer.
pub(crate) enum Link {
    /// Through a port of its own (RFC 1350 section 4).
    Own(UdpSocket),
    /// Through the listener's port; packets arrive as [`Mail::Packet`].
    Shared(Arc<UdpSocket>),
}

impl Link {
    fn socket(&self) -> &UdpSocket {
        match self {
            Self::Own(socket) => socket,
            Self::Shared(socket) => socket,
        }
    }

    async fn receive(&self, buffer: &mut [u8]) -> std::io::Result<(usize, SocketAddr)> {
        match self {
            Self::Own(socket) => socket.recv_from(buffer).await,
            Self::Shared(_) => std::future::pending().await,
        }
    }
}

/// One transfer and all it needs.
pub(crate) struct Session<S> {
    pub(crate) source: Arc<S>,
    pub(crate) config: Arc<TftpConfig>,
    pub(crate) counters: Arc<CounterSet>,
    pub(crate) peer: SocketAddr,
    pub(crate) request: FileRequest,
    pub(crate) link: Link,
    pub(crate) mailbox: mpsc::Receiver<Mail>,
    pub(crate) cancel: CancellationToken,
}

/// What ends a wait.
enum Next {
    Event(Event),
    End(Outcome),
    Nothing,
}

impl<S: TftpSource> Session<S> {
    /// Runs until the transfer ended. A request that was repeated while an abort was on its way is served again.
    pub(crate) async fn run(mut self) {
        loop {
            let outcome = self.serve().await;
            let mut is_asked_again = self.is_asked_again();
            if !is_asked_again {
                // From here on the listener starts a new transfer; what it handed over before counts still.
                self.mailbox.close();
                is_asked_again = self.is_asked_again();
            }
            if !(is_asked_again && matches!(outcome, Some(Outcome::Probed | Outcome::Aborted(_)))) {
                return;
            }
        }
    }

    /// Empties the mailbox; true when the last word in it was the same request once more.
    fn is_asked_again(&mut self) -> bool {
        let mut is_asked_again = false;
        while let Ok(mail) = self.mailbox.try_recv() {
            match mail {
                Mail::RequestRepeated => is_asked_again = true,
                Mail::Replaced => is_asked_again = false,
                Mail::Packet(_) => {}
            }
        }
        is_asked_again
    }

    /// Serves the request once; none when no transfer began.
    async fn serve(&mut self) -> Option<Outcome> {
        if self.request.mode != TransferMode::Octet {
            self.counters.increment("mode_refused");
            self.send_error(ErrorCode::Undefined, "only octet mode is served").await;
            return None;
        }
        let (name, content) = self.open().await?;
        let file_bytes = u64::try_from(content.len()).unwrap_or(u64::MAX);
        let agreed = Agreed::negotiate(&self.request.options, file_bytes, &self.config.limits);
        let mut transfer = Transfer::new(file_bytes, &agreed, self.config.rollover, self.config.timeouts_max);
        let begun = Instant::now();
        self.counters.increment("started");
        self.tell(
            &name,
            TransferEventKind::Started {
                file_bytes,
                block_bytes: agreed.block_bytes,
                window_blocks: agreed.window_blocks,
            },
        )
        .await;

        let outcome = self.transfer(&mut transfer, &agreed, &content).await;
        self.counters.increment(outcome.kind());
        let (duration, acked_bytes) = (begun.elapsed(), transfer.acked_bytes());
        if outcome.is_failure() {
            info!(peer = %self.peer, file.name = %name, ?outcome, acked_bytes, "TFTP transfer failed");
        } else {
            let duration_ms = duration.as_millis();
            debug!(peer = %self.peer, file.name = %name, ?outcome, acked_bytes, duration_ms, "TFTP transfer ended");
        }
        self.tell(
            &name,
            TransferEventKind::Finished {
                outcome,
                acked_bytes,
                duration,
            },
        )
        .await;
        Some(outcome)
    }

    /// The first candidate name that has content, else what the source takes the name for. Errors are answered here.
    async fn open(&self) -> Option<(FileName, TftpFile)> {
        let names = match FileName::candidates(&self.request.name) {
            Ok(names) => names,
            // Garbage where a name should be may still come from a loader that the source knows.
            Err(error @ (NameError::Characters | NameError::Empty)) => {
                if let Some(opened) = self.open_default(None).await {
                    return Some(opened);
                }
                self.refuse_name(&error).await;
                return None;
            }
            Err(error @ (NameError::Climbs | NameError::TooLong)) => {
                self.refuse_name(&error).await;
                return None;
            }
        };
        for name in &names {
            match self.source.open(name, self.peer).await {
                Ok(content) => {
                    if name.as_str().as_bytes().last() != self.request.name.last()
                        && self.counters.increment("name_trimmed")
                    {
                        info!(peer = %self.peer, file.name = %name, "TFTP name served without its trailing junk");
                    }
                    return Some((name.clone(), content));
                }
                Err(OpenError::NotFound) => {}
                Err(OpenError::Refused) => {
                    self.counters.increment("refused");
                    self.tell(name, TransferEventKind::Refused).await;
                    self.send_error(ErrorCode::AccessViolation, "not for this machine")
                        .await;
                    return None;
                }
                Err(OpenError::Unavailable(error)) => {
                    self.counters.increment("unavailable");
                    warn!(peer = %self.peer, file.name = %name, %error, "TFTP content cannot be read");
                    self.tell(name, TransferEventKind::Refused).await;
                    self.send_error(ErrorCode::Undefined, "the file cannot be read now")
                        .await;
                    return None;
                }
            }
        }
        if let Some(opened) = self.open_default(names.first()).await {
            return Some(opened);
        }
        self.counters.increment("not_found");
        if let Some(name) = names.first() {
            debug!(peer = %self.peer, file.name = %name, "TFTP name not found");
            self.tell(name, TransferEventKind::NotFound).await;
        }
        self.send_error(ErrorCode::NotFound, "file not found").await;
        None
    }

    async fn open_default(&self, name: Option<&FileName>) -> Option<(FileName, TftpFile)> {
        let (meant, content) = self.source.open_default(name, self.peer).await?;
        if self.counters.increment("name_guessed") {
            let asked = self.request.name.escape_ascii();
            info!(peer = %self.peer, file.asked = %asked, file.name = %meant, "TFTP name taken for what comes next");
        }
        Some((meant, content))
    }

    async fn refuse_name(&self, error: &NameError) {
        self.counters.increment(error.kind());
        let asked = self.request.name.escape_ascii();
        info!(peer = %self.peer, file.asked = %asked, %error, "TFTP name refused");
        self.send_error(ErrorCode::AccessViolation, "that name is not served")
            .await;
    }

    async fn transfer(&mut self, transfer: &mut Transfer, agreed: &Agreed, content: &TftpFile) -> Outcome {
        let end = Instant::now() + self.config.transfer_duration_max;
        let mut outbound = Vec::with_capacity(4 + usize::from(agreed.block_bytes));
        let mut inbound = [0; INBOUND_BYTES_MAX];
        let mut pace = Pace::new(self.config.retransmit_first, self.config.retransmit_max);
        let mut sent = Instant::now();
        let mut timer = end;
        let mut action = transfer.step(Event::Started);
        loop {
            match action {
                Action::Nothing => {}
                Action::Finish(outcome) => return outcome,
                Action::SendOptions => {
                    Packet::OptionAck(agreed.answer.clone().unwrap_or_default()).encode_into(&mut outbound);
                    self.send(&outbound).await;
                }
                Action::SendBlocks { first, count } => {
                    for block in first..first + count {
                        let payload = slice(content, transfer.block_range(block));
                        let block = transfer.wire_number(block);
                        Packet::Data { block, payload }.encode_into(&mut outbound);
                        self.send(&outbound).await;
                    }
                }
            }
            if action != Action::Nothing {
                sent = Instant::now();
                timer = sent + agreed.timeout.unwrap_or_else(|| pace.wait(transfer.timeouts()));
            }
            action = match self.next(&mut inbound, timer, end).await {
                Next::Event(event) => {
                    let was_sent_once = transfer.timeouts() == 0;
                    let action = transfer.step(event);
                    if was_sent_once && matches!((event, action), (Event::Acked(_), Action::SendBlocks { .. })) {
                        pace.measured(sent.elapsed());
                    }
                    action
                }
                Next::Nothing => Action::Nothing,
                Next::End(outcome) => return outcome,
            };
        }
    }

    async fn next(&mut self, inbound: &mut [u8], timer: Instant, end: Instant) -> Next {
        // In this order: an abort that arrived before a repeated request must be seen before it.
        let mail = tokio::select! {
            biased;
            () = self.cancel.cancelled() => {
                self.send_error(ErrorCode::Undefined, "the server stops").await;
                return Next::End(Outcome::Replaced);
            }
            received = self.link.receive(inbound) => match received {
                Ok((length, sender)) => return self.packet(&inbound[..length], sender).await,
                Err(error) => {
                    if self.counters.increment("receive_failed") {
                        warn!(%error, "TFTP receive failed; more are counted and not logged");
                    }
                    // The timer decides; receiving at once again might fail at once again.
                    tokio::time::sleep_until(timer).await;
                    return Next::Event(Event::TimedOut);
                }
            },
            mail = self.mailbox.recv(), if !self.mailbox.is_closed() => mail,
            () = tokio::time::sleep_until(timer.min(end)) => {
                return if timer < end { Next::Event(Event::TimedOut) } else { Next::End(Outcome::TooSlow) };
            }
        };
        match mail {
            Some(Mail::RequestRepeated) => Next::Event(Event::RequestRepeated),
            Some(Mail::Replaced) => Next::End(Outcome::Replaced),
            Some(Mail::Packet(bytes)) => self.packet(&bytes, self.peer).await,
            None => Next::Nothing,
        }
    }

    async fn packet(&self, bytes: &[u8], sender: SocketAddr) -> Next {
        if sender != self.peer {
            // RFC 1350 section 4: tell the stranger, and go on undisturbed.
            self.counters.increment("unknown_transfer");
            let packet = Packet::Error {
                code: ErrorCode::UnknownTransfer,
                message: b"unknown transfer",
            };
            self.send_to(&packet.encode(), sender).await;
            return Next::Nothing;
        }
        match Packet::decode(bytes) {
            Ok(Packet::Ack { block }) => Next::Event(Event::Acked(block)),
            Ok(Packet::Error { code, .. }) => Next::Event(Event::PeerError(code)),
            Ok(_) => {
                self.counters.increment("stray");
                Next::Nothing
            }
            Err(error) => {
                self.counters.increment(error.kind());
                Next::Nothing
            }
        }
    }

    async fn tell(&self, name: &FileName, kind: TransferEventKind) {
        self.source
            .event(TransferEvent {
                peer: self.peer,
                name: name.clone(),
                kind,
            })
            .await;
    }

    async fn send_error(&self, code: ErrorCode, message: &str) {
        self.send(
            &Packet::Error {
                code,
                message: message.as_bytes(),
            }
            .encode(),
        )
        .await;
    }

    async fn send(&self, bytes: &[u8]) {
        self.send_to(bytes, self.peer).await;
    }

    /// A packet that cannot be sent is a lost packet: the timer sends it again.
    async fn send_to(&self, bytes: &[u8], to: SocketAddr) {
        if let Err(error) = self.link.socket().send_to(bytes, to).await
            && self.counters.increment("send_failed")
        {
            warn!(peer = %to, %error, "TFTP send failed; more are counted and not logged");
        }
    }
}

fn slice(content: &TftpFile, range: std::ops::Range<u64>) -> &[u8] {
    let start = usize::try_from(range.start).unwrap_or(usize::MAX);
    let end = usize::try_from(range.end).unwrap_or(usize::MAX);
    content.get(start..end).unwrap_or_default()
}
