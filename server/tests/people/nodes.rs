//! Nodes from the rack plan to a deployment.

use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode};
use lifecycle::Observed;
use protocol::latest::Inventory;
use serde_json::json;
use store::NewEvent;

use super::Server;

const MAC: &str = "52:54:00:aa:00:01";

#[tokio::test]
async fn a_node_is_added_found_renamed_and_forgotten() {
    let server = Server::start().await;
    let node = server.node("n1", "52-54-00-AA-00-01").await;
    for reference in ["n1", MAC, "5254.00aa.0001", &node.to_string(), "52:54:00:AA:00:01"] {
        let answer = server.get(&format!("/api/v1/nodes/{reference}")).await;
        assert_eq!(answer.body["id"], json!(node), "{reference}: {answer:?}");
        assert_eq!(answer.body["macs"], json!([MAC]));
        assert_eq!(answer.body["state"], "listed");
        assert_eq!(answer.body["drift"], "unknown");
    }
    let rename = |name: &str| json!({ "name": name });
    let path = "/api/v1/nodes/n1";
    let admin = Some(server.admin.as_str());
    let bad = server.ask(Method::PATCH, path, admin, Some(&rename("Bad_Name"))).await;
    assert_eq!(bad.status, StatusCode::UNPROCESSABLE_ENTITY);
    let renamed = server.ask(Method::PATCH, path, admin, Some(&rename("n2"))).await;
    assert_eq!(renamed.body["name"], "n2");
    let events = server.get("/api/v1/nodes/n2/events").await;
    let kinds: Vec<_> = events
        .body
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["kind"].clone())
        .collect();
    assert_eq!(kinds, ["node_added", "node_renamed"]);

    let gone = server.ask(Method::DELETE, "/api/v1/nodes/n2", admin, None).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    assert_eq!(server.get("/api/v1/nodes").await.body, json!([]));
}

#[tokio::test]
async fn a_name_or_mac_belongs_to_one_node() {
    let server = Server::start().await;
    server.node("n1", MAC).await;
    for (name, mac, status, words) in [
        ("n1", "52:54:00:aa:00:02", StatusCode::CONFLICT, "n1"),
        ("n2", MAC, StatusCode::CONFLICT, MAC),
        ("n2", "52:54:00:aa:00", StatusCode::UNPROCESSABLE_ENTITY, "mac"),
        ("n2", "ff:ff:ff:ff:ff:ff", StatusCode::UNPROCESSABLE_ENTITY, "mac"),
        ("-n2", "52:54:00:aa:00:02", StatusCode::UNPROCESSABLE_ENTITY, "name"),
    ] {
        let answer = server.post("/api/v1/nodes", json!({ "name": name, "mac": mac })).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(answer.error().contains(words), "{answer:?}");
    }
    assert_eq!(server.get("/api/v1/nodes").await.body.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn approval_names_the_node_and_asks_for_a_deployment() {
    let server = Server::start().await;
    let node = server.node("n1", MAC).await;
    server.node("taken", "52:54:00:aa:00:02").await;
    let inventoried = async |uefi| {
        let inventory = Inventory {
            uefi,
            ..Inventory::default()
        };
        server
            .app
            .store
            .node_set_inventory(node, &inventory, &[])
            .await
            .unwrap();
    };
    let approve = async |name: &str, image: &str| {
        let body = json!({ "name": name, "image": image, "disk": { "serial": "S1" } });
        server.post(&format!("/api/v1/nodes/{MAC}/approve"), body).await
    };
    let name = async || server.get(&format!("/api/v1/nodes/{node}")).await.body["name"].clone();

    let answer = approve("gpu-01", "debian-12-lab").await;
    assert_eq!(
        (answer.status, answer.error()),
        (StatusCode::NOT_FOUND, "no image debian-12-lab")
    );
    server.image("os", "debian-12-lab", "20260101T000000Z").await;
    let answer = approve("gpu-01", "debian-12-lab").await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    assert!(answer.error().contains("no agent layer"), "{answer:?}");
    server.image("agent", "plumbline-agent", "20260101T000000Z").await;
    inventoried(false).await;
    let answer = approve("gpu-01", "debian-12-lab").await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    assert!(answer.error().contains("UEFI"), "{answer:?}");
    inventoried(true).await;
    let answer = approve("gpu-01", "plumbline-agent").await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    let answer = approve("taken", "debian-12-lab").await;
    assert_eq!(answer.status, StatusCode::CONFLICT);
    let answer = approve("Not A Name", "debian-12-lab").await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(name().await, "n1", "nothing above named it");

    let answer = approve("gpu-01", "debian-12-lab").await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    assert_eq!(answer.body["state"], "waiting");
    assert_eq!(answer.body["requested_by"], "admin");
    assert_eq!(answer.body["disk_rule"]["serial"], "S1");
    assert_eq!(name().await, "gpu-01");
    let shown = server
        .get(&format!("/api/v1/deployments/{}", answer.body["id"].as_str().unwrap()))
        .await;
    assert_eq!(shown.body["id"], answer.body["id"]);
    let listed = server.get("/api/v1/nodes/gpu-01/deployments").await;
    assert_eq!(listed.body.as_array().unwrap().len(), 1);

    let again = approve("gpu-02", "debian-12-lab").await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    assert!(again.error().contains("under way"), "{again:?}");
    assert_eq!(name().await, "gpu-01");
}

#[tokio::test]
async fn a_quarantined_node_waits_for_its_release() {
    let server = Server::start().await;
    let node = server.node("n1", MAC).await;
    server.image("os", "debian-12-lab", "20260101T000000Z").await;
    server.image("agent", "plumbline-agent", "20260101T000000Z").await;
    let release = async || {
        server
            .ask(Method::POST, "/api/v1/nodes/n1/release", Some(&server.admin), None)
            .await
    };
    assert_eq!(release().await.status, StatusCode::CONFLICT);
    let misused = Observed::TokenMisused {
        reason: "claimed twice".to_owned(),
    };
    server.app.store.node_step(node, &misused).await.unwrap();
    let deploy = json!({ "image": "debian-12-lab" });
    let refused = server.post("/api/v1/nodes/n1/deployments", deploy.clone()).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    assert!(refused.error().contains("release it first"), "{refused:?}");
    let kept = server
        .ask(Method::DELETE, "/api/v1/nodes/n1", Some(&server.admin), None)
        .await;
    assert_eq!(kept.status, StatusCode::CONFLICT);
    assert_eq!(release().await.body["state"], "waiting_approval");
    let deployed = server.post("/api/v1/nodes/n1/deployments", deploy).await;
    assert_eq!(deployed.status, StatusCode::CREATED);
}

#[tokio::test]
async fn news_ends_the_wait_for_events() {
    let server = Server::start().await;
    let node = server.node("n1", MAC).await;
    let last = server.get("/api/v1/nodes/n1/events").await.body[0]["id"]
        .as_i64()
        .unwrap();
    let started = Instant::now();
    let none = server.get(&format!("/api/v1/nodes/n1/events?after={last}")).await;
    assert_eq!(none.body, json!([]), "no wait was asked for");
    let path = format!("/api/v1/nodes/n1/events?after={last}&wait_secs=20");
    let news = async {
        let event = NewEvent {
            node_id: Some(node),
            mac: None,
            kind: "dhcp_offer",
            detail: "10.0.0.9",
        };
        server.app.store.event_add(event).await.unwrap();
    };
    let (answer, ()) = tokio::join!(server.get(&path), news);
    assert_eq!(answer.body[0]["kind"], "dhcp_offer");
    assert_eq!(answer.body.as_array().unwrap().len(), 1);
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "the wait ended with the news"
    );
}

#[tokio::test]
async fn an_image_in_use_stays() {
    let server = Server::start().await;
    server.installed_node("n1", MAC).await;
    server.image("os", "unused", "20260101T000000Z").await;
    let remove = async |image: &str| {
        let path = format!("/api/v1/images/{image}");
        server.ask(Method::DELETE, &path, Some(&server.admin), None).await
    };
    let used = remove("debian-12-lab@20260101T000000Z").await;
    assert_eq!(used.status, StatusCode::CONFLICT);
    assert!(used.error().contains("used"), "{used:?}");
    assert_eq!(remove("unused").await.status, StatusCode::NO_CONTENT);
    assert_eq!(server.get("/api/v1/images/unused").await.status, StatusCode::NOT_FOUND);
    server.image("os", "lost", "20260101T000000Z").await;
    let lost = server.app.images.list().await.unwrap();
    for image in lost {
        server.app.images.remove(image).await.unwrap();
    }
    let gone = server
        .ask(Method::POST, "/api/v1/images/lost/verify", Some(&server.admin), None)
        .await;
    assert_eq!(
        gone.status,
        StatusCode::NOT_FOUND,
        "registered, but its data are not there"
    );
}

#[tokio::test]
async fn a_node_that_does_not_boot_says_how_far_it_came() {
    let server = Server::start().await;
    let node = server.node("n1", MAC).await;
    let never = server.get("/api/v1/nodes/n1/why").await.body;
    assert!(never["is_stuck"] == true && never["reached_at"].is_null(), "{never}");
    let event = |kind, detail| NewEvent {
        node_id: Some(node),
        mac: None,
        kind,
        detail,
    };
    let told = "request answered with ack, address 10.77.0.100, loader";
    server.app.store.event_add(event("dhcp", told)).await.unwrap();
    let due = server.get("/api/v1/nodes/n1/why").await.body;
    assert!(due["is_stuck"] == false && due["detail"] == told, "{due}");
    assert!(due["expected"].as_str().unwrap().contains("TFTP"), "{due}");
    let broken = "snponly.efi silent: 1024 bytes in 9000 ms to 10.77.0.100";
    server.app.store.event_add(event("tftp", broken)).await.unwrap();
    let stuck = server.get("/api/v1/nodes/n1/why").await.body;
    assert!(stuck["is_stuck"] == true, "{stuck}");
    assert!(stuck["sentence"].as_str().unwrap().contains("1024 bytes"), "{stuck}");
}

#[tokio::test]
async fn what_becomes_of_a_disk_is_said_and_shown() {
    let server = Server::start().await;
    server.node("n1", MAC).await;
    let mut header = manifest::Header::new(manifest::ManifestKind::Os, "debian-12-lab", "20260101T000000Z");
    header.classes = serde_json::from_value(json!([{ "path": "/home/**", "class": "volatile" }])).unwrap();
    server.image_of(header, &[("/etc/x", 0o644, "x")]).await;
    server.image("agent", "plumbline-agent", "20260101T000000Z").await;
    let deploy = async |more: serde_json::Value| {
        let mut body = json!({ "image": "debian-12-lab" });
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        server.post("/api/v1/nodes/n1/deployments", body).await
    };
    for (more, reason) in [
        (json!({ "keep": ["/etc/x"] }), "/etc/x: the image pins"),
        (json!({ "keep": ["home"] }), "keep: "),
        (json!({ "keep": ["/home"], "mode": "wipe" }), "keeps nothing"),
        (json!({ "mode": "erase" }), "erase"),
    ] {
        let refused = deploy(more).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{refused:?}");
        assert!(refused.error().contains(reason), "{refused:?}");
    }
    let asked = deploy(json!({ "keep": ["/home/alice"] })).await;
    assert_eq!(asked.status, StatusCode::CREATED, "{asked:?}");
    assert_eq!(
        (&asked.body["mode"], &asked.body["keep"]),
        (&json!("in_place"), &json!(["/home/alice"]))
    );
}

/// A deployer says which of the node's root filesystems it goes over; any other is refused.
#[tokio::test]
async fn only_a_root_filesystem_of_the_node_itself_is_configured() {
    let server = Server::start().await;
    let (node, _) = server.installed_node("n1", MAC).await;
    let (other, _) = server.installed_node("n2", "52:54:00:aa:00:07").await;
    let store = &server.app.store;
    let again = server
        .post("/api/v1/nodes/n1/deployments", json!({ "image": "debian-12-lab" }))
        .await;
    let deployment: protocol::DeploymentId = again.body["id"].as_str().unwrap().parse().unwrap();
    let token = store
        .token_issue(node, Some((deployment, 1)), MAC, "10.0.0.9")
        .await
        .unwrap();
    assert!(store.deployment_start(deployment, token).await.unwrap());
    let ramdisk = plumbline::app::enrol::Ramdisk { node, token };
    let render = async |root| {
        let request = protocol::latest::RenderRequest {
            boot_mac: MAC.to_owned(),
            ssh_host_keys: Vec::new(),
            agent_certificate_request: String::new(),
            disk: Default::default(),
            root_uuid: Some(root),
        };
        let said = plumbline::app::enrol::render(&server.app, &ramdisk, deployment, None, &request).await;
        // The image of this test has no kernel: it never comes to an end.
        said.unwrap_err().to_string()
    };
    let foreign = store.deployment_roots(other, 1).await.unwrap()[0];
    assert!(render(foreign).await.contains("root_uuid"));
    let roots = store.deployment_roots(node, 16).await.unwrap();
    assert_eq!(roots.len(), 2, "each deployment has ids of its own");
    let oldest = roots[1];
    assert!(!render(oldest).await.contains("root_uuid"));
    assert_eq!(store.deployment_get(deployment).await.unwrap().layout.root_uuid, oldest);
}
