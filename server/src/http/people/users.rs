//! People who may sign in.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;

use super::Limits;
use super::extract::{Body, Named};
use super::identity::Admin;
use crate::app::auth::{self, Role, User};
use crate::app::{App, AppError};
use crate::http::error::ErrorBody;

/// A user to be added.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewUser {
    /// Sign-in name: 1 to 32 of `a-z`, `0-9`, `.`, `_` and `-`.
    name: String,
    /// Password: at least 12 characters.
    password: String,
    /// What they may do.
    role: Role,
}

/// A new password.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewPassword {
    /// At least 12 characters.
    password: String,
}

/// Adds a user.
#[utoipa::path(post, path = "/users", tag = "users", request_body = NewUser,
    responses((status = 201, body = User), (status = "4XX", body = ErrorBody)))]
pub(super) async fn user_create(
    _admin: Admin,
    State(app): State<App>,
    State(limits): State<Arc<Limits>>,
    Body(new): Body<NewUser>,
) -> Result<(StatusCode, Json<User>), AppError> {
    auth::user_add(&app.store, &limits.sign_ins, &new.name, &new.password, new.role).await?;
    let NewUser { name, role, .. } = new;
    Ok((StatusCode::CREATED, Json(User { name, role })))
}

/// Changes a password. The user's sessions end.
#[utoipa::path(patch, path = "/users/{name}/password", tag = "users", request_body = NewPassword,
    params(("name" = String, Path, description = "Sign-in name.")),
    responses((status = 204), (status = "4XX", body = ErrorBody)))]
pub(super) async fn user_set_password(
    _admin: Admin,
    State(app): State<App>,
    State(limits): State<Arc<Limits>>,
    Named(name): Named<String>,
    Body(new): Body<NewPassword>,
) -> Result<StatusCode, AppError> {
    auth::user_set_password(&app.store, &limits.sign_ins, &name, &new.password).await?;
    Ok(StatusCode::NO_CONTENT)
}
