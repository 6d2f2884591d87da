//! The dashboard's files: which requests get the page, and with which headers.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use plumbline::http::web::{CONTENT_SECURITY_POLICY, WebFile, WebFiles, answer};
use sha2::Digest as _;
use tower::ServiceExt as _;

use super::Server;

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

/// A dashboard of three files.
struct Built;

impl WebFiles for Built {
    fn file(&self, path: &str) -> Option<WebFile> {
        let content: &'static str = match path {
            "index.html" => "<!doctype html><title>the page</title>",
            "favicon.svg" => "<svg/>",
            "assets/index-abc123.js" => "go()",
            _ => return None,
        };
        Some(WebFile {
            content: Cow::Borrowed(content.as_bytes()),
            sha256: sha2::Sha256::digest(content).into(),
        })
    }
}

struct NotBuilt;

impl WebFiles for NotBuilt {
    fn file(&self, _path: &str) -> Option<WebFile> {
        None
    }
}

struct Seen {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Seen {
    fn header(&self, name: &header::HeaderName) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

fn accept(kind: &str) -> HeaderMap {
    HeaderMap::from_iter([(header::ACCEPT, kind.parse().unwrap())])
}

async fn look(files: &dyn WebFiles, method: Method, path: &str, headers: &HeaderMap) -> Option<Seen> {
    let (parts, body) = answer(files, &method, path, headers)?.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Some(Seen {
        status: parts.status,
        headers: parts.headers,
        body: String::from_utf8(bytes.to_vec()).unwrap(),
    })
}

async fn get(path: &str, headers: &HeaderMap) -> Option<Seen> {
    look(&Built, Method::GET, path, headers).await
}

#[tokio::test]
async fn every_address_of_the_dashboard_gets_the_page() {
    for path in [
        "/",
        "/nodes",
        "/nodes/gpu-r01-01",
        "/drift/ab12",
        "/index.html",
        "/apiary",
    ] {
        let page = get(path, &accept(BROWSER)).await.unwrap_or_else(|| panic!("{path}"));
        assert_eq!(page.status, StatusCode::OK, "{path}");
        assert!(page.body.contains("the page"), "{path}: {}", page.body);
        assert_eq!(page.header(&header::CONTENT_TYPE), "text/html; charset=utf-8");
        assert_eq!(page.header(&header::CACHE_CONTROL), "no-cache", "{path}");
    }
}

#[tokio::test]
async fn what_is_not_the_dashboards_is_left_alone() {
    let browser = accept(BROWSER);
    for path in [
        "/api",
        "/api/v1/nope",
        "/healthz",
        "/readyz",
        "/metrics",
        "/assets/gone-1.js",
    ] {
        assert!(get(path, &browser).await.is_none(), "{path}");
    }
    for kind in ["application/json", "*/*", "text/plain"] {
        assert!(get("/nodes", &accept(kind)).await.is_none(), "{kind}");
    }
    assert!(get("/nodes", &HeaderMap::new()).await.is_none());
    for method in [Method::POST, Method::PUT, Method::DELETE] {
        assert!(look(&Built, method.clone(), "/", &browser).await.is_none(), "{method}");
    }
    assert!(look(&Built, Method::HEAD, "/", &browser).await.is_some());
}

#[tokio::test]
async fn files_named_by_their_content_are_kept_and_others_are_asked_for_again() {
    let script = get("/assets/index-abc123.js", &accept("*/*")).await.unwrap();
    assert_eq!(script.body, "go()");
    assert_eq!(script.header(&header::CONTENT_TYPE), "text/javascript; charset=utf-8");
    assert_eq!(
        script.header(&header::CACHE_CONTROL),
        "public, max-age=31536000, immutable"
    );
    let icon = get("/favicon.svg", &accept("image/*")).await.unwrap();
    assert_eq!(icon.header(&header::CONTENT_TYPE), "image/svg+xml");
    assert_eq!(icon.header(&header::CACHE_CONTROL), "no-cache");

    let mut again = accept(BROWSER);
    let tag = get("/", &again).await.unwrap().headers[header::ETAG].clone();
    again.insert(header::IF_NONE_MATCH, tag.clone());
    let known = get("/nodes", &again).await.unwrap();
    assert_eq!((known.status, known.body.as_str()), (StatusCode::NOT_MODIFIED, ""));
    assert_eq!(known.headers[header::ETAG], tag);
    again.insert(header::IF_NONE_MATCH, "\"another\"".parse().unwrap());
    assert_eq!(get("/", &again).await.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn a_browser_runs_only_what_this_server_sends() {
    let browser = accept(BROWSER);
    for seen in [
        get("/", &browser).await.unwrap(),
        get("/assets/index-abc123.js", &browser).await.unwrap(),
        look(&NotBuilt, Method::GET, "/", &browser).await.unwrap(),
    ] {
        let policy = seen.header(&header::CONTENT_SECURITY_POLICY);
        assert_eq!(policy, CONTENT_SECURITY_POLICY);
        for rule in [
            "default-src 'self'",
            "style-src 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
            "form-action 'self'",
        ] {
            assert!(policy.split("; ").any(|held| held == rule), "{rule}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(seen.header(&header::X_CONTENT_TYPE_OPTIONS), "nosniff");
        assert_eq!(seen.header(&header::REFERRER_POLICY), "no-referrer");
    }
}

#[tokio::test]
async fn a_server_built_without_the_dashboard_says_how_to_build_it() {
    let page = look(&NotBuilt, Method::GET, "/nodes", &accept(BROWSER)).await.unwrap();
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.body.contains("cargo xtask setup"), "{}", page.body);
    assert_eq!(page.header(&header::CACHE_CONTROL), "no-store");
}

#[tokio::test]
async fn the_listener_answers_browsers_with_a_page_and_scripts_with_json() {
    let server = Server::start().await;
    let ask = async |path: &str, kind: &str| {
        let request = Request::builder().uri(path).header(header::ACCEPT, kind);
        let response = server
            .router
            .clone()
            .oneshot(request.body(Body::empty()).unwrap())
            .await
            .unwrap();
        (
            response.status(),
            response.headers().get(header::CONTENT_TYPE).cloned().unwrap(),
        )
    };
    for path in ["/", "/nodes/gpu-r01-01"] {
        let (status, kind) = ask(path, BROWSER).await;
        assert_eq!(
            (status, kind.to_str().unwrap()),
            (StatusCode::OK, "text/html; charset=utf-8")
        );
        let (status, kind) = ask(path, "application/json").await;
        assert_eq!(
            (status, kind.to_str().unwrap()),
            (StatusCode::NOT_FOUND, "application/json")
        );
    }
    for path in ["/api/v1/nope", "/api/nope", "/assets/gone-1.js"] {
        let (status, kind) = ask(path, BROWSER).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
        assert_eq!(kind.to_str().unwrap(), "application/json", "{path}");
    }
}
