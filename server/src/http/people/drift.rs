//! Drift over all nodes: by group, then by variant; and what people decide about it.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use manifest::Digest;
use protocol::ReviewId;
use serde::Deserialize;
use store::{FindingEvent, FindingGroup, FindingVariant, ReviewKind, ReviewRecord, ReviewScope};
use time::OffsetDateTime;

use super::extract::{Asked, Body, Named};
use super::identity::{Admin, Viewer};
use crate::app::contents::{self, VariantDiff};
use crate::app::reviews::{self, Decision};
use crate::app::{App, AppError, nodes};
use crate::http::error::ErrorBody;

/// A decision about a finding group.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewReview {
    /// What is decided.
    kind: ReviewKind,
    /// One variant (64 hexadecimal digits); an acceptance needs it, without it the others are about all variants.
    variant: Option<String>,
    /// Where it holds.
    scope: ReviewScope,
    /// The node (id, name or MAC) or node group.
    scope_value: Option<String>,
    /// Why.
    reason: String,
    /// Until when (RFC 3339, UTC); a waiver needs it.
    #[serde(default, with = "time::serde::rfc3339::option")]
    expires_at: Option<OffsetDateTime>,
}

/// A decision that was kept.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub(super) struct Kept {
    /// Its id.
    id: ReviewId,
}

/// Which decisions.
#[derive(Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct ReviewsAsked {
    /// Those that ran out or were taken back, too.
    all: bool,
    /// Only those about this finding group.
    group: Option<String>,
}

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
    Ok(Json(app.store.finding_variant_list(hash("group", &group)?).await?))
}

/// Shows what a variant changes in a text file, line by line; where there is nothing to show, it says why.
#[utoipa::path(get, path = "/drift/{group}/{variant}/diff", tag = "drift",
    params(("group" = String, Path, description = "Group hash, 64 hexadecimal digits."),
           ("variant" = String, Path, description = "Variant hash, 64 hexadecimal digits.")),
    responses((status = 200, body = VariantDiff), (status = "4XX", body = ErrorBody)))]
pub(super) async fn drift_diff(
    _viewer: Viewer,
    State(app): State<App>,
    Named((group, variant)): Named<(String, String)>,
) -> Result<Json<VariantDiff>, AppError> {
    let (group, variant) = (hash("group", &group)?, hash("variant", &variant)?);
    Ok(Json(contents::diff(&app, group, variant).await?))
}

/// Lists what became of a finding group on all nodes, newest first.
#[utoipa::path(get, path = "/drift/{group}/history", tag = "drift",
    params(("group" = String, Path, description = "Group hash, 64 hexadecimal digits.")),
    responses((status = 200, body = Vec<FindingEvent>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn drift_history(
    _viewer: Viewer,
    State(app): State<App>,
    Named(group): Named<String>,
) -> Result<Json<Vec<FindingEvent>>, AppError> {
    Ok(Json(
        app.store.finding_history(None, Some(hash("group", &group)?)).await?,
    ))
}

/// Lists what became of a node's findings, newest first.
#[utoipa::path(get, path = "/nodes/{node}/drift/history", tag = "drift",
    params(("node" = String, Path, description = "Id, name or MAC.")),
    responses((status = 200, body = Vec<FindingEvent>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_drift_history(
    _viewer: Viewer,
    State(app): State<App>,
    Named(node): Named<String>,
) -> Result<Json<Vec<FindingEvent>>, AppError> {
    let node = nodes::node_find(&app, &node).await?;
    Ok(Json(app.store.finding_history(Some(node), None).await?))
}

/// Acknowledges, waives or accepts a finding group. Agents go on reporting it; nothing on a node changes.
#[utoipa::path(post, path = "/drift/{group}/reviews", tag = "drift", request_body = NewReview,
    params(("group" = String, Path, description = "Group hash, 64 hexadecimal digits.")),
    responses((status = 201, body = Kept), (status = "4XX", body = ErrorBody)))]
pub(super) async fn review_create(
    Admin(user): Admin,
    State(app): State<App>,
    Named(group): Named<String>,
    Body(new): Body<NewReview>,
) -> Result<(StatusCode, Json<Kept>), AppError> {
    let decision = Decision {
        kind: new.kind,
        variant: new.variant.map(|variant| hash("variant", &variant)).transpose()?,
        scope: new.scope,
        scope_value: new.scope_value,
        reason: new.reason,
        expires_at: new.expires_at,
    };
    let id = reviews::decide(&app, hash("group", &group)?, decision, &user).await?;
    Ok((StatusCode::CREATED, Json(Kept { id })))
}

/// Lists decisions, newest first.
#[utoipa::path(get, path = "/reviews", tag = "drift", params(ReviewsAsked),
    responses((status = 200, body = Vec<ReviewRecord>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn review_list(
    _viewer: Viewer,
    State(app): State<App>,
    Asked(asked): Asked<ReviewsAsked>,
) -> Result<Json<Vec<ReviewRecord>>, AppError> {
    let group = asked.group.map(|group| hash("group", &group)).transpose()?;
    Ok(Json(app.store.review_list(group, asked.all).await?))
}

/// Takes a decision back.
#[utoipa::path(delete, path = "/reviews/{review}", tag = "drift",
    params(("review" = String, Path, description = "Id.")),
    responses((status = 204), (status = "4XX", body = ErrorBody)))]
pub(super) async fn review_end(
    Admin(user): Admin,
    State(app): State<App>,
    Named(review): Named<String>,
) -> Result<StatusCode, AppError> {
    app.store.review_end(id("review", &review)?, &user.name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A hash as it stands in a path or body.
///
/// # Errors
/// [`AppError::Invalid`].
pub(super) fn hash(what: &str, text: &str) -> Result<Digest, AppError> {
    text.parse()
        .map_err(|error: manifest::ManifestError| AppError::Invalid(format!("{what}: {error}")))
}

/// An id as it stands in a path.
///
/// # Errors
/// [`AppError::Invalid`].
pub(super) fn id<T: std::str::FromStr<Err = protocol::ParseIdError>>(what: &str, text: &str) -> Result<T, AppError> {
    text.parse()
        .map_err(|error| AppError::Invalid(format!("{what}: {error}")))
}
