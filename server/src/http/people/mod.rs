//! The people's interface: the HTTP API under `/api/v1`, for the command line, the web interface and scripts.
//!
//! Whoever is signed in may read; only an admin changes anything. Bodies are JSON of at most 1 MiB, unknown fields are
//! refused, and every error is a JSON object with the reason.
//!
//! The OpenAPI document comes from the same routes that answer; a test walks it and asks each route without a token and
//! as a viewer, so that a route cannot be added and left open.

mod boot_orders;
mod builds;
mod channels;
mod deployments;
mod discovery;
mod drift;
mod events;
mod extract;
mod health;
mod identity;
mod images;
mod keys;
mod nodes;
mod overview;
mod rack_plan;
mod remediation;
mod rules;
mod session;
mod users;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRef, OriginalUri};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, InfoBuilder, OpenApi, OpenApiBuilder};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::auth::SignInGuard;
use crate::app::{App, AppError};
use crate::http::listener::Connections;
use crate::http::web;
use extract::Rejected;

/// Browsers keep some connections open each, and one for events.
pub const CONNECTIONS: Connections = Connections {
    name: "people",
    open_max: 4_096,
    head_limit: Duration::from_secs(60),
    stall_limit: None,
    title_case: false,
};

/// Largest body of a request, in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Requests for events that wait at the same time; the next one is answered at once.
const WAITERS_MAX: usize = 256;
/// Pages that hear of changes at the same time.
const STREAMS_MAX: usize = 512;
/// Images that are checked, and tidyings of the store, at the same time: each reads gigabytes.
const VERIFIES_MAX: usize = 1;

/// What the handlers share beside the application.
#[derive(Clone)]
struct People {
    app: App,
    limits: Arc<Limits>,
}

/// Bounds on what people can ask for at the same time.
struct Limits {
    sign_ins: SignInGuard,
    waiters: Semaphore,
    verifies: Semaphore,
    streams: Arc<Semaphore>,
}

impl FromRef<People> for App {
    fn from_ref(people: &People) -> Self {
        people.app.clone()
    }
}

impl FromRef<People> for Arc<Limits> {
    fn from_ref(people: &People) -> Self {
        people.limits.clone()
    }
}

/// All routes of the people's listener.
pub fn router(app: App) -> Router {
    let limits = Limits {
        sign_ins: SignInGuard::default(),
        waiters: Semaphore::new(WAITERS_MAX),
        verifies: Semaphore::new(VERIFIES_MAX),
        streams: Arc::new(Semaphore::new(STREAMS_MAX)),
    };
    let people = People {
        app,
        limits: Arc::new(limits),
    };
    let (router, _) = routes().split_for_parts();
    router
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(web_or_not_found)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(people)
}

/// The description of all routes, as served and as kept in `docs/openapi.json`.
pub fn openapi() -> OpenApi {
    routes().into_openapi()
}

fn routes() -> OpenApiRouter<People> {
    let api = OpenApiRouter::new()
        .routes(routes!(
            session::session_create,
            session::session_get,
            session::session_delete
        ))
        .routes(routes!(users::user_create))
        .routes(routes!(users::user_set_password))
        .routes(routes!(users::user_token_create))
        .routes(routes!(nodes::node_list, nodes::node_create))
        .routes(routes!(nodes::node_get, nodes::node_change, nodes::node_delete))
        .routes(routes!(nodes::node_approve))
        .routes(routes!(nodes::node_release))
        .routes(routes!(nodes::node_hold, nodes::node_let_go))
        .routes(routes!(
            boot_orders::node_boot,
            boot_orders::node_boot_order,
            boot_orders::node_boot_lift
        ))
        .routes(routes!(boot_orders::node_burn_ins))
        .routes(routes!(boot_orders::node_restart))
        .routes(routes!(nodes::node_drift))
        .routes(routes!(drift::node_drift_history))
        .routes(routes!(events::node_events))
        .routes(routes!(events::node_why))
        .routes(routes!(events::node_packets))
        .routes(routes!(deployments::node_deployments, deployments::node_deploy))
        .routes(routes!(deployments::deployment_get))
        .routes(routes!(discovery::sighting_list))
        .routes(routes!(discovery::dhcp_server_list))
        .routes(routes!(rules::rules_get, rules::rules_apply))
        .routes(routes!(rack_plan::rack_plan_list, rack_plan::rack_plan_import))
        .routes(routes!(
            discovery::discovery_list,
            discovery::discovery_arm,
            discovery::discovery_disarm
        ))
        .routes(routes!(channels::channel_list))
        .routes(routes!(
            channels::channel_get,
            channels::channel_set,
            channels::channel_remove
        ))
        .routes(routes!(channels::channel_back))
        .routes(routes!(channels::channel_history))
        .routes(routes!(channels::group_image_list))
        .routes(routes!(channels::group_image_set))
        .routes(routes!(images::image_list))
        .routes(routes!(images::image_get, images::image_remove))
        .routes(routes!(images::image_verify))
        .routes(routes!(keys::image_revoke))
        .routes(routes!(images::image_collect))
        .routes(routes!(images::image_sbom))
        .routes(routes!(images::image_diff))
        .routes(routes!(images::image_diff_text))
        .routes(routes!(keys::key_list, keys::key_add))
        .routes(routes!(keys::key_rotate))
        .routes(routes!(keys::key_retire))
        .routes(routes!(keys::key_revoke))
        .routes(routes!(images::image_facts))
        .routes(routes!(builds::recipe_list))
        .routes(routes!(builds::build_list, builds::build_start))
        .routes(routes!(builds::build_get))
        .routes(routes!(builds::build_log))
        .routes(routes!(builds::build_cancel))
        .routes(routes!(drift::drift_groups))
        .routes(routes!(drift::drift_variants))
        .routes(routes!(drift::drift_diff))
        .routes(routes!(drift::drift_history))
        .routes(routes!(drift::review_create))
        .routes(routes!(drift::review_list))
        .routes(routes!(drift::review_end))
        .routes(routes!(remediation::remediation_plan))
        .routes(routes!(remediation::remediation_list, remediation::remediation_begin))
        .routes(routes!(remediation::remediation_get))
        .routes(routes!(remediation::remediation_stop))
        .routes(routes!(remediation::release_list, remediation::release_create))
        .routes(routes!(overview::overview_get))
        .routes(routes!(overview::audit_list))
        .routes(routes!(overview::stream_get))
        .routes(routes!(health::openapi_json))
        .fallback(not_found);
    OpenApiRouter::with_openapi(description())
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .nest("/api/v1", api)
}

fn description() -> OpenApi {
    let mut components = Components::new();
    components.add_security_scheme(
        "token",
        SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build()),
    );
    OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Plumbline")
                .version("1")
                .description(Some(
                    "Bare-metal provisioning and drift detection. Errors are `{\"error\": \"reason\"}`. Whoever is \
                     signed in may read; changing anything takes the role admin.",
                ))
                .build(),
        )
        .components(Some(components))
        .security(Some([SecurityRequirement::new("token", Vec::<String>::new())]))
        .build()
}

async fn not_found(OriginalUri(uri): OriginalUri) -> AppError {
    AppError::NotFound {
        what: "route".to_owned(),
        key: uri.path().chars().take(200).collect(),
    }
}

/// What is no route of the API is the dashboard's, when a browser asks.
async fn web_or_not_found(method: Method, uri: OriginalUri, headers: HeaderMap) -> Response {
    match web::answer(&web::EmbeddedFiles, &method, uri.path(), &headers) {
        Some(response) => response,
        None => not_found(uri).await.into_response(),
    }
}

async fn method_not_allowed(method: Method, OriginalUri(uri): OriginalUri) -> Response {
    let path: String = uri.path().chars().take(200).collect();
    Rejected::new(StatusCode::METHOD_NOT_ALLOWED, format!("{path} has no method {method}")).into_response()
}
