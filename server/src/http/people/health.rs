//! Whether the server is there, whether it can work, and what it understands.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::app::{App, AppError};
use crate::http::error::ErrorBody;

/// How the server is.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct Health {
    /// `ok`.
    status: &'static str,
}

const OK: Health = Health { status: "ok" };

/// Says that the process answers.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()), responses((status = 200, body = Health)))]
pub(super) async fn healthz() -> Json<Health> {
    Json(OK)
}

/// Says whether requests can be served: the database answers.
#[utoipa::path(get, path = "/readyz", tag = "health", security(()),
    responses((status = 200, body = Health), (status = 503, body = ErrorBody)))]
pub(super) async fn readyz(State(app): State<App>) -> Result<Json<Health>, AppError> {
    match app.store.ping().await {
        Ok(()) => Ok(Json(OK)),
        Err(error) => {
            tracing::warn!(error = %crate::http::error::chain(&error), "not ready");
            Err(AppError::Unavailable("the database does not answer".to_owned()))
        }
    }
}

/// Gives this description.
#[utoipa::path(get, path = "/openapi.json", tag = "health", security(()),
    responses((status = 200, description = "OpenAPI document", body = serde_json::Value)))]
pub(super) async fn openapi_json() -> Response {
    Json(super::openapi()).into_response()
}
