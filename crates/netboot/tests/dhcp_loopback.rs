//! The DHCP server on loopback, seen by a relay and by a client.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use netboot::CounterSet;
use netboot::dhcp::{
    BackendError, Decision, DhcpBackend, DhcpConfig, DhcpServer, LoaderSet, MessageType, Mode, NodeStanding, Reply,
    Request, Standing,
};
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::*;

const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A backend with one answer for everybody, that can be held up and made to fail.
#[derive(Clone)]
struct Backend {
    standing: Standing,
    is_failing: bool,
    gate: Arc<Semaphore>,
    decided: Arc<Mutex<Vec<String>>>,
}

impl Backend {
    fn listed() -> Self {
        Self {
            standing: Standing {
                loaders: LoaderSet::Ipxe,
                node: NodeStanding::Listed,
                lease: Some(lease()),
            },
            is_failing: false,
            gate: Arc::new(Semaphore::new(1000)),
            decided: Arc::default(),
        }
    }
}

impl DhcpBackend for Backend {
    async fn lookup(&self, _request: &Request, _mode: Mode) -> Result<Standing, BackendError> {
        let _permit = self.gate.acquire().await;
        if self.is_failing {
            Err(BackendError("no database".into()))
        } else {
            Ok(self.standing.clone())
        }
    }

    async fn decided(&self, request: &Request, decision: &Decision) {
        let text = decision.to_string();
        let line = format!(
            "{} {}",
            request.message_type().name(),
            text.lines().next().unwrap_or_default()
        );
        self.decided.lock().unwrap().push(line);
    }
}

struct Running {
    server: SocketAddr,
    pxe: SocketAddr,
    counters: Arc<CounterSet>,
    cancel: CancellationToken,
    task: JoinHandle<()>,
    /// Receives as the relay and as the client at once: only the ports tell them apart.
    relay: UdpSocket,
    client: UdpSocket,
}

async fn start(mode: Mode, backend: Backend, change: impl FnOnce(&mut DhcpConfig)) -> Running {
    let relay = UdpSocket::bind((LOOPBACK, 0)).await.unwrap();
    let client = UdpSocket::bind((LOOPBACK, 0)).await.unwrap();
    let mut config = DhcpConfig::new(mode, SERVER, BASE);
    config.listen_ip = LOOPBACK;
    config.ports.server = 0;
    config.ports.pxe = Some(0);
    config.ports.relay = relay.local_addr().unwrap().port();
    config.ports.client = client.local_addr().unwrap().port();
    change(&mut config);
    let server = DhcpServer::bind(config, Arc::new(backend)).unwrap();
    let cancel = CancellationToken::new();
    Running {
        server: server.server_address().unwrap(),
        pxe: server.pxe_address().unwrap().unwrap(),
        counters: server.counters(),
        cancel: cancel.clone(),
        task: tokio::spawn(server.run(cancel)),
        relay,
        client,
    }
}

impl Running {
    async fn send(&self, from: &UdpSocket, to: SocketAddr, request: &Request) {
        from.send_to(&request.encode().unwrap(), to).await.unwrap();
    }

    async fn stop(self) {
        self.cancel.cancel();
        tokio::time::timeout(Duration::from_secs(10), self.task)
            .await
            .expect("stops in time")
            .unwrap();
    }
}

async fn receive(socket: &UdpSocket) -> Reply {
    let mut buffer = [0; 2048];
    let received = tokio::time::timeout(Duration::from_secs(10), socket.recv_from(&mut buffer)).await;
    let (length, _) = received.expect("an answer within ten seconds").unwrap();
    Reply::decode(&buffer[..length]).unwrap()
}

fn relayed(client: Client) -> Client {
    let mut client = client;
    client.header.giaddr = LOOPBACK;
    client
}

#[tokio::test]
async fn a_relayed_machine_gets_its_lease_and_its_loader() {
    let backend = Backend::listed();
    let decided = Arc::clone(&backend.decided);
    let running = start(Mode::Full, backend, |_| {}).await;
    running
        .send(&running.client, running.server, &relayed(Client::pxe(7)).discover())
        .await;
    let offer = receive(&running.relay).await;
    assert_eq!((offer.message_type, offer.header.yiaddr), (MessageType::Offer, LEASED));
    assert_eq!(offer.boot_name(), "snponly.efi");
    let request = relayed(Client::pxe(7))
        .requested(LEASED)
        .server(SERVER)
        .kind(MessageType::Request);
    running.send(&running.client, running.server, &request).await;
    assert_eq!(receive(&running.relay).await.message_type, MessageType::Ack);
    let expected = [
        "discover to relay 127.0.0.1, boots loader: offer",
        "request to relay 127.0.0.1, boots loader: ack",
    ];
    assert_eq!(*decided.lock().unwrap(), expected);
    running.stop().await;
}

#[tokio::test]
async fn firmware_that_asks_on_the_pxe_port_is_answered_there() {
    let running = start(Mode::Proxy, Backend::listed(), |_| {}).await;
    running
        .send(
            &running.client,
            running.pxe,
            &Client::pxe(0).ciaddr(LOOPBACK).kind(MessageType::Request),
        )
        .await;
    let ack = receive(&running.client).await;
    assert_eq!(
        (ack.message_type, ack.boot_name().as_str()),
        (MessageType::Ack, "undionly.kpxe")
    );
    running
        .send(&running.relay, running.pxe, &Client::pxe(0).kind(MessageType::Request))
        .await;
    assert_eq!(
        receive(&running.relay).await.message_type,
        MessageType::Ack,
        "without ciaddr: to whoever sent it"
    );
    running.stop().await;
}

#[tokio::test]
async fn noise_is_counted_by_kind_and_the_server_goes_on() {
    let running = start(Mode::Proxy, Backend::listed(), |_| {}).await;
    let good = relayed(Client::pxe(7)).discover().encode().unwrap();
    let mut broken = good.clone();
    let end = broken.iter().rposition(|byte| *byte == 255).unwrap();
    broken.truncate(end);
    broken.extend_from_slice(&[61, 200, 1]);
    let noise = [vec![], vec![0xff; 100], vec![0; 300], broken, vec![1; 3000]];
    for bytes in noise.iter().chain([&good]) {
        running.client.send_to(bytes, running.server).await.unwrap();
    }
    assert_eq!(receive(&running.relay).await.message_type, MessageType::Offer);
    for (kind, count) in [
        ("too_short", 2),
        ("no_magic", 1),
        ("option_truncated", 1),
        ("too_long", 1),
        ("answered", 1),
    ] {
        wait_until(kind, || running.counters.get(kind) == count).await;
    }
    running.stop().await;
}

#[tokio::test]
async fn an_unlisted_machine_is_seen_and_not_answered() {
    let backend = Backend {
        standing: Standing {
            loaders: LoaderSet::Ipxe,
            node: NodeStanding::Unlisted,
            lease: Some(lease()),
        },
        ..Backend::listed()
    };
    let decided = Arc::clone(&backend.decided);
    let running = start(Mode::Full, backend, |_| {}).await;
    running
        .send(&running.client, running.server, &relayed(Client::pxe(7)).discover())
        .await;
    wait_until("the sighting", || running.counters.get("unlisted") == 1).await;
    assert_eq!(*decided.lock().unwrap(), ["discover ignore: unlisted"]);
    assert_eq!(running.counters.get("answered"), 0);
    running.stop().await;
}

#[tokio::test]
async fn a_backend_that_fails_or_hangs_costs_the_answer_and_nothing_else() {
    let failing = Backend {
        is_failing: true,
        ..Backend::listed()
    };
    let running = start(Mode::Full, failing, |_| {}).await;
    running
        .send(&running.client, running.server, &relayed(Client::pxe(7)).discover())
        .await;
    wait_until("the failure", || running.counters.get("backend_failed") == 1).await;
    running.stop().await;

    let hanging = Backend {
        gate: Arc::new(Semaphore::new(0)),
        ..Backend::listed()
    };
    let gate = Arc::clone(&hanging.gate);
    let running = start(Mode::Full, hanging, |config| {
        config.requests_max = 2;
        config.request_timeout = Duration::from_secs(60);
    })
    .await;
    for _ in 0..5 {
        running
            .send(&running.client, running.server, &relayed(Client::pxe(7)).discover())
            .await;
    }
    wait_until("three beyond the bound", || running.counters.get("busy") == 3).await;
    gate.add_permits(10);
    for _ in 0..2 {
        assert_eq!(receive(&running.relay).await.message_type, MessageType::Offer);
    }
    running.stop().await;

    let hanging = Backend {
        gate: Arc::new(Semaphore::new(0)),
        ..Backend::listed()
    };
    let running = start(Mode::Full, hanging, |config| {
        config.request_timeout = Duration::from_millis(20)
    })
    .await;
    running
        .send(&running.client, running.server, &relayed(Client::pxe(7)).discover())
        .await;
    wait_until("the timeout", || running.counters.get("backend_timeout") == 1).await;
    running.stop().await;
}

/// booter#4: some firmware waits at port 68 and some at 4011, so the answer goes where the question came from.
#[tokio::test]
async fn booter_4_the_answer_on_port_4011_goes_to_the_port_that_asked() {
    let running = start(Mode::Proxy, Backend::listed(), |_| {}).await;
    let elsewhere = UdpSocket::bind((LOOPBACK, 0)).await.unwrap();
    let request = Client::pxe(7).ciaddr(LOOPBACK).kind(MessageType::Request);
    running.send(&elsewhere, running.pxe, &request).await;
    let ack = receive(&elsewhere).await;
    assert_eq!(
        (ack.message_type, ack.boot_name().as_str()),
        (MessageType::Ack, "snponly.efi")
    );
    running.stop().await;
}

/// infra-controller#3663, #2233: the server that gave an address is gone, and another instance confirms the renewal.
/// Both advertise the configured address, so the client goes on to reach whichever is alive.
#[tokio::test]
async fn infra_controller_3663_a_renewal_is_confirmed_by_another_instance() {
    let mut backend = Backend::listed();
    let mut lease = lease();
    lease.ip = LOOPBACK;
    backend.standing.lease = Some(lease);
    let first = start(Mode::Full, backend.clone(), |_| {}).await;
    let discover = relayed(Client::new()).discover();
    first.send(&first.client, first.server, &discover).await;
    let offer = receive(&first.relay).await;
    first.stop().await;

    let second = start(Mode::Full, backend, |_| {}).await;
    let address = offer.header.yiaddr;
    let server = offer.server_id().unwrap();
    for renewing in [
        Client::new().ciaddr(address),
        Client::new().ciaddr(address).server(server),
    ] {
        let request = renewing.kind(MessageType::Request);
        second.send(&second.client, second.server, &request).await;
        let ack = receive(&second.client).await;
        assert_eq!((ack.message_type, ack.header.yiaddr), (MessageType::Ack, address));
        assert_eq!(
            ack.server_id(),
            Some(SERVER),
            "the configured address, not that of the moment"
        );
    }
    second.stop().await;
}

#[tokio::test]
async fn a_machine_that_asks_without_end_is_held_back_alone() {
    let running = start(Mode::Proxy, Backend::listed(), |config| {
        config.rate.client.burst = 3;
        config.rate.client.per_sec = 1;
    })
    .await;
    let flood = relayed(Client::pxe(7)).discover();
    for _ in 0..40 {
        running.send(&running.client, running.server, &flood).await;
    }
    wait_until("most of it is dropped", || {
        running.counters.get("client_too_often") >= 30
    })
    .await;
    let mut other = relayed(Client::pxe(7));
    other.header.chaddr[5] = 9;
    other.header.xid = 9;
    running.send(&running.client, running.server, &other.discover()).await;
    while receive(&running.relay).await.header.xid != 9 {}
    assert!(running.counters.get("answered") <= 10);
    running.stop().await;
}
