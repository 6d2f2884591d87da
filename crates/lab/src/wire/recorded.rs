//! Frames that QEMU has recorded: the classic pcap format, as `filter-dump` writes it.

use anyhow::{Result, bail, ensure};
use std::net::Ipv4Addr;

/// Header of the file, and of each frame, in bytes.
const FILE_HEADER_BYTES: usize = 24;
const FRAME_HEADER_BYTES: usize = 16;
/// Microseconds, in this machine's byte order.
const MAGIC: u32 = 0xa1b2_c3d4;
/// Ethernet: two addresses, then the type of what follows.
const ETHERNET_BYTES: usize = 14;

/// How many frames there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// In all, both ways.
    pub frames: u64,
    /// Of those, IPv4 packets and ARP messages sent from the address that was asked about.
    pub from_address: u64,
}

/// Counts the frames of a recording. A last frame that was cut off is left out.
///
/// # Errors
/// When it is none.
pub fn count(recorded: &[u8], address: Ipv4Addr) -> Result<Counts> {
    let Some((header, mut rest)) = recorded.split_at_checked(FILE_HEADER_BYTES) else {
        bail!(
            "a recording has at least {FILE_HEADER_BYTES} bytes, not {}",
            recorded.len()
        );
    };
    ensure!(header.starts_with(&MAGIC.to_ne_bytes()), "no pcap file");
    let mut counts = Counts::default();
    while let Some((header, tail)) = rest.split_at_checked(FRAME_HEADER_BYTES) {
        let length = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let Some((frame, tail)) = tail.split_at_checked(length) else {
            break;
        };
        counts.frames += 1;
        counts.from_address += u64::from(sender(frame) == Some(address));
        rest = tail;
    }
    Ok(counts)
}

/// Who sent an IPv4 packet (RFC 791) or an ARP message (RFC 826).
fn sender(frame: &[u8]) -> Option<Ipv4Addr> {
    let content = frame.get(ETHERNET_BYTES..)?;
    let at = match frame.get(12..14)? {
        [0x08, 0x00] => 12,
        [0x08, 0x06] => 14,
        _ => return None,
    };
    let octets: [u8; 4] = content.get(at..at + 4)?.try_into().ok()?;
    Some(Ipv4Addr::from(octets))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: [u8; 2], content: &[u8]) -> Vec<u8> {
        let frame = [&[0; 12][..], &kind, content].concat();
        let length = u32::try_from(frame.len()).unwrap().to_ne_bytes();
        [&[0; 8][..], &length, &length, &frame].concat()
    }

    #[test]
    fn frames_of_an_address_are_told_from_others() {
        let server = Ipv4Addr::new(10, 77, 0, 1);
        let ip = |from: [u8; 4]| [&[0x45; 12][..], &from, &[255; 4]].concat();
        let arp = |from: [u8; 4]| [&[0; 14][..], &from, &[0; 10]].concat();
        let mut file = MAGIC.to_ne_bytes().to_vec();
        file.resize(FILE_HEADER_BYTES, 0);
        for part in [
            frame([8, 0], &ip([10, 77, 0, 1])),
            frame([8, 0], &ip([10, 77, 0, 2])),
            frame([8, 6], &arp([10, 77, 0, 1])),
            frame([0x86, 0xdd], &[0; 40]),
            frame([8, 0], &[0x45]),
        ] {
            file.extend(part);
        }
        let expected = Counts {
            frames: 5,
            from_address: 2,
        };
        assert_eq!(count(&file, server).unwrap(), expected);
        file.extend(&frame([8, 0], &ip([10, 77, 0, 1]))[..20]);
        assert_eq!(count(&file, server).unwrap(), expected, "the last one is cut off");
        assert!(count(b"no recording at all, I fear", server).is_err());
    }
}
