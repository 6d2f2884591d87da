use lifecycle::{AttemptEnd, DeploymentState, NodeState, Observed};
use manifest::Digest;
use protocol::latest::{DeployMode, DiskWork, Outcome, Progress, Stage};
use protocol::{DeploymentId, NodeId};
use store::{CertificateRecord, Store, StoreError};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::{inventoried_node, new_deployment, store};

const MAC: &str = "52:54:00:aa:00:01";

fn progress(stage: Stage) -> Progress {
    Progress {
        stage,
        detail: "x".into(),
        bytes_done: 1,
        bytes_total: 2,
        files_done: 1,
        files_total: 2,
    }
}

fn installed() -> Outcome {
    Outcome::Installed {
        files: 10,
        bytes: 100,
        requests: 7,
        duration_secs: 3,
        work: None,
    }
}

/// A node with a deployment that a deployer has taken up; the deployer's token.
async fn running(store: &Store) -> (NodeId, DeploymentId, Uuid) {
    let node = inventoried_node(store, "gpu-001", MAC).await;
    let deployment = store
        .deployment_create(&new_deployment(store, node).await)
        .await
        .unwrap();
    let token = store
        .token_issue(node, Some((deployment, 1)), MAC, "10.0.0.2")
        .await
        .unwrap();
    assert!(store.deployment_start(deployment, token).await.unwrap());
    (node, deployment, token)
}

#[tokio::test]
async fn an_installation_sets_the_baseline_and_the_state_together() {
    let (_database, store) = store().await;
    let (node, deployment, _) = running(&store).await;
    assert!(
        store
            .deployment_progress(deployment, &progress(Stage::Verify))
            .await
            .unwrap()
    );
    assert!(
        !store
            .deployment_progress(deployment, &progress(Stage::Verify))
            .await
            .unwrap(),
        "the same stage"
    );
    assert!(
        store
            .deployment_progress(deployment, &progress(Stage::Write))
            .await
            .unwrap()
    );

    let early = store.deployment_finish(deployment, &installed()).await.unwrap_err();
    assert!(
        matches!(early, StoreError::Conflict(_)),
        "nothing was rendered: {early}"
    );
    assert!(store.baseline_find(node).await.unwrap().is_none(), "never half-marked");

    let overlay = Digest::of(b"overlay");
    let keys = ["ssh-ed25519 AAAA".to_owned()];
    store
        .deployment_set_overlay(deployment, overlay, "overlay", &keys)
        .await
        .unwrap();
    store.deployment_finish(deployment, &installed()).await.unwrap();
    let record = store.node_get(node).await.unwrap();
    assert_eq!(
        (record.state, record.ssh_host_keys),
        (NodeState::Installed, keys.to_vec())
    );
    assert_eq!(store.baseline_find(node).await.unwrap().unwrap().overlay, overlay);

    store
        .deployment_finish(deployment, &installed())
        .await
        .expect("told twice, nothing changes");
    let failed = Outcome::Failed {
        stage: Stage::Write,
        reason: "late".into(),
    };
    assert!(
        store.deployment_finish(deployment, &failed).await.is_err(),
        "another end is refused"
    );
    assert_eq!(store.node_get(node).await.unwrap().state, NodeState::Installed);
}

#[tokio::test]
async fn a_failure_names_its_stage_and_reason_on_the_node() {
    let (_database, store) = store().await;
    let (node, deployment, _) = running(&store).await;
    let outcome = Outcome::Failed {
        stage: Stage::SelectDisk,
        reason: "two disks fit".into(),
    };
    store.deployment_finish(deployment, &outcome).await.unwrap();
    let record = store.node_get(node).await.unwrap();
    assert_eq!(
        (record.state, record.state_reason.as_str()),
        (NodeState::Failed, "select_disk: two disks fit")
    );
    let late = store.deployment_progress(deployment, &progress(Stage::Write)).await;
    assert!(matches!(late, Err(StoreError::Conflict(_))));
}

#[tokio::test]
async fn one_deployment_at_a_time() {
    let (_database, store) = store().await;
    let (node, ..) = running(&store).await;
    let second = store.deployment_create(&new_deployment(&store, node).await).await;
    assert!(matches!(second, Err(StoreError::Conflict(reason)) if reason.contains("under way")));
}

#[tokio::test]
async fn another_boots_token_cannot_take_a_running_deployment() {
    let (_database, store) = store().await;
    let (node, deployment, token) = running(&store).await;
    assert!(
        store.deployment_start(deployment, token).await.unwrap(),
        "asked again by the same deployer"
    );
    let waiting = store.token_issue(node, None, MAC, "10.0.0.2").await.unwrap();
    assert!(!store.deployment_start(deployment, waiting).await.unwrap());
    let other = inventoried_node(&store, "gpu-002", "52:54:00:aa:00:02").await;
    let foreign = store
        .token_issue(other, None, "52:54:00:aa:00:02", "10.0.0.3")
        .await
        .unwrap();
    assert!(
        !store.deployment_start(deployment, foreign).await.unwrap(),
        "another node's token"
    );
}

#[tokio::test]
async fn a_deployer_that_waited_takes_up_the_deployment_without_a_reboot() {
    let (_database, store) = store().await;
    let node = inventoried_node(&store, "gpu-001", MAC).await;
    let token = store.token_issue(node, None, MAC, "10.0.0.2").await.unwrap();
    let deployment = store
        .deployment_create(&new_deployment(&store, node).await)
        .await
        .unwrap();
    assert!(store.deployment_start(deployment, token).await.unwrap());
    let record = store.token_get(token).await.unwrap();
    assert_eq!((record.deployment_id, record.attempt), (Some(deployment), Some(1)));
}

/// cobbler#1374, infra-controller#3574: attempts whose end is lost stop at the limit.
#[tokio::test]
async fn cobbler_1374_lost_attempts_end_after_the_limit() {
    let (_database, store) = store().await;
    let (node, deployment, _) = running(&store).await;
    for attempt in 2..=3 {
        assert_eq!(
            store.deployment_attempt_lost(deployment, "power cut").await.unwrap(),
            AttemptEnd::TryAgain
        );
        assert_eq!(
            store.deployment_get(deployment).await.unwrap().state,
            DeploymentState::Waiting
        );
        let token = store
            .token_issue(node, Some((deployment, attempt)), MAC, "10.0.0.2")
            .await
            .unwrap();
        assert!(store.deployment_start(deployment, token).await.unwrap());
    }
    assert_eq!(
        store.deployment_attempt_lost(deployment, "power cut").await.unwrap(),
        AttemptEnd::GiveUp
    );
    let record = store.node_get(node).await.unwrap();
    assert_eq!(record.state, NodeState::Failed);
    assert!(
        record.state_reason.contains("attempt 3 of 3"),
        "{}",
        record.state_reason
    );
}

#[tokio::test]
async fn a_misused_token_stops_the_deployment_and_what_it_enrolled() {
    let (_database, store) = store().await;
    let (node, deployment, token) = running(&store).await;
    let ends = OffsetDateTime::now_utc() + Duration::days(1);
    for (fingerprint, purpose) in [(b"r", "ramdisk"), (b"a", "agent")] {
        let record = CertificateRecord {
            node_id: node,
            purpose: purpose.into(),
            token_id: Some(token),
        };
        store.certificate_record(fingerprint, &record, ends).await.unwrap();
        assert!(store.certificate_find(fingerprint).await.unwrap().is_some());
    }
    let observed = Observed::TokenMisused { reason: "twice".into() };
    store.deployment_stop(node, &observed, "stopped: twice").await.unwrap();
    assert_eq!(
        store.deployment_get(deployment).await.unwrap().state,
        DeploymentState::Failed
    );
    assert_eq!(store.node_get(node).await.unwrap().state, NodeState::Quarantined);
    for fingerprint in [b"r", b"a"] {
        assert_eq!(store.certificate_find(fingerprint).await.unwrap(), None);
    }
    let again = store.deployment_create(&new_deployment(&store, node).await).await;
    assert!(matches!(again, Err(StoreError::Conflict(reason)) if reason.contains("quarantined")));
}

#[tokio::test]
async fn a_node_knows_the_root_filesystems_it_was_given_and_another_nodes_are_none_of_them() {
    let (_database, store) = store().await;
    let (node, first, _) = running(&store).await;
    let given = store.deployment_get(first).await.unwrap().layout.root_uuid;
    assert_eq!(store.deployment_roots(node, 16).await.unwrap(), [given]);
    let other = inventoried_node(&store, "gpu-002", "52:54:00:aa:00:02").await;
    assert!(store.deployment_roots(other, 16).await.unwrap().is_empty());

    // Installed over an older one's.
    let older = Uuid::new_v4();
    store.deployment_set_root(first, older).await.unwrap();
    assert_eq!(store.deployment_roots(node, 16).await.unwrap(), [older]);
    assert_eq!(
        store.deployment_get(first).await.unwrap().layout.esp_mib,
        256,
        "the rest stays"
    );
}

#[tokio::test]
async fn what_became_of_a_disk_is_the_reason_of_the_deployment() {
    let work = |mode| DiskWork {
        mode,
        reason: "the filesystem has errors".to_owned(),
        bytes_fetched: 5,
        bytes_kept: 60,
        files_kept: 8,
        files_written: 2,
        files_removed: 3,
    };
    for (mode, expected) in [
        (
            DeployMode::InPlace,
            "in place: 8 files of 60 bytes kept, 2 written, 3 removed",
        ),
        (DeployMode::Wipe, "the disk was wiped: the filesystem has errors"),
    ] {
        let (_database, store) = store().await;
        let (_, deployment, _) = running(&store).await;
        let keys = ["ssh-ed25519 AAAA".to_owned()];
        let overlay = Digest::of(b"overlay");
        store
            .deployment_set_overlay(deployment, overlay, "overlay", &keys)
            .await
            .unwrap();
        let Outcome::Installed {
            files,
            bytes,
            requests,
            duration_secs,
            ..
        } = installed()
        else {
            unreachable!()
        };
        let outcome = Outcome::Installed {
            files,
            bytes,
            requests,
            duration_secs,
            work: Some(work(mode)),
        };
        store.deployment_finish(deployment, &outcome).await.unwrap();
        let record = store.deployment_get(deployment).await.unwrap();
        assert!(record.reason.contains(expected), "{}", record.reason);
        assert_eq!(record.outcome.unwrap()["work"]["bytes_fetched"], 5);
    }
}
