//! The `Range` header (RFC 9110, section 14): one byte range, or the whole.

use std::ops::Range;

/// What to answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// 200 with everything: no range, several, or one that is not understood (32-bit loaders send nonsense).
    Whole,
    /// 206 with these bytes.
    Part(Range<u64>),
    /// 416: understood, and outside.
    Outside,
}

/// Decides for a resource of `size` bytes.
#[must_use]
pub fn answer(header: Option<&str>, size: u64) -> Answer {
    let Some(spec) = header.and_then(|value| value.trim().strip_prefix("bytes=")) else {
        return Answer::Whole;
    };
    let Some((first, last)) = spec.split_once('-') else {
        return Answer::Whole;
    };
    let (first, last) = (first.trim(), last.trim());
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if !digits(first) || !digits(last) || (first.is_empty() && last.is_empty()) {
        return Answer::Whole;
    }
    if first.is_empty() {
        // The last bytes; more than there are means all.
        return match last.parse::<u64>().unwrap_or(u64::MAX) {
            0 => Answer::Outside,
            _ if size == 0 => Answer::Outside,
            count => Answer::Part(size - count.min(size)..size),
        };
    }
    let first = first.parse::<u64>().unwrap_or(u64::MAX);
    let end = if last.is_empty() {
        u64::MAX
    } else {
        last.parse::<u64>().unwrap_or(u64::MAX).saturating_add(1)
    };
    if end <= first && !last.is_empty() {
        return Answer::Whole;
    }
    if first >= size {
        Answer::Outside
    } else {
        Answer::Part(first..end.min(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE_GB: u64 = 5_000_000_000;

    fn check(cases: &[(Option<&str>, u64, Answer)]) {
        for (header, size, expected) in cases {
            assert_eq!(answer(*header, *size), *expected, "{header:?}");
        }
    }

    /// aws/eks-anywhere#10484, bootimus#140: a BMC's virtual media read one range at a time, past 4 GiB too.
    #[test]
    fn eks_anywhere_10484_one_range_is_a_part() {
        check(&[
            (None, 10, Answer::Whole),
            (Some("bytes=0-1023"), 5000, Answer::Part(0..1024)),
            (Some("bytes=0-1023"), 500, Answer::Part(0..500)),
            (Some("bytes=0-0"), 10, Answer::Part(0..1)),
            (Some("bytes=-5"), 10, Answer::Part(5..10)),
            (Some("bytes=-50"), 10, Answer::Part(0..10)),
            (Some("bytes=4-"), 10, Answer::Part(4..10)),
            (
                Some("bytes=4294967296-4294967299"),
                WHOLE_GB,
                Answer::Part(4_294_967_296..4_294_967_300),
            ),
            (
                Some("bytes=4294967296-"),
                WHOLE_GB,
                Answer::Part(4_294_967_296..WHOLE_GB),
            ),
            (
                Some("bytes=-4294967297"),
                WHOLE_GB,
                Answer::Part(WHOLE_GB - 4_294_967_297..WHOLE_GB),
            ),
        ]);
    }

    /// ipxe/ipxe#767: 32-bit iPXE sends nonsense, and gets everything.
    #[test]
    fn ipxe_767_a_range_that_makes_no_sense_is_not_asked() {
        for nonsense in [
            "bytes=u-u",
            "bytes=",
            "bytes=-",
            "bytes=5",
            "bytes=5-4",
            "bytes=-5-",
            "bytes=0x0-0x10",
            "bytes=0-1,3-4",
            "lines=0-1",
            "0-1",
            "",
        ] {
            assert_eq!(answer(Some(nonsense), 10), Answer::Whole, "{nonsense:?}");
        }
    }

    /// PyPXE#205: what is understood and lies outside is refused.
    #[test]
    fn pypxe_205_a_start_past_the_end_is_outside() {
        check(&[
            (Some("bytes=10-"), 10, Answer::Outside),
            (Some("bytes=10-20"), 10, Answer::Outside),
            (Some("bytes=-0"), 10, Answer::Outside),
            (Some("bytes=0-"), 0, Answer::Outside),
            (Some("bytes=99999999999999999999-"), 10, Answer::Outside),
        ]);
    }
}
