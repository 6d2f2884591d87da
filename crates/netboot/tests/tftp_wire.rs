//! Single exchanges with the TFTP server, packet by packet.

use std::time::Duration;

use netboot::tftp::packet::{FileRequest, TransferMode};
use netboot::tftp::{ErrorCode, Packet};

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

async fn first_answer(running: &Running, bytes: &[u8]) -> Answer {
    let socket = socket().await;
    socket.send_to(bytes, running.address).await.unwrap();
    let (answer, sender) = receive(&socket).await;
    socket.send_to(&error(ErrorCode::Undefined), sender).await.unwrap();
    answer
}

#[tokio::test]
async fn a_size_probe_learns_the_size_and_is_no_failure() {
    let running = start(&[("shimx64.efi", content(3000))], |_| {});
    let socket = socket().await;
    let probe = request(b"shimx64.efi", &[("tsize", "0"), ("blksize", "1468")]);
    socket.send_to(&probe, running.address).await.unwrap();
    let (answer, transfer) = receive(&socket).await;
    assert_eq!(answer, options(&[("tsize", "3000"), ("blksize", "1468")]));
    // The real request follows from the same port at once.
    socket
        .send_to(&error(ErrorCode::OptionsRefused), transfer)
        .await
        .unwrap();
    socket
        .send_to(&request(b"shimx64.efi", &[("blksize", "1468")]), running.address)
        .await
        .unwrap();
    let (answer, second) = receive(&socket).await;
    assert_eq!(answer, options(&[("blksize", "1468")]));
    assert_ne!(second, transfer);
    wait_until("the probe's end", || running.source.outcomes() == ["probed"]).await;
    assert_eq!(running.counters.get("aborted"), 0);
    running.stop().await;
}

#[tokio::test]
async fn a_probe_that_is_repeated_word_for_word_is_answered_again() {
    for is_single_port in [false, true] {
        let running = start(&[("a", content(3000))], |config| {
            config.is_single_port = is_single_port;
            config.retransmit_first = Duration::from_secs(60);
        });
        let socket = socket().await;
        let probe = request(b"a", &[("tsize", "0")]);
        socket.send_to(&probe, running.address).await.unwrap();
        let (_, mut transfer) = receive(&socket).await;
        for _ in 0..20 {
            socket
                .send_to(&error(ErrorCode::OptionsRefused), transfer)
                .await
                .unwrap();
            socket.send_to(&probe, running.address).await.unwrap();
            let (answer, sender) = receive(&socket).await;
            assert_eq!(answer, options(&[("tsize", "3000")]));
            transfer = sender;
        }
        socket.send_to(&ack(0), transfer).await.unwrap();
        assert_eq!(receive(&socket).await.0, Answer::Data(1, content(3000)[..512].to_vec()));
        running.stop().await;
    }
}

#[tokio::test]
async fn a_repeated_request_gets_the_same_answer_from_the_same_port() {
    let running = start(&[("a", content(3000))], |config| {
        config.retransmit_first = Duration::from_secs(60)
    });
    let socket = socket().await;
    let bytes = request(b"a", &[("blksize", "1024")]);
    socket.send_to(&bytes, running.address).await.unwrap();
    let first = receive(&socket).await;
    socket.send_to(&bytes, running.address).await.unwrap();
    assert_eq!(receive(&socket).await, first);
    assert_eq!(running.counters.get("started"), 1);
    running.stop().await;
}

#[tokio::test]
async fn options_that_mean_nothing_are_not_answered() {
    let running = start(&[("a", content(700))], |_| {});
    let plain = Answer::Data(1, content(700)[..512].to_vec());
    for asked in [
        ("blksize", "0"),
        ("blksize", "7"),
        ("blksize", "-1"),
        ("blksize", "99999999999"),
        ("blksize", "1468 "),
        ("windowsize", "0"),
        ("timeout", "300"),
        ("foo", "bar"),
    ] {
        assert_eq!(
            first_answer(&running, &request(b"a", &[asked])).await,
            plain,
            "{asked:?}"
        );
    }
    let mixed = request(b"a", &[("foo", "1"), ("BlkSize", "65464"), ("TSIZE", "0")]);
    assert_eq!(
        first_answer(&running, &mixed).await,
        options(&[("BlkSize", "1468"), ("TSIZE", "700")])
    );
    running.stop().await;
}

#[tokio::test]
async fn names_are_found_as_firmware_writes_them_and_lead_nowhere_else() {
    let files = [
        ("netboot.xyz.efi", content(10)),
        ("Boot/x64/wdsnbp.com", content(20)),
        ("grubx64.efi", content(30)),
    ];
    let running = start(&files, |_| {});
    for (name, length) in [
        (&b"netboot.xyz.efi\xff"[..], 10),
        (&br"\Boot\x64\wdsnbp.com"[..], 20),
        (&br"/Boot\x64\WDSNBP.COM"[..], 20),
        (&b"//grubx64.efi"[..], 30),
    ] {
        assert_eq!(
            first_answer(&running, &request(name, &[])).await,
            Answer::Data(1, content(length)),
            "{name:?}"
        );
    }
    for (name, code) in [
        (&b"../../etc/passwd"[..], ErrorCode::AccessViolation),
        (&br"..\..\etc"[..], ErrorCode::AccessViolation),
        (&b"/srv/tftp-private/x"[..], ErrorCode::NotFound),
        (&b"a/%2e%2e/b"[..], ErrorCode::NotFound),
        (&b"/etc/hostname"[..], ErrorCode::NotFound),
        (&b""[..], ErrorCode::AccessViolation),
        (&[b'a'; 600][..], ErrorCode::AccessViolation),
        (&b"secret"[..], ErrorCode::AccessViolation),
    ] {
        assert_eq!(
            first_answer(&running, &request(name, &[])).await,
            Answer::Error(code),
            "{name:?}"
        );
    }
    // A NUL ends the name early, and what follows is no mode.
    let nul = b"\x00\x01grub\0x64.efi\0octet\0";
    assert!(matches!(first_answer(&running, nul).await, Answer::Error(_)));
    running.stop().await;
}

#[tokio::test]
async fn what_is_not_served_is_said_or_dropped_and_the_server_lives_on() {
    let running = start(&[("a", content(10))], |_| {});
    let request_of = |is_write, mode| {
        Packet::Request(FileRequest {
            is_write,
            name: b"a".to_vec(),
            mode,
            options: Vec::new(),
        })
        .encode()
    };
    let write = request_of(true, TransferMode::Octet);
    assert_eq!(
        first_answer(&running, &write).await,
        Answer::Error(ErrorCode::AccessViolation)
    );
    let text = request_of(false, TransferMode::Netascii);
    assert_eq!(first_answer(&running, &text).await, Answer::Error(ErrorCode::Undefined));
    let no_mode = b"\x00\x01a\0";
    assert_eq!(
        first_answer(&running, no_mode).await,
        Answer::Error(ErrorCode::IllegalOperation)
    );
    let socket = socket().await;
    for junk in [
        &b""[..],
        &b"\0"[..],
        &b"\0\x09abc\0octet\0"[..],
        &b"\0\x05\0\0x\0"[..],
        &ack(7),
        &[0xff; 2000],
    ] {
        socket.send_to(junk, running.address).await.unwrap();
    }
    assert_eq!(
        first_answer(&running, &request(b"a", &[])).await,
        Answer::Data(1, content(10))
    );
    for (kind, count) in [
        ("too_short", 2),
        ("opcode", 1),
        ("stray", 2),
        ("too_long", 1),
        ("write_refused", 1),
    ] {
        wait_until(kind, || running.counters.get(kind) >= count).await;
    }
    running.stop().await;
}

#[tokio::test]
async fn a_stranger_is_turned_away_and_changes_nothing() {
    let running = start(&[("a", content(2000))], |config| {
        config.retransmit_first = Duration::from_secs(60)
    });
    let (socket, stranger) = (socket().await, socket().await);
    socket.send_to(&request(b"a", &[]), running.address).await.unwrap();
    let (_, transfer) = receive(&socket).await;
    for packet in [ack(1), error(ErrorCode::Undefined)] {
        stranger.connect(transfer).await.unwrap();
        stranger.send(&packet).await.unwrap();
        // By the kernel (ICMP port unreachable).
        let told = tokio::time::timeout(Duration::from_secs(10), stranger.recv(&mut [0; 16])).await;
        assert_eq!(told.unwrap().unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    }
    socket.send_to(&ack(1), transfer).await.unwrap();
    assert_eq!(
        receive(&socket).await.0,
        Answer::Data(2, content(2000)[512..1024].to_vec()),
        "and not block 3"
    );
    running.stop().await;
}

#[tokio::test]
async fn a_doubled_acknowledgement_is_answered_once() {
    let running = start(&[("a", content(2000))], |config| {
        config.retransmit_first = Duration::from_secs(60)
    });
    let socket = socket().await;
    socket.send_to(&request(b"a", &[]), running.address).await.unwrap();
    let (_, transfer) = receive(&socket).await;
    for block in [1, 1, 2] {
        socket.send_to(&ack(block), transfer).await.unwrap();
    }
    let numbers: Vec<u16> = [receive(&socket).await.0, receive(&socket).await.0]
        .into_iter()
        .map(|answer| {
            if let Answer::Data(block, _) = answer {
                block
            } else {
                panic!("{answer:?}")
            }
        })
        .collect();
    assert_eq!(numbers, [2, 3]);
    running.stop().await;
}

#[tokio::test]
async fn a_lost_last_acknowledgement_brings_the_last_block_again() {
    let running = start(&[("a", content(10))], |_| {});
    let socket = socket().await;
    socket.send_to(&request(b"a", &[]), running.address).await.unwrap();
    let first = receive(&socket).await;
    assert_eq!(receive(&socket).await, first);
    socket.send_to(&ack(1), first.1).await.unwrap();
    wait_until("the end", || running.source.outcomes() == ["complete"]).await;
    running.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_silent_frees_its_place() {
    let running = start(&[("a", content(5000))], |config| {
        config.transfers_max = 1;
        config.timeouts_max = 2;
        config.retransmit_first = Duration::from_millis(5);
    });
    let gone = socket().await;
    gone.send_to(&request(b"a", &[]), running.address).await.unwrap();
    wait_until("silence", || running.source.outcomes() == ["silent"]).await;
    let found = read(running.address, "a", &[], Trouble::default()).await.unwrap();
    assert_eq!(found.0, content(5000));
    running.stop().await;
}

#[tokio::test]
async fn beyond_the_bound_requests_wait_until_a_transfer_ends() {
    let running = start(&[("a", content(5000))], |config| {
        config.transfers_max = 1;
        config.retransmit_first = Duration::from_secs(60);
    });
    let first = socket().await;
    first.send_to(&request(b"a", &[]), running.address).await.unwrap();
    let (_, transfer) = receive(&first).await;
    let second = socket().await;
    second.send_to(&request(b"a", &[]), running.address).await.unwrap();
    wait_until("the second is dropped", || running.counters.get("busy") == 1).await;
    first.send_to(&error(ErrorCode::Undefined), transfer).await.unwrap();
    wait_until("the first ends", || running.counters.get("aborted") == 1).await;
    // The client asks again by itself, as firmware does.
    let found = read(running.address, "a", &[], Trouble::default()).await.unwrap();
    assert_eq!(found.0, content(5000));
    running.stop().await;
}

#[tokio::test]
async fn a_lost_block_comes_again_sooner_once_the_round_trip_is_known() {
    let first_wait = Duration::from_secs(2);
    let running = start(&[("a", content(5000))], |config| config.retransmit_first = first_wait);
    let socket = socket().await;
    socket.send_to(&request(b"a", &[]), running.address).await.unwrap();
    let (_, transfer) = receive(&socket).await;
    socket.send_to(&ack(1), transfer).await.unwrap();
    let (second, _) = receive(&socket).await;
    let asked = std::time::Instant::now();
    assert_eq!(receive(&socket).await.0, second);
    assert!(asked.elapsed() < first_wait * 3 / 4, "{:?}", asked.elapsed());
    socket.send_to(&error(ErrorCode::Undefined), transfer).await.unwrap();
    running.stop().await;
}
