use drift::{Attributes, Difference, FindingKind, Severity, state_digest};
use lifecycle::NodeState;
use manifest::Digest;
use protocol::NodeId;
use protocol::latest::{DriftReport, Outcome, ReportKind, ScanSummary};
use store::{ReportStored, Store};
use uuid::Uuid;

use super::{inventoried_node, new_deployment, store};

const MAC: &str = "52:54:00:aa:00:01";

pub async fn installed_node(store: &Store) -> (NodeId, Digest) {
    installed_node_named(store, "gpu-001", MAC).await
}

pub async fn installed_node_named(store: &Store, name: &str, mac: &str) -> (NodeId, Digest) {
    let node = inventoried_node(store, name, mac).await;
    let deployment = store
        .deployment_create(&new_deployment(store, node).await)
        .await
        .unwrap();
    let token = store.token_issue(node, None, mac, "10.0.0.2").await.unwrap();
    assert!(store.deployment_start(deployment, token).await.unwrap());
    store
        .deployment_set_overlay(deployment, Digest::of(b"overlay"), "overlay", &[])
        .await
        .unwrap();
    let outcome = Outcome::Installed {
        files: 1,
        bytes: 1,
        requests: 1,
        duration_secs: 1,
    };
    store.deployment_finish(deployment, &outcome).await.unwrap();
    (node, store.baseline_find(node).await.unwrap().unwrap().digest)
}

pub fn file(key: &str, mode: &str) -> Difference {
    Difference {
        kind: FindingKind::File,
        key: key.into(),
        expected: Some(Attributes::from_pairs([("mode", "0644")])),
        actual: Some(Attributes::from_pairs([("mode", mode)])),
    }
}

fn report(baseline: Digest, sequence: u64, state: Digest, kind: ReportKind) -> DriftReport {
    DriftReport {
        boot_id: Uuid::nil(),
        sequence,
        baseline,
        state,
        scan: ScanSummary {
            complete: true,
            ..Default::default()
        },
        not_looked_at: Vec::new(),
        after_job: None,
        kind,
    }
}

pub fn full(baseline: Digest, sequence: u64, differences: &[Difference]) -> DriftReport {
    let kind = ReportKind::Full {
        differences: differences.to_vec(),
    };
    report(baseline, sequence, state_digest(differences), kind)
}

pub fn medium(_: &Difference) -> Severity {
    Severity::Medium
}

#[tokio::test]
async fn findings_open_change_and_close() {
    let (_database, store) = store().await;
    let (node, baseline) = installed_node(&store).await;
    let stored = |opened, changed, closed| ReportStored::Stored {
        opened,
        changed,
        closed,
    };
    let (a, b) = (file("/a", "0600"), file("/b", "0600"));
    let first = full(baseline, 1, &[a.clone(), b.clone()]);
    assert_eq!(store.report_store(node, &first, medium).await.unwrap(), stored(2, 0, 0));
    assert_eq!(store.finding_group_list().await.unwrap().len(), 2);

    let changed = file("/a", "0777");
    let second = full(baseline, 2, std::slice::from_ref(&changed));
    assert_eq!(
        store.report_store(node, &second, medium).await.unwrap(),
        stored(0, 1, 1)
    );
    let findings = store.finding_list(node).await.unwrap();
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].actual.as_ref().unwrap().get("mode"), Some("0777"));

    let kind = ReportKind::Delta {
        base: second.state,
        set: vec![b.clone()],
        cleared: vec![changed.group()],
    };
    let third = report(baseline, 3, state_digest([&b]), kind);
    assert_eq!(store.report_store(node, &third, medium).await.unwrap(), stored(1, 0, 1));
    assert_eq!(store.finding_list(node).await.unwrap()[0].key, "/b");
}

#[tokio::test]
async fn what_is_old_or_has_no_base_changes_nothing() {
    let (_database, store) = store().await;
    let (node, baseline) = installed_node(&store).await;
    let first = full(baseline, 5, &[file("/a", "0600")]);
    store.report_store(node, &first, medium).await.unwrap();

    let older = full(baseline, 5, &[]);
    assert!(matches!(
        store.report_store(node, &older, medium).await.unwrap(),
        ReportStored::Stale { .. }
    ));
    let foreign = full(Digest::of(b"another baseline"), 6, &[]);
    assert!(matches!(
        store.report_store(node, &foreign, medium).await.unwrap(),
        ReportStored::Stale { .. }
    ));
    let kind = ReportKind::Delta {
        base: Digest::of(b"unknown"),
        set: Vec::new(),
        cleared: vec![file("/a", "0600").group()],
    };
    let delta = report(baseline, 7, state_digest([]), kind);
    assert!(matches!(
        store.report_store(node, &delta, medium).await.unwrap(),
        ReportStored::NeedFull { .. }
    ));
    assert_eq!(store.finding_list(node).await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_first_full_scan_verifies_the_deployment() {
    let (_database, store) = store().await;
    let (node, _) = installed_node(&store).await;
    assert!(store.deployment_verify(node, 0, 0).await.unwrap());
    assert!(
        !store.deployment_verify(node, 0, 0).await.unwrap(),
        "only the first one"
    );
    assert_eq!(store.node_get(node).await.unwrap().state, NodeState::Deployed);
    let deployment = store.deployment_list(node).await.unwrap().remove(0);
    assert_eq!(deployment.state, lifecycle::DeploymentState::Verified);
}
