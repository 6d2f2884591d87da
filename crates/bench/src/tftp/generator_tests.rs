use super::*;
use crate::serve::own_server;
use std::collections::HashSet;
use tokio_util::sync::CancellationToken;

/// Plays a load against the project's own server.
fn play_against_own(clients: usize, window_blocks: u16, loss: f64, file: &[u8], asked: &[u8]) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let cancel = CancellationToken::new();
    let files = [("load.bin".to_owned(), file.to_vec())];
    let (address, serving) = runtime.block_on(async {
        let server = own_server("127.0.0.1:0".parse().unwrap(), files).unwrap();
        let address = server.local_address().unwrap();
        (address, tokio::spawn(server.run(cancel.clone())))
    });
    let outcome = play(&Load {
        server: address,
        ask: Arc::new(Ask {
            name: "load.bin".to_owned(),
            content: asked.into(),
            block_bytes: 1468,
            window_blocks,
        }),
        clients,
        loss,
        seed: 7,
        retransmit: Duration::from_millis(200),
        timeouts_max: 20,
        duration_max: Duration::from_secs(60),
    });
    cancel.cancel();
    runtime.block_on(serving).unwrap();
    outcome.unwrap()
}

fn file(bytes: u32) -> Vec<u8> {
    (0..bytes)
        .map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

#[test]
fn all_clients_read_the_whole_file() {
    let content = file(50_000);
    for window_blocks in [1, 16] {
        let outcome = play_against_own(20, window_blocks, 0.0, &content, &content);
        assert_eq!((outcome.completed, outcome.bytes), (20, 1_000_000), "{outcome:?}");
        assert_eq!((outcome.first_replies.len(), outcome.dropped), (20, 0));
    }
}

#[test]
fn what_is_lost_on_the_way_is_asked_for_again() {
    let content = file(50_000);
    let outcome = play_against_own(4, 4, 0.05, &content, &content);
    assert_eq!(outcome.completed, 4, "{outcome:?}");
    assert!(outcome.dropped > 0);
}

#[test]
fn another_file_than_the_asked_one_is_not_counted_as_complete() {
    let (content, mut other) = (file(5_000), file(5_000));
    other[4_000] ^= 1;
    let outcome = play_against_own(2, 1, 0.0, &content, &other);
    assert_eq!(outcome.completed, 0);
    assert_eq!(outcome.failures.get("block 3 differs from the file"), Some(&2));
}

#[test]
fn a_server_that_is_silent_ends_the_load() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let outcome = play(&Load {
        server: silent.local_addr().unwrap(),
        ask: Arc::new(Ask {
            name: "load.bin".to_owned(),
            content: file(1).into(),
            block_bytes: 1468,
            window_blocks: 1,
        }),
        clients: 3,
        loss: 0.0,
        seed: 1,
        retransmit: Duration::from_millis(20),
        timeouts_max: 2,
        duration_max: Duration::from_secs(10),
    })
    .unwrap();
    assert_eq!(outcome.failures.get("the server fell silent"), Some(&3), "{outcome:?}");
}

#[test]
fn clients_have_addresses_of_their_own() {
    let server = "127.0.0.1".parse().unwrap();
    let addresses: HashSet<IpAddr> = (0..5_000).map(|index| client_address(server, index)).collect();
    assert_eq!(addresses.len(), 5_000);
    assert!(addresses.iter().all(|address| address.is_loopback()));
}
