//! Nodes.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use lifecycle::Chain;
use protocol::latest::DiskRule;
use serde::Deserialize;
use store::{DeploymentRecord, NodeChange};

use super::extract::{Body, Named};
use super::identity::{Admin, Viewer};
use crate::app::drift::{self, NodeDrift};
use crate::app::leases;
use crate::app::nodes::{self, NodeView};
use crate::app::{App, AppError};
use crate::http::error::ErrorBody;

/// A node of the rack plan.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewNode {
    /// Name, also the hostname: an RFC 1123 label in lower case.
    name: String,
    /// MAC of the interface it boots from.
    mac: String,
}

/// What changes of a node; what is left out stays.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeChanges {
    /// Name, also the hostname: an RFC 1123 label in lower case.
    name: Option<String>,
    /// Node group.
    group: Option<String>,
    /// Rack; empty: none.
    rack: Option<String>,
    /// Height unit in the rack, 1 to 100; 0: unknown.
    unit: Option<i32>,
    /// Which boot loader it gets: `auto` (what its group or the site says), `ipxe`, `grub` or `http`.
    #[schema(value_type = Option<String>)]
    chain: Option<Chain>,
    /// The IPv4 address that its boot interface gets in DHCP mode `full`; empty: one from the pool.
    address: Option<String>,
}

/// Why a node is held back.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewHold {
    /// For whoever wonders.
    reason: String,
}

/// What a node becomes.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Approval {
    /// Name, also the hostname: an RFC 1123 label in lower case.
    name: String,
    /// Image: a channel (`name/stable`), `name` (its newest version), `name@version`, or a digest's beginning; left out:
    /// what its discovery rule, else what its group says.
    image: Option<String>,
    /// Which disk; needed when the node has several.
    #[serde(default)]
    disk: DiskRule,
    /// Node group; left out: it stays in the one it is in, at first `default`.
    group: Option<String>,
    /// Rack.
    rack: Option<String>,
    /// Height unit in the rack, 1 to 100.
    unit: Option<i32>,
    /// Why it is to be installed although it did not pass its burn-in.
    despite_burn_in: Option<String>,
}

/// Lists all nodes, by name.
#[utoipa::path(get, path = "/nodes", tag = "nodes",
    responses((status = 200, body = Vec<NodeView>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_list(_viewer: Viewer, State(app): State<App>) -> Result<Json<Vec<NodeView>>, AppError> {
    Ok(Json(nodes::node_list(&app).await?))
}

/// Adds a node of the rack plan: it is answered when it boots.
#[utoipa::path(post, path = "/nodes", tag = "nodes", request_body = NewNode,
    responses((status = 201, body = NodeView), (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_create(
    Admin(user): Admin,
    State(app): State<App>,
    Body(new): Body<NewNode>,
) -> Result<(StatusCode, Json<NodeView>), AppError> {
    let node = nodes::node_add(&app, &new.name, &new.mac, &user.name).await?;
    Ok((StatusCode::CREATED, Json(node)))
}

/// Shows one node.
#[utoipa::path(get, path = "/nodes/{node}", tag = "nodes",
    params(("node" = String, Path, description = "Id, name or MAC.")),
    responses((status = 200, body = NodeView), (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_get(
    _viewer: Viewer,
    State(app): State<App>,
    Named(node): Named<String>,
) -> Result<Json<NodeView>, AppError> {
    let node = nodes::node_find(&app, &node).await?;
    Ok(Json(nodes::node_get(&app, node).await?))
}

/// Renames a node or says where it belongs. The hostname on its disk changes with the next installation.
#[utoipa::path(patch, path = "/nodes/{node}", tag = "nodes", request_body = NodeChanges,
    params(("node" = String, Path, description = "Id, name or MAC.")),
    responses((status = 200, body = NodeView), (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_change(
    Admin(user): Admin,
    State(app): State<App>,
    Named(node): Named<String>,
    Body(changes): Body<NodeChanges>,
) -> Result<Json<NodeView>, AppError> {
    let node = nodes::node_find(&app, &node).await?;
    let NodeChanges {
        name,
        group,
        rack,
        unit,
        chain,
        address,
    } = changes;
    if group.is_some() || rack.is_some() || unit.is_some() || chain.is_some() {
        let change = NodeChange {
            group,
            rack,
            unit,
            chain,
        };
        nodes::node_place(&app, node, change, &user.name).await?;
    }
    if let Some(address) = address {
        let address =
            match address.as_str() {
                "" => None,
                text => Some(text.parse().map_err(|_| {
                    AppError::Invalid(format!("address {text:?}: expected an IPv4 address, or nothing"))
                })?),
            };
        leases::fixed_address_set(&app, node, address, &user.name).await?;
    }
    Ok(Json(match name {
        Some(name) => nodes::node_rename(&app, node, &name, &user.name).await?,
        None => nodes::node_get(&app, node).await?,
    }))
}

/// Holds a node back from remediation.
#[utoipa::path(put, path = "/nodes/{node}/hold", tag = "nodes", request_body = NewHold,
    params(("node" = String, Path, description = "Id, name or MAC.")),
    responses((status = 200, body = NodeView), (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_hold(
    Admin(user): Admin,
    State(app): State<App>,
    Named(node): Named<String>,
    Body(hold): Body<NewHold>,
) -> Result<Json<NodeView>, AppError> {
    let node = nodes::node_find(&app, &node).await?;
    Ok(Json(
        nodes::node_hold(&app, node, Some(&hold.reason), &user.name).await?,
    ))
}

/// Lets a node that was held be repaired again.
#[utoipa::path(delete, path = "/nodes/{node}/hold", tag = "nodes",
    params(("node" = String, Path, description = "Id, name or MAC.")),
    responses((status = 200, body = NodeView), (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_let_go(
    Admin(user): Admin,
    State(app): State<App>,
    Named(node): Named<String>,
) -> Result<Json<NodeView>, AppError> {
    let node = nodes::node_find(&app, &node).await?;
    Ok(Json(nodes::node_hold(&app, node, None, &user.name).await?))
}

/// Forgets a node and everything recorded of it. What is on its disk stays.
#[utoipa::path(delete, path = "/nodes/{node}", tag = "nodes",
    params(("node" = String, Path, description = "Id, name or MAC.")),
    responses((status = 204), (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_delete(
    Admin(user): Admin,
    State(app): State<App>,
    Named(node): Named<String>,
) -> Result<StatusCode, AppError> {
    let node = nodes::node_find(&app, &node).await?;
    nodes::node_remove(&app, node, &user.name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Says what a node becomes: names it and asks for its first deployment.
#[utoipa::path(post, path = "/nodes/{node}/approve", tag = "nodes", request_body = Approval,
    params(("node" = String, Path, description = "Id, name or MAC.")),
    responses((status = 201, body = DeploymentRecord), (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_approve(
    Admin(user): Admin,
    State(app): State<App>,
    Named(node): Named<String>,
    Body(approval): Body<Approval>,
) -> Result<(StatusCode, Json<DeploymentRecord>), AppError> {
    let node = nodes::node_find(&app, &node).await?;
    let Approval {
        name,
        image,
        disk,
        group,
        rack,
        unit,
        despite_burn_in,
    } = approval;
    if group.is_some() || rack.is_some() || unit.is_some() {
        let change = NodeChange {
            group,
            rack,
            unit,
            chain: None,
        };
        nodes::node_place(&app, node, change, &user.name).await?;
    }
    let despite = despite_burn_in.as_deref();
    let deployment = nodes::node_approve(&app, node, &name, image.as_deref(), disk, despite, &user.name).await?;
    Ok((StatusCode::CREATED, Json(app.store.deployment_get(deployment).await?)))
}

/// Lets a quarantined node go on, once a person has looked at why it is.
#[utoipa::path(post, path = "/nodes/{node}/release", tag = "nodes",
    params(("node" = String, Path, description = "Id, name or MAC.")),
    responses((status = 200, body = NodeView), (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_release(
    Admin(user): Admin,
    State(app): State<App>,
    Named(node): Named<String>,
) -> Result<Json<NodeView>, AppError> {
    let node = nodes::node_find(&app, &node).await?;
    Ok(Json(nodes::node_release(&app, node, &user.name).await?))
}

/// Says what is known of a node's drift. "clean" is only said when everything was looked at.
#[utoipa::path(get, path = "/nodes/{node}/drift", tag = "drift",
    params(("node" = String, Path, description = "Id, name or MAC.")),
    responses((status = 200, body = NodeDrift), (status = "4XX", body = ErrorBody)))]
pub(super) async fn node_drift(
    _viewer: Viewer,
    State(app): State<App>,
    Named(node): Named<String>,
) -> Result<Json<NodeDrift>, AppError> {
    let node = nodes::node_find(&app, &node).await?;
    Ok(Json(drift::node_drift(&app, node).await?))
}
