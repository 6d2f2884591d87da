//! One request from its arrival to its last word: what may wait for the content's source and for whoever is told. The
//! packets between are [`super::pump`]'s.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::exchange::{Ended, Exchange, Link, Times, Word};
use super::names::{FileName, NameError};
use super::options::Agreed;
use super::packet::{ErrorCode, FileRequest, TransferMode};
use super::pump::Pumps;
use super::server::TftpConfig;
use super::source::{OpenError, TftpFile, TftpSource, TransferEvent, TransferEventKind};
use super::transfer::{Outcome, Transfer};

/// One transfer and all it needs.
pub(crate) struct Session<S> {
    pub(crate) source: Arc<S>,
    pub(crate) config: Arc<TftpConfig>,
    pub(crate) pumps: Arc<Pumps>,
    pub(crate) request: FileRequest,
    pub(crate) link: Link,
    pub(crate) mailbox: mpsc::Receiver<Word>,
    pub(crate) cancel: CancellationToken,
    /// The request came again when the exchange had ended.
    pub(crate) is_repeat_unheard: bool,
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
        let mut is_asked_again = std::mem::take(&mut self.is_repeat_unheard);
        while let Ok(word) = self.mailbox.try_recv() {
            match word {
                Word::RequestRepeated => is_asked_again = true,
                Word::Replaced | Word::Stop => is_asked_again = false,
                Word::Packet(_) => {}
            }
        }
        is_asked_again
    }

    /// Serves the request once; none when no transfer began.
    async fn serve(&mut self) -> Option<Outcome> {
        if self.request.mode != TransferMode::Octet {
            self.link.counters.increment("mode_refused");
            self.link.send_error(ErrorCode::Undefined, "only octet mode is served");
            return None;
        }
        let (name, content) = self.open().await?;
        let file_bytes = u64::try_from(content.len()).unwrap_or(u64::MAX);
        let agreed = Agreed::negotiate(&self.request.options, file_bytes, &self.config.limits);
        let transfer = Transfer::new(file_bytes, &agreed, self.config.rollover, self.config.timeouts_max);
        let begun = Instant::now();
        self.link.counters.increment("started");
        self.tell(
            &name,
            TransferEventKind::Started {
                file_bytes,
                block_bytes: agreed.block_bytes,
                window_blocks: agreed.window_blocks,
            },
        )
        .await;

        let Ended {
            outcome, acked_bytes, ..
        } = self.exchange(transfer, agreed, content).await;
        self.link.counters.increment(outcome.kind());
        let duration = begun.elapsed();
        if outcome.is_failure() {
            info!(peer = %self.link.peer, file.name = %name, ?outcome, acked_bytes, "TFTP transfer failed");
        } else {
            let duration_ms = duration.as_millis();
            debug!(peer = %self.link.peer, file.name = %name, ?outcome, acked_bytes, duration_ms, "TFTP transfer ended");
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
            match self.source.open(name, self.link.peer).await {
                Ok(content) => {
                    if name.as_str().as_bytes().last() != self.request.name.last()
                        && self.link.counters.increment("name_trimmed")
                    {
                        info!(peer = %self.link.peer, file.name = %name, "TFTP name served without its trailing junk");
                    }
                    return Some((name.clone(), content));
                }
                Err(OpenError::NotFound) => {}
                Err(OpenError::Refused) => {
                    self.link.counters.increment("refused");
                    self.tell(name, TransferEventKind::Refused).await;
                    self.link.send_error(ErrorCode::AccessViolation, "not for this machine");
                    return None;
                }
                Err(OpenError::Unavailable(error)) => {
                    self.link.counters.increment("unavailable");
                    warn!(peer = %self.link.peer, file.name = %name, %error, "TFTP content cannot be read");
                    self.tell(name, TransferEventKind::Refused).await;
                    self.link
                        .send_error(ErrorCode::Undefined, "the file cannot be read now");
                    return None;
                }
            }
        }
        if let Some(opened) = self.open_default(names.first()).await {
            return Some(opened);
        }
        self.link.counters.increment("not_found");
        if let Some(name) = names.first() {
            debug!(peer = %self.link.peer, file.name = %name, "TFTP name not found");
            self.tell(name, TransferEventKind::NotFound).await;
        }
        self.link.send_error(ErrorCode::NotFound, "file not found");
        None
    }

    async fn open_default(&self, name: Option<&FileName>) -> Option<(FileName, TftpFile)> {
        let (meant, content) = self.source.open_default(name, self.link.peer).await?;
        if self.link.counters.increment("name_guessed") {
            let asked = self.request.name.escape_ascii();
            info!(peer = %self.link.peer, file.asked = %asked, file.name = %meant, "TFTP name taken for what comes next");
        }
        Some((meant, content))
    }

    async fn refuse_name(&self, error: &NameError) {
        self.link.counters.increment(error.kind());
        let asked = self.request.name.escape_ascii();
        info!(peer = %self.link.peer, file.asked = %asked, %error, "TFTP name refused");
        self.link
            .send_error(ErrorCode::AccessViolation, "that name is not served");
    }

    /// Has the blocks moved, and passes on what the listener says meanwhile.
    async fn exchange(&mut self, transfer: Transfer, agreed: Agreed, content: TftpFile) -> Ended {
        let times = Times {
            retransmit_first: self.config.retransmit_first,
            retransmit_max: self.config.retransmit_max,
            duration_max: self.config.transfer_duration_max,
        };
        let (exchange, mut ended) = Exchange::new(self.link.clone(), transfer, agreed, content, times);
        let id = self.pumps.begin(exchange).await;
        let mut is_stopping = false;
        let (mut words_said, mut is_last_repeat) = (0, false);
        loop {
            let word = tokio::select! {
                biased;
                ended = &mut ended => {
                    // An end that is not told: its socket could not be watched, so nothing was heard of the peer.
                    let ended = ended.unwrap_or(Ended { outcome: Outcome::Silent, acked_bytes: 0, words_heard: words_said });
                    self.is_repeat_unheard = is_last_repeat && ended.words_heard < words_said;
                    return ended;
                }
                () = self.cancel.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    Word::Stop
                }
                word = self.mailbox.recv(), if !self.mailbox.is_closed() => match word {
                    Some(word) => word,
                    None => continue,
                },
            };
            words_said += 1;
            is_last_repeat = matches!(word, Word::RequestRepeated);
            self.pumps.say(id, word).await;
        }
    }

    async fn tell(&self, name: &FileName, kind: TransferEventKind) {
        self.source
            .event(TransferEvent {
                peer: self.link.peer,
                name: name.clone(),
                kind,
            })
            .await;
    }
}
