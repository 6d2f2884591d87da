//! Whole transfers on loopback: sizes, loss, many clients, both port modes.

use std::time::Duration;

use netboot::tftp::{ErrorCode, Rollover};

use crate::support::wait_until;
use crate::tftp_client::*;

const BIG: &[(&str, &str)] = &[("blksize", "1468"), ("tsize", "0")];

#[tokio::test]
async fn files_of_every_awkward_size_arrive_whole() {
    let sizes = [0, 1, 511, 512, 513, 1024, 1468, 10_000, 1468 * 7];
    let files: Vec<(String, Vec<u8>)> = sizes.iter().map(|size| (format!("f{size}"), content(*size))).collect();
    let files: Vec<(&str, Vec<u8>)> = files
        .iter()
        .map(|(name, content)| (name.as_str(), content.clone()))
        .collect();
    for is_single_port in [false, true] {
        let running = start(&files, |config| config.is_single_port = is_single_port);
        for (name, content) in &files {
            for options in [
                &[][..],
                BIG,
                &[("windowsize", "8")],
                &[("blksize", "8"), ("windowsize", "64")],
            ] {
                let (found, _) = read(running.address, name, options, Trouble::default()).await.unwrap();
                assert_eq!(found, *content, "{name} {options:?}");
            }
        }
        running.stop().await;
    }
}

#[tokio::test]
async fn a_file_of_more_than_65535_blocks_arrives_whole() {
    let running = start(&[("a", content(524_289))], |_| {});
    let (found, _) = read(
        running.address,
        "a",
        &[("blksize", "8"), ("windowsize", "64")],
        Trouble::default(),
    )
    .await
    .unwrap();
    assert!(found == content(524_289));
    wait_until("the end", || running.source.outcomes() == ["complete"]).await;
    running.stop().await;
}

#[tokio::test]
async fn a_listener_on_every_address_answers_from_the_one_that_reaches_the_client() {
    let running = start(&[("a", content(5000))], |config| {
        config.listen = "0.0.0.0:0".parse().unwrap();
        config.rollover = Rollover::One;
    });
    let socket = socket().await;
    socket.send_to(&request(b"a", &[]), running.address).await.unwrap();
    assert_eq!(receive(&socket).await.1.ip(), running.address.ip());
    running.stop().await;
}

#[tokio::test]
async fn single_port_mode_answers_from_the_port_that_was_asked() {
    let running = start(&[("a", content(5000))], |config| config.is_single_port = true);
    let socket = socket().await;
    socket.send_to(&request(b"a", BIG), running.address).await.unwrap();
    assert_eq!(receive(&socket).await.1, running.address);
    running.stop().await;
}

#[tokio::test]
async fn loss_in_both_directions_costs_time_and_nothing_else() {
    let running = start(&[("a", content(100_000))], |_| {});
    for (options, seed) in [
        (BIG, 1),
        (BIG, 2),
        (&[("blksize", "1468"), ("windowsize", "16")][..], 3),
    ] {
        let trouble = Trouble {
            lose_one_in: 10,
            seed,
            ..Trouble::default()
        };
        let (found, _) = read(running.address, "a", options, trouble).await.unwrap();
        assert!(found == content(100_000), "seed {seed}");
    }
    running.stop().await;
}

#[tokio::test]
async fn doubled_acknowledgements_do_not_double_the_data() {
    let running = start(&[("a", content(200 * 512))], |config| {
        config.retransmit_first = Duration::from_secs(5)
    });
    for options in [&[][..], &[("windowsize", "8")]] {
        let trouble = Trouble {
            doubles_acks: true,
            ..Trouble::default()
        };
        let (found, packets) = read(running.address, "a", options, trouble).await.unwrap();
        assert!(found == content(200 * 512));
        assert!(packets <= 201 + 16, "{packets} packets for 201 blocks, {options:?}");
    }
    running.stop().await;
}

#[tokio::test]
async fn many_clients_read_at_once_some_of_them_badly() {
    for is_single_port in [false, true] {
        let running = start(&[("a", content(60_000)), ("b", content(33_333))], |config| {
            config.is_single_port = is_single_port;
        });
        let mut clients = tokio::task::JoinSet::new();
        for index in 0..60_u64 {
            let address = running.address;
            clients.spawn(async move {
                let (name, size) = if index % 2 == 0 { ("a", 60_000) } else { ("b", 33_333) };
                let trouble = Trouble {
                    lose_one_in: if index % 5 == 0 { 30 } else { 0 },
                    doubles_acks: index % 7 == 0,
                    seed: index,
                };
                let (found, _) = read(address, name, BIG, trouble).await.unwrap();
                assert!(found == content(size), "client {index}");
            });
        }
        while let Some(ended) = clients.join_next().await {
            ended.unwrap();
        }
        wait_until("every transfer's end", || running.source.outcomes().len() == 60).await;
        running.stop().await;
    }
}

#[tokio::test]
async fn a_server_that_stops_tells_its_clients() {
    let running = start(&[("a", content(5000))], |_| {});
    let socket = socket().await;
    socket.send_to(&request(b"a", BIG), running.address).await.unwrap();
    assert!(matches!(receive(&socket).await.0, Answer::Options(_)));
    running.stop().await;
    loop {
        match receive(&socket).await.0 {
            Answer::Error(code) => break assert_eq!(code, ErrorCode::Undefined),
            Answer::Options(_) => {}
            other => panic!("{other:?}"),
        }
    }
}
