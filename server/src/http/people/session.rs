//! Signing in and out.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use serde::Deserialize;

use super::Limits;
use super::extract::Body;
use super::identity::{self, Viewer};
use crate::app::auth::{self, SignedIn, User};
use crate::app::{App, AppError};
use crate::http::error::ErrorBody;

/// Who signs in.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Credentials {
    /// Sign-in name.
    name: String,
    /// Password.
    password: String,
}

/// Signs in. The token is in the answer, and in a cookie for the web interface.
#[utoipa::path(post, path = "/session", tag = "session", security(()), request_body = Credentials,
    responses((status = 201, body = SignedIn), (status = "4XX", body = ErrorBody)))]
pub(super) async fn session_create(
    State(app): State<App>,
    State(limits): State<Arc<Limits>>,
    Body(credentials): Body<Credentials>,
) -> Result<(StatusCode, [(header::HeaderName, String); 1], Json<SignedIn>), AppError> {
    let Credentials { name, password } = credentials;
    let signed_in = auth::sign_in(&app.store, &limits.sign_ins, &name, &password).await?;
    let cookie = identity::cookie_set(&signed_in.token);
    Ok((StatusCode::CREATED, [(header::SET_COOKIE, cookie)], Json(signed_in)))
}

/// Says who is signed in.
#[utoipa::path(get, path = "/session", tag = "session",
    responses((status = 200, body = User), (status = "4XX", body = ErrorBody)))]
pub(super) async fn session_get(Viewer(user): Viewer) -> Json<User> {
    Json(user)
}

/// Signs out: the token is worth nothing from now on.
#[utoipa::path(delete, path = "/session", tag = "session",
    responses((status = 204), (status = "4XX", body = ErrorBody)))]
pub(super) async fn session_delete(
    _viewer: Viewer,
    State(app): State<App>,
    headers: HeaderMap,
) -> Result<(StatusCode, [(header::HeaderName, String); 1]), AppError> {
    if let Some(token) = identity::token(&headers) {
        auth::sign_out(&app.store, token).await?;
    }
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, identity::cookie_clear())]))
}
