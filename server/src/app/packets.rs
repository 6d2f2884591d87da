//! The last DHCP messages of a node, as a pcap file for Wireshark or tcpdump.

use std::time::Duration;

use netboot::pcap::{self, Datagram};
use protocol::NodeId;
use store::BootPacket;

use super::{App, AppError};

pub use netboot::pcap::FILE_HEADER_BYTES;

/// The file of what is kept of a node.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn pcap(app: &App, node: NodeId) -> Result<Vec<u8>, AppError> {
    let kept = app.store.packet_list(node).await?;
    let datagrams: Vec<Datagram> = kept.into_iter().map(datagram).collect();
    Ok(pcap::write(&datagrams))
}

fn datagram(packet: BootPacket) -> Datagram {
    let micros = packet.at.unix_timestamp_nanos() / 1_000;
    Datagram {
        at: Duration::from_micros(u64::try_from(micros).unwrap_or(0)),
        source: packet.source,
        destination: packet.destination,
        payload: packet.payload,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_keeps_its_time_and_its_bytes() {
        let at = time::OffsetDateTime::from_unix_timestamp(1_700_000_000).unwrap() + time::Duration::microseconds(7);
        let packet = BootPacket {
            at,
            source: "10.77.0.1:67".parse().unwrap(),
            destination: "255.255.255.255:68".parse().unwrap(),
            payload: b"hello".to_vec(),
        };
        let read = pcap::read(&pcap::write(&[datagram(packet)])).unwrap().datagrams;
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].at, Duration::new(1_700_000_000, 7_000));
        assert_eq!(read[0].source.to_string(), "10.77.0.1:67");
        assert_eq!(read[0].payload, b"hello");
    }
}
