//! Who may call what: every route of the OpenAPI document is asked without a token and as a viewer.

use axum::http::{Method, StatusCode};
use serde_json::Value;

use super::Server;

/// Routes for everybody. Whatever else the document lists needs a token.
const PUBLIC: [(&str, &str); 4] = [
    ("post", "/api/v1/session"),
    ("get", "/healthz"),
    ("get", "/readyz"),
    ("get", "/api/v1/openapi.json"),
];

/// The one change that a viewer may make: to end the own session.
const VIEWER_CHANGES: [(&str, &str); 1] = [("delete", "/api/v1/session")];

fn routes() -> Vec<(String, String)> {
    let document = serde_json::to_value(plumbline::http::people::openapi()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let methods = |item: &Value| -> Vec<String> {
        let names = item.as_object().unwrap().keys();
        names.filter(|name| *name != "parameters").cloned().collect()
    };
    paths
        .iter()
        .flat_map(|(path, item)| methods(item).into_iter().map(|method| (method, path.clone())))
        .collect()
}

/// The route with something for each of its parts, and with what its query must have.
fn filled(path: &str) -> String {
    let query = if path.ends_with("/diff/{other}/text") {
        "?path=/etc/motd"
    } else {
        ""
    };
    let parts = path
        .split('/')
        .map(|part| if part.starts_with('{') { "x" } else { part });
    parts.collect::<Vec<_>>().join("/") + query
}

#[tokio::test]
async fn every_route_asks_who_is_there() {
    let server = Server::start().await;
    let routes = routes();
    assert!(routes.len() > 25, "the document lists all routes: {routes:?}");
    for (method, path) in &routes {
        let route = (method.as_str(), path.as_str());
        let verb = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
        let path = filled(path);
        let is_public = PUBLIC.contains(&route);
        for token in [None, Some("0".repeat(64)), Some("not a token".to_owned())] {
            let answer = server.ask(verb.clone(), &path, token.as_deref(), None).await;
            if is_public {
                assert_ne!(answer.status, StatusCode::UNAUTHORIZED, "{route:?}: {answer:?}");
            } else {
                assert_eq!(
                    answer.status,
                    StatusCode::UNAUTHORIZED,
                    "{route:?} with {token:?}: {answer:?}"
                );
                assert!(!answer.error().is_empty());
            }
        }
    }
    for route in PUBLIC.iter().chain(&VIEWER_CHANGES) {
        let listed = routes
            .iter()
            .any(|(method, path)| (method.as_str(), path.as_str()) == *route);
        assert!(listed, "{route:?} is no route any more");
    }
}

#[tokio::test]
async fn a_viewer_reads_everything_and_changes_nothing() {
    let server = Server::start().await;
    for (method, path) in routes() {
        let route = (method.as_str(), path.as_str());
        if PUBLIC.contains(&route) || VIEWER_CHANGES.contains(&route) {
            continue;
        }
        let verb = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
        let answer = server
            .ask(verb.clone(), &filled(&path), Some(&server.viewer), None)
            .await;
        if verb == Method::GET {
            let status = answer.status;
            let understood = status == StatusCode::OK
                || status == StatusCode::NOT_FOUND
                || status == StatusCode::UNPROCESSABLE_ENTITY;
            assert!(understood, "{route:?}: {answer:?}");
        } else {
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{route:?}: {answer:?}");
            assert!(answer.error().contains("admin"), "{answer:?}");
        }
    }
}
