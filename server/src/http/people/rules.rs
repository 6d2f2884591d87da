//! Discovery rules.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;

use super::extract::{Asked, Body};
use super::identity::{Admin, Viewer};
use crate::app::rules::{self, RulesView};
use crate::app::{App, AppError};
use crate::http::error::ErrorBody;

/// Which version is asked for.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RulesQuery {
    /// A version that was in force; left out: the one that is.
    version: Option<i64>,
}

/// Rules to be put in force.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewRules {
    /// YAML, at most 900 KiB.
    content: String,
}

/// Shows the discovery rules and what they have placed.
#[utoipa::path(get, path = "/discovery/rules", tag = "discovery", params(RulesQuery),
    responses((status = 200, body = RulesView), (status = "4XX", body = ErrorBody)))]
pub(super) async fn rules_get(
    _viewer: Viewer,
    State(app): State<App>,
    Asked(query): Asked<RulesQuery>,
) -> Result<Json<RulesView>, AppError> {
    Ok(Json(rules::get(&app, query.version).await?))
}

/// Puts discovery rules in force, as a new version.
#[utoipa::path(put, path = "/discovery/rules", tag = "discovery", request_body = NewRules,
    responses((status = 200, body = RulesView), (status = "4XX", body = ErrorBody)))]
pub(super) async fn rules_apply(
    Admin(user): Admin,
    State(app): State<App>,
    Body(new): Body<NewRules>,
) -> Result<Json<RulesView>, AppError> {
    Ok(Json(rules::apply(&app, &new.content, &user.name).await?))
}
