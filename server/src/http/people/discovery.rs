//! Machines nobody listed, and the windows in which they are answered.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use store::{DiscoveryWindow, OtherDhcpServer, Sighting};

use super::extract::Body;
use super::identity::{Admin, Viewer};
use crate::app::{App, AppError, discovery};
use crate::http::error::ErrorBody;

/// A window to be opened.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewWindow {
    /// IPv4 subnet in CIDR form, without host bits. Expected: this or a circuit.
    subnet: Option<String>,
    /// Circuit as a relay writes it (option 82), or its beginning and `*`.
    relay_circuit: Option<String>,
    /// How long it is open: 1 to 1440 minutes.
    minutes: i64,
    /// How many machines it admits: 1 to 10000.
    nodes_max: i32,
}

/// What was closed.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct Disarmed {
    /// Windows that were open.
    windows: u64,
}

/// Lists machines that asked and got no answer, newest first, at most 1,000.
#[utoipa::path(get, path = "/sightings", tag = "discovery",
    responses((status = 200, body = Vec<Sighting>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn sighting_list(_viewer: Viewer, State(app): State<App>) -> Result<Json<Vec<Sighting>>, AppError> {
    Ok(Json(app.store.sighting_list().await?))
}

/// Lists other DHCP servers of the provisioning network, as machines name them; the one named last first.
#[utoipa::path(get, path = "/dhcp-servers", tag = "discovery",
    responses((status = 200, body = Vec<OtherDhcpServer>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn dhcp_server_list(
    _viewer: Viewer,
    State(app): State<App>,
) -> Result<Json<Vec<OtherDhcpServer>>, AppError> {
    Ok(Json(app.store.dhcp_server_list().await?))
}

/// Lists the windows that are open.
#[utoipa::path(get, path = "/discovery", tag = "discovery",
    responses((status = 200, body = Vec<DiscoveryWindow>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn discovery_list(
    _viewer: Viewer,
    State(app): State<App>,
) -> Result<Json<Vec<DiscoveryWindow>>, AppError> {
    Ok(Json(app.store.discovery_list_open().await?))
}

/// Arms discovery: unknown machines of a subnet or a relay's circuit are answered, inventoried, and then wait for approval.
#[utoipa::path(post, path = "/discovery", tag = "discovery", request_body = NewWindow,
    responses((status = 201, body = DiscoveryWindow), (status = "4XX", body = ErrorBody)))]
pub(super) async fn discovery_arm(
    Admin(user): Admin,
    State(app): State<App>,
    Body(new): Body<NewWindow>,
) -> Result<(StatusCode, Json<DiscoveryWindow>), AppError> {
    let (subnet, circuit) = (new.subnet.as_deref(), new.relay_circuit.as_deref());
    let window = discovery::discovery_arm(&app, subnet, circuit, new.minutes, new.nodes_max, &user.name).await?;
    Ok((StatusCode::CREATED, Json(window)))
}

/// Ends all open windows.
#[utoipa::path(delete, path = "/discovery", tag = "discovery",
    responses((status = 200, body = Disarmed), (status = "4XX", body = ErrorBody)))]
pub(super) async fn discovery_disarm(Admin(user): Admin, State(app): State<App>) -> Result<Json<Disarmed>, AppError> {
    let windows = app.store.discovery_disarm().await?;
    let detail = format!("{windows} windows ended");
    app.store
        .audit_add(&user.name, "discovery_disarmed", "discovery", &detail)
        .await?;
    Ok(Json(Disarmed { windows }))
}
