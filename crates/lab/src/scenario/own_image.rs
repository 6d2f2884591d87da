//! The recipes of the workspace that are too large for every run, each on a machine of its own.

use super::images::OsImage;
use super::run::{Run, Site, count, entries};
use super::{BootKind, step};
use crate::environment::LabEnvironment;
use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

const COMMAND_LIMIT: Duration = Duration::from_secs(120);
/// Units may still be on their way when the first scan is done.
const STARTED: &str =
    "timeout 90 systemctl is-system-running --wait; systemctl list-units --failed --plain --no-legend";

/// The `node-image` scenario: a hardened server.
pub(super) fn node(environment: &LabEnvironment, kind: BootKind) -> Result<Value> {
    let os = OsImage {
        recipe: PathBuf::from("debian-12-node"),
        ..OsImage::default()
    };
    install(environment, kind, "node-image", os)
}

/// The `debian-13` scenario.
pub(super) fn debian_13(environment: &LabEnvironment, kind: BootKind) -> Result<Value> {
    let os = OsImage {
        recipe: PathBuf::from("debian-13-node"),
        ..OsImage::default()
    };
    install(environment, kind, "debian-13", os)
}

/// The `gpu-image` scenario: everything a GPU node has but the GPUs.
pub(super) fn gpu(environment: &LabEnvironment, kind: BootKind) -> Result<Value> {
    let os = OsImage {
        recipe: PathBuf::from("debian-12-gpu"),
        disk_bytes: 12 << 30,
        memory_mib: 2048,
    };
    install(environment, kind, "gpu-image", os)
}

/// What the image says of its hardening.
const REPORT: &str = "cat /usr/share/plumbline/hardening/report.json";

/// Installs an image, and sees that it runs as it should: no unit failed, nothing differs, also after a restart.
fn install(environment: &LabEnvironment, kind: BootKind, scenario: &str, os: OsImage) -> Result<Value> {
    let image = os.name();
    let site = Site { os, ..Site::default() };
    let mut run = Run::start_at(environment, scenario, kind, &site)?;
    run.power_on_and_discover()?;
    run.approve_and_deploy()?;
    let after_deploy = run.definite_drift()?;
    let ssh = run.ssh_target()?;
    let said = ssh.run(run.appliance.namespace(), STARTED, COMMAND_LIMIT)?;
    step(&format!("the node says: {}", said.stdout.trim()));
    ensure!(said.stdout.trim() == "running", "units of the node failed: {said:?}");
    let report = ssh.run(run.appliance.namespace(), REPORT, COMMAND_LIMIT)?;
    let report: Value = serde_json::from_str(&report.stdout)?;
    run.reboot_and_scan(&ssh)?;
    let after_reboot = run.definite_drift()?;
    for drift in [&after_deploy, &after_reboot] {
        ensure!(
            drift["verdict"] == "clean",
            "expected no drift, found {} ({}): {}",
            drift["verdict"],
            drift["reason"],
            drift["findings"]
        );
    }
    let scan = &after_reboot["report"]["scan"];
    let mut outcome = json!({
        "scenario": scenario, "ok": true, "firmware": kind, "image": image, "hardening": report["counts"],
        "deploy_s": run.deploy_secs.round(), "entries_scanned": entries(scan), "entries_by_class": scan["entries_by_class"],
        "findings_after_deploy": count(&after_deploy["findings"])?,
        "findings_after_reboot": count(&after_reboot["findings"])?,
    });
    if kind == BootKind::SecureBoot {
        outcome["lockdown"] = json!(run.lockdown(&ssh)?);
    }
    run.stop()?;
    Ok(outcome)
}
