//! UDP datagrams in pcap files, as Wireshark and tcpdump write and read them (draft-ietf-opsawg-pcap).
//!
//! What is written begins with the IP header (link type 101), which is made from the addresses: the kernel does not show
//! what was below UDP. What is read may be Ethernet too, with VLAN tags, in either byte order and with either unit of time.
//!
//! Invariant: a file from anywhere is read within its own length, and what is no UDP over IPv4 in one piece is left out and
//! counted, so that nothing of it is taken for nothing.
//!
//! Refused: pcapng. It has options and blocks for what is not needed here; `editcap -F pcap` turns one into the other.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Microseconds and nanoseconds.
const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOS: u32 = 0xa1b2_3c4d;
/// The first block of a pcapng file.
const MAGIC_PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const LINK_ETHERNET: u32 = 1;
/// LINKTYPE_RAW.
const LINK_RAW: u32 = 101;
const SNAP_BYTES: u32 = 65_535;
/// Size of a file without any packet, in bytes.
pub const FILE_HEADER_BYTES: usize = 24;
const PACKET_HEADER_BYTES: usize = 16;
const IP_HEADER_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;
const UDP: u8 = 17;
const TTL: u8 = 64;
/// More fragments, or an offset: a part of a datagram (RFC 791).
const FRAGMENT: u16 = 0x3fff;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
/// 802.1Q and 802.1ad.
const ETHERTYPES_VLAN: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];
const VLAN_TAGS_MAX: usize = 2;

/// A datagram on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// When it was seen, since 1970; written with microseconds.
    pub at: Duration,
    /// Who sent it.
    pub source: SocketAddrV4,
    /// Where to.
    pub destination: SocketAddrV4,
    /// What is in it.
    pub payload: Vec<u8>,
}

/// What is in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capture {
    /// Its UDP datagrams, in its order.
    pub datagrams: Vec<Datagram>,
    /// Packets that are none: other protocols, fragments, and those that were not recorded whole.
    pub others: usize,
}

/// A file that is no pcap file, or a damaged one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PcapError {
    /// It does not begin as one.
    #[error("expected a pcap file")]
    Magic,
    /// It is of the newer kind.
    #[error("expected a pcap file, not pcapng: `editcap -F pcap` makes one of it")]
    NextGeneration,
    /// What is below IP is not known here.
    #[error("link type {found}: expected {LINK_ETHERNET} (Ethernet) or {LINK_RAW} (IP)")]
    LinkType {
        /// The file's link type.
        found: u32,
    },
    /// It ends in the middle of a packet.
    #[error("packet {number} is cut off")]
    Truncated {
        /// Which packet, from 1.
        number: usize,
    },
}

/// A file of these datagrams. One that is too long for an IPv4 packet is left out.
#[must_use]
pub fn write<'a>(datagrams: impl IntoIterator<Item = &'a Datagram>) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(MAGIC_MICROS.to_be_bytes());
    // Version 2.4, then two fields that are always zero.
    file.extend([0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
    file.extend(SNAP_BYTES.to_be_bytes());
    file.extend(LINK_RAW.to_be_bytes());
    for datagram in datagrams {
        let Some(packet) = ip_packet(datagram) else { continue };
        let length = u32::try_from(packet.len()).unwrap_or(SNAP_BYTES).to_be_bytes();
        let secs = u32::try_from(datagram.at.as_secs()).unwrap_or(0);
        file.extend(secs.to_be_bytes());
        file.extend(datagram.at.subsec_micros().to_be_bytes());
        file.extend(length);
        file.extend(length);
        file.extend(packet);
    }
    file
}

/// An IPv4 packet (RFC 791) with a UDP datagram (RFC 768) without checksum; none when it would be too long for one.
fn ip_packet(datagram: &Datagram) -> Option<Vec<u8>> {
    let Datagram {
        source,
        destination,
        payload,
        ..
    } = datagram;
    let udp_bytes = u16::try_from(UDP_HEADER_BYTES + payload.len()).ok()?;
    let total = udp_bytes.checked_add(IP_HEADER_BYTES as u16)?;
    let mut header = [0; IP_HEADER_BYTES];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[8] = TTL;
    header[9] = UDP;
    header[12..16].copy_from_slice(&source.ip().octets());
    header[16..20].copy_from_slice(&destination.ip().octets());
    let checksum = checksum(&header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut packet = header.to_vec();
    packet.extend(source.port().to_be_bytes());
    packet.extend(destination.port().to_be_bytes());
    packet.extend(udp_bytes.to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(payload);
    Some(packet)
}

/// RFC 1071.
fn checksum(header: &[u8]) -> u16 {
    let words = header
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// Reads a file.
///
/// # Errors
/// [`PcapError`] for a file that is none, and for one that ends in the middle of a packet.
pub fn read(file: &[u8]) -> Result<Capture, PcapError> {
    let (header, mut rest) = file.split_at_checked(FILE_HEADER_BYTES).ok_or(PcapError::Magic)?;
    if header.starts_with(&MAGIC_PCAPNG) {
        return Err(PcapError::NextGeneration);
    }
    let (is_swapped, is_nanos) = match word(header, 0, false) {
        MAGIC_MICROS => (false, false),
        MAGIC_NANOS => (false, true),
        magic if magic.swap_bytes() == MAGIC_MICROS => (true, false),
        magic if magic.swap_bytes() == MAGIC_NANOS => (true, true),
        _ => return Err(PcapError::Magic),
    };
    // The upper bits tell of checksums that some links add.
    let link = word(header, 20, is_swapped) & 0x0fff_ffff;
    if ![LINK_ETHERNET, LINK_RAW].contains(&link) {
        return Err(PcapError::LinkType { found: link });
    }
    let mut capture = Capture::default();
    for number in 1.. {
        if rest.is_empty() {
            break;
        }
        let truncated = PcapError::Truncated { number };
        let (header, tail) = rest.split_at_checked(PACKET_HEADER_BYTES).ok_or(truncated.clone())?;
        let recorded = usize::try_from(word(header, 8, is_swapped)).unwrap_or(usize::MAX);
        let (packet, tail) = tail.split_at_checked(recorded).ok_or(truncated)?;
        rest = tail;
        let fraction = u64::from(word(header, 4, is_swapped));
        let fraction = match is_nanos {
            true => Duration::from_nanos(fraction),
            false => Duration::from_micros(fraction),
        };
        let at = Duration::from_secs(word(header, 0, is_swapped).into()) + fraction;
        let ip = if link == LINK_ETHERNET {
            of_ethernet(packet)
        } else {
            Some(packet)
        };
        match ip.and_then(|ip| udp(ip, at)) {
            Some(datagram) => capture.datagrams.push(datagram),
            None => capture.others += 1,
        }
    }
    Ok(capture)
}

/// Four bytes of a header, which is long enough.
fn word(header: &[u8], at: usize, is_swapped: bool) -> u32 {
    let bytes = header
        .get(at..at + 4)
        .and_then(|four| four.try_into().ok())
        .unwrap_or([0; 4]);
    match is_swapped {
        true => u32::from_le_bytes(bytes),
        false => u32::from_be_bytes(bytes),
    }
}

/// The IPv4 packet of an Ethernet frame.
fn of_ethernet(frame: &[u8]) -> Option<&[u8]> {
    let mut rest = frame.get(12..)?;
    for _ in 0..=VLAN_TAGS_MAX {
        let (ethertype, content) = rest.split_first_chunk::<2>()?;
        if *ethertype == ETHERTYPE_IPV4 {
            return Some(content);
        }
        if !ETHERTYPES_VLAN.contains(ethertype) {
            return None;
        }
        rest = content.get(2..)?;
    }
    None
}

/// The datagram of an IPv4 packet.
fn udp(packet: &[u8], at: Duration) -> Option<Datagram> {
    let header = packet.get(..IP_HEADER_BYTES)?;
    let number = |bytes: &[u8], at: usize| Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    if header[0] >> 4 != 4 || header[9] != UDP || number(header, 6)? & FRAGMENT != 0 {
        return None;
    }
    let header_bytes = usize::from(header[0] & 0xf) * 4;
    let address = |at: usize| Some(Ipv4Addr::from(<[u8; 4]>::try_from(header.get(at..at + 4)?).ok()?));
    // What is behind the packet's own length fills the frame.
    let content = packet.get(header_bytes.max(IP_HEADER_BYTES)..usize::from(number(header, 2)?))?;
    let payload = content.get(UDP_HEADER_BYTES..usize::from(number(content, 4)?))?;
    Some(Datagram {
        at,
        source: SocketAddrV4::new(address(12)?, number(content, 0)?),
        destination: SocketAddrV4::new(address(16)?, number(content, 2)?),
        payload: payload.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(payload: &[u8]) -> Datagram {
        Datagram {
            at: Duration::new(1_700_000_000, 7_000),
            source: "10.77.0.1:67".parse().unwrap(),
            destination: "255.255.255.255:68".parse().unwrap(),
            payload: payload.to_vec(),
        }
    }

    #[test]
    fn the_file_is_one_that_other_programs_read() {
        let file = write(&[datagram(b"hello"), datagram(&vec![0; 70_000]), datagram(b"you")]);
        assert_eq!(&file[..4], [0xa1, 0xb2, 0xc3, 0xd4]);
        assert_eq!(&file[20..24], [0, 0, 0, 101]);
        let first = &file[24..24 + 16 + 33];
        assert_eq!(
            &first[..16],
            [0x65, 0x53, 0xf1, 0, 0, 0, 0, 7, 0, 0, 0, 33, 0, 0, 0, 33]
        );
        let ip = &first[16..];
        assert_eq!(checksum(&ip[..20]), 0, "the header's checksum is right");
        assert_eq!(&ip[20..28], [0, 67, 0, 68, 0, 13, 0, 0]);
        assert_eq!(&ip[28..], b"hello");
        assert_eq!(
            file.len(),
            24 + 16 + 33 + 16 + 31,
            "what no packet could carry is left out"
        );
        let back = read(&file).unwrap();
        assert_eq!(back.datagrams, [datagram(b"hello"), datagram(b"you")]);
        assert_eq!(back.others, 0);
    }

    /// As tcpdump records on an interface: this machine's byte order, nanoseconds where asked for, Ethernet.
    fn ethernet(magic: u32, tags: &[u8], packet: &[u8]) -> Vec<u8> {
        let frame = [
            &[0xff; 6][..],
            &[2, 0, 0, 0, 0, 1],
            tags,
            &ETHERTYPE_IPV4,
            packet,
            b"\0\0padding",
        ]
        .concat();
        let length = u32::try_from(frame.len()).unwrap().to_le_bytes();
        let mut file = Vec::new();
        file.extend(magic.to_le_bytes());
        file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0]);
        file.extend(1_700_000_000_u32.to_le_bytes());
        file.extend(7_u32.to_le_bytes());
        file.extend(length);
        file.extend(length);
        file.extend(frame);
        file
    }

    #[test]
    fn recordings_of_tcpdump_are_read() {
        let packet = ip_packet(&datagram(b"hello")).unwrap();
        for tags in [&b""[..], b"\x81\x00\x00\x0a", b"\x88\xa8\x00\x14\x81\x00\x00\x0a"] {
            let read = read(&ethernet(MAGIC_MICROS, tags, &packet)).unwrap();
            assert_eq!(read.datagrams, [datagram(b"hello")], "{tags:02x?}");
        }
        let nanos = read(&ethernet(MAGIC_NANOS, b"", &packet)).unwrap();
        assert_eq!(nanos.datagrams[0].at, Duration::new(1_700_000_000, 7));
    }

    #[test]
    fn what_is_no_whole_datagram_is_counted_and_left_out() {
        let whole = ip_packet(&datagram(b"hello")).unwrap();
        let changed = |at: usize, value: u8| {
            let mut packet = whole.clone();
            packet[at] = value;
            packet
        };
        for (what, packet) in [
            ("TCP", changed(9, 6)),
            ("IPv6", changed(0, 0x65)),
            ("a fragment with more to come", changed(6, 0x20)),
            ("a later fragment", changed(7, 1)),
            ("longer than what was recorded", changed(3, 200)),
            ("a datagram longer than its packet", changed(25, 200)),
            ("a datagram shorter than its header", changed(25, 3)),
            ("a packet shorter than its header", changed(3, 10)),
        ] {
            let read = read(&ethernet(MAGIC_MICROS, b"", &packet)).unwrap();
            assert_eq!((read.datagrams.len(), read.others), (0, 1), "{what}");
        }
        let tags = b"\x81\x00\x00\x01".repeat(3);
        assert_eq!(
            read(&ethernet(MAGIC_MICROS, &tags, &whole)).unwrap().others,
            1,
            "endless tags"
        );
    }

    #[test]
    fn files_that_are_none_or_damaged_are_refused_with_what_is_wrong() {
        let file = write(&[datagram(b"hello"), datagram(b"you")]);
        for length in 0..file.len() {
            let is_whole = [24, 24 + 16 + 33].contains(&length);
            assert_eq!(read(&file[..length]).is_ok(), is_whole, "{length} bytes");
        }
        assert_eq!(read(&file[..80]), Err(PcapError::Truncated { number: 2 }));
        assert_eq!(read(&[0; 24]), Err(PcapError::Magic));
        let newer = [&MAGIC_PCAPNG[..], &[0; 20]].concat();
        assert_eq!(read(&newer), Err(PcapError::NextGeneration));
        let mut cooked = file.clone();
        cooked[23] = 113;
        assert_eq!(read(&cooked), Err(PcapError::LinkType { found: 113 }));
        let mut endless = file;
        endless[32..36].copy_from_slice(&[0xff; 4]);
        assert_eq!(read(&endless), Err(PcapError::Truncated { number: 1 }));
    }
}
