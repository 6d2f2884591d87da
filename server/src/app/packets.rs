//! The last DHCP messages of a node, as a pcap file for Wireshark or tcpdump.
//!
//! What was on the wire above UDP is as it came and went; the headers below it are made from the addresses, since the
//! kernel does not show them (link type 101: packets begin with IP).

use std::net::SocketAddrV4;

use protocol::NodeId;
use store::BootPacket;

use super::{App, AppError};

/// Microseconds, in network order (draft-ietf-opsawg-pcap, section 4).
const MAGIC: u32 = 0xa1b2_c3d4;
/// LINKTYPE_RAW.
const LINK_TYPE: u32 = 101;
const SNAP_BYTES: u32 = 65_535;
/// Size of a file without any packet, in bytes.
pub const FILE_HEADER_BYTES: usize = 24;
const IP_HEADER_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;
const UDP: u8 = 17;
const TTL: u8 = 64;

/// The file of what is kept of a node.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn pcap(app: &App, node: NodeId) -> Result<Vec<u8>, AppError> {
    Ok(write(&app.store.packet_list(node).await?))
}

fn write(packets: &[BootPacket]) -> Vec<u8> {
    let mut file = Vec::new();
    file.extend(MAGIC.to_be_bytes());
    // Version 2.4, then two fields that are always zero.
    file.extend([0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
    file.extend(SNAP_BYTES.to_be_bytes());
    file.extend(LINK_TYPE.to_be_bytes());
    for packet in packets {
        let Some(datagram) = ip_datagram(packet.source, packet.destination, &packet.payload) else {
            continue;
        };
        let length = u32::try_from(datagram.len()).unwrap_or(SNAP_BYTES).to_be_bytes();
        let secs = u32::try_from(packet.at.unix_timestamp()).unwrap_or(0);
        file.extend(secs.to_be_bytes());
        file.extend(packet.at.microsecond().to_be_bytes());
        file.extend(length);
        file.extend(length);
        file.extend(datagram);
    }
    file
}

/// An IPv4 packet (RFC 791) with a UDP datagram (RFC 768) without checksum; none when it would be too long for one.
fn ip_datagram(source: SocketAddrV4, destination: SocketAddrV4, payload: &[u8]) -> Option<Vec<u8>> {
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
    let mut datagram = header.to_vec();
    datagram.extend(source.port().to_be_bytes());
    datagram.extend(destination.port().to_be_bytes());
    datagram.extend(udp_bytes.to_be_bytes());
    datagram.extend([0, 0]);
    datagram.extend(payload);
    Some(datagram)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_one_that_other_programs_read() {
        let at = time::OffsetDateTime::from_unix_timestamp(1_700_000_000).unwrap() + time::Duration::microseconds(7);
        let packet = |payload: &[u8]| BootPacket {
            at,
            source: "10.77.0.1:67".parse().unwrap(),
            destination: "255.255.255.255:68".parse().unwrap(),
            payload: payload.to_vec(),
        };
        let file = write(&[packet(b"hello"), packet(&vec![0; 70_000]), packet(b"you")]);
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
    }
}
