//! The boot plane's protocols: DHCP and proxyDHCP, TFTP, and iPXE scripts.
//!
//! Idea: each protocol is three layers that meet only in values. A *codec* turns bytes into types and back, a *policy*
//! (or transfer state) decides from values alone, and a thin *socket* layer moves bytes and time. What is known of a
//! machine comes in through [`dhcp::DhcpBackend`] and [`tftp::TftpSource`].
//!
//! Invariant: nothing here knows a store, a file system or a clock of its own beyond socket timers. Bytes from the
//! network yield an error with a stable `kind()`, which is counted ([`CounterSet`]), and never a panic; every queue,
//! every table and every loop has a bound.
//!
//! Refused: handlers that look up, decide and send in one function. They cannot be tested without a machine to boot.

pub mod architecture;
pub mod counters;
pub mod dhcp;
pub mod mac;
pub mod pcap;
pub mod rate;
pub mod script;
pub mod tftp;

mod socket;

pub use architecture::Architecture;
pub use counters::CounterSet;
pub use mac::{MacAddr, MacParseError};
