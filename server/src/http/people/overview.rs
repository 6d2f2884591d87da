//! The fleet in a few numbers, who decided what, and notice of changes.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::Stream;
use futures::stream;
use serde::Deserialize;
use store::{AuditEvent, Notice};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::Limits;
use super::extract::Asked;
use super::identity::Viewer;
use crate::app::overview::{self, Overview};
use crate::app::{App, AppError};
use crate::http::error::ErrorBody;

/// Entries of the audit log in one answer.
const AUDIT_MAX: i64 = 200;

/// Which entries.
#[derive(Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditAsked {
    /// Only entries before the one with this id.
    before: Option<i64>,
}

/// Counts nodes by state and drift, findings by severity, and what changed within the last hour.
#[utoipa::path(get, path = "/overview", tag = "overview",
    responses((status = 200, body = Overview), (status = "4XX", body = ErrorBody)))]
pub(super) async fn overview_get(_viewer: Viewer, State(app): State<App>) -> Result<Json<Overview>, AppError> {
    Ok(Json(overview::overview(&app).await?))
}

/// Lists who decided what, newest first, 200 at a time.
#[utoipa::path(get, path = "/audit", tag = "overview", params(AuditAsked),
    responses((status = 200, body = Vec<AuditEvent>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn audit_list(
    _viewer: Viewer,
    State(app): State<App>,
    Asked(asked): Asked<AuditAsked>,
) -> Result<Json<Vec<AuditEvent>>, AppError> {
    Ok(Json(app.store.audit_list(asked.before, AUDIT_MAX).await?))
}

/// Tells of changes as server-sent events: the event is the topic (`node`, `event`, `deployment`, `drift`, `review`,
/// `run`, `discovery`, `image`, `build`), its data the id of the node, run or build, where that is known. `all`: read
/// everything again.
#[utoipa::path(get, path = "/stream", tag = "overview",
    responses((status = 200, content_type = "text/event-stream", body = String), (status = "4XX", body = ErrorBody)))]
pub(super) async fn stream_get(
    _viewer: Viewer,
    State(app): State<App>,
    State(limits): State<Arc<Limits>>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, AppError> {
    let permit = limits
        .streams
        .clone()
        .try_acquire_owned()
        .map_err(|_| AppError::Unavailable("too many pages are open at the same time".to_owned()))?;
    let first = stream::once(async { Ok(Event::default().event("all").data("")) });
    let rest = stream::unfold((app.notices.subscribe(), permit), next_event);
    Ok(Sse::new(futures::StreamExt::chain(first, rest)).keep_alive(KeepAlive::default()))
}

type Listener = (Receiver<Option<Notice>>, OwnedSemaphorePermit);

async fn next_event((mut receiver, permit): Listener) -> Option<(Result<Event, Infallible>, Listener)> {
    let event = match receiver.recv().await {
        Ok(Some(notice)) => Event::default().event(notice.topic).data(notice.id.unwrap_or_default()),
        Ok(None) | Err(RecvError::Lagged(_)) => Event::default().event("all").data(""),
        Err(RecvError::Closed) => return None,
    };
    Some((Ok(event), (receiver, permit)))
}
