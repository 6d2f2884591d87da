//! What the boot listener sends, byte by byte: loaders read HTTP in fewer ways than the standard allows.

use std::time::Duration;

use bytes::Bytes;
use manifest::Digest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::support::{Listener, Served};

const LIMIT: Duration = Duration::from_secs(10);

async fn connect(served: &Served) -> TcpStream {
    TcpStream::connect(served.address).await.unwrap()
}

/// One answer: its head, and as much of a body as the head announces.
async fn answer(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let (head, length) = head(stream).await;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    (head, body)
}

/// An answer's head, and the length that it announces.
async fn head(stream: &mut TcpStream) -> (String, usize) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "))
        .unwrap_or_else(|| panic!("no length that GRUB reads:\n{head}"));
    let length = length.parse().unwrap();
    (head, length)
}

/// GRUB 2.12 looks for `Content-Length`, in these letters. Without it, it takes the connection's end for the file's, and
/// on a connection that is kept open waits for it without end.
#[tokio::test]
async fn grub_finds_the_length_of_what_it_fetches_and_the_connection_stays_open() {
    let served = Listener::start(&[("grubx64.efi", b"a loader")], "").await.serve().await;
    let mut stream = connect(&served).await;
    for path in [
        "/boot/v1/grub/52:54:00:12:34:56/x86_64/grub.cfg",
        "/boot/v1/loaders/grubx64.efi",
    ] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: 10.77.0.1\r\nUser-Agent: GRUB 2.12\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let (head, body) = tokio::time::timeout(LIMIT, answer(&mut stream)).await.unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(!head.contains("Transfer-Encoding"), "{head}");
        assert!(!body.is_empty());
    }
    served.stop.cancel();
    let closed = tokio::time::timeout(LIMIT, stream.read(&mut [0]))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(closed, 0, "an idle connection is closed when the server stops");
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|index| (index ^ (index >> 8) ^ (index >> 16)) as u8)
        .collect()
}

/// Everything that loaders and deployers fetch has its length before it, is not in chunks, and leaves the connection to
/// the next request; HEAD announces what GET sends.
#[tokio::test]
async fn everything_that_boots_has_its_length_and_leaves_the_connection_open() {
    let listener = Listener::start(&[("grubx64.efi", b"a loader")], "").await;
    let pack = content(3_000_000);
    let digest = Digest::of(&pack);
    listener.app.images.put_pack(digest, pack.clone().into()).await.unwrap();
    let image = Digest::of(b"an image");
    let manifest = content(200_000);
    for (path, bytes) in [
        (format!("artifacts/{image}/vmlinuz"), &b"kernel"[..]),
        (format!("manifests/{image}/manifest.ndjson"), &manifest),
        (format!("manifests/{image}/packs.json"), b"{}"),
        (format!("manifests/{image}/manifest.ndjson.minisig"), b""),
    ] {
        listener.put_object(&path, bytes);
    }
    let served = listener.serve().await;
    let mut stream = connect(&served).await;
    let paths = [
        (format!("/boot/v1/packs/{digest}"), Some(pack.as_slice())),
        (format!("/boot/v1/deployer/{image}/vmlinuz"), Some(b"kernel")),
        (format!("/boot/v1/images/{image}/manifest"), Some(&manifest)),
        (format!("/boot/v1/images/{image}/packs"), Some(b"{}")),
        (format!("/boot/v1/images/{image}/signature"), Some(b"")),
        ("/boot/v1/authority.cpio".to_owned(), None),
        ("/boot/v1/clock".to_owned(), None),
        ("/boot/v1/loaders/grubx64.efi".to_owned(), Some(b"a loader")),
    ];
    for (path, expected) in paths {
        let ask = |method: &str| format!("{method} {path} HTTP/1.1\r\nHost: 10.77.0.1\r\n\r\n");
        stream.write_all(ask("HEAD").as_bytes()).await.unwrap();
        let (probe, announced) = tokio::time::timeout(LIMIT, head(&mut stream)).await.unwrap();
        stream.write_all(ask("GET").as_bytes()).await.unwrap();
        let (head, body) = tokio::time::timeout(LIMIT, answer(&mut stream)).await.unwrap();
        for head in [&probe, &head] {
            assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}");
            assert!(
                !head.to_ascii_lowercase().contains("transfer-encoding"),
                "{path}: {head}"
            );
        }
        assert_eq!(announced, body.len(), "{path}");
        assert!(expected.is_none_or(|expected| body == expected), "{path}");
    }
}

/// What the kernel sends are the right bytes: of parts, and of requests that were sent before the answers came.
#[tokio::test]
async fn parts_of_large_files_are_the_right_bytes_in_the_right_order() {
    let listener = Listener::start(&[("grubx64.efi", b"a loader")], "").await;
    let packs = [content(5_000_000), content(2_500_000)];
    for pack in &packs {
        let bytes = Bytes::copy_from_slice(pack);
        listener.app.images.put_pack(Digest::of(pack), bytes).await.unwrap();
    }
    let served = listener.serve().await;
    let mut stream = connect(&served).await;
    let ranges = [
        (0, 0..5_000_000),
        (1, 999..2_400_001),
        (0, 4_999_999..5_000_000),
        (1, 0..2_500_000),
    ];
    let mut requests = String::new();
    for (pack, range) in &ranges {
        let (digest, first, last) = (Digest::of(&packs[*pack]), range.start, range.end - 1);
        requests += &format!("GET /boot/v1/packs/{digest} HTTP/1.1\r\nHost: x\r\nRange: bytes={first}-{last}\r\n\r\n");
    }
    stream.write_all(requests.as_bytes()).await.unwrap();
    for (pack, range) in ranges {
        let (head, body) = tokio::time::timeout(LIMIT, answer(&mut stream)).await.unwrap();
        assert!(head.starts_with("HTTP/1.1 206 "), "{head}");
        assert!(body == packs[pack][range.clone()], "{range:?}");
    }
}
