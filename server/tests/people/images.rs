//! Image versions, and what is different between them.

use axum::http::StatusCode;
use manifest::{Header, ManifestKind, Package};

use super::Server;

fn header(version: &str, bash: &str) -> Header {
    let mut header = Header::new(ManifestKind::Os, "debian-12-lab", version);
    header.packages = vec![Package {
        name: "bash".to_owned(),
        architecture: "amd64".to_owned(),
        version: bash.to_owned(),
    }];
    header
}

async fn two_versions(server: &Server) {
    let old = [
        ("/etc/motd", 0o644, "welcome\nto the old\n"),
        ("/etc/gone", 0o644, "x"),
        ("/etc/shadow", 0o640, "root:old:1::::::\n"),
        ("/usr/bin/tool", 0o755, "\u{0}old"),
    ];
    let new = [
        ("/etc/motd", 0o644, "welcome\nto the new\n"),
        ("/etc/added", 0o644, "welcome\nto the new\n"),
        ("/etc/shadow", 0o640, "root:new:1::::::\n"),
        ("/usr/bin/tool", 0o755, "\u{0}new"),
    ];
    server.image_of(header("20260101T000000Z", "5.1"), &old).await;
    server.image_of(header("20260201T000000Z", "5.2"), &new).await;
}

const DIFF: &str = "/api/v1/images/debian-12-lab@20260101T000000Z/diff/debian-12-lab";

#[tokio::test]
async fn two_versions_are_compared_by_facts_paths_and_text() {
    let server = Server::start().await;
    two_versions(&server).await;
    let diff = server.get(DIFF).await.body;
    assert_eq!(diff["now"]["version"], "20260201T000000Z", "the one that came last");
    let facts = diff["facts"].as_array().unwrap();
    assert_eq!(facts.len(), 1, "{diff}");
    assert!(facts[0]["name"] == "bash:amd64" && facts[0]["before"] == "5.1" && facts[0]["now"] == "5.2");
    let paths: Vec<_> = diff["paths"]
        .as_array()
        .unwrap()
        .iter()
        .map(|path| path["path"].as_str().unwrap())
        .collect();
    assert_eq!(
        paths,
        ["/etc/added", "/etc/gone", "/etc/motd", "/etc/shadow", "/usr/bin/tool"]
    );
    assert_eq!(
        [&diff["paths_added"], &diff["paths_removed"], &diff["paths_changed"]],
        [1, 1, 3]
    );
    // The two texts of the new one are one content.
    assert_eq!(diff["bytes_new"], 19 + 17 + 4);

    let text = async |path: &str| server.get(&format!("{DIFF}/text?path={path}")).await;
    let motd = text("/etc/motd").await.body;
    assert!(
        motd["unified"].as_str().unwrap().contains("-to the old\n+to the new\n"),
        "{motd}"
    );
    let gone = text("/etc/gone").await.body;
    assert!(gone["unified"].as_str().unwrap().contains("\n-x"), "{gone}");
    let shadow = text("/etc/shadow").await.body;
    assert!(
        shadow["unified"].is_null() && shadow["reason"].as_str().unwrap().contains("secret"),
        "{shadow}"
    );
    assert!(
        diff["paths"][2]["now"]["digest"].is_string() && diff["paths"][3]["now"]["digest"].is_null(),
        "{diff}"
    );
    let tool = text("/usr/bin/tool").await.body;
    assert!(tool["reason"].as_str().unwrap().contains("no text"), "{tool}");
    assert_eq!(text("/etc/nothing").await.status, StatusCode::NOT_FOUND);
    assert_eq!(text("etc/motd").await.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn only_images_of_one_kind_are_compared() {
    let server = Server::start().await;
    two_versions(&server).await;
    server.image("deployer", "deployer", "20260101T000000Z").await;
    let answer = server.get("/api/v1/images/debian-12-lab/diff/deployer").await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(answer.error().contains("expected two of one kind"), "{answer:?}");
    let gone = server.get("/api/v1/images/debian-12-lab/diff/nothing").await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_image_tells_what_it_is_made_of_and_who_is_to_be_like_it() {
    let server = Server::start().await;
    server.image_of(header("20260101T000000Z", "5.1"), &[]).await;
    let facts = server.get("/api/v1/images/debian-12-lab/facts").await.body;
    assert_eq!(facts["packages"][0]["name"], "bash");
    assert_eq!(facts["packages"][0]["version"], "5.1");
    assert!(
        facts["kernel"].is_null() && facts["nodes"] == serde_json::json!([]),
        "{facts}"
    );
    let gone = server.get("/api/v1/images/nothing/facts").await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);

    // The node's own image, and its agent layer.
    let server = Server::start().await;
    let (node, baseline) = server.installed_node("gpu-01", "52:54:00:aa:00:01").await;
    for image in [baseline.image, baseline.agent_layer] {
        let facts = server.get(&format!("/api/v1/images/{image}/facts")).await.body;
        assert_eq!(facts["nodes"], serde_json::json!([{ "id": node, "name": "gpu-01" }]));
    }
}
