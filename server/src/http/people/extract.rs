//! Parts of a request, with reasons in JSON when they are not what was expected.

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;

use super::BODY_BYTES_MAX;
use crate::http::error::ErrorBody;

/// A request that could not be understood.
#[derive(Debug)]
pub(super) struct Rejected {
    status: StatusCode,
    reason: String,
}

impl Rejected {
    pub fn new(status: StatusCode, reason: String) -> Self {
        Self { status, reason }
    }
}

impl IntoResponse for Rejected {
    fn into_response(self) -> Response {
        (self.status, Json(ErrorBody { error: self.reason })).into_response()
    }
}

impl From<JsonRejection> for Rejected {
    fn from(rejection: JsonRejection) -> Self {
        let status = rejection.status();
        let reason = match status {
            StatusCode::PAYLOAD_TOO_LARGE => format!("the body is larger than {BODY_BYTES_MAX} bytes"),
            _ => rejection.body_text(),
        };
        Self { status, reason }
    }
}

impl From<PathRejection> for Rejected {
    fn from(rejection: PathRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<QueryRejection> for Rejected {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

/// The body, as JSON.
pub(super) struct Body<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Rejected;

    async fn from_request(request: Request, state: &S) -> Result<Self, Rejected> {
        let Json(value) = Json::<T>::from_request(request, state).await?;
        Ok(Self(value))
    }
}

/// A part of the path.
pub(super) struct Named<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Rejected;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Rejected> {
        let Path(value) = Path::<T>::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

/// The query.
pub(super) struct Asked<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Rejected;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Rejected> {
        let Query(value) = Query::<T>::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}
