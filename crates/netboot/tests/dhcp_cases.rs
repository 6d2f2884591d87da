//! Boot answers: which loader, which fields, which destination.

use std::net::Ipv4Addr;

use netboot::dhcp::boot::BootAnswer;
use netboot::dhcp::options::code;
use netboot::dhcp::{Destination, Header, LoaderSet, LoaderTable, MessageType, Mode, NodeStanding, Port, Reply};

use crate::support::*;

const FLEXBOOT_FEATURES: &[u8] = &[0x13, 1, 1];

#[test]
fn each_architecture_gets_its_loader_on_both_ports() {
    for (arch, file) in [
        (0, "undionly.kpxe"),
        (7, "snponly.efi"),
        (9, "snponly.efi"),
        (0x0b, "ipxe-arm64.efi"),
    ] {
        let offer = proxy(&Client::pxe(arch).discover());
        assert_eq!(
            offer.boot,
            BootAnswer::Loader {
                arch,
                file: file.to_owned()
            }
        );
        assert_eq!(offer.reply.boot_name(), file);
        let request = Client::pxe(arch).ciaddr(LEASED).kind(MessageType::Request);
        let ack = plan(decide(&request, Mode::Proxy, Port::Pxe4011));
        assert_eq!(
            (ack.reply.message_type, ack.reply.boot_name()),
            (MessageType::Ack, file.to_owned())
        );
    }
}

#[test]
fn http_boot_gets_its_class_and_an_absolute_url() {
    for (arch, url) in [
        (0x10, "http://10.77.0.1:8081/boot/v1/loaders/snponly.efi"),
        (0x13, "http://10.77.0.1:8081/boot/v1/loaders/ipxe-arm64.efi"),
    ] {
        for mode in [Mode::Proxy, Mode::Full] {
            for node in [NodeStanding::Listed, NodeStanding::Discovering] {
                let request = Client::http(arch).discover();
                let reply = plan(decide_for(&request, mode, Port::Server67, node, Some(&lease()))).reply;
                assert_eq!(reply.options.get(code::VENDOR_CLASS), Some(&b"HTTPClient"[..]));
                assert_eq!(reply.options.get(code::BOOTFILE_NAME), Some(url.as_bytes()));
                assert_eq!(reply.options.get(code::VENDOR_OPTIONS), None);
            }
        }
    }
}

#[test]
fn in_a_list_of_architectures_the_class_says_which_is_meant() {
    let both = &[7, 0x10];
    let http = proxy(&Client::http(0x10).arches(both).discover());
    assert!(
        matches!(http.boot, BootAnswer::HttpLoader { arch: 0x10, .. }),
        "{:?}",
        http.boot
    );
    let http_first = proxy(&Client::pxe(7).arches(&[0x10, 7]).discover());
    assert!(
        matches!(http_first.boot, BootAnswer::Loader { arch: 7, .. }),
        "{:?}",
        http_first.boot
    );
    let pxe = proxy(&Client::pxe(7).arches(both).discover());
    assert_eq!(
        pxe.boot,
        BootAnswer::Loader {
            arch: 7,
            file: "snponly.efi".to_owned()
        }
    );
    // The list is in order of preference, and the first with a loader wins.
    let odd_first = proxy(&Client::pxe(7).arches(&[0x1234, 0x0b, 7]).discover());
    assert_eq!(odd_first.reply.boot_name(), "ipxe-arm64.efi");
    // An HTTP architecture under a PXE class, and the reverse: the answer is HTTP in both.
    assert_eq!(proxy(&Client::pxe(0x10).discover()).boot.stage(), "http_loader");
    assert_eq!(proxy(&Client::http(7).discover()).boot.stage(), "http_loader");
}

#[test]
fn without_option_93_the_decimal_number_in_the_class_counts() {
    let http = proxy(&Client::http(0x10).without(code::CLIENT_ARCH).discover());
    assert!(
        matches!(http.boot, BootAnswer::HttpLoader { arch: 0x10, .. }),
        "00016 is decimal: {:?}",
        http.boot
    );
    let arm = proxy(&Client::pxe(11).without(code::CLIENT_ARCH).discover());
    assert_eq!(arm.reply.boot_name(), "ipxe-arm64.efi");
    assert_eq!(
        proxy(&Client::new().class("PXEClient").discover()).reply.boot_name(),
        "undionly.kpxe"
    );
}

#[test]
fn an_architecture_without_a_loader_is_left_alone_by_the_proxy_and_gets_its_address_in_full() {
    let request = Client::pxe(0x1234).discover();
    assert_eq!(ignored(decide(&request, Mode::Proxy, Port::Server67)), "no_loader");
    let offer = full(&request);
    assert_eq!((offer.reply.header.yiaddr, offer.boot), (LEASED, BootAnswer::Address));
}

#[test]
fn an_ipxe_with_http_gets_its_script_and_never_a_loader() {
    let script = "http://10.77.0.1:8081/boot/v1/script?mac=52:54:00:aa:00:01&arch=0";
    let flexboot = Client::pxe(0).option(code::IPXE, FLEXBOOT_FEATURES);
    let named = Client::pxe(0).option(code::USER_CLASS, b"iPXE");
    let named_in_rfc_form = Client::pxe(0).option(code::USER_CLASS, b"\x04iPXE");
    let both = named.clone().option(code::IPXE, FLEXBOOT_FEATURES);
    for client in [flexboot, named, named_in_rfc_form, both] {
        let offer = proxy(&client.discover());
        assert_eq!(offer.boot, BootAnswer::Script { url: script.to_owned() });
        assert_eq!(offer.reply.options.get(code::BOOTFILE_NAME), Some(script.as_bytes()));
    }
    let uefi = proxy(&Client::pxe(7).option(code::USER_CLASS, b"iPXE").discover());
    assert!(uefi.reply.boot_name().ends_with("&arch=7"));
}

#[test]
fn an_ipxe_that_cannot_fetch_a_script_gets_our_loader() {
    for features in [&[0x18, 1, 1][..], &[][..], &[0x13, 1, 0][..], &[0x13, 9][..]] {
        let client = Client::pxe(0)
            .option(code::USER_CLASS, b"iPXE")
            .option(code::IPXE, features);
        assert_eq!(
            proxy(&client.discover()).reply.boot_name(),
            "undionly.kpxe",
            "{features:02x?}"
        );
    }
}

#[test]
fn the_boot_file_stands_everywhere_firmware_looks() {
    let reply = proxy(&Client::pxe(7).discover()).reply;
    assert_eq!(reply.header.siaddr, SERVER);
    assert_eq!(reply.options.get(code::TFTP_SERVER_NAME), Some(&b"10.77.0.1"[..]));
    let bytes = reply.encode(None).unwrap();
    assert_eq!(&bytes[44..54], b"10.77.0.1\0");
    assert_eq!(&bytes[108..120], b"snponly.efi\0");
    let option = b"\x43\x0bsnponly.efi\0";
    assert!(
        bytes.windows(option.len()).any(|part| part == option),
        "a NUL follows option 67, outside of it"
    );
}

#[test]
fn discovery_control_keeps_firmware_from_asking_for_a_menu() {
    for request in [
        Client::pxe(7).discover(),
        Client::pxe(0).discover(),
        Client::pxe(0).option(code::IPXE, FLEXBOOT_FEATURES).discover(),
    ] {
        let reply = proxy(&request).reply;
        assert_eq!(reply.options.get(code::VENDOR_OPTIONS), Some(&[6, 1, 8, 255][..]));
        assert_eq!(reply.options.get(code::VENDOR_CLASS), Some(&b"PXEClient"[..]));
    }
}

#[test]
fn a_request_on_the_pxe_port_is_acknowledged_with_the_boot_file() {
    for mode in [Mode::Proxy, Mode::Full] {
        for client in [
            Client::pxe(7).ciaddr(LEASED),
            Client::pxe(7).ciaddr(LEASED).server(OTHER),
        ] {
            let ack = plan(decide(&client.kind(MessageType::Request), mode, Port::Pxe4011));
            assert_eq!(ack.reply.message_type, MessageType::Ack);
            assert_eq!(ack.reply.boot_name(), "snponly.efi");
            assert_eq!((ack.reply.header.ciaddr, ack.reply.header.yiaddr), (LEASED, NOBODY));
            assert_eq!(ack.destination, Destination::Asker(LEASED));
        }
    }
    let without_address = Client::pxe(7).kind(MessageType::Request);
    assert_eq!(
        plan(decide(&without_address, Mode::Proxy, Port::Pxe4011)).destination,
        Destination::Sender
    );
    let system = Client::new().ciaddr(LEASED).kind(MessageType::Request);
    assert_eq!(ignored(decide(&system, Mode::Proxy, Port::Pxe4011)), "not_netboot");
}

#[test]
fn the_machine_identifier_is_echoed_exactly_and_never_made_up() {
    let whole = [&[0][..], &[0xab; 16]].concat();
    for value in [Some(&whole[..]), Some(&whole[1..]), Some(&[7][..]), None] {
        let mut client = Client::pxe(7);
        if let Some(value) = value {
            client = client.option(code::MACHINE_ID, value);
        }
        for port in [Port::Server67, Port::Pxe4011] {
            let reply = plan(decide(&client.clone().discover(), Mode::Proxy, port)).reply;
            let received = Reply::decode(&reply.encode(None).unwrap()).unwrap();
            assert_eq!(received.options.get(code::MACHINE_ID), value);
        }
    }
}

#[test]
fn a_relayed_client_is_answered_through_its_relay() {
    let relay = Ipv4Addr::new(10, 1, 2, 1);
    for (flags, ciaddr) in [(Header::BROADCAST, NOBODY), (0, NOBODY), (0, LEASED)] {
        let mut client = Client::pxe(7).ciaddr(ciaddr);
        client.header.giaddr = relay;
        client.header.flags = flags;
        let offer = proxy(&client.discover());
        assert_eq!(offer.destination, Destination::Relay(relay));
        assert_eq!((offer.reply.header.giaddr, offer.reply.header.flags), (relay, flags));
        let peer = "10.9.9.9:1067".parse().unwrap();
        assert_eq!(offer.destination.resolve(peer, 67, 68), "10.1.2.1:67".parse().unwrap());
    }
}

#[test]
fn a_client_with_an_address_is_answered_there_and_one_without_by_broadcast() {
    let peer = "10.77.0.50:68".parse().unwrap();
    let with = proxy(&Client::pxe(7).ciaddr(LEASED).kind(MessageType::Inform));
    assert_eq!(with.destination.resolve(peer, 67, 68), "10.77.0.50:68".parse().unwrap());
    let without = proxy(&Client::pxe(7).discover());
    assert_eq!(
        without.destination.resolve(peer, 67, 68),
        "255.255.255.255:68".parse().unwrap()
    );
}

#[test]
fn relay_information_comes_back_byte_for_byte_as_the_last_option() {
    let circuit = [0x01, 0x04, 0x00, 0x64, 0x00, 0x03, 0x02, 0x02, 0xab, 0xcd];
    let client = Client::pxe(7)
        .option(code::RELAY_AGENT, &circuit)
        .option(code::MACHINE_ID, &[0; 17]);
    for bytes in [
        proxy(&client.clone().discover()).reply.encode(None).unwrap(),
        full(&client.clone().discover()).reply.encode(None).unwrap(),
        full(&client.requested(OTHER).kind(MessageType::Request))
            .reply
            .encode(None)
            .unwrap(),
    ] {
        let end = bytes.iter().rposition(|byte| *byte == code::END).unwrap();
        assert_eq!(&bytes[end - 12..end], [&[82, 10][..], &circuit].concat());
    }
}

#[test]
fn a_long_relay_circuit_costs_what_can_be_spared() {
    let client = Client::http(0x10)
        .option(code::RELAY_AGENT, &[9; 160])
        .option(code::CLIENT_ID, &[8; 40])
        .option(code::MACHINE_ID, &[0; 17]);
    let reply = full(&client.discover()).reply;
    let short = Reply::decode(&reply.encode(None).unwrap()).unwrap();
    assert_eq!(short.options.get(code::TFTP_SERVER_NAME), None);
    assert_eq!(short.options.get(code::RELAY_AGENT), Some(&[9; 160][..]));
    assert!(reply.encode(None).unwrap().len() <= 548);
    let long = Reply::decode(&reply.encode(Some(1500)).unwrap()).unwrap();
    assert!(long.options.get(code::TFTP_SERVER_NAME).is_some() && long.options.get(code::CLIENT_ID).is_some());
}

#[test]
fn a_machine_nobody_listed_hears_nothing() {
    for mode in [Mode::Proxy, Mode::Full] {
        for port in [Port::Server67, Port::Pxe4011] {
            for client in [
                Client::pxe(7),
                Client::http(0x10),
                Client::new(),
                Client::pxe(0).option(77, b"iPXE"),
            ] {
                for kind in [
                    MessageType::Discover,
                    MessageType::Request,
                    MessageType::Inform,
                    MessageType::Release,
                ] {
                    let request = client.clone().ciaddr(LEASED).kind(kind);
                    let decision = decide_for(&request, mode, port, NodeStanding::Unlisted, Some(&lease()));
                    assert_eq!(ignored(decision), "unlisted");
                }
            }
        }
    }
    assert_eq!(
        ignored(decide(&Client::pxe(7).discover(), Mode::Off, Port::Server67)),
        "off"
    );
}

#[test]
fn a_proxy_keeps_out_of_addresses_and_of_systems() {
    let offer = proxy(&Client::pxe(7).discover()).reply;
    assert_eq!(offer.header.yiaddr, NOBODY);
    for absent in [code::LEASE_TIME, code::SUBNET_MASK, code::ROUTER] {
        assert_eq!(offer.options.get(absent), None);
    }
    let in_proxy = |request| ignored(decide(&request, Mode::Proxy, Port::Server67));
    assert_eq!(in_proxy(Client::new().discover()), "not_netboot");
    assert_eq!(in_proxy(Client::new().class("MSFT 5.0").discover()), "not_netboot");
    assert_eq!(
        in_proxy(
            Client::pxe(7)
                .server(OTHER)
                .requested(LEASED)
                .kind(MessageType::Request)
        ),
        "other_server"
    );
    assert_eq!(
        in_proxy(Client::pxe(7).ciaddr(LEASED).kind(MessageType::Request)),
        "proxy_has_no_leases"
    );
    let chosen = proxy(&Client::pxe(7).server(SERVER).kind(MessageType::Request)).reply;
    assert_eq!((chosen.message_type, chosen.header.yiaddr), (MessageType::Ack, NOBODY));
}

#[test]
fn infiniband_clients_with_zero_addresses_are_told_apart_and_answered() {
    let client = |last: u8| {
        let mut client = Client::pxe(7).option(code::CLIENT_ID, &[0x20, 0xec, 0x0d, 0x9a, 3, 0, 0x9c, 0x81, last]);
        client.header = Header {
            htype: 0x20,
            hlen: 0,
            chaddr: [0; 16],
            ..client.header
        };
        client.discover()
    };
    let (first, second) = (client(0xe2), client(0xe3));
    assert_ne!(first.identity(), second.identity());
    assert_eq!(first.identity().mac().unwrap().to_string(), "ec:0d:9a:9c:81:e2");
    let reply = proxy(&first).reply;
    assert_eq!((reply.header.htype, reply.header.hlen), (0x20, 0));
    assert_eq!(
        reply.options.get(code::CLIENT_ID),
        first.client_id(),
        "the only way the client knows its answer"
    );
    let mut nameless = Client::pxe(7);
    nameless.header = Header {
        htype: 0x20,
        hlen: 0,
        chaddr: [0; 16],
        ..nameless.header
    };
    assert_eq!(
        ignored(decide(&nameless.discover(), Mode::Proxy, Port::Server67)),
        "no_identity"
    );
}

#[test]
fn the_chain_of_a_machine_decides_its_loader() {
    let loader = |set: LoaderSet, arch: u16| set.table().get(arch).map(str::to_owned);
    for arch in [0x07, 0x09, 0x10] {
        assert_eq!(
            loader(LoaderSet::Ipxe, arch).as_deref(),
            Some("snponly.efi"),
            "{arch:#x}"
        );
        assert_eq!(
            loader(LoaderSet::Grub, arch).as_deref(),
            Some("shimx64.efi"),
            "{arch:#x}"
        );
    }
    // PXE finds nothing, so that firmware goes on to HTTP boot; BIOS has nothing else.
    for (arch, file) in [
        (0x07, None),
        (0x09, None),
        (0x0b, None),
        (0x10, Some("shimx64.efi")),
        (0x00, Some("undionly.kpxe")),
    ] {
        assert_eq!(loader(LoaderSet::Http, arch).as_deref(), file, "{arch:#x}");
    }
}

#[test]
fn a_table_can_name_another_loader() {
    let mut loaders = LoaderTable::default();
    loaders.set(7, "shimx64.efi");
    assert_eq!(loaders.get(7), Some("shimx64.efi"));
    assert_eq!(
        loaders.files(),
        ["ipxe-arm64.efi", "shimx64.efi", "snponly.efi", "undionly.kpxe"]
    );
}
