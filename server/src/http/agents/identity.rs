//! Who speaks: the client certificate's record decides.

use std::net::SocketAddr;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use manifest::Digest;
use protocol::NodeId;
use store::CertificateRecord;

use crate::app::enrol::Ramdisk;
use crate::app::{App, AppError};

/// The other end of a TLS connection; put into each request by the listener.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// SHA-256 of its certificate, which the CA has signed; none without one.
    pub fingerprint: Option<Digest>,
}

/// An agent of a running node.
#[derive(Clone, Copy, Debug)]
pub struct Agent {
    /// Its node.
    pub node: NodeId,
}

async fn certificate(parts: &Parts, app: &App, purpose: &str) -> Result<CertificateRecord, AppError> {
    let fingerprint = parts.extensions.get::<Peer>().and_then(|peer| peer.fingerprint);
    let fingerprint = fingerprint.ok_or_else(|| AppError::Unauthorized("expected a client certificate".to_owned()))?;
    let record = app.store.certificate_find(fingerprint.as_bytes()).await?;
    let record =
        record.ok_or_else(|| AppError::Unauthorized("the client certificate is revoked or unknown".to_owned()))?;
    match record.purpose == purpose {
        true => Ok(record),
        false => Err(AppError::Forbidden(format!(
            "expected a certificate for {purpose}, not {}",
            record.purpose
        ))),
    }
}

impl FromRequestParts<App> for Ramdisk {
    type Rejection = AppError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, AppError> {
        let record = certificate(parts, app, "ramdisk").await?;
        let token = record
            .token_id
            .ok_or_else(|| AppError::Forbidden("the certificate has no token".to_owned()))?;
        Ok(Self {
            node: record.node_id,
            token,
        })
    }
}

impl FromRequestParts<App> for Agent {
    type Rejection = AppError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, AppError> {
        Ok(Self {
            node: certificate(parts, app, "agent").await?.node_id,
        })
    }
}
