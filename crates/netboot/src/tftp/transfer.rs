//! One transfer as a pure state: an event in, an action out.
//!
//! Idea: blocks are counted in 64 bits from the start of the file, and the 16 bits on the wire are only ever matched
//! against the few blocks under way. Content is read by offset (block × size), so sending a block again, or rewinding
//! a window, cannot send the wrong bytes.
//!
//! Invariants:
//! - a duplicate acknowledgement never makes a lock-step transfer send (the Sorcerer's Apprentice, RFC 1123 section
//!   4.2.3.1): only the timer does. With a window, a repeated acknowledgement is how a reader tells of a gap (RFC 7440
//!   section 4), so one rewind is allowed, and no other until a window passed without repeats; a stream of doubled
//!   acknowledgements therefore cannot double the data;
//! - what is ignored does not move the timer, so no sender can keep a dead transfer alive;
//! - the number of timeouts in a row is bounded.

use super::options::Agreed;
use super::packet::ErrorCode;

/// What follows block 65535 on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rollover {
    /// Block 0, as nearly all readers expect.
    #[default]
    Zero,
    /// Block 1, for the few that do not.
    One,
}

/// What happens to a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The request was accepted.
    Started,
    /// The peer acknowledged a block, by its number on the wire.
    Acked(u16),
    /// The peer broke off.
    PeerError(ErrorCode),
    /// The same request came again, from the same port.
    RequestRepeated,
    /// The time of [`Transfer::timeouts`] passed without progress.
    TimedOut,
}

/// What to do. Everything but [`Action::Nothing`] starts the timer anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing; the timer runs on.
    Nothing,
    /// Send the option acknowledgement.
    SendOptions,
    /// Send `count` blocks, the first of which is block `first`, counted from 1.
    SendBlocks {
        /// Number of the first block.
        first: u64,
        /// How many, at least 1.
        count: u64,
    },
    /// The transfer ended.
    Finish(Outcome),
}

/// How a transfer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Every block was acknowledged.
    Complete,
    /// The peer broke off at the option acknowledgement: it only wanted the size, or wants other options, and asks
    /// again. Normal for EDK II and for BIOS ROMs.
    Probed,
    /// The peer broke off.
    Aborted(ErrorCode),
    /// The peer fell silent.
    Silent,
    /// The whole time allowed for one transfer passed.
    TooSlow,
    /// The server stopped, or the peer began another request from the same port.
    Replaced,
}

impl Outcome {
    /// Every name that [`Outcome::kind`] gives.
    pub const KINDS: &'static [&'static str] = &["complete", "probed", "aborted", "silent", "too_slow", "replaced"];

    /// A stable name for counting and events.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Probed => "probed",
            Self::Aborted(_) => "aborted",
            Self::Silent => "silent",
            Self::TooSlow => "too_slow",
            Self::Replaced => "replaced",
        }
    }

    /// Whether somebody should be told. A probe, and a peer that went on to another request, are everyday.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Aborted(_) | Self::Silent | Self::TooSlow)
    }
}

/// The state of one transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    file_bytes: u64,
    block_bytes: u64,
    window_blocks: u64,
    has_size_asked: bool,
    rollover: Rollover,
    timeouts_max: u32,
    /// Timeouts since the last progress.
    timeouts: u32,
    /// The option acknowledgement is sent and waits for its ACK 0.
    is_awaiting_options: bool,
    /// Everything up to this block is acknowledged.
    acked: u64,
    /// Everything up to this block was sent.
    sent: u64,
    /// A repeated acknowledgement may rewind the window once.
    has_rewind_left: bool,
    /// A repeated acknowledgement was seen since the last progress.
    has_repeat_seen: bool,
}

impl Transfer {
    /// A transfer of `file_bytes` under `agreed`, that gives up at the `timeouts_max`-th timeout in a row after its
    /// first.
    pub fn new(file_bytes: u64, agreed: &Agreed, rollover: Rollover, timeouts_max: u32) -> Self {
        Self {
            file_bytes,
            block_bytes: u64::from(agreed.block_bytes.max(1)),
            window_blocks: u64::from(agreed.window_blocks.max(1)),
            has_size_asked: agreed.has_size_asked,
            rollover,
            timeouts_max,
            timeouts: 0,
            is_awaiting_options: agreed.answer.is_some(),
            acked: 0,
            sent: 0,
            has_rewind_left: true,
            has_repeat_seen: false,
        }
    }

    /// Timeouts since the last progress: the next wait is doubled as often.
    pub fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// Content that the peer confirmed, in bytes.
    pub fn acked_bytes(&self) -> u64 {
        self.acked.saturating_mul(self.block_bytes).min(self.file_bytes)
    }

    /// The last block: one more than the full ones, so that a size that divides evenly ends with an empty block.
    pub fn last_block(&self) -> u64 {
        self.file_bytes / self.block_bytes + 1
    }

    /// Where block `block` lies in the file, in bytes.
    pub fn block_range(&self, block: u64) -> std::ops::Range<u64> {
        let start = block
            .saturating_sub(1)
            .saturating_mul(self.block_bytes)
            .min(self.file_bytes);
        start..start.saturating_add(self.block_bytes).min(self.file_bytes)
    }

    /// The number of a block on the wire.
    pub fn wire_number(&self, block: u64) -> u16 {
        let number = match self.rollover {
            Rollover::Zero => block % 65536,
            Rollover::One if block == 0 => 0,
            Rollover::One => (block - 1) % 65535 + 1,
        };
        u16::try_from(number).unwrap_or(0)
    }

    /// Takes one event.
    pub fn step(&mut self, event: Event) -> Action {
        match event {
            Event::Started => self.send_again(),
            Event::Acked(number) => self.acked(number),
            Event::PeerError(code) => Action::Finish(self.peer_error(code)),
            // The answer to the first request was lost, or the request was doubled on its way.
            Event::RequestRepeated if self.acked == 0 => self.send_again(),
            Event::RequestRepeated => Action::Nothing,
            Event::TimedOut => {
                self.timeouts += 1;
                if self.timeouts > self.timeouts_max {
                    return Action::Finish(Outcome::Silent);
                }
                self.send_again()
            }
        }
    }

    fn peer_error(&self, code: ErrorCode) -> Outcome {
        // Before the first block, 8 (EDK II) means "not these options" or "I only wanted the size"; 0 (iPXE and BIOS
        // ROMs) means the latter where the size was asked for.
        match code {
            ErrorCode::OptionsRefused if self.is_awaiting_options => Outcome::Probed,
            ErrorCode::Undefined if self.is_awaiting_options && self.has_size_asked => Outcome::Probed,
            other => Outcome::Aborted(other),
        }
    }

    fn acked(&mut self, number: u16) -> Action {
        if self.is_awaiting_options {
            if number != 0 {
                return Action::Nothing;
            }
            self.is_awaiting_options = false;
            self.timeouts = 0;
            return self.send_window();
        }
        // The window is far smaller than 65535, so at most one block under way has this number.
        let Some(block) = (self.acked..=self.sent).find(|block| self.wire_number(*block) == number) else {
            return Action::Nothing;
        };
        if block == self.acked {
            return self.ack_repeated();
        }
        self.acked = block;
        self.timeouts = 0;
        if !self.has_repeat_seen {
            self.has_rewind_left = true;
        }
        self.has_repeat_seen = false;
        if block == self.last_block() {
            return Action::Finish(Outcome::Complete);
        }
        self.send_window()
    }

    fn ack_repeated(&mut self) -> Action {
        self.has_repeat_seen = true;
        if self.window_blocks == 1 || !self.has_rewind_left {
            return Action::Nothing;
        }
        self.has_rewind_left = false;
        self.send_window()
    }

    /// Sends what is due, without any progress.
    fn send_again(&mut self) -> Action {
        if self.is_awaiting_options {
            Action::SendOptions
        } else {
            self.send_window()
        }
    }

    /// Sends the window after the last acknowledged block, whatever was sent of it before.
    fn send_window(&mut self) -> Action {
        let first = self.acked + 1;
        self.sent = (self.acked + self.window_blocks).min(self.last_block());
        Action::SendBlocks {
            first,
            count: self.sent - self.acked,
        }
    }
}

#[cfg(test)]
#[path = "transfer_tests.rs"]
mod tests;
