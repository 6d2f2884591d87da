//! The cable between a machine and its switch port, where it is a bad one.
//!
//! QEMU hands every frame of a network backend to this program and takes back what comes out of it
//! (`filter-redirector`, one in each direction). Frames cross a Unix socket with their length before them, four bytes
//! in network order. Refused: the kernel's `netem`, which many kernels are built without.

pub mod faults;
pub mod recorded;

use anyhow::{Context as _, Result, bail};
use faults::{Fates, Line, Rates};
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{self, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// QEMU connects at its start, or not at all.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
const CONNECT_PAUSE: Duration = Duration::from_millis(20);
/// A frame that nothing has overtaken goes on after this long.
const HOLD_LIMIT: Duration = Duration::from_millis(20);
/// Frames on their way to QEMU.
const FRAMES_QUEUED_MAX: usize = 4_096;
/// No frame is longer: the backend is opened without offloads.
const FRAME_BYTES_MAX: usize = 65_536;

/// The names of the sockets: QEMU writes frames to the first of each pair and reads from the second.
pub(crate) const DIRECTIONS: [(&str, &str); 2] = [("tx-out", "tx-in"), ("rx-out", "rx-in")];

/// A bad cable, for as long as the machine is on.
#[derive(Debug)]
pub struct Wire {
    fates: Vec<Arc<Mutex<Fates>>>,
}

impl Wire {
    /// Opens the sockets in `folder`, before QEMU starts. The threads behind them end with QEMU.
    ///
    /// # Errors
    /// When a socket cannot be made.
    pub fn open(folder: &Path, rates: Rates, seed: u64) -> Result<Self> {
        let mut fates = Vec::new();
        for (number, (out, back)) in DIRECTIONS.into_iter().enumerate() {
            let (out, back) = (listen(&folder.join(out))?, listen(&folder.join(back))?);
            let line = Line::new(rates, seed.wrapping_add(number as u64));
            let told = Arc::new(Mutex::new(Fates::default()));
            fates.push(told.clone());
            thread::spawn(move || {
                if let Err(error) = carry(&out, &back, line, &told) {
                    tracing::debug!(error = %format!("{error:#}"), "a cable ended");
                }
            });
        }
        Ok(Self { fates })
    }

    /// What has become of the frames of both directions.
    pub fn fates(&self) -> Fates {
        let mut sum = Fates::default();
        for fates in &self.fates {
            let one = *fates.lock().unwrap_or_else(PoisonError::into_inner);
            sum.frames += one.frames;
            sum.dropped += one.dropped;
            sum.doubled += one.doubled;
            sum.swapped += one.swapped;
        }
        sum
    }
}

fn listen(path: &Path) -> Result<UnixListener> {
    // One left by a machine that was on before.
    let _absent = fs::remove_file(path);
    let listener = UnixListener::bind(path).with_context(|| format!("cannot listen at {}", path.display()))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn accept(listener: &UnixListener) -> Result<UnixStream> {
    let started = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if started.elapsed() > CONNECT_LIMIT {
            bail!("QEMU did not connect");
        }
        thread::sleep(CONNECT_PAUSE);
    }
}

fn carry(out: &UnixListener, back: &UnixListener, mut line: Line, told: &Mutex<Fates>) -> Result<()> {
    let (mut from, mut to) = (accept(out)?, accept(back)?);
    from.set_read_timeout(Some(HOLD_LIMIT))?;
    // QEMU writes and reads on one thread: were a write here to wait for it, each would wait for the other. What does not
    // fit into the queue is lost, as at any switch.
    let (queue, waiting) = mpsc::sync_channel::<Vec<u8>>(FRAMES_QUEUED_MAX);
    thread::spawn(move || {
        for packed in waiting {
            if to.write_all(&packed).is_err() {
                return;
            }
        }
    });
    let (mut buffer, mut chunk) = (Vec::new(), vec![0; FRAME_BYTES_MAX]);
    loop {
        let passed = match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                buffer.extend_from_slice(&chunk[..count]);
                let frames = take_frames(&mut buffer)?;
                frames.into_iter().flat_map(|frame| line.pass(frame)).collect()
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Vec::from_iter(line.release())
            }
            Err(error) => return Err(error.into()),
        };
        for frame in passed {
            let length = u32::try_from(frame.len()).context("a frame's length")?;
            let packed = [&length.to_be_bytes()[..], &frame].concat();
            match queue.try_send(packed) {
                Ok(()) => {}
                Err(TrySendError::Full(_)) => line.lose(),
                Err(TrySendError::Disconnected(_)) => return Ok(()),
            }
        }
        *told.lock().unwrap_or_else(PoisonError::into_inner) = line.fates();
    }
}

/// Takes whole frames from the front of the buffer; the rest stays.
fn take_frames(buffer: &mut Vec<u8>) -> Result<Vec<Vec<u8>>> {
    let (mut frames, mut at) = (Vec::new(), 0);
    while let Some((length, rest)) = buffer[at..].split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        if length > FRAME_BYTES_MAX {
            bail!("a frame of {length} bytes");
        }
        let Some(frame) = rest.get(..length) else { break };
        frames.push(frame.to_vec());
        at += 4 + length;
    }
    buffer.drain(..at);
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_whole_and_in_order() {
        let mut buffer = [&[0, 0, 0, 2][..], b"ab", &[0, 0, 0, 1], b"c", &[0, 0, 0, 3], b"d"].concat();
        assert_eq!(take_frames(&mut buffer).unwrap(), [b"ab".to_vec(), b"c".to_vec()]);
        assert_eq!(buffer, [0, 0, 0, 3, b'd']);
        buffer.extend(b"ef");
        assert_eq!(take_frames(&mut buffer).unwrap(), [b"def".to_vec()]);
        assert!(take_frames(&mut vec![0xff; 8]).is_err());
    }

    #[test]
    fn a_frame_crosses_the_wire_in_each_direction() {
        let folder = tempfile::tempdir().unwrap();
        let rates = Rates {
            dropped_percent: 0,
            doubled_percent: 0,
            swapped_percent: 100,
        };
        let wire = Wire::open(folder.path(), rates, 1).unwrap();
        for (out, back) in DIRECTIONS {
            let mut sender = UnixStream::connect(folder.path().join(out)).unwrap();
            let mut receiver = UnixStream::connect(folder.path().join(back)).unwrap();
            receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            sender.write_all(b"\0\0\0\x05hello").unwrap();
            let mut frame = [0; 9];
            receiver.read_exact(&mut frame).unwrap();
            assert_eq!(&frame, b"\0\0\0\x05hello", "held back, and then let go all the same");
        }
        assert_eq!(wire.fates().frames, 2);
    }
}
