//! Nodes as people handle them: added by plan, approved, renamed, released, removed.

use std::collections::HashMap;

use lifecycle::burn_in::Standing;
use lifecycle::placement::{self, Mismatch};
use lifecycle::plan::{PlanLine, UNIT_MAX};
use lifecycle::{NodeState, Observed, Step};
use netboot::MacAddr;
use protocol::latest::DiskRule;
use protocol::{DeploymentId, NodeId};
use serde::Serialize;
use store::{NewEvent, NodeChange, NodeRecord, StoreError};
use time::OffsetDateTime;

use super::deployments::OldDisk;
use super::drift::{self, Verdict};
use super::{App, AppError, burn_ins, deployments, reviews};

/// A node with what follows from its record.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct NodeView {
    /// The record.
    #[serde(flatten)]
    pub record: NodeRecord,
    /// What is known of its drift.
    pub drift: Verdict,
    /// Why that is so, for people.
    pub drift_reason: String,
    /// It has been in its state for longer than the state should take.
    pub overdue: bool,
    /// Its line of the rack plan.
    pub plan: Option<PlanLine>,
    /// Where plan and reality differ.
    pub mismatches: Vec<Mismatch>,
    /// Where its newest burn-in stands.
    pub burn_in: Standing,
    /// Why, for people.
    pub burn_in_reason: String,
}

impl NodeView {
    /// Judges a record as of `now`.
    #[must_use]
    pub fn new(record: NodeRecord, now: OffsetDateTime) -> Self {
        let (drift, drift_reason) = drift::verdict(&drift::Evidence::of_node(&record, now));
        let allowance = record.state.allowance();
        let overdue = allowance.is_some_and(|allowance| now - record.state_since > allowance);
        Self {
            record,
            drift,
            drift_reason,
            overdue,
            plan: None,
            mismatches: Vec::new(),
            burn_in: Standing::None,
            burn_in_reason: Standing::of(None).1,
        }
    }

    /// Adds what is known beside its record.
    fn placed(mut self, beside: &mut Beside) -> Self {
        self.plan = beside.plans.remove(&self.record.id);
        self.mismatches = beside.mismatches.remove(&self.record.id).unwrap_or_default();
        if let Some((standing, reason)) = beside.burn_ins.remove(&self.record.id) {
            (self.burn_in, self.burn_in_reason) = (standing, reason);
        }
        self
    }
}

/// What is known of nodes beside their records: lines of the plan, what does not fit them, burn-ins.
struct Beside {
    plans: HashMap<NodeId, PlanLine>,
    mismatches: HashMap<NodeId, Vec<Mismatch>>,
    burn_ins: HashMap<NodeId, (Standing, String)>,
}

/// Compares all nodes, or one, with the plan.
async fn beside(app: &App, only: Option<NodeId>) -> Result<Beside, AppError> {
    let evidence = app.store.placement_evidence(only).await?;
    Ok(Beside {
        mismatches: placement::mismatches(&evidence),
        burn_ins: app.store.burn_in_standings(only).await?,
        plans: evidence
            .into_iter()
            .filter_map(|one| Some((one.node, one.plan?)))
            .collect(),
    })
}

/// All nodes, by name.
///
/// # Errors
/// [`AppError::Internal`] when the database fails.
pub async fn node_list(app: &App) -> Result<Vec<NodeView>, AppError> {
    let now = OffsetDateTime::now_utc();
    let nodes = app.store.node_list(None).await?;
    let mut beside = beside(app, None).await?;
    let view = |record| NodeView::new(record, now).placed(&mut beside);
    Ok(nodes.into_iter().map(view).collect())
}

/// One node.
///
/// # Errors
/// [`AppError::NotFound`].
pub async fn node_get(app: &App, node: NodeId) -> Result<NodeView, AppError> {
    let record = app.store.node_get(node).await?;
    let mut beside = beside(app, Some(node)).await?;
    Ok(NodeView::new(record, OffsetDateTime::now_utc()).placed(&mut beside))
}

/// The node a person means: id, name, or a MAC in any of the usual forms.
///
/// # Errors
/// [`AppError::NotFound`].
pub async fn node_find(app: &App, reference: &str) -> Result<NodeId, AppError> {
    let found = app.store.node_find(reference).await;
    match (&found, reference.parse::<MacAddr>()) {
        (Err(StoreError::NotFound { .. }), Ok(mac)) => Ok(app.store.node_find(&mac.to_string()).await?),
        _ => Ok(found?),
    }
}

/// Adds a node of the rack plan: it is answered when it boots.
///
/// # Errors
/// [`AppError::Invalid`] for a name or MAC that cannot be one, [`AppError::Conflict`] when either is taken.
pub async fn node_add(app: &App, name: &str, mac: &str, added_by: &str) -> Result<NodeView, AppError> {
    hostname_check(name)?;
    let mac = mac_parse(mac)?.to_string();
    let machine_id = uuid::Uuid::new_v4().simple().to_string();
    let node = app.store.node_create(name, &mac, &machine_id).await?;
    event(
        app,
        node,
        "node_added",
        &format!("{name} with MAC {mac}, by {added_by}"),
    )
    .await;
    node_get(app, node).await
}

/// Gives a node its name, which becomes its hostname at the next installation.
///
/// # Errors
/// [`AppError::Invalid`], [`AppError::Conflict`] when another node has it.
pub async fn node_rename(app: &App, node: NodeId, name: &str, renamed_by: &str) -> Result<NodeView, AppError> {
    hostname_check(name)?;
    app.store.node_rename(node, name).await?;
    event(app, node, "node_renamed", &format!("{name}, by {renamed_by}")).await;
    node_get(app, node).await
}

/// Says where a node belongs: its group, its rack.
///
/// # Errors
/// [`AppError::Invalid`] for a label that cannot be one.
pub async fn node_place(app: &App, node: NodeId, change: NodeChange, changed_by: &str) -> Result<NodeView, AppError> {
    if let Some(group) = &change.group {
        label_check("group", group)?;
    }
    if let Some(rack) = change.rack.as_deref().filter(|rack| !rack.is_empty()) {
        label_check("rack", rack)?;
    }
    if let Some(unit) = change.unit.filter(|unit| !(0..=UNIT_MAX).contains(unit)) {
        return Err(AppError::Invalid(format!(
            "unit: {unit}, expected 1 to {UNIT_MAX}, or 0 for none"
        )));
    }
    let group = change.group.clone();
    app.store.node_change(node, &change, changed_by).await?;
    if let Some(group) = group {
        burn_ins::rejudge(app, node, &group).await?;
    }
    node_get(app, node).await
}

/// Holds a node back from remediation with a reason, or lets it go on (`None`).
///
/// # Errors
/// [`AppError::Invalid`] for a reason that is none.
pub async fn node_hold(app: &App, node: NodeId, reason: Option<&str>, by: &str) -> Result<NodeView, AppError> {
    if let Some(reason) = reason {
        reviews::reason_check(reason)?;
    }
    app.store.node_hold(node, reason.map(str::trim), by).await?;
    let (kind, detail) = match reason {
        Some(reason) => ("held", format!("{}, by {by}", reason.trim())),
        None => ("let_go", format!("by {by}")),
    };
    event(app, node, kind, &detail).await;
    node_get(app, node).await
}

/// A name of a group or rack: letters, digits, `.`, `_`, `-`, at most 64 of them.
///
/// # Errors
/// [`AppError::Invalid`].
pub fn label_check(what: &str, label: &str) -> Result<(), AppError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if (1..=64).contains(&label.len()) && label.chars().all(fits) {
        return Ok(());
    }
    let shown: String = label.chars().take(80).collect();
    Err(AppError::Invalid(format!(
        "{what} {shown:?}: expected 1 to 64 letters, digits, '.', '_' or '-'"
    )))
}

/// Says what a node becomes: its name, and the first deployment.
///
/// # Errors
/// [`AppError::Conflict`] when the node's state does not allow it, the name is taken, or there is no agent layer;
/// [`AppError::Invalid`] for a name; [`AppError::NotFound`] for an image. The name then stays as it was, unless the
/// node's state changed at that very moment.
pub async fn node_approve(
    app: &App,
    node: NodeId,
    name: &str,
    image: Option<&str>,
    disk: DiskRule,
    despite_burn_in: Option<&str>,
    approved_by: &str,
) -> Result<DeploymentId, AppError> {
    hostname_check(name)?;
    let wanted = deployments::wanted(app, node, image, disk, OldDisk::default()).await?;
    burn_ins::gate(app, &wanted.node, despite_burn_in, approved_by).await?;
    if wanted.node.name.as_deref() != Some(name) {
        app.store.node_rename(node, name).await?;
    }
    deployments::create(app, wanted, approved_by).await
}

/// Lets a quarantined node go on.
///
/// # Errors
/// [`AppError::Conflict`] when it is not quarantined.
pub async fn node_release(app: &App, node: NodeId, released_by: &str) -> Result<NodeView, AppError> {
    let taken = app.store.node_step(node, &Observed::Released).await?;
    if let Step::Refused { reason } = taken.step {
        return Err(AppError::Conflict(reason));
    }
    event(app, node, "released", &format!("from quarantine, by {released_by}")).await;
    node_get(app, node).await
}

/// Forgets a node: record, events, deployments, findings. Its certificates end with it.
///
/// # Errors
/// [`AppError::Conflict`] while it is quarantined, so that its events are not lost before somebody looked.
pub async fn node_remove(app: &App, node: NodeId, removed_by: &str) -> Result<(), AppError> {
    let record = app.store.node_get(node).await?;
    if record.state == NodeState::Quarantined {
        let reason = "the node is quarantined: look at its events and release it first";
        return Err(AppError::Conflict(reason.to_owned()));
    }
    app.store.node_delete(node).await?;
    tracing::info!(node.id = %node, node.name = record.name, user.name = removed_by, "a node was removed");
    Ok(())
}

/// An event that is worth having and not worth failing for.
pub(super) async fn event(app: &App, node: NodeId, kind: &str, detail: &str) {
    let event = NewEvent {
        node_id: Some(node),
        mac: None,
        kind,
        detail,
    };
    if let Err(error) = app.store.event_add(event).await {
        tracing::warn!(node.id = %node, event.kind = kind, %error, "an event was not kept");
    }
}

/// A MAC that a machine can have.
///
/// # Errors
/// [`AppError::Invalid`].
pub fn mac_parse(text: &str) -> Result<MacAddr, AppError> {
    let shown: String = text.chars().take(40).collect();
    let mac: MacAddr = text
        .parse()
        .map_err(|error| AppError::Invalid(format!("mac: {shown:?} is {error}")))?;
    if mac.is_zero() || mac.is_group() {
        return Err(AppError::Invalid(format!("mac: {shown:?} is no machine's own address")));
    }
    Ok(mac)
}

/// Whether a node can have this name: an RFC 1123 label in lower case that nobody takes for something else.
///
/// # Errors
/// [`AppError::Invalid`], which says what is wrong.
pub fn hostname_check(name: &str) -> Result<(), AppError> {
    let shown: String = name.chars().take(70).collect();
    let invalid = |problem: &str| Err(AppError::Invalid(format!("name: {shown:?} {problem}")));
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if name.is_empty() || name.len() > 63 || !name.bytes().all(is_allowed) {
        return invalid("is no hostname: expected 1 to 63 of a-z, 0-9 and '-' (RFC 1123)");
    }
    if name.starts_with('-') || name.ends_with('-') {
        return invalid("begins or ends with '-'");
    }
    if name.bytes().all(|b| b.is_ascii_digit()) {
        return invalid("is a number: many programs would take it for an address");
    }
    if name == "localhost" || name.parse::<MacAddr>().is_ok() || name.parse::<uuid::Uuid>().is_ok() {
        return invalid("means something else (this machine, a MAC or an id)");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostnames_are_labels_that_mean_nothing_else() {
        let longest = "n".repeat(63);
        for good in ["node01", "gpu-a-12", "0a", &longest] {
            hostname_check(good).unwrap();
        }
        let too_long = "n".repeat(64);
        for bad in [
            "",
            "Node01",
            "-node",
            "node-",
            "node.rack",
            "node_1",
            "nöde",
            "a b",
            "1234",
            "localhost",
            "525400aa0001",
            "52-54-00-aa-00-01",
            "018f3d0e-7b1a-7c3e-8f00-0123456789ab",
            &too_long,
        ] {
            assert!(hostname_check(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_mac_is_one_machines_address() {
        assert_eq!(mac_parse("52-54-00-AA-00-01").unwrap().to_string(), "52:54:00:aa:00:01");
        for bad in [
            "",
            "00:00:00:00:00:00",
            "01:00:5e:00:00:01",
            "ff:ff:ff:ff:ff:ff",
            "52:54",
        ] {
            assert!(mac_parse(bad).is_err(), "{bad:?}");
        }
    }
}
