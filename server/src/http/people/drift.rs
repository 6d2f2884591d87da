//! Drift over all nodes: by group, then by variant.

use axum::Json;
use axum::extract::State;
use manifest::Digest;
use store::{FindingGroup, FindingVariant};

use super::extract::Named;
use super::identity::Viewer;
use crate::app::{App, AppError};
use crate::http::error::ErrorBody;

/// Lists what differs over all nodes, gravest and widest first: one entry for the same thing on many nodes.
#[utoipa::path(get, path = "/drift", tag = "drift",
    responses((status = 200, body = Vec<FindingGroup>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn drift_groups(_viewer: Viewer, State(app): State<App>) -> Result<Json<Vec<FindingGroup>>, AppError> {
    Ok(Json(app.store.finding_group_list().await?))
}

/// Lists the ways in which a group's thing differs, widest first, each with its nodes.
#[utoipa::path(get, path = "/drift/{group}", tag = "drift",
    params(("group" = String, Path, description = "Group hash, 64 hexadecimal digits.")),
    responses((status = 200, body = Vec<FindingVariant>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn drift_variants(
    _viewer: Viewer,
    State(app): State<App>,
    Named(group): Named<String>,
) -> Result<Json<Vec<FindingVariant>>, AppError> {
    let group: Digest = group
        .parse()
        .map_err(|error: manifest::ManifestError| AppError::Invalid(format!("group: {error}")))?;
    Ok(Json(app.store.finding_variant_list(group).await?))
}
