//! The dashboard in a real browser, against the real server with a simulated fleet behind it.

use super::appliance;
use super::fleet::{Fleet, FleetRun};
use super::step;
use crate::command::run_captured;
use crate::environment::LabEnvironment;
use crate::forward::Forward;
use crate::simulated::tamper::Change;
use crate::simulated::{node_mac, node_name};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

const NODES: u32 = 6;
/// Waits for somebody at the dashboard to approve it.
const WAITING: u32 = NODES + 1;
const BROWSER_LIMIT: Duration = Duration::from_secs(1_500);
const CHANGED: &str = "/etc/ssh/sshd_config";

/// The `dashboard` scenario.
pub(super) fn browse(environment: &LabEnvironment) -> Result<Value> {
    let web = environment.root.join("web");
    ensure!(
        web.join("node_modules/playwright-core").exists(),
        "the dashboard's packages are not in {}: run `cargo xtask setup`",
        web.display()
    );
    let run = FleetRun::start(environment, "dashboard", NODES)?;
    for (number, change) in [
        (1, Change::Sshd),
        (1, Change::Sysctl),
        (2, Change::Mode),
        (3, Change::Unit),
    ] {
        run.fleet.tamper(number, change)?;
    }
    run.wait_finding(CHANGED, 1)?;
    run.appliance.cli(&[
        "discovery",
        "arm",
        "10.77.0.0/24",
        "--minutes",
        "120",
        "--nodes-max",
        "1",
    ])?;
    let waiting = Fleet::power_on(run.appliance.namespace(), run.folder(), WAITING, 1)?;
    waiting.wait_listed(&run.appliance)?;
    let viewer = run.appliance.add_viewer()?;
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let forward = Forward::start(run.appliance.namespace(), listen, appliance::PEOPLE)?;

    step(&format!("the browser looks at http://{}", forward.address()));
    let mut browser = Command::new("npm");
    browser
        .args(["run", "--silent", "browser"])
        .current_dir(&web)
        .env("PLUMBLINE_URL", format!("http://{}", forward.address()))
        .env("PLUMBLINE_ADMIN_PASSWORD", run.appliance.password())
        .env("PLUMBLINE_VIEWER_PASSWORD", viewer)
        .env("PLUMBLINE_NODE", node_name(1))
        .env("PLUMBLINE_INSTALLING", node_mac(WAITING));
    let ended = run_captured(&mut browser, BROWSER_LIMIT)?;
    eprint!("{}{}", ended.stdout, ended.stderr);
    ensure!(
        ended.status.success(),
        "the browser found faults: {}",
        ended.stderr.trim()
    );
    let steps: Vec<&str> = ended
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("PASS ")?.split_whitespace().next())
        .collect();
    ensure!(!ended.stdout.contains("SKIP "), "steps were left out: {}", ended.stdout);
    let drift = run.drift_of(&node_name(1))?;
    let outcome = json!({
        "scenario": "dashboard", "ok": true, "steps": steps,
        "verdict_after_remediation": drift["verdict"].as_str().context("a verdict")?,
    });
    drop(waiting);
    run.stop()?;
    Ok(outcome)
}
