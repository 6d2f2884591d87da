//! A node's timeline.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use store::BootEvent;
use tokio::time::Instant;

use super::Limits;
use super::extract::{Asked, Named};
use super::identity::Viewer;
use crate::app::trace::{self, NodeWhy};
use crate::app::{App, AppError, nodes, packets};
use crate::http::error::ErrorBody;

/// Longest wait for an event, in seconds: below what proxies call an idle connection.
const WAIT_SECS_MAX: u64 = 25;
/// Between two looks while waiting.
const PAUSE: Duration = Duration::from_secs(1);

/// Which events.
#[derive(Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsAsked {
    /// Only events after the one with this id; 0: the newest ones.
    after: i64,
    /// Seconds to wait for an event when there is none; at most 25 are waited.
    wait_secs: u64,
}

/// Says why a node does not boot, or how far it came.
#[utoipa::path(get, path = "/nodes/{node}/why", tag = "nodes",
    params(("node" = String, Path, description = "Id, name or MAC.")),
    responses((status = 200, body = NodeWhy), (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_why(
    _viewer: Viewer,
    State(app): State<App>,
    Named(node): Named<String>,
) -> Result<Json<NodeWhy>, AppError> {
    let node = nodes::node_find(&app, &node).await?;
    Ok(Json(trace::node_why(&app, node).await?))
}

/// Gives the last DHCP messages of a node, at most 100 of each of its interfaces, as a pcap file.
#[utoipa::path(get, path = "/nodes/{node}/packets", tag = "nodes",
    params(("node" = String, Path, description = "Id, name or MAC.")),
    responses((status = 200, body = Vec<u8>, content_type = "application/vnd.tcpdump.pcap"),
              (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_packets(
    _viewer: Viewer,
    State(app): State<App>,
    Named(node): Named<String>,
) -> Result<Response, AppError> {
    let node = nodes::node_find(&app, &node).await?;
    let file = packets::pcap(&app, node).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/vnd.tcpdump.pcap".to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{node}.pcap\""),
        ),
    ];
    Ok((headers, file).into_response())
}

/// Lists what a node was seen to do, oldest first; waits for news when asked to.
#[utoipa::path(get, path = "/nodes/{node}/events", tag = "nodes",
    params(("node" = String, Path, description = "Id, name or MAC."), EventsAsked),
    responses((status = 200, body = Vec<BootEvent>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_events(
    _viewer: Viewer,
    State(app): State<App>,
    State(limits): State<Arc<Limits>>,
    Named(node): Named<String>,
    Asked(asked): Asked<EventsAsked>,
) -> Result<Json<Vec<BootEvent>>, AppError> {
    let node = nodes::node_find(&app, &node).await?;
    let waits = limits.waiters.try_acquire();
    let wait_secs = if waits.is_ok() { asked.wait_secs } else { 0 };
    let until = Instant::now() + Duration::from_secs(wait_secs.min(WAIT_SECS_MAX));
    loop {
        let events = app.store.event_list(node, asked.after).await?;
        if !events.is_empty() || Instant::now() >= until {
            return Ok(Json(events));
        }
        tokio::time::sleep_until(until.min(Instant::now() + PAUSE)).await;
    }
}
