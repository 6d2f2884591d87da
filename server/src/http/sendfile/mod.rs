//! Files that the kernel sends (sendfile(2)) on connections whose HTTP is hyper's, which knows bytes in memory alone.
//!
//! Idea: a body gives hyper a *stand-in* for each piece of a file: as many bytes of one page of memory that nobody ever
//! reads. hyper does with them what it does with any bytes: it puts them behind the head, counts them, and hands them on
//! by reference to be written. [`FileStream`] knows a stand-in by where it lies in memory, and sends the file's piece
//! instead.
//!
//! Invariant: a stand-in is never written. One that is not the next piece of the connection's [`Outbox`] ends the
//! connection, so that no client takes one file's bytes for another's.
//!
//! Refused: files mapped into memory (one that is cut short meanwhile kills the server, and it is `unsafe`); an HTTP
//! server of its own for files (keep-alive, pipelining, HEAD and `Expect` would be written twice); copying through
//! memory, which costs about half the throughput. Where a connection has no outbox, it is what happens.

mod stall;
mod stream;

use std::collections::VecDeque;
use std::fs::File;
use std::io::IoSlice;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

pub use stream::FileStream;

/// Largest piece of a file that has a stand-in, in bytes.
pub const PIECE_BYTES_MAX: usize = 1 << 20;

/// What stands for files. Zeroed memory that is never read takes no room.
static STAND_IN: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(vec![0; PIECE_BYTES_MAX]));

/// Where in the stand-in a slice begins; none when it is other memory.
fn position(slice: &IoSlice<'_>) -> Option<usize> {
    let start = slice.as_ptr().addr().checked_sub(STAND_IN.as_ptr().addr())?;
    (start < PIECE_BYTES_MAX).then_some(start)
}

/// A piece of a file on its way.
#[derive(Debug)]
struct Piece {
    file: Arc<File>,
    /// Where its unsent rest begins in the file.
    at: u64,
    /// Bytes that are sent.
    sent: usize,
    /// Bytes that are not.
    left: usize,
}

/// The pieces whose stand-ins were given to a connection and are not written yet, in their order. hyper takes no more
/// than 16 pieces before it writes.
#[derive(Clone, Debug, Default)]
pub struct Outbox(Arc<Mutex<VecDeque<Piece>>>);

impl Outbox {
    /// Bytes for this connection that stand for `length` bytes of `file` from `at` on. They must be handed to hyper next,
    /// and whole.
    ///
    /// `length` is cut to [`PIECE_BYTES_MAX`]; the stand-in's length tells.
    #[must_use]
    pub fn stand_in(&self, file: &Arc<File>, at: u64, length: u64) -> Bytes {
        let left = usize::try_from(length).unwrap_or(usize::MAX).min(PIECE_BYTES_MAX);
        let file = Arc::clone(file);
        self.lock().push_back(Piece {
            file,
            at,
            sent: 0,
            left,
        });
        STAND_IN.slice(..left)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Piece>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
