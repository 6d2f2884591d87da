//! Recipes, and builds of images by the server.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use protocol::BuildId;
use serde::Deserialize;
use store::BuildRecord;
use tokio::time::Instant;

use super::Limits;
use super::drift::id;
use super::extract::{Asked, Body, Named};
use super::identity::{Admin, Viewer};
use crate::app::builds::{self, BuildLogPiece};
use crate::app::recipes::{self, RecipeView};
use crate::app::{App, AppError};
use crate::http::error::ErrorBody;

/// Longest wait for a line, in seconds: below what proxies call an idle connection.
const WAIT_SECS_MAX: u64 = 25;
/// Between two looks while waiting.
const PAUSE: Duration = Duration::from_millis(500);

/// What is to be built.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewBuild {
    /// Name of the recipe's folder.
    recipe: String,
}

/// Which part of a log.
#[derive(Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct LogAsked {
    /// Bytes of it that were read already.
    after: u64,
    /// Seconds to wait for a line when there is none; at most 25 are waited.
    wait_secs: u64,
}

/// Lists the recipes that the server may build, by name, each checked as it stands now.
#[utoipa::path(get, path = "/recipes", tag = "builds",
    responses((status = 200, body = Vec<RecipeView>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn recipe_list(_viewer: Viewer, State(app): State<App>) -> Result<Json<Vec<RecipeView>>, AppError> {
    Ok(Json(recipes::recipe_list(&app).await?))
}

/// Lists builds, newest first, at most 200.
#[utoipa::path(get, path = "/builds", tag = "builds",
    responses((status = 200, body = Vec<BuildRecord>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn build_list(_viewer: Viewer, State(app): State<App>) -> Result<Json<Vec<BuildRecord>>, AppError> {
    Ok(Json(builds::list(&app).await?))
}

/// Has the server build a recipe, when those that wait before it are over.
#[utoipa::path(post, path = "/builds", tag = "builds", request_body = NewBuild,
    responses((status = 201, body = BuildRecord), (status = "4XX", body = ErrorBody)))]
pub(super) async fn build_start(
    Admin(user): Admin,
    State(app): State<App>,
    Body(new): Body<NewBuild>,
) -> Result<(StatusCode, Json<BuildRecord>), AppError> {
    let build = builds::start(&app, &new.recipe, &user).await?;
    Ok((StatusCode::CREATED, Json(build)))
}

/// Shows one build.
#[utoipa::path(get, path = "/builds/{build}", tag = "builds",
    params(("build" = String, Path, description = "Id.")),
    responses((status = 200, body = BuildRecord), (status = "4XX", body = ErrorBody)))]
pub(super) async fn build_get(
    _viewer: Viewer,
    State(app): State<App>,
    Named(build): Named<String>,
) -> Result<Json<BuildRecord>, AppError> {
    Ok(Json(app.store.build_get(id("build", &build)?).await?))
}

/// Gives what a build said, a piece at a time; waits for more when asked to.
#[utoipa::path(get, path = "/builds/{build}/log", tag = "builds",
    params(("build" = String, Path, description = "Id."), LogAsked),
    responses((status = 200, body = BuildLogPiece), (status = "4XX", body = ErrorBody)))]
pub(super) async fn build_log(
    _viewer: Viewer,
    State(app): State<App>,
    State(limits): State<Arc<Limits>>,
    Named(build): Named<String>,
    Asked(asked): Asked<LogAsked>,
) -> Result<Json<BuildLogPiece>, AppError> {
    let build: BuildId = id("build", &build)?;
    let waits = limits.waiters.try_acquire();
    let wait_secs = if waits.is_ok() { asked.wait_secs } else { 0 };
    let until = Instant::now() + Duration::from_secs(wait_secs.min(WAIT_SECS_MAX));
    loop {
        let piece = builds::log_read(&app, build, asked.after).await?;
        if !piece.text.is_empty() || piece.is_complete || Instant::now() >= until {
            return Ok(Json(piece));
        }
        tokio::time::sleep_until(until.min(Instant::now() + PAUSE)).await;
    }
}

/// Ends a build: one that waits at once, one that runs within seconds. Nothing of it comes into the store.
#[utoipa::path(post, path = "/builds/{build}/cancel", tag = "builds",
    params(("build" = String, Path, description = "Id.")),
    responses((status = 200, body = BuildRecord), (status = "4XX", body = ErrorBody)))]
pub(super) async fn build_cancel(
    Admin(user): Admin,
    State(app): State<App>,
    Named(build): Named<String>,
) -> Result<Json<BuildRecord>, AppError> {
    Ok(Json(builds::cancel(&app, id("build", &build)?, &user).await?))
}
