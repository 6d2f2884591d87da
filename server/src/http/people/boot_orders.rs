//! What a node boots, once, and restarts into the network.

use axum::Json;
use axum::extract::State;
use lifecycle::BootOrder;
use protocol::latest::TestKind;
use serde::Deserialize;
use store::BurnInRecord;

use super::extract::{Body, Named};
use super::identity::{Admin, Viewer};
use crate::app::boot_orders::{self, BootView, Wanted};
use crate::app::{App, AppError, burn_ins, nodes};
use crate::http::error::ErrorBody;

/// What a node is to boot.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewOrder {
    /// `rescue`: the deployer with a shell on its consoles and SSH; `commission`: the deployer in memory only, to take
    /// inventory again and burn the machine in; both for one boot. `hold`: nothing, until the order is lifted.
    #[schema(value_type = String, example = "rescue")]
    kind: BootOrder,
    /// For whoever wonders.
    reason: String,
    /// For `rescue`: the OpenSSH public key of whoever signs in.
    authorized_key: Option<String>,
    /// For `commission`: tests to run; none of them: inventory only. Left out: those of the configuration.
    tests: Option<Vec<WantedTest>>,
}

/// A test of a burn-in.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WantedTest {
    /// Which.
    kind: TestKind,
    /// For how long at most, in seconds; left out: as configured.
    limit_secs: Option<u32>,
}

/// Shows what a node boots besides what its state says.
#[utoipa::path(get, path = "/nodes/{node}/boot", tag = "nodes",
    params(("node" = String, Path, description = "Id, name or MAC.")),
    responses((status = 200, body = BootView), (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_boot(
    _viewer: Viewer,
    State(app): State<App>,
    Named(node): Named<String>,
) -> Result<Json<BootView>, AppError> {
    let node = nodes::node_find(&app, &node).await?;
    Ok(Json(boot_orders::show(&app, node).await?))
}

/// Orders what a node boots next. A machine that waits in the deployer takes it up at once.
#[utoipa::path(put, path = "/nodes/{node}/boot", tag = "nodes", request_body = NewOrder,
    params(("node" = String, Path, description = "Id, name or MAC.")),
    responses((status = 200, body = BootView), (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_boot_order(
    Admin(user): Admin,
    State(app): State<App>,
    Named(node): Named<String>,
    Body(new): Body<NewOrder>,
) -> Result<Json<BootView>, AppError> {
    let node = nodes::node_find(&app, &node).await?;
    let wanted = Wanted {
        kind: new.kind,
        reason: new.reason,
        authorized_key: new.authorized_key,
        tests: new
            .tests
            .map(|tests| tests.into_iter().map(|test| (test.kind, test.limit_secs)).collect()),
    };
    Ok(Json(boot_orders::order(&app, node, &wanted, &user.name).await?))
}

/// Lifts a node's order: it boots what its state says. A rescue system ends at once.
#[utoipa::path(delete, path = "/nodes/{node}/boot", tag = "nodes",
    params(("node" = String, Path, description = "Id, name or MAC.")),
    responses((status = 200, body = BootView), (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_boot_lift(
    Admin(user): Admin,
    State(app): State<App>,
    Named(node): Named<String>,
) -> Result<Json<BootView>, AppError> {
    let node = nodes::node_find(&app, &node).await?;
    Ok(Json(boot_orders::lift(&app, node, &user.name).await?))
}

/// Lists a node's burn-ins, newest first, at most 20.
#[utoipa::path(get, path = "/nodes/{node}/burn-ins", tag = "nodes",
    params(("node" = String, Path, description = "Id, name or MAC.")),
    responses((status = 200, body = Vec<BurnInRecord>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_burn_ins(
    _viewer: Viewer,
    State(app): State<App>,
    Named(node): Named<String>,
) -> Result<Json<Vec<BurnInRecord>>, AppError> {
    let node = nodes::node_find(&app, &node).await?;
    Ok(Json(burn_ins::list(&app, node).await?))
}

/// Restarts a running node into the network, by its agent.
#[utoipa::path(post, path = "/nodes/{node}/restart", tag = "nodes",
    params(("node" = String, Path, description = "Id, name or MAC.")),
    responses((status = 200, body = BootView), (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_restart(
    Admin(user): Admin,
    State(app): State<App>,
    Named(node): Named<String>,
) -> Result<Json<BootView>, AppError> {
    let node = nodes::node_find(&app, &node).await?;
    Ok(Json(boot_orders::restart(&app, node, &user.name).await?))
}
