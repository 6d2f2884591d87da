//! Cases from the field, DHCP: the bytes that were sent there, and what is right.

use std::net::{Ipv4Addr, SocketAddrV4};

use netboot::dhcp::boot::BootAnswer;
use netboot::dhcp::options::code;
use netboot::dhcp::{Destination, LoaderTable, MessageType, Mode, NodeStanding, Port, Reply, Request};

use crate::golden::bytes_from_hex;
use crate::support::*;

const DISCOVER: &str = "35 01 01";
const REQUEST: &str = "35 01 03";
const UEFI: &str = "3c 20 \"PXEClient:Arch:00007:UNDI:003016\" 5d 02 00 07";

/// A datagram of an Ethernet client: `change` sees the header, `options` are hexadecimal and text.
fn datagram(options: &str, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut bytes = bytes_from_hex("01 01 06 00 3b a7 10 42 00*20 52 54 00 aa 00 01 00*202");
    assert_eq!(bytes.len(), 236);
    change(&mut bytes);
    bytes.extend(bytes_from_hex("63 82 53 63"));
    bytes.extend(bytes_from_hex(options));
    bytes.push(code::END);
    bytes
}

fn read(bytes: &[u8]) -> Request {
    Request::decode(bytes).unwrap()
}

fn request(options: &str) -> Request {
    read(&datagram(options, |_| {}))
}

/// What the client would read of the answer.
fn on_the_wire(plan: &netboot::dhcp::ReplyPlan, request: &Request) -> (Vec<u8>, Reply) {
    let bytes = plan.reply.encode(request.max_message_bytes()).unwrap();
    let reply = Reply::decode(&bytes).unwrap();
    (bytes, reply)
}

/// xcat2/xcat-core#7743, warewulf#2231: UEFI set to HTTP boot gets its class and an absolute URL.
#[test]
fn xcat_7743_http_boot_gets_its_class_and_an_absolute_url() {
    let x64 = "3c 21 \"HTTPClient:Arch:00016:UNDI:003001\" 5d 02 00 10";
    let arm64 = "3c 21 \"HTTPClient:Arch:00019:UNDI:003001\" 5d 02 00 13";
    let list = "3c 21 \"HTTPClient:Arch:00016:UNDI:003001\" 5d 04 00 07 00 10";
    for (options, file) in [(x64, "snponly.efi"), (arm64, "ipxe-arm64.efi"), (list, "snponly.efi")] {
        let request = request(&format!("{DISCOVER} {options}"));
        for mode in [Mode::Proxy, Mode::Full] {
            // A machine of the plan, and one that discovery has just let in.
            for node in [NodeStanding::Listed, NodeStanding::Discovering] {
                let plan = plan(decide_for(&request, mode, Port::Server67, node, Some(&lease())));
                let (_, reply) = on_the_wire(&plan, &request);
                assert_eq!(reply.options.get(code::VENDOR_CLASS), Some(&b"HTTPClient"[..]));
                let url = format!("http://10.77.0.1:8081/boot/v1/loaders/{file}");
                assert_eq!(
                    reply.options.get(code::BOOTFILE_NAME),
                    Some(url.as_bytes()),
                    "{options}"
                );
            }
        }
    }
}

/// xcat2/xcat-core#7743: the number in the text is decimal, the option's is binary, and the option is a list. Where
/// they disagree the class says which kind of boot this attempt is, and the list which machine it is.
#[test]
fn xcat_7743_text_and_option_may_disagree() {
    let boots = |options: &str| proxy(&request(&format!("{DISCOVER} {options}"))).boot;
    let loader = |arch: u16, file: &str| BootAnswer::Loader {
        arch,
        file: file.to_owned(),
    };
    let http = |arch: u16, file: &str| BootAnswer::HttpLoader {
        arch,
        url: format!("http://10.77.0.1:8081/boot/v1/loaders/{file}"),
    };
    for (options, expected) in [
        // 00016 without option 93 is 0x0010 and not 0x0016.
        ("3c 21 \"HTTPClient:Arch:00016:UNDI:003001\"", http(0x10, "snponly.efi")),
        (
            "3c 20 \"PXEClient:Arch:00011:UNDI:003016\"",
            loader(0x0b, "ipxe-arm64.efi"),
        ),
        // The text says x64, the option arm64: the option counts.
        (
            "3c 20 \"PXEClient:Arch:00007:UNDI:003016\" 5d 02 00 0b",
            loader(0x0b, "ipxe-arm64.efi"),
        ),
        // One list for both ways of booting: the class chooses.
        (
            "3c 20 \"PXEClient:Arch:00007:UNDI:003016\" 5d 04 00 10 00 07",
            loader(0x07, "snponly.efi"),
        ),
        // Only the other way is in the list: it is what the machine can do.
        (
            "3c 20 \"PXEClient:Arch:00007:UNDI:003016\" 5d 02 00 10",
            http(0x10, "snponly.efi"),
        ),
        (
            "3c 21 \"HTTPClient:Arch:00016:UNDI:003001\" 5d 02 00 07",
            http(0x07, "snponly.efi"),
        ),
        // Something unheard of first.
        (
            "3c 09 \"PXEClient\" 5d 06 12 34 00 0b 00 07",
            loader(0x0b, "ipxe-arm64.efi"),
        ),
        ("3c 09 \"PXEClient\"", loader(0x00, "undionly.kpxe")),
    ] {
        assert_eq!(boots(options), expected, "{options}");
    }
}

/// warewulf3#104: FlexBoot is iPXE, tells so in option 175 and sends no user class. It gets its script and no loader.
#[test]
fn warewulf3_104_flexboot_is_ipxe_without_a_user_class() {
    let flexboot = request(&format!(
        "{DISCOVER} 3c 20 \"PXEClient:Arch:00000:UNDI:002001\" af 03 13 01 01"
    ));
    let script = "http://10.77.0.1:8081/boot/v1/script?mac=52:54:00:aa:00:01&arch=0";
    for mode in [Mode::Proxy, Mode::Full] {
        let answer = plan(decide(&flexboot, mode, Port::Server67));
        assert_eq!(answer.boot, BootAnswer::Script { url: script.to_owned() });
    }
}

/// warewulf3#104, the opposite: a vendor's iPXE that names itself and could not go on from the script gets our loader,
/// which can, so the chain ends at the second answer.
#[test]
fn warewulf3_104_a_vendors_ipxe_that_cannot_go_on_gets_our_loader() {
    let boots = |options: &str| {
        let class = "3c 20 \"PXEClient:Arch:00000:UNDI:002001\"";
        proxy(&request(&format!("{DISCOVER} {class} {options}"))).boot.stage()
    };
    for (options, expected) in [
        ("4d 04 \"iPXE\" af 03 18 01 01", "loader"),          // no HTTP
        ("4d 04 \"iPXE\" af 06 13 01 01 22 01 01", "loader"), // HTTP, but images without a kernel among them
        ("4d 04 \"iPXE\" af 03 13 01 00", "loader"),          // HTTP, switched off
        ("4d 04 \"iPXE\" af 02 13 09", "loader"),             // broken: no features
        ("af 06 11 01 01 15 01 01", "loader"),                // no class and no HTTP
        ("4d 04 \"iPXE\" af 06 13 01 01 18 01 01", "script"),
        ("4d 04 \"iPXE\" af 09 13 01 01 22 01 01 24 01 01", "script"),
        ("4d 05 04 \"iPXE\"", "script"),
    ] {
        assert_eq!(boots(options), expected, "{options}");
    }
}

/// fog-docs#188, edk2#8149, booter#4, sidero#1212: without discovery control EDK II takes the offer for a boot menu's
/// and waits for port 4011.
#[test]
fn booter_4_an_offer_says_that_the_boot_file_is_all() {
    for options in [UEFI, "3c 20 \"PXEClient:Arch:00000:UNDI:002001\" 5d 02 00 00"] {
        let request = request(&format!("{DISCOVER} {options}"));
        for mode in [Mode::Proxy, Mode::Full] {
            let (bytes, _) = on_the_wire(&plan(decide(&request, mode, Port::Server67)), &request);
            let discovery_control = [0x2b, 0x04, 0x06, 0x01, 0x08, 0xff];
            assert!(bytes.windows(6).any(|part| part == discovery_control), "{options}");
        }
    }
}

/// booter#4, sidero#1212: who asks on port 4011 all the same is acknowledged there, with the boot file, at its address
/// and at the port it asked from.
#[test]
fn booter_4_a_request_on_port_4011_is_acknowledged_with_the_boot_file() {
    let options = format!("{REQUEST} {UEFI} 61 11 00 4c4c454400311058804ab4c04f4b5133");
    let with_address = read(&datagram(&options, |header| {
        header[12..16].copy_from_slice(&LEASED.octets());
    }));
    let without = read(&datagram(&options, |_| {}));
    for mode in [Mode::Proxy, Mode::Full] {
        for source_port in [68, 4011] {
            let asker = SocketAddrV4::new(LEASED, source_port);
            for request in [&with_address, &without] {
                let ack = plan(decide(request, mode, Port::Pxe4011));
                assert_eq!(ack.destination.resolve(asker, 67, 68), asker);
                let (_, reply) = on_the_wire(&ack, request);
                assert_eq!(reply.message_type, MessageType::Ack);
                assert_eq!(
                    (reply.boot_name().as_str(), reply.header.yiaddr),
                    ("snponly.efi", NOBODY)
                );
                assert_eq!(reply.header.ciaddr, request.header().ciaddr);
                assert_eq!(reply.options.get(code::MACHINE_ID), request.machine_id());
            }
        }
    }
}

/// danderson/pixiecore#21: option 97 may be missing and have any length; it comes back as it was, or not at all.
#[test]
fn pixiecore_21_the_machine_identifier_is_optional_and_echoed() {
    for identifier in [
        "",
        "61 11 00 00112233445566778899aabbccddeeff",
        "61 10 00112233445566778899aabbccddeeff",
        "61 01 07",
        "61 00",
    ] {
        for (port, kind) in [(Port::Server67, DISCOVER), (Port::Pxe4011, REQUEST)] {
            let request = request(&format!("{kind} {UEFI} {identifier}"));
            let (bytes, reply) = on_the_wire(&plan(decide(&request, Mode::Proxy, port)), &request);
            let expected = bytes_from_hex(identifier);
            assert_eq!(reply.options.get(code::MACHINE_ID), expected.get(2..), "{identifier:?}");
            assert!(
                bytes
                    .windows(expected.len().max(1))
                    .any(|part| expected.is_empty() || part == expected)
            );
        }
    }
}

/// danderson/netboot#132: both ports know the same architectures, arch 0 among them.
#[test]
fn netboot_132_both_ports_know_the_same_architectures() {
    let files = LoaderTable::default();
    for arch in 0..=0x20_u16 {
        let options = format!("3c 09 \"PXEClient\" 5d 02 {arch:04x}");
        let name = |port, kind: &str| match decide(&request(&format!("{kind} {options}")), Mode::Proxy, port) {
            netboot::dhcp::Decision::Reply(plan) => Some(plan.reply.boot_name()),
            _ => None,
        };
        let offered = name(Port::Server67, DISCOVER);
        assert_eq!(offered, name(Port::Pxe4011, REQUEST), "{arch:#06x}");
        assert_eq!(offered.is_some(), files.get(arch).is_some());
    }
    assert_eq!(
        proxy(&request(&format!("{DISCOVER} 3c 09 \"PXEClient\" 5d 02 0000")))
            .reply
            .boot_name(),
        "undionly.kpxe"
    );
}

/// krolaw/dhcp4#35, bootimus#129, systemd#2743, FreeRADIUS#591, tinkerbell/dhcp#67: a relayed client is answered
/// through its relay, whatever the broadcast bit and whoever handed the datagram over.
#[test]
fn tinkerbell_dhcp_67_a_relayed_client_is_answered_through_its_relay() {
    let relay = Ipv4Addr::new(10, 1, 2, 1);
    let peer: SocketAddrV4 = "10.9.9.9:1067".parse().unwrap();
    for flags in [[0x80, 0], [0, 0]] {
        for ciaddr in [NOBODY, LEASED] {
            for (kind, mode) in [(DISCOVER, Mode::Proxy), (DISCOVER, Mode::Full), (REQUEST, Mode::Full)] {
                let options = format!("{kind} {UEFI} 32 04 0a4d0032");
                let request = read(&datagram(&options, |header| {
                    header[10..12].copy_from_slice(&flags);
                    header[12..16].copy_from_slice(&ciaddr.octets());
                    header[24..28].copy_from_slice(&relay.octets());
                }));
                let answer = plan(decide(&request, mode, Port::Server67));
                assert_eq!(answer.destination.resolve(peer, 67, 68), SocketAddrV4::new(relay, 67));
                let (bytes, _) = on_the_wire(&answer, &request);
                assert_eq!((&bytes[10..12], &bytes[24..28]), (&flags[..], &relay.octets()[..]));
            }
        }
    }
}

/// accel-ppp#117, #105: the relay's option 82 comes back byte for byte, as the last option before the end.
#[test]
fn accel_ppp_117_relay_information_is_echoed_byte_for_byte_and_last() {
    let sample = "52 0a 01 04 00 64 00 03 02 02 ab cd";
    // A relay may also write nonsense, or more than one option can hold.
    let odd = "52 03 ff 00 ff";
    let long = "52 ff 01*255 52 05 02*5";
    for information in [sample, odd, long] {
        let circuit = bytes_from_hex(information);
        // In front of everything, and behind it.
        for options in [
            format!("{information} {UEFI}"),
            format!("{UEFI} 61 01 07 {information}"),
        ] {
            let offer = request(&format!("{DISCOVER} {options}"));
            let foreign = request(&format!("{REQUEST} 32 04 0a4d0002 {options}"));
            for (request, mode) in [(&offer, Mode::Proxy), (&offer, Mode::Full), (&foreign, Mode::Full)] {
                let (bytes, _) = on_the_wire(&plan(decide(request, mode, Port::Server67)), request);
                let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
                assert_eq!(bytes[end], code::END);
                assert_eq!(&bytes[end - circuit.len()..end], circuit, "{information}");
            }
        }
    }
}

/// infra-controller#2558: the address a client has is the one it is confirmed in, at every step of its life.
#[test]
fn infra_controller_2558_renewals_are_confirmed() {
    let discover = request(DISCOVER);
    let offer = full(&discover).reply;
    let address = offer.header.yiaddr;
    assert_eq!((offer.message_type, address), (MessageType::Offer, LEASED));
    let hex: String = address.octets().iter().map(|octet| format!("{octet:02x}")).collect();
    let selecting = request(&format!("{REQUEST} 32 04 {hex} 36 04 0a4d0001"));
    let after_restart = request(&format!("{REQUEST} 32 04 {hex}"));
    let has_it = |header: &mut [u8]| header[12..16].copy_from_slice(&address.octets());
    let renewing = read(&datagram(REQUEST, has_it));
    let renewing_by_name = read(&datagram(&format!("{REQUEST} 36 04 0a4d0001"), has_it));
    for request in [&selecting, &after_restart, &renewing, &renewing_by_name, &renewing] {
        let ack = full(request).reply;
        assert_eq!((ack.message_type, ack.header.yiaddr), (MessageType::Ack, address));
    }
    assert_eq!(full(&renewing).destination, Destination::Client(address));
}

/// coreos/bugs#1432, pfsense#3307: ROM, iPXE and system send three client identifiers and are one machine.
#[test]
fn coreos_1432_a_machine_keeps_its_address_whatever_its_client_identifier() {
    for identifier in [
        "3d 11 00 4c4c454400311058804ab4c04f4b5133",
        "3d 07 01 52 54 00 aa 00 01",
        "3d 13 ff 00aa0001 0002 0000ab11 1122334455667788",
    ] {
        let request = request(&format!("{DISCOVER} {identifier}"));
        assert_eq!(request.identity(), self::request(DISCOVER).identity());
        let (_, offer) = on_the_wire(&full(&request), &request);
        assert_eq!(offer.header.yiaddr, LEASED);
        // RFC 6842: it comes back, as it was.
        assert_eq!(offer.options.get(code::CLIENT_ID), request.client_id());
    }
}

/// An IPoIB client: hardware type 32, no hardware address at all.
fn infiniband(options: &str) -> Request {
    let change = |header: &mut [u8]| {
        header[1..3].copy_from_slice(&[0x20, 0]);
        header[10] = 0x80;
        header[28..44].fill(0);
    };
    let bytes = datagram(options, change);
    assert_eq!(bytes[..4], [0x01, 0x20, 0x00, 0x00]);
    read(&bytes)
}

/// cloud-init#4830, xcat-core#7777, #7418, warewulf3#312: two IPoIB machines with zero hardware addresses are two, each
/// known by its GUID and by the MAC that tools derive from it.
#[test]
fn xcat_7777_two_infiniband_machines_are_two() {
    let first = infiniband(&format!("{DISCOVER} {UEFI} 3d 09 20 ec 0d 9a 03 00 9c 81 e2"));
    let second = infiniband(&format!("{DISCOVER} {UEFI} 3d 09 20 ec 0d 9a 03 00 9c 81 e3"));
    let macs = [&first, &second].map(|request| request.identity().mac().unwrap().to_string());
    assert_eq!(macs, ["ec:0d:9a:9c:81:e2", "ec:0d:9a:9c:81:e3"]);
    for request in [&first, &second] {
        for mode in [Mode::Proxy, Mode::Full] {
            let answer = plan(decide(request, mode, Port::Server67));
            assert_eq!(answer.destination, Destination::Broadcast);
            let (bytes, reply) = on_the_wire(&answer, request);
            assert_eq!(bytes[1..3], [0x20, 0]);
            assert_eq!(reply.options.get(code::CLIENT_ID), request.client_id());
        }
    }
    let nameless = infiniband(&format!("{DISCOVER} {UEFI}"));
    assert_eq!(ignored(decide(&nameless, Mode::Proxy, Port::Server67)), "no_identity");
}

/// warewulf3#312: the client identifier is all by which an IPoIB client knows its answer, so it is not what a crowded
/// answer goes without.
#[test]
fn warewulf3_312_an_infiniband_client_gets_its_identifier_back_in_a_crowded_answer() {
    let crowded = format!("{DISCOVER} {UEFI} 3d 09 20 ec 0d 9a 03 00 9c 81 e2 61 11 00*17 52 e6 09*230");
    let request = infiniband(&crowded);
    let (_, reply) = on_the_wire(&full(&request), &request);
    assert_eq!(reply.options.get(code::CLIENT_ID), request.client_id());
    assert_eq!(
        reply.options.get(code::TFTP_SERVER_NAME),
        None,
        "given up instead: siaddr says the same"
    );
}

/// netboot.xyz#1198: old ROMs read option 67 up to a NUL, so one follows it, and the name stands in `file` as well.
#[test]
fn netboot_xyz_1198_the_name_ends_in_nul_wherever_it_is_read() {
    let request = request(&format!("{DISCOVER} {UEFI}"));
    let (bytes, _) = on_the_wire(&proxy(&request), &request);
    assert_eq!(&bytes[108..120], b"snponly.efi\0");
    let option = b"\x43\x0bsnponly.efi\0";
    assert!(bytes.windows(option.len()).any(|part| part == option));
    assert_eq!(&bytes[44..54], b"10.77.0.1\0");
}

/// Options that a client moved into `file` and `sname` (option 52) are options all the same.
#[test]
fn overloaded_fields_of_a_request_are_read() {
    let overloaded = |value: u8| {
        let bytes = datagram(&format!("{DISCOVER} 34 01 {value:02x}"), |header| {
            let file = bytes_from_hex("3c 09 \"PXEClient\" 5d 02 00 07 ff");
            let sname = bytes_from_hex("61 01 07 ff");
            header[108..108 + file.len()].copy_from_slice(&file);
            header[44..44 + sname.len()].copy_from_slice(&sname);
        });
        Request::decode(&bytes).map(|request| (request.client_arches(), request.machine_id().map(<[u8]>::to_vec)))
    };
    assert_eq!(overloaded(1).unwrap(), (vec![7], None));
    assert_eq!(overloaded(2).unwrap(), (vec![], Some(vec![7])));
    assert_eq!(overloaded(3).unwrap(), (vec![7], Some(vec![7])));
    assert_eq!(overloaded(4).unwrap_err().kind(), "overload");
}
