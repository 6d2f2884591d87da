//! What holds for any bytes: shared by the fuzz targets and by the test that replays their corpus.

use std::net::Ipv4Addr;

use netboot::MacAddr;
use netboot::dhcp::{Context, Decision, LeaseOffer, LoaderTable, Mode, NodeStanding, Port, Reply, Request, answer};
use netboot::script::{DeployerBoot, Language, boot_local, deployer, refuse};
use netboot::tftp::transfer::{Action, Event};
use netboot::tftp::{Agreed, ErrorCode, FileName, Limits, Packet, Rollover, Transfer};

/// A DHCP datagram: decoding, deciding and answering never panic, and what was read is written back the same.
pub fn dhcp(bytes: &[u8]) {
    let _ = Reply::decode(bytes);
    let Ok(request) = Request::decode(bytes) else { return };
    let _ = request.to_string();
    let written = request.encode().expect("a request that was read can be written");
    let again = Request::decode(&written).expect("and read again");
    assert_eq!(again.message_type(), request.message_type());
    assert_eq!(again.identity(), request.identity());
    let loaders = LoaderTable::default();
    let lease = LeaseOffer {
        ip: Ipv4Addr::new(10, 77, 0, 50),
        subnet_mask: Ipv4Addr::new(255, 255, 255, 0),
        router: None,
        dns: Vec::new(),
        lease_secs: 600,
    };
    for mode in [Mode::Proxy, Mode::Full] {
        for port in [Port::Server67, Port::Pxe4011] {
            let context = Context {
                mode,
                server_ip: Ipv4Addr::new(10, 77, 0, 1),
                http_base: "http://10.77.0.1:8081",
                node: NodeStanding::Listed,
                lease: Some(&lease),
                loaders: &loaders,
                port,
            };
            let Decision::Reply(plan) = answer(&request, &context) else {
                continue;
            };
            let written = plan
                .reply
                .encode(request.max_message_bytes())
                .expect("every reply can be written");
            let read = Reply::decode(&written).expect("and read");
            assert_eq!(read.options.get(82), request.relay_agent_info());
            assert_eq!(read.options.get(97), request.machine_id());
        }
    }
}

/// A TFTP datagram: decoding never panics, what was read is written back the same, names never lead out, and whatever
/// was agreed on leads to a transfer that ends.
pub fn tftp(bytes: &[u8]) {
    let Ok(packet) = Packet::decode(bytes) else { return };
    let written = packet.encode();
    assert_eq!(Packet::decode(&written).as_ref(), Ok(&packet));
    let Packet::Request(request) = packet else { return };
    for name in FileName::candidates(&request.name).unwrap_or_default() {
        let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        assert!(name.as_str().split('/').all(is_plain));
    }
    let limits = Limits::default();
    let agreed = Agreed::negotiate(&request.options, 5000, &limits);
    assert!((8..=limits.block_bytes_max).contains(&agreed.block_bytes));
    assert!((1..=limits.window_blocks_max).contains(&agreed.window_blocks));
    for option in agreed.answer.iter().flatten() {
        assert!(request.options.iter().any(|asked| asked.name == option.name));
    }
    let mut transfer = Transfer::new(5000, &agreed, Rollover::Zero, 3);
    let mut action = transfer.step(Event::Started);
    // One acknowledgement for each block at most, and one for the options.
    for _ in 0..=transfer.last_block() {
        action = match action {
            Action::SendOptions => transfer.step(Event::Acked(0)),
            Action::SendBlocks { first, count } => {
                let last = first + count - 1;
                assert!(transfer.block_range(last).end <= 5000);
                transfer.step(Event::Acked(transfer.wire_number(last)))
            }
            Action::Finish(outcome) => return assert!(!outcome.is_failure()),
            Action::Nothing => panic!("a transfer that is answered goes on"),
        };
    }
    assert!(matches!(action, Action::Finish(_)), "{action:?}");
    assert!(matches!(
        Transfer::new(5000, &agreed, Rollover::Zero, 3).step(Event::PeerError(ErrorCode::Undefined)),
        Action::Finish(_)
    ));
}

/// Text from outside that names a machine or is shown at the rack: an address is the same in its canonical spelling,
/// and no text adds a line or a variable to a script.
pub fn boot_text(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(mac) = text.parse::<MacAddr>() {
        assert_eq!(mac.to_string().parse(), Ok(mac));
    }
    for language in [Language::Ipxe, Language::Grub] {
        let same_frame = |script: &str, quiet: &str| {
            assert_eq!(script.lines().count(), quiet.lines().count());
            for mark in ["$", "`", "\"", "'", "\\", "&&", "||", "{", "}"] {
                assert_eq!(
                    script.matches(mark).count(),
                    quiet.matches(mark).count(),
                    "{mark} in {script}"
                );
            }
        };
        same_frame(&refuse(language, &text), &refuse(language, "x"));
        same_frame(
            &boot_local(language, &text, &text, &text),
            &boot_local(language, "x", "x", "x"),
        );
        let boot = |title: &str, command_line: &str, path: &str| DeployerBoot {
            http_base: "http://10.77.0.1:8081".to_owned(),
            kernel_path: path.to_owned(),
            initrd_paths: vec![path.to_owned()],
            command_line: command_line.to_owned(),
            title: title.to_owned(),
            script_url: Some("http://10.77.0.1:8081/s?mac=x".to_owned()),
        };
        let quiet = deployer(language, &boot("x", "x", "/x")).expect("plain values");
        let titled = deployer(language, &boot(&text, "x", "/x")).expect("any title");
        same_frame(&titled, &quiet);
        for boot in [boot("x", &text, "/x"), boot("x", "x", &text)] {
            if let Ok(script) = deployer(language, &boot) {
                assert_eq!(script.lines().count(), quiet.lines().count());
            }
        }
    }
}
