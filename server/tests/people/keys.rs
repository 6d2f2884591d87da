//! Keys that sign images: rotated, retired, revoked; images that were revoked.

use axum::http::{Method, StatusCode};
use manifest::{Digest, KeyPair};
use plumbline::app::trust;
use serde_json::{Value, json};

use super::Server;

const IMAGE: &str = "/api/v1/images/debian-12-lab";

async fn keys(server: &Server) -> Vec<Value> {
    server.get("/api/v1/keys").await.body.as_array().unwrap().clone()
}

/// Registered as the background task does it, with the key that signed it.
async fn image(server: &Server, version: &str) -> Digest {
    let digest = server.image("os", "debian-12-lab", version).await;
    trust::refresh(&server.app).await.unwrap();
    digest
}

async fn audited(server: &Server, action: &str) -> Vec<Value> {
    let events = server.get("/api/v1/audit").await.body;
    let events = events.as_array().unwrap().iter();
    events.filter(|event| event["action"] == action).cloned().collect()
}

async fn deploy(server: &Server, node: &str, image: &str) -> super::support::Answer {
    let path = format!("/api/v1/nodes/{node}/deployments");
    server.post(&path, json!({ "image": image })).await
}

#[tokio::test]
async fn a_rotated_key_goes_on_to_verify_and_signs_nothing_new() {
    let server = Server::start().await;
    let old = keys(&server).await;
    assert_eq!(
        (old.len(), &old[0]["state"], &old[0]["signs_here"]),
        (1, &json!("active"), &json!(true))
    );
    image(&server, "1").await;

    let rotated = server.post("/api/v1/keys/rotate", json!({})).await;
    assert_eq!(rotated.status, StatusCode::OK, "{rotated:?}");
    assert_eq!(
        rotated.body["left"],
        json!(["debian-12-lab@1"]),
        "only the old one has signed it"
    );
    assert_eq!(rotated.body["before"], old[0]["id"]);
    let now = keys(&server).await;
    assert_eq!(
        (&now[0]["state"], &now[0]["signs_here"]),
        (&json!("retired"), &json!(false))
    );
    assert_eq!(
        (&now[1]["state"], &now[1]["signs_here"]),
        (&json!("active"), &json!(true))
    );
    assert_eq!((&now[0]["images"], &now[1]["images"]), (&json!(1), &json!(0)));
    assert_eq!(server.get(IMAGE).await.body["unusable"], Value::Null);
    image(&server, "2").await;
    assert_eq!(keys(&server).await[1]["images"], 1);

    // The next one signs what lives on, too: then nothing hangs on the older ones.
    let again = server.post("/api/v1/keys/rotate", json!({ "resign": true })).await.body;
    assert_eq!((&again["resigned_count"], &again["left_count"]), (&json!(2), &json!(0)));
    assert_eq!(keys(&server).await[2]["images"], 2);
    let check = server
        .ask(Method::POST, &format!("{IMAGE}@1/verify"), Some(&server.admin), None)
        .await;
    assert_eq!(
        (&check.body["ok"], &check.body["signed_by"]),
        (&json!(true), &json!("image"))
    );
    assert_eq!(audited(&server, "image_key_rotated").await.len(), 2);
}

#[tokio::test]
async fn what_a_revoked_key_signed_is_not_deployed_and_its_nodes_are_not_clean() {
    let server = Server::start().await;
    let (node, baseline) = server.installed_node("gpu-01", "52:54:00:aa:00:01").await;
    trust::refresh(&server.app).await.unwrap();
    let before = server.heartbeat(&baseline).await.trust.unwrap();
    let id = keys(&server).await[0]["id"].as_str().unwrap().to_owned();

    let path = format!("/api/v1/keys/{id}/revoke");
    let none = server.post(&path, json!({ "reason": " " })).await;
    assert_eq!(none.status, StatusCode::UNPROCESSABLE_ENTITY);
    let revoked = server.post(&path, json!({ "reason": "the laptop was stolen" })).await;
    assert_eq!(revoked.status, StatusCode::OK, "{revoked:?}");
    assert_eq!(revoked.body["can_sign"], false);
    assert_eq!(revoked.body["images"], json!(["debian-12-lab@20260101T000000Z"]));
    assert_eq!(revoked.body["users"], json!([{ "node": "gpu-01", "how": "runs" }]));
    assert_eq!(
        audited(&server, "image_key_revoked").await[0]["detail"],
        "the laptop was stolen"
    );

    let refused = deploy(&server, &node.to_string(), "debian-12-lab").await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert!(refused.error().contains("which was revoked") && refused.error().contains("the laptop was stolen"));
    let shown = server.get(&format!("/api/v1/nodes/{node}")).await.body;
    assert_eq!(shown["drift"], "unknown");
    assert!(
        shown["drift_reason"]
            .as_str()
            .unwrap()
            .contains("install the node again"),
        "{shown}"
    );
    let told = server.heartbeat(&baseline).await.trust.unwrap();
    assert_ne!(told, before, "its agent asks again");
    let trust = trust::of_node(&server.app, node).await.unwrap();
    assert_eq!(
        (trust.image_keys.len(), trust.revoked_keys[0].id.as_str()),
        (0, id.as_str())
    );
    assert_eq!(trust.revoked_image.unwrap().image, baseline.image);

    // Nothing takes it back: neither twice, nor by bringing the key again.
    let again = server.post(&path, json!({ "reason": "x" })).await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    let public = &keys(&server).await[0]["public_key"];
    let back = server.post("/api/v1/keys", json!({ "public_key": public })).await;
    assert_eq!(back.status, StatusCode::CONFLICT);
    // What a key signed that is in other hands is not signed again by the next one.
    let next = server.post("/api/v1/keys/rotate", json!({ "resign": true })).await.body;
    assert_eq!((&next["resigned_count"], &next["left_count"]), (&json!(0), &json!(1)));
}

#[tokio::test]
async fn a_revoked_image_is_used_for_nothing_any_more() {
    let server = Server::start().await;
    let (node, baseline) = server.installed_node("gpu-01", "52:54:00:aa:00:01").await;
    let other = server.node("gpu-02", "52:54:00:aa:00:02").await;
    let waits = deploy(&server, &other.to_string(), "debian-12-lab").await;
    assert_eq!(waits.status, StatusCode::CREATED, "{waits:?}");

    let path = format!("{IMAGE}@20260101T000000Z/revoke");
    let viewer = server
        .ask(
            Method::POST,
            &path,
            Some(&server.viewer),
            Some(&json!({ "reason": "x" })),
        )
        .await;
    assert_eq!(viewer.status, StatusCode::FORBIDDEN);
    let revoked = server.post(&path, json!({ "reason": "a hole in its kernel" })).await;
    assert_eq!(revoked.status, StatusCode::OK, "{revoked:?}");
    let users = json!([{ "node": "gpu-01", "how": "runs" }, { "node": "gpu-02", "how": "waits" }]);
    assert_eq!(revoked.body["users"], users);

    let third = server.node("gpu-03", "52:54:00:aa:00:03").await;
    let refused = deploy(&server, &third.to_string(), "debian-12-lab").await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert!(refused.error().contains("a hole in its kernel"), "{refused:?}");
    let why = server.get(&format!("/api/v1/nodes/{node}/why")).await.body;
    assert!(
        why["sentence"].as_str().unwrap().contains("a hole in its kernel"),
        "{why}"
    );
    let drift = server.get(&format!("/api/v1/nodes/{node}/drift")).await.body;
    assert_eq!(drift["verdict"], "unknown");
    assert!(
        drift["reason"].as_str().unwrap().contains("a hole in its kernel"),
        "{drift}"
    );

    // Who has a deployment of it already is told, and decides by itself; who runs it is told, too.
    let layers = [baseline.image, baseline.agent_layer];
    let told = trust::of_deployment(&server.app, layers);
    assert!(told.against(baseline.image).unwrap().contains("a hole in its kernel"));
    assert_eq!(told.against(baseline.agent_layer), None);
    let told = trust::of_node(&server.app, node).await.unwrap();
    assert!(told.against(baseline.image).is_some());
    // Nothing of it is put back.
    let content = plumbline::app::contents::of_baseline(&server.app, node, Digest::of(b"x")).await;
    assert!(content.is_err_and(|error| error.to_string().contains("must not be used")));

    let again = server.post(&path, json!({ "reason": "x" })).await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    assert_eq!(audited(&server, "image_revoked").await.len(), 1);
    let shown = server.get(IMAGE).await.body;
    assert!(
        shown["unusable"]
            .as_str()
            .unwrap()
            .contains("by admin: a hole in its kernel"),
        "{shown}"
    );
}

/// Removing it and bringing it back does not make it better.
#[tokio::test]
async fn a_revocation_outlives_the_image() {
    let server = Server::start().await;
    let digest = image(&server, "1").await;
    let revoked = server
        .post(&format!("{IMAGE}/revoke"), json!({ "reason": "bad" }))
        .await;
    assert_eq!(revoked.status, StatusCode::OK);
    let removed = server.ask(Method::DELETE, IMAGE, Some(&server.admin), None).await;
    assert_eq!(removed.status, StatusCode::NO_CONTENT, "{removed:?}");
    assert_eq!(image(&server, "1").await, digest);
    assert!(server.get(IMAGE).await.body["unusable"].is_string());
    // One that never came is barred as well.
    let unknown = Digest::of(b"heard of elsewhere");
    let path = format!("/api/v1/images/{unknown}/revoke");
    let revoked = server.post(&path, json!({ "reason": "bad" })).await;
    assert_eq!((revoked.status, &revoked.body["image"]), (StatusCode::OK, &Value::Null));
    let missing = server
        .post("/api/v1/images/nothing/revoke", json!({ "reason": "bad" }))
        .await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_signature_that_changes_in_the_folder_is_noticed() {
    let server = Server::start().await;
    let digest = image(&server, "1").await;
    let bytes = server.app.images.manifest_bytes(digest).await.unwrap();
    let foreign = KeyPair::generate().unwrap();
    let signature = foreign.sign(&bytes, "x").unwrap();
    server.app.images.put_signature(digest, &signature).await.unwrap();
    trust::refresh(&server.app).await.unwrap();
    let reason = server.get(IMAGE).await.body["unusable"].to_string();
    assert!(reason.contains("not trusted here"), "{reason}");

    // The key that it is signed by is taken into the set: now it counts.
    let public = format!("untrusted comment: x\n{}\n", foreign.public().as_str());
    let added = server.post("/api/v1/keys", json!({ "public_key": public })).await;
    assert_eq!(
        (added.status, &added.body["state"]),
        (StatusCode::CREATED, &json!("active"))
    );
    assert_eq!(added.body["signs_here"], false);
    assert_eq!(server.get(IMAGE).await.body["unusable"], Value::Null);
    assert_eq!(keys(&server).await[1]["images"], 1);
    let nothing = server.post("/api/v1/keys", json!({ "public_key": "hello" })).await;
    assert_eq!(nothing.status, StatusCode::UNPROCESSABLE_ENTITY);

    // The server's own key may go then, and its secret half with it.
    let own = keys(&server).await[0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/keys/{}/retire", own.to_lowercase());
    let retired = server.ask(Method::POST, &path, Some(&server.admin), None).await;
    assert_eq!(
        (retired.status, &retired.body["state"]),
        (StatusCode::OK, &json!("retired")),
        "{retired:?}"
    );
    assert!(server.app.keys.image_signer().unwrap().is_none());
    let last = keys(&server).await[1]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/keys/{last}/retire");
    let refused = server.ask(Method::POST, &path, Some(&server.admin), None).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    let refused = server.post("/api/v1/keys/rotate", json!({})).await;
    assert!(refused.error().contains("another machine"), "{refused:?}");
}

#[tokio::test]
async fn an_agent_that_refuses_its_image_is_on_its_nodes_timeline_once() {
    let server = Server::start().await;
    let (node, baseline) = server.installed_node("gpu-01", "52:54:00:aa:00:01").await;
    let mut heartbeat = protocol::latest::Heartbeat {
        boot_id: uuid::Uuid::nil(),
        sequence: 1,
        baseline: None,
        state: None,
        agent_version: "0".to_owned(),
        uptime_secs: 60,
        rss_max_bytes: 1,
        unix_ms: 0,
        restart: None,
        refused: Some(format!("manifest x: it is not signed{}", " ".repeat(2_000))),
    };
    for sequence in [1, 2] {
        heartbeat.sequence = sequence;
        plumbline::app::agents::heartbeat(&server.app, baseline.node_id, &heartbeat)
            .await
            .unwrap();
    }
    let events = server.get(&format!("/api/v1/nodes/{node}/events")).await.body;
    let told: Vec<_> = events
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["kind"] == "image_refused")
        .collect();
    assert_eq!(told.len(), 1, "{events}");
    assert!(told[0]["detail"].as_str().unwrap().contains("it is not signed"));
    let why = server.get(&format!("/api/v1/nodes/{node}/why")).await.body;
    assert!(why["sentence"].as_str().unwrap().contains("it is not signed"), "{why}");
}
