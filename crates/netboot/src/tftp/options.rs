//! Agreeing on sizes: RFC 2347 (options), 2348 (blksize), 2349 (tsize, timeout), 7440 (windowsize).
//!
//! Invariant: the answer holds only what was asked, understood and valid, in the client's spelling and order. A value
//! that makes no sense is treated as not asked: some firmware asks nonsense and then takes the defaults.

use std::time::Duration;

use super::packet::WireOption;

/// Block size without an option (RFC 1350).
pub const BLOCK_BYTES_DEFAULT: u16 = 512;
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 8..=65464;

/// What the server is willing to agree to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest block, in bytes, 8 to 65464. 1468 fills an Ethernet frame; more arrives in fragments, which firmware
    /// often loses.
    pub block_bytes_max: u16,
    /// Largest window, in blocks, 1 or more.
    pub window_blocks_max: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            block_bytes_max: 1468,
            window_blocks_max: 64,
        }
    }
}

/// What one transfer runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    /// Bytes a block.
    pub block_bytes: u16,
    /// Blocks sent before an acknowledgement is due.
    pub window_blocks: u16,
    /// Retransmission time the client asked for, 1 to 255 seconds.
    pub timeout: Option<Duration>,
    /// Whether the client asked for the size: mostly a probe that it then breaks off.
    pub has_size_asked: bool,
    /// The option acknowledgement; none when nothing was agreed and the first block is the answer.
    pub answer: Option<Vec<WireOption>>,
}

impl Default for Agreed {
    fn default() -> Self {
        Self {
            block_bytes: BLOCK_BYTES_DEFAULT,
            window_blocks: 1,
            timeout: None,
            has_size_asked: false,
            answer: None,
        }
    }
}

impl Agreed {
    /// Answers `asked` for a file of `file_bytes`.
    pub fn negotiate(asked: &[WireOption], file_bytes: u64, limits: &Limits) -> Self {
        let mut agreed = Self::default();
        let mut answer: Vec<WireOption> = Vec::new();
        for option in asked {
            // Asked twice: the first counts (RFC 2347 forbids it).
            if answer
                .iter()
                .any(|earlier| earlier.name.eq_ignore_ascii_case(&option.name))
            {
                continue;
            }
            let Some(value) = decimal(&option.value) else { continue };
            if let Some(value) = agreed.take(&option.name, value, file_bytes, limits) {
                answer.push(WireOption {
                    name: option.name.clone(),
                    value: value.to_string().into_bytes(),
                });
            }
        }
        agreed.answer = Some(answer).filter(|answer| !answer.is_empty());
        agreed
    }

    /// Takes one option over; gives the value to answer with, or none when it is not understood or not valid.
    fn take(&mut self, name: &[u8], value: u64, file_bytes: u64, limits: &Limits) -> Option<u64> {
        if name.eq_ignore_ascii_case(b"blksize") && BLOCK_BYTES.contains(&value) {
            self.block_bytes = u16::try_from(value)
                .unwrap_or(u16::MAX)
                .min(limits.block_bytes_max.max(8));
            Some(self.block_bytes.into())
        } else if name.eq_ignore_ascii_case(b"windowsize") && (1..=65535).contains(&value) {
            self.window_blocks = u16::try_from(value)
                .unwrap_or(u16::MAX)
                .min(limits.window_blocks_max.max(1));
            Some(self.window_blocks.into())
        } else if name.eq_ignore_ascii_case(b"timeout") && (1..=255).contains(&value) {
            self.timeout = Some(Duration::from_secs(value));
            Some(value)
        } else if name.eq_ignore_ascii_case(b"tsize") {
            self.has_size_asked = true;
            Some(file_bytes)
        } else {
            None
        }
    }
}

/// Decimal digits and nothing else: no sign, no space. Numbers that do not fit are nonsense too.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiate(asked: &[(&str, &str)]) -> (Agreed, Vec<(String, String)>) {
        let option = |(name, value): &(&str, &str)| WireOption {
            name: (*name).into(),
            value: (*value).into(),
        };
        let asked: Vec<WireOption> = asked.iter().map(option).collect();
        let agreed = Agreed::negotiate(&asked, 12345, &Limits::default());
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let answer = agreed
            .answer
            .iter()
            .flatten()
            .map(|option| (text(&option.name), text(&option.value)))
            .collect();
        (agreed, answer)
    }

    #[test]
    fn block_sizes_are_capped_and_nonsense_is_ignored() {
        for (asked, answered) in [
            ("8", "8"),
            ("512", "512"),
            ("1024", "1024"),
            ("1468", "1468"),
            ("1500", "1468"),
            ("65464", "1468"),
        ] {
            assert_eq!(
                negotiate(&[("blksize", asked)]).1,
                [("blksize".to_owned(), answered.to_owned())]
            );
        }
        for asked in [
            "0",
            "7",
            "65465",
            "65536",
            "99999999999",
            "99999999999999999999999",
            "-1",
            "1468 ",
            "+512",
            "",
        ] {
            let (agreed, answer) = negotiate(&[("blksize", asked)]);
            assert_eq!(
                (agreed.block_bytes, agreed.answer, answer.len()),
                (512, None, 0),
                "{asked:?}"
            );
        }
    }

    #[test]
    fn only_what_was_asked_and_understood_comes_back_in_the_same_spelling() {
        let (agreed, answer) = negotiate(&[
            ("TSize", "0"),
            ("foo", "bar"),
            ("multicast", ""),
            ("BLKSIZE", "1024"),
            ("blksize", "512"),
            ("timeout", "0"),
            ("windowsize", "16"),
        ]);
        let expected = [("TSize", "12345"), ("BLKSIZE", "1024"), ("windowsize", "16")];
        assert_eq!(
            answer,
            expected.map(|(name, value)| (name.to_owned(), value.to_owned()))
        );
        assert!(agreed.has_size_asked);
        assert_eq!(
            (agreed.block_bytes, agreed.window_blocks, agreed.timeout),
            (1024, 16, None)
        );
    }

    #[test]
    fn windows_and_timeouts_stay_in_their_ranges() {
        assert_eq!(negotiate(&[("windowsize", "65535")]).0.window_blocks, 64);
        assert_eq!(negotiate(&[("windowsize", "0")]).0.answer, None);
        assert_eq!(negotiate(&[("timeout", "3")]).0.timeout, Some(Duration::from_secs(3)));
        assert_eq!(negotiate(&[("timeout", "256")]).0.answer, None);
    }
}
