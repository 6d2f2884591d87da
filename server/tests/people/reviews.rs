//! Decisions about findings, over the API.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::Server;
use super::drift::{changed_file, store_report};
use super::support::report;

async fn drifted(server: &Server) -> String {
    let (_, baseline) = server.installed_node("n1", "52:54:00:aa:00:01").await;
    store_report(
        server,
        &baseline,
        &report(&baseline, 1, vec![changed_file("/etc/motd")]),
    )
    .await;
    let groups = server.get("/api/v1/drift").await;
    groups.body[0]["group"].as_str().unwrap().to_owned()
}

async fn verdict(server: &Server) -> Value {
    server.get("/api/v1/nodes/n1/drift").await.body["verdict"].clone()
}

#[tokio::test]
async fn a_waived_finding_is_no_drift_until_it_is_taken_back() {
    let server = Server::start().await;
    let group = drifted(&server).await;
    assert_eq!(verdict(&server).await, "drift");
    let path = format!("/api/v1/drift/{group}/reviews");
    let in_an_hour = time::OffsetDateTime::now_utc() + time::Duration::hours(1);
    let in_an_hour = in_an_hour
        .format(&time::format_description::well_known::Rfc3339)
        .unwrap();
    let waiver = json!({ "kind": "waiver", "scope": "node", "scope_value": "n1", "reason": "memory swap",
                         "expires_at": in_an_hour });
    let kept = server.post(&path, waiver).await;
    assert_eq!(kept.status, StatusCode::CREATED, "{kept:?}");
    assert_eq!(verdict(&server).await, "clean");
    let node = server.get("/api/v1/nodes/n1").await;
    assert_eq!((&node.body["findings"], &node.body["allowed"]), (&json!(0), &json!(1)));
    let drift = server.get("/api/v1/nodes/n1/drift").await;
    assert_eq!(drift.body["findings"][0]["standing"], "waived");

    let reviews = server.get("/api/v1/reviews").await;
    assert_eq!(reviews.body[0]["scope_value"], "n1");
    assert_eq!(reviews.body[0]["made_by"], "admin");
    let path = format!("/api/v1/reviews/{}", kept.body["id"].as_str().unwrap());
    let ended = server.ask(Method::DELETE, &path, Some(&server.admin), None).await;
    assert_eq!(ended.status, StatusCode::NO_CONTENT);
    assert_eq!(verdict(&server).await, "drift");
    let audit = server.get("/api/v1/audit").await;
    assert_eq!(audit.body[0]["action"], "review_ended");
    let history = server.get("/api/v1/nodes/n1/drift/history").await;
    assert_eq!(history.body[0]["event"], "opened");
}

#[tokio::test]
async fn decisions_that_make_no_sense_say_why() {
    let server = Server::start().await;
    let group = drifted(&server).await;
    let path = format!("/api/v1/drift/{group}/reviews");
    for (body, words) in [
        (
            json!({ "kind": "waiver", "scope": "everywhere", "reason": "x" }),
            "expires_at",
        ),
        (
            json!({ "kind": "acceptance", "scope": "everywhere", "reason": "x" }),
            "variant",
        ),
        (
            json!({ "kind": "acknowledgement", "scope": "everywhere", "reason": "" }),
            "reason",
        ),
        (
            json!({ "kind": "acknowledgement", "scope": "node", "reason": "x" }),
            "expected the node",
        ),
        (
            json!({ "kind": "acknowledgement", "scope": "group", "scope_value": "a b", "reason": "x" }),
            "letters",
        ),
        (
            json!({ "kind": "acknowledgement", "scope": "everywhere", "scope_value": "n1", "reason": "x" }),
            "neither",
        ),
    ] {
        let answer = server.post(&path, body.clone()).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{body}: {answer:?}");
        assert!(answer.error().contains(words), "{body}: {answer:?}");
    }
    assert_eq!(server.get("/api/v1/reviews?all=true").await.body, json!([]));
}
