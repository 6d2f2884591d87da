//! Arming discovery.

use axum::http::{Method, StatusCode};
use serde_json::json;

use super::Server;

#[tokio::test]
async fn a_window_is_armed_listed_and_ended() {
    let server = Server::start().await;
    let body = json!({ "subnet": "10.77.0.0/24", "minutes": 10, "nodes_max": 4 });
    let armed = server.post("/api/v1/discovery", body).await;
    assert_eq!(armed.status, StatusCode::CREATED);
    assert_eq!(armed.body["armed_by"], "admin");
    let open = server.get("/api/v1/discovery").await;
    assert_eq!(open.body.as_array().unwrap().len(), 1);
    let ended = server
        .ask(Method::DELETE, "/api/v1/discovery", Some(&server.admin), None)
        .await;
    assert_eq!(ended.body, json!({ "windows": 1 }));
    assert_eq!(server.get("/api/v1/discovery").await.body, json!([]));
}

#[tokio::test]
async fn a_window_has_bounds() {
    let server = Server::start().await;
    for (subnet, minutes, nodes_max, words) in [
        ("10.77.0.0", 10, 4, "subnet"),
        ("10.77.0.1/24", 10, 4, "10.77.0.0/24"),
        ("0.0.0.0/0", 10, 4, "subnet"),
        ("10.77.0.0/24", 0, 4, "minutes"),
        ("10.77.0.0/24", 1_441, 4, "minutes"),
        ("10.77.0.0/24", 10, 0, "nodes_max"),
        ("10.77.0.0/24", 10, 10_001, "nodes_max"),
    ] {
        let body = json!({ "subnet": subnet, "minutes": minutes, "nodes_max": nodes_max });
        let answer = server.post("/api/v1/discovery", body).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{answer:?}");
        assert!(answer.error().contains(words), "{answer:?}");
    }
    assert_eq!(server.get("/api/v1/discovery").await.body, json!([]));
}

#[tokio::test]
async fn sightings_go_when_the_machine_is_listed() {
    let server = Server::start().await;
    let mac = "52:54:00:aa:00:09";
    for _ in 0..2 {
        let store = &server.app.store;
        store
            .sighting_record(mac, Some("PXEClient"), Some(7), None)
            .await
            .unwrap();
    }
    let seen = server.get("/api/v1/sightings").await;
    assert_eq!((&seen.body[0]["mac"], &seen.body[0]["count"]), (&json!(mac), &json!(2)));
    server.node("n1", mac).await;
    assert_eq!(server.get("/api/v1/sightings").await.body, json!([]));
}
