//! The threads that move the packets of all transfers.
//!
//! Idea: each thread waits for the sockets of its transfers in one `epoll`, level-triggered, so that a block costs one
//! wait for many, one receive and one send. A task and a timer of the runtime for each transfer cost a quarter more.
//! What may wait, the content's source and whoever is told, stays with the task of [`super::session`].
//!
//! Invariants: nothing here waits for anything but packets and times; a transfer has one time in the queue that counts,
//! the earliest it may be due at.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;
use tracing::{error, warn};

use super::exchange::{Buffers, Exchange, Word};

/// Sockets that one wait tells of.
const READY_MAX: usize = 256;
/// Beginnings and words that wait for a thread; who has more waits.
const COMMANDS_MAX: usize = 1024;
/// More threads than this would wait for the network card.
const THREADS_MAX: usize = 4;
/// What the wake-up is called among the exchanges, which are counted from 1.
const WAKE: u64 = 0;

enum Command {
    Begin(u64, Box<Exchange>),
    Word(u64, Word),
}

/// The threads. They end when this was dropped and their last transfer ended.
pub(super) struct Pumps {
    pumps: Vec<Inlet>,
    begun: AtomicU64,
}

/// The way in to one thread.
struct Inlet {
    /// None while this is being dropped.
    commands: Option<mpsc::Sender<Command>>,
    wake: Arc<OwnedFd>,
}

impl Inlet {
    async fn send(&self, command: Command) {
        if let Some(commands) = &self.commands
            && commands.send(command).await.is_ok()
        {
            ring(&self.wake);
        }
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        // In this order: the thread looks for the end of its commands when it is woken.
        self.commands = None;
        ring(&self.wake);
    }
}

fn ring(wake: &OwnedFd) {
    // Full means that the thread will look anyway.
    let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
}

/// Names one exchange of a [`Pumps`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExchangeId(u64);

impl Pumps {
    /// Starts a thread for every two processors: what serves the machines afterwards, HTTP and the database, needs the
    /// others.
    ///
    /// # Errors
    /// When a thread cannot be started or the kernel has no file descriptor left.
    pub(super) fn start() -> io::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let pumps = (0..(processors / 2).clamp(1, THREADS_MAX))
            .map(|number| Inlet::start(&format!("tftp-{number}")))
            .collect::<io::Result<_>>()?;
        Ok(Self {
            pumps,
            begun: AtomicU64::new(1),
        })
    }

    /// Begins an exchange. It is dropped, and tells no end, when the kernel will not watch its socket.
    pub(super) async fn begin(&self, exchange: Exchange) -> ExchangeId {
        let id = self.begun.fetch_add(1, Ordering::Relaxed);
        self.inlet(id).send(Command::Begin(id, Box::new(exchange))).await;
        ExchangeId(id)
    }

    /// Says a word to an exchange; one that ended hears nothing.
    pub(super) async fn say(&self, id: ExchangeId, word: Word) {
        self.inlet(id.0).send(Command::Word(id.0, word)).await;
    }

    fn inlet(&self, id: u64) -> &Inlet {
        let count = self.pumps.len() as u64;
        // There is at least one, and the remainder is below their number.
        &self.pumps[usize::try_from(id % count).unwrap_or(0)]
    }
}

impl Inlet {
    fn start(name: &str) -> io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poller, &*wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        let (commands, inlet) = mpsc::channel(COMMANDS_MAX);
        let pump = Pump {
            poller,
            wake: Arc::clone(&wake),
            commands: inlet,
            exchanges: HashMap::new(),
            times: BinaryHeap::new(),
            buffers: Buffers::default(),
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(|| pump.run())?;
        Ok(Self {
            commands: Some(commands),
            wake,
        })
    }
}

struct Pump {
    poller: OwnedFd,
    wake: Arc<OwnedFd>,
    commands: mpsc::Receiver<Command>,
    exchanges: HashMap<u64, Entry>,
    /// When to look after which exchange; what is not [`Entry::queued`] any more is passed over.
    times: BinaryHeap<Reverse<(Instant, u64)>>,
    buffers: Buffers,
}

struct Entry {
    exchange: Box<Exchange>,
    /// Its time in the queue that counts.
    queued: Instant,
}

impl Pump {
    fn run(mut self) {
        let mut ready = [MaybeUninit::uninit(); READY_MAX];
        let mut is_open = true;
        while is_open || !self.exchanges.is_empty() {
            let wait = self.wait().map(timespec);
            let (events, _) = match epoll::wait(&self.poller, &mut ready, wait.as_ref()) {
                Ok(ready) => ready,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => {
                    // Only a broken descriptor; without one there is nothing to serve with.
                    error!(%error, "TFTP cannot wait for packets; its transfers end");
                    return;
                }
            };
            for event in events {
                match event.data.u64() {
                    WAKE => is_open = self.commands(),
                    id => self.receive(id),
                }
            }
            self.time_passes();
        }
    }

    /// Until the next time in the queue; none while there is nothing to wait for.
    fn wait(&self) -> Option<Duration> {
        let Reverse((next, _)) = self.times.peek()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Takes what was sent in; false when no more can come.
    fn commands(&mut self) -> bool {
        let mut count = [0; 8];
        // Empty when it was read already.
        let _ = rustix::io::read(&*self.wake, &mut count);
        loop {
            match self.commands.try_recv() {
                Ok(Command::Begin(id, exchange)) => self.begin(id, exchange),
                Ok(Command::Word(id, word)) => self.touch(id, |exchange, buffers| exchange.word(word, buffers)),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn begin(&mut self, id: u64, mut exchange: Box<Exchange>) {
        if let Some(socket) = exchange.own_socket()
            && let Err(error) = epoll::add(&self.poller, socket, EventData::new_u64(id), EventFlags::IN)
        {
            warn!(%error, "TFTP transfer's socket cannot be watched");
            return;
        }
        exchange.begin(&mut self.buffers);
        let queued = exchange.due();
        self.times.push(Reverse((queued, id)));
        self.exchanges.insert(id, Entry { exchange, queued });
    }

    fn receive(&mut self, id: u64) {
        if let Some(entry) = self.exchanges.get_mut(&id)
            && entry.exchange.receive(&mut self.buffers).is_err()
        {
            // It would be told of for ever.
            unwatch(&self.poller, &entry.exchange);
        }
        self.settle(id);
    }

    fn time_passes(&mut self) {
        let now = Instant::now();
        while let Some(Reverse((time, id))) = self.times.peek().copied() {
            if time > now {
                return;
            }
            self.times.pop();
            let Some(entry) = self.exchanges.get_mut(&id) else {
                continue;
            };
            if entry.queued != time {
                continue;
            }
            entry.exchange.time_passed(now, &mut self.buffers);
            // Later than `now` if it has not ended: a wait is never zero, and the end ends it.
            entry.queued = entry.exchange.due();
            self.times.push(Reverse((entry.queued, id)));
            self.settle(id);
        }
    }

    fn touch(&mut self, id: u64, act: impl FnOnce(&mut Exchange, &mut Buffers)) {
        if let Some(entry) = self.exchanges.get_mut(&id) {
            act(&mut entry.exchange, &mut self.buffers);
        }
        self.settle(id);
    }

    /// Forgets an exchange that ended, and queues one that is due earlier than it was.
    fn settle(&mut self, id: u64) {
        let Some(entry) = self.exchanges.get_mut(&id) else {
            return;
        };
        if entry.exchange.has_ended() {
            // The socket may live on, for the same request once more.
            unwatch(&self.poller, &entry.exchange);
            self.exchanges.remove(&id);
        } else if entry.exchange.due() < entry.queued {
            entry.queued = entry.exchange.due();
            self.times.push(Reverse((entry.queued, id)));
        }
    }
}

fn unwatch(poller: &OwnedFd, exchange: &Exchange) {
    if let Some(socket) = exchange.own_socket() {
        // Fails where it was done before.
        let _ = epoll::delete(poller, socket);
    }
}

fn timespec(wait: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(wait.subsec_nanos()),
    }
}
