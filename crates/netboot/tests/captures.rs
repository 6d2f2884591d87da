//! Recordings: the golden packets as files for Wireshark, and files from the field, replayed.
//!
//! `testdata/dhcp/NAME.pcap` holds the bytes of `NAME.hex`. A recording that somebody made (`tcpdump -w FILE.pcap port 67 or
//! port 4011`, or `plumbline node packets NODE`) goes into `testdata/captures`: each request in it is read and decided about,
//! and what came of it stands beside it, for review. `UPDATE_GOLDEN=1` writes both.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::time::Duration;

use netboot::dhcp::{Port, Reply, Request};
use netboot::pcap::{self, Datagram};

use crate::golden::{assert_golden, assert_golden_bytes, bytes_from_hex, files};
use crate::goldens::{answers, port_of};
use crate::support::SERVER;

const CLIENT: u16 = 68;
const DHCP: u16 = 67;
const PXE: u16 = 4011;

/// The datagram that a golden packet would have come in: broadcast, from the client's own address, or from its relay.
fn datagram(hex: &str) -> Datagram {
    let payload = bytes_from_hex(hex);
    let port = match port_of(hex) {
        Port::Pxe4011 => PXE,
        Port::Server67 => DHCP,
    };
    let header = Request::decode(&payload).map(|request| (request.header().giaddr, request.header().ciaddr));
    let (source, destination) = match header {
        Ok((relay, _)) if !relay.is_unspecified() => (SocketAddrV4::new(relay, DHCP), SERVER),
        Ok((_, own)) if !own.is_unspecified() => (SocketAddrV4::new(own, CLIENT), SERVER),
        _ => (SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, CLIENT), Ipv4Addr::BROADCAST),
    };
    Datagram {
        at: Duration::ZERO,
        source,
        destination: SocketAddrV4::new(destination, port),
        payload,
    }
}

#[test]
fn golden_packets_are_the_same_bytes_as_text_and_as_recording() {
    for hex in files("dhcp", "hex") {
        let text = std::fs::read_to_string(&hex).unwrap();
        let recording = hex.with_extension("pcap");
        assert_golden_bytes(&recording, &pcap::write([&datagram(&text)]));
        let capture = pcap::read(&std::fs::read(&recording).unwrap()).unwrap();
        let payloads: Vec<&[u8]> = capture.datagrams.iter().map(|one| one.payload.as_slice()).collect();
        assert_eq!(payloads, [bytes_from_hex(&text)], "{}", recording.display());
    }
    let alone: Vec<_> = files("dhcp", "pcap")
        .into_iter()
        .filter(|path| !path.with_extension("hex").exists())
        .collect();
    assert!(alone.is_empty(), "recordings belong into testdata/captures: {alone:?}");
}

/// Every DHCP message of a recording: requests with what is decided about them, answers in a line.
fn replayed(path: &Path) -> String {
    let capture =
        pcap::read(&std::fs::read(path).unwrap()).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    for (number, datagram) in capture.datagrams.iter().enumerate() {
        let (source, destination) = (datagram.source, datagram.destination);
        let said = match destination.port() {
            DHCP | PXE => match Request::decode(&datagram.payload) {
                Ok(request) if destination.port() == PXE => answers(&request, Port::Pxe4011),
                Ok(request) => answers(&request, Port::Server67),
                // A server's answer to a relay goes to the same port.
                Err(error) => answer(&datagram.payload).unwrap_or_else(|| format!("{}: {error}\n", error.kind())),
            },
            CLIENT => answer(&datagram.payload).unwrap_or_else(|| "cannot be read\n".to_owned()),
            _ => "no DHCP\n".to_owned(),
        };
        writeln!(text, "== {}: {source} > {destination}\n{said}", number + 1).unwrap();
    }
    writeln!(text, "{} other packets", capture.others).unwrap();
    text
}

fn answer(payload: &[u8]) -> Option<String> {
    let reply = Reply::decode(payload).ok()?;
    let (kind, address, boots) = (reply.message_type.name(), reply.header.yiaddr, reply.boot_name());
    Some(format!("answer: {kind}, address {address}, boots {boots:?}\n"))
}

#[test]
fn recordings_from_the_field_are_answered_as_reviewed() {
    let files = files("captures", "pcap");
    assert!(!files.is_empty(), "testdata/captures is empty");
    for path in files {
        assert_golden(&path.with_extension("txt"), &replayed(&path));
    }
}
