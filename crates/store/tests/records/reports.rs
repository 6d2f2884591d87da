use drift::{Attributes, Difference, FindingKind, Severity, state_digest};
use lifecycle::NodeState;
use manifest::Digest;
use protocol::NodeId;
use protocol::latest::{DriftReport, Heartbeat, Outcome, ReportKind, ScanSummary};
use store::{BootSeen, ReportStored, Store};
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
        work: None,
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
    let counted = |opened, changed, closed| ReportStored::Stored {
        opened,
        changed,
        closed,
    };
    let (a, b) = (file("/a", "0600"), file("/b", "0600"));
    let first = full(baseline, 1, &[a.clone(), b.clone()]);
    assert_eq!(
        store.report_store(node, &first, medium).await.unwrap(),
        counted(2, 0, 0)
    );
    assert_eq!(store.finding_group_list().await.unwrap().len(), 2);

    let changed = file("/a", "0777");
    let second = full(baseline, 2, std::slice::from_ref(&changed));
    assert_eq!(
        store.report_store(node, &second, medium).await.unwrap(),
        counted(0, 1, 1)
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
    assert_eq!(
        store.report_store(node, &third, medium).await.unwrap(),
        counted(1, 0, 1)
    );
    assert_eq!(store.finding_list(node).await.unwrap()[0].key, "/b");
}

fn of_boot(boot: u128, report: DriftReport) -> DriftReport {
    DriftReport {
        boot_id: Uuid::from_u128(boot),
        ..report
    }
}

async fn stored(store: &Store, node: NodeId, report: &DriftReport) -> ReportStored {
    store.report_store(node, report, medium).await.unwrap()
}

fn is_stale(stored: &ReportStored) -> bool {
    matches!(stored, ReportStored::Stale { .. })
}

/// NVIDIA/NVSentinel#1415: what was bad before does not come back after what is good now, however late it arrives.
#[tokio::test]
async fn nvsentinel_1415_an_older_report_changes_nothing() {
    let (_database, store) = store().await;
    let (node, baseline) = installed_node(&store).await;
    let bad = [file("/a", "0600")];
    stored(&store, node, &of_boot(1, full(baseline, 5, &bad))).await;
    stored(&store, node, &of_boot(1, full(baseline, 7, &[]))).await;
    for late in [
        of_boot(1, full(baseline, 6, &bad)),
        of_boot(1, full(baseline, 7, &bad)),
        of_boot(1, full(Digest::of(b"another baseline"), 8, &bad)),
    ] {
        assert!(is_stale(&stored(&store, node, &late).await));
    }
    // The node has started anew; a report from before was under way.
    stored(&store, node, &of_boot(2, full(baseline, 1, &[]))).await;
    assert!(is_stale(
        &stored(&store, node, &of_boot(1, full(baseline, 9, &bad))).await
    ));
    assert_eq!(store.finding_list(node).await.unwrap().len(), 0);
}

/// osquery/osquery#5299: a change whose base the server does not hold is never taken, and everything is asked for.
#[tokio::test]
async fn osquery_5299_a_delta_without_its_base_changes_nothing() {
    let (_database, store) = store().await;
    let (node, baseline) = installed_node(&store).await;
    let first = full(baseline, 5, &[file("/a", "0600")]);
    let delta = |sequence, base| {
        let kind = ReportKind::Delta {
            base,
            set: Vec::new(),
            cleared: vec![file("/a", "0600").group()],
        };
        report(baseline, sequence, state_digest([]), kind)
    };
    let needs_full = |stored| matches!(stored, ReportStored::NeedFull { .. });
    assert!(
        needs_full(stored(&store, node, &delta(4, first.state)).await),
        "nothing is held yet"
    );
    stored(&store, node, &first).await;
    assert!(needs_full(
        stored(&store, node, &delta(7, Digest::of(b"unknown"))).await
    ));
    assert_eq!(store.finding_list(node).await.unwrap().len(), 1);
    // The same findings again in full: nothing was opened a second time.
    let again = stored(&store, node, &full(baseline, 8, &[file("/a", "0600")])).await;
    let (opened, changed, closed) = (0, 0, 0);
    assert_eq!(
        again,
        ReportStored::Stored {
            opened,
            changed,
            closed
        }
    );
}

fn heartbeat(boot: u128, sequence: u64) -> Heartbeat {
    Heartbeat {
        boot_id: Uuid::from_u128(boot),
        sequence,
        baseline: None,
        state: None,
        agent_version: "0".into(),
        uptime_secs: 1,
        rss_max_bytes: 1,
        unix_ms: 0,
        restart: None,
        refused: None,
    }
}

async fn boot_seen(store: &Store, node: NodeId, boot: u128) -> BootSeen {
    store.heartbeat_record(node, &heartbeat(boot, 1), 0).await.unwrap().boot
}

/// fleetdm/fleet#102, #373, #18645: two machines with one identity are noticed, and what they report is kept apart.
#[tokio::test]
async fn fleet_102_two_boots_alive_on_one_identity_are_kept_apart() {
    let (_database, store) = store().await;
    let (node, baseline) = installed_node(&store).await;
    assert_eq!(boot_seen(&store, node, 1).await, BootSeen::First);
    stored(&store, node, &of_boot(1, full(baseline, 1, &[file("/a", "0600")]))).await;
    assert_eq!(boot_seen(&store, node, 1).await, BootSeen::Same);
    // A restart, whichever of its words arrives first.
    stored(&store, node, &of_boot(2, full(baseline, 1, &[]))).await;
    assert_eq!(boot_seen(&store, node, 2).await, BootSeen::First);
    assert_eq!(boot_seen(&store, node, 2).await, BootSeen::Same);
    assert_eq!(boot_seen(&store, node, 3).await, BootSeen::First);
    stored(&store, node, &of_boot(3, full(baseline, 1, &[file("/c", "0600")]))).await;
    // The one before it still lives.
    let other = Uuid::from_u128(3);
    assert_eq!(boot_seen(&store, node, 2).await, BootSeen::Returned { other });
    assert!(is_stale(
        &stored(&store, node, &of_boot(2, full(baseline, 9, &[]))).await
    ));
    assert_eq!(
        boot_seen(&store, node, 3).await,
        BootSeen::Same,
        "its word does not count"
    );
    let findings = store.finding_list(node).await.unwrap();
    assert_eq!((findings.len(), findings[0].key.as_str()), (1, "/c"));
}

/// mej/nhc#134: what a person wrote is never overwritten by what the server saw.
#[tokio::test]
async fn nhc_134_a_persons_reason_stays() {
    let (_database, store) = store().await;
    let (node, _) = installed_node(&store).await;
    let hold = async || store.node_get(node).await.unwrap().hold;
    store.node_hold(node, Some("memory is swapped"), "adam").await.unwrap();
    assert!(!store.node_quarantine(node, "two machines").await.unwrap());
    let held = hold().await.unwrap();
    assert_eq!(
        (held.reason.as_str(), held.is_quarantine()),
        ("memory is swapped", false)
    );
    store.node_hold(node, None, "adam").await.unwrap();
    assert!(store.node_quarantine(node, "two machines").await.unwrap());
    assert!(!store.node_quarantine(node, "again").await.unwrap(), "once");
    let held = hold().await.unwrap();
    assert_eq!((held.reason.as_str(), held.is_quarantine()), ("two machines", true));
    store.node_hold(node, None, "adam").await.unwrap();
    assert!(hold().await.is_none());
}

/// fleetdm/fleet#13527: a scan that found nothing is recorded as one, or it would be asked for again and again.
#[tokio::test]
async fn fleet_13527_a_report_with_nothing_in_it_is_recorded() {
    let (_database, store) = store().await;
    let (node, baseline) = installed_node(&store).await;
    stored(&store, node, &full(baseline, 1, &[])).await;
    let scanned = async || store.node_get(node).await.unwrap().scanned_at.unwrap();
    let first = scanned().await;
    let kind = ReportKind::Delta {
        base: state_digest([]),
        set: Vec::new(),
        cleared: Vec::new(),
    };
    stored(&store, node, &report(baseline, 2, state_digest([]), kind)).await;
    assert!(scanned().await > first);
    let held = store.heartbeat_record(node, &heartbeat(0, 3), 0).await.unwrap();
    assert_eq!(held.state, Some(state_digest([])), "so that nothing is asked for");
}

/// wazuh/wazuh PR#17415: sizes of any file come out as they went in, and no reader rounds them.
#[tokio::test]
async fn wazuh_17415_sizes_are_exact_in_the_database() {
    let (_database, store) = store().await;
    let (node, baseline) = installed_node(&store).await;
    for (sequence, size) in [5_u64 << 30, 8 << 40, (1 << 53) + 1, u64::MAX].into_iter().enumerate() {
        let mut found = file("/huge", "0600");
        found.actual = Some(Attributes::from_pairs([("size", size.to_string())]));
        let mut report = full(baseline, sequence as u64 + 1, &[found]);
        report.scan.hashed_bytes = size;
        stored(&store, node, &report).await;
        let finding = store.finding_list(node).await.unwrap().remove(0);
        assert_eq!(
            finding.actual.as_ref().unwrap().get("size"),
            Some(size.to_string().as_str())
        );
        assert!(
            serde_json::to_string(&finding)
                .unwrap()
                .contains(&format!("\"{size}\""))
        );
        let kept = store.report_newest(node).await.unwrap().unwrap();
        assert_eq!(kept.scan.hashed_bytes, size);
    }
}

/// Normation/rudder PR#7447: no report rewrites what has not changed.
#[tokio::test]
async fn rudder_7447_a_report_rewrites_nothing_that_is_the_same() {
    let (database, store) = store().await;
    let (node, baseline) = installed_node(&store).await;
    let findings = [file("/a", "0600"), file("/b", "0600")];
    let places = async || -> Vec<(String, String)> {
        let sql = "SELECT tableoid::regclass::text || ' ' || ctid::text, xmin::text FROM findings
                   UNION ALL SELECT tableoid::regclass::text || ' ' || ctid::text, xmin::text FROM nodes
                   UNION ALL SELECT tableoid::regclass::text || ' ' || ctid::text, xmin::text FROM reports WHERE sequence = 1
                   ORDER BY 1";
        sqlx::query_as(sql).fetch_all(&database.pool).await.unwrap()
    };
    stored(&store, node, &full(baseline, 1, &findings)).await;
    let before = places().await;
    for sequence in 2..5 {
        stored(&store, node, &full(baseline, sequence, &findings)).await;
    }
    store.heartbeat_record(node, &heartbeat(0, 9), 0).await.unwrap();
    assert_eq!(places().await, before);
}

/// Normation/rudder PR#2142, PR#7447: the tables that change all the time are vacuumed by settings of their own, and so
/// is what lies out of line.
#[tokio::test]
async fn rudder_2142_busy_tables_are_vacuumed_early() {
    let (database, _store) = store().await;
    let sql = "SELECT c.relname, array_to_string(c.reloptions, ' ') || ' ' || coalesce(array_to_string(t.reloptions, ' '), '')
               FROM pg_class c LEFT JOIN pg_class t ON t.oid = c.reltoastrelid
               WHERE c.relname IN ('agents', 'reports', 'findings', 'remediation_jobs') AND c.reloptions IS NOT NULL
               ORDER BY 1";
    let tables: Vec<(String, String)> = sqlx::query_as(sql).fetch_all(&database.pool).await.unwrap();
    let names: Vec<_> = tables.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["agents", "findings", "remediation_jobs", "reports"]);
    for (name, options) in &tables {
        // Nothing of an agent's row is ever out of line.
        let wanted = if name == "agents" { 1 } else { 2 };
        assert_eq!(
            options.matches("autovacuum_vacuum_scale_factor").count(),
            wanted,
            "{name}: {options}"
        );
    }
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
