//! PAX extended headers (POSIX.1-2017, "pax Extended Header").

/// Records of one extended header, in order. Later ones win.
pub(crate) type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// Parses `length key=value\n` records. The length counts the whole record, so a value may hold line feeds.
pub(crate) fn parse(mut bytes: &[u8]) -> Result<Records, String> {
    let mut records = Records::new();
    while !bytes.is_empty() {
        let space = bytes
            .iter()
            .take(20)
            .position(|&byte| byte == b' ')
            .ok_or("a PAX record starts with no length")?;
        let length: usize = std::str::from_utf8(&bytes[..space])
            .ok()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|text| text.parse().ok())
            .ok_or("the length of a PAX record is no number")?;
        if length <= space + 1 || length > bytes.len() || bytes[length - 1] != b'\n' {
            return Err(format!(
                "a PAX record says {length} bytes; {} are left, and it must end with a line feed",
                bytes.len()
            ));
        }
        let record = &bytes[space + 1..length - 1];
        let equals = record
            .iter()
            .position(|&byte| byte == b'=')
            .ok_or("a PAX record has no '='")?;
        records.push((record[..equals].to_vec(), record[equals + 1..].to_vec()));
        bytes = &bytes[length..];
    }
    Ok(records)
}

/// The last value of a key. An empty one takes back what a header before it said.
pub(crate) fn value<'a>(records: &'a Records, key: &str) -> Option<&'a [u8]> {
    records
        .iter()
        .rev()
        .find(|(name, _)| name == key.as_bytes())
        .map(|(_, value)| value.as_slice())
        .filter(|value| !value.is_empty())
}

/// A decimal number.
pub(crate) fn number(records: &Records, key: &str) -> Result<Option<u64>, String> {
    let Some(value) = value(records, key) else {
        return Ok(None);
    };
    decimal(value)
        .map(Some)
        .ok_or_else(|| format!("PAX record {key} holds {:?}; expected a number", lossy(value)))
}

/// Digits and nothing else.
pub(crate) fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A time: seconds since 1970 with an optional fraction, perhaps negative.
pub(crate) fn time(value: &[u8]) -> Option<super::Time> {
    let text = std::str::from_utf8(value).ok()?;
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds = i64::try_from(decimal(whole.as_bytes())?).ok()?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let nanoseconds: u32 = digits.parse().ok()?;
    Some(match (negative, nanoseconds) {
        (false, _) => super::Time { seconds, nanoseconds },
        (true, 0) => super::Time {
            seconds: -seconds,
            nanoseconds,
        },
        (true, _) => super::Time {
            seconds: -seconds - 1,
            nanoseconds: 1_000_000_000 - nanoseconds,
        },
    })
}

pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::Time;
    use super::*;

    #[test]
    fn values_are_bytes_and_may_hold_line_feeds() {
        let records = parse(b"31 SCHILY.xattr.user.a=b=\n\0\ncd\n12 path=xyz\n").unwrap();
        assert_eq!(value(&records, "SCHILY.xattr.user.a"), Some(b"b=\n\0\ncd".as_slice()));
        assert_eq!(value(&records, "path"), Some(b"xyz".as_slice()));
    }

    #[test]
    fn broken_records_are_refused() {
        for bytes in [
            "8 path=x\n",
            "99999999999999999999 path=x\n",
            "400 path=x\n",
            "-9 path=x\n",
            "11 path=xy",
            "3 \n",
            "7 path\n",
            "path=x\n",
        ] {
            assert!(parse(bytes.as_bytes()).is_err(), "{bytes:?}");
        }
        assert!(number(&parse(b"12 size=1xy\n").unwrap(), "size").is_err());
    }

    #[test]
    fn times_keep_nanoseconds_before_and_after_1970() {
        let cases = [
            ("1700000000", Some((1_700_000_000, 0))),
            ("1700000000.25", Some((1_700_000_000, 250_000_000))),
            ("1.1234567891", Some((1, 123_456_789))),
            ("-1.25", Some((-2, 750_000_000))),
            ("1e5", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let expected = expected.map(|(seconds, nanoseconds)| Time { seconds, nanoseconds });
            assert_eq!(time(text.as_bytes()), expected, "{text}");
        }
    }
}
