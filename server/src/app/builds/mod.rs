//! Builds as jobs: people ask for a recipe to be built, one build runs at a time, in a process of its own, within
//! limits.
//!
//! Asking and cancelling only write what is wanted; [`runner`] alone starts and ends builds. A build that crashes, takes
//! all memory it may, or waits for ever ends as a failed build and takes nothing of the server along. A server that ends,
//! however that happens, ends its build, which then counts as failed.
//!
//! Refused: building in the server's own process. Its memory and its crashes would be the server's, and a thread cannot
//! be ended.

mod cgroup;
mod child;
pub mod log;
mod runner;
mod state;

use protocol::BuildId;
use serde::Serialize;
use store::BuildRecord;

use super::auth::User;
use super::{App, AppError, recipes};

pub use runner::run;

/// Builds in a list.
const LISTED_MAX: i64 = 200;

/// A piece of what a build said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct BuildLogPiece {
    /// Whole lines, at most 64 KiB of them.
    pub text: String,
    /// Where the next piece begins: for `after`.
    pub next: u64,
    /// There is nothing after it and never will be.
    pub is_complete: bool,
}

/// Builds, newest first, at most 200.
///
/// # Errors
/// [`AppError::Internal`] when the database fails.
pub async fn list(app: &App) -> Result<Vec<BuildRecord>, AppError> {
    Ok(app.store.build_list(LISTED_MAX).await?)
}

/// Asks for a recipe to be built.
///
/// # Errors
/// As [`recipes::recipe_folder`]; [`AppError::Conflict`] when too many builds wait.
pub async fn start(app: &App, recipe: &str, by: &User) -> Result<BuildRecord, AppError> {
    recipes::recipe_folder(app, recipe).await?;
    let queued_max = app.config.images.builds.queued_max.into();
    let build = app.store.build_create(recipe, &by.name, queued_max).await?;
    tracing::info!(build.id = %build.id, recipe, user.name = by.name, "a build is asked for");
    app.build_nudge.notify_one();
    Ok(build)
}

/// Ends a build: one that waits at once, one that runs within seconds.
///
/// # Errors
/// [`AppError::NotFound`]; [`AppError::Conflict`] when it is over.
pub async fn cancel(app: &App, build: BuildId, by: &User) -> Result<BuildRecord, AppError> {
    let build = app.store.build_cancel(build, &by.name).await?;
    tracing::info!(build.id = %build.id, recipe = build.recipe, user.name = by.name, "a build is to end");
    app.build_nudge.notify_one();
    Ok(build)
}

/// What a build said after so many bytes of its log.
///
/// # Errors
/// [`AppError::NotFound`]; [`AppError::Internal`] when the log cannot be read.
pub async fn log_read(app: &App, build: BuildId, after: u64) -> Result<BuildLogPiece, AppError> {
    // In this order: when it was over before, the log is complete.
    let is_over = app.store.build_get(build).await?.state.is_over();
    let data_dir = app.config.data_dir.clone();
    let read = tokio::task::spawn_blocking(move || log::read(&data_dir, build, after));
    let (text, next) = read.await.map_err(AppError::internal)?.map_err(AppError::internal)?;
    Ok(BuildLogPiece {
        is_complete: is_over && text.is_empty(),
        text,
        next,
    })
}

/// Forgets builds that were over so many days ago, with their logs.
///
/// # Errors
/// [`AppError::Internal`] when the database or the disk fails.
pub async fn prune(app: &App, days: i32) -> Result<(), AppError> {
    let kept = app.store.build_prune(days).await?;
    let data_dir = app.config.data_dir.clone();
    let prune = tokio::task::spawn_blocking(move || log::prune(&data_dir, &kept));
    prune.await.map_err(AppError::internal)?.map_err(AppError::internal)?;
    Ok(())
}
