//! `plumbline-bench tftp`: this project's TFTP engine beside tftpd-hpa and dnsmasq.
//!
//! Reading order: [`cases`] says what is measured and what it should come to, [`client`] is one reading client,
//! [`generator`] is many of them, [`servers`] starts what is measured, [`rounds`] takes it all in turns, [`report`]
//! tells.

pub mod cases;
pub mod client;
pub mod generator;
pub mod report;
pub mod rounds;
pub mod servers;
