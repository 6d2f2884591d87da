//! TFTP: loaders, and what is kept of each transfer.

use std::net::{IpAddr, SocketAddr};

use netboot::tftp::{
    FileName, OpenError, Outcome, TftpConfig, TftpFile, TftpServer, TftpSource, TransferEvent, TransferEventKind,
};
use store::NewEvent;

use super::after_shim::is_optional;
use crate::app::{App, trace};
use crate::config::{BootConfig, BootInterface};

/// The TFTP server on one interface.
///
/// # Errors
/// A port that cannot be bound.
pub fn tftp_server(app: &App, config: &BootConfig, interface: &BootInterface) -> std::io::Result<TftpServer<Tftp>> {
    let listen = SocketAddr::new(IpAddr::V4(interface.address.addr()), config.tftp_port);
    let mut tftp = TftpConfig::new(listen);
    tftp.interface = Some(interface.name.clone());
    tftp.limits = config.tftp.limits;
    tftp.rollover = config.tftp.rollover;
    tftp.is_single_port = config.tftp.is_single_port;
    let server = TftpServer::bind(tftp, Tftp::new(app, &config.http_url(interface)))?;
    app.metrics.add_protocol("tftp", &interface.name, server.counters());
    Ok(server)
}

/// What TFTP serves: loaders, and nothing else.
pub struct Tftp {
    app: App,
    /// Where what is fetched here goes on.
    http_base: String,
}

impl std::fmt::Debug for Tftp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tftp")
    }
}

impl Tftp {
    pub(super) fn new(app: &App, http_base: &str) -> Self {
        Self {
            app: app.clone(),
            http_base: http_base.to_owned(),
        }
    }

    async fn keep(&self, event: &TransferEvent, what: &str) -> Result<(), store::StoreError> {
        // TFTP knows no MAC; the lease does, where this server gave it.
        let address = event.peer.ip().to_string();
        let lease = self.app.store.lease_find_by_address(&address).await?;
        let detail = format!("{what} to {address}");
        self.app
            .store
            .event_add(NewEvent {
                node_id: None,
                mac: lease.as_ref().map(|lease| lease.mac.as_str()),
                kind: "tftp",
                detail: &detail,
            })
            .await
    }
}

/// What a person reads of an event; none for what is no news.
fn told(event: &TransferEvent) -> Option<String> {
    let name = &event.name;
    match &event.kind {
        TransferEventKind::Started { .. } => None,
        // Firmware that asks for the size first is not reading yet.
        TransferEventKind::Finished {
            outcome: Outcome::Probed,
            ..
        } => None,
        TransferEventKind::Finished {
            outcome,
            acked_bytes,
            duration,
        } => Some(format!(
            "{name} {}: {acked_bytes} bytes in {} ms",
            outcome.kind(),
            duration.as_millis()
        )),
        TransferEventKind::NotFound if is_optional(name) => None,
        TransferEventKind::NotFound => Some(format!("{name}{}", trace::TFTP_MISSING)),
        TransferEventKind::Refused => Some(format!("{name}: refused")),
    }
}

impl TftpSource for Tftp {
    async fn open(&self, name: &FileName, _peer: SocketAddr) -> Result<TftpFile, OpenError> {
        self.app.loaders.find(name, &self.http_base).ok_or(OpenError::NotFound)
    }

    async fn open_default(&self, name: Option<&FileName>, peer: SocketAddr) -> Option<(FileName, TftpFile)> {
        self.app.loaders.find_next(name, peer.ip())
    }

    async fn event(&self, event: TransferEvent) {
        if let TransferEventKind::Finished {
            outcome: Outcome::Complete,
            ..
        } = event.kind
        {
            self.app.loaders.note_read(&event.name, event.peer.ip());
        }
        let Some(what) = told(&event) else { return };
        if let Err(error) = self.keep(&event, &what).await {
            tracing::warn!(error = %crate::http::error::chain(&error), "a TFTP event was not kept");
        }
    }
}
