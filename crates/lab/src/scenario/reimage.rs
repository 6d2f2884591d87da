//! From one image to another in place, and back with the power cut in the middle.

use super::run::{IMAGE, NODE_NAME, Run};
use super::{BootKind, images, step};
use crate::environment::LabEnvironment;
use crate::fat;
use crate::ssh::SshTarget;
use crate::wait::wait_until;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::time::Duration;

/// The second image: the first one with a package more and a file of its own.
const SECOND: &str = "debian-12-second";
const RECIPE: &str = "kind: os\nname: debian-12-second\nextends: debian-12-lab\npackages: [less]\nfiles:\n  \
                      - path: /etc/second\n    content: |\n      the second image\n";
const COMMAND_LIMIT: Duration = Duration::from_secs(60);
const WRITE_LIMIT: Duration = Duration::from_secs(900);
/// Of what a fresh installation fetches. Two images built one after the other share all packages; what differs is the
/// package that came, and files that a build makes anew.
const FETCHED_PERCENT_MAX: u64 = 25;

/// What a node that was worked on looks like: a file and a folder more, protected from removal; a file of the image
/// changed, one of a package gone; something in places that the image leaves to the node.
const DIRT: [&str; 6] = [
    "echo '* * * * * root true' >/etc/cron.d-left",
    "mkdir -p /opt/left/deep && echo x >/opt/left/deep/file && chattr +i /opt/left/deep/file /opt/left/deep",
    "echo '# changed' >>/etc/ssh/sshd_config",
    "rm /usr/bin/ping",
    "echo secret >/root/.bash_history && echo x >/var/tmp/left && mkdir -p /home/alice && echo x >/home/alice/left",
    "sync",
];
/// Prints what of it is still there.
const LEFT: &str = "ls -d /etc/cron.d-left /opt/left /root/.bash_history /var/tmp/left /home/alice/left \
                    /.plumbline-reimage* 2>/dev/null; grep -n '^# changed' /etc/ssh/sshd_config; \
                    test -x /usr/bin/ping || echo no ping; true";
/// Where the ESP begins on the disk, in bytes, and the file without which no loader starts anything.
const ESP_AT: u64 = 2 << 20;
const LOADER_CONFIGURATION: [&[u8; 11]; 3] = [b"EFI        ", b"DEBIAN     ", b"GRUB    CFG"];

/// The `reimage` scenario.
pub(super) fn play(environment: &LabEnvironment, kind: BootKind) -> Result<Value> {
    let mut run = Run::start(environment, "reimage", kind)?;
    step("the second image is built");
    images::derive(environment, &run.appliance.data_dir(), SECOND, RECIPE)?;
    wait_until(COMMAND_LIMIT, "the second image to be registered", || {
        let images = run.appliance.cli(&["image", "list"])?;
        let mut images = images.as_array().into_iter().flatten();
        Ok(images.any(|image| image["name"] == SECOND).then_some(()))
    })?;
    run.power_on_and_discover()?;
    run.approve_and_deploy()?;
    run.definite_drift()?;
    let first = newest_work(&run)?;
    ensure!(first["mode"] == "wipe", "an empty disk: {first}");

    let ssh = run.ssh_target()?;
    for command in DIRT {
        on_node(&run, &ssh, command)?;
    }
    let disk = run.machine.spec().disks.first().context("a disk")?.path.clone();
    ensure!(
        fat::has_path(&disk, ESP_AT, &LOADER_CONFIGURATION)?,
        "an installed disk has no loader configuration"
    );
    step("the node was worked on; now the second image, in place");
    to_image(&mut run, SECOND)?;
    let second = newest_work(&run)?;
    ensure!(second["mode"] == "in_place", "{second}");
    let ssh = run.ssh_target()?;
    let left = on_node(&run, &ssh, LEFT)?;
    ensure!(left.is_empty(), "left on the node: {left}");
    let said = on_node(&run, &ssh, "cat /etc/second && less --version | head -1")?;
    ensure!(
        said.starts_with("the second image\nless"),
        "it runs another image: {said}"
    );
    let whole = bytes(&first, "bytes_fetched")?;
    let fetched = bytes(&second, "bytes_fetched")?;
    ensure!(
        fetched * 100 <= whole * FETCHED_PERCENT_MAX,
        "{fetched} bytes were fetched, of {whole} for a fresh installation"
    );

    step("back to the first image, and the power is cut while files are written");
    let boot_before = run.drift()?["report"]["boot_id"].clone();
    deploy(&run, IMAGE)?;
    let cut_at = wait_writing(&mut run)?;
    run.cut_power()?;
    let starts = fat::has_path(&disk, ESP_AT, &LOADER_CONFIGURATION)?;
    ensure!(!starts, "a loader would start a half-written root");
    step(&format!("cut: {cut_at}; nothing on the disk starts it"));
    run.power_on()?;
    run.wait_deployed()?;
    run.wait_scan_of_another_boot(&boot_before)?;
    let drift = run.definite_drift()?;
    ensure!(drift["verdict"] == "clean", "{drift}");
    let deployments = run.appliance.cli(&["node", "deployments", NODE_NAME])?;
    let newest = &deployments[0];
    ensure!(newest["attempt"] == 2 && newest["state"] == "verified", "{newest}");
    let third = newest_work(&run)?;
    ensure!(third["mode"] == "in_place", "{third}");
    let ssh = run.ssh_target()?;
    let left = on_node(
        &run,
        &ssh,
        "ls -d /etc/second /usr/bin/less /.plumbline-reimage* 2>/dev/null; true",
    )?;
    ensure!(left.is_empty(), "left of the second image: {left}");
    let shown = run
        .appliance
        .cli_text(&["deployment", "show", newest["id"].as_str().context("its id")?])?;
    ensure!(shown.contains("in place"), "{shown}");

    let outcome = json!({
        "scenario": "reimage", "ok": true, "firmware": kind,
        "fresh": first, "to_second": second, "back_after_cut": third,
        "fetched_percent": percent(fetched, whole), "fetched_percent_after_cut": percent(bytes(&third, "bytes_fetched")?, whole),
        "attempts_after_cut": newest["attempt"], "cut_at": cut_at, "half_written_root_starts": starts,
        "verdict": drift["verdict"], "firmware_hangs": run.firmware_hangs,
    });
    run.stop()?;
    Ok(outcome)
}

/// Deploys an image on the running node, and waits for its first scan, which is clean.
fn to_image(run: &mut Run, image: &str) -> Result<()> {
    let boot_before = run.drift()?["report"]["boot_id"].clone();
    deploy(run, image)?;
    run.wait_deployed()?;
    run.wait_scan_of_another_boot(&boot_before)?;
    let drift = run.definite_drift()?;
    ensure!(drift["verdict"] == "clean", "{drift}");
    Ok(())
}

/// Asks for it, and waits until the node has left its old state.
fn deploy(run: &Run, image: &str) -> Result<()> {
    run.appliance
        .cli(&["node", "deploy", NODE_NAME, "--image", image, "--restart"])?;
    wait_until(COMMAND_LIMIT, "the node to be deploying", || {
        Ok((run.record()?["state"] == "deploying").then_some(()))
    })
}

/// Waits until the newest deployment writes; returns what it said.
fn wait_writing(run: &mut Run) -> Result<String> {
    wait_until(WRITE_LIMIT, "files to be compared or written", || {
        run.check_alive()?;
        run.show_events()?;
        let deployments = run.appliance.cli(&["node", "deployments", NODE_NAME])?;
        let progress = &deployments[0]["progress"];
        let is_writing = progress["stage"] == "write" && progress["bytes_done"].as_u64().unwrap_or(0) > 0;
        Ok(is_writing.then(|| format!("{}, {} bytes done", progress["detail"], progress["bytes_done"])))
    })
}

/// What became of the disk, as the newest deployment says.
fn newest_work(run: &Run) -> Result<Value> {
    let deployments = run.appliance.cli(&["node", "deployments", NODE_NAME])?;
    let outcome = &deployments[0]["outcome"];
    let mut work = outcome["work"].clone();
    ensure!(work.is_object(), "what became of the disk: {outcome}");
    work["requests"] = outcome["requests"].clone();
    work["duration_secs"] = outcome["duration_secs"].clone();
    Ok(work)
}

fn bytes(work: &Value, field: &str) -> Result<u64> {
    work[field].as_u64().with_context(|| format!("{field} in {work}"))
}

fn percent(part: u64, whole: u64) -> f64 {
    ((part as f64 / whole.max(1) as f64) * 1_000.0).round() / 10.0
}

fn on_node(run: &Run, ssh: &SshTarget, command: &str) -> Result<String> {
    let ended = ssh.run(run.appliance.namespace(), command, COMMAND_LIMIT)?;
    ensure!(
        ended.status.success(),
        "`{command}` on the node: {}",
        ended.stderr.trim()
    );
    Ok(ended.stdout.trim().to_owned())
}
