//! The dashboard: files of `web/dist`, built into the program.
//!
//! *Idea.* The dashboard is a single page. A browser that asks for any address that is not the API's gets that page,
//! and the page shows what the address names; so links and reloads work everywhere. Whoever does not ask for HTML gets
//! the JSON 404 of the API: a script with a wrong path never reads a page as an answer.
//!
//! *Invariant.* Nothing here is about a person or a node: no session is looked at and nothing is secret. What a browser
//! runs comes from this program alone (Content-Security-Policy, no inline code).
//!
//! *Refused.* Serving the folder from disk: one binary is what gets installed, and its page always fits its API.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};

/// What a browser may do with the page: only what this server sends; nobody frames it.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; style-src 'self'; img-src 'self' data:; object-src 'none'; \
     frame-ancestors 'none'; base-uri 'none'; form-action 'self'";
/// Paths under which the API, probes and metrics live: never a page.
const RESERVED: [&str; 4] = ["/api", "/healthz", "/readyz", "/metrics"];
/// Folder of files whose names hold a hash of their content.
const HASHED: &str = "assets/";
const PAGE: &str = "index.html";

/// A file of the dashboard.
#[derive(Clone, Debug)]
pub struct WebFile {
    /// Its bytes.
    pub content: Cow<'static, [u8]>,
    /// SHA-256 of them.
    pub sha256: [u8; 32],
}

/// Where files come from.
pub trait WebFiles {
    /// The file of a path without its leading slash.
    fn file(&self, path: &str) -> Option<WebFile>;
}

/// The files that were there when this program was built; none when `web/dist` was not.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedFiles;

#[derive(rust_embed::Embed)]
#[folder = "../web/dist"]
#[allow_missing = true]
struct Dist;

impl WebFiles for EmbeddedFiles {
    fn file(&self, path: &str) -> Option<WebFile> {
        let file = Dist::get(path)?;
        Some(WebFile {
            sha256: file.metadata.sha256_hash(),
            content: file.data,
        })
    }
}

/// The dashboard's answer to a request that no route of the API takes; `None` leaves it to the API's 404.
#[must_use]
pub fn answer(files: &dyn WebFiles, method: &Method, path: &str, headers: &HeaderMap) -> Option<Response> {
    if !matches!(*method, Method::GET | Method::HEAD) || is_reserved(path) {
        return None;
    }
    let name = path.trim_start_matches('/');
    if let Some(file) = (name != PAGE).then(|| files.file(name)).flatten() {
        return Some(file_response(name, file, headers));
    }
    if !wants_html(headers) || name.starts_with(HASHED) {
        return None;
    }
    Some(match files.file(PAGE) {
        Some(page) => file_response(PAGE, page, headers),
        None => not_built(),
    })
}

fn is_reserved(path: &str) -> bool {
    RESERVED.iter().any(|reserved| {
        path.strip_prefix(reserved)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

fn wants_html(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    accepted
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|kind| {
            let kind = kind.split(';').next().unwrap_or_default().trim();
            kind.eq_ignore_ascii_case("text/html")
        })
}

fn file_response(name: &str, file: WebFile, headers: &HeaderMap) -> Response {
    let tag = format!("\"{}\"", hex::encode(&file.sha256[..16]));
    let cache = if name.starts_with(HASHED) {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    };
    let is_known = headers.get_all(header::IF_NONE_MATCH).iter().any(|value| {
        let value = value.to_str().unwrap_or_default();
        value.split(',').any(|held| held.trim().trim_start_matches("W/") == tag)
    });
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let mut response = Body::from(file.content).into_response();
        set(&mut response, header::CONTENT_TYPE, content_type(name));
        response
    };
    set(&mut response, header::CACHE_CONTROL, cache);
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    guard(&mut response);
    response
}

/// Types of what the build makes; a browser is told not to guess.
fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("json") => "application/json",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}

fn guard(response: &mut Response) {
    set(response, header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY);
    set(response, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(response, header::REFERRER_POLICY, "no-referrer");
}

fn set(response: &mut Response, name: HeaderName, value: &'static str) {
    response.headers_mut().insert(name, HeaderValue::from_static(value));
}

/// Said instead of the dashboard by a program that was built without it.
fn not_built() -> Response {
    let page = "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>Plumbline</title>\n\
                <h1>Plumbline</h1>\n\
                <p>The server runs, but it was built without the dashboard. To build both:</p>\n\
                <pre>cargo xtask setup\ncargo build</pre>\n\
                <p>Until then everything is in the command line (<code>plumbline --help</code>) and in the API \
                (<a href=\"/api/v1/openapi.json\">its description</a>).</p>\n</html>\n";
    let mut response = page.into_response();
    set(&mut response, header::CONTENT_TYPE, "text/html; charset=utf-8");
    set(&mut response, header::CACHE_CONTROL, "no-store");
    guard(&mut response);
    response
}
