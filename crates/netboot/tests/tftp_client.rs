//! A TFTP reader for tests, with loss on request, and a server to talk to.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use netboot::CounterSet;
use netboot::tftp::packet::{FileRequest, TransferMode, WireOption};
use netboot::tftp::{
    ErrorCode, FileMap, FileName, OpenError, Packet, TftpConfig, TftpFile, TftpServer, TftpSource, TransferEvent,
    TransferEventKind,
};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub const LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub struct Source {
    files: Arc<FileMap>,
    pub events: Arc<Mutex<Vec<TransferEvent>>>,
    default: Arc<Mutex<Option<FileName>>>,
}

impl Source {
    pub fn new(files: &[(&str, Vec<u8>)]) -> Self {
        let mut map = FileMap::new();
        for (name, content) in files {
            map.insert(
                FileName::parse(name.as_bytes()).unwrap(),
                TftpFile::from(content.clone()),
            );
        }
        Self {
            files: Arc::new(map),
            events: Arc::default(),
            default: Arc::default(),
        }
    }

    /// What every name means that nothing has.
    pub fn set_default(&self, name: Option<&str>) {
        *self.default.lock().unwrap() = name.map(|name| FileName::parse(name.as_bytes()).unwrap());
    }

    pub fn outcomes(&self) -> Vec<String> {
        let events = self.events.lock().unwrap();
        let outcome = |event: &TransferEvent| match event.kind {
            TransferEventKind::Finished { outcome, .. } => Some(outcome.kind().to_owned()),
            _ => None,
        };
        events.iter().filter_map(outcome).collect()
    }
}

impl TftpSource for Source {
    async fn open(&self, name: &FileName, _peer: SocketAddr) -> Result<TftpFile, OpenError> {
        if name.as_str() == "secret" {
            return Err(OpenError::Refused);
        }
        self.files.get(name).ok_or(OpenError::NotFound)
    }

    async fn open_default(&self, _name: Option<&FileName>, _peer: SocketAddr) -> Option<(FileName, TftpFile)> {
        let name = self.default.lock().unwrap().clone()?;
        let content = self.files.get(&name)?;
        Some((name, content))
    }

    async fn event(&self, event: TransferEvent) {
        self.events.lock().unwrap().push(event);
    }
}

pub struct Running {
    pub address: SocketAddr,
    pub counters: Arc<CounterSet>,
    pub source: Source,
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

pub fn start(files: &[(&str, Vec<u8>)], change: impl FnOnce(&mut TftpConfig)) -> Running {
    let mut config = TftpConfig::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    // Loss is repaired quickly, so that tests are quick.
    config.retransmit_first = Duration::from_millis(30);
    config.timeouts_max = 6;
    change(&mut config);
    let source = Source::new(files);
    let server = TftpServer::bind(config, Arc::new(source.clone())).unwrap();
    let cancel = CancellationToken::new();
    Running {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, server.local_address().unwrap().port())),
        counters: server.counters(),
        source,
        cancel: cancel.clone(),
        task: tokio::spawn(server.run(cancel)),
    }
}

impl Running {
    pub async fn stop(self) {
        self.cancel.cancel();
        tokio::time::timeout(LIMIT, self.task)
            .await
            .expect("stops in time")
            .unwrap();
    }
}

/// Content that differs from block to block, so that a wrong offset shows.
pub fn content(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|index| (index ^ (index >> 8) ^ (index >> 16)) as u8)
        .collect()
}

pub fn request(name: &[u8], options: &[(&str, &str)]) -> Vec<u8> {
    let option = |(name, value): &(&str, &str)| WireOption {
        name: (*name).into(),
        value: (*value).into(),
    };
    let options = options.iter().map(option).collect();
    Packet::Request(FileRequest {
        is_write: false,
        name: name.to_vec(),
        mode: TransferMode::Octet,
        options,
    })
    .encode()
}

/// What a transfer was told in its first answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Data(u16, Vec<u8>),
    Options(Vec<(String, String)>),
    Error(ErrorCode),
}

pub async fn socket() -> UdpSocket {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap()
}

/// One packet from the server, with its sender.
pub async fn receive(socket: &UdpSocket) -> (Answer, SocketAddr) {
    receive_within(socket, LIMIT).await.expect("a packet in time")
}

pub async fn receive_within(socket: &UdpSocket, limit: Duration) -> Option<(Answer, SocketAddr)> {
    let mut buffer = vec![0; 65536];
    let (length, sender) = tokio::time::timeout(limit, socket.recv_from(&mut buffer))
        .await
        .ok()?
        .unwrap();
    let answer = match Packet::decode(&buffer[..length]).unwrap() {
        Packet::Data { block, payload } => Answer::Data(block, payload.to_vec()),
        Packet::Error { code, .. } => Answer::Error(code),
        Packet::OptionAck(options) => Answer::Options(
            options
                .into_iter()
                .map(|option| {
                    (
                        String::from_utf8(option.name).unwrap(),
                        String::from_utf8(option.value).unwrap(),
                    )
                })
                .collect(),
        ),
        other => panic!("{other:?}"),
    };
    Some((answer, sender))
}

pub fn ack(block: u16) -> Vec<u8> {
    Packet::Ack { block }.encode()
}

pub fn error(code: ErrorCode) -> Vec<u8> {
    Packet::Error { code, message: b"stop" }.encode()
}

/// How a reader misbehaves.
#[derive(Clone, Copy, Default)]
pub struct Trouble {
    /// One packet in so many is lost, in each direction.
    pub lose_one_in: u64,
    /// Every acknowledgement is sent twice.
    pub doubles_acks: bool,
    pub seed: u64,
}

/// A small generator: the tests need repeatable loss and no more.
struct Dice(u64);

impl Dice {
    fn loses(&mut self, one_in: u64) -> bool {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        one_in > 0 && (self.0 >> 33).is_multiple_of(one_in)
    }
}

/// Reads a whole file as a patient client does; gives the content and the number of data packets seen.
pub async fn read(
    server: SocketAddr,
    name: &str,
    options: &[(&str, &str)],
    trouble: Trouble,
) -> Result<(Vec<u8>, u64), ErrorCode> {
    let reading = read_patiently(server, name, options, trouble);
    tokio::time::timeout(LIMIT * 6, reading)
        .await
        .expect("the transfer ends in time")
}

async fn read_patiently(
    server: SocketAddr,
    name: &str,
    options: &[(&str, &str)],
    trouble: Trouble,
) -> Result<(Vec<u8>, u64), ErrorCode> {
    let socket = socket().await;
    let mut dice = Dice(trouble.seed);
    let mut peer = server;
    let mut last = request(name.as_bytes(), options);
    let mut agreed: HashMap<String, usize> = HashMap::new();
    let (mut content, mut expected, mut in_window, mut packets) = (Vec::new(), 1_u64, 0, 0);
    let mut has_gap_told = false;
    socket.send_to(&last, peer).await.unwrap();
    let mut buffer = vec![0; 65536];
    loop {
        let received = tokio::time::timeout(Duration::from_millis(100), socket.recv_from(&mut buffer)).await;
        let Ok(received) = received else {
            in_window = 0;
            has_gap_told = false;
            socket.send_to(&last, peer).await.unwrap();
            continue;
        };
        let (length, sender) = received.unwrap();
        if dice.loses(trouble.lose_one_in) {
            continue;
        }
        peer = sender;
        let block_bytes = agreed.get("blksize").copied().unwrap_or(512);
        let window = agreed.get("windowsize").copied().unwrap_or(1);
        let mut is_last = false;
        match Packet::decode(&buffer[..length]).unwrap() {
            Packet::Error { code, .. } => return Err(code),
            Packet::OptionAck(options) => {
                let number = |option: WireOption| {
                    let text = |bytes| String::from_utf8(bytes).unwrap();
                    (text(option.name).to_lowercase(), text(option.value).parse().unwrap())
                };
                agreed = options.into_iter().map(number).collect();
                last = ack(0);
            }
            Packet::Data { block, payload } => {
                packets += 1;
                if u64::from(block) == expected % 65536 {
                    content.extend_from_slice(payload);
                    is_last = payload.len() < block_bytes;
                    expected += 1;
                    in_window += 1;
                    has_gap_told = false;
                    last = ack(((expected - 1) % 65536) as u16);
                    if in_window < window && !is_last {
                        continue;
                    }
                } else if window == 1 {
                    // A duplicate is acknowledged again, as many readers do.
                } else if has_gap_told {
                    continue;
                } else {
                    has_gap_told = true;
                }
                in_window = 0;
            }
            other => panic!("{other:?}"),
        }
        for _ in 0..if trouble.doubles_acks { 2 } else { 1 } {
            if !dice.loses(trouble.lose_one_in) {
                socket.send_to(&last, peer).await.unwrap();
            }
        }
        if is_last {
            return Ok((content, packets));
        }
    }
}
