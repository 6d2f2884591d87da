//! Deployments.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use protocol::DeploymentId;
use protocol::latest::{DeployMode, DiskRule};
use serde::Deserialize;
use store::DeploymentRecord;
use time::OffsetDateTime;

use super::extract::{Body, Named};
use super::identity::{Admin, Viewer};
use crate::app::deployments::{self, OldDisk};
use crate::app::{App, AppError, boot_orders, nodes};
use crate::http::error::ErrorBody;

/// A deployment to be made.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeploymentRequest {
    /// Image: a channel (`name/stable`), `name` (its newest version), `name@version`, or a digest's beginning; left out:
    /// the channel it was installed by, else what its discovery rule, else what its group says.
    image: Option<String>,
    /// Which disk; needed when the node has several.
    #[serde(default)]
    disk: DiskRule,
    /// Keep what is right on an installation of this node, or wipe. A disk that holds no such installation, or one with
    /// errors, is wiped in any case; the deployment then says why.
    #[serde(default)]
    mode: DeployMode,
    /// Paths that stay with all below them, where the image allows something unlisted; at most 32, and only in place. The
    /// disk is then never wiped instead: the deployment fails.
    #[serde(default)]
    keep: Vec<String>,
    /// Have the agent of a running node restart it into the deployer now.
    #[serde(default)]
    restart: bool,
    /// Why it is to be installed although it did not pass its burn-in.
    despite_burn_in: Option<String>,
}

/// Asks for a deployment: at its next boot into the deployer, the node's disk becomes what the image says.
#[utoipa::path(post, path = "/nodes/{node}/deployments", tag = "deployments", request_body = DeploymentRequest,
    params(("node" = String, Path, description = "Id, name or MAC.")),
    responses((status = 201, body = DeploymentRecord), (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_deploy(
    Admin(user): Admin,
    State(app): State<App>,
    Named(node): Named<String>,
    Body(request): Body<DeploymentRequest>,
) -> Result<(StatusCode, Json<DeploymentRecord>), AppError> {
    let node = nodes::node_find(&app, &node).await?;
    let DeploymentRequest {
        image,
        disk,
        mode,
        keep,
        restart,
        despite_burn_in,
    } = request;
    let old = OldDisk { mode, keep };
    if restart {
        // Before anything is ordered: a deployment that nobody can start now is not what was asked for.
        boot_orders::agent_check(&app.store.node_get(node).await?, OffsetDateTime::now_utc())?;
    }
    let deployment = deployments::request(
        &app,
        node,
        image.as_deref(),
        disk,
        old,
        despite_burn_in.as_deref(),
        &user.name,
    )
    .await?;
    if restart {
        boot_orders::restart(&app, node, &user.name).await?;
    }
    Ok((StatusCode::CREATED, Json(app.store.deployment_get(deployment).await?)))
}

/// Lists a node's deployments, newest first, at most 100.
#[utoipa::path(get, path = "/nodes/{node}/deployments", tag = "deployments",
    params(("node" = String, Path, description = "Id, name or MAC.")),
    responses((status = 200, body = Vec<DeploymentRecord>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_deployments(
    _viewer: Viewer,
    State(app): State<App>,
    Named(node): Named<String>,
) -> Result<Json<Vec<DeploymentRecord>>, AppError> {
    let node = nodes::node_find(&app, &node).await?;
    Ok(Json(app.store.deployment_list(node).await?))
}

/// Shows one deployment.
#[utoipa::path(get, path = "/deployments/{id}", tag = "deployments",
    params(("id" = String, Path, description = "Deployment id.")),
    responses((status = 200, body = DeploymentRecord), (status = "4XX", body = ErrorBody)))]
pub(super) async fn deployment_get(
    _viewer: Viewer,
    State(app): State<App>,
    Named(id): Named<String>,
) -> Result<Json<DeploymentRecord>, AppError> {
    let id: DeploymentId = id
        .parse()
        .map_err(|error: protocol::ParseIdError| AppError::Invalid(error.to_string()))?;
    Ok(Json(app.store.deployment_get(id).await?))
}
