//! The Ethernet address, the name by which most firmware introduces itself.

use std::fmt;
use std::str::FromStr;

/// A 48-bit Ethernet address. Displayed as lower-case hexadecimal with colons, the form used in URLs and in the API.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr([u8; 6]);

impl MacAddr {
    /// The address from its six octets, in the order they travel.
    pub const fn new(octets: [u8; 6]) -> Self {
        Self(octets)
    }

    /// The six octets, in the order they travel.
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }

    /// True for `00:00:00:00:00:00`, which names no machine.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 6]
    }

    /// True when the group bit is set: multicast and broadcast addresses, which no interface can own.
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl From<[u8; 6]> for MacAddr {
    fn from(octets: [u8; 6]) -> Self {
        Self(octets)
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(formatter, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// The text is not an Ethernet address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an Ethernet address: expected six pairs of hexadecimal digits, such as 52:54:00:aa:00:01")]
pub struct MacParseError;

impl FromStr for MacAddr {
    type Err = MacParseError;

    /// Accepts `52:54:00:aa:00:01`, `52-54-00-AA-00-01`, `5254.00aa.0001` and `525400aa0001`, in either case: these
    /// are what labels, switches and spreadsheets carry. Separators of two kinds in one text are refused.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let group_chars = match text.len() {
            12 => return Self::from_digits(text),
            14 => 4,
            17 => 2,
            _ => return Err(MacParseError),
        };
        let separators: &[char] = if group_chars == 4 { &['.'] } else { &[':', '-'] };
        let separator = text
            .chars()
            .nth(group_chars)
            .filter(|found| separators.contains(found))
            .ok_or(MacParseError)?;
        let groups: Vec<&str> = text.split(separator).collect();
        if groups.len() * group_chars != 12 || groups.iter().any(|group| group.len() != group_chars) {
            return Err(MacParseError);
        }
        Self::from_digits(&groups.concat())
    }
}

impl MacAddr {
    fn from_digits(digits: &str) -> Result<Self, MacParseError> {
        let mut octets = [0; 6];
        if digits.len() != 12 {
            return Err(MacParseError);
        }
        for (octet, pair) in octets.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16).ok_or(MacParseError)?;
            let low = char::from(pair[1]).to_digit(16).ok_or(MacParseError)?;
            *octet = u8::try_from(high * 16 + low).map_err(|_| MacParseError)?;
        }
        Ok(Self(octets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_usual_spelling_names_the_same_address() {
        for text in [
            "52:54:00:aa:00:01",
            "52-54-00-AA-00-01",
            "5254.00aa.0001",
            "525400AA0001",
        ] {
            assert_eq!(
                text.parse::<MacAddr>().unwrap().to_string(),
                "52:54:00:aa:00:01",
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "52:54:00:aa:00",
            "52:54:00:aa:00:0g",
            "52:54-00:aa:00:01",
            "+2:54:00:aa:00:01",
            "52:54:00:aa:00:01:02",
            "é2:54:00:aa:00:01",
            "525400aa00é",
            "5:254:00:aa:00:01",
        ] {
            assert!(text.parse::<MacAddr>().is_err(), "{text}");
        }
    }
}
