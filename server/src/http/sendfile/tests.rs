//! Stand-ins over real sockets.

use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::super::PIECE_BYTES_MAX;
use super::*;

fn file(content: &[u8]) -> Arc<File> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    Arc::new(file)
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| (index ^ (index >> 8)) as u8).collect()
}

async fn pair(stall_limit: Option<Duration>) -> (FileStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (FileStream::new(server, stall_limit), client)
}

/// Writes slices as hyper does: all that is left, by reference.
async fn write_all(stream: &mut FileStream, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !slices.is_empty() {
        let count = std::future::poll_fn(|cx| Pin::new(&mut *stream).poll_write_vectored(cx, slices)).await?;
        IoSlice::advance_slices(&mut slices, count);
    }
    stream.flush().await
}

#[tokio::test]
async fn pieces_of_files_come_between_other_bytes_in_their_order() {
    let (mut server, mut client) = pair(None).await;
    let all = content(3_000_000);
    let (first, second) = (file(&all), file(b"second"));
    let reading = tokio::spawn(async move {
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        received
    });
    let outbox = server.outbox();
    let large = outbox.stand_in(&first, 1000, 2_000_000);
    assert_eq!(large.len(), PIECE_BYTES_MAX, "no larger than a stand-in may be");
    let small = outbox.stand_in(&second, 0, 6);
    let mut slices = [&b"head"[..], &large[..], b"between", &small[..]].map(IoSlice::new);
    write_all(&mut server, &mut slices).await.unwrap();
    drop(server);
    let expected = [b"head", &all[1000..1000 + PIECE_BYTES_MAX], b"between", b"second"].concat();
    assert!(reading.await.unwrap() == expected);
}

#[tokio::test]
async fn a_stand_in_out_of_turn_ends_the_connection() {
    let (mut server, _client) = pair(None).await;
    let outbox = server.outbox();
    let _first = outbox.stand_in(&file(b"first"), 0, 5);
    let second = outbox.stand_in(&file(b"second"), 0, 6);
    let error = write_all(&mut server, &mut [IoSlice::new(&second)]).await.unwrap_err();
    assert!(error.to_string().contains("not the next piece"), "{error}");
}

#[tokio::test]
async fn a_file_that_became_shorter_ends_the_connection() {
    let (mut server, _client) = pair(None).await;
    let piece = server.outbox().stand_in(&file(b"short"), 0, 100);
    let error = write_all(&mut server, &mut [IoSlice::new(&piece)]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_given_up() {
    let (mut server, _client) = pair(Some(Duration::from_millis(50))).await;
    let file = file(&content(PIECE_BYTES_MAX));
    let writing = async {
        loop {
            let piece = server.outbox().stand_in(&file, 0, PIECE_BYTES_MAX as u64);
            write_all(&mut server, &mut [IoSlice::new(&piece)]).await?;
        }
    };
    let ended: io::Result<()> = tokio::time::timeout(Duration::from_secs(20), writing).await.unwrap();
    assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
}
