//! Image data over plain HTTP.

use std::io::Read;
use std::time::{Duration, Instant};

use bytes::Bytes;
use manifest::packs::Part;
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
/// How long a server may ask to come back later before a fetch is given up: it is there and has others to serve first.
const TURN_LIMIT: Duration = Duration::from_secs(3_600);
/// The longest pause that a server may ask for at a time, in seconds.
const PAUSE_SECS_MAX: u64 = 60;
/// Pieces of an answer that wait for the disk; each is at most a few hundred KB.
const QUEUE: usize = 16;

/// GET of a bounded answer, tried again while the server is away.
///
/// # Errors
/// The last [`ApiError`].
pub async fn bytes(images: &Api, path: &str, limit: usize, tracker: &Tracker) -> Result<Vec<u8>, ApiError> {
    let mut patience = Patience::new(Instant::now());
    loop {
        tracker.count_request();
        let error = match images.get_bytes(path, limit).await {
            Ok(bytes) => {
                tracker.count_fetched(bytes.len() as u64);
                return Ok(bytes);
            }
            Err(error) => error,
        };
        let Some(pause) = patience.pause(&error, Instant::now()) else {
            return Err(error);
        };
        tracker.say(format!("{}; trying again", chain(&error)));
        tokio::time::sleep(pause).await;
    }
}

/// How long a fetch goes on without getting anything. A server that asks to come back later is not away: what it asks
/// for is waited, and counts as a word of it.
struct Patience {
    backoff: Backoff,
    last_bytes: Instant,
    last_word: Instant,
}

impl Patience {
    fn new(now: Instant) -> Self {
        Self {
            backoff: Backoff::default(),
            last_bytes: now,
            last_word: now,
        }
    }

    /// The pause before the next try; none: it is given up.
    fn pause(&mut self, error: &ApiError, now: Instant) -> Option<Duration> {
        if !error.is_temporary() {
            return None;
        }
        if let ApiError::Refused {
            retry_after_secs: Some(secs),
            ..
        } = error
        {
            let pause = Duration::from_secs((*secs).clamp(1, PAUSE_SECS_MAX));
            (self.backoff, self.last_word) = (Backoff::default(), now);
            return (now + pause <= self.last_bytes + TURN_LIMIT).then_some(pause);
        }
        let pause = self.backoff.pause();
        (now + pause <= self.last_word + SILENCE_LIMIT).then_some(pause)
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
    fn open(&self, part: &Part<'_>, again: u32) -> Box<dyn Read + Send> {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let mut path = format!("{}/{}", paths::PACKS, part.info.digest);
        if again > 0 {
            // Whatever stands between here and the server must not answer with the same damage.
            path.push_str(&format!("?again={again}"));
        }
        let download = Download {
            images: self.images.clone(),
            path,
            begin: part.offset,
            end: (!part.is_whole).then(|| part.offset.saturating_add(part.info.size)),
            size: part.info.size,
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
    /// Where in the pack the part begins.
    begin: u64,
    /// Where in the pack it ends, when it is not all of it.
    end: Option<u64>,
    size: u64,
    /// Bytes of the part so far.
    at: u64,
    sender: mpsc::Sender<std::io::Result<Bytes>>,
    tracker: Tracker,
}

impl Download {
    /// Streams the part; after a break it goes on where it stopped.
    async fn run(mut self) {
        let mut patience = Patience::new(Instant::now());
        loop {
            let before = self.at;
            self.tracker.count_request();
            let Err(error) = self.receive().await else { return };
            if self.at > before {
                patience = Patience::new(Instant::now());
            }
            let Some(pause) = patience.pause(&error, Instant::now()) else {
                let error = std::io::Error::other(chain(&error));
                // Nobody reads any more: nobody is to be told.
                let _ = self.sender.send(Err(error)).await;
                return;
            };
            self.tracker
                .say(format!("{}; going on from byte {}", chain(&error), self.at));
            tokio::time::sleep(pause).await;
        }
    }

    async fn receive(&mut self) -> Result<(), ApiError> {
        let from = self.begin.saturating_add(self.at);
        let mut response = self.images.get_stream(&self.path, from, self.end).await?;
        // A server or cache without ranges begins at the beginning.
        let mut skip = if response.status().as_u16() == 206 { 0 } else { from };
        loop {
            let piece = response.chunk().await.map_err(|source| ApiError::Transport {
                url: self.path.clone(),
                source,
            })?;
            let Some(mut piece) = piece else { return Ok(()) };
            self.tracker.count_fetched(piece.len() as u64);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, retry_after_secs: Option<u64>) -> ApiError {
        ApiError::Refused {
            url: "http://10.77.0.1:8081/boot/v1/packs/x".to_owned(),
            status,
            message: String::new(),
            retry_after_secs,
        }
    }

    /// Asks again as long as it may; how long that was.
    fn endured(error: &ApiError) -> Duration {
        let begun = Instant::now();
        let (mut patience, mut now) = (Patience::new(begun), begun);
        while let Some(pause) = patience.pause(error, now) {
            now += pause;
        }
        now - begun
    }

    #[test]
    fn a_server_that_asks_to_wait_is_waited_for_and_one_that_is_away_is_given_up() {
        let busy = endured(&refused(503, Some(2)));
        assert!(
            busy > TURN_LIMIT - Duration::from_secs(60) && busy <= TURN_LIMIT,
            "{busy:?}"
        );
        let away = endured(&refused(502, None));
        assert!(away <= SILENCE_LIMIT && away > SILENCE_LIMIT / 2, "{away:?}");
        assert_eq!(endured(&refused(404, None)), Duration::ZERO);
    }

    #[test]
    fn a_pause_is_as_long_as_asked_for_within_reason() {
        let now = Instant::now();
        let pause = |secs| {
            Patience::new(now)
                .pause(&refused(503, Some(secs)), now)
                .unwrap()
                .as_secs()
        };
        assert_eq!((pause(0), pause(7), pause(86_400)), (1, 7, 60));
    }

    #[test]
    fn a_word_of_the_server_begins_its_silence_anew() {
        let begun = Instant::now();
        let mut patience = Patience::new(begun);
        let later = begun + SILENCE_LIMIT * 3;
        assert!(patience.pause(&refused(503, Some(2)), later).is_some());
        assert!(patience.pause(&refused(500, None), later + SILENCE_LIMIT / 2).is_some());
        assert!(patience.pause(&refused(500, None), later + SILENCE_LIMIT * 2).is_none());
    }
}
