//! Discovery rules, from their text to a named node.

use axum::http::{Method, StatusCode};
use protocol::NodeId;
use protocol::latest::{Inventory, LldpListening, Neighbour, Nic};
use serde_json::{Value, json};
use store::WindowPlace;
use time::{Duration, OffsetDateTime};

use super::Server;
use super::support::Answer;

const RULES: &str = "version: 1
rules:
  - rule: by-port
    match:
      switch_port: 'leaf-{rack}:Eth{unit}'
    name: gpu-{rack}-{unit:02}
    group: gpu
    image: debian-12-lab
    maximum: 1
  - rule: rest
    match:
      mac_prefix: 3c:ec:ef
    name: '{serial}'
    rack: unsorted
    maximum: 2
";

async fn apply(server: &Server, content: &str) -> Answer {
    let body = json!({ "content": content });
    server
        .ask(Method::PUT, "/api/v1/discovery/rules", Some(&server.admin), Some(&body))
        .await
}

/// A machine that nobody listed is found, and sends what it is made of.
async fn found(server: &Server, number: u8, port: Option<&str>) -> NodeId {
    let store = &server.app.store;
    let mac = format!("3c:ec:ef:00:00:{number:02x}");
    let ends = OffsetDateTime::now_utc() + Duration::minutes(5);
    let place = WindowPlace::Subnet("10.77.0.0/24".to_owned());
    let window = store.discovery_arm(&place, ends, 9, "admin").await.unwrap();
    let node = match store.node_find_by_mac(&mac).await.unwrap() {
        Some(node) => node,
        None => store.discovery_admit(window.id, &mac, "0").await.unwrap().unwrap(),
    };
    send(server, node, number, port, LldpListening::Listened { secs: 35 }).await;
    node
}

async fn send(server: &Server, node: NodeId, number: u8, port: Option<&str>, lldp: LldpListening) {
    let mut inventory = Inventory {
        lldp,
        ..Inventory::default()
    };
    inventory.nics.push(Nic {
        name: "eno1".to_owned(),
        mac: format!("3c:ec:ef:00:00:{number:02x}"),
        boot: true,
        lldp: port.map(|port| {
            let (switch, port) = port.split_once(':').unwrap();
            Neighbour {
                chassis: "00:1c:73:00:00:01".to_owned(),
                port: port.to_owned(),
                system_name: Some(switch.to_owned()),
                port_description: None,
            }
        }),
        ..Nic::default()
    });
    inventory.dmi.serial = Some(format!("S{number}"));
    let token = server
        .app
        .store
        .token_issue(node, None, "3c:ec:ef:00:00:01", "10.77.0.9")
        .await
        .unwrap();
    let ramdisk = plumbline::app::enrol::Ramdisk { node, token };
    plumbline::app::enrol::inventory(&server.app, &ramdisk, &inventory)
        .await
        .unwrap();
}

async fn node(server: &Server, id: NodeId) -> Value {
    server.get(&format!("/api/v1/nodes/{id}")).await.body
}

/// What rules were said to have done with a node.
async fn told(server: &Server, id: NodeId) -> Vec<String> {
    let events = server.get(&format!("/api/v1/nodes/{id}/events")).await.body;
    let events = events
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["kind"] == "rule");
    events
        .map(|event| event["detail"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn rules_are_kept_by_version_and_a_mistake_changes_nothing() {
    let server = Server::start().await;
    assert_eq!(
        server.get("/api/v1/discovery/rules").await.status,
        StatusCode::NOT_FOUND
    );
    let first = apply(&server, RULES).await;
    assert_eq!(
        (first.status, &first.body["version"]),
        (StatusCode::OK, &json!(1)),
        "{first:?}"
    );
    assert_eq!(
        apply(&server, RULES).await.body["version"],
        json!(1),
        "the same again is no new version"
    );
    let wrong = apply(&server, &RULES.replace("maximum: 2", "maximum: none")).await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(wrong.error().starts_with("rules:15:14: "), "{wrong:?}");
    let second = apply(&server, &RULES.replace("maximum: 2", "maximum: 3")).await;
    assert_eq!(second.body["rules"][1]["maximum"], json!(3));
    assert_eq!(
        server.get("/api/v1/discovery/rules").await.body["version"],
        second.body["version"]
    );
    let old = server.get("/api/v1/discovery/rules?version=1").await.body;
    assert_eq!(old["content"], json!(RULES));
    let audit = server.get("/api/v1/audit").await.body;
    let applied = audit
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["action"] == "discovery_rules_applied");
    assert_eq!(applied.count(), 2);
}

#[tokio::test]
async fn the_first_rule_that_fits_names_a_machine_and_a_full_one_is_passed_over() {
    let server = Server::start().await;
    apply(&server, RULES).await;
    let first = found(&server, 1, Some("leaf-r7:Eth12")).await;
    let placed = node(&server, first).await;
    assert_eq!(
        (&placed["name"], &placed["rack"], &placed["unit"]),
        (&json!("gpu-r7-12"), &json!("r7"), &json!(12))
    );
    assert_eq!(
        (&placed["group"], &placed["image_channel"]),
        (&json!("gpu"), &json!("debian-12-lab"))
    );
    assert_eq!(
        (&placed["discovery_rule"], &placed["state"]),
        (&json!("by-port"), &json!("waiting_approval"))
    );
    assert_eq!(
        told(&server, first).await,
        ["rule by-port: name gpu-r7-12, rack r7, unit 12, group gpu, image proposed debian-12-lab"]
    );

    let second = found(&server, 2, Some("leaf-r7:Eth13")).await;
    assert_eq!(node(&server, second).await["name"], "s2");
    assert_eq!(
        told(&server, second).await,
        ["rule rest: name s2, rack unsorted; full and passed over: by-port"]
    );
    let third = found(&server, 3, None).await;
    assert_eq!(node(&server, third).await["name"], "s3");
    let fourth = found(&server, 4, None).await;
    assert_eq!(node(&server, fourth).await["name"], Value::Null);
    assert_eq!(
        told(&server, fourth).await,
        ["no rule places it; full and passed over: rest"]
    );

    let shown = server.get("/api/v1/discovery/rules").await.body;
    assert_eq!(
        (&shown["rules"][0]["placed"], &shown["rules"][1]["placed"]),
        (&json!(1), &json!(2))
    );
    let gone = server
        .ask(
            Method::DELETE,
            &format!("/api/v1/nodes/{third}"),
            Some(&server.admin),
            None,
        )
        .await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    found(&server, 4, None).await;
    assert_eq!(
        node(&server, fourth).await["name"],
        "s4",
        "a node that is removed makes room"
    );
}

#[tokio::test]
async fn nothing_is_decided_before_the_switches_were_listened_to() {
    let server = Server::start().await;
    let id = found(&server, 1, None).await;
    apply(&server, RULES).await;
    send(&server, id, 1, None, LldpListening::Listening).await;
    assert_eq!(node(&server, id).await["name"], Value::Null);
    send(
        &server,
        id,
        1,
        Some("leaf-r7:Eth12"),
        LldpListening::Listened { secs: 20 },
    )
    .await;
    assert_eq!(node(&server, id).await["name"], "gpu-r7-12");
    send(
        &server,
        id,
        1,
        Some("leaf-r7:Eth14"),
        LldpListening::Listened { secs: 20 },
    )
    .await;
    assert_eq!(node(&server, id).await["name"], "gpu-r7-12", "a machine is placed once");
}

#[tokio::test]
async fn a_name_that_is_taken_changes_nothing_and_is_told() {
    let server = Server::start().await;
    apply(&server, RULES).await;
    server.node("gpu-r7-12", "52:54:00:aa:00:01").await;
    let id = found(&server, 1, Some("leaf-r7:Eth12")).await;
    let left = node(&server, id).await;
    assert_eq!(
        (&left["name"], &left["rack"], &left["discovery_rule"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    let told = told(&server, id).await;
    assert_eq!(
        told,
        ["rule by-port fits, but another node is named gpu-r7-12; nothing was changed"]
    );
}

#[tokio::test]
async fn a_machine_of_the_plan_keeps_its_name_and_is_found_in_the_wrong_place() {
    let server = Server::start().await;
    apply(&server, RULES).await;
    let plan = "rack,unit,serial,name\nr7,30,S1,planned-1\n";
    server.post("/api/v1/rack-plan", json!({ "csv": plan })).await;
    let id = found(&server, 1, Some("leaf-r7:Eth12")).await;
    let shown = node(&server, id).await;
    assert_eq!(
        (&shown["name"], &shown["unit"], &shown["discovery_rule"]),
        (&json!("planned-1"), &json!(12), &Value::Null)
    );
    assert_eq!(shown["mismatches"][0]["kind"], "wrong_slot", "{shown}");
    assert_eq!(told(&server, id).await, ["found in rack r7 unit 12 by rule by-port"]);
}
