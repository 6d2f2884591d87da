//! A connection that sends files where stand-ins are written, and gives up on a client that takes nothing.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use super::stall::Patience;
use super::{Outbox, Piece, position};

/// A TCP connection with an [`Outbox`].
#[derive(Debug)]
pub struct FileStream {
    stream: TcpStream,
    outbox: Outbox,
    stall: Option<Stall>,
}

#[derive(Debug)]
struct Stall {
    patience: Patience,
    limit: Duration,
    timer: Pin<Box<Sleep>>,
}

impl FileStream {
    /// `stall_limit`: how long a client may take next to nothing of what there is to send; none: as long as it likes.
    #[must_use]
    pub fn new(stream: TcpStream, stall_limit: Option<Duration>) -> Self {
        Self {
            stream,
            outbox: Outbox::default(),
            stall: stall_limit.map(|limit| Stall {
                patience: Patience::new(limit),
                limit,
                timer: Box::pin(tokio::time::sleep(limit)),
            }),
        }
    }

    /// Where bodies put the files of this connection.
    #[must_use]
    pub fn outbox(&self) -> Outbox {
        self.outbox.clone()
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let slices = &slices[slices.iter().take_while(|slice| slice.is_empty()).count()..];
        let is_plain = |slice: &&IoSlice<'_>| slice.is_empty() || position(slice).is_none();
        let plain = slices.iter().take_while(is_plain).count();
        if plain > 0 || slices.is_empty() {
            return Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..plain]);
        }
        let mut pieces = self.outbox.lock();
        let piece = pieces
            .front_mut()
            .filter(|piece| position(&slices[0]) == Some(piece.sent) && slices[0].len() == piece.left)
            .ok_or_else(|| io::Error::other("a stand-in that is not the next piece of a file"))?;
        let sent = ready!(poll_send_piece(&self.stream, cx, piece))?;
        piece.at += sent as u64;
        piece.sent += sent;
        piece.left -= sent;
        if piece.left == 0 {
            pieces.pop_front();
        }
        Poll::Ready(Ok(sent))
    }

    /// Ends with an error what took too long.
    fn judge(&mut self, cx: &mut Context<'_>, sent: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let Some(stall) = &mut self.stall else { return sent };
        match &sent {
            Poll::Ready(Ok(count)) => stall.patience.took(*count),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                let until = stall.patience.blocked(Instant::now()).into();
                if stall.timer.deadline() != until {
                    stall.timer.as_mut().reset(until);
                }
                ready!(stall.timer.as_mut().poll(cx));
                let message = format!("the client took next to nothing for {} s", stall.limit.as_secs());
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)));
            }
        }
        sent
    }
}

/// Sends some of a piece, as soon as the socket takes any.
fn poll_send_piece(stream: &TcpStream, cx: &mut Context<'_>, piece: &Piece) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(cx))?;
        let sent = stream.try_io(Interest::WRITABLE, || {
            let mut at = piece.at;
            Ok(rustix::fs::sendfile(stream, &*piece.file, Some(&mut at), piece.left)?)
        });
        return match sent {
            Ok(0) => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "a file became shorter while it was sent",
            ))),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => continue,
            sent => Poll::Ready(sent),
        };
    }
}

impl AsyncWrite for FileStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let sent = this.poll_send(cx, slices);
        this.judge(cx, sent)
    }

    /// What makes hyper hand on bodies by reference.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // hyper flushes when nothing is left to write.
        if let Some(stall) = &mut this.stall {
            stall.patience.idle();
        }
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

impl AsyncRead for FileStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
