//! What people order a node to boot, once, and restarts by its agent.

use axum::http::StatusCode;
use lifecycle::BootOrder;
use plumbline::app::boot_orders::{self, Wanted};
use plumbline::app::enrol::{self, Ramdisk};
use protocol::NodeId;
use protocol::latest::{HeartbeatReply, RescueUp, RestartAnswer, Task};
use std::time::Duration;

use super::support::{Listener, deployer_register};

const MAC: &str = "52:54:00:aa:00:01";
const SCRIPT: &str = "/boot/v1/script?mac=52:54:00:aa:00:01";
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFvS1Wf3GfPvx0cZ8gjzKkFvUNDhLBuYxAB5b1lNMCcT";

async fn site() -> (Listener, NodeId) {
    let listener = Listener::start(&[("snponly.efi", b"loader")], "").await;
    let machine_id = uuid::Uuid::new_v4().simple().to_string();
    let node = listener
        .app
        .store
        .node_create("gpu-001", MAC, &machine_id)
        .await
        .unwrap();
    deployer_register(&listener.app.store).await;
    (listener, node)
}

fn wanted(kind: BootOrder) -> Wanted {
    Wanted {
        kind,
        reason: "looking at its disk".to_owned(),
        tests: None,
        authorized_key: (kind == BootOrder::Rescue).then(|| format!("{KEY} somebody")),
    }
}

/// The script, and the token in it.
async fn script(listener: &Listener) -> (String, Option<uuid::Uuid>) {
    let answer = listener.get(SCRIPT, None).await;
    assert_eq!(answer.status, StatusCode::OK);
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    let token = text
        .split("plumbline.token=")
        .nth(1)
        .and_then(|rest| rest.split('.').next());
    let token = token.map(|id| id.parse().unwrap());
    (text, token)
}

async fn task(listener: &Listener, node: NodeId, token: uuid::Uuid) -> Task {
    enrol::task(&listener.app, &Ramdisk { node, token }, Duration::ZERO)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_rescue_system_is_for_one_key_and_one_boot() {
    let (listener, node) = site().await;
    let app = &listener.app;
    let keyless = Wanted {
        authorized_key: None,
        ..wanted(BootOrder::Rescue)
    };
    let refused = boot_orders::order(app, node, &keyless, "admin").await.unwrap_err();
    assert!(refused.to_string().contains("authorized_key"), "{refused}");
    boot_orders::order(app, node, &wanted(BootOrder::Rescue), "admin")
        .await
        .unwrap();

    let (text, token) = script(&listener).await;
    assert!(text.contains("rescue: looking at its disk (admin)"), "{text}");
    let token = token.unwrap();
    assert!(app.store.token_claim(token, b"a key").await.unwrap());
    let Task::Rescue { authorized_key, reason } = task(&listener, node, token).await else {
        panic!("no rescue system");
    };
    assert_eq!(authorized_key, KEY, "the comment is nobody's business");
    assert!(
        reason.contains("admin") && reason.contains("looking at its disk"),
        "{reason}"
    );
    let up = RescueUp {
        ssh_host_key: KEY.to_owned(),
    };
    let ramdisk = Ramdisk { node, token };
    boot_orders::rescue_up(app, &ramdisk, "10.77.0.100", &up).await.unwrap();
    let order = boot_orders::show(app, node).await.unwrap().order.unwrap();
    assert_eq!(
        (order.address.as_deref(), order.ssh_host_key.as_deref()),
        (Some("10.77.0.100"), Some(KEY))
    );
    // Another boot of the machine, as a thief of its token would be one, gets nothing.
    let other = Ramdisk {
        node,
        token: uuid::Uuid::new_v4(),
    };
    assert!(matches!(
        enrol::task(app, &other, Duration::ZERO).await.unwrap(),
        Task::Wait { .. }
    ));
    assert!(boot_orders::rescue_up(app, &other, "10.77.0.66", &up).await.is_err());

    // It restarts, for whatever reason: an ordinary boot again.
    let (text, _) = script(&listener).await;
    assert!(text.contains("taking inventory"), "{text}");
    assert!(boot_orders::show(app, node).await.unwrap().order.is_none());
    assert!(boot_orders::rescue_up(app, &ramdisk, "10.77.0.100", &up).await.is_err());
}

#[tokio::test]
async fn a_machine_that_waits_in_the_deployer_takes_an_order_up_at_once_and_lets_go_when_it_is_lifted() {
    let (listener, node) = site().await;
    let app = &listener.app;
    let token = script(&listener).await.1.unwrap();
    assert!(app.store.token_claim(token, b"a key").await.unwrap());
    assert!(matches!(task(&listener, node, token).await, Task::Wait { .. }));
    boot_orders::order(app, node, &wanted(BootOrder::Rescue), "admin")
        .await
        .unwrap();
    assert!(matches!(task(&listener, node, token).await, Task::Rescue { .. }));
    boot_orders::lift(app, node, "admin").await.unwrap();
    assert!(matches!(task(&listener, node, token).await, Task::Wait { .. }));
    boot_orders::order(app, node, &wanted(BootOrder::Commission), "admin")
        .await
        .unwrap();
    let Task::BurnIn(burn_in) = task(&listener, node, token).await else {
        panic!("no burn-in");
    };
    assert_eq!(burn_in.tests.len(), 5, "all tests, where the site says nothing");
    let inventory_only = Wanted {
        tests: Some(Vec::new()),
        ..wanted(BootOrder::Commission)
    };
    boot_orders::order(app, node, &inventory_only, "admin").await.unwrap();
    let Task::Wait { reason } = task(&listener, node, token).await else {
        panic!("in memory only, it waits");
    };
    assert!(reason.contains("commission"), "{reason}");
}

#[tokio::test]
async fn a_held_machine_is_told_why_and_asks_again_until_the_order_is_lifted() {
    let (listener, node) = site().await;
    boot_orders::order(&listener.app, node, &wanted(BootOrder::Hold), "admin")
        .await
        .unwrap();
    for _ in 0..2 {
        let (text, token) = script(&listener).await;
        assert!(
            text.contains("holds this machine: looking at its disk (admin)"),
            "{text}"
        );
        assert!(
            text.contains(&format!("chain --replace --autofree http://127.0.0.1:8081{SCRIPT}")),
            "{text}"
        );
        assert_eq!(token, None);
    }
    boot_orders::lift(&listener.app, node, "admin").await.unwrap();
    assert!(script(&listener).await.0.contains("taking inventory"));
}

fn reply() -> HeartbeatReply {
    HeartbeatReply {
        baseline: manifest::Digest::of(b"baseline"),
        next_secs: 30,
        full_report: false,
        scan_now: false,
        job_waiting: false,
        restart: None,
        trust: None,
        unix_ms: 0,
    }
}

#[tokio::test]
async fn a_restart_is_told_until_the_agent_answers_and_forgotten_when_the_node_comes_to_the_network() {
    let (listener, node) = site().await;
    let app = &listener.app;
    let unheard = boot_orders::restart(app, node, "admin").await.unwrap_err();
    assert!(unheard.to_string().contains("never heard"), "{unheard}");
    script(&listener).await;
    app.store.restart_order(node, "admin").await.unwrap();
    let mut told = reply();
    boot_orders::at_heartbeat(app, node, None, &mut told).await.unwrap();
    let order = told.restart.unwrap();
    assert_eq!(order.boot_mac.as_deref(), Some(MAC), "the interface it booted from");
    let answer = RestartAnswer {
        id: order.id,
        will_restart: true,
        detail: "restarting into Boot0002, UEFI PXEv4".to_owned(),
    };
    for _ in 0..2 {
        let mut told = reply();
        boot_orders::at_heartbeat(app, node, Some(&answer), &mut told)
            .await
            .unwrap();
        assert_eq!(told.restart, None);
    }
    let shown = boot_orders::show(app, node).await.unwrap().restart.unwrap();
    assert_eq!(shown.answer.as_deref(), Some("restarting into Boot0002, UEFI PXEv4"));
    let mut told = reply();
    boot_orders::at_heartbeat(app, node, None, &mut told).await.unwrap();
    assert_eq!(told.restart, None, "an order is told until it is answered");
    // Ordered again: the agent still repeats what came of the first.
    app.store.restart_order(node, "admin").await.unwrap();
    let mut told = reply();
    boot_orders::at_heartbeat(app, node, Some(&answer), &mut told)
        .await
        .unwrap();
    assert!(told.restart.is_some_and(|again| again.id != order.id));
    let events = app.store.event_list(node, 0).await.unwrap();
    assert_eq!(events.iter().filter(|event| event.kind == "restarting").count(), 1);
    script(&listener).await;
    assert!(boot_orders::show(app, node).await.unwrap().restart.is_none());
}
