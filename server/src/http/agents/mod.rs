//! The agents' listener: TLS with the appliance's own CA; all but the claim need a client certificate.

mod identity;
mod listener;

use std::time::Duration;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use manifest::Digest;
use protocol::latest::{
    Baseline, BurnInReply, Claim, ClaimReply, DriftReport, Heartbeat, HeartbeatReply, ImageTrust, Inventory,
    JobOutcome, Outcome, Progress, RenderReply, RenderRequest, ReportReply, RescueUp, SecretDigestKey, Task,
    TestProgress, TestResult, paths,
};
use protocol::limits;
use protocol::{BurnInId, DeploymentId, JobId};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::app::contents::{self, NodeContent};
use crate::app::{App, AppError, agents, boot_orders, burn_ins, enrol, remediation, trust};
use crate::http::error::ErrorBody;
use crate::http::listener::LocalAddress;

pub use identity::{Agent, Peer};
pub use listener::{ListenerError, serve};

/// The routes of the agents' listener.
pub fn router(app: App) -> Router {
    let deployments = paths::DEPLOYMENTS;
    let manifests = paths::MANIFESTS;
    Router::new()
        .route(paths::CLAIM, post(claim))
        .route(paths::INVENTORY, post(inventory))
        .route(paths::TASK, get(task))
        .route(paths::RESCUE, post(rescue_up))
        .route(&format!("{}/{{id}}/progress", paths::BURN_INS), post(test_progress))
        .route(&format!("{}/{{id}}/results", paths::BURN_INS), post(test_result))
        .route(&format!("{deployments}/{{id}}/progress"), post(progress))
        .route(&format!("{deployments}/{{id}}/render"), post(render))
        .route(&format!("{deployments}/{{id}}/outcome"), post(outcome))
        .route(paths::BASELINE, get(baseline))
        .route(&format!("{manifests}/{{digest}}"), get(manifest_bytes))
        .route(&format!("{manifests}/{{digest}}/signature"), get(manifest_signature))
        .route(paths::TRUST, get(image_trust))
        .route(paths::HEARTBEAT, post(heartbeat))
        .route(paths::JOBS, get(job))
        .route(&format!("{}/{{id}}/outcome", paths::JOBS), post(job_outcome))
        .route(
            &format!("{}/{{digest}}", paths::CONTENTS),
            get(content).put(content_keep),
        )
        .route(paths::SECRET_DIGEST_KEY, get(secret_digest_key))
        .layer(DefaultBodyLimit::max(limits::BODY_BYTES_MAX))
        .route(
            paths::REPORTS,
            post(report).layer(DefaultBodyLimit::max(limits::REPORT_BYTES_MAX)),
        )
        .fallback(|| async {
            (
                StatusCode::NOT_FOUND,
                Json(ErrorBody {
                    error: "no such route".to_owned(),
                }),
            )
        })
        .with_state(app)
}

/// A JSON body; what is wrong with one is answered as JSON too, and one over the limit with 413.
struct Body<T>(T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Response;

    async fn from_request(request: axum::extract::Request, state: &S) -> Result<Self, Response> {
        let rejected = |rejection: JsonRejection| {
            let body = ErrorBody {
                error: rejection.body_text(),
            };
            (rejection.status(), Json(body)).into_response()
        };
        Json::<T>::from_request(request, state)
            .await
            .map(|Json(value)| Self(value))
            .map_err(rejected)
    }
}

async fn claim(
    State(app): State<App>,
    Extension(peer): Extension<Peer>,
    Body(body): Body<Claim>,
) -> Result<Json<ClaimReply>, AppError> {
    enrol::claim(&app, &body, peer.address.ip()).await.map(Json)
}

async fn inventory(
    State(app): State<App>,
    ramdisk: enrol::Ramdisk,
    Body(body): Body<Inventory>,
) -> Result<StatusCode, AppError> {
    enrol::inventory(&app, &ramdisk, &body)
        .await
        .map(|()| StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
struct Wait {
    #[serde(default)]
    wait_secs: u64,
}

async fn task(
    State(app): State<App>,
    ramdisk: enrol::Ramdisk,
    Query(query): Query<Wait>,
) -> Result<Json<Task>, AppError> {
    let wait = Duration::from_secs(query.wait_secs.min(limits::TASK_WAIT_SECS_MAX));
    enrol::task(&app, &ramdisk, wait).await.map(Json)
}

async fn rescue_up(
    State(app): State<App>,
    Extension(peer): Extension<Peer>,
    ramdisk: enrol::Ramdisk,
    Body(body): Body<RescueUp>,
) -> Result<StatusCode, AppError> {
    boot_orders::rescue_up(&app, &ramdisk, &peer.address.ip().to_string(), &body)
        .await
        .map(|()| StatusCode::NO_CONTENT)
}

async fn test_progress(
    State(app): State<App>,
    ramdisk: enrol::Ramdisk,
    Path(id): Path<BurnInId>,
    Body(body): Body<TestProgress>,
) -> Result<Json<BurnInReply>, AppError> {
    burn_ins::progress(&app, &ramdisk, id, &body).await.map(Json)
}

async fn test_result(
    State(app): State<App>,
    ramdisk: enrol::Ramdisk,
    Path(id): Path<BurnInId>,
    Body(body): Body<TestResult>,
) -> Result<Json<BurnInReply>, AppError> {
    burn_ins::result(&app, &ramdisk, id, body).await.map(Json)
}

async fn progress(
    State(app): State<App>,
    ramdisk: enrol::Ramdisk,
    Path(id): Path<DeploymentId>,
    Body(body): Body<Progress>,
) -> Result<StatusCode, AppError> {
    enrol::progress(&app, &ramdisk, id, &body)
        .await
        .map(|()| StatusCode::NO_CONTENT)
}

async fn render(
    State(app): State<App>,
    LocalAddress(local): LocalAddress,
    ramdisk: enrol::Ramdisk,
    Path(id): Path<DeploymentId>,
    Body(body): Body<RenderRequest>,
) -> Result<Json<RenderReply>, AppError> {
    enrol::render(&app, &ramdisk, id, local, &body).await.map(Json)
}

async fn outcome(
    State(app): State<App>,
    ramdisk: enrol::Ramdisk,
    Path(id): Path<DeploymentId>,
    Body(body): Body<Outcome>,
) -> Result<StatusCode, AppError> {
    enrol::outcome(&app, &ramdisk, id, &body)
        .await
        .map(|()| StatusCode::NO_CONTENT)
}

async fn baseline(State(app): State<App>, agent: Agent) -> Result<Json<Baseline>, AppError> {
    agents::baseline(&app, agent.node).await.map(Json)
}

async fn manifest_bytes(State(app): State<App>, agent: Agent, Path(digest): Path<Digest>) -> Result<Vec<u8>, AppError> {
    agents::manifest(&app, agent.node, digest).await
}

async fn manifest_signature(
    State(app): State<App>,
    agent: Agent,
    Path(digest): Path<Digest>,
) -> Result<String, AppError> {
    agents::signature(&app, agent.node, digest).await
}

async fn image_trust(State(app): State<App>, agent: Agent) -> Result<Json<ImageTrust>, AppError> {
    trust::of_node(&app, agent.node).await.map(Json)
}

async fn heartbeat(
    State(app): State<App>,
    agent: Agent,
    Body(body): Body<Heartbeat>,
) -> Result<Json<HeartbeatReply>, AppError> {
    agents::heartbeat(&app, agent.node, &body).await.map(Json)
}

async fn report(
    State(app): State<App>,
    agent: Agent,
    Body(body): Body<DriftReport>,
) -> Result<Json<ReportReply>, AppError> {
    agents::report(&app, agent.node, &body).await.map(Json)
}

async fn job(State(app): State<App>, agent: Agent) -> Result<Response, AppError> {
    Ok(match remediation::pull(&app, agent.node).await? {
        Some(signed) => Json(signed).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

async fn job_outcome(
    State(app): State<App>,
    agent: Agent,
    Path(id): Path<JobId>,
    Body(body): Body<JobOutcome>,
) -> Result<StatusCode, AppError> {
    remediation::outcome(&app, agent.node, id, &body)
        .await
        .map(|()| StatusCode::NO_CONTENT)
}

async fn content(State(app): State<App>, agent: Agent, Path(digest): Path<Digest>) -> Result<Response, AppError> {
    Ok(match contents::of_baseline(&app, agent.node, digest).await? {
        NodeContent::Rendered(content) => content.into_response(),
        NodeContent::Stored(pieces) => axum::body::Body::from_stream(pieces).into_response(),
    })
}

async fn content_keep(
    State(app): State<App>,
    agent: Agent,
    Path(digest): Path<Digest>,
    body: axum::body::Bytes,
) -> Result<StatusCode, AppError> {
    contents::keep(&app, agent.node, digest, &body)
        .await
        .map(|()| StatusCode::NO_CONTENT)
}

async fn secret_digest_key(State(app): State<App>, _agent: Agent) -> Json<SecretDigestKey> {
    Json(SecretDigestKey {
        key: app.secret_digest_key.to_string(),
    })
}
