//! People who may sign in.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;

use super::Limits;
use super::extract::{Body, Named};
use super::identity::Admin;
use crate::app::auth::{self, Role, SignedIn, User};
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
    Admin(admin): Admin,
    State(app): State<App>,
    State(limits): State<Arc<Limits>>,
    Body(new): Body<NewUser>,
) -> Result<(StatusCode, Json<User>), AppError> {
    auth::user_add(&app.store, &limits.sign_ins, &new.name, &new.password, new.role).await?;
    let NewUser { name, role, .. } = new;
    app.store
        .audit_add(&admin.name, "user_added", &name, role.as_str())
        .await?;
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

/// A new token.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewToken {
    /// For how many days, at most 366.
    days: i64,
}

/// Makes a token for a program that acts as this user. It is told once, and ends with the user's password.
#[utoipa::path(post, path = "/users/{name}/tokens", tag = "users", request_body = NewToken,
    params(("name" = String, Path, description = "Sign-in name.")),
    responses((status = 201, body = SignedIn), (status = "4XX", body = ErrorBody)))]
pub(super) async fn user_token_create(
    Admin(user): Admin,
    State(app): State<App>,
    Named(name): Named<String>,
    Body(new): Body<NewToken>,
) -> Result<(StatusCode, Json<SignedIn>), AppError> {
    let made = auth::token_create(&app.store, &name, new.days, &user).await?;
    Ok((StatusCode::CREATED, Json(made)))
}
