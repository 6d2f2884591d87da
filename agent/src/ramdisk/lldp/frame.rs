//! What a switch says of itself, read from one Ethernet frame (IEEE 802.1AB-2016).
//!
//! A frame is from the network and may be anything: whatever is not whole, or names no chassis and port, is an error
//! with its reason. Text is kept as far as it is visible; nothing is longer than the standard lets it be.

use protocol::latest::Neighbour;

/// The protocol's number.
pub const ETHERTYPE: u16 = 0x88cc;
/// Longest text of a value, in bytes (IEEE 802.1AB-2016, 8.5).
const TEXT_BYTES_MAX: usize = 255;
/// More values than switches send.
const VALUES_MAX: usize = 128;

/// Why a frame says nothing of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Another protocol.
    #[error("not LLDP")]
    OtherProtocol,
    /// It ends in the middle of a value.
    #[error("cut off")]
    Truncated,
    /// The first three values are not chassis, port and time to live.
    #[error("no chassis id, port id and time to live at its beginning")]
    Order,
    /// A chassis or port without a name.
    #[error("an empty chassis id or port id")]
    Empty,
    /// The switch says goodbye (time to live 0).
    #[error("the neighbour is shutting down")]
    Shutdown,
}

/// Reads a frame from its destination address on, as a raw socket gives it.
///
/// # Errors
/// [`FrameError`].
pub fn parse(frame: &[u8]) -> Result<Neighbour, FrameError> {
    // Destination, source, type.
    let (header, data) = frame.split_at_checked(14).ok_or(FrameError::OtherProtocol)?;
    if header[12..] != ETHERTYPE.to_be_bytes() {
        return Err(FrameError::OtherProtocol);
    }
    let mut values = Values { rest: data };
    let mut needed = |kind| match values.next() {
        Some(Ok((found, value))) if found == kind => Ok(value),
        Some(Err(error)) => Err(error),
        _ => Err(FrameError::Order),
    };
    let chassis = chassis_id(needed(1)?).ok_or(FrameError::Empty)?;
    let port = port_id(needed(2)?).ok_or(FrameError::Empty)?;
    match needed(3)? {
        [0, 0] => return Err(FrameError::Shutdown),
        [_, _] => {}
        _ => return Err(FrameError::Order),
    }
    let mut neighbour = Neighbour {
        chassis,
        port,
        ..Neighbour::default()
    };
    for value in values.take(VALUES_MAX) {
        match value? {
            (0, _) => break,
            (4, value) => neighbour.port_description = text(value),
            (5, value) => neighbour.system_name = text(value),
            _ => {}
        }
    }
    Ok(neighbour)
}

/// Where a frame comes from.
#[must_use]
pub fn source(frame: &[u8]) -> Option<String> {
    Some(colons(frame.get(6..12)?))
}

/// Values: 7 bits of type, 9 bits of length (8.4).
struct Values<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Values<'a> {
    type Item = Result<(u8, &'a [u8]), FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        let [first, second, tail @ ..] = self.rest else {
            let is_over = self.rest.is_empty();
            self.rest = &[];
            return (!is_over).then_some(Err(FrameError::Truncated));
        };
        let length = usize::from(first & 1) << 8 | usize::from(*second);
        let Some((value, tail)) = tail.split_at_checked(length) else {
            self.rest = &[];
            return Some(Err(FrameError::Truncated));
        };
        self.rest = tail;
        Some(Ok((first >> 1, value)))
    }
}

/// Table 8-2: 4 is a MAC, 5 an address; all others are text.
fn chassis_id(value: &[u8]) -> Option<String> {
    id(value, 4, 5)
}

/// Table 8-3: 3 is a MAC, 4 an address; all others are text.
fn port_id(value: &[u8]) -> Option<String> {
    id(value, 3, 4)
}

fn id(value: &[u8], mac: u8, address: u8) -> Option<String> {
    let (kind, value) = value.split_first()?;
    match (*kind, value) {
        (kind, [_, _, _, _, _, _]) if kind == mac => Some(colons(value)),
        // IANA's number of the family, then the address.
        (kind, [1, a, b, c, d]) if kind == address => Some(std::net::Ipv4Addr::new(*a, *b, *c, *d).to_string()),
        (_, []) => None,
        (kind, _) if kind == mac || kind == address => Some(colons(value.get(..TEXT_BYTES_MAX).unwrap_or(value))),
        _ => text(value),
    }
}

fn colons(bytes: &[u8]) -> String {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    pairs.join(":")
}

/// The visible part of a text; `None` when nothing is.
fn text(value: &[u8]) -> Option<String> {
    let value = value.get(..TEXT_BYTES_MAX).unwrap_or(value);
    let text: String = String::from_utf8_lossy(value)
        .chars()
        .filter(|c| !c.is_control() && *c != '\u{fffd}')
        .collect();
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame as `tcpdump -xx` prints it: offsets and pairs of bytes; lines that begin with `#` are for people.
    fn frame(text: &str) -> Vec<u8> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let words = lines.flat_map(|line| line.split_once(':').map_or(line, |(_, words)| words).split_whitespace());
        hex::decode(words.collect::<String>()).unwrap()
    }

    fn eos() -> Vec<u8> {
        frame(include_str!("../../../tests/fixtures/lldp/mac-chassis.txt"))
    }

    fn sonic() -> Vec<u8> {
        frame(include_str!("../../../tests/fixtures/lldp/local-port.txt"))
    }

    fn nameless() -> Vec<u8> {
        frame(include_str!("../../../tests/fixtures/lldp/mac-port.txt"))
    }

    #[test]
    fn a_switch_is_known_by_its_name_and_a_port_as_the_switch_names_it() {
        let heard = parse(&eos()).unwrap();
        assert_eq!(heard.chassis, "00:1c:73:0c:a1:5b");
        assert_eq!(heard.system_name.as_deref(), Some("leaf1.gpu.example.org"));
        assert_eq!(heard.port_description.as_deref(), Some("gpu-017 eno1"));
        assert_eq!(heard.switch_port(), "leaf1.gpu.example.org:Ethernet7/1");
        let heard = parse(&sonic()).unwrap();
        assert_eq!(
            (heard.switch_port().as_str(), heard.port_description.as_deref()),
            ("sw-r2:etp12b", Some("Ethernet45"))
        );
        assert_eq!(source(&eos()).as_deref(), Some("00:1c:73:0c:a1:62"));
    }

    #[test]
    fn a_switch_without_a_name_is_known_by_its_chassis() {
        let heard = parse(&nameless()).unwrap();
        assert_eq!(heard.switch_port(), "0c:42:a1:11:22:33:0c:42:a1:11:22:40");
        assert_eq!(heard.system_name, None, "what is not there is not made up");
    }

    #[test]
    fn a_port_without_a_name_is_no_port() {
        // The port id begins behind the header (14) and the chassis id (9): kind and text.
        let mut empty = nameless()[..14 + 9].to_vec();
        empty.extend([4, 1, 5, 6, 2, 0, 120, 0, 0]);
        assert_eq!(parse(&empty), Err(FrameError::Empty));
        let mut blank = nameless()[..14 + 9].to_vec();
        blank.extend([4, 3, 5, b' ', 7, 6, 2, 0, 120, 0, 0]);
        assert_eq!(parse(&blank), Err(FrameError::Empty));
    }

    #[test]
    fn goodbyes_and_other_protocols_are_told_apart() {
        let mut goodbye = nameless()[..14 + 9 + 9].to_vec();
        goodbye.extend([6, 2, 0, 0, 0, 0]);
        assert_eq!(parse(&goodbye), Err(FrameError::Shutdown));
        let mut arp = eos();
        arp[12..14].copy_from_slice(&[8, 6]);
        assert_eq!(parse(&arp), Err(FrameError::OtherProtocol));
        assert_eq!(parse(&eos()[..14]), Err(FrameError::Order));
    }

    #[test]
    fn a_frame_that_is_cut_off_or_damaged_anywhere_is_survived() {
        for whole in [eos(), sonic(), nameless()] {
            for length in 0..whole.len() {
                let _ = parse(&whole[..length]);
            }
            for at in 0..whole.len() {
                for value in [0x00, 0x01, 0x7f, 0xff] {
                    let mut damaged = whole.clone();
                    damaged[at] = value;
                    if let Ok(heard) = parse(&damaged) {
                        assert!(!heard.port.is_empty() && !heard.chassis.is_empty());
                        assert!(heard.port.len() <= 3 * TEXT_BYTES_MAX, "{}", heard.port.len());
                    }
                }
            }
        }
    }

    #[test]
    fn what_would_steer_a_terminal_is_left_out() {
        let mut steering = nameless()[..14 + 9].to_vec();
        steering.extend([4, 6, 5, b'e', 0x1b, b'[', b'1', 0xff, 6, 2, 0, 120, 0, 0]);
        assert_eq!(parse(&steering).unwrap().port, "e[1");
    }
}
