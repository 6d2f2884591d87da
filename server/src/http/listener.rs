//! What all listeners share: connections bounded, requests' heads timed, the end waited for.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::Request;
use axum::http::request::Parts;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::{Service, ServiceExt as _};

use super::sendfile::FileStream;

/// Time given to requests under way when the server stops.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// How a listener treats its connections.
#[derive(Debug, Clone, Copy)]
pub struct Connections {
    /// The listener's name, in logs.
    pub name: &'static str,
    /// Connections open at a time; one more waits to be accepted.
    pub open_max: usize,
    /// Time for a request's head to arrive, from the connection's start or from the end of the request before.
    pub head_limit: Duration,
    /// How long a client may take next to nothing of what there is to send; none: as long as it likes.
    pub stall_limit: Option<Duration>,
    /// Headers are spelled `Content-Length`, not `content-length`. RFC 9110 knows no difference; GRUB 2.12 does, and
    /// without a length that it sees it takes a script for unfinished until the connection ends.
    pub title_case: bool,
}

/// The address by which a machine reached this server; put into each request by the listener. None where there was no
/// socket, or the kernel does not tell.
#[derive(Clone, Copy, Debug)]
pub struct LocalAddress(pub Option<IpAddr>);

impl LocalAddress {
    /// That of a connection.
    #[must_use]
    pub fn of(stream: &TcpStream) -> Self {
        Self(stream.local_addr().ok().map(|address| address.ip().to_canonical()))
    }
}

impl<S: Sync> FromRequestParts<S> for LocalAddress {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or(Self(None)))
    }
}

/// Accepts connections until cancelled, and handles each with `handle`; then waits for those that are open.
pub async fn accept<F, R>(listener: TcpListener, how: Connections, cancel: CancellationToken, handle: F)
where
    F: Fn(TcpStream, SocketAddr) -> R,
    R: Future<Output = ()> + Send + 'static,
{
    let open = std::sync::Arc::new(Semaphore::new(how.open_max));
    let tracker = TaskTracker::new();
    loop {
        let permit = tokio::select! {
            () = cancel.cancelled() => break,
            permit = open.clone().acquire_owned() => permit,
        };
        let accepted = tokio::select! {
            () = cancel.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors: give connections time to end.
                tracing::warn!(listener = how.name, %error, "accepting a connection failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(listener = how.name, peer = %address, %error, "no TCP_NODELAY");
        }
        let handled = handle(stream, address);
        tracker.spawn(async move {
            handled.await;
            drop(permit);
        });
    }
    tracker.close();
    if tokio::time::timeout(STOP_LIMIT, tracker.wait()).await.is_err() {
        tracing::debug!(
            listener = how.name,
            "connections were still open when the server stopped"
        );
    }
}

/// Serves plain HTTP until cancelled. Routes see the peer as [`ConnectInfo`] and the address that it asked as
/// [`LocalAddress`], and send files through the connection's
/// [`Outbox`](super::sendfile::Outbox).
pub async fn plain(listener: TcpListener, how: Connections, router: Router, cancel: CancellationToken) {
    accept(listener, how, cancel.clone(), |stream, address| {
        let local = LocalAddress::of(&stream);
        let stream = FileStream::new(stream, how.stall_limit);
        let outbox = stream.outbox();
        let service = router.clone().map_request(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(address));
            request.extensions_mut().insert(local);
            request.extensions_mut().insert(outbox.clone());
            request
        });
        connection(stream, address, how, service, cancel.clone())
    })
    .await;
}

/// Serves the requests of one connection; when cancelled, the one under way is finished.
pub async fn connection<I, S>(stream: I, address: SocketAddr, how: Connections, service: S, cancel: CancellationToken)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<axum::http::Request<Incoming>, Response = axum::http::Response<Body>> + Clone + Send + 'static,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::Future: Send,
{
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(how.head_limit)
        .title_case_headers(how.title_case);
    let graceful = GracefulShutdown::new();
    let service = TowerToHyperService::new(service);
    let serving = graceful.watch(builder.serve_connection(TokioIo::new(stream), service));
    tokio::pin!(serving);
    tokio::select! {
        result = &mut serving => {
            if let Err(error) = result {
                tracing::debug!(listener = how.name, peer = %address, %error, "connection ended");
            }
        }
        () = cancel.cancelled() => {
            tokio::join!(graceful.shutdown(), async { _ = serving.await; });
        }
    }
}
