//! Properties over arbitrary input.

use netboot::MacAddr;
use netboot::dhcp::{Header, MessageType, Mode, NodeStanding, OptionList, Port, Reply, Request};
use netboot::tftp::packet::{FileRequest, TransferMode, WireOption};
use netboot::tftp::{FileName, Packet};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::{decide_for, lease};

fn client_kind() -> impl Strategy<Value = MessageType> {
    prop_oneof![
        Just(MessageType::Discover),
        Just(MessageType::Request),
        Just(MessageType::Decline),
        Just(MessageType::Release),
        Just(MessageType::Inform),
    ]
}

/// Options that any client could send, with lengths their definitions allow.
fn options() -> impl Strategy<Value = OptionList> {
    let checked = (
        proptest::option::of(any::<[u8; 4]>()),
        proptest::option::of(any::<[u8; 4]>()),
        proptest::option::of(any::<[u8; 2]>()),
        vec(any::<[u8; 2]>(), 0..4),
    );
    let free = vec(
        (
            prop::sample::select(vec![12_u8, 43, 55, 60, 61, 77, 82, 94, 97, 175]),
            vec(any::<u8>(), 0..600),
        ),
        0..6,
    );
    (checked, free).prop_map(|((requested, server, bytes_max, arches), free)| {
        let mut list = OptionList::new();
        for (code, value) in [(50, requested), (54, server)] {
            if let Some(value) = value {
                list.set(code, value);
            }
        }
        if let Some(value) = bytes_max {
            list.set(57, value);
        }
        if !arches.is_empty() {
            list.set(93, arches.concat());
        }
        for (code, value) in free {
            list.set(code, value);
        }
        list
    })
}

fn requests() -> impl Strategy<Value = Request> {
    (
        any::<u32>(),
        any::<[u8; 6]>(),
        any::<[u8; 8]>(),
        any::<u16>(),
        client_kind(),
        options(),
    )
        .prop_map(|(xid, mac, addresses, flags, kind, options)| {
            let mut header = Header::ethernet(xid, MacAddr::new(mac));
            header.flags = flags;
            let [a, b, c, d, e, f, g, h] = addresses;
            header.ciaddr = [a, b, c, d].into();
            header.giaddr = [e, f, g, h].into();
            Request::new(header, kind, options).unwrap()
        })
}

/// Relay information is written last, so lists are compared without regard to its place.
fn sorted(options: &OptionList) -> Vec<(u8, Vec<u8>)> {
    let mut entries: Vec<_> = options.iter().map(|(code, value)| (code, value.to_vec())).collect();
    entries.sort();
    entries
}

/// A datagram with a valid header, so that arbitrary bytes reach the option area.
fn dhcp_datagram(tail: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 236];
    bytes[..3].copy_from_slice(&[1, 1, 6]);
    bytes.extend_from_slice(&[99, 130, 83, 99]);
    bytes.extend_from_slice(tail);
    bytes
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_break_the_dhcp_codec(bytes in vec(any::<u8>(), 0..1500), tail in vec(any::<u8>(), 0..600)) {
        let _ = Request::decode(&bytes);
        let _ = Reply::decode(&bytes);
        for tail in [tail.clone(), [&[53, 1, 1][..], &tail].concat(), [&[53, 1, 1, 52, 1, 3, 255][..], &tail].concat()] {
            if let Ok(request) = Request::decode(&dhcp_datagram(&tail)) {
                let _ = (request.identity(), request.user_classes(), request.has_ipxe_feature(19), request.to_string());
                let again = Request::decode(&request.encode().unwrap()).unwrap();
                prop_assert_eq!(sorted(again.options()), sorted(request.options()));
            }
        }
    }

    #[test]
    fn a_request_survives_the_wire(request in requests()) {
        let received = Request::decode(&request.encode().unwrap()).unwrap();
        prop_assert_eq!(received.header(), request.header());
        prop_assert_eq!(received.message_type(), request.message_type());
        prop_assert_eq!(sorted(received.options()), sorted(request.options()));
    }

    #[test]
    fn every_decision_holds_the_promises(request in requests()) {
        for mode in [Mode::Proxy, Mode::Full] {
            for port in [Port::Server67, Port::Pxe4011] {
                let unlisted = decide_for(&request, mode, port, NodeStanding::Unlisted, Some(&lease()));
                let is_ignored = matches!(unlisted, netboot::dhcp::Decision::Ignore { .. });
                prop_assert!(is_ignored);
                let decision = decide_for(&request, mode, port, NodeStanding::Listed, Some(&lease()));
                let netboot::dhcp::Decision::Reply(plan) = decision else { continue };
                let received = Reply::decode(&plan.reply.encode(request.max_message_bytes()).unwrap()).unwrap();
                prop_assert_eq!(received.header.xid, request.header().xid);
                prop_assert_eq!(received.header.chaddr, request.header().chaddr);
                prop_assert_eq!(received.options.get(82), request.relay_agent_info());
                prop_assert_eq!(received.options.get(97), request.machine_id());
                prop_assert!(mode == Mode::Full || received.header.yiaddr.is_unspecified());
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_break_the_tftp_codec(bytes in vec(any::<u8>(), 0..1100), opcode in 0_u8..8) {
        let _ = Packet::decode(&bytes);
        if let Ok(packet) = Packet::decode(&[&[0, opcode][..], &bytes].concat()) {
            let again = packet.encode();
            prop_assert_eq!(Packet::decode(&again).unwrap(), packet);
        }
    }

    #[test]
    fn a_tftp_request_survives_the_wire(
        name in "[ -~]{0,80}",
        options in vec(("[a-z]{1,10}", "[0-9]{0,6}"), 0..8),
        is_write in any::<bool>(),
    ) {
        let options = options.into_iter().map(|(name, value)| WireOption { name: name.into(), value: value.into() });
        let request =
            FileRequest { is_write, name: name.into(), mode: TransferMode::Octet, options: options.collect() };
        let packet = Packet::Request(request);
        let bytes = packet.encode();
        prop_assert_eq!(Packet::decode(&bytes).unwrap(), packet);
    }

    #[test]
    fn no_name_leads_out(raw in vec(prop_oneof![Just(b'.'), Just(b'/'), Just(b'\\'), any::<u8>()], 0..300)) {
        for name in FileName::candidates(&raw).unwrap_or_default() {
            let parts: Vec<&str> = name.as_str().split('/').collect();
            prop_assert!(parts.iter().all(|part| !part.is_empty() && *part != "." && *part != ".."));
            prop_assert!(!name.as_str().contains(['\\', '\0']));
            prop_assert_eq!(FileName::parse(name.as_str().as_bytes()).unwrap(), name);
        }
    }
}
