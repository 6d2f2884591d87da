//! TLS in front of the agents' routes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use manifest::Digest;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::Peer;
use crate::app::authority::{Authority, AuthorityError};
use crate::http::listener::{self, Connections, LocalAddress};

/// Time for a TLS handshake, and for a request's head.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(15);
const CONNECTIONS: Connections = Connections {
    name: "agents",
    open_max: 20_000,
    head_limit: HANDSHAKE_LIMIT,
    stall_limit: None,
    title_case: false,
};

/// The listener cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ListenerError {
    /// The CA cannot issue.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// TLS cannot be set up.
    #[error("agents' listener: TLS: {0}")]
    Tls(String),
}

fn tls(authority: &Authority, addresses: &[std::net::IpAddr]) -> Result<TlsAcceptor, ListenerError> {
    let wrong = |error: &dyn std::fmt::Display| ListenerError::Tls(error.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let ca = CertificateDer::from_pem_slice(authority.certificate_pem().as_bytes()).map_err(|e| wrong(&e))?;
    let mut roots = RootCertStore::empty();
    roots.add(ca).map_err(|e| wrong(&e))?;
    // Only the claim comes without a certificate; every other route asks for one.
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|e| wrong(&e))?;
    let (issued, key) = authority.issue_server(addresses)?;
    let certificate = CertificateDer::from_pem_slice(issued.pem.as_bytes()).map_err(|e| wrong(&e))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|e| wrong(&e))?;
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| wrong(&e))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate], key)
        .map_err(|e| wrong(&e))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves until cancelled. `addresses` are the names of the listener's certificate.
///
/// # Errors
/// [`ListenerError`] when TLS cannot be set up; connections that fail are only logged.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    authority: Arc<Authority>,
    addresses: Vec<std::net::IpAddr>,
    cancel: CancellationToken,
) -> Result<(), ListenerError> {
    let acceptor = tls(&authority, &addresses)?;
    listener::accept(listener, CONNECTIONS, cancel.clone(), |stream, address| {
        connection(stream, address, acceptor.clone(), router.clone(), cancel.clone())
    })
    .await;
    Ok(())
}

async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    acceptor: TlsAcceptor,
    router: Router,
    cancel: CancellationToken,
) {
    let local = LocalAddress::of(&stream);
    let stream = match tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(peer = %address, %error, "TLS handshake failed");
            return;
        }
        Err(_) => {
            tracing::debug!(peer = %address, "TLS handshake took too long");
            return;
        }
    };
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let fingerprint = certificates.first().map(|certificate| Digest::of(certificate));
    let router = router
        .layer(Extension(Peer { address, fingerprint }))
        .layer(Extension(local));
    listener::connection(stream, address, CONNECTIONS, router, cancel).await;
}
