use lifecycle::remediation::{JobState, Limits, NodePlan, Selection, verb_for};
use manifest::Digest;
use protocol::latest::{JobOutcome, RepairStep, SignedJob};
use protocol::{JobId, NodeId};
use store::{JobFilter, NewRun, Store, StoreError};
use time::{Duration, OffsetDateTime};

use super::reports::{file, full, installed_node, medium};
use super::store;

fn step() -> RepairStep {
    let difference = file("/a", "0600");
    RepairStep {
        group: difference.group(),
        variant: difference.variant(),
        verb: verb_for(&difference).unwrap(),
    }
}

fn new_run(nodes: &[NodeId]) -> NewRun {
    let plan = |node: &NodeId| {
        let plan = NodePlan {
            node: *node,
            steps: vec![step()],
        };
        (plan, "default".to_owned(), None)
    };
    NewRun {
        requested_by: "admin".into(),
        selection: Selection::default(),
        limits: Limits::default(),
        nodes: nodes.iter().map(plan).collect(),
        held: Vec::new(),
        allowed: 0,
    }
}

fn signed() -> SignedJob {
    SignedJob {
        job: "{}".into(),
        signature: "sig".into(),
    }
}

async fn only_job(store: &Store) -> store::JobRecord {
    store.job_list(JobFilter::default()).await.unwrap().remove(0)
}

/// A node with a finding, and the baseline it was compared with.
async fn drifted_node(store: &Store) -> (NodeId, Digest) {
    let (node, baseline) = installed_node(store).await;
    let report = full(baseline, 1, &[file("/a", "0600")]);
    store.report_store(node, &report, medium).await.unwrap();
    (node, baseline)
}

async fn issued_job(store: &Store, node: NodeId) -> JobId {
    store.run_create(&new_run(&[node])).await.unwrap();
    let job = only_job(store).await.id;
    assert!(store.job_issue(job, &[step()], &signed()).await.unwrap());
    job
}

#[tokio::test]
async fn only_one_run_at_a_time() {
    let (_database, store) = store().await;
    let (node, _) = drifted_node(&store).await;
    let run = store.run_create(&new_run(&[node])).await.unwrap();
    let second = store.run_create(&new_run(&[node])).await;
    match second {
        Err(StoreError::Conflict(reason)) => {
            assert!(
                reason.contains(&run.to_string()) && reason.contains("admin"),
                "{reason}"
            );
        }
        other => panic!("{other:?}"),
    }
    // A plan with nothing to do takes no turn away from anybody.
    let empty = store.run_create(&new_run(&[])).await.unwrap();
    assert_eq!(store.run_get(empty).await.unwrap().state, "finished");
    store.run_stop(run, "admin").await.unwrap();
    assert_eq!(only_job(&store).await.state, JobState::Skipped);
    assert!(matches!(
        store.run_stop(run, "admin").await,
        Err(StoreError::Conflict(_))
    ));
    store.run_create(&new_run(&[node])).await.unwrap();
}

#[tokio::test]
async fn a_program_that_finds_nothing_to_do_does_not_bury_other_runs() {
    let (_database, store) = store().await;
    let (node, _) = drifted_node(&store).await;
    let worked = store.run_create(&new_run(&[node])).await.unwrap();
    store.run_stop(worked, "admin").await.unwrap();
    let mut nothing = new_run(&[]);
    nothing.requested_by = "cron".into();
    store.run_create(&nothing).await.unwrap();
    let newest = store.run_create(&nothing).await.unwrap();
    let runs = store.run_list(None, 10).await.unwrap();
    let ids: Vec<_> = runs.iter().map(|run| run.id).collect();
    assert_eq!(ids, [newest, worked]);
}

#[tokio::test]
async fn a_job_is_given_out_once_and_pulled_as_often_as_an_answer_is_lost() {
    let (_database, store) = store().await;
    let (node, _) = drifted_node(&store).await;
    assert_eq!(store.job_pull(node).await.unwrap(), None);
    assert_eq!(store.job_outlook(node).await.unwrap(), (false, false));
    let job = issued_job(&store, node).await;
    assert!(!store.job_issue(job, &[step()], &signed()).await.unwrap(), "twice");
    assert_eq!(store.job_outlook(node).await.unwrap(), (true, true));
    for _ in 0..2 {
        assert_eq!(store.job_pull(node).await.unwrap(), Some((job, signed())));
        assert_eq!(only_job(&store).await.state, JobState::Working);
    }
    assert_eq!(store.job_outlook(node).await.unwrap(), (false, true));
    assert_eq!(store.job_begun_last_hour().await.unwrap()["default"], 1);
    assert!(
        store
            .job_finish(NodeId::new(), job, &JobOutcome::Ran { steps: vec![] })
            .await
            .is_err()
    );
    let outcome = JobOutcome::Ran { steps: vec![] };
    assert_eq!(
        store.job_finish(node, job, &outcome).await.unwrap(),
        Some(JobState::Checking)
    );
    assert_eq!(store.job_finish(node, job, &outcome).await.unwrap(), None);
}

#[tokio::test]
async fn only_a_complete_scan_after_the_job_proves_it() {
    let (_database, store) = store().await;
    let (node, baseline) = drifted_node(&store).await;
    let job = issued_job(&store, node).await;
    store.job_pull(node).await.unwrap();
    store
        .job_finish(node, job, &JobOutcome::Ran { steps: vec![] })
        .await
        .unwrap();

    // A scan from before the job, and one that did not reach its end.
    store.report_store(node, &full(baseline, 2, &[]), medium).await.unwrap();
    assert_eq!(only_job(&store).await.state, JobState::Checking);
    let mut incomplete = full(baseline, 3, &[]);
    incomplete.after_job = Some(job);
    incomplete.scan.complete = false;
    store.report_store(node, &incomplete, medium).await.unwrap();
    assert_eq!(only_job(&store).await.state, JobState::Checking);

    let mut proof = full(baseline, 4, &[]);
    proof.after_job = Some(job);
    store.report_store(node, &proof, medium).await.unwrap();
    let record = only_job(&store).await;
    assert_eq!((record.state, record.left_count), (JobState::Done, Some(0)));
    assert!(store.run_finish(record.run_id, "all done").await.unwrap());
    let run = store.run_get(record.run_id).await.unwrap();
    assert_eq!((run.state.as_str(), run.left, run.nodes["done"]), ("finished", 0, 1));
}

#[tokio::test]
async fn what_is_still_there_after_the_job_is_left_and_the_history_says_what_closed_the_rest() {
    let (_database, store) = store().await;
    let (node, baseline) = installed_node(&store).await;
    let findings = [file("/a", "0600"), file("/b", "0600")];
    store
        .report_store(node, &full(baseline, 1, &findings), medium)
        .await
        .unwrap();
    let job = issued_job(&store, node).await;
    let mut proof = full(baseline, 2, &findings[..1]);
    proof.after_job = Some(job);
    store.report_store(node, &proof, medium).await.unwrap();
    let record = only_job(&store).await;
    assert_eq!((record.state, record.left_count), (JobState::Left, Some(1)));
    let history = store.finding_history(Some(node), None).await.unwrap();
    assert_eq!((history[0].event.as_str(), history[0].key.as_str()), ("closed", "/b"));
    assert_eq!(history[0].cause, format!("remediation job {job}"));
    assert_eq!(history[2].cause, "scan");
}

#[tokio::test]
async fn a_report_cannot_prove_the_job_of_another_node() {
    let (_database, store) = store().await;
    let (node, _) = drifted_node(&store).await;
    issued_job(&store, node).await;
    let job = only_job(&store).await.id;
    let (other, baseline) = super::reports::installed_node_named(&store, "gpu-002", "52:54:00:aa:00:02").await;
    let mut forged = full(baseline, 1, &[]);
    forged.after_job = Some(job);
    store.report_store(other, &forged, medium).await.unwrap();
    assert_eq!(only_job(&store).await.state, JobState::Issued);
}

#[tokio::test]
async fn a_release_is_for_one_group_of_nodes_and_ends() {
    let (_database, store) = store().await;
    let (_, _) = drifted_node(&store).await;
    let finding = file("/a", "0600").group();
    let hour = OffsetDateTime::now_utc() + Duration::hours(1);
    assert!(
        store
            .release_create("login", finding, "looked", "admin", hour)
            .await
            .is_err()
    );
    store
        .release_create("default", finding, "looked", "admin", hour)
        .await
        .unwrap();
    assert!(
        store
            .release_set()
            .await
            .unwrap()
            .contains(&("default".to_owned(), finding))
    );
    let past = OffsetDateTime::now_utc() - Duration::hours(1);
    let (_database, store) = super::store().await;
    drifted_node(&store).await;
    store
        .release_create("default", finding, "looked", "admin", past)
        .await
        .unwrap();
    assert!(store.release_set().await.unwrap().is_empty());
}

#[tokio::test]
async fn changes_are_heard_of() {
    let (_database, store) = store().await;
    let mut listener = store.notice_listen().await.unwrap();
    let (node, _) = drifted_node(&store).await;
    let mut heard = std::collections::BTreeSet::new();
    while !heard.contains(&("drift".to_owned(), Some(node.to_string()))) {
        let notice = tokio::time::timeout(std::time::Duration::from_secs(20), listener.next());
        let notice = notice.await.expect("a notice in time").unwrap().expect("no gap");
        heard.insert((notice.topic, notice.id));
    }
    assert!(
        heard.contains(&("node".to_owned(), Some(node.to_string()))),
        "{heard:?}"
    );
}
