//! Channels: moved, followed, and what they keep.

use axum::http::{Method, StatusCode};
use manifest::Digest;
use plumbline::image::Exclusive;
use serde_json::{Value, json};

use super::Server;
use super::support::Answer;

const MAC: &str = "52:54:00:aa:00:01";
const STABLE: &str = "/api/v1/channels/debian-12-lab/stable";

async fn put(server: &Server, path: &str, body: Value) -> Answer {
    server.ask(Method::PUT, path, Some(&server.admin), Some(&body)).await
}

async fn set(server: &Server, image: &str) -> Answer {
    put(
        server,
        STABLE,
        json!({ "image": image, "reason": "tested on canaries" }),
    )
    .await
}

async fn back(server: &Server) -> Answer {
    server
        .post(&format!("{STABLE}/back"), json!({ "reason": "NICs flap" }))
        .await
}

/// Versions 1 to 4 of one image, oldest first.
async fn versions(server: &Server) -> Vec<Digest> {
    let mut images = Vec::new();
    for month in 1..=4 {
        let version = format!("2026{month:02}01T000000Z");
        images.push(server.image("os", "debian-12-lab", &version).await);
    }
    images
}

async fn audited(server: &Server, action: &str) -> Vec<String> {
    let audit = server.get("/api/v1/audit").await.body;
    let lines = audit.as_array().unwrap().iter().filter(|one| one["action"] == action);
    lines
        .map(|one| {
            format!(
                "{}: {} {}",
                one["actor"].as_str().unwrap(),
                one["object"].as_str().unwrap(),
                one["detail"].as_str().unwrap()
            )
        })
        .collect()
}

#[tokio::test]
async fn a_channel_goes_forward_and_back_and_each_move_is_kept() {
    let server = Server::start().await;
    let images = versions(&server).await;
    let nothing = server.get(STABLE).await;
    assert_eq!(nothing.status, StatusCode::NOT_FOUND);

    for image in [
        "debian-12-lab@20260101T000000Z",
        "debian-12-lab@20260201T000000Z",
        "debian-12-lab@20260301T000000Z",
    ] {
        let moved = set(&server, image).await;
        assert_eq!(
            (moved.status, &moved.body["moved"]),
            (StatusCode::OK, &json!(true)),
            "{moved:?}"
        );
    }
    let again = set(&server, "debian-12-lab@20260301T000000Z").await;
    assert_eq!(again.body["moved"], json!(false), "it stands there already");
    let record = server.get(STABLE).await.body;
    assert_eq!(
        (&record["version"], &record["previous_version"]),
        (&json!("20260301T000000Z"), &json!("20260201T000000Z"))
    );
    assert_eq!(record["image"], json!(images[2].to_string()));

    // Back twice, on to the fourth, and back to where it stood before that.
    assert_eq!(back(&server).await.body["version"], "20260201T000000Z");
    let first = back(&server).await.body;
    assert_eq!(
        (&first["version"], &first["previous_version"]),
        (&json!("20260101T000000Z"), &Value::Null)
    );
    let end = back(&server).await;
    assert_eq!(end.status, StatusCode::CONFLICT, "{end:?}");
    assert!(end.error().contains("no other image before"), "{end:?}");
    set(&server, "debian-12-lab@20260401T000000Z").await;
    assert_eq!(back(&server).await.body["version"], "20260101T000000Z");

    let moves = server.get(&format!("{STABLE}/history")).await.body;
    let moves: Vec<_> = moves
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            let month = |version: &Value| version.as_str().map_or("-".to_owned(), |text| text[4..6].to_owned());
            format!(
                "{} {} {}",
                one["kind"].as_str().unwrap(),
                month(&one["from_version"]),
                month(&one["to_version"])
            )
        })
        .collect();
    assert_eq!(
        moves,
        [
            "back 04 01",
            "set 01 04",
            "back 02 01",
            "back 03 02",
            "set 02 03",
            "set 01 02",
            "set - 01"
        ]
    );
    let audit = audited(&server, "channel_back").await;
    let expected = format!(
        "admin: debian-12-lab/stable 20260401T000000Z ({}) to 20260101T000000Z ({}): NICs flap",
        images[3].short(),
        images[0].short()
    );
    assert_eq!(audit[0], expected);
    assert_eq!(audited(&server, "channel_set").await.len(), 4);
}

#[tokio::test]
async fn a_channel_names_versions_of_its_image_and_takes_a_reason() {
    let server = Server::start().await;
    versions(&server).await;
    server.image("os", "other", "20260101T000000Z").await;
    server.image("deployer", "deployer", "20260101T000000Z").await;
    let refused = set(&server, "other").await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        refused.error().contains("versions of debian-12-lab only"),
        "{refused:?}"
    );
    let path = "/api/v1/channels/deployer/stable";
    let refused = put(&server, path, json!({ "image": "deployer", "reason": "x" })).await;
    assert!(refused.error().contains("expected os"), "{refused:?}");
    let refused = put(&server, STABLE, json!({ "image": "debian-12-lab", "reason": " " })).await;
    assert!(refused.error().starts_with("reason:"), "{refused:?}");
    let refused = put(
        &server,
        "/api/v1/channels/debian-12-lab/A",
        json!({ "image": "debian-12-lab", "reason": "x" }),
    )
    .await;
    assert!(refused.error().starts_with("channel \"A\": expected"), "{refused:?}");
    assert_eq!(server.get("/api/v1/channels").await.body, json!([]));
}

#[tokio::test]
async fn a_deployment_keeps_what_the_channel_named_and_a_move_changes_no_node() {
    let server = Server::start().await;
    let (node, baseline) = server.installed_node("gpu-01", MAC).await;
    let images = versions(&server).await;
    assert_eq!(images[0], baseline.image);
    set(&server, "debian-12-lab@20260101T000000Z").await;
    assert_eq!(server.get(STABLE).await.body["nodes"], 0, "it was installed by a name");

    // Its group is to have the channel: it follows, and is not behind.
    let said = put(
        &server,
        "/api/v1/group-images/default",
        json!({ "image": "debian-12-lab/stable" }),
    )
    .await;
    assert_eq!(said.status, StatusCode::NO_CONTENT, "{said:?}");
    let record = server.get(STABLE).await.body;
    assert_eq!(
        (&record["nodes"], &record["behind"]),
        (&json!(1), &json!(0)),
        "{record}"
    );
    let moved = set(&server, "debian-12-lab@20260201T000000Z").await.body;
    assert_eq!((&moved["nodes"], &moved["behind"]), (&json!(1), &json!(1)), "{moved}");
    let follower = &moved["followers"][0];
    assert!(
        follower["name"] == "gpu-01" && follower["behind"] == true && follower["version"] == "20260101T000000Z",
        "{moved}"
    );
    let still = server.app.store.baseline_find(node).await.unwrap().unwrap();
    assert_eq!(still.image, images[0]);
    assert!(
        server.app.store.deployment_find_open(node).await.unwrap().is_none(),
        "nothing was deployed"
    );

    // A deployment that names no image takes the channel, and keeps the digest when that moves on.
    server
        .app
        .store
        .node_step(
            node,
            &lifecycle::Observed::FullScan {
                differences: 0,
                not_looked_at: 0,
            },
        )
        .await
        .unwrap();
    let asked = server.post("/api/v1/nodes/gpu-01/deployments", json!({})).await;
    assert_eq!(asked.status, StatusCode::CREATED, "{asked:?}");
    assert_eq!(
        (&asked.body["image"], &asked.body["channel"]),
        (&json!(images[1].to_string()), &json!("debian-12-lab/stable"))
    );
    set(&server, "debian-12-lab@20260301T000000Z").await;
    let deployments = server.get("/api/v1/nodes/gpu-01/deployments").await.body;
    assert_eq!(deployments[0]["image"], json!(images[1].to_string()));
}

#[tokio::test]
async fn without_an_image_a_node_that_nothing_is_proposed_for_is_not_installed() {
    let server = Server::start().await;
    server.image("agent", "plumbline-agent", "20260101T000000Z").await;
    server.node("n1", MAC).await;
    let asked = server.post("/api/v1/nodes/n1/deployments", json!({})).await;
    assert_eq!(asked.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(asked.error().contains("group (default)"), "{asked:?}");
    let unknown = put(
        &server,
        "/api/v1/group-images/default",
        json!({ "image": "debian-12-lab/stable" }),
    )
    .await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND, "{unknown:?}");
}

#[tokio::test]
async fn a_removed_channel_keeps_its_history_and_nothing_else() {
    let server = Server::start().await;
    versions(&server).await;
    set(&server, "debian-12-lab").await;
    let remove = async |path: &str| server.ask(Method::DELETE, path, Some(&server.admin), None).await;
    let silent = remove(STABLE).await;
    assert!(
        silent.status == StatusCode::BAD_REQUEST && silent.error().contains("reason"),
        "{silent:?}"
    );
    assert_eq!(
        remove(&format!("{STABLE}?reason=typo")).await.status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(server.get(STABLE).await.status, StatusCode::NOT_FOUND);
    assert_eq!(
        server.get("/api/v1/images/debian-12-lab%2Fstable").await.status,
        StatusCode::NOT_FOUND
    );
    let history = server.get(&format!("{STABLE}/history")).await.body;
    assert!(
        history[0]["kind"] == "removed" && history[0]["reason"] == "typo",
        "{history}"
    );
}

async fn collect(server: &Server, dry_run: bool, keep: u32) -> Answer {
    let order = json!({ "dry_run": dry_run, "keep": keep, "grace_hours": 0 });
    server.post("/api/v1/image-collections", order).await
}

/// The versions by what became of them: month and whether it went.
fn months(collection: &Value) -> Vec<(String, bool, String)> {
    let images = collection["images"].as_array().unwrap().iter();
    let images = images.filter(|image| image["name"] == "debian-12-lab");
    images
        .map(|image| {
            let reasons = image["reasons"]
                .as_array()
                .unwrap()
                .iter()
                .map(|one| one.as_str().unwrap());
            let month = image["version"].as_str().unwrap()[4..6].to_owned();
            (month, image["removed"] == true, reasons.collect::<Vec<_>>().join(", "))
        })
        .collect()
}

#[tokio::test]
async fn garbage_goes_and_what_somebody_needs_stays_with_the_reason() {
    let server = Server::start().await;
    let (node, _) = server.installed_node("gpu-01", MAC).await;
    let images = versions(&server).await;
    for month in 5..=8 {
        let version = format!("2026{month:02}01T000000Z");
        server.image("os", "debian-12-lab", &version).await;
    }
    set(&server, "debian-12-lab@20260301T000000Z").await;
    set(&server, "debian-12-lab@20260401T000000Z").await;
    let body = json!({ "image": "debian-12-lab@20260701T000000Z" });
    put(&server, "/api/v1/group-images/night", body).await;
    let expected = [
        ("08", false, "the newest version"),
        ("07", false, "what group night is to have"),
        ("06", true, ""),
        ("05", true, ""),
        ("04", false, "named by channel debian-12-lab/stable"),
        ("03", false, "named before by channel debian-12-lab/stable"),
        ("02", true, ""),
        ("01", false, "installed on gpu-01"),
    ];
    let expected = expected.map(|(month, goes, why)| (month.to_owned(), goes, why.to_owned()));
    let young = server
        .post(
            "/api/v1/image-collections",
            json!({ "dry_run": true, "keep": 1, "grace_hours": 24 }),
        )
        .await
        .body;
    assert!(months(&young).iter().all(|(_, goes, _)| !goes), "{young}");
    let dry = collect(&server, true, 1).await;
    assert_eq!(
        (dry.status, months(&dry.body)),
        (StatusCode::OK, expected.to_vec()),
        "{dry:?}"
    );
    assert_eq!(server.app.images.list().await.unwrap().len(), 9, "only looked");
    assert!(audited(&server, "images_collected").await.is_empty());

    let done = collect(&server, false, 1).await.body;
    assert_eq!(months(&done), expected);
    let left: Vec<_> = server.get("/api/v1/images").await.body.as_array().unwrap().clone();
    assert_eq!(left.len(), 6, "five versions and the agent layer");
    assert_eq!(server.app.images.list().await.unwrap().len(), 6);
    assert_eq!(
        server.get(&format!("/api/v1/images/{}", images[1])).await.status,
        StatusCode::NOT_FOUND
    );
    let removed = audited(&server, "image_removed").await;
    assert!(
        removed.len() == 3 && removed[0].contains("garbage collection"),
        "{removed:?}"
    );
    assert_eq!(audited(&server, "images_collected").await.len(), 1);
    let deployments = server.get(&format!("/api/v1/nodes/{node}/deployments")).await.body;
    assert_eq!(deployments[0]["state"], "installed");

    // What came before the channel's image is there to go back to; nothing before that.
    assert_eq!(back(&server).await.status, StatusCode::OK);
}

#[tokio::test]
async fn an_image_of_an_open_deployment_stays_and_one_of_an_old_deployment_goes() {
    let server = Server::start().await;
    let (node, _) = server.installed_node("gpu-01", MAC).await;
    versions(&server).await;
    server
        .app
        .store
        .node_step(
            node,
            &lifecycle::Observed::FullScan {
                differences: 0,
                not_looked_at: 0,
            },
        )
        .await
        .unwrap();
    let asked = server
        .post(
            "/api/v1/nodes/gpu-01/deployments",
            json!({ "image": "debian-12-lab@20260201T000000Z" }),
        )
        .await;
    assert_eq!(asked.status, StatusCode::CREATED, "{asked:?}");
    let done = months(&collect(&server, false, 1).await.body);
    assert!(
        done.contains(&("02".to_owned(), false, "being installed on gpu-01".to_owned())),
        "{done:?}"
    );
    assert!(done.contains(&("03".to_owned(), true, String::new())), "{done:?}");

    // The deployment fails for good: the version it was for is garbage, its record stays.
    let reason = "stopped".to_owned();
    let observed = lifecycle::Observed::DeploymentFailed { reason };
    server
        .app
        .store
        .deployment_stop(node, &observed, "stopped")
        .await
        .unwrap();
    let done = months(&collect(&server, false, 1).await.body);
    assert!(done.contains(&("02".to_owned(), true, String::new())), "{done:?}");
    let gone = server.get("/api/v1/images/debian-12-lab@20260201T000000Z").await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    let deployments = server.get("/api/v1/nodes/gpu-01/deployments").await.body;
    assert_eq!(deployments.as_array().unwrap().len(), 2);

    // An image that is removed comes back when it is built or imported again.
    server.image("os", "debian-12-lab", "20260201T000000Z").await;
    let again = server.get("/api/v1/images/debian-12-lab@20260201T000000Z").await;
    assert_eq!(again.status, StatusCode::OK, "{again:?}");
}

#[tokio::test]
async fn nothing_is_collected_or_removed_while_a_build_is_at_work() {
    let server = Server::start().await;
    versions(&server).await;
    let build = Exclusive::claim(&server.app.config.data_dir).unwrap();
    let busy = collect(&server, false, 1).await;
    assert_eq!(busy.status, StatusCode::CONFLICT);
    assert!(busy.error().contains("build"), "{busy:?}");
    let path = "/api/v1/images/debian-12-lab@20260101T000000Z";
    let remove = async || server.ask(Method::DELETE, path, Some(&server.admin), None).await;
    assert_eq!(remove().await.status, StatusCode::CONFLICT);
    assert_eq!(
        collect(&server, true, 1).await.status,
        StatusCode::OK,
        "looking disturbs nobody"
    );
    assert_eq!(server.app.images.list().await.unwrap().len(), 4);
    drop(build);
    assert_eq!(remove().await.status, StatusCode::NO_CONTENT);
    assert_eq!(collect(&server, false, 1).await.status, StatusCode::OK);
    let out_of_bounds = collect(&server, true, 0).await;
    assert!(out_of_bounds.error().starts_with("keep: 0"), "{out_of_bounds:?}");
}
