//! From power-on to a verified node: the install loop on real firmware, and what stops it.

use super::run::{Run, Site, count, entries};
use super::{BootKind, Fault, tamper};
use crate::environment::LabEnvironment;
use crate::qemu::Firmware;
use crate::wire::faults::Rates;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// The `install` scenario.
pub(super) fn end_to_end(environment: &LabEnvironment, kind: BootKind, cable: Option<Rates>) -> Result<Value> {
    let site = Site {
        cable,
        ..Site::default()
    };
    let mut run = Run::start_at(environment, "e2e", kind, &site)?;
    run.neighbour_is_left_alone()?;
    run.power_on_and_discover()?;
    let requests_before = run.image_requests()?;
    run.approve_and_deploy()?;
    let requests = run.image_requests()? - requests_before;
    let after_deploy = run.definite_drift()?;
    let ssh = run.ssh_target()?;
    let tampered = tamper::tamper_and_repair(&mut run, &ssh)?;
    run.reboot_and_scan(&ssh)?;
    let after_reboot = run.definite_drift()?;
    let node = run.node()?.context("the node's record")?;
    let scan = &after_deploy["report"]["scan"];
    let rounded = |secs: f64| (secs * 10.0).round() / 10.0;
    let mut outcome = json!({
        "firmware": kind,
        "power_on_to_discovered_s": rounded(run.discovered_secs),
        "deploy_s": rounded(run.deploy_secs),
        "power_on_to_first_scan_s": rounded(run.first_scan_secs),
        "entries_scanned": entries(scan),
        "entries_by_class": scan["entries_by_class"],
        "findings_after_deploy": count(&after_deploy["findings"])?,
        "findings_after_reboot": count(&after_reboot["findings"])?,
        "not_looked_at": after_reboot["report"]["scan"]["not_looked_at_count"],
        "requests_for_image": requests,
        "firmware_hangs": run.firmware_hangs,
        "server_rss_mb": run.appliance.server_rss_mb()?,
        "postgres_rss_mb": run.appliance.postgres_rss_mb()?,
        "agent_rss_mb": node["agent"]["rss_max_bytes"].as_u64().unwrap_or(0) / 1_000_000,
    });
    tamper::add_to(&mut outcome, &tampered);
    if let Some(fates) = run.fates() {
        outcome["fault"] = json!(Fault::Lossy);
        outcome["frames_since_power_on"] = json!(fates);
    }
    if kind == BootKind::SecureBoot {
        outcome["lockdown"] = json!(run.lockdown(&ssh)?);
    }
    for drift in [&after_deploy, &after_reboot] {
        ensure!(
            drift["verdict"] == "clean",
            "expected no drift, found {} ({}): {}",
            drift["verdict"],
            drift["reason"],
            drift["findings"]
        );
    }
    run.stop()?;
    Ok(outcome)
}

/// The `damaged-pack` scenario.
pub(super) fn damaged_pack(environment: &LabEnvironment, kind: BootKind) -> Result<Value> {
    let mut run = Run::start(environment, "damage", kind)?;
    let pack = damage_largest_pack(&run.appliance.data_dir())?;
    run.power_on_and_discover()?;
    let reason = run.approve_and_fail()?;
    ensure!(reason.contains("write"), "the reason should name the stage: {reason}");
    ensure!(
        reason.contains(&pack[..12]),
        "the reason should name pack {pack}: {reason}"
    );
    let console = run.machine.serial_text();
    ensure!(console.contains(&pack[..12]), "the console should name the pack");
    let verdict = run.drift()?["verdict"].clone();
    ensure!(verdict == "unknown", "a node that was never scanned is {verdict}");
    run.stop()?;
    Ok(json!({ "scenario": "damaged-pack", "ok": true, "state": "failed", "reason": reason }))
}

/// The `other-firmware` scenario.
pub(super) fn other_firmware(environment: &LabEnvironment, kind: BootKind) -> Result<Value> {
    let installed_by = kind.firmware();
    let other = match installed_by {
        Firmware::Bios => Firmware::Uefi,
        Firmware::Uefi | Firmware::UefiSecureBoot | Firmware::UefiArm64 => Firmware::Bios,
    };
    let mut run = Run::start(environment, "switch", kind)?;
    run.power_on_and_discover()?;
    run.approve_and_deploy()?;
    for firmware in [other, installed_by] {
        run.start_by(firmware)?;
        let drift = run.definite_drift()?;
        ensure!(
            drift["verdict"] == "clean",
            "started by {firmware:?}, expected no drift, found {} ({}): {}",
            drift["verdict"],
            drift["reason"],
            drift["findings"]
        );
    }
    run.stop()?;
    Ok(json!({ "scenario": "other-firmware", "ok": true, "installed_by": installed_by, "started_by": other }))
}

/// Flips a byte in the middle of the largest pack. The file is replaced: others link to the old one.
fn damage_largest_pack(data_dir: &Path) -> Result<String> {
    let mut packs = Vec::new();
    for entry in fs::read_dir(data_dir.join("images/packs"))? {
        let entry = entry?;
        packs.push((entry.metadata()?.len(), entry.path()));
    }
    let (_, path) = packs.into_iter().max().context("a pack")?;
    let mut content = fs::read(&path)?;
    let middle = content.len() / 2;
    content[middle] ^= 0x55;
    fs::remove_file(&path)?;
    fs::write(&path, content)?;
    Ok(path.file_name().context("a file name")?.to_string_lossy().into_owned())
}
