//! An object, or a range of one, on its way to whoever asked.
//!
//! A file of a local folder stays a file: it is opened once, whatever part of it is wanted, and whoever can lets the
//! kernel send it. Everything else comes as bytes.

use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::{GetResult, GetResultPayload};

use super::store::{StoreError, backend_error};

/// Bytes of a file that are read at a time, where no other number is asked for.
pub const PIECE_BYTES: usize = 256 << 10;

/// An object, or a range of one.
pub struct Download {
    /// Bytes of the whole object.
    pub size: u64,
    /// Which of them follow.
    pub range: Range<u64>,
    /// What it is, for messages.
    what: String,
    source: Source,
}

enum Source {
    File(Arc<File>),
    Memory(Bytes),
    Stream(BoxStream<'static, Result<Bytes, StoreError>>),
}

impl fmt::Debug for Download {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Download({:?} of {} bytes)", self.range, self.size)
    }
}

impl Download {
    /// What an object store answered; `what` names it in messages.
    pub(super) fn of(result: GetResult, what: String) -> Self {
        let (size, range) = (result.meta.size, result.range.clone());
        let source = match result.payload {
            GetResultPayload::File(file, _) => Source::File(Arc::new(file)),
            GetResultPayload::Stream(stream) => {
                let what = what.clone();
                let failed = move |source| backend_error(format!("reading {what}"), source);
                Source::Stream(stream.map_err(failed).boxed())
            }
        };
        Self {
            size,
            range,
            what,
            source,
        }
    }

    /// What lies in memory.
    #[must_use]
    pub fn of_memory(content: Bytes) -> Self {
        let size = content.len() as u64;
        Self {
            size,
            range: 0..size,
            what: "memory".to_owned(),
            source: Source::Memory(content),
        }
    }

    /// Bytes that follow.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Whether it lies in memory already.
    #[must_use]
    pub const fn is_in_memory(&self) -> bool {
        matches!(self.source, Source::Memory(_))
    }

    /// Only `range` of the object, which must lie inside it, where that takes no other request to the object store.
    ///
    /// # Errors
    /// Itself, where it does.
    pub fn narrowed(mut self, range: Range<u64>) -> Result<Self, Self> {
        if matches!(self.source, Source::Stream(_)) {
            return Err(self);
        }
        self.range = range;
        Ok(self)
    }

    /// The file it is, for who can send one without reading it.
    #[must_use]
    pub const fn file(&self) -> Option<&Arc<File>> {
        match &self.source {
            Source::File(file) => Some(file),
            _ => None,
        }
    }

    /// The bytes in pieces, of `piece_bytes` where the source leaves the choice. Of a file, one piece is read ahead.
    #[must_use]
    pub fn pieces(self, piece_bytes: usize) -> BoxStream<'static, Result<Bytes, StoreError>> {
        let (start, end) = (self.range.start, self.range.end);
        let starts = (start..end).step_by(piece_bytes);
        let end_of = move |start: u64| end.min(start + piece_bytes as u64);
        match self.source {
            Source::Stream(stream) => stream,
            Source::Memory(content) => {
                let piece = move |start: u64| Ok(content.slice(start as usize..end_of(start) as usize));
                stream::iter(starts.map(piece)).boxed()
            }
            Source::File(file) => {
                let what: Arc<str> = self.what.into();
                let read = move |start: u64| {
                    let (file, what) = (Arc::clone(&file), Arc::clone(&what));
                    let length = (end_of(start) - start) as usize;
                    async move {
                        let reading = tokio::task::spawn_blocking(move || read_at(&file, start, length));
                        let read = reading.await.map_err(std::io::Error::other).flatten();
                        read.map_err(|error| file_error(&what, error))
                    }
                };
                stream::iter(starts.map(read)).buffered(2).boxed()
            }
        }
    }

    /// All bytes at once.
    ///
    /// # Errors
    /// [`StoreError`] when the backend fails on the way.
    pub async fn bytes(self) -> Result<Bytes, StoreError> {
        let length = usize::try_from(self.length()).unwrap_or(0);
        let collect = |mut all: Vec<u8>, piece: Bytes| async move {
            all.extend_from_slice(&piece);
            Ok(all)
        };
        let pieces = self.pieces(PIECE_BYTES);
        let all = pieces.try_fold(Vec::with_capacity(length), collect).await?;
        Ok(all.into())
    }
}

/// The whole length or an error: an object that is cut short is no object.
fn read_at(file: &File, start: u64, length: usize) -> std::io::Result<Bytes> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes.into())
}

fn file_error(what: &str, error: std::io::Error) -> StoreError {
    let source = object_store::Error::Generic {
        store: "folder",
        source: Box::new(error),
    };
    backend_error(format!("reading {what}"), source)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn of_file(content: &[u8]) -> Download {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        let size = content.len() as u64;
        Download {
            size,
            range: 0..size,
            what: "pack x".to_owned(),
            source: Source::File(Arc::new(file)),
        }
    }

    #[tokio::test]
    async fn a_part_of_a_file_needs_no_other_file() {
        let content: Vec<u8> = (0..100_000_u32).map(|index| (index >> 4) as u8).collect();
        let part = of_file(&content).narrowed(999..99_001).unwrap();
        let pieces: Vec<Bytes> = part.pieces(30_000).try_collect().await.unwrap();
        assert_eq!(
            pieces.iter().map(Bytes::len).collect::<Vec<_>>(),
            [30_000, 30_000, 30_000, 8_002]
        );
        assert!(pieces.concat() == content[999..99_001]);
        let part = Download::of_memory(content.clone().into())
            .narrowed(999..99_001)
            .unwrap();
        assert!(part.bytes().await.unwrap() == content[999..99_001]);
        let stream = Download {
            source: Source::Stream(stream::empty().boxed()),
            ..of_file(&content)
        };
        assert!(stream.narrowed(0..1).is_err(), "another store is asked again");
    }

    #[tokio::test]
    async fn a_file_that_became_shorter_is_an_error_and_not_a_shorter_file() {
        let mut cut = of_file(b"short");
        (cut.size, cut.range) = (100, 0..100);
        let error = cut.bytes().await.unwrap_err();
        assert!(error.to_string().contains("pack x"), "{error}");
    }
}
