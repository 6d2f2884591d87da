//! What people want a node to boot, once; and sending a running node to the network.

use lifecycle::burn_in::Standing;
use lifecycle::{BootOrder, NodeState};
use protocol::NodeId;
use protocol::latest::{HeartbeatReply, RescueUp, RestartAnswer, RestartOrder, Task, TestKind, TestOrder};
use protocol::limits::{BURN_IN_SECS_MAX, TEXT_BYTES_MAX};
use serde::Serialize;
use store::{BootOrderRecord, NewBootOrder, NodeRecord, RestartRecord};
use time::OffsetDateTime;

use super::boot::event;
use super::enrol::Ramdisk;
use super::{App, AppError, burn_ins, nodes, reviews};

/// An agent that was not heard for this long does nothing that it is asked for.
const AGENT_SILENCE: time::Duration = time::Duration::minutes(3);

/// What a node is to boot besides what its state says.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct BootView {
    /// The order; none: an ordinary boot.
    pub order: Option<BootOrderRecord>,
    /// Its agent is to restart it into the network.
    pub restart: Option<RestartRecord>,
}

/// What a person asks for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// What to boot.
    pub kind: BootOrder,
    /// Why.
    pub reason: String,
    /// For the rescue system: who may sign in.
    pub authorized_key: Option<String>,
    /// For commissioning: tests, each with its limit in seconds where it is not the site's. None given: the site's tests.
    pub tests: Option<Vec<(TestKind, Option<u32>)>>,
}

/// A node's orders.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn show(app: &App, node: NodeId) -> Result<BootView, AppError> {
    Ok(BootView {
        order: app.store.boot_order_find(node).await?,
        restart: app.store.restart_find(node).await?,
    })
}

/// Orders what a node boots next. A machine that waits in the deployer takes it up at once.
///
/// # Errors
/// [`AppError::Invalid`] for a key or reason that is none, [`AppError::Conflict`] while a deployment is open or the node
/// is quarantined.
pub async fn order(app: &App, node: NodeId, wanted: &Wanted, by: &str) -> Result<BootView, AppError> {
    reviews::reason_check(&wanted.reason)?;
    let authorized_key = match (wanted.kind, wanted.authorized_key.as_deref()) {
        (BootOrder::Rescue, Some(key)) => Some(public_key(key)?),
        (BootOrder::Rescue, None) => {
            return Err(AppError::Invalid(
                "authorized_key: expected the OpenSSH public key of whoever signs in to the rescue system".to_owned(),
            ));
        }
        (_, Some(_)) => {
            return Err(AppError::Invalid(
                "authorized_key: only the rescue system has one".to_owned(),
            ));
        }
        (_, None) => None,
    };
    let tests = match &wanted.tests {
        Some(_) if wanted.kind != BootOrder::Commission => {
            return Err(AppError::Invalid("tests: only commissioning has them".to_owned()));
        }
        Some(tests) => Some(tests_of(app, tests)?),
        None => None,
    };
    if wanted.kind.is_once() {
        let record = app.store.node_get(node).await?;
        if record.state == NodeState::Quarantined {
            return Err(AppError::Conflict(format!(
                "the node is quarantined ({}): release it first",
                record.state_reason
            )));
        }
        if app.store.deployment_find_open(node).await?.is_some() {
            return Err(AppError::Conflict(
                "a deployment of this node is open: it boots for that first".to_owned(),
            ));
        }
    }
    let new = NewBootOrder {
        kind: wanted.kind,
        reason: wanted.reason.trim(),
        ordered_by: by,
        authorized_key: authorized_key.as_deref(),
        tests: tests.as_deref(),
    };
    app.store.boot_order_set(node, &new).await?;
    if wanted.kind.is_once() {
        burn_ins::end(app, node, &format!("{by} ordered {}", wanted.kind.as_str())).await?;
    }
    let detail = format!("{}, by {by}: {}", wanted.kind.as_str(), new.reason);
    nodes::event(app, node, "boot_ordered", &detail).await;
    show(app, node).await
}

/// Tests with their limits, each once, in the order they are run in.
fn tests_of(app: &App, tests: &[(TestKind, Option<u32>)]) -> Result<Vec<TestOrder>, AppError> {
    let mut orders: Vec<TestOrder> = Vec::new();
    for (kind, secs) in tests {
        if let Some(secs) = secs.filter(|secs| !(1..=BURN_IN_SECS_MAX).contains(secs)) {
            let problem = format!(
                "tests: {}: limit_secs {secs}: expected 1 to {BURN_IN_SECS_MAX}",
                kind.as_str()
            );
            return Err(AppError::Invalid(problem));
        }
        if orders.iter().any(|order| order.kind == *kind) {
            return Err(AppError::Invalid(format!(
                "tests: {} stands there twice",
                kind.as_str()
            )));
        }
        orders.push(TestOrder {
            kind: *kind,
            limit_secs: secs.unwrap_or_else(|| app.config.commissioning.limit_of(*kind)),
        });
    }
    orders.sort_by_key(|order| order.kind);
    crate::config::total_check(&orders).map_err(|problem| AppError::Invalid(format!("tests: {problem}")))?;
    Ok(orders)
}

/// One key in OpenSSH's form, without options before it and without its comment.
fn public_key(text: &str) -> Result<String, AppError> {
    let wrong = |problem: String| AppError::Invalid(format!("authorized_key: {problem}"));
    if text.trim().lines().count() > 1 {
        return Err(wrong("expected one key, found several lines".to_owned()));
    }
    let mut key = ssh_key::PublicKey::from_openssh(text.trim())
        .map_err(|error| wrong(format!("expected one OpenSSH public key: {error}")))?;
    key.set_comment("");
    key.to_openssh().map_err(|error| wrong(error.to_string()))
}

/// Lifts a node's order: from its next start it boots what its state says. A rescue system ends at once.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn lift(app: &App, node: NodeId, by: &str) -> Result<BootView, AppError> {
    if app.store.boot_order_lift(node, None, by).await? {
        nodes::event(app, node, "boot_order_lifted", &format!("by {by}")).await;
    }
    show(app, node).await
}

/// Asks a node's agent to restart it into the network.
///
/// # Errors
/// [`AppError::Conflict`] when its agent is not heard.
pub async fn restart(app: &App, node: NodeId, by: &str) -> Result<BootView, AppError> {
    let record = app.store.node_get(node).await?;
    agent_check(&record, OffsetDateTime::now_utc())?;
    app.store.restart_order(node, by).await?;
    nodes::event(app, node, "restart_ordered", &format!("into the network, by {by}")).await;
    show(app, node).await
}

/// Whether somebody is there who can restart it.
///
/// # Errors
/// [`AppError::Conflict`] that says what else can be done.
pub fn agent_check(node: &NodeRecord, now: OffsetDateTime) -> Result<(), AppError> {
    let silent = match &node.agent {
        None => "was never heard".to_owned(),
        Some(agent) if now - agent.heartbeat_at > AGENT_SILENCE => {
            format!("was last heard {} min ago", (now - agent.heartbeat_at).whole_minutes())
        }
        Some(_) => return Ok(()),
    };
    Err(AppError::Conflict(format!(
        "its agent {silent}, so nobody can restart it from here: use its BMC or its power button"
    )))
}

/// The task of a deployer whose boot carries out an order; none: an ordinary one.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn task(app: &App, ramdisk: &Ramdisk) -> Result<Option<Task>, AppError> {
    let Some(order) = app.store.boot_order_find(ramdisk.node).await? else {
        return Ok(None);
    };
    if !order.kind.is_once() || !app.store.boot_order_take(ramdisk.node, ramdisk.token).await? {
        return Ok(None);
    }
    if order.kind == BootOrder::Commission {
        return commission(app, ramdisk, &order).await.map(Some);
    }
    let reason = format!("{} ordered {}: {}", order.ordered_by, order.kind.as_str(), order.reason);
    Ok(Some(match order.authorized_key {
        Some(authorized_key) => Task::Rescue { authorized_key, reason },
        None => Task::Wait { reason },
    }))
}

/// Its tests; afterwards a node that runs from its disk goes back to it if it passed, and any other waits for a person.
async fn commission(app: &App, ramdisk: &Ramdisk, order: &BootOrderRecord) -> Result<Task, AppError> {
    let tests = order.tests.as_ref().unwrap_or(&app.config.commissioning.tests);
    let wanted = burn_ins::Wanted {
        by: &order.ordered_by,
        reason: &order.reason,
        tests,
        since: Some(order.ordered_at),
    };
    if let Some(task) = burn_ins::task(app, ramdisk, &wanted).await? {
        return Ok(task);
    }
    let ordered = format!("{} ordered {}: {}", order.ordered_by, order.kind.as_str(), order.reason);
    let last = match tests.is_empty() {
        true => None,
        false => app.store.burn_in_find(ramdisk.node).await?,
    };
    let Some(last) = last else {
        return Ok(Task::Wait { reason: ordered });
    };
    let node = app.store.node_get(ramdisk.node).await?;
    let runs_from_disk = matches!(node.state, NodeState::Installed | NodeState::Deployed);
    Ok(match last.standing == Standing::Passed && runs_from_disk {
        true => Task::Reboot {
            reason: "it passed its burn-in and goes back to its disk".to_owned(),
        },
        false => Task::Wait {
            reason: format!("{ordered}; its burn-in: {}", last.standing_reason),
        },
    })
}

/// Keeps where a rescue system is.
///
/// # Errors
/// [`AppError::Invalid`] for a host key that is none, [`AppError::Conflict`] when the order is gone.
pub async fn rescue_up(app: &App, ramdisk: &Ramdisk, address: &str, up: &RescueUp) -> Result<(), AppError> {
    if up.ssh_host_key.len() > TEXT_BYTES_MAX {
        return Err(AppError::Invalid("ssh_host_key: too long".to_owned()));
    }
    let host_key = public_key(&up.ssh_host_key)?;
    if !app
        .store
        .boot_order_up(ramdisk.node, ramdisk.token, address, &host_key)
        .await?
    {
        return Err(AppError::Conflict(
            "this boot of the node carries out no order".to_owned(),
        ));
    }
    event(
        app,
        ramdisk.node,
        "",
        "rescue_up",
        &format!("SSH at {address}, {host_key}"),
    )
    .await
}

/// The node asks for a script: a restart that was ordered has happened, and an order that a boot has carried out is over.
/// Gives the order that holds for this boot.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn at_script(app: &App, node: NodeId, mac: &str) -> Result<Option<BootOrderRecord>, AppError> {
    app.store.restart_done(node).await?;
    let order = app.store.boot_order_find(node).await?;
    match order {
        Some(order) if order.kind.is_once() && order.token_id.is_some() => {
            // One that a person has put in its place meanwhile is for a boot to come, and stays.
            let server = store::NodeHold::SERVER;
            if app.store.boot_order_lift(node, order.token_id, server).await? {
                event(app, node, mac, "boot_order_done", order.kind.as_str()).await?;
            }
            Ok(None)
        }
        order => Ok(order),
    }
}

/// Tells an agent of a restart, and keeps what it says of one.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn at_heartbeat(
    app: &App,
    node: NodeId,
    answer: Option<&RestartAnswer>,
    reply: &mut HeartbeatReply,
) -> Result<(), AppError> {
    if let Some(answer) = answer {
        let detail: String = answer.detail.chars().take(TEXT_BYTES_MAX / 4).collect();
        if app.store.restart_answer(node, answer.id, &detail).await? {
            let kind = if answer.will_restart {
                "restarting"
            } else {
                "restart_failed"
            };
            event(app, node, "", kind, &detail).await?;
        }
    }
    // Also beside an answer: an agent repeats the one to an earlier order, and a new order is for it all the same.
    if let Some(restart) = app
        .store
        .restart_find(node)
        .await?
        .filter(|restart| restart.answer.is_none())
    {
        reply.restart = Some(RestartOrder {
            id: restart.id,
            boot_mac: app.store.token_newest_mac(node).await?,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_taken_without_options_and_comment() {
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFvS1Wf3GfPvx0cZ8gjzKkFvUNDhLBuYxAB5b1lNMCcT";
        assert_eq!(public_key(&format!(" {key} somebody@somewhere\n")).unwrap(), key);
        for wrong in [
            "",
            "hello",
            &format!("command=\"reboot\" {key}"),
            &format!("{key}\nssh-ed25519 AAAA"),
            &format!("{key} a\n{key} b"),
        ] {
            assert!(public_key(wrong).is_err(), "{wrong}");
        }
    }
}
