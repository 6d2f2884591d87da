//! One reading client as a pure state: a packet in, a packet to send or an end out.
//!
//! Idea: RFC 1350 with the options of RFC 2347, 2348, 2349 (`tsize`) and 7440, as careful firmware does it. It has a
//! codec of its own: a load that read and wrote with the code under test would agree with its mistakes.
//!
//! Invariants: every block is compared with the file it must come from, byte by byte, at its own offset; blocks are
//! counted in 64 bits and only matched with the 16 bits on the wire, so a file may roll over. What a server sends beyond
//! what was asked ends the transfer as failed.

use std::sync::Arc;

const OPCODE_DATA: u16 = 3;
const OPCODE_ACK: u16 = 4;
const OPCODE_ERROR: u16 = 5;
const OPCODE_OPTION_ACK: u16 = 6;
/// Block size without an option (RFC 1350).
const BLOCK_BYTES_DEFAULT: u16 = 512;

/// What every client of a load asks for.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The file's name.
    pub name: String,
    /// What the file holds.
    pub content: Arc<[u8]>,
    /// `blksize`, 8 to 65464 bytes.
    pub block_bytes: u16,
    /// `windowsize`, 1 or more; not asked for when 1.
    pub window_blocks: u16,
}

/// What follows from a packet or a timeout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing, and the timer runs on.
    Nothing,
    /// A block came that needs no answer yet: the timer starts anew.
    Progress,
    /// Send what is in the buffer; the timer starts anew.
    Send,
    /// Send what is in the buffer; the file is complete and was right.
    Complete,
    /// The transfer failed.
    Failed(String),
}

/// What happened to a client on its way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Blocks that it had already.
    pub duplicates: u64,
    /// Blocks that came before one that is missing.
    pub gaps: u64,
    /// Timeouts of its own.
    pub timeouts: u64,
}

/// One transfer.
#[derive(Debug)]
pub struct Client {
    ask: Arc<Ask>,
    is_answered: bool,
    block_bytes: u16,
    window_blocks: u16,
    /// The block due next, counted from 1.
    next: u64,
    /// Blocks since the last acknowledgement.
    in_window: u16,
    /// The gap under way was told of.
    is_gap_told: bool,
    timeouts_in_row: u32,
    timeouts_max: u32,
    counts: Counts,
}

impl Client {
    /// A client that gives up at the timeout after `timeouts_max` in a row.
    pub fn new(ask: Arc<Ask>, timeouts_max: u32) -> Self {
        Self {
            ask,
            is_answered: false,
            block_bytes: BLOCK_BYTES_DEFAULT,
            window_blocks: 1,
            next: 1,
            in_window: 0,
            is_gap_told: false,
            timeouts_in_row: 0,
            timeouts_max,
            counts: Counts::default(),
        }
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Writes the request into `out`.
    pub fn request(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&[0, 1]);
        let mut text = |text: &str| {
            out.extend_from_slice(text.as_bytes());
            out.push(0);
        };
        text(&self.ask.name);
        text("octet");
        text("tsize");
        text("0");
        text("blksize");
        text(&self.ask.block_bytes.to_string());
        if self.ask.window_blocks > 1 {
            text("windowsize");
            text(&self.ask.window_blocks.to_string());
        }
    }

    /// Takes a packet from the server; what it answers is in `out`.
    pub fn packet(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Step {
        let [high, low, rest @ ..] = bytes else {
            return Step::Failed("a packet without an opcode".to_owned());
        };
        match (u16::from_be_bytes([*high, *low]), rest) {
            (OPCODE_DATA, [high, low, payload @ ..]) => self.data(u16::from_be_bytes([*high, *low]), payload, out),
            (OPCODE_OPTION_ACK, options) => self.options(options, out),
            (OPCODE_ERROR, [high, low, message @ ..]) => {
                let code = u16::from_be_bytes([*high, *low]);
                let message = message.split(|byte| *byte == 0).next().unwrap_or_default();
                Step::Failed(format!("error {code} {}", String::from_utf8_lossy(message)))
            }
            (opcode, _) => Step::Failed(format!("a packet of opcode {opcode}, {} bytes", bytes.len())),
        }
    }

    /// The timer ran out; what is sent again is in `out`.
    pub fn timed_out(&mut self, out: &mut Vec<u8>) -> Step {
        self.timeouts_in_row += 1;
        if self.timeouts_in_row > self.timeouts_max {
            return Step::Failed("the server fell silent".to_owned());
        }
        self.counts.timeouts += 1;
        if self.is_answered {
            self.is_gap_told = false;
            self.acknowledge(out);
        } else {
            self.request(out);
        }
        Step::Send
    }

    fn data(&mut self, number: u16, payload: &[u8], out: &mut Vec<u8>) -> Step {
        // Without an option acknowledgement, the first block is the answer, and the defaults hold.
        self.is_answered = true;
        if payload.len() > usize::from(self.block_bytes) {
            return Step::Failed(format!(
                "a block of {} bytes, agreed {}",
                payload.len(),
                self.block_bytes
            ));
        }
        let behind = wire_number(self.next).wrapping_sub(number);
        match behind {
            0 => self.block(payload, out),
            1..0x8000 => {
                self.counts.duplicates += 1;
                // Lock-step acknowledges whatever comes; in a window, only its end says that an acknowledgement was lost.
                if self.window_blocks == 1 || behind == 1 {
                    self.acknowledge(out);
                    return Step::Send;
                }
                Step::Nothing
            }
            _ => {
                self.counts.gaps += 1;
                if self.is_gap_told {
                    return Step::Nothing;
                }
                self.is_gap_told = true;
                self.acknowledge(out);
                Step::Send
            }
        }
    }

    fn block(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Step {
        let content = &self.ask.content;
        let start = usize::try_from((self.next - 1).saturating_mul(self.block_bytes.into())).unwrap_or(usize::MAX);
        let end = start.saturating_add(self.block_bytes.into()).min(content.len());
        if content.get(start..end) != Some(payload) {
            return Step::Failed(format!("block {} differs from the file", self.next));
        }
        self.next += 1;
        self.timeouts_in_row = 0;
        self.is_gap_told = false;
        self.in_window += 1;
        if payload.len() < usize::from(self.block_bytes) {
            self.acknowledge(out);
            Step::Complete
        } else if self.in_window >= self.window_blocks {
            self.acknowledge(out);
            Step::Send
        } else {
            Step::Progress
        }
    }

    fn options(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Step {
        if self.next > 1 {
            return Step::Nothing;
        }
        let text = String::from_utf8_lossy(bytes);
        let words: Vec<&str> = text.split_terminator('\0').collect();
        for pair in words.chunks(2) {
            let [name, value] = pair else {
                return Step::Failed("an option without a value".to_owned());
            };
            let Ok(value) = value.parse::<usize>() else {
                return Step::Failed(format!("option {name} has the value {value}"));
            };
            let number = u16::try_from(value).unwrap_or(u16::MAX);
            match name.to_ascii_lowercase().as_str() {
                "blksize" if (8..=self.ask.block_bytes).contains(&number) => self.block_bytes = number,
                "windowsize" if (1..=self.ask.window_blocks).contains(&number) => self.window_blocks = number,
                "tsize" if value == self.ask.content.len() => {}
                _ => return Step::Failed(format!("option {name} has the value {value}, which nobody asked for")),
            }
        }
        self.is_answered = true;
        self.timeouts_in_row = 0;
        self.acknowledge(out);
        Step::Send
    }

    /// Acknowledges everything up to the block before the next.
    fn acknowledge(&mut self, out: &mut Vec<u8>) {
        self.in_window = 0;
        out.clear();
        out.extend_from_slice(&OPCODE_ACK.to_be_bytes());
        out.extend_from_slice(&wire_number(self.next - 1).to_be_bytes());
    }
}

/// The 16 bits of a block's number; zero follows 65535.
fn wire_number(block: u64) -> u16 {
    u16::try_from(block % 65536).unwrap_or(0)
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
