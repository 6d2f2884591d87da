//! Many machines at once: who is sent a large body, who waits, and what people are told.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use manifest::Digest;
use plumbline::http::boot::admission::Standing;
use testkit::wait_for_some;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::support::{Listener, Served};

const LIMIT: Duration = Duration::from_secs(20);
/// Far more than sockets hold, so that a client that does not read keeps its place.
const LARGE_BYTES: usize = 24 << 20;
const MAC: &str = "52:54:00:12:34:56";

fn address(machine: u8) -> IpAddr {
    IpAddr::from([127, 77, 0, machine])
}

/// One connection of a machine.
struct Client(TcpStream);

impl Client {
    async fn connect(served: &Served, machine: u8) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(64 << 10).unwrap();
        socket.bind(SocketAddr::new(address(machine), 0)).unwrap();
        Self(socket.connect(served.address).await.unwrap())
    }

    async fn ask(&mut self, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: 10.77.0.1\r\n\r\n");
        self.0.write_all(request.as_bytes()).await.unwrap();
    }

    /// The answer's head, and the length that it announces.
    async fn head(&mut self) -> (String, usize) {
        let reading = async {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(self.0.read_u8().await.unwrap());
            }
            String::from_utf8(head).unwrap()
        };
        let head = tokio::time::timeout(LIMIT, reading).await.unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length = length.unwrap_or_else(|| panic!("no length: {head}")).parse().unwrap();
        (head, length)
    }

    async fn body(&mut self, length: usize) -> Vec<u8> {
        let mut body = vec![0; length];
        let reading = self.0.read_exact(&mut body);
        tokio::time::timeout(LIMIT, reading).await.unwrap().unwrap();
        body
    }
}

/// A listener with so many places, a large pack and a small one.
async fn served(places: usize) -> (Served, String, Vec<u8>, String) {
    let listener = Listener::start(
        &[("snponly.efi", &[1; 300_000])],
        &format!("http_bodies_max = {places}"),
    )
    .await;
    let put = async |content: &[u8]| {
        let digest = Digest::of(content);
        let pack = Bytes::copy_from_slice(content);
        listener.app.images.put_pack(digest, pack).await.unwrap();
        format!("/boot/v1/packs/{digest}")
    };
    let content: Vec<u8> = (0..LARGE_BYTES)
        .map(|index| (index ^ (index >> 8) ^ (index >> 16)) as u8)
        .collect();
    let (large, small) = (put(&content).await, put(&[7; 5_000]).await);
    (listener.serve().await, large, content, small)
}

async fn wait_until_waiting(served: &Served, machine: u8) -> Standing {
    let bodies = &served.listener.app.bodies;
    wait_for_some(LIMIT, "a request that waits", async || {
        bodies.standing(address(machine))
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn machines_beyond_the_places_wait_in_order_and_small_answers_never_do() {
    let (served, large, content, small) = served(1).await;
    let mut first = Client::connect(&served, 1).await;
    first.ask(&large).await;
    let (head, length) = first.head().await;
    assert!(head.starts_with("HTTP/1.1 200 ") && length == LARGE_BYTES, "{head}");

    let mut second = Client::connect(&served, 2).await;
    second.ask(&large).await;
    assert_eq!(wait_until_waiting(&served, 2).await.before, 0);
    let mut third = Client::connect(&served, 3).await;
    third.ask(&large).await;
    let standing = wait_until_waiting(&served, 3).await;
    assert_eq!((standing.in_use, standing.places_max, standing.before), (1, 1, 1));

    let mut fourth = Client::connect(&served, 4).await;
    for path in [&*small, "/boot/v1/loaders/snponly.efi", "/boot/v1/clock"] {
        fourth.ask(path).await;
        let (head, length) = fourth.head().await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}");
        fourth.body(length).await;
    }

    assert!(first.body(length).await == content);
    let (_, length) = second.head().await;
    assert_eq!(wait_until_waiting(&served, 3).await.before, 0, "it is next");
    // Who goes away gives its place up as well.
    drop(second);
    let (_, again) = third.head().await;
    assert_eq!(again, length);
    assert!(third.body(again).await == content);
    wait_for_some(LIMIT, "all places to be free", async || {
        let text = served.listener.app.metrics.render();
        text.contains("plumbline_boot_http_bodies 0\n").then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn one_machine_with_many_connections_leaves_the_others_theirs() {
    let (served, large, _, _) = served(16).await;
    let mut greedy = Vec::new();
    for _ in 0..8 {
        let mut client = Client::connect(&served, 1).await;
        client.ask(&large).await;
        client.head().await;
        greedy.push(client);
    }
    let mut ninth = Client::connect(&served, 1).await;
    ninth.ask(&large).await;
    assert_eq!(wait_until_waiting(&served, 1).await.own, 8);
    let mut other = Client::connect(&served, 2).await;
    other.ask(&large).await;
    other.head().await;
    drop(greedy.pop());
    ninth.head().await;
}

#[tokio::test]
async fn people_are_told_what_a_machine_waits_for() {
    let (served, large, _, _) = served(1).await;
    let app = &served.listener.app;
    let node = plumbline::app::nodes::node_add(app, "node1", MAC, "test")
        .await
        .unwrap();
    let mut first = Client::connect(&served, 1).await;
    first.ask(&large).await;
    first.head().await;
    let mut second = Client::connect(&served, 2).await;
    second.ask(&format!("/boot/v1/script?mac={MAC}")).await;
    let (_, length) = second.head().await;
    second.body(length).await;
    second.ask(&large).await;
    wait_until_waiting(&served, 2).await;

    let told = "waits for a free download: 1 of 1 in use, 0 before it";
    let why = plumbline::app::trace::node_why(app, node.record.id).await.unwrap();
    assert_eq!((why.sentence, why.is_stuck), (format!("it {told}"), false));
    let events = wait_for_some(LIMIT, "the event", async || {
        let mut events = app.store.event_list(node.record.id, 0).await.unwrap();
        events.retain(|event| event.kind == "download_waits");
        (!events.is_empty()).then_some(events)
    })
    .await
    .unwrap();
    assert_eq!(events[0].detail, told);
}
