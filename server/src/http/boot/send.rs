//! How large things are answered: whole or a part, at once or in turn, sent by the kernel where it can be.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use axum::body::Body;
use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt as _;
use store::NewEvent;

use super::admission::{Answer as Admitted, Place, SMALL_BYTES_MAX, WAIT_LIMIT};
use super::body::FileBody;
use super::pace;
use crate::app::{App, AppError, trace};
use crate::http::range::{self, Answer};
use crate::http::sendfile::Outbox;
use crate::image::{Download, PIECE_BYTES, StoreError};

/// When a client may come back whose turn is near: it waited long already, and keeps its turn.
const BACK_SOON_SECS: u16 = 2;
/// When a client may come back that found the queue full.
const BACK_LATER_SECS: u16 = 15;

/// Who asks, and how.
#[derive(Debug)]
pub(super) struct Asked {
    /// The machine's address.
    pub machine: IpAddr,
    /// HEAD: the size is wanted and not the bytes.
    pub is_probe: bool,
    /// The header `Range`.
    pub range: Option<String>,
    /// Where files are put, on a connection that can send them.
    pub outbox: Option<Outbox>,
}

impl<S: Sync> FromRequestParts<S> for Asked {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        Ok(Self {
            machine: peer.map_or(IpAddr::from([0, 0, 0, 0]), |ConnectInfo(peer)| peer.ip()),
            is_probe: parts.method == Method::HEAD,
            range: text(&parts.headers, header::RANGE),
            outbox: parts.extensions.get().cloned(),
        })
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// How fast something is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// As fast as the machine takes it.
    Freely,
    /// At the pace for loaders, where there is one.
    AtPace,
}

/// Answers for a whole or a part of it. `open` gives the whole, or a part for a store that has to be asked for it anew.
pub(super) async fn ranged<F, R>(app: &App, asked: &Asked, sent: Sent, open: F) -> Result<Response, AppError>
where
    F: Fn(Option<Range<u64>>) -> R,
    R: Future<Output = Result<Download, StoreError>>,
{
    let whole = open(None).await?;
    let size = whole.size;
    let (status, download, content_range) = match range::answer(asked.range.as_deref(), size) {
        Answer::Whole => (StatusCode::OK, whole, None),
        Answer::Part(range) => {
            let content_range = format!("bytes {}-{}/{size}", range.start, range.end - 1);
            let part = match whole.narrowed(range.clone()) {
                Ok(part) => part,
                Err(_) => open(Some(range)).await?,
            };
            (StatusCode::PARTIAL_CONTENT, part, Some(content_range))
        }
        Answer::Outside => {
            let content_range = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
            return Ok((StatusCode::RANGE_NOT_SATISFIABLE, content_range).into_response());
        }
    };
    let length = download.length();
    let is_large = !asked.is_probe && !download.is_in_memory() && length > SMALL_BYTES_MAX;
    let place = match is_large {
        true => match place(app, asked.machine).await {
            Ok(place) => Some(place),
            Err(turned_away) => return Ok(turned_away),
        },
        false => None,
    };
    let mut response = (status, body(app, asked, sent, download, place)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    if let Some(value) = content_range.and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(header::CONTENT_RANGE, value);
    }
    Ok(response)
}

fn body(app: &App, asked: &Asked, sent: Sent, download: Download, place: Option<Place>) -> Body {
    if asked.is_probe {
        return Body::empty();
    }
    let pace = Some(&app.loader_pace).filter(|pace| sent == Sent::AtPace && pace.is_set());
    let pieces = match (pace, download.file(), &asked.outbox) {
        (None, Some(file), Some(outbox)) => {
            let (file, range) = (file.clone(), download.range.clone());
            return Body::new(FileBody::new(file, range, outbox.clone(), place));
        }
        (None, ..) => download.pieces(PIECE_BYTES),
        (Some(pace), ..) => pace.apply(asked.machine, download.pieces(pace::PIECE_BYTES)),
    };
    Body::from_stream(pieces.inspect(move |_| {
        // The place is kept as long as there are pieces.
        let _kept = &place;
    }))
}

/// A place for a large body, at once or after a while; else the answer that asks to come back.
pub(super) async fn place(app: &App, machine: IpAddr) -> Result<Place, Response> {
    let waiting = match app.bodies.ask(machine) {
        Admitted::Place(place) => return Ok(place),
        Admitted::Full => return Err(turned_away("too many downloads wait", BACK_LATER_SECS)),
        Admitted::Waits(waiting) => waiting,
    };
    if waiting.is_news() {
        note_waiting(app, machine).await;
    }
    let limit = WAIT_LIMIT;
    let place = waiting.place(limit).await;
    place.ok_or_else(|| turned_away("all downloads are in use; this machine keeps its turn", BACK_SOON_SECS))
}

/// Tells the machine's timeline. What cannot be told is no reason to send nothing.
async fn note_waiting(app: &App, machine: IpAddr) {
    let (Some(standing), Some(mac)) = (app.bodies.standing(machine), app.bodies.machines().at(machine)) else {
        return;
    };
    let (mac, detail) = (mac.to_string(), trace::download_detail(&standing));
    let event = NewEvent {
        node_id: None,
        mac: Some(&mac),
        kind: "download_waits",
        detail: &detail,
    };
    if let Err(error) = app.store.event_add(event).await {
        tracing::warn!(node.mac = %mac, %error, "that a download waits was not kept");
    }
}

fn turned_away(problem: &str, secs: u16) -> Response {
    let mut response = AppError::Unavailable(format!("{problem}: come back in {secs} s")).into_response();
    response.headers_mut().insert(header::RETRY_AFTER, secs.into());
    response
}
