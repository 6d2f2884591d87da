//! Burn-ins: what a new machine is given to do, what becomes of its results, and what they hold back.

use axum::http::StatusCode;
use lifecycle::burn_in::Standing;
use lifecycle::{BootOrder, NodeState, Observed};
use plumbline::app::boot_orders::{self, Wanted};
use plumbline::app::enrol::{self, Ramdisk};
use plumbline::app::{burn_ins, nodes};
use protocol::NodeId;
use protocol::latest::{BurnIn, Figure, LinkLayer, Port, Task, TestKind, TestOutcome, TestProgress, TestResult};
use std::time::Duration;

use super::support::Listener;

const MAC: &str = "52:54:00:aa:00:01";
const SITE: &str = "[commissioning]\nnew_nodes = true\ntests = [\"links\", \"memory\"]\nlimit_secs = { memory = 20 }\n\
    [[commissioning.links]]\ngroups = [\"gpu\"]\nlayer = \"infiniband\"\ncount = 1\nspeed_mbps = 400000\n";

/// A machine that waits for approval in its deployer.
async fn site(settings: &str) -> (Listener, Ramdisk) {
    let listener = Listener::start(&[("snponly.efi", b"loader")], settings).await;
    let machine_id = uuid::Uuid::new_v4().simple().to_string();
    let store = &listener.app.store;
    let node = store.node_create("gpu-001", MAC, &machine_id).await.unwrap();
    store.node_step(node, &Observed::Inventoried).await.unwrap();
    assert_eq!(store.node_get(node).await.unwrap().state, NodeState::WaitingApproval);
    let token = uuid::Uuid::new_v4();
    (listener, Ramdisk { node, token })
}

async fn task(listener: &Listener, ramdisk: &Ramdisk) -> Task {
    enrol::task(&listener.app, ramdisk, Duration::ZERO).await.unwrap()
}

async fn burn_in(listener: &Listener, ramdisk: &Ramdisk) -> BurnIn {
    match task(listener, ramdisk).await {
        Task::BurnIn(burn_in) => burn_in,
        other => panic!("no burn-in: {other:?}"),
    }
}

fn result(kind: TestKind, outcome: TestOutcome, detail: &str) -> TestResult {
    TestResult {
        kind,
        outcome,
        detail: detail.to_owned(),
        figures: Vec::new(),
        ports: Vec::new(),
        secs: 20,
    }
}

/// Whether its deployer is to go on.
async fn tell(listener: &Listener, ramdisk: &Ramdisk, burn_in: &BurnIn, told: TestResult) -> bool {
    let reply = burn_ins::result(&listener.app, ramdisk, burn_in.id, told)
        .await
        .unwrap();
    reply.go_on
}

async fn held(listener: &Listener, node: NodeId) -> Option<String> {
    let record = listener.app.store.node_get(node).await.unwrap();
    let gate = burn_ins::gate(&listener.app, &record, None, "admin").await;
    gate.err().map(|error| error.to_string())
}

async fn standing(listener: &Listener, node: NodeId) -> (Standing, String) {
    let view = nodes::node_get(&listener.app, node).await.unwrap();
    (view.burn_in, view.burn_in_reason)
}

#[tokio::test]
async fn a_new_machine_is_burned_in_before_it_can_be_approved() {
    let (listener, ramdisk) = site(SITE).await;
    let node = ramdisk.node;
    assert!(held(&listener, node).await.unwrap().contains("was not burned in yet"));
    let given = burn_in(&listener, &ramdisk).await;
    let tests: Vec<_> = given.tests.iter().map(|test| (test.kind, test.limit_secs)).collect();
    assert_eq!(tests, [(TestKind::Links, 60), (TestKind::Memory, 20)]);

    assert!(
        tell(
            &listener,
            &ramdisk,
            &given,
            result(TestKind::Links, TestOutcome::Passed, "1 of 1 ports")
        )
        .await
    );
    let progress = TestProgress {
        kind: TestKind::Memory,
        detail: "pass 3".to_owned(),
    };
    let reply = burn_ins::progress(&listener.app, &ramdisk, given.id, &progress)
        .await
        .unwrap();
    assert!(reply.go_on);
    assert!(
        held(&listener, node)
            .await
            .unwrap()
            .contains("is being burned in (memory: pass 3)")
    );
    // Its worker was started anew: what is left of it, and no second one.
    let again = burn_in(&listener, &ramdisk).await;
    assert_eq!((again.id, again.tests.len()), (given.id, 1));

    assert!(
        tell(
            &listener,
            &ramdisk,
            &given,
            result(TestKind::Memory, TestOutcome::Passed, "4 passes")
        )
        .await
    );
    assert_eq!(held(&listener, node).await, None);
    assert_eq!(standing(&listener, node).await.0, Standing::Passed);
    assert!(matches!(task(&listener, &ramdisk).await, Task::Wait { reason } if reason.contains("all tests passed")));
    let next_boot = Ramdisk {
        node,
        token: uuid::Uuid::new_v4(),
    };
    assert!(
        matches!(task(&listener, &next_boot).await, Task::Wait { .. }),
        "once is enough"
    );
}

#[tokio::test]
async fn a_failure_holds_back_approval_until_a_person_says_why_not() {
    let (listener, ramdisk) = site(SITE).await;
    let node = ramdisk.node;
    let given = burn_in(&listener, &ramdisk).await;
    tell(
        &listener,
        &ramdisk,
        &given,
        result(TestKind::Links, TestOutcome::Passed, "1 of 1 ports"),
    )
    .await;
    tell(
        &listener,
        &ramdisk,
        &given,
        result(TestKind::Memory, TestOutcome::Failed, "3 words differ"),
    )
    .await;
    // A late answer to a result that was told twice changes nothing.
    tell(
        &listener,
        &ramdisk,
        &given,
        result(TestKind::Memory, TestOutcome::Passed, "lies"),
    )
    .await;
    let refused = held(&listener, node).await.unwrap();
    assert!(
        refused.contains("memory: 3 words differ") && refused.contains("--despite-burn-in"),
        "{refused}"
    );

    let app = &listener.app;
    let record = app.store.node_get(node).await.unwrap();
    assert!(
        burn_ins::gate(app, &record, Some(" "), "admin").await.is_err(),
        "a reason is a reason"
    );
    burn_ins::gate(app, &record, Some("the DIMM is on its way"), "admin")
        .await
        .unwrap();
    assert_eq!(held(&listener, node).await, None);
    let (now, reason) = standing(&listener, node).await;
    assert_eq!(
        (now, reason.as_str()),
        (Standing::Waived, "admin: the DIMM is on its way")
    );
    let audit = app.store.audit_list(None, 10).await.unwrap();
    assert!(audit.iter().any(|event| event.action == "burn_in_waived"), "{audit:?}");
}

#[tokio::test]
async fn a_person_may_approve_a_machine_that_never_had_its_burn_in() {
    let (listener, ramdisk) = site(SITE).await;
    let app = &listener.app;
    for (kind, name) in [("os", "debian"), ("agent", "agent")] {
        let image = store::NewImage {
            digest: manifest::Digest::of(name.as_bytes()),
            kind: kind.to_owned(),
            name: name.to_owned(),
            version: "20260101T000000Z".to_owned(),
            description: None,
            architecture: "amd64".to_owned(),
            files: 1,
            content_bytes: 1,
            stored_bytes: 1,
            files_by_class: Default::default(),
            signer: None,
        };
        app.store.image_register(&image).await.unwrap();
    }
    let approve = async |despite| {
        let disk = protocol::latest::DiskRule::default();
        nodes::node_approve(app, ramdisk.node, "gpu-007", Some("debian"), disk, despite, "admin").await
    };
    let refused = approve(None).await.unwrap_err().to_string();
    assert!(refused.contains("was not burned in yet"), "{refused}");
    let name = app.store.node_get(ramdisk.node).await.unwrap().name;
    assert_eq!(name.as_deref(), Some("gpu-001"), "what is refused changes nothing");
    approve(Some("needed tonight")).await.unwrap();
    let now = app.store.node_get(ramdisk.node).await.unwrap();
    assert_eq!(
        (now.name.as_deref(), now.state),
        (Some("gpu-007"), NodeState::Deploying)
    );
}

#[tokio::test]
async fn a_machine_that_a_test_brings_down_has_not_passed() {
    let (listener, ramdisk) = site(SITE).await;
    let node = ramdisk.node;
    let given = burn_in(&listener, &ramdisk).await;
    let progress = TestProgress {
        kind: TestKind::Memory,
        detail: "pass 1".to_owned(),
    };
    burn_ins::progress(&listener.app, &ramdisk, given.id, &progress)
        .await
        .unwrap();
    let next_boot = Ramdisk {
        node,
        token: uuid::Uuid::new_v4(),
    };
    // Not again by itself: a machine that dies of it would never come to rest.
    assert!(matches!(task(&listener, &next_boot).await, Task::Wait { .. }));
    let refused = held(&listener, node).await.unwrap();
    assert!(
        refused.contains("the machine restarted during memory: pass 1"),
        "{refused}"
    );
    // What the first boot still says of it comes too late.
    assert!(
        !tell(
            &listener,
            &ramdisk,
            &given,
            result(TestKind::Memory, TestOutcome::Passed, "late")
        )
        .await
    );

    // A person orders another one, with a longer limit; the same boot takes it up.
    let wanted = Wanted {
        kind: BootOrder::Commission,
        reason: "new DIMM".to_owned(),
        authorized_key: None,
        tests: Some(vec![(TestKind::Memory, Some(7_200))]),
    };
    boot_orders::order(&listener.app, node, &wanted, "admin").await.unwrap();
    let again = burn_in(&listener, &next_boot).await;
    assert_eq!((again.tests.len(), again.tests[0].limit_secs), (1, 7_200));
    tell(
        &listener,
        &next_boot,
        &again,
        result(TestKind::Memory, TestOutcome::Passed, "9 passes"),
    )
    .await;
    assert_eq!(held(&listener, node).await, None);
    assert!(matches!(task(&listener, &next_boot).await, Task::Wait { .. }));
    assert_eq!(
        listener.app.store.burn_in_list(node).await.unwrap().len(),
        2,
        "both are kept"
    );
}

#[tokio::test]
async fn silence_is_no_pass() {
    let (listener, ramdisk) = site(SITE).await;
    burn_in(&listener, &ramdisk).await;
    burn_ins::watch(&listener.app, 60).await.unwrap();
    assert_eq!(standing(&listener, ramdisk.node).await.0, Standing::Running);
    burn_ins::watch(&listener.app, 0).await.unwrap();
    let (now, reason) = standing(&listener, ramdisk.node).await;
    assert!(
        now == Standing::Failed && reason.contains("said nothing"),
        "{now:?} {reason}"
    );
}

#[tokio::test]
async fn links_are_held_against_the_plan_of_the_group_that_a_node_is_put_in() {
    let (listener, ramdisk) = site(SITE).await;
    let node = ramdisk.node;
    let given = burn_in(&listener, &ramdisk).await;
    let mut links = result(TestKind::Links, TestOutcome::Passed, "1 of 1 ports have a link");
    links.ports.push(Port {
        name: "mlx5_0/1".to_owned(),
        address: "0c42:a103:0042:2a3e".to_owned(),
        layer: LinkLayer::Infiniband,
        driver: None,
        pci_address: None,
        link: true,
        state: Some("ACTIVE".to_owned()),
        speed_mbps: Some(200_000),
        losses: 0,
    });
    tell(&listener, &ramdisk, &given, links).await;
    tell(
        &listener,
        &ramdisk,
        &given,
        result(TestKind::Memory, TestOutcome::Passed, "4 passes"),
    )
    .await;
    assert_eq!(held(&listener, node).await, None, "its group has no plan");
    let into = |group: &str| store::NodeChange {
        group: Some(group.to_owned()),
        ..store::NodeChange::default()
    };
    nodes::node_place(&listener.app, node, into("gpu"), "admin")
        .await
        .unwrap();
    let (now, reason) = standing(&listener, node).await;
    assert!(
        now == Standing::Failed && reason.contains("mlx5_0/1 runs at 200000 Mb/s; expected 400000"),
        "{reason}"
    );
    nodes::node_place(&listener.app, node, into("login"), "admin")
        .await
        .unwrap();
    assert_eq!(
        standing(&listener, node).await.0,
        Standing::Passed,
        "and again as it was told"
    );
}

#[tokio::test]
async fn without_the_sites_wish_nothing_is_tested_and_nothing_held_back() {
    let (listener, ramdisk) = site("").await;
    assert!(matches!(task(&listener, &ramdisk).await, Task::Wait { .. }));
    assert_eq!(held(&listener, ramdisk.node).await, None);
}

#[tokio::test]
async fn a_result_that_no_test_gives_is_refused() {
    let (listener, ramdisk) = site(SITE).await;
    let given = burn_in(&listener, &ramdisk).await;
    let mut told = result(TestKind::Memory, TestOutcome::Passed, "");
    told.figures = vec![
        Figure {
            name: "x".to_owned(),
            value: 1.0,
            unit: "MB/s".to_owned(),
        };
        2_000
    ];
    let refused = burn_ins::result(&listener.app, &ramdisk, given.id, told)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("at most 1024"), "{refused}");
    let not_ordered = result(TestKind::Disk, TestOutcome::Passed, "");
    let refused = burn_ins::result(&listener.app, &ramdisk, given.id, not_ordered)
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("disk is no test of this burn-in"),
        "{refused}"
    );
    // Another boot of the node cannot speak for this one.
    let other = Ramdisk {
        node: ramdisk.node,
        token: uuid::Uuid::new_v4(),
    };
    assert!(
        !tell(
            &listener,
            &other,
            &given,
            result(TestKind::Memory, TestOutcome::Passed, "")
        )
        .await
    );
}

#[tokio::test]
async fn throughput_is_measured_in_turn_and_within_bounds() {
    let (listener, _) = site("").await;
    let answer = listener.get("/boot/v1/throughput?bytes=600000", None).await;
    assert_eq!((answer.status, answer.body.len()), (StatusCode::OK, 600_000));
    assert_eq!(answer.header("content-length"), "600000");
    let too_much = listener.get("/boot/v1/throughput?bytes=99999999999", None).await;
    assert_eq!(too_much.status, StatusCode::UNPROCESSABLE_ENTITY);
}
