//! Image versions.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use serde::Deserialize;
use store::ImageRecord;

use super::Limits;
use super::extract::{Asked, Body, Named};
use super::identity::{Admin, Viewer};
use crate::app::collection::{self, Collection, CollectionOrder};
use crate::app::contents::VariantDiff;
use crate::app::image_diff::{self, ImageDiff};
use crate::app::image_facts::{self, ImageFacts};
use crate::app::images::{self, ImageCheck};
use crate::app::{App, AppError};
use crate::http::error::ErrorBody;
use crate::image::SbomFormat;

/// Lists all image versions, newest first within a name.
#[utoipa::path(get, path = "/images", tag = "images",
    responses((status = 200, body = Vec<ImageRecord>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn image_list(_viewer: Viewer, State(app): State<App>) -> Result<Json<Vec<ImageRecord>>, AppError> {
    Ok(Json(app.store.image_list().await?))
}

/// Shows one image version.
#[utoipa::path(get, path = "/images/{reference}", tag = "images",
    params(("reference" = String, Path, description = "`name`, `name@version`, a channel (`name%2Fstable`), or a digest's beginning.")),
    responses((status = 200, body = ImageRecord), (status = "4XX", body = ErrorBody)))]
pub(super) async fn image_get(
    _viewer: Viewer,
    State(app): State<App>,
    Named(reference): Named<String>,
) -> Result<Json<ImageRecord>, AppError> {
    Ok(Json(app.store.image_find(&reference).await?))
}

/// Tells what an image version is beside its files (packages, units, accounts, …), and which nodes are to be like it.
#[utoipa::path(get, path = "/images/{reference}/facts", tag = "images",
    params(("reference" = String, Path, description = "`name`, `name@version`, or a digest's beginning.")),
    responses((status = 200, body = ImageFacts), (status = "4XX", body = ErrorBody)))]
pub(super) async fn image_facts(
    _viewer: Viewer,
    State(app): State<App>,
    Named(reference): Named<String>,
) -> Result<Json<ImageFacts>, AppError> {
    Ok(Json(image_facts::image_facts(&app, &reference).await?))
}

/// Checks an image version from its signature to every byte of its data. Takes minutes for a large one.
#[utoipa::path(post, path = "/images/{reference}/verify", tag = "images",
    params(("reference" = String, Path, description = "`name`, `name@version`, a channel (`name%2Fstable`), or a digest's beginning.")),
    responses((status = 200, body = ImageCheck), (status = "4XX", body = ErrorBody)))]
pub(super) async fn image_verify(
    _admin: Admin,
    State(app): State<App>,
    State(limits): State<Arc<Limits>>,
    Named(reference): Named<String>,
) -> Result<Json<ImageCheck>, AppError> {
    let busy = |_| AppError::Unavailable("an image is being checked already: try again when it is done".to_owned());
    let _turn = limits.verifies.try_acquire().map_err(busy)?;
    Ok(Json(images::image_verify(&app, &reference).await?))
}

/// Tells what is different between two image versions of one kind.
#[utoipa::path(get, path = "/images/{reference}/diff/{other}", tag = "images",
    params(("reference" = String, Path, description = "`name`, `name@version`, a channel (`name%2Fstable`), or a digest's beginning."),
        ("other" = String, Path, description = "The one it is compared with, likewise.")),
    responses((status = 200, body = ImageDiff), (status = "4XX", body = ErrorBody)))]
pub(super) async fn image_diff(
    _viewer: Viewer,
    State(app): State<App>,
    Named((before, now)): Named<(String, String)>,
) -> Result<Json<ImageDiff>, AppError> {
    Ok(Json(image_diff::image_diff(&app, &before, &now).await?))
}

/// Which file is asked about.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct DiffText {
    /// Its path in the images, escaped as everywhere.
    path: String,
}

/// Tells what is different in the text of one file of two image versions.
#[utoipa::path(get, path = "/images/{reference}/diff/{other}/text", tag = "images",
    params(("reference" = String, Path, description = "`name`, `name@version`, a channel (`name%2Fstable`), or a digest's beginning."),
        ("other" = String, Path, description = "The one it is compared with, likewise."), DiffText),
    responses((status = 200, body = VariantDiff), (status = "4XX", body = ErrorBody)))]
pub(super) async fn image_diff_text(
    _viewer: Viewer,
    State(app): State<App>,
    Named((before, now)): Named<(String, String)>,
    Asked(asked): Asked<DiffText>,
) -> Result<Json<VariantDiff>, AppError> {
    Ok(Json(
        image_diff::image_diff_text(&app, &before, &now, &asked.path).await?,
    ))
}

/// Which bill of materials is asked for.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SbomQuery {
    /// In which form; left out: `cyclonedx`.
    #[param(inline)]
    format: Option<SbomFormat>,
}

/// Shows the bill of materials of an image version: CycloneDX 1.6 or SPDX 2.3, JSON.
#[utoipa::path(get, path = "/images/{reference}/sbom", tag = "images",
    params(("reference" = String, Path, description = "`name`, `name@version`, a channel (`name%2Fstable`), or a digest's beginning."),
        SbomQuery),
    responses((status = 200, body = Object), (status = "4XX", body = ErrorBody)))]
pub(super) async fn image_sbom(
    _viewer: Viewer,
    State(app): State<App>,
    Named(reference): Named<String>,
    Asked(query): Asked<SbomQuery>,
) -> Result<impl IntoResponse, AppError> {
    let format = query.format.unwrap_or(SbomFormat::Cyclonedx);
    let bill = images::image_sbom(&app, &reference, format).await?;
    Ok(([(header::CONTENT_TYPE, format.media_type())], bill))
}

/// Removes image versions that nothing needs, and packs that no image names; or says what that would do. Takes minutes in
/// a large store.
#[utoipa::path(post, path = "/image-collections", tag = "images", request_body = CollectionOrder,
    responses((status = 200, body = Collection), (status = "4XX", body = ErrorBody)))]
pub(super) async fn image_collect(
    Admin(user): Admin,
    State(app): State<App>,
    State(limits): State<Arc<Limits>>,
    Body(order): Body<CollectionOrder>,
) -> Result<Json<Collection>, AppError> {
    let busy = |_| AppError::Unavailable("an image is being checked: try again when it is done".to_owned());
    let _turn = limits.verifies.try_acquire().map_err(busy)?;
    Ok(Json(collection::collect(&app, order, &user.name).await?))
}

/// Removes an image version that no node, open deployment or channel needs.
#[utoipa::path(delete, path = "/images/{reference}", tag = "images",
    params(("reference" = String, Path, description = "`name`, `name@version`, a channel (`name%2Fstable`), or a digest's beginning.")),
    responses((status = 204), (status = "4XX", body = ErrorBody)))]
pub(super) async fn image_remove(
    Admin(user): Admin,
    State(app): State<App>,
    Named(reference): Named<String>,
) -> Result<StatusCode, AppError> {
    images::image_remove(&app, &reference, &user.name).await?;
    Ok(StatusCode::NO_CONTENT)
}
