//! A running node is sent into the rescue system and back.

use super::run::{NODE_NAME, Run};
use super::{BootKind, step};
use crate::environment::LabEnvironment;
use crate::ssh::SshTarget;
use crate::wait::wait_until;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

const RESCUE_LIMIT: Duration = Duration::from_secs(900);
const COMMAND_LIMIT: Duration = Duration::from_secs(60);
/// What a person looks for on the disk of a node that does not start: its name, read without writing.
const LOOK: &str = "mkdir -p /mnt && mount -o ro,noload /dev/vda2 /mnt && cat /mnt/etc/hostname && umount /mnt";

/// The `rescue` scenario.
pub(super) fn play(environment: &LabEnvironment, kind: BootKind) -> Result<Value> {
    let mut run = Run::start(environment, "rescue", kind)?;
    run.power_on_and_discover()?;
    run.approve_and_deploy()?;
    run.definite_drift()?;
    let boot_before = run.drift()?["report"]["boot_id"].clone();

    step("the rescue system is ordered, and the node's agent restarts it");
    // As a person has it: the key is made by the command, where it was called.
    let folder = run.folder().to_owned();
    let (code, _) = run.appliance.cli_code_in(
        &folder,
        &[
            "node",
            "rescue",
            NODE_NAME,
            "--reason",
            "looking at its disk",
            "--restart",
            "--no-wait",
            "--json",
        ],
        COMMAND_LIMIT,
    )?;
    ensure!(code == 0, "ordering the rescue system ended with {code}");
    let key = folder.join(format!("{NODE_NAME}-rescue-key"));
    let order = wait_until(RESCUE_LIMIT, "the rescue system to be up", || {
        run.check_alive()?;
        run.show_events()?;
        let boot = run.appliance.cli(&["node", "boot", NODE_NAME])?;
        Ok(boot["order"]["ssh_host_key"].is_string().then(|| boot["order"].clone()))
    })?;
    let address = order["address"].as_str().context("its address")?;
    let host_key = order["ssh_host_key"].as_str().context("its host key")?;
    let known_hosts = folder.join("rescue-known-hosts");
    fs::write(&known_hosts, format!("{address} {host_key}\n"))?;
    let target = SshTarget {
        user: "root".to_owned(),
        address: address.parse()?,
        key,
        known_hosts,
    };
    let said = target.run(run.appliance.namespace(), LOOK, COMMAND_LIMIT)?;
    ensure!(said.stdout.trim() == NODE_NAME, "the disk's hostname: {said:?}");
    let stranger = SshTarget {
        key: folder.join("operator"),
        ..target.clone()
    };
    let refused = stranger.run(run.appliance.namespace(), "true", COMMAND_LIMIT)?;
    ensure!(!refused.status.success(), "another key signs in to the rescue system");
    step("signed in with the key made for this once; another key is refused");
    // The shell on the console: what is typed there is answered there.
    let console = run.machine.serial_text();
    ensure!(console.contains("rescue system: "), "the console should say what it is");

    step("the order is lifted: back to the disk");
    run.appliance.cli(&["node", "boot", NODE_NAME, "--normal"])?;
    run.wait_scan_of_another_boot(&boot_before)?;
    let drift = run.definite_drift()?;
    ensure!(drift["verdict"] == "clean", "{drift}");
    let after = target.run(run.appliance.namespace(), "true", COMMAND_LIMIT)?;
    ensure!(
        !after.status.success(),
        "the key for the rescue system signs in to the node"
    );
    let outcome = json!({
        "scenario": "rescue", "ok": true, "firmware": kind, "read_from_disk": said.stdout.trim(),
        "other_key_refused": true, "verdict_afterwards": drift["verdict"],
    });
    run.stop()?;
    Ok(outcome)
}
