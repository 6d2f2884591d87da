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
            .sighting_record(mac, Some("PXEClient"), Some(7), &Default::default())
            .await
            .unwrap();
    }
    let seen = server.get("/api/v1/sightings").await;
    assert_eq!((&seen.body[0]["mac"], &seen.body[0]["count"]), (&json!(mac), &json!(2)));
    server.node("n1", mac).await;
    assert_eq!(server.get("/api/v1/sightings").await.body, json!([]));
}

#[tokio::test]
async fn a_window_is_for_a_circuit_or_for_a_subnet() {
    let server = Server::start().await;
    let window = |subnet, circuit| json!({ "subnet": subnet, "relay_circuit": circuit, "minutes": 10, "nodes_max": 4 });
    for (body, words) in [
        (window(None, None), "one of the two"),
        (window(Some("10.77.0.0/24"), Some("leaf1:Eth7")), "one of the two"),
        (window(None, Some("*")), "relay_circuit"),
    ] {
        let refused = server.post("/api/v1/discovery", body).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{refused:?}");
        assert!(refused.error().contains(words), "{refused:?}");
    }
    let armed = server.post("/api/v1/discovery", window(None, Some("leaf1:Eth7"))).await;
    assert_eq!(
        (armed.status, &armed.body["relay_circuit"]),
        (StatusCode::CREATED, &json!("leaf1:Eth7"))
    );
    let from = std::net::Ipv4Addr::new(10, 77, 0, 1);
    for (circuit, admitted) in [(None, false), (Some("leaf1:Eth70"), false), (Some("leaf1:Eth7"), true)] {
        let node = plumbline::app::boot::admit(&server.app, "52:54:00:aa:00:07", from, circuit, "in a test").await;
        assert_eq!(node.unwrap().is_some(), admitted, "{circuit:?}");
    }
    let armed = server.post("/api/v1/discovery", window(None, Some("leaf2:*"))).await;
    assert_eq!(armed.status, StatusCode::CREATED);
    let found =
        plumbline::app::boot::admit(&server.app, "52:54:00:aa:00:08", from, Some("leaf2:Eth1"), "in a test").await;
    assert!(found.unwrap().is_some());
    let audit = server.get("/api/v1/audit").await.body;
    assert_eq!(
        (&audit[0]["action"], &audit[0]["object"]),
        (&json!("discovery_armed"), &json!("leaf2:*"))
    );
}
