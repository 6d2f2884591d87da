//! Who asks: a token in `Authorization: Bearer`, or in the web interface's cookie.
//!
//! A handler that takes [`Admin`] or [`Viewer`] first is refused before its body is read. The cookie is `HttpOnly` and
//! `SameSite=Strict`: another site can neither read it nor make a browser send it.

use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};

use crate::app::auth::{self, Role, SESSION_SECS, User};
use crate::app::{App, AppError};

const COOKIE: &str = "plumbline_session";

/// Anybody who is signed in.
pub(super) struct Viewer(pub User);

/// Somebody who may change things.
pub(super) struct Admin(pub User);

impl<S: Send + Sync> FromRequestParts<S> for Viewer
where
    App: FromRef<S>,
{
    type Rejection = AppError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, AppError> {
        let token = token(&parts.headers)
            .ok_or_else(|| AppError::Unauthorized("nobody is signed in: expected a bearer token".to_owned()))?;
        let app = App::from_ref(state);
        Ok(Self(auth::session_user(&app.store, token).await?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Admin
where
    App: FromRef<S>,
{
    type Rejection = AppError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, AppError> {
        let Viewer(user) = Viewer::from_request_parts(parts, state).await?;
        match user.role {
            Role::Admin => Ok(Self(user)),
            Role::Viewer => Err(AppError::Forbidden(format!(
                "{} has the role viewer; this takes the role admin",
                user.name
            ))),
        }
    }
}

/// The token a request carries. The header wins: whoever sends both means the header.
pub(super) fn token(headers: &HeaderMap) -> Option<&str> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
        return scheme.eq_ignore_ascii_case("bearer").then_some(token.trim());
    }
    let cookies = headers.get_all(header::COOKIE).iter();
    cookies
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .find_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='))
}

/// `Set-Cookie` for a session.
pub(super) fn cookie_set(token: &str) -> String {
    format!("{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/; Max-Age={SESSION_SECS}")
}

/// `Set-Cookie` that ends it.
pub(super) fn cookie_clear() -> String {
    format!("{COOKIE}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn a_token_comes_by_header_or_cookie() {
        let by_header = headers(&[(header::AUTHORIZATION, "bearer abc")]);
        assert_eq!(token(&by_header), Some("abc"));
        let by_cookie = headers(&[(header::COOKIE, "theme=dark; plumbline_session=abc")]);
        assert_eq!(token(&by_cookie), Some("abc"));
        let other_scheme = headers(&[
            (header::AUTHORIZATION, "Basic YTpi"),
            (header::COOKIE, "plumbline_session=abc"),
        ]);
        assert_eq!(token(&other_scheme), None);
        let similar = headers(&[(header::COOKIE, "plumbline_session2=abc; xplumbline_session=abc")]);
        assert_eq!(token(&similar), None);
    }
}
