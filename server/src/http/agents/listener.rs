//! TLS in front of the agents' routes: connections bounded, handshakes timed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use manifest::Digest;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::Peer;
use crate::app::authority::{Authority, AuthorityError};

/// Connections open at a time.
const CONNECTIONS_MAX: usize = 20_000;
/// Time for a TLS handshake, and for a request's headers.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(15);
/// Time given to requests under way when the server stops.
const STOP_LIMIT: Duration = Duration::from_secs(5);

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
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let tracker = tokio_util::task::TaskTracker::new();
    loop {
        let permit = tokio::select! {
            () = cancel.cancelled() => break,
            permit = connections.clone().acquire_owned() => permit,
        };
        let accepted = tokio::select! {
            () = cancel.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors: give connections time to end.
                tracing::warn!(%error, "accepting a connection on the agents' listener failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (acceptor, router, cancel) = (acceptor.clone(), router.clone(), cancel.clone());
        tracker.spawn(async move {
            connection(stream, address, acceptor, router, cancel).await;
            drop(permit);
        });
    }
    tracker.close();
    if tokio::time::timeout(STOP_LIMIT, tracker.wait()).await.is_err() {
        tracing::debug!("connections of agents were still open when the server stopped");
    }
    Ok(())
}

async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    acceptor: TlsAcceptor,
    router: Router,
    cancel: CancellationToken,
) {
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
    let service = TowerToHyperService::new(router.layer(Extension(Peer { address, fingerprint })));
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_LIMIT);
    let graceful = GracefulShutdown::new();
    let serving = graceful.watch(builder.serve_connection(TokioIo::new(stream), service));
    tokio::pin!(serving);
    tokio::select! {
        result = &mut serving => {
            if let Err(error) = result {
                tracing::debug!(peer = %address, %error, "connection ended");
            }
        }
        () = cancel.cancelled() => {
            // Lets the request under way finish, then closes.
            tokio::join!(graceful.shutdown(), async { _ = serving.await; });
        }
    }
}
