//! Behaviour seen from outside: golden packets, cases from the field, and both servers on loopback.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod captures;
mod corpus;
mod dhcp_cases;
mod dhcp_full;
mod dhcp_loopback;
mod field_dhcp;
mod field_tftp;
mod golden;
mod goldens;
mod properties;
mod support;
mod tftp_client;
mod tftp_loopback;
mod tftp_narrow;
mod tftp_wire;
