//! Cases from the field, TFTP: the bytes that were sent there, and what is right.

use std::net::IpAddr;
use std::time::Duration;

use netboot::rate::Rate;
use netboot::tftp::transfer::{Action, Event};
use netboot::tftp::{Agreed, ErrorCode, FileName, Limits, Packet, Rollover, Transfer};

use crate::support::wait_until;
use crate::tftp_client::*;

fn options(pairs: &[(&str, &str)]) -> Answer {
    Answer::Options(
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
    )
}

/// No retransmission while the test looks.
fn patient(config: &mut netboot::tftp::TftpConfig) {
    config.retransmit_first = Duration::from_secs(60);
    config.retransmit_max = Duration::from_secs(60);
}

async fn first_answer(running: &Running, bytes: &[u8]) -> Answer {
    let socket = socket().await;
    socket.send_to(bytes, running.address).await.unwrap();
    let (answer, sender) = receive(&socket).await;
    socket.send_to(&error(ErrorCode::Undefined), sender).await.unwrap();
    answer
}

/// Everything the server says, in order, until it has nothing more to say.
async fn drain(socket: &tokio::net::UdpSocket) -> Vec<Answer> {
    let mut answers = Vec::new();
    while let Some((answer, _)) = receive_within(socket, Duration::from_millis(300)).await {
        answers.push(answer);
    }
    answers
}

fn blocks(answers: &[Answer]) -> Vec<u16> {
    answers
        .iter()
        .map(|answer| match answer {
            Answer::Data(block, _) => *block,
            other => panic!("{other:?}"),
        })
        .collect()
}

/// netboot.xyz#1198: a name with the end mark of the DHCP options behind it is the name without it.
#[tokio::test]
async fn netboot_xyz_1198_a_name_with_a_trailing_0xff_is_found() {
    let running = start(&[("netboot.xyz.efi", content(10))], |_| {});
    for bytes in [
        &b"\x00\x01netboot.xyz.efi\xff\0octet\0"[..],
        &b"\x00\x01netboot.xyz.efi\xff\x0d\x0a\0octet\0"[..],
        &b"\x00\x01netboot.xyz.efi\x80\xfe\0octet\0"[..],
    ] {
        assert_eq!(first_answer(&running, bytes).await, Answer::Data(1, content(10)));
    }
    assert_eq!(running.counters.get("name_trimmed"), 3);
    let elsewhere = first_answer(&running, b"\x00\x01other.efi\xff\0octet\0").await;
    assert_eq!(elsewhere, Answer::Error(ErrorCode::NotFound));
    running.stop().await;
}

/// rs-tftpd#24, shim#524, #300, puppet-tftp#1: backslashes, doubled and leading slashes, and case.
#[tokio::test]
async fn shim_524_slashes_and_case_are_as_firmware_likes() {
    let files = [("Boot/x64/wdsnbp.com", content(20)), ("grubx64.efi", content(30))];
    let running = start(&files, |_| {});
    for (name, length) in [
        (&br"\Boot\x64\wdsnbp.com"[..], 20),
        (&br"/Boot\x64\wdsnbp.com"[..], 20),
        (&br"/BOOT\X64\WDSNBP.COM"[..], 20),
        (&b"Boot//x64/./wdsnbp.com"[..], 20),
        (&b"//grubx64.efi"[..], 30),
        (&b"GRUBX64.EFI"[..], 30),
    ] {
        let answer = first_answer(&running, &request(name, &[])).await;
        assert_eq!(answer, Answer::Data(1, content(length)), "{}", name.escape_ascii());
    }
    running.stop().await;
}

/// shim#696: shim asks for names made of a boot entry's label, which may not even be text. The source is asked what
/// comes next for this machine; names that lead out are refused all the same.
#[tokio::test]
async fn shim_696_a_garbage_name_gets_what_comes_next() {
    let running = start(&[("grubx64.efi", content(30))], |_| {});
    for name in [
        &b"grub/\xffOnboard"[..],
        &b"grub/\xef\xbf\xbdOnboard"[..],
        &b"loader/\x01USB"[..],
        &b"grub/Onboard NIC (IPv4)"[..],
        &b"grub/"[..],
        &b""[..],
    ] {
        let asked = request(name, &[]);
        running.source.set_default(None);
        assert!(
            matches!(first_answer(&running, &asked).await, Answer::Error(_)),
            "{name:?}"
        );
        running.source.set_default(Some("grubx64.efi"));
        assert_eq!(
            first_answer(&running, &asked).await,
            Answer::Data(1, content(30)),
            "{name:?}"
        );
    }
    for name in [&b"../\xffOnboard"[..], &b"../../etc/passwd"[..], &[b'a'; 600][..]] {
        let answer = first_answer(&running, &request(name, &[])).await;
        assert!(matches!(answer, Answer::Error(ErrorCode::AccessViolation)), "{name:?}");
    }
    running.stop().await;
}

/// pin/tftp#125, py3tftp#9: EDK II asks for the size, breaks off with error 8, and then really reads. That is no
/// failure: the transfer is freed and nothing is sent again.
#[tokio::test]
async fn pin_tftp_125_a_size_probe_is_no_failure() {
    for is_single_port in [false, true] {
        let running = start(&[("shimx64.efi", content(3000))], |config| {
            config.is_single_port = is_single_port;
        });
        let socket = socket().await;
        let probe = b"\x00\x01shimx64.efi\0octet\0tsize\x000\0blksize\x001468\0";
        socket.send_to(probe, running.address).await.unwrap();
        let (answer, transfer) = receive(&socket).await;
        assert_eq!(answer, options(&[("tsize", "3000"), ("blksize", "1468")]));
        let abort = b"\x00\x05\x00\x08User aborted the transfer\0";
        socket.send_to(abort, transfer).await.unwrap();
        wait_until("the probe's end", || running.source.outcomes() == ["probed"]).await;
        while receive_within(&socket, Duration::from_millis(100)).await.is_some() {}
        let read_for_real = b"\x00\x01shimx64.efi\0octet\0blksize\x001468\0";
        socket.send_to(read_for_real, running.address).await.unwrap();
        assert_eq!(receive(&socket).await.0, options(&[("blksize", "1468")]));
        for kind in ["aborted", "silent", "too_slow"] {
            assert_eq!(running.counters.get(kind), 0, "{kind}");
        }
        running.stop().await;
    }
}

/// pin/tftp#125: error 8 at the option acknowledgement is no failure whatever was asked for.
#[tokio::test]
async fn pin_tftp_125_options_that_are_not_liked_are_no_failure() {
    let running = start(&[("a", content(3000))], patient);
    let socket = socket().await;
    socket
        .send_to(b"\x00\x01a\0octet\0blksize\x001468\0", running.address)
        .await
        .unwrap();
    let (_, transfer) = receive(&socket).await;
    socket
        .send_to(&error(ErrorCode::OptionsRefused), transfer)
        .await
        .unwrap();
    wait_until("the end", || running.source.outcomes() == ["probed"]).await;
    assert_eq!(running.counters.get("aborted"), 0);
    running.stop().await;
}

/// PyPXE#128, node-tftp#13: only what was asked for comes back, in the client's spelling; without any of it the first
/// block is the answer.
#[tokio::test]
async fn pypxe_128_only_options_that_were_asked_for_come_back() {
    let running = start(&[("a", content(700))], |_| {});
    for (asked, answered) in [
        (&[("TSIZE", "0")][..], &[("TSIZE", "700")][..]),
        (&[("blkSize", "1024")], &[("blkSize", "1024")]),
        (
            &[("foo", "1"), ("BlkSize", "512"), ("multicast", ""), ("tsize", "0")],
            &[("BlkSize", "512"), ("tsize", "700")],
        ),
        (
            &[("windowsize", "4"), ("timeout", "3")],
            &[("windowsize", "4"), ("timeout", "3")],
        ),
    ] {
        assert_eq!(first_answer(&running, &request(b"a", asked)).await, options(answered));
    }
    let plain = Answer::Data(1, content(700)[..512].to_vec());
    for asked in [&[][..], &[("foo", "bar")], &[("multicast", "")]] {
        assert_eq!(first_answer(&running, &request(b"a", asked)).await, plain);
    }
    running.stop().await;
}

/// uftpd#45, tftp.net#6, tftpy#36, otp#965: a file of more than 65,535 blocks arrives whole, on the wire.
#[tokio::test]
async fn uftpd_45_a_file_of_65537_blocks_arrives_whole() {
    let running = start(&[("a", content(524_289))], |_| {});
    let small_blocks = [("blksize", "8"), ("windowsize", "64")];
    let (found, _) = read(running.address, "a", &small_blocks, Trouble::default())
        .await
        .unwrap();
    assert!(found == content(524_289));
    wait_until("the end", || running.source.outcomes() == ["complete"]).await;
    running.stop().await;
}

/// uftpd#45: a size that is a multiple of the block size ends with an empty block, at the roll-over too.
#[tokio::test]
async fn uftpd_45_an_exact_multiple_ends_with_an_empty_block() {
    let sizes = [0, 512, 1024, 8 * 65_535, 8 * 65_536];
    let files: Vec<(String, Vec<u8>)> = sizes.iter().map(|size| (format!("f{size}"), content(*size))).collect();
    let files: Vec<(&str, Vec<u8>)> = files
        .iter()
        .map(|(name, bytes)| (name.as_str(), bytes.clone()))
        .collect();
    let running = start(&files, |_| {});
    for (name, expected) in &files {
        let asked: &[(&str, &str)] = if expected.len() > 2000 {
            &[("blksize", "8"), ("windowsize", "64")]
        } else {
            &[]
        };
        let (found, packets) = read(running.address, name, asked, Trouble::default()).await.unwrap();
        assert!(found == *expected, "{name}");
        let block_bytes = if asked.is_empty() { 512 } else { 8 };
        assert!(
            packets > (expected.len() / block_bytes) as u64,
            "{name}: {packets} packets"
        );
    }
    running.stop().await;
}

/// rs-tftpd#49, tftpy#41, PyPXE#98, uftpd#44: ACK 1, ACK 1, ACK 2 sends blocks 2 and 3, each once.
#[tokio::test]
async fn tftpy_41_a_doubled_acknowledgement_sends_nothing() {
    let running = start(&[("a", content(3000))], patient);
    let socket = socket().await;
    socket.send_to(b"\x00\x01a\0octet\0", running.address).await.unwrap();
    let (first, transfer) = receive(&socket).await;
    assert_eq!(blocks(&[first]), [1]);
    for bytes in [[0, 4, 0, 1], [0, 4, 0, 1], [0, 4, 0, 2], [0, 4, 0, 1]] {
        socket.send_to(&bytes, transfer).await.unwrap();
    }
    assert_eq!(blocks(&drain(&socket).await), [2, 3]);
    running.stop().await;
}

/// tftpy#41: what was lost is sent again by the timer, with the same content.
#[tokio::test]
async fn tftpy_41_a_lost_block_comes_again_with_its_own_content() {
    let running = start(&[("a", content(3000))], |_| {});
    let socket = socket().await;
    socket.send_to(b"\x00\x01a\0octet\0", running.address).await.unwrap();
    let (_, transfer) = receive(&socket).await;
    socket.send_to(&ack(1), transfer).await.unwrap();
    let second = receive(&socket).await.0;
    assert_eq!(second, Answer::Data(2, content(3000)[512..1024].to_vec()));
    assert_eq!(receive(&socket).await.0, second, "as if it was lost");
    running.stop().await;
}

/// rs-tftpd#49: ACK 3 after a window of 16 was sent goes back to block 4.
#[tokio::test]
async fn rs_tftpd_49_a_window_acknowledged_in_part_rewinds() {
    let whole = content(100 * 512);
    let running = start(&[("a", whole.clone())], patient);
    let socket = socket().await;
    socket
        .send_to(b"\x00\x01a\0octet\0windowsize\x0016\0", running.address)
        .await
        .unwrap();
    let (answer, transfer) = receive(&socket).await;
    assert_eq!(answer, options(&[("windowsize", "16")]));
    socket.send_to(&ack(0), transfer).await.unwrap();
    assert_eq!(blocks(&drain(&socket).await), (1..=16).collect::<Vec<u16>>());
    socket.send_to(&ack(3), transfer).await.unwrap();
    let again = drain(&socket).await;
    assert_eq!(blocks(&again), (4..=19).collect::<Vec<u16>>());
    assert_eq!(again[0], Answer::Data(4, whole[3 * 512..4 * 512].to_vec()));
    running.stop().await;
}

/// raspberrypi/firmware#1041: the same request again is the same transfer: the same answer, from the same port. Another
/// file asked for from that port is another transfer.
#[tokio::test]
async fn raspberrypi_1041_a_repeated_request_gets_the_same_answer_from_the_same_port() {
    for is_single_port in [false, true] {
        let running = start(&[("a", content(3000)), ("b", content(4000))], |config| {
            patient(config);
            config.is_single_port = is_single_port;
        });
        let socket = socket().await;
        let asked = request(b"a", &[("tsize", "0"), ("blksize", "1024")]);
        socket.send_to(&asked, running.address).await.unwrap();
        let first = receive(&socket).await;
        assert_eq!(first.0, options(&[("tsize", "3000"), ("blksize", "1024")]));
        for _ in 0..3 {
            socket.send_to(&asked, running.address).await.unwrap();
            assert_eq!(receive(&socket).await, first);
        }
        assert_eq!(running.counters.get("started"), 1);
        let other = request(b"b", &[("tsize", "0")]);
        socket.send_to(&other, running.address).await.unwrap();
        let (answer, port) = receive(&socket).await;
        assert_eq!(answer, options(&[("tsize", "4000")]));
        assert_eq!(port == first.1, is_single_port);
        // Another machine with the same name is nobody's repetition.
        let second = self::socket().await;
        second.send_to(&asked, running.address).await.unwrap();
        assert_eq!(receive(&second).await.0, first.0);
        assert_eq!(running.counters.get("started"), 3);
        running.stop().await;
    }
}

/// edk2#7632, tftpd64#41, crowbar-core#1078, shim#618: block sizes are answered up to a cap that can be set; what makes
/// no sense is not asked.
#[tokio::test]
async fn edk2_7632_block_sizes_are_capped_and_nonsense_is_not_asked() {
    let running = start(&[("a", content(5000))], |_| {});
    for (asked, answered) in [
        ("8", "8"),
        ("512", "512"),
        ("1024", "1024"),
        ("1468", "1468"),
        ("65464", "1468"),
    ] {
        let answer = first_answer(&running, &request(b"a", &[("blksize", asked)])).await;
        assert_eq!(answer, options(&[("blksize", answered)]));
    }
    let plain = Answer::Data(1, content(5000)[..512].to_vec());
    for asked in ["0", "7", "65465", "65536", "99999999999", "-1", "1468 ", "+512", ""] {
        let answer = first_answer(&running, &request(b"a", &[("blksize", asked)])).await;
        assert_eq!(answer, plain, "{asked:?}");
    }
    running.stop().await;
    let careful = start(&[("a", content(5000))], |config| {
        config.limits = Limits {
            block_bytes_max: 1024,
            window_blocks_max: 4,
        };
    });
    let greedy = request(b"a", &[("blksize", "65464"), ("windowsize", "65535")]);
    let answer = first_answer(&careful, &greedy).await;
    assert_eq!(answer, options(&[("blksize", "1024"), ("windowsize", "4")]));
    careful.stop().await;
}

/// edk2#7632: the largest blocks and windows that can be written into a request cost a bounded amount of memory.
#[test]
fn edk2_7632_a_greedy_request_is_bounded() {
    let Packet::Request(greedy) = Packet::decode(b"\x00\x01a\0octet\0blksize\x0065464\0windowsize\x0065535\0").unwrap()
    else {
        panic!()
    };
    let file_bytes = 5 << 30;
    let agreed = Agreed::negotiate(&greedy.options, file_bytes, &Limits::default());
    let mut transfer = Transfer::new(file_bytes, &agreed, Rollover::Zero, 3);
    assert_eq!(transfer.step(Event::Started), Action::SendOptions);
    let Action::SendBlocks { first: 1, count } = transfer.step(Event::Acked(0)) else {
        panic!()
    };
    let largest = (1..=count)
        .map(|block| transfer.block_range(block))
        .map(|range| range.end - range.start)
        .max();
    assert_eq!((count, largest), (64, Some(1468)));
    // The state of a transfer holds no block and no window.
    assert!(size_of::<Transfer>() <= 128);
}

/// tftpy#110, ptftpd#4, CVE-2026-21620: a name is a key of a map; what would lead elsewhere is refused.
#[tokio::test]
async fn cve_2026_21620_no_name_leads_out() {
    let running = start(&[("grubx64.efi", content(30)), ("x", content(1))], |_| {});
    for (bytes, code) in [
        (&b"\x00\x01../../etc/passwd\0octet\0"[..], ErrorCode::AccessViolation),
        (&b"\x00\x01..\\..\\etc\0octet\0"[..], ErrorCode::AccessViolation),
        (&b"\x00\x01/srv/tftp/../x\0octet\0"[..], ErrorCode::AccessViolation),
        (&b"\x00\x01/srv/tftp-private/x\0octet\0"[..], ErrorCode::NotFound),
        (&b"\x00\x01a/%2e%2e/b\0octet\0"[..], ErrorCode::NotFound),
        (&b"\x00\x01grub\0x64.efi\0octet\0"[..], ErrorCode::IllegalOperation),
        (
            &[&b"\x00\x01"[..], &[b'a'; 600], b"\0octet\0"].concat(),
            ErrorCode::AccessViolation,
        ),
        (&b"\x00\x01grubx64.efi\0"[..], ErrorCode::IllegalOperation),
        (&b"\x00\x01grubx64.efi"[..], ErrorCode::IllegalOperation),
    ] {
        let answer = first_answer(&running, bytes).await;
        assert_eq!(answer, Answer::Error(code), "{}", bytes.escape_ascii());
    }
    running.stop().await;
}

/// CVE-2026-21620: what is left of a name has no component that means another folder, whatever bytes it was made of.
#[test]
fn cve_2026_21620_names_are_refused_by_their_components() {
    for name in [
        "..", "a/..", "a/../b", "..\\a", "a\\..", "/..", ".\\..", "../", "..//..",
    ] {
        assert!(FileName::candidates(name.as_bytes()).is_err(), "{name}");
    }
    for name in ["..a", "a..", "...", "a/..b", "%2e%2e/a"] {
        assert!(
            FileName::candidates(name.as_bytes()).is_ok(),
            "{name} is odd and leads nowhere"
        );
    }
}

/// linuxserver/docker-netbootxyz#39, helm-charts#11738, deployment-recipes#86: in single-port mode everything comes from
/// the port that was asked, for several readers at once.
#[tokio::test]
async fn docker_netbootxyz_39_single_port_mode_answers_from_the_port_that_was_asked() {
    let running = start(&[("a", content(3000)), ("b", content(3000))], |config| {
        patient(config);
        config.is_single_port = true;
    });
    let (one, two) = (socket().await, socket().await);
    one.send_to(&request(b"a", &[]), running.address).await.unwrap();
    two.send_to(&request(b"b", &[]), running.address).await.unwrap();
    for socket in [&one, &two] {
        let (answer, sender) = receive(socket).await;
        assert_eq!((blocks(&[answer]), sender), (vec![1], running.address));
    }
    one.send_to(&ack(1), running.address).await.unwrap();
    assert_eq!(
        receive(&one).await,
        (Answer::Data(2, content(3000)[512..1024].to_vec()), running.address)
    );
    assert_eq!(
        receive_within(&two, Duration::from_millis(100)).await,
        None,
        "the other one's acknowledgement"
    );
    running.stop().await;
}

/// docker-netbootxyz#39: a host with several addresses answers from the one that was asked.
#[tokio::test]
async fn docker_netbootxyz_39_a_host_with_several_addresses_answers_from_the_right_one() {
    let running = start(&[("a", content(5000))], |config| {
        config.listen = "127.0.0.7:0".parse().unwrap();
    });
    let socket = socket().await;
    let port = running.address.port();
    socket.send_to(&request(b"a", &[]), ("127.0.0.7", port)).await.unwrap();
    assert_eq!(receive(&socket).await.1.ip(), "127.0.0.7".parse::<IpAddr>().unwrap());
    running.stop().await;
}

/// A packet from a foreign port is no part of the transfer, which goes on (RFC 1350 section 4). A transfer's own socket
/// does not even get it.
#[tokio::test]
async fn a_foreign_source_port_changes_nothing() {
    for is_single_port in [false, true] {
        let running = start(&[("a", content(2000))], |config| {
            patient(config);
            config.is_single_port = is_single_port;
        });
        let (socket, stranger) = (socket().await, socket().await);
        socket.send_to(&request(b"a", &[]), running.address).await.unwrap();
        let (_, transfer) = receive(&socket).await;
        for packet in [ack(1), error(ErrorCode::Undefined)] {
            stranger.send_to(&packet, transfer).await.unwrap();
        }
        let seen = if is_single_port { 2 } else { 0 };
        wait_until("the stranger is seen", || running.counters.get("stray") == seen).await;
        socket.send_to(&ack(1), transfer).await.unwrap();
        let answer = receive(&socket).await.0;
        assert_eq!(
            answer,
            Answer::Data(2, content(2000)[512..1024].to_vec()),
            "and not block 3"
        );
        running.stop().await;
    }
}

/// A machine that asks without end is held back; another one at another address is not.
#[tokio::test]
async fn a_machine_that_asks_without_end_is_held_back_alone() {
    let running = start(&[("a", content(10))], |config| {
        config.listen = "0.0.0.0:0".parse().unwrap();
        config.rate.client = Rate { burst: 5, per_sec: 1 };
    });
    let flood = socket().await;
    for _ in 0..50 {
        flood.send_to(&request(b"nothing", &[]), running.address).await.unwrap();
    }
    wait_until("most of it is dropped", || {
        running.counters.get("client_too_often") >= 40
    })
    .await;
    let other = tokio::net::UdpSocket::bind("127.0.0.9:0").await.unwrap();
    other.send_to(&request(b"a", &[]), running.address).await.unwrap();
    assert_eq!(receive(&other).await.0, Answer::Data(1, content(10)));
    running.stop().await;
}
