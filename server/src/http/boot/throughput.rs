//! Measuring the network between a machine and the server: zeros to fetch, and somewhere to send some.
//!
//! Both count as large bodies and take their turn: a burn-in never keeps an installation waiting longer than another one
//! does.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::StreamExt as _;
use protocol::limits::THROUGHPUT_BYTES_MAX;
use serde::Deserialize;

use super::send::{Asked, place};
use crate::app::{App, AppError};

/// Bytes of one piece.
const PIECE_BYTES: usize = 256 << 10;
/// Longest time for one body: who sends slower would keep a place from machines that are to be installed.
const SINK_LIMIT: Duration = Duration::from_secs(60);
static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

#[derive(Deserialize)]
pub(super) struct Wanted {
    bytes: u64,
}

fn check(bytes: u64) -> Result<(), AppError> {
    match bytes <= THROUGHPUT_BYTES_MAX {
        true => Ok(()),
        false => Err(AppError::Invalid(format!(
            "bytes: {bytes}: expected at most {THROUGHPUT_BYTES_MAX}"
        ))),
    }
}

/// GET: so many zeros.
pub(super) async fn zeros(
    State(app): State<App>,
    Query(wanted): Query<Wanted>,
    asked: Asked,
) -> Result<Response, AppError> {
    app.metrics.boot_request("throughput");
    check(wanted.bytes)?;
    let place = match place(&app, asked.machine).await {
        Ok(place) => place,
        Err(turned_away) => return Ok(turned_away),
    };
    let whole = usize::try_from(wanted.bytes).unwrap_or(usize::MAX);
    let pieces = (0..whole.div_ceil(PIECE_BYTES)).map(move |piece| {
        // The place is kept as long as there are pieces.
        let _kept = &place;
        let length = (whole - piece * PIECE_BYTES).min(PIECE_BYTES);
        Ok::<_, std::io::Error>(Bytes::from_static(&ZEROS[..length]))
    });
    let body = match asked.is_probe {
        true => Body::empty(),
        false => Body::from_stream(futures::stream::iter(pieces)),
    };
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(wanted.bytes));
    let kind = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// POST: takes a body and throws it away.
pub(super) async fn sink(State(app): State<App>, asked: Asked, body: Body) -> Result<Response, AppError> {
    app.metrics.boot_request("throughput");
    let _place = match place(&app, asked.machine).await {
        Ok(place) => place,
        Err(turned_away) => return Ok(turned_away),
    };
    let late = |_| AppError::Invalid(format!("the body took longer than {} s", SINK_LIMIT.as_secs()));
    tokio::time::timeout(SINK_LIMIT, swallow(body)).await.map_err(late)??;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn swallow(body: Body) -> Result<(), AppError> {
    let (mut pieces, mut bytes) = (body.into_data_stream(), 0);
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| AppError::Invalid(format!("the body broke off: {error}")))?;
        bytes += piece.len() as u64;
        check(bytes)?;
    }
    Ok(())
}
