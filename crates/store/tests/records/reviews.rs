use manifest::Digest;
use store::{NewReview, NodeChange, ReviewKind, ReviewScope, Store};
use time::{Duration, OffsetDateTime};

use super::reports::{file, full, installed_node, installed_node_named, medium};
use super::store;

fn review(kind: ReviewKind, scope: ReviewScope, scope_value: &str) -> NewReview {
    let difference = file("/a", "0600");
    NewReview {
        kind,
        group: difference.group(),
        variant: (kind == ReviewKind::Acceptance).then(|| difference.variant()),
        scope,
        scope_value: scope_value.to_owned(),
        reason: "the vendor says so".to_owned(),
        made_by: "admin".to_owned(),
        expires_at: (kind == ReviewKind::Waiver).then(|| OffsetDateTime::now_utc() + Duration::hours(1)),
    }
}

async fn standing(store: &Store, node: protocol::NodeId) -> String {
    store.finding_list(node).await.unwrap()[0].standing.clone()
}

#[tokio::test]
async fn the_strongest_decision_in_force_counts_and_can_be_taken_back() {
    let (_database, store) = store().await;
    let (node, baseline) = installed_node(&store).await;
    store
        .report_store(node, &full(baseline, 1, &[file("/a", "0600")]), medium)
        .await
        .unwrap();
    assert_eq!(standing(&store, node).await, "open");
    let everywhere = |kind| review(kind, ReviewScope::Everywhere, "");
    store
        .review_create(&everywhere(ReviewKind::Acknowledgement))
        .await
        .unwrap();
    assert_eq!(standing(&store, node).await, "acknowledged");
    assert_eq!(store.node_get(node).await.unwrap().findings, 1, "it is still drift");
    let waiver = store.review_create(&everywhere(ReviewKind::Waiver)).await.unwrap();
    assert_eq!(standing(&store, node).await, "waived");
    let record = store.node_get(node).await.unwrap();
    assert_eq!((record.findings, record.allowed), (0, 1));
    store.review_create(&everywhere(ReviewKind::Acceptance)).await.unwrap();
    assert_eq!(standing(&store, node).await, "accepted");

    let reviews = store.review_list(None, false).await.unwrap();
    assert_eq!(reviews.len(), 3);
    let acceptance = reviews.iter().find(|r| r.kind == ReviewKind::Acceptance).unwrap();
    assert_eq!((acceptance.findings, acceptance.finding_key.as_str()), (1, "/a"));
    store.review_end(acceptance.id, "admin").await.unwrap();
    store.review_end(waiver, "admin").await.unwrap();
    store.review_end(waiver, "somebody else").await.unwrap();
    assert_eq!(standing(&store, node).await, "acknowledged");
    let ended = store.review_list(None, true).await.unwrap();
    let waiver = ended.iter().find(|r| r.id == waiver).unwrap();
    assert_eq!(waiver.ended_by.as_deref(), Some("admin"));
    let actions: Vec<String> = store
        .audit_list(None, 10)
        .await
        .unwrap()
        .into_iter()
        .map(|event| event.action)
        .collect();
    assert_eq!(
        actions,
        [
            "review_ended",
            "review_ended",
            "acceptance",
            "waiver",
            "acknowledgement"
        ]
    );
}

#[tokio::test]
async fn a_waiver_runs_out_by_itself_and_an_acceptance_is_of_one_variant() {
    let (_database, store) = store().await;
    let (node, baseline) = installed_node(&store).await;
    store
        .report_store(node, &full(baseline, 1, &[file("/a", "0600")]), medium)
        .await
        .unwrap();
    let mut past = review(ReviewKind::Waiver, ReviewScope::Everywhere, "");
    past.expires_at = Some(OffsetDateTime::now_utc() - Duration::seconds(1));
    store.review_create(&past).await.unwrap();
    assert_eq!(standing(&store, node).await, "open");

    store
        .review_create(&review(ReviewKind::Acceptance, ReviewScope::Everywhere, ""))
        .await
        .unwrap();
    assert_eq!(standing(&store, node).await, "accepted");
    store
        .report_store(node, &full(baseline, 2, &[file("/a", "0777")]), medium)
        .await
        .unwrap();
    assert_eq!(standing(&store, node).await, "open", "it differs in another way now");
}

#[tokio::test]
async fn a_decision_holds_in_its_scope_alone() {
    let (_database, store) = store().await;
    let (one, baseline_one) = installed_node(&store).await;
    let (two, baseline_two) = installed_node_named(&store, "gpu-002", "52:54:00:aa:00:02").await;
    for (node, baseline) in [(one, baseline_one), (two, baseline_two)] {
        let report = full(baseline, 1, &[file("/a", "0600")]);
        store.report_store(node, &report, medium).await.unwrap();
    }
    let of_node = review(ReviewKind::Waiver, ReviewScope::Node, &one.to_string());
    store.review_create(&of_node).await.unwrap();
    assert_eq!(standing(&store, one).await, "waived");
    assert_eq!(standing(&store, two).await, "open");

    let of_group = review(ReviewKind::Acceptance, ReviewScope::Group, "login");
    store.review_create(&of_group).await.unwrap();
    assert_eq!(standing(&store, two).await, "open");
    let change = NodeChange {
        group: Some("login".into()),
        rack: Some("r1".into()),
        chain: None,
        unit: None,
    };
    store.node_change(two, &change, "admin").await.unwrap();
    assert_eq!(standing(&store, two).await, "accepted");
    let group = store.finding_group_list().await.unwrap().remove(0);
    assert_eq!((group.nodes, group.open, group.waived, group.accepted), (2, 0, 1, 1));
    assert_eq!(store.finding_variant_list(group.group).await.unwrap()[0].open, 0);
}

#[tokio::test]
async fn what_is_not_there_is_not_decided_about() {
    let (_database, store) = store().await;
    let mut nothing = review(ReviewKind::Waiver, ReviewScope::Everywhere, "");
    nothing.group = Digest::of(b"nothing");
    assert!(store.review_create(&nothing).await.is_err());
}
