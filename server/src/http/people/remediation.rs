//! Remediation: the plan, runs, releases.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use manifest::Digest;
use protocol::RunId;
use serde::{Deserialize, Serialize};
use store::{JobFilter, JobRecord, ReleaseRecord, RunRecord};

use super::drift::{hash, id};
use super::extract::{Asked, Body, Named};
use super::identity::{Admin, Viewer};
use crate::app::remediation::{self, PlanView};
use crate::app::{App, AppError};
use crate::http::error::ErrorBody;

/// Runs in a list.
const RUNS_MAX: i64 = 200;

/// What to plan for: everything, unless something is named. Values are separated by commas.
#[derive(Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct PlanAsked {
    /// Nodes: ids, names or MACs.
    nodes: String,
    /// Node groups.
    node_groups: String,
    /// Finding groups: hashes.
    findings: String,
}

/// What to repair: everything, unless something is named.
#[derive(Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NewRun {
    /// Nodes: ids, names or MACs.
    nodes: Vec<String>,
    /// Node groups.
    node_groups: Vec<String>,
    /// Finding groups: hashes.
    findings: Vec<String>,
}

/// Lets a wide-spread finding be repaired in one group of nodes.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewRelease {
    /// Node group.
    node_group: String,
    /// Finding group.
    group: String,
    /// What somebody saw when looking.
    reason: String,
    /// For how many hours.
    #[serde(default = "release_hours")]
    hours: i64,
}

const fn release_hours() -> i64 {
    24
}

/// A run with its jobs.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct RunView {
    /// The run.
    #[serde(flatten)]
    run: RunRecord,
    /// One job a node.
    jobs: Vec<JobRecord>,
}

fn words(text: &str) -> Vec<String> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

fn asked(nodes: Vec<String>, node_groups: Vec<String>, findings: &[String]) -> Result<remediation::Asked, AppError> {
    let findings: Result<Vec<Digest>, AppError> = findings.iter().map(|text| hash("findings", text)).collect();
    Ok(remediation::Asked {
        nodes,
        node_groups,
        findings: findings?,
    })
}

/// Shows what a remediation would do now, and what it would leave and why. Nothing changes.
#[utoipa::path(get, path = "/remediation/plan", tag = "remediation", params(PlanAsked),
    responses((status = 200, body = PlanView), (status = "4XX", body = ErrorBody)))]
pub(super) async fn remediation_plan(
    _viewer: Viewer,
    State(app): State<App>,
    Asked(query): Asked<PlanAsked>,
) -> Result<Json<PlanView>, AppError> {
    let asked = asked(words(&query.nodes), words(&query.node_groups), &words(&query.findings))?;
    let selection = remediation::select(&app, asked).await?;
    Ok(Json(remediation::plan(&app, &selection).await?))
}

/// Begins a remediation. One at a time; it keeps to its limits and proves each repair by a fresh scan.
#[utoipa::path(post, path = "/remediation/runs", tag = "remediation", request_body = NewRun,
    responses((status = 201, body = RunRecord), (status = "4XX", body = ErrorBody)))]
pub(super) async fn remediation_begin(
    Admin(user): Admin,
    State(app): State<App>,
    Body(new): Body<NewRun>,
) -> Result<(StatusCode, Json<RunRecord>), AppError> {
    let asked = asked(new.nodes, new.node_groups, &new.findings)?;
    let selection = remediation::select(&app, asked).await?;
    Ok((
        StatusCode::CREATED,
        Json(remediation::begin(&app, selection, &user).await?),
    ))
}

/// Lists remediations, newest first.
#[utoipa::path(get, path = "/remediation/runs", tag = "remediation",
    responses((status = 200, body = Vec<RunRecord>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn remediation_list(
    _viewer: Viewer,
    State(app): State<App>,
) -> Result<Json<Vec<RunRecord>>, AppError> {
    Ok(Json(app.store.run_list(None, RUNS_MAX).await?))
}

/// Shows one remediation with its jobs.
#[utoipa::path(get, path = "/remediation/runs/{run}", tag = "remediation",
    params(("run" = String, Path, description = "Id.")),
    responses((status = 200, body = RunView), (status = "4XX", body = ErrorBody)))]
pub(super) async fn remediation_get(
    _viewer: Viewer,
    State(app): State<App>,
    Named(run): Named<String>,
) -> Result<Json<RunView>, AppError> {
    let run: RunId = id("run", &run)?;
    let filter = JobFilter {
        run: Some(run),
        ..JobFilter::default()
    };
    Ok(Json(RunView {
        run: app.store.run_get(run).await?,
        jobs: app.store.job_list(filter).await?,
    }))
}

/// Stops a remediation: no further node is begun; jobs that are out come to their end.
#[utoipa::path(post, path = "/remediation/runs/{run}/stop", tag = "remediation",
    params(("run" = String, Path, description = "Id.")),
    responses((status = 200, body = RunRecord), (status = "4XX", body = ErrorBody)))]
pub(super) async fn remediation_stop(
    Admin(user): Admin,
    State(app): State<App>,
    Named(run): Named<String>,
) -> Result<Json<RunRecord>, AppError> {
    Ok(Json(remediation::stop(&app, id("run", &run)?, &user).await?))
}

/// Lists wide-spread findings that somebody released, as long as the release holds.
#[utoipa::path(get, path = "/remediation/releases", tag = "remediation",
    responses((status = 200, body = Vec<ReleaseRecord>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn release_list(
    _viewer: Viewer,
    State(app): State<App>,
) -> Result<Json<Vec<ReleaseRecord>>, AppError> {
    Ok(Json(app.store.release_list().await?))
}

/// Releases a wide-spread finding in one group of nodes: somebody has looked, and the baseline is right.
#[utoipa::path(post, path = "/remediation/releases", tag = "remediation", request_body = NewRelease,
    responses((status = 204), (status = "4XX", body = ErrorBody)))]
pub(super) async fn release_create(
    Admin(user): Admin,
    State(app): State<App>,
    Body(new): Body<NewRelease>,
) -> Result<StatusCode, AppError> {
    let group = hash("group", &new.group)?;
    remediation::release(&app, &new.node_group, group, &new.reason, new.hours, &user).await?;
    Ok(StatusCode::NO_CONTENT)
}
