//! What a relay says of the machine behind it: option 82 (RFC 3046).
//!
//! Relays write what they like: names (`leaf1:Ethernet1/7`), or numbers of VLAN, module and port in bytes. Neither is
//! interpreted. What is visible ASCII is text, everything else is hexadecimal, so that two circuits never look alike.

/// Suboptions (RFC 3046 section 2.0).
const CIRCUIT_ID: u8 = 1;
const REMOTE_ID: u8 = 2;

/// A relay's word on where a request came from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RelayAgentInfo {
    /// Which of its circuits: a port, as text.
    pub circuit: Option<String>,
    /// Who the relay, or the modem behind it, is, as text.
    pub remote: Option<String>,
}

impl RelayAgentInfo {
    /// Reads the option's content. What does not fit its own length ends it: the option is evidence and nothing depends
    /// on it being whole.
    pub fn parse(content: &[u8]) -> Self {
        let mut info = Self::default();
        let mut rest = content;
        while let [code, length, tail @ ..] = rest {
            let Some((value, tail)) = tail.split_at_checked(usize::from(*length)) else {
                break;
            };
            match *code {
                CIRCUIT_ID => info.circuit = info.circuit.or_else(|| text(value)),
                REMOTE_ID => info.remote = info.remote.or_else(|| text(value)),
                _ => {}
            }
            rest = tail;
        }
        info
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    // Some relays end a name as C does.
    let name = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    if name.is_empty() {
        return None;
    }
    if name.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') {
        return Some(String::from_utf8_lossy(name).trim().to_owned()).filter(|text| !text.is_empty());
    }
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(pairs.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(circuit: Option<&str>, remote: Option<&str>) -> RelayAgentInfo {
        RelayAgentInfo {
            circuit: circuit.map(str::to_owned),
            remote: remote.map(str::to_owned),
        }
    }

    #[test]
    fn names_are_text_and_numbers_are_hexadecimal() {
        for (content, expected) in [
            (
                &b"\x01\x11leaf1:Ethernet1/7\x02\x05leaf1"[..],
                info(Some("leaf1:Ethernet1/7"), Some("leaf1")),
            ),
            (
                b"\x01\x06\x00\x04\x00\x0a\x01\x07",
                info(Some("00:04:00:0a:01:07"), None),
            ),
            (
                b"\x02\x08\x00\x06\x3c\xec\xef\x00\x00\x01",
                info(None, Some("00:06:3c:ec:ef:00:00:01")),
            ),
            (b"\x01\x05eth7\0", info(Some("eth7"), None)),
            (b"\x97\x01x\x01\x01a\x01\x01b", info(Some("a"), None)),
        ] {
            assert_eq!(RelayAgentInfo::parse(content), expected, "{content:02x?}");
        }
    }

    #[test]
    fn what_is_not_whole_says_nothing() {
        for content in [
            &b""[..],
            b"\x01",
            b"\x01\x05abc",
            b"\x01\x00",
            b"\x01\x01\x00",
            b"\x01\x02  ",
        ] {
            assert_eq!(RelayAgentInfo::parse(content), info(None, None), "{content:02x?}");
        }
        assert_eq!(RelayAgentInfo::parse(b"\x01\x01a\x02\xffb"), info(Some("a"), None));
    }
}
