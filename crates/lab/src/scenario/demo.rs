//! The demonstration: one real virtual node and forty simulated ones, installed, drifted, and left for people to look
//! at.

use super::appliance::{self, Appliance};
use super::fleet::Fleet;
use super::run::{NODE_NAME, Run};
use super::{BootKind, DemoOptions, step};
use crate::forward::Forward;
use crate::interrupt;
use crate::simulated::tamper::Change;
use crate::simulated::{self, node_name};
use crate::ssh::SshTarget;
use crate::wait::wait_until;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

const SIMULATED: u32 = 40;
/// A machine that stays for the person at the dashboard to approve.
const WAITING: u32 = SIMULATED + 1;
const COMMAND_LIMIT: Duration = Duration::from_secs(120);
const DRIFT_LIMIT: Duration = Duration::from_secs(600);

/// What happened on the simulated nodes. The first stands on a third of its group: as if the image were wrong.
const DRIFT: [(Change, &[u32]); 9] = [
    (Change::Timesync, &[1, 2, 4, 5, 7, 8, 11, 13, 14, 16, 17, 19]),
    (Change::Sshd, &[3, 21, 33]),
    (Change::Sysctl, &[6, 12, 24, 27, 36]),
    (Change::Mode, &[9, 18, 22]),
    (Change::Added, &[15, 23]),
    (Change::Unit, &[25, 26]),
    (Change::Removed, &[28]),
    (Change::Package, &[29]),
    (Change::Secret, &[10]),
];

/// What somebody left on the real node.
const LEFT_BEHIND: [&str; 5] = [
    "printf 'PermitRootLogin yes\\nPasswordAuthentication yes\\n' >> /etc/ssh/sshd_config",
    "chmod 0666 /etc/profile",
    "echo 'export PATH=/opt/debug/bin:$PATH' > /etc/profile.d/zz-debug.sh",
    "echo 0 > /proc/sys/kernel/kptr_restrict",
    "systemctl disable --now systemd-timesyncd.service",
];

/// Plays the demonstration and, unless `once`, stays until Ctrl-C.
///
/// # Errors
/// When a step fails; the message says which, and where its logs are.
pub(super) fn run(options: &DemoOptions) -> Result<Value> {
    let mut run = Run::start(&options.environment, "demo", BootKind::Uefi)?;
    simulated::provide_image(&run.appliance.data_dir())?;
    let forward = match options.once {
        true => None,
        false => Some(Forward::start(
            run.appliance.namespace(),
            SocketAddr::from(([127, 0, 0, 1], 8080)),
            appliance::PEOPLE,
        )?),
    };
    if let Some(forward) = &forward {
        println!("{}", run.appliance.look_around(forward.address()));
    }
    wait_image(&run.appliance)?;
    step(&format!("{SIMULATED} simulated nodes in three racks"));
    let mut fleet = Fleet::power_on(run.appliance.namespace(), run.folder(), 1, SIMULATED)?;
    fleet.install(&run.appliance)?;
    step("they are installed; now a real one, with UEFI firmware, from the network");
    run.power_on_and_discover()?;
    run.approve_and_deploy()?;
    let clean = run.definite_drift()?;
    println!("{}", run.appliance.cli_text(&["drift", "show", NODE_NAME])?);
    ensure!(clean["verdict"] == "clean", "a node just installed has drift: {clean}");

    step("people work on the nodes");
    let ssh = run.ssh_target()?;
    leave_behind(&run, &ssh)?;
    for (change, numbers) in DRIFT {
        for number in numbers {
            fleet.tamper(*number, change)?;
        }
    }
    let found = wait_drift(&run.appliance)?;
    decide(&run.appliance)?;
    let _waiting = Fleet::power_on(run.appliance.namespace(), run.folder(), WAITING, 1)?;
    run.appliance.cli(&[
        "discovery",
        "arm",
        "10.77.0.0/24",
        "--minutes",
        "240",
        "--nodes-max",
        "1",
    ])?;
    println!("{}", run.appliance.cli_text(&["drift", "list"])?);
    println!("{}", run.appliance.cli_text(&["drift", "show", NODE_NAME])?);
    let drift = run.drift()?;
    let outcome = json!({
        "node": NODE_NAME, "verdict_after_installation": clean["verdict"], "verdict": drift["verdict"],
        "reason": drift["reason"], "simulated_nodes": SIMULATED, "findings": found,
    });
    if let Some(forward) = &forward {
        println!("{}", run.appliance.look_around(forward.address()));
        while !interrupt::requested() {
            run.check_alive()?;
            std::thread::sleep(Duration::from_millis(500));
        }
    }
    Ok(outcome)
}

fn wait_image(appliance: &Appliance) -> Result<()> {
    wait_until(COMMAND_LIMIT, "the simulated image to be registered", || {
        let images = appliance.cli(&["image", "list"])?;
        let mut images = images.as_array().into_iter().flatten();
        Ok(images.any(|image| image["name"] == simulated::IMAGE).then_some(()))
    })
}

fn leave_behind(run: &Run, ssh: &SshTarget) -> Result<()> {
    for command in LEFT_BEHIND {
        let ended = ssh.run(run.appliance.namespace(), command, COMMAND_LIMIT)?;
        ensure!(
            ended.status.success(),
            "`{command}` on the node: {}",
            ended.stderr.trim()
        );
    }
    Ok(())
}

/// Waits until every change is found; returns the number of findings.
fn wait_drift(appliance: &Appliance) -> Result<u64> {
    let changed: usize = DRIFT.iter().map(|(_, numbers)| numbers.len()).sum();
    let wanted = (changed + LEFT_BEHIND.len()) as u64;
    wait_until(DRIFT_LIMIT, &format!("{wanted} findings"), || {
        let groups = appliance.cli(&["drift", "list"])?;
        let found: u64 = groups
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|group| group["nodes"].as_u64())
            .sum();
        Ok((found >= wanted).then_some(found))
    })
}

/// Some decisions, as people would have made them.
fn decide(appliance: &Appliance) -> Result<()> {
    let groups = appliance.cli(&["drift", "list"])?;
    let hash = |key: &str| -> Result<String> {
        let mut groups = groups.as_array().into_iter().flatten();
        let group = groups
            .find(|group| group["key"] == key)
            .with_context(|| format!("a finding of {key}"))?;
        Ok(group["group"].as_str().context("its hash")?.to_owned())
    };
    let sysctl = hash("kernel.kptr_restrict")?;
    let reason = "kernel profiling until the end of the week, ticket 4711";
    appliance.cli_text(&[
        "drift",
        "waive",
        &sysctl,
        "--days",
        "5",
        "--node-group",
        "gpu",
        "--reason",
        reason,
    ])?;
    let added = hash("/etc/cron.d/collect-metrics")?;
    let reason = "asked the metrics people, they take it away";
    appliance.cli_text(&["drift", "acknowledge", &added, "--everywhere", "--reason", reason])?;
    let held = node_name(9);
    appliance.cli_text(&["node", "hold", &held, "--reason", "the vendor swaps a GPU on Tuesday"])?;
    Ok(())
}
