//! TFTP, read only, for the first loader of firmware that speaks nothing better.
//!
//! Reading order: [`packet`] is the wire (RFC 1350, RFC 2347), [`names`] makes a safe name of what firmware sends,
//! [`options`] agrees on sizes (RFC 2348, 2349, 7440), [`transfer`] is the pure state of one transfer, [`server`]
//! takes the requests, `session` answers one, `pump` and `exchange` move the blocks. Content comes from a [`TftpSource`].
//!
//! Invariant: names are looked up in a map that the source owns; no name ever reaches a file system. Content is in
//! memory and shared, so a thousand machines that read one loader hold it once.
//!
//! Refused: writing. A boot server has nothing to receive by TFTP.

mod exchange;
pub mod map;
pub mod names;
pub mod options;
mod pace;
pub mod packet;
mod pump;
pub mod server;
mod session;
pub mod source;
pub mod transfer;

pub use map::FileMap;
pub use names::{FileName, NameError};
pub use options::{Agreed, Limits};
pub use packet::{ErrorCode, Packet, PacketError};
pub use server::{TftpConfig, TftpServer};
pub use source::{OpenError, TftpFile, TftpSource, TransferEvent, TransferEventKind};
pub use transfer::{Action, Event, Outcome, Rollover, Transfer};
