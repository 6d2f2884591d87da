//! Many clients in one thread: a kept connection each, one poll for all.
//!
//! Idea: the load shares the machine with the server under test, so it must cost little. One client of sixteen hashes all
//! it reads; the others let the kernel discard what has come (`MSG_TRUNC`, tcp(7)) and count it, which costs no copy.
//!
//! Invariant: it stops by itself: the whole load has a bound of time.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::event::epoll;
use rustix::net::RecvFlags;
use sha2::{Digest as _, Sha256};

use super::servers::PATH;
use crate::tftp::generator::{client_address, processor_time};

/// Every so manieth client checks what it reads.
const CHECKED_EACH: usize = 16;
/// Sockets reported ready at a time.
const READY_MAX: usize = 64;
/// Bytes taken from a socket at a time.
const PIECE_BYTES: usize = 1 << 20;
/// A head longer than this is no answer.
const HEAD_BYTES_MAX: usize = 4096;

/// A file to read.
#[derive(Debug, Clone)]
pub struct Pack {
    /// Its name below the packs' path.
    pub name: String,
    /// SHA-256 of its content.
    pub digest: [u8; 32],
    /// Bytes of it.
    pub size: u64,
}

/// A load.
#[derive(Debug, Clone)]
pub struct Load {
    /// The server.
    pub server: SocketAddr,
    /// What there is to read. Clients start at different packs.
    pub packs: Arc<[Pack]>,
    /// How many clients, all at once.
    pub clients: usize,
    /// Packs that each reads, one after another on one connection.
    pub reads: usize,
    /// Time after which all that still run have failed.
    pub duration_max: Duration,
}

/// What came of a load.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Answers that were complete and, where they were checked, right.
    pub completed: usize,
    /// Why clients failed, and how many each.
    pub failures: BTreeMap<String, usize>,
    /// From the first request to the last end.
    pub wall: Duration,
    /// Content of complete answers, in bytes.
    pub bytes: u64,
    /// From each request to the first byte of its answer.
    pub first_bytes: Vec<Duration>,
    /// From each request to the end of its answer.
    pub durations: Vec<Duration>,
    /// From the load's begin to the end of each client that had all.
    pub ends: Vec<Duration>,
    /// Processor time of the load itself.
    pub processor: Duration,
}

/// Plays `load` to its end.
///
/// # Errors
/// When sockets cannot be opened or connected. What goes wrong later is in the outcome.
pub fn play(load: &Load) -> Result<Outcome> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot make an epoll")?;
    let mut clients = Vec::with_capacity(load.clients);
    for index in 0..load.clients {
        let client = Client::connect(load, index)
            .with_context(|| format!("cannot connect client {index} to {}", load.server))?;
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&poll, &client.socket, data, epoll::EventFlags::IN).context("cannot watch a socket")?;
        clients.push(client);
    }
    let mut outcome = Outcome::default();
    let mut buffer = vec![0; PIECE_BYTES];
    let mut ready = Vec::with_capacity(READY_MAX);
    let (begun, processor) = (Instant::now(), processor_time());
    let mut live = clients.len();
    for client in &mut clients {
        client.ask()?;
    }
    while live > 0 {
        ready.clear();
        let wait = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
        match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut ready), Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for answers"),
        }
        let is_over = begun.elapsed() > load.duration_max;
        for event in &ready {
            let index = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            let Some(client) = clients.get_mut(index) else { continue };
            match client.receive(&mut buffer, &mut outcome) {
                Ok(false) => continue,
                Ok(true) => outcome.ends.push(begun.elapsed()),
                Err(error) => *outcome.failures.entry(format!("{error:#}")).or_default() += 1,
            }
            let _taken_out = epoll::delete(&poll, &client.socket);
            live -= 1;
        }
        if is_over {
            outcome.failures.insert("the load's time was over".to_owned(), live);
            break;
        }
    }
    outcome.wall = begun.elapsed();
    outcome.processor = processor_time().saturating_sub(processor);
    Ok(outcome)
}

/// One client and its connection.
struct Client {
    socket: TcpStream,
    packs: Arc<[Pack]>,
    /// The pack that is read.
    pack: usize,
    reads_left: usize,
    /// The answer's head, until it is complete.
    head: Vec<u8>,
    /// Bytes of the body that are to come; none: the head is not complete.
    body_left: Option<u64>,
    hash: Option<Sha256>,
    asked: Instant,
}

impl Client {
    fn connect(load: &Load, index: usize) -> Result<Self> {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let family = match load.server {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let socket = socket(family, SocketType::STREAM, None)?;
        bind(&socket, &SocketAddr::new(client_address(load.server.ip(), index), 0))?;
        connect(&socket, &load.server)?;
        let socket = TcpStream::from(socket);
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(Self {
            socket,
            packs: Arc::clone(&load.packs),
            pack: index % load.packs.len(),
            reads_left: load.reads,
            head: Vec::new(),
            body_left: None,
            hash: index.is_multiple_of(CHECKED_EACH).then(Sha256::new),
            asked: Instant::now(),
        })
    }

    fn ask(&mut self) -> Result<()> {
        let name = &self.packs[self.pack].name;
        let request = format!("GET {PATH}{name} HTTP/1.1\r\nHost: benchmark\r\n\r\n");
        self.asked = Instant::now();
        self.socket.write_all(request.as_bytes()).context("cannot ask")
    }

    /// Takes what has come, a few pieces at most; whether this client has all its packs.
    fn receive(&mut self, buffer: &mut [u8], outcome: &mut Outcome) -> Result<bool> {
        let Some(left) = self.body_left else {
            return self.receive_head(buffer, outcome);
        };
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let received = match &mut self.hash {
            Some(hash) => self
                .socket
                .read(&mut buffer[..wanted])
                .inspect(|count| hash.update(&buffer[..*count])),
            None => {
                let received = rustix::net::recv(&self.socket, &mut buffer[..wanted], RecvFlags::TRUNC);
                received.map(|(_, count)| count).map_err(Into::into)
            }
        };
        match received {
            Ok(0) => anyhow::bail!("the answer broke off"),
            Ok(count) => self.count(count as u64, outcome),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
            Err(error) => Err(error).context("cannot receive"),
        }
    }

    fn receive_head(&mut self, buffer: &mut [u8], outcome: &mut Outcome) -> Result<bool> {
        let count = match self.socket.read(&mut buffer[..HEAD_BYTES_MAX]) {
            Ok(0) => anyhow::bail!("the connection ended"),
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(false),
            Err(error) => return Err(error).context("cannot receive"),
        };
        if self.head.is_empty() {
            outcome.first_bytes.push(self.asked.elapsed());
        }
        self.head.extend_from_slice(&buffer[..count]);
        let Some(end) = self.head.windows(4).position(|window| window == b"\r\n\r\n") else {
            anyhow::ensure!(self.head.len() < HEAD_BYTES_MAX, "a head without an end");
            return Ok(false);
        };
        let size = content_length(&self.head[..end])?;
        anyhow::ensure!(
            size == self.packs[self.pack].size,
            "{size} bytes announced, not the pack's"
        );
        let begun = self.head.split_off(end + 4);
        self.head.clear();
        self.body_left = Some(size);
        if let Some(hash) = &mut self.hash {
            hash.update(&begun);
        }
        self.count(begun.len() as u64, outcome)
    }

    fn count(&mut self, count: u64, outcome: &mut Outcome) -> Result<bool> {
        let left = self
            .body_left
            .unwrap_or(0)
            .checked_sub(count)
            .context("more than announced")?;
        self.body_left = Some(left);
        if left > 0 {
            return Ok(false);
        }
        let pack = &self.packs[self.pack];
        if let Some(hash) = &mut self.hash {
            let found: [u8; 32] = hash.finalize_reset().into();
            anyhow::ensure!(found == pack.digest, "wrong bytes");
        }
        outcome.completed += 1;
        outcome.bytes += pack.size;
        outcome.durations.push(self.asked.elapsed());
        self.body_left = None;
        self.pack = (self.pack + 1) % self.packs.len();
        self.reads_left -= 1;
        if self.reads_left == 0 {
            return Ok(true);
        }
        self.ask()?;
        Ok(false)
    }
}

/// `Content-Length` of an answer's head; an answer must be 200 and have one.
fn content_length(head: &[u8]) -> Result<u64> {
    let head = std::str::from_utf8(head).context("a head that is no text")?;
    let mut lines = head.lines();
    let status = lines.next().unwrap_or_default();
    anyhow::ensure!(status.split(' ').nth(1) == Some("200"), "answered {status:?}");
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse().ok())?
    });
    length.context("no Content-Length")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pack(content: &[u8]) -> Pack {
        Pack {
            name: "name".to_owned(),
            digest: Sha256::digest(content).into(),
            size: content.len() as u64,
        }
    }

    /// Answers every request of one connection with `answer`.
    fn serve(answer: Vec<u8>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            while stream.read(&mut request).is_ok_and(|count| count > 0) {
                stream.write_all(&answer).unwrap();
            }
        });
        address
    }

    fn play_against(body: &[u8], expected: &[u8], reads: usize) -> Outcome {
        let mut answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
        answer.extend_from_slice(body);
        let load = Load {
            server: serve(answer),
            packs: vec![pack(expected)].into(),
            clients: 1,
            reads,
            duration_max: Duration::from_secs(20),
        };
        play(&load).unwrap()
    }

    #[test]
    fn a_client_reads_several_packs_on_one_connection() {
        let content = vec![7; 3_000_000];
        let outcome = play_against(&content, &content, 3);
        assert_eq!((outcome.completed, outcome.bytes), (3, 9_000_000), "{outcome:?}");
        assert_eq!((outcome.ends.len(), outcome.failures.len()), (1, 0));
    }

    #[test]
    fn wrong_bytes_are_no_complete_answer() {
        let outcome = play_against(&[7; 1000], &[8; 1000], 1);
        assert_eq!((outcome.completed, outcome.bytes), (0, 0));
        assert_eq!(outcome.failures.get("wrong bytes"), Some(&1), "{outcome:?}");
    }

    #[test]
    fn another_length_or_status_is_no_answer() {
        let outcome = play_against(&[7; 1000], &[7; 999], 1);
        assert!(outcome.completed == 0 && outcome.failures.len() == 1, "{outcome:?}");
        assert!(content_length(b"HTTP/1.1 503 Busy\r\nContent-Length: 5").is_err());
        assert!(content_length(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked").is_err());
        assert_eq!(
            content_length(b"HTTP/1.1 200 OK\r\nContent-LENGTH: 5\r\nA: b").unwrap(),
            5
        );
    }
}
