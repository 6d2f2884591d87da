//! What PostgreSQL writes to its standard error: into a file of bounded size, the end of it kept in memory for errors.
//!
//! PostgreSQL's own collector is refused: it bounds the age of a file, not its size, and takes over only after the
//! first messages, which are the ones that tell why a start failed.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// A file is put aside at this size; one older file is kept.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The end that is kept in memory.
const TAIL_BYTES_MAX: usize = 4 << 10;

/// The end of the log.
#[derive(Clone, Debug)]
pub(super) struct LogTail {
    bytes: Arc<Mutex<VecDeque<u8>>>,
    drained: watch::Receiver<bool>,
}

impl LogTail {
    /// The end of what was written so far, from the start of a line where it was cut.
    pub fn text(&self) -> String {
        let bytes: Vec<u8> = self
            .bytes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .copied()
            .collect();
        let text = String::from_utf8_lossy(&bytes);
        let text = match text.split_once('\n') {
            Some((_, rest)) if bytes.len() >= TAIL_BYTES_MAX => rest,
            _ => &text,
        };
        text.trim_end().to_owned()
    }

    /// The end of the log after the process is gone: waits up to 2 s for what is still in the pipe.
    pub async fn text_at_end(&self) -> String {
        let mut drained = self.drained.clone();
        let _ = tokio::time::timeout(Duration::from_secs(2), drained.wait_for(|drained| *drained)).await;
        self.text()
    }
}

/// Starts the thread that empties `source` until its end; it must never stop before, or PostgreSQL would block.
pub(super) fn keep(mut source: impl Read + Send + 'static, folder: &Path) -> io::Result<LogTail> {
    let (drained_sender, drained) = watch::channel(false);
    let tail = LogTail {
        bytes: Arc::default(),
        drained,
    };
    let bytes = Arc::clone(&tail.bytes);
    let mut file = BoundedFile::new(folder.join("postgres.log"));
    std::thread::Builder::new()
        .name("postgres-log".to_owned())
        .spawn(move || {
            let mut buffer = [0; 8192];
            loop {
                let chunk = match source.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(count) => buffer.get(..count).unwrap_or_default(),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(_) => break,
                };
                let mut bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
                bytes.extend(chunk);
                let surplus = bytes.len().saturating_sub(TAIL_BYTES_MAX);
                bytes.drain(..surplus);
                drop(bytes);
                file.write(chunk);
            }
            drained_sender.send_replace(true);
        })?;
    Ok(tail)
}

/// A log file that is put aside when it is full.
struct BoundedFile {
    path: PathBuf,
    /// None after a failure: tried again at the next write.
    file: Option<(File, u64)>,
    has_warned: bool,
}

impl BoundedFile {
    fn new(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            has_warned: false,
        }
    }

    /// Writes, or drops the chunk: a full disk must not stop the database.
    fn write(&mut self, chunk: &[u8]) {
        match self.try_write(chunk) {
            Ok(()) => self.has_warned = false,
            Err(error) => {
                self.file = None;
                if !self.has_warned {
                    tracing::warn!(path = %self.path.display(), %error, "cannot write PostgreSQL's log");
                    self.has_warned = true;
                }
            }
        }
    }

    fn try_write(&mut self, chunk: &[u8]) -> io::Result<()> {
        let (mut file, size_bytes) = match self.file.take() {
            Some(open) => open,
            None => self.open()?,
        };
        file.write_all(chunk)?;
        let size_bytes = size_bytes + chunk.len() as u64;
        if size_bytes >= FILE_BYTES_MAX {
            fs::rename(&self.path, self.path.with_extension("log.1"))?;
        } else {
            self.file = Some((file, size_bytes));
        }
        Ok(())
    }

    fn open(&self) -> io::Result<(File, u64)> {
        let file = OpenOptions::new().append(true).create(true).open(&self.path)?;
        let size_bytes = file.metadata()?.len();
        Ok((file, size_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_flood_stays_bounded_and_its_end_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let flood = io::repeat(b'x').take(3 * FILE_BYTES_MAX).chain(&b"\nthe reason\n"[..]);
        let tail = keep(flood, folder.path()).unwrap();
        assert_eq!(tail.text_at_end().await, "the reason");
        let sizes: Vec<u64> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .collect();
        assert_eq!(sizes.len(), 2, "{sizes:?}");
        assert!(sizes.iter().all(|&size| size <= FILE_BYTES_MAX), "{sizes:?}");
    }
}
