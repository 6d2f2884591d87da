//! Where content comes from, and who is told what happened.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::names::FileName;
use super::transfer::Outcome;

/// Content of one file, shared: cloning it copies nothing.
pub type TftpFile = Bytes;

/// Why a file is not served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no such name. With a second candidate name, that is tried next.
    #[error("no such file")]
    NotFound,
    /// This peer may not have it.
    #[error("not for this machine")]
    Refused,
    /// The source failed; the client is told, and asks again by itself.
    #[error("the file cannot be read now")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// What happened to a request. One `Started` is followed by one `Finished` for the same peer and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferEvent {
    /// The machine's address and port.
    pub peer: SocketAddr,
    /// The name that was served, or the first that was tried.
    pub name: FileName,
    /// What happened.
    pub kind: TransferEventKind,
}

/// The kinds of [`TransferEvent`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferEventKind {
    /// A transfer began.
    Started {
        /// Size of the file.
        file_bytes: u64,
        /// Agreed block size.
        block_bytes: u16,
        /// Agreed window.
        window_blocks: u16,
    },
    /// It ended. A size probe ([`Outcome::Probed`]) is normal and no failure.
    Finished {
        /// How.
        outcome: Outcome,
        /// Content the machine confirmed, in bytes.
        acked_bytes: u64,
        /// Time since the request.
        duration: Duration,
    },
    /// There is no file of that name.
    NotFound,
    /// The source refused it or failed.
    Refused,
}

/// Serves names. The server calls it from many transfers at once.
pub trait TftpSource: Send + Sync + 'static {
    /// The content of `name` for `peer`.
    ///
    /// Names are normalised, but firmware is free with them: case may differ, and a loader may be asked for under a
    /// folder or at the root; see [`FileName::basename`].
    fn open(&self, name: &FileName, peer: SocketAddr) -> impl Future<Output = Result<TftpFile, OpenError>> + Send;

    /// What `peer` must mean by a name that nothing has, if that can be known. `name` is none where the name cannot even
    /// be read. shim asks for names made of a boot entry's label, so a source that knows what the machine loaded last
    /// may answer with what comes next. Names that lead out of their folder never get here.
    fn open_default(
        &self,
        name: Option<&FileName>,
        peer: SocketAddr,
    ) -> impl Future<Output = Option<(FileName, TftpFile)>> + Send {
        let _ = (name, peer);
        std::future::ready(None)
    }

    /// Told what happened. Awaited by the transfer, so it should be quick or hand over to a queue.
    fn event(&self, event: TransferEvent) -> impl Future<Output = ()> + Send;
}

impl<T: TftpSource> TftpSource for Arc<T> {
    fn open(&self, name: &FileName, peer: SocketAddr) -> impl Future<Output = Result<TftpFile, OpenError>> + Send {
        T::open(self, name, peer)
    }

    fn open_default(
        &self,
        name: Option<&FileName>,
        peer: SocketAddr,
    ) -> impl Future<Output = Option<(FileName, TftpFile)>> + Send {
        T::open_default(self, name, peer)
    }

    fn event(&self, event: TransferEvent) -> impl Future<Output = ()> + Send {
        T::event(self, event)
    }
}
