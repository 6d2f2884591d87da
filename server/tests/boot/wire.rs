//! What the boot listener sends, byte by byte: loaders read HTTP in fewer ways than the standard allows.

use std::time::Duration;

use axum::Router;
use plumbline::http::listener;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::support::Listener;

const LIMIT: Duration = Duration::from_secs(10);

async fn connect(router: Router, cancel: &CancellationToken) -> TcpStream {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let stop = cancel.clone();
    tokio::spawn(listener::plain(
        socket,
        plumbline::http::boot::CONNECTIONS,
        router,
        stop,
    ));
    TcpStream::connect(address).await.unwrap()
}

/// One answer: its head, and as much of a body as the head announces.
async fn answer(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .unwrap_or_else(|| panic!("no length that GRUB reads:\n{head}"));
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    (head, body)
}

/// GRUB 2.06 looks for `Content-Length`, in these letters. Without it, it takes the connection's end for the file's, and
/// on a connection that is kept open waits for it without end.
#[tokio::test]
async fn grub_finds_the_length_of_what_it_fetches_and_the_connection_stays_open() {
    let cancel = CancellationToken::new();
    let served = Listener::start(&[("grubx64.efi", b"a loader")], "").await;
    let mut stream = connect(served.router(), &cancel).await;
    for path in [
        "/boot/v1/grub/52:54:00:12:34:56/grub.cfg",
        "/boot/v1/loaders/grubx64.efi",
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: 10.77.0.1\r\nUser-Agent: GRUB 2.06\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let (head, body) = tokio::time::timeout(LIMIT, answer(&mut stream)).await.unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(!head.contains("Transfer-Encoding"), "{head}");
        assert!(!body.is_empty());
    }
    cancel.cancel();
    let closed = tokio::time::timeout(LIMIT, stream.read(&mut [0]))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(closed, 0, "an idle connection is closed when the server stops");
}
