//! Listeners: boot (plain HTTP on the provisioning network), agents (mutual TLS), people (API and web).

pub mod agents;
pub mod boot;
pub mod error;
pub mod listener;
pub mod people;
pub mod range;
pub mod sendfile;
pub mod web;
