use super::*;
use proptest::prelude::*;

fn client(bytes: usize, block_bytes: u16, window_blocks: u16) -> (Client, Arc<[u8]>) {
    let content: Arc<[u8]> = (0..bytes).map(|byte| u8::try_from(byte % 251).unwrap()).collect();
    let ask = Ask {
        name: "load.bin".to_owned(),
        content: Arc::clone(&content),
        block_bytes,
        window_blocks,
    };
    (Client::new(Arc::new(ask), 3), content)
}

fn data(content: &[u8], block_bytes: usize, block: usize) -> Vec<u8> {
    let start = ((block - 1) * block_bytes).min(content.len());
    let payload = &content[start..(start + block_bytes).min(content.len())];
    let number = u16::try_from(block % 65536).unwrap().to_be_bytes();
    [&[0, 3][..], &number, payload].concat()
}

fn ack(number: u16) -> Vec<u8> {
    [[0, 4], number.to_be_bytes()].concat()
}

#[test]
fn the_request_asks_for_what_the_load_is_about() {
    let mut out = Vec::new();
    client(1, 1468, 1).0.request(&mut out);
    assert_eq!(out, b"\0\x01load.bin\0octet\0tsize\x000\0blksize\x001468\0");
    client(1, 1468, 16).0.request(&mut out);
    assert!(out.ends_with(b"\0windowsize\x0016\0"));
}

#[test]
fn a_file_is_read_in_lock_step_and_a_repeated_block_acknowledged_again() {
    let (mut client, content) = client(20, 8, 1);
    let mut out = Vec::new();
    assert_eq!(
        client.packet(b"\0\x06tsize\x0020\0blksize\x008\0", &mut out),
        Step::Send
    );
    assert_eq!(out, ack(0));
    assert_eq!(client.packet(&data(&content, 8, 1), &mut out), Step::Send);
    assert_eq!(client.packet(&data(&content, 8, 1), &mut out), Step::Send);
    assert_eq!(out, ack(1));
    assert_eq!(client.packet(&data(&content, 8, 2), &mut out), Step::Send);
    assert_eq!(client.packet(&data(&content, 8, 3), &mut out), Step::Complete);
    assert_eq!((out, client.counts().duplicates), (ack(3), 1));
}

#[test]
fn a_size_that_divides_evenly_ends_with_an_empty_block() {
    let (mut client, content) = client(512, 512, 1);
    let mut out = Vec::new();
    assert_eq!(client.packet(&data(&content, 512, 1), &mut out), Step::Send);
    assert_eq!(client.packet(&data(&content, 512, 2), &mut out), Step::Complete);
}

#[test]
fn a_window_is_acknowledged_once_and_a_gap_told_of_once() {
    let (mut client, content) = client(64, 8, 4);
    let mut out = Vec::new();
    client.packet(b"\0\x06blksize\x008\0windowsize\x004\0", &mut out);
    for block in 1..4 {
        assert_eq!(client.packet(&data(&content, 8, block), &mut out), Step::Progress);
    }
    assert_eq!(client.packet(&data(&content, 8, 4), &mut out), Step::Send);
    assert_eq!(out, ack(4));
    // Block 5 is lost.
    assert_eq!(client.packet(&data(&content, 8, 6), &mut out), Step::Send);
    assert_eq!(out, ack(4));
    assert_eq!(client.packet(&data(&content, 8, 7), &mut out), Step::Nothing);
    assert_eq!(client.packet(&data(&content, 8, 5), &mut out), Step::Progress);
    assert_eq!(client.counts().gaps, 2);
}

#[test]
fn numbers_roll_over_to_zero() {
    let (mut client, content) = client(65537 * 8 + 1, 8, 1);
    let mut out = Vec::new();
    client.packet(b"\0\x06blksize\x008\0", &mut out);
    for block in 1..65538 {
        assert_eq!(
            client.packet(&data(&content, 8, block), &mut out),
            Step::Send,
            "{block}"
        );
    }
    assert_eq!(out, ack(1));
    assert_eq!(client.packet(&data(&content, 8, 65538), &mut out), Step::Complete);
}

#[test]
fn what_was_not_asked_and_what_is_not_the_file_fails() {
    for (what, bytes) in [
        ("wrong content", &b"\0\x03\0\x01nonsense"[..]),
        ("cut short", &b"\0\x03\0\x01\x00\x01"[..]),
        ("larger block than asked", b"\0\x06blksize\x009\0"),
        ("window that was not asked for", b"\0\x06windowsize\x002\0"),
        ("wrong size", b"\0\x06tsize\x0021\0"),
        ("error", b"\0\x05\0\x01no\0"),
        ("acknowledgement", b"\0\x04\0\x01"),
        ("nothing", b""),
    ] {
        let (mut client, _) = client(20, 8, 1);
        let step = client.packet(bytes, &mut Vec::new());
        assert!(matches!(step, Step::Failed(_)), "{what}: {step:?}");
    }
}

#[test]
fn silence_is_answered_with_the_request_then_the_last_acknowledgement_then_given_up() {
    let (mut client, content) = client(2000, 512, 1);
    let mut out = Vec::new();
    assert_eq!(client.timed_out(&mut out), Step::Send);
    assert!(out.starts_with(b"\0\x01load.bin"));
    client.packet(&data(&content, 512, 1), &mut out);
    for _ in 0..3 {
        assert_eq!(client.timed_out(&mut out), Step::Send);
        assert_eq!(out, ack(1));
    }
    assert!(matches!(client.timed_out(&mut out), Step::Failed(_)));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..16)) {
        let (mut client, _) = client(100, 8, 4);
        let mut out = Vec::new();
        for packet in packets {
            client.packet(&packet, &mut out);
        }
    }
}
