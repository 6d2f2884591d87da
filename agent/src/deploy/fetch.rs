//! Image data over plain HTTP.

use std::io::Read;
use std::time::{Duration, Instant};

use bytes::Bytes;
use manifest::packs::PackInfo;
use protocol::latest::paths;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::chain;
use super::progress::Tracker;
use super::write::PackSource;
use crate::api::{Api, ApiError};
use crate::ramdisk::Backoff;

/// How long a server may give nothing before a fetch is given up.
const SILENCE_LIMIT: Duration = Duration::from_secs(120);
/// Pieces of an answer that wait for the disk; each is at most a few hundred KB.
const QUEUE: usize = 16;

/// GET of a bounded answer, tried again while the server is away.
///
/// # Errors
/// The last [`ApiError`].
pub async fn bytes(images: &Api, path: &str, limit: usize, tracker: &Tracker) -> Result<Vec<u8>, ApiError> {
    let end = Instant::now() + SILENCE_LIMIT;
    let mut backoff = Backoff::default();
    loop {
        tracker.count_request();
        let error = match images.get_bytes(path, limit).await {
            Ok(bytes) => return Ok(bytes),
            Err(error) => error,
        };
        let pause = backoff.pause();
        if !error.is_temporary() || Instant::now() + pause > end {
            return Err(error);
        }
        tracker.say(format!("{}; trying again", chain(&error)));
        tokio::time::sleep(pause).await;
    }
}

/// Packs from the boot listener.
#[derive(Clone, Debug)]
pub struct HttpPacks {
    images: Api,
    runtime: Handle,
    tracker: Tracker,
}

impl HttpPacks {
    /// A source whose requests run on `runtime`, which some other thread must be driving.
    #[must_use]
    pub const fn new(images: Api, runtime: Handle, tracker: Tracker) -> Self {
        Self {
            images,
            runtime,
            tracker,
        }
    }
}

impl PackSource for HttpPacks {
    fn open(&self, pack: &PackInfo, again: u32) -> Box<dyn Read + Send> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let mut path = format!("{}/{}", paths::PACKS, pack.digest);
        if again > 0 {
            // Whatever stands between here and the server must not answer with the same damage.
            path.push_str(&format!("?again={again}"));
        }
        let download = Download {
            images: self.images.clone(),
            path,
            size: pack.size,
            at: 0,
            sender,
            tracker: self.tracker.clone(),
        };
        // Ends by itself when the reader is dropped.
        self.runtime.spawn(download.run());
        Box::new(Pieces {
            receiver,
            current: Bytes::new(),
        })
    }
}

struct Download {
    images: Api,
    path: String,
    size: u64,
    at: u64,
    sender: mpsc::Sender<std::io::Result<Bytes>>,
    tracker: Tracker,
}

impl Download {
    /// Streams the pack; after a break it goes on where it stopped.
    async fn run(mut self) {
        let mut backoff = Backoff::default();
        let mut last_news = Instant::now();
        loop {
            let before = self.at;
            self.tracker.count_request();
            let Err(error) = self.receive().await else { return };
            if self.at > before {
                (backoff, last_news) = (Backoff::default(), Instant::now());
            }
            let pause = backoff.pause();
            if !error.is_temporary() || last_news.elapsed() + pause > SILENCE_LIMIT {
                let error = std::io::Error::other(chain(&error));
                // Nobody reads any more: nobody is to be told.
                let _ = self.sender.send(Err(error)).await;
                return;
            }
            self.tracker
                .say(format!("{}; going on from byte {}", chain(&error), self.at));
            tokio::time::sleep(pause).await;
        }
    }

    async fn receive(&mut self) -> Result<(), ApiError> {
        let mut response = self.images.get_stream(&self.path, self.at).await?;
        // A server or cache without ranges begins at the beginning.
        let mut skip = if response.status().as_u16() == 206 { 0 } else { self.at };
        loop {
            let piece = response.chunk().await.map_err(|source| ApiError::Transport {
                url: self.path.clone(),
                source,
            })?;
            let Some(mut piece) = piece else { return Ok(()) };
            let skipped = skip.min(piece.len() as u64);
            skip -= skipped;
            let _ = piece.split_to(usize::try_from(skipped).unwrap_or(usize::MAX));
            let left = self.size - self.at;
            piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            if piece.is_empty() {
                if left == 0 {
                    return Ok(());
                }
                continue;
            }
            self.at += piece.len() as u64;
            if self.sender.send(Ok(piece)).await.is_err() {
                return Ok(());
            }
        }
    }
}

/// The reading end, for a thread.
struct Pieces {
    receiver: mpsc::Receiver<std::io::Result<Bytes>>,
    current: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.current.is_empty() {
            match self.receiver.blocking_recv() {
                Some(piece) => self.current = piece?,
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.current.len());
        buffer[..count].copy_from_slice(&self.current.split_to(count));
        Ok(count)
    }
}
