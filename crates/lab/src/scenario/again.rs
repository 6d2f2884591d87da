//! Installing a running node again.

use super::run::{IMAGE, NODE_NAME, Run};
use super::{BootKind, step};
use crate::environment::LabEnvironment;
use crate::qemu::BootOrder;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

/// The `reimage-by-agent` scenario.
pub(super) fn by_agent(environment: &LabEnvironment, kind: BootKind) -> Result<Value> {
    let mut run = Run::start(environment, "again", kind)?;
    run.power_on_and_discover()?;
    run.approve_and_deploy()?;
    run.definite_drift()?;
    if kind != BootKind::Bios {
        // As on metal whose firmware was set to its disk: nothing of a start is seen on the network.
        run.start_in_order(BootOrder::Disks)?;
        run.definite_drift()?;
    }
    let boot_before = run.drift()?["report"]["boot_id"].clone();
    step("asked for again, by its agent");
    run.appliance
        .cli(&["node", "deploy", NODE_NAME, "--image", IMAGE, "--restart"])?;
    run.wait_event("restarting", "")?;
    run.wait_deployed()?;
    run.wait_scan_of_another_boot(&boot_before)?;
    let drift = run.definite_drift()?;
    ensure!(drift["verdict"] == "clean", "{drift}");
    let events = run.appliance.cli(&["node", "events", NODE_NAME])?;
    let said = events
        .as_array()
        .and_then(|all| all.iter().find(|event| event["kind"] == "restarting"))
        .map(|event| event["detail"].clone())
        .context("what the agent said of the restart")?;
    let deployments = run.appliance.cli(&["node", "deployments", NODE_NAME])?;
    let deployments = deployments.as_array().context("deployments")?;
    ensure!(
        deployments.len() == 2
            && deployments
                .iter()
                .all(|one| one["state"] == "verified" && one["attempt"] == 1),
        "expected two deployments, each verified at its first attempt: {deployments:?}"
    );
    let outcome = json!({
        "scenario": "reimage-by-agent", "ok": true, "firmware": kind, "agent_said": said,
        "deployments": deployments.len(), "verdict": drift["verdict"],
    });
    run.stop()?;
    Ok(outcome)
}
