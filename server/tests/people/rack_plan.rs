//! The rack plan, and what of it is real.

use axum::http::StatusCode;
use protocol::NodeId;
use protocol::latest::{Inventory, Neighbour, Nic};
use serde_json::{Value, json};
use store::{Store, WindowPlace};
use time::{Duration, OffsetDateTime};

use super::Server;

const PLAN: &str = "rack,unit,serial,mac,bmc_address,name,group\n\
    r1,30,S1,3c:ec:ef:00:00:01,10.9.0.1,gpu-1,gpu\n\
    r1,28,S2,,10.9.0.2,gpu-2,gpu\n\
    r1,26,,,,gpu-3,\n";

async fn import(server: &Server, csv: &str, dry_run: bool) -> super::support::Answer {
    server
        .post("/api/v1/rack-plan", json!({ "csv": csv, "dry_run": dry_run }))
        .await
}

async fn node(server: &Server, name: &str) -> Value {
    server.get(&format!("/api/v1/nodes/{name}")).await.body
}

fn nic(name: &str, mac: &str, is_boot: bool) -> Nic {
    Nic {
        name: name.to_owned(),
        mac: mac.to_owned(),
        driver: Some("mlx5_core".to_owned()),
        boot: is_boot,
        ..Nic::default()
    }
}

fn machine(serial: &str, nics: Vec<Nic>) -> Inventory {
    let mut inventory = Inventory {
        nics,
        ..Inventory::default()
    };
    inventory.dmi.serial = Some(serial.to_owned());
    inventory
}

/// A machine that nobody knew asks, and is answered.
async fn discovered(store: &Store, mac: &str) -> NodeId {
    let ends = OffsetDateTime::now_utc() + Duration::minutes(5);
    let place = WindowPlace::Subnet("10.77.0.0/24".to_owned());
    let window = store.discovery_arm(&place, ends, 9, "admin").await.unwrap();
    store.discovery_admit(window.id, mac, "0").await.unwrap().unwrap()
}

async fn take(server: &Server, node: NodeId, inventory: &Inventory) {
    let ramdisk = plumbline::app::enrol::Ramdisk {
        node,
        token: uuid::Uuid::nil(),
    };
    plumbline::app::enrol::inventory(&server.app, &ramdisk, inventory)
        .await
        .unwrap();
}

fn kinds(node: &Value) -> Vec<&str> {
    let found = node["mismatches"].as_array().unwrap().iter();
    found.map(|one| one["kind"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_plan_comes_in_goes_out_and_comes_in_again_unchanged() {
    let server = Server::start().await;
    let tried = import(&server, PLAN, true).await;
    assert_eq!(tried.status, StatusCode::OK, "{tried:?}");
    assert_eq!(
        (&tried.body["added"], &tried.body["dry_run"]),
        (&json!(3), &json!(true))
    );
    assert_eq!(server.get("/api/v1/nodes").await.body, json!([]), "it was only asked");

    let done = import(&server, PLAN, false).await;
    assert_eq!(
        (&done.body["added"], &done.body["lines"][2]["line"]),
        (&json!(3), &json!(4))
    );
    for name in ["gpu-1", "gpu-2", "gpu-3"] {
        let node = node(&server, name).await;
        assert_eq!(
            (&node["state"], &node["rack"]),
            (&json!("listed"), &json!("r1")),
            "{node}"
        );
    }
    assert_eq!(node(&server, "gpu-1").await["macs"], json!(["3c:ec:ef:00:00:01"]));
    assert_eq!(node(&server, "3c:ec:ef:00:00:01").await["name"], "gpu-1");

    let lines = server.get("/api/v1/rack-plan").await.body;
    let lines: Vec<plumbline::app::rack_plan::PlanLineView> = serde_json::from_value(lines).unwrap();
    let text = plumbline::app::rack_plan::export(&lines).unwrap();
    assert_eq!(text, PLAN.replace("gpu-3,\n", "gpu-3,default\n"));
    let again = import(&server, &text, false).await.body;
    assert_eq!((&again["unchanged"], &again["not_in_file"]), (&json!(3), &json!(0)));
    let audit = server.get("/api/v1/audit").await.body;
    let imports = audit
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["action"] == "rack_plan_imported");
    let details: Vec<&str> = imports.map(|one| one["detail"].as_str().unwrap()).collect();
    assert_eq!(
        details,
        ["3 added, 0 changed: gpu-1, gpu-2, gpu-3"],
        "what changes nothing is nobody's decision"
    );
}

#[tokio::test]
async fn one_wrong_line_leaves_the_plan_as_it_was() {
    let server = Server::start().await;
    let wrong = format!("{PLAN}r1,24,S4,3c:ec:ef:00:00,,gpu-4,\nr1,28,S5,,,gpu-5,\n");
    let refused = import(&server, &wrong, false).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refused.error().starts_with("line 5, column 4 (mac): "), "{refused:?}");
    let twice = format!("{PLAN}r1,28,S5,,,gpu-5,\n");
    let refused = import(&server, &twice, false).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        refused
            .error()
            .starts_with("line 5, column 1 (rack): the place r1 unit 28 belongs to gpu-2"),
        "{refused:?}"
    );
    assert_eq!(server.get("/api/v1/nodes").await.body, json!([]));
}

#[tokio::test]
async fn nodes_exchange_what_is_unique_in_one_import() {
    let server = Server::start().await;
    import(
        &server,
        "name,mac,rack,unit\na,3c:ec:ef:00:00:01,r1,1\nb,3c:ec:ef:00:00:02,r1,2\n",
        false,
    )
    .await;
    let done = import(
        &server,
        "name,mac,rack,unit\na,3c:ec:ef:00:00:02,r1,2\nb,3c:ec:ef:00:00:01,r1,1\n",
        false,
    )
    .await;
    assert_eq!(done.body["changed"], json!(2), "{done:?}");
    assert_eq!(node(&server, "3c:ec:ef:00:00:01").await["name"], "b");
    assert_eq!(
        node(&server, "a").await["unit"],
        json!(2),
        "where it was only planned, the plan says where it is"
    );
    assert_eq!(node(&server, "a").await["macs"], json!(["3c:ec:ef:00:00:02"]));
}

#[tokio::test]
async fn a_machine_that_asks_becomes_its_line_of_the_plan_by_its_serial() {
    let server = Server::start().await;
    import(&server, PLAN, false).await;
    let found = discovered(&server.app.store, "3c:ec:ef:00:00:12").await;
    take(
        &server,
        found,
        &machine("S2", vec![nic("eno1", "3c:ec:ef:00:00:12", true)]),
    )
    .await;
    let node = node(&server, "gpu-2").await;
    assert_eq!(
        (&node["id"], &node["state"]),
        (&json!(found), &json!("waiting_approval"))
    );
    assert_eq!(
        (&node["rack"], &node["unit"], &node["group"]),
        (&json!("r1"), &json!(28), &json!("gpu"))
    );
    assert_eq!(node["plan"]["serial"], "S2");
    assert_eq!(node["mismatches"], json!([]));
    assert_eq!(
        server.get("/api/v1/nodes").await.body.as_array().unwrap().len(),
        3,
        "the empty record is gone"
    );
    let events = server.get("/api/v1/nodes/gpu-2/events").await.body;
    let events: Vec<&str> = events
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["kind"].as_str().unwrap())
        .collect();
    assert_eq!(events, ["planned", "inventory", "identified"]);
}

/// What people said of a line before anything was seen of its machine holds for the machine.
#[tokio::test]
async fn what_was_said_of_a_line_holds_for_the_machine_that_is_it() {
    let server = Server::start().await;
    import(&server, PLAN, false).await;
    let store = &server.app.store;
    let planned = store.node_find("gpu-2").await.unwrap();
    store
        .fixed_address_set(planned, Some("10.77.0.50"), "admin")
        .await
        .unwrap();
    store.node_hold(planned, Some("on loan"), "admin").await.unwrap();
    let change = store::NodeChange {
        chain: Some(lifecycle::Chain::Grub),
        ..Default::default()
    };
    store.node_change(planned, &change, "admin").await.unwrap();
    let order = store::NewBootOrder {
        tests: None,
        kind: lifecycle::BootOrder::Commission,
        reason: "a look before anything else",
        ordered_by: "admin",
        authorized_key: None,
    };
    store.boot_order_set(planned, &order).await.unwrap();
    let found = discovered(store, "3c:ec:ef:00:00:12").await;
    let nics = vec![nic("eno1", "3c:ec:ef:00:00:12", true)];
    take(&server, found, &machine("S2", nics)).await;
    let node = node(&server, "gpu-2").await;
    assert_eq!(
        (
            &node["id"],
            &node["fixed_address"],
            &node["chain"],
            &node["hold"]["reason"]
        ),
        (&json!(found), &json!("10.77.0.50"), &json!("grub"), &json!("on loan"))
    );
    let boot = server.get("/api/v1/nodes/gpu-2/boot").await.body;
    assert_eq!(boot["order"]["kind"], "commission");
}

/// The second interface of a machine asks too while discovery is armed: one machine, one node, whichever it boots from.
#[tokio::test]
async fn all_interfaces_of_a_machine_are_one_node_and_the_boot_interface_is_the_one_that_booted() {
    let server = Server::start().await;
    let macs = ["3c:ec:ef:00:00:01", "3c:ec:ef:00:00:02", "3c:ec:ef:00:00:03"];
    let first = discovered(&server.app.store, macs[0]).await;
    let second = discovered(&server.app.store, macs[1]).await;
    let nics = |boot: usize| -> Vec<Nic> {
        let named = macs.iter().enumerate();
        named
            .map(|(at, mac)| nic(&format!("eno{}", at + 1), mac, at == boot))
            .collect()
    };
    take(&server, second, &machine("S1", nics(1))).await;
    for mac in macs {
        assert_eq!(node(&server, mac).await["id"], json!(second), "{mac}");
    }
    let gone = server.get(&format!("/api/v1/nodes/{first}")).await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    // The next boot comes through another interface: the same node, and that interface is the one it booted from.
    let booted = server.app.store.node_find_by_mac(macs[2]).await.unwrap().unwrap();
    take(&server, booted, &machine("S1", nics(2))).await;
    let node = node(&server, macs[0]).await;
    let boot: Vec<&Value> = node["inventory"]["nics"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|nic| nic["boot"] == true)
        .collect();
    assert_eq!((boot.len(), &boot[0]["mac"]), (1, &json!(macs[2])));
    assert_eq!(server.get("/api/v1/nodes").await.body.as_array().unwrap().len(), 1);
    assert_eq!(node["mismatches"], json!([]));
}

#[tokio::test]
async fn a_bmcs_usb_interface_neither_merges_nodes_nor_counts_against_them() {
    let server = Server::start().await;
    let mut nodes = Vec::new();
    for number in 1..=3 {
        let mac = format!("3c:ec:ef:00:00:0{number}");
        let node = discovered(&server.app.store, &mac).await;
        let usb = Nic {
            driver: Some("cdc_ether".to_owned()),
            ..nic("usb0", "be:3a:f2:b6:05:9f", false)
        };
        take(
            &server,
            node,
            &machine(&format!("S{number}"), vec![nic("eno1", &mac, true), usb]),
        )
        .await;
        nodes.push(node);
    }
    assert_eq!(server.get("/api/v1/nodes").await.body.as_array().unwrap().len(), 3);
    for id in nodes {
        let node = node(&server, &id.to_string()).await;
        assert_eq!(kinds(&node), ["shared_mac"]);
        assert_eq!(
            node["macs"].as_array().unwrap().len(),
            1,
            "it is no name of the machine"
        );
        let events = server.get(&format!("/api/v1/nodes/{id}/events")).await.body;
        assert!(!events.to_string().contains("identity_conflict"), "{events}");
    }
}

#[tokio::test]
async fn what_does_not_fit_the_plan_is_told_of_the_node() {
    let server = Server::start().await;
    let plan = "rack,unit,serial,mac,name,switch_port\n\
        r1,1,S1,3c:ec:ef:00:00:01,gpu-1,leaf1:Eth1\n\
        r1,2,S2,3c:ec:ef:00:00:02,gpu-2,leaf1:Eth2\n";
    import(&server, plan, false).await;
    let id = |name: &str| {
        let server = &server;
        let name = name.to_owned();
        async move {
            node(server, &name).await["id"]
                .as_str()
                .unwrap()
                .parse::<NodeId>()
                .unwrap()
        }
    };
    let heard = |port: &str| {
        let mut nic = nic("eno1", "3c:ec:ef:00:00:01", true);
        nic.lldp = Some(Neighbour {
            chassis: "00:1c:73:00:00:01".to_owned(),
            port: port.to_owned(),
            system_name: Some("leaf1".to_owned()),
            port_description: None,
        });
        nic
    };
    let gpu_1 = id("gpu-1").await;
    take(&server, gpu_1, &machine("S1", vec![heard("Eth1")])).await;
    assert_eq!(kinds(&node(&server, "gpu-1").await), [""; 0]);
    take(&server, gpu_1, &machine("S1", vec![heard("Eth2")])).await;
    let swapped = node(&server, "gpu-1").await;
    assert_eq!(kinds(&swapped), ["swapped_cables"]);
    let detail = swapped["mismatches"][0]["detail"].as_str().unwrap();
    assert!(detail.contains("leaf1:Eth2, the port of gpu-2"), "{detail}");
    take(&server, gpu_1, &machine("S2", vec![heard("Eth1")])).await;
    assert_eq!(kinds(&node(&server, "gpu-1").await), ["wrong_serial", "mac_twice"]);
    take(&server, gpu_1, &machine("S1", vec![heard("Eth1")])).await;

    let body = json!({ "rack": "r1", "unit": 2 });
    let path = "/api/v1/nodes/gpu-1";
    let moved = server
        .ask(axum::http::Method::PATCH, path, Some(&server.admin), Some(&body))
        .await;
    assert_eq!(kinds(&moved.body), ["wrong_slot"], "{moved:?}");
    let listed = server.get("/api/v1/nodes").await.body;
    let of_gpu_1 = listed
        .as_array()
        .unwrap()
        .iter()
        .find(|node| node["name"] == "gpu-1")
        .unwrap();
    assert_eq!(kinds(of_gpu_1), ["wrong_slot"], "the list says the same");
}
