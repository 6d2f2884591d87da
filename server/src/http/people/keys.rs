//! Keys that sign images, and images that were revoked.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;

use super::extract::{Body, Named};
use super::identity::{Admin, Viewer};
use crate::app::trust::{self, ImageRevoked, KeyRevoked, KeyRotated, KeyView};
use crate::app::{App, AppError};
use crate::http::error::ErrorBody;

/// A public key.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewKey {
    /// The text of a minisign `.pub` file, or its second line alone.
    public_key: String,
}

/// How a key is rotated.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Rotation {
    /// The new key signs the images that may be used, too.
    #[serde(default)]
    resign: bool,
}

/// Why.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RevocationReason {
    /// For whoever meets it later: one line.
    reason: String,
}

/// Lists the keys that sign images, or ever did, and what their signatures are worth.
#[utoipa::path(get, path = "/keys", tag = "keys",
    responses((status = 200, body = Vec<KeyView>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn key_list(_viewer: Viewer, State(app): State<App>) -> Result<Json<Vec<KeyView>>, AppError> {
    Ok(Json(trust::key_list(&app).await?))
}

/// Takes a public key into the set: its signatures count from now on.
#[utoipa::path(post, path = "/keys", tag = "keys", request_body = NewKey,
    responses((status = 201, body = KeyView), (status = "4XX", body = ErrorBody)))]
pub(super) async fn key_add(
    Admin(user): Admin,
    State(app): State<App>,
    Body(new): Body<NewKey>,
) -> Result<(StatusCode, Json<KeyView>), AppError> {
    let added = trust::key_add(&app, &new.public_key, &user).await?;
    Ok((StatusCode::CREATED, Json(added)))
}

/// Makes a new key on the server that signs from now on, and retires the one before.
#[utoipa::path(post, path = "/keys/rotate", tag = "keys", request_body = Rotation,
    responses((status = 200, body = KeyRotated), (status = "4XX", body = ErrorBody)))]
pub(super) async fn key_rotate(
    Admin(user): Admin,
    State(app): State<App>,
    Body(rotation): Body<Rotation>,
) -> Result<Json<KeyRotated>, AppError> {
    Ok(Json(trust::key_rotate(&app, rotation.resign, &user).await?))
}

/// Lets a key sign no more. What it has signed goes on to count.
#[utoipa::path(post, path = "/keys/{id}/retire", tag = "keys",
    params(("id" = String, Path, description = "The key's id, or four digits or more of its beginning.")),
    responses((status = 200, body = KeyView), (status = "4XX", body = ErrorBody)))]
pub(super) async fn key_retire(
    Admin(user): Admin,
    State(app): State<App>,
    Named(id): Named<String>,
) -> Result<Json<KeyView>, AppError> {
    Ok(Json(trust::key_retire(&app, &id, &user).await?))
}

/// Takes all worth from what a key has signed. Nothing takes that back.
#[utoipa::path(post, path = "/keys/{id}/revoke", tag = "keys", request_body = RevocationReason,
    params(("id" = String, Path, description = "The key's id, or four digits or more of its beginning.")),
    responses((status = 200, body = KeyRevoked), (status = "4XX", body = ErrorBody)))]
pub(super) async fn key_revoke(
    Admin(user): Admin,
    State(app): State<App>,
    Named(id): Named<String>,
    Body(RevocationReason { reason }): Body<RevocationReason>,
) -> Result<Json<KeyRevoked>, AppError> {
    Ok(Json(trust::key_revoke(&app, &id, &reason, &user).await?))
}

/// Bars an image version. Nothing takes that back: a new build is another version.
#[utoipa::path(post, path = "/images/{reference}/revoke", tag = "images", request_body = RevocationReason,
    params(("reference" = String, Path, description = "`name`, `name@version`, a digest's beginning, or a whole digest that is not registered.")),
    responses((status = 200, body = ImageRevoked), (status = "4XX", body = ErrorBody)))]
pub(super) async fn image_revoke(
    Admin(user): Admin,
    State(app): State<App>,
    Named(reference): Named<String>,
    Body(RevocationReason { reason }): Body<RevocationReason>,
) -> Result<Json<ImageRevoked>, AppError> {
    Ok(Json(trust::image_revoke(&app, &reference, &reason, &user).await?))
}
