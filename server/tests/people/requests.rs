//! Requests that are not what was expected get a reason, in JSON.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use serde_json::json;

use super::Server;

async fn post(server: &Server, body: impl Into<Body>, content_type: Option<&str>) -> super::support::Answer {
    let mut request = Request::post("/api/v1/nodes").header(header::AUTHORIZATION, format!("Bearer {}", server.admin));
    if let Some(content_type) = content_type {
        request = request.header(header::CONTENT_TYPE, content_type);
    }
    server.request(request.body(body.into()).unwrap()).await
}

#[tokio::test]
async fn a_body_that_cannot_be_read_gets_the_reason() {
    let server = Server::start().await;
    let json_type = Some("application/json");
    for (body, content_type, status, words) in [
        ("{", json_type, StatusCode::BAD_REQUEST, "EOF"),
        ("{}", None, StatusCode::UNSUPPORTED_MEDIA_TYPE, "application/json"),
        ("{}", json_type, StatusCode::UNPROCESSABLE_ENTITY, "name"),
        (
            r#"{"name":"n1","mac":"52:54:00:00:00:01","color":"red"}"#,
            json_type,
            StatusCode::UNPROCESSABLE_ENTITY,
            "color",
        ),
        (
            r#"{"name":1,"mac":"52:54:00:00:00:01"}"#,
            json_type,
            StatusCode::UNPROCESSABLE_ENTITY,
            "expected a string",
        ),
    ] {
        let answer = post(&server, body, content_type).await;
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        assert!(answer.error().contains(words), "{body}: {answer:?}");
    }
    assert_eq!(server.get("/api/v1/nodes").await.body, json!([]));
}

#[tokio::test]
async fn a_body_over_the_limit_is_413() {
    let server = Server::start().await;
    let limit = plumbline::http::people::BODY_BYTES_MAX;
    let padded = |bytes: usize| {
        let body = r#"{"name":"n1","mac":"52:54:00:00:00:01"}"#;
        format!("{}{body}", " ".repeat(bytes - body.len()))
    };
    let over = post(&server, padded(limit + 1), Some("application/json")).await;
    assert_eq!(over.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(over.error().contains("1048576"), "{over:?}");
    let fits = post(&server, padded(limit), Some("application/json")).await;
    assert_eq!(fits.status, StatusCode::CREATED);
}

#[tokio::test]
async fn what_is_not_there_is_told_in_json() {
    let server = Server::start().await;
    for path in ["/api/v1/nothing", "/api/v2", "/nothing", "/api/v1"] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert!(answer.error().contains(path), "{answer:?}");
    }
    let answer = server
        .ask(Method::PUT, "/api/v1/nodes", Some(&server.admin), None)
        .await;
    assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED);
    assert!(answer.error().contains("PUT"), "{answer:?}");
    let node = server.get("/api/v1/nodes/none").await;
    assert_eq!((node.status, node.error()), (StatusCode::NOT_FOUND, "no node none"));
    let query = server.get("/api/v1/nodes/none/events?before=3").await;
    assert_eq!(query.status, StatusCode::BAD_REQUEST);
    assert!(query.error().contains("before"), "{query:?}");
}

#[tokio::test]
async fn health_is_told_to_everybody_and_readiness_means_the_database() {
    let server = Server::start().await;
    for path in ["/healthz", "/readyz"] {
        let answer = server.ask(Method::GET, path, None, None).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
    }
    server.app.store.close().await;
    let ready = server.ask(Method::GET, "/readyz", None, None).await;
    assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE);
    let healthy = server.ask(Method::GET, "/healthz", None, None).await;
    assert_eq!(healthy.status, StatusCode::OK);
}

#[tokio::test]
async fn changes_are_told_to_pages_that_are_open() {
    use futures::StreamExt as _;
    let server = super::Server::start().await;
    let cancel = tokio_util::sync::CancellationToken::new();
    let notices = server.app.notices.clone().run(server.app.store.clone(), cancel.clone());
    let listening = tokio::spawn(notices);
    let request = axum::http::Request::builder()
        .uri("/api/v1/stream")
        .header("cookie", format!("plumbline_session={}", server.viewer))
        .body(axum::body::Body::empty())
        .unwrap();
    let response = tower::ServiceExt::oneshot(server.router.clone(), request)
        .await
        .unwrap();
    assert_eq!(response.status(), axum::http::StatusCode::OK);
    let mut chunks = response.into_body().into_data_stream();
    let (mut told, mut number) = (String::new(), 0);
    let heard = async {
        while !told.contains("event: node\n") {
            // The connection that listens may come up after a change was made; another one is told.
            number += 1;
            server
                .node(&format!("n{number}"), &format!("52:54:00:aa:01:{number:02x}"))
                .await;
            let chunk = tokio::time::timeout(std::time::Duration::from_secs(1), chunks.next()).await;
            if let Ok(chunk) = chunk {
                told.push_str(&String::from_utf8_lossy(&chunk.unwrap().unwrap()));
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), heard)
        .await
        .unwrap();
    assert!(told.starts_with("event: all\n"), "{told}");
    cancel.cancel();
    listening.await.unwrap();
}
