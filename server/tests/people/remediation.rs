//! Remediation over the API: the plan, a run to its proof, and what holds it back.

use axum::http::{Method, StatusCode};
use manifest::Signature;
use protocol::latest::{Baseline, Job, JobOutcome, StepOutcome, StepResult};
use serde_json::{Value, json};

use super::Server;
use super::drift::{changed_file, store_report};
use super::support::report;

async fn drifted_node(server: &Server, number: u32, path: &str) -> Baseline {
    let (name, mac) = (format!("n{number:02}"), format!("52:54:00:aa:00:{number:02x}"));
    let (node, baseline) = server.installed_node(&name, &mac).await;
    server.heartbeat(&baseline).await;
    store_report(server, &baseline, &report(&baseline, 1, vec![changed_file(path)])).await;
    server.app.store.deployment_verify(node, 1, 0).await.unwrap();
    baseline
}

async fn run_state(server: &Server, id: &str) -> Value {
    server.get(&format!("/api/v1/remediation/runs/{id}")).await.body
}

#[tokio::test]
async fn a_run_ends_with_a_fresh_scan_as_its_proof() {
    let server = Server::start().await;
    let baseline = drifted_node(&server, 1, "/etc/motd").await;
    let plan = server.get("/api/v1/remediation/plan").await;
    assert_eq!(plan.body["findings"], 1, "{plan:?}");
    assert_eq!(plan.body["nodes"][0]["steps"][0]["verb"]["verb"], "restore_file");
    assert!(!server.heartbeat(&baseline).await.job_waiting, "a plan changes nothing");

    let begun = server.post("/api/v1/remediation/runs", json!({})).await;
    assert_eq!(begun.status, StatusCode::CREATED, "{begun:?}");
    let id = begun.body["id"].as_str().unwrap().to_owned();
    let second = server.post("/api/v1/remediation/runs", json!({})).await;
    assert_eq!(second.status, StatusCode::CONFLICT);
    assert!(
        second.error().contains(&id) && second.error().contains("admin"),
        "{second:?}"
    );

    plumbline::app::remediation::advance(server.app.clone()).await.unwrap();
    assert!(server.heartbeat(&baseline).await.job_waiting);
    let node = baseline.node_id;
    let signed = plumbline::app::remediation::pull(&server.app, node)
        .await
        .unwrap()
        .unwrap();
    let key = server.app.keys.job.public();
    key.verify(signed.job.as_bytes(), &Signature::from_text(signed.signature.clone()))
        .unwrap();
    let job: Job = serde_json::from_str(&signed.job).unwrap();
    assert_eq!((job.node_id, job.baseline, job.steps.len()), (node, baseline.digest, 1));

    let outcome = JobOutcome::Ran {
        steps: vec![StepResult {
            group: job.steps[0].group,
            outcome: StepOutcome::Done {
                detail: "mode 0644".into(),
            },
        }],
    };
    plumbline::app::remediation::outcome(&server.app, node, job.job_id, &outcome)
        .await
        .unwrap();
    plumbline::app::remediation::advance(server.app.clone()).await.unwrap();
    let run = run_state(&server, &id).await;
    assert_eq!(
        (&run["state"], &run["jobs"][0]["state"]),
        (&json!("running"), &json!("checking")),
        "{run}"
    );

    let mut proof = report(&baseline, 2, Vec::new());
    proof.after_job = Some(job.job_id);
    store_report(&server, &baseline, &proof).await;
    server
        .advance_until("the end of the run", async || {
            run_state(&server, &id).await["state"] == "finished"
        })
        .await;
    let run = run_state(&server, &id).await;
    assert_eq!(
        (&run["jobs"][0]["state"], &run["left"]),
        (&json!("done"), &json!(0)),
        "{run}"
    );
    let history = server.get("/api/v1/nodes/n01/drift/history").await;
    assert_eq!(history.body[0]["cause"], format!("remediation job {}", job.job_id));
    assert_eq!(server.get("/api/v1/remediation/plan").await.body["findings"], 0);
}

#[tokio::test]
async fn a_finding_on_much_of_a_group_is_held_until_a_person_releases_it() {
    let server = Server::start().await;
    for number in 1..=10 {
        let path = if number <= 3 {
            "/etc/chrony/chrony.conf"
        } else {
            "/etc/motd"
        };
        let path = if number == 10 { "/etc/issue" } else { path };
        drifted_node(&server, number, path).await;
    }
    let plan = server.get("/api/v1/remediation/plan").await.body;
    assert_eq!(
        (&plan["findings"], &plan["held_findings"]),
        (&json!(1), &json!(9)),
        "{plan}"
    );
    assert_eq!(plan["held"][0]["why"], "baseline_suspect");
    assert_eq!(plan["at_once"]["default"], 1);

    let chrony = plan["held"]
        .as_array()
        .unwrap()
        .iter()
        .find(|held| held["nodes"] == 3)
        .unwrap();
    let release = json!({ "node_group": "default", "group": chrony["group"], "reason": "the old mirror is gone" });
    let as_viewer = server
        .ask(
            Method::POST,
            "/api/v1/remediation/releases",
            Some(&server.viewer),
            Some(&release),
        )
        .await;
    assert_eq!(as_viewer.status, StatusCode::FORBIDDEN);
    let released = server.post("/api/v1/remediation/releases", release).await;
    assert_eq!(released.status, StatusCode::NO_CONTENT, "{released:?}");
    let plan = server.get("/api/v1/remediation/plan").await.body;
    assert_eq!(
        (&plan["findings"], &plan["held_findings"]),
        (&json!(4), &json!(6)),
        "{plan}"
    );

    // One of ten at once, and the rest waits.
    let begun = server.post("/api/v1/remediation/runs", json!({})).await;
    let id = begun.body["id"].as_str().unwrap().to_owned();
    for _ in 0..3 {
        plumbline::app::remediation::advance(server.app.clone()).await.unwrap();
    }
    let run = run_state(&server, &id).await;
    assert_eq!(run["nodes"], json!({ "issued": 1, "waiting": 3 }), "{run}");
    let path = format!("/api/v1/remediation/runs/{id}/stop");
    let stopped = server.ask(Method::POST, &path, Some(&server.admin), None).await;
    assert_eq!(
        stopped.body["nodes"],
        json!({ "issued": 1, "skipped": 3 }),
        "{stopped:?}"
    );
}

#[tokio::test]
async fn what_is_decided_after_the_run_began_still_counts() {
    let server = Server::start().await;
    for number in 1..=2 {
        drifted_node(&server, number, "/etc/motd").await;
    }
    let begun = server.post("/api/v1/remediation/runs", json!({})).await;
    let id = begun.body["id"].as_str().unwrap().to_owned();
    for (number, reason) in [(1, "a vendor looks at it"), (2, "a vendor looks at it")] {
        let path = format!("/api/v1/nodes/n{number:02}/hold");
        let body = json!({ "reason": reason });
        let held = server.ask(Method::PUT, &path, Some(&server.admin), Some(&body)).await;
        assert_eq!(held.body["hold"]["by"], "admin", "{held:?}");
    }
    server
        .advance_until("the end of the run", async || {
            run_state(&server, &id).await["state"] == "finished"
        })
        .await;
    let run = run_state(&server, &id).await;
    assert_eq!(run["nodes"], json!({ "skipped": 2 }), "{run}");
    assert!(
        run["jobs"][0]["reason"]
            .as_str()
            .unwrap()
            .contains("a vendor looks at it"),
        "{run}"
    );
}

#[tokio::test]
async fn a_selection_of_what_there_is_not_is_refused() {
    let server = Server::start().await;
    for (query, words) in [
        ("nodes=nobody", "nobody"),
        ("node_groups=none", "node group"),
        ("findings=xyz", "findings"),
        ("finding=aa", "finding"),
    ] {
        let answer = server.get(&format!("/api/v1/remediation/plan?{query}")).await;
        assert!(answer.status.is_client_error(), "{query}: {answer:?}");
        assert!(answer.error().contains(words), "{query}: {answer:?}");
    }
}
