//! What is said of a node's drift, from reports.

use drift::{Attributes, Difference, FindingKind, Observation, Severity};
use protocol::latest::{Baseline, DriftReport, NotLookedAt};
use serde_json::{Value, json};

use super::Server;
use super::support::report;

pub fn changed_file(path: &str) -> Difference {
    Difference {
        kind: FindingKind::File,
        key: path.to_owned(),
        expected: Some(Attributes::from_pairs([("mode", "0644")])),
        actual: Some(Attributes::from_pairs([("mode", "0666")])),
    }
}

pub async fn store_report(server: &Server, baseline: &Baseline, report: &DriftReport) -> Value {
    let store = &server.app.store;
    let stored = store
        .report_store(baseline.node_id, report, |_| Severity::High)
        .await
        .unwrap();
    assert!(matches!(stored, store::ReportStored::Stored { .. }), "{stored:?}");
    let drift = server.get(&format!("/api/v1/nodes/{}/drift", baseline.node_id)).await;
    let node = server.get(&format!("/api/v1/nodes/{}", baseline.node_id)).await;
    assert_eq!(
        node.body["drift"], drift.body["verdict"],
        "the list says what the page says"
    );
    drift.body
}

#[tokio::test]
async fn the_verdict_follows_the_newest_report() {
    let server = Server::start().await;
    let (node, baseline) = server.installed_node("n1", "52:54:00:aa:00:01").await;
    let before = server.get("/api/v1/nodes/n1/drift").await;
    assert_eq!(
        (&before.body["verdict"], &before.body["report"]),
        (&json!("unknown"), &Value::Null)
    );

    let mut broken_off = report(&baseline, 1, Vec::new());
    broken_off.scan.complete = false;
    let drift = store_report(&server, &baseline, &broken_off).await;
    assert_eq!(drift["verdict"], "unknown", "{drift}");

    let drift = store_report(&server, &baseline, &report(&baseline, 2, Vec::new())).await;
    assert_eq!(
        (&drift["verdict"], &drift["findings"]),
        (&json!("clean"), &json!([])),
        "{drift}"
    );

    let mut gaps = report(&baseline, 3, Vec::new());
    gaps.not_looked_at.push(NotLookedAt {
        kind: "file".to_owned(),
        key: "/etc/shadow".to_owned(),
        observation: Observation::Denied,
    });
    gaps.scan.not_looked_at_count = 1;
    let drift = store_report(&server, &baseline, &gaps).await;
    assert_eq!(drift["verdict"], "incomplete", "{drift}");
    assert_eq!(drift["report"]["not_looked_at"][0]["key"], "/etc/shadow");

    let mut broken_off = report(&baseline, 4, Vec::new());
    broken_off.scan.complete = false;
    let drift = store_report(&server, &baseline, &broken_off).await;
    assert_eq!(drift["verdict"], "incomplete", "{drift}");

    let differs = report(&baseline, 5, vec![changed_file("/etc/motd")]);
    let drift = store_report(&server, &baseline, &differs).await;
    assert_eq!(
        (&drift["verdict"], &drift["name"]),
        (&json!("drift"), &json!("n1")),
        "{drift}"
    );
    assert_eq!(drift["node"], json!(node));
    assert_eq!(drift["findings"][0]["key"], "/etc/motd");
    assert_eq!(drift["findings"][0]["actual"]["mode"], "0666");
}

#[tokio::test]
async fn the_same_thing_on_two_nodes_is_one_group() {
    let server = Server::start().await;
    for (name, mac) in [("n1", "52:54:00:aa:00:01"), ("n2", "52:54:00:aa:00:02")] {
        let (_, baseline) = server.installed_node(name, mac).await;
        let mut differences = vec![changed_file("/etc/motd")];
        if name == "n2" {
            differences.push(changed_file("/etc/issue"));
        }
        store_report(&server, &baseline, &report(&baseline, 1, differences)).await;
    }
    let groups = server.get("/api/v1/drift").await;
    let groups = groups.body.as_array().unwrap();
    assert_eq!(groups.len(), 2);
    assert_eq!(
        (&groups[0]["key"], &groups[0]["nodes"]),
        (&json!("/etc/motd"), &json!(2))
    );
    let path = format!("/api/v1/drift/{}", groups[0]["group"].as_str().unwrap());
    let variants = server.get(&path).await;
    assert_eq!(variants.body.as_array().unwrap().len(), 1);
    assert_eq!(variants.body[0]["nodes"], json!(["n1", "n2"]));
    let none = server.get("/api/v1/drift/abc").await;
    assert!(none.error().contains("group"), "{none:?}");
}

#[tokio::test]
async fn a_text_is_kept_for_the_node_whose_finding_names_it() {
    use plumbline::app::contents;
    let server = Server::start().await;
    let (_, one) = server.installed_node("n1", "52:54:00:aa:00:01").await;
    let (_, two) = server.installed_node("n2", "52:54:00:aa:00:02").await;
    let text = b"Welcome.\n";
    let digest = manifest::Digest::of(text);
    let mut added = changed_file("/etc/motd.tail");
    added.expected = None;
    added.actual = Some(Attributes::from_pairs([
        ("digest", digest.to_string()),
        ("size", text.len().to_string()),
        ("type", "file".to_owned()),
    ]));
    store_report(&server, &one, &report(&one, 1, vec![added.clone()])).await;
    let wanted = contents::wanted(&server.app, [&added]).await.unwrap();
    assert_eq!(wanted, ["/etc/motd.tail"]);
    for (node, content, words) in [
        (one.node_id, b"Another.\n".as_slice(), "has digest"),
        (two.node_id, text.as_slice(), "no finding of this node"),
    ] {
        let refused = contents::keep(&server.app, node, digest, content).await.unwrap_err();
        assert!(refused.to_string().contains(words), "{refused}");
    }
    let path = format!("/api/v1/drift/{}/{}/diff", added.group(), added.variant());
    let before = server.get(&path).await;
    assert!(
        before.body["reason"].as_str().unwrap().contains("not yet"),
        "{before:?}"
    );
    contents::keep(&server.app, one.node_id, digest, text).await.unwrap();
    assert_eq!(contents::wanted(&server.app, [&added]).await.unwrap(), [""; 0]);
    let after = server.get(&path).await;
    assert!(
        after.body["unified"].as_str().unwrap().contains("+Welcome."),
        "{after:?}"
    );
}

fn heartbeat(boot: u128, unix_ms: u64) -> protocol::latest::Heartbeat {
    protocol::latest::Heartbeat {
        boot_id: uuid::Uuid::from_u128(boot),
        sequence: 1,
        baseline: None,
        state: None,
        agent_version: "0".to_owned(),
        uptime_secs: 60,
        rss_max_bytes: 1,
        unix_ms,
        restart: None,
        refused: None,
    }
}

async fn events(server: &Server, kind: &str) -> Vec<String> {
    let events = server.get("/api/v1/nodes/n1/events").await;
    let events = events.body.as_array().unwrap();
    let of_kind = events.iter().filter(|event| event["kind"] == kind);
    of_kind
        .map(|event| event["detail"].as_str().unwrap().to_owned())
        .collect()
}

/// fleetdm/fleet#102: two machines with one identity are flagged, taken out of service, and never called clean.
#[tokio::test]
async fn fleet_102_a_clone_is_taken_out_of_service() {
    let server = Server::start().await;
    let (node, baseline) = server.installed_node("n1", "52:54:00:aa:00:01").await;
    let speak = async |boot: u128| {
        let heartbeat = heartbeat(boot, 0);
        plumbline::app::agents::heartbeat(&server.app, node, &heartbeat)
            .await
            .unwrap()
    };
    let says = async |boot: u128| {
        let mut report = report(&baseline, 1, Vec::new());
        report.boot_id = uuid::Uuid::from_u128(boot);
        store_report(&server, &baseline, &report).await;
    };
    says(1).await;
    speak(1).await;
    says(2).await;
    speak(2).await;
    let drift = server.get("/api/v1/nodes/n1/drift").await;
    assert_eq!(drift.body["verdict"], "clean", "a restart is none: {drift:?}");
    for _ in 0..3 {
        let reply = speak(1).await;
        assert!(!reply.job_waiting && !reply.full_report);
        speak(2).await;
    }
    let drift = server.get("/api/v1/nodes/n1/drift").await;
    assert_eq!(drift.body["verdict"], "unknown", "{drift:?}");
    let reason = drift.body["reason"].as_str().unwrap();
    assert!(reason.starts_with("two machines have this node's identity"), "{reason}");
    assert_eq!(events(&server, "clone").await, [reason], "told once");
    let record = server.get("/api/v1/nodes/n1").await;
    assert_eq!(record.body["hold"]["by"], "(server)", "{record:?}");
}

/// wazuh/wazuh#38439: a node whose clock is wrong is answered like any other, with the server's time, and it is said.
#[tokio::test]
async fn wazuh_38439_a_wrong_clock_is_answered_and_told() {
    let server = Server::start().await;
    let (node, baseline) = server.installed_node("n1", "52:54:00:aa:00:01").await;
    let now = u64::try_from(time::OffsetDateTime::now_utc().unix_timestamp() * 1_000).unwrap();
    for (boot, clock, words) in [
        (1, now + 2 * 3_600_000 + 60_000, "2 h ahead of"),
        (2, now - 2 * 365 * 86_400_000, "730 days behind"),
    ] {
        let heartbeat = heartbeat(boot, clock);
        let reply = plumbline::app::agents::heartbeat(&server.app, node, &heartbeat)
            .await
            .unwrap();
        assert!(reply.unix_ms.abs_diff(now) < 60_000, "the server's own time");
        let told = events(&server, "clock").await;
        assert!(told.last().unwrap().contains(words), "{told:?}");
    }
    let mut late = report(&baseline, 1, Vec::new());
    late.scan.started_unix_ms = 5;
    let drift = store_report(&server, &baseline, &late).await;
    assert_eq!(
        drift["verdict"], "clean",
        "order and receipt are not by the node's clock: {drift}"
    );
}
