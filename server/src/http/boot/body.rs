//! A file as the body of an answer, sent by the kernel.
//!
//! The kernel sends what is in memory without waiting; what it has to read from disk first would hold up a thread of the
//! runtime and every connection on it. So each piece is looked at first, and one that is not in memory is brought there
//! by another thread, with the piece after it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use tokio::task::JoinHandle;

use super::admission::Place;
use crate::http::sendfile::{Outbox, PIECE_BYTES_MAX};

/// Between two looks at whether a piece is in memory: smaller than what the kernel reads at a time.
const LOOK_BYTES: u64 = 64 << 10;

/// A part of a file on a connection that can send files.
pub(super) struct FileBody {
    file: Arc<File>,
    at: u64,
    end: u64,
    outbox: Outbox,
    bringing: Option<JoinHandle<io::Result<()>>>,
    /// Kept as long as there is something to send.
    _place: Option<Place>,
}

impl FileBody {
    pub(super) const fn new(
        file: Arc<File>,
        range: std::ops::Range<u64>,
        outbox: Outbox,
        place: Option<Place>,
    ) -> Self {
        Self {
            file,
            at: range.start,
            end: range.end,
            outbox,
            bringing: None,
            _place: place,
        }
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = &mut *self;
        let length = (this.end - this.at).min(PIECE_BYTES_MAX as u64);
        if length == 0 {
            return Poll::Ready(None);
        }
        if this.bringing.is_none() && !is_in_memory(&this.file, this.at, length) {
            let (file, at) = (Arc::clone(&this.file), this.at);
            this.bringing = Some(tokio::task::spawn_blocking(move || bring(&file, at, length)));
        }
        if let Some(bringing) = &mut this.bringing {
            let brought = ready!(Pin::new(bringing).poll(cx));
            this.bringing = None;
            if let Err(error) = brought.map_err(io::Error::other).flatten() {
                return Poll::Ready(Some(Err(error)));
            }
        }
        let piece = this.outbox.stand_in(&this.file, this.at, length);
        this.at += piece.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.at == self.end
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.end - self.at)
    }
}

/// Whether the kernel has a piece in memory. Where it cannot say, it is asked to fetch it and taken at its word.
fn is_in_memory(file: &File, start: u64, length: u64) -> bool {
    let last = start + length - 1;
    for at in (start..last).step_by(LOOK_BYTES as usize).chain([last]) {
        let mut byte = [0];
        match preadv2(file, &mut [io::IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT) {
            Ok(_) => {}
            Err(Errno::OPNOTSUPP) => {
                let _only_advice = fadvise(file, start, std::num::NonZeroU64::new(length), Advice::WillNeed);
                return true;
            }
            Err(_) => return false,
        }
    }
    true
}

/// Reads a piece into the kernel's memory, and lets it begin with the next.
fn bring(file: &File, start: u64, length: u64) -> io::Result<()> {
    let next = std::num::NonZeroU64::new(PIECE_BYTES_MAX as u64);
    for (at, length) in [(start, std::num::NonZeroU64::new(length)), (start + length, next)] {
        let _only_advice = fadvise(file, at, length, Advice::WillNeed);
    }
    // A byte of each page's neighbourhood: reading it waits until it is there.
    let last = start + length - 1;
    for at in (start..last).step_by(4096).chain([last]) {
        file.read_exact_at(&mut [0], at)?;
    }
    Ok(())
}
