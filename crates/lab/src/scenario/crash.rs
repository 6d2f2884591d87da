//! What dies in the middle, and how the run ends all the same.

use super::BootKind;
use super::fleet::FleetRun;
use super::run::{NODE_NAME, Run};
use super::step;
use crate::environment::LabEnvironment;
use crate::simulated::node_name;
use crate::simulated::tamper::Change;
use crate::wait::wait_until;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::time::Duration;

const NODES: u32 = 4;
const STEP_LIMIT: Duration = Duration::from_secs(600);
const CHANGED: &str = "/etc/ssh/sshd_config";

/// What is killed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Victim {
    /// The server process, and with it its PostgreSQL.
    Server,
    /// The private PostgreSQL alone.
    Postgres,
}

impl Victim {
    const fn scenario(self) -> &'static str {
        match self {
            Self::Server => "kill-server",
            Self::Postgres => "kill-postgres",
        }
    }
}

struct Crashes {
    run: FleetRun,
    victim: Victim,
    strikes: Vec<&'static str>,
}

impl Crashes {
    /// Kills the victim at this moment, and goes on when everything answers again.
    fn strike(&mut self, moment: &'static str) -> Result<()> {
        step(&format!("kill -9 {moment}"));
        match self.victim {
            Victim::Server => self.run.appliance.kill_and_restart(),
            Victim::Postgres => self.run.appliance.kill_postgres(),
        }
        .with_context(|| format!("after the kill {moment}"))?;
        self.strikes.push(moment);
        Ok(())
    }

    /// Waits until a node is in one of these states.
    fn wait_any(&self, states: &[&str]) -> Result<()> {
        wait_until(STEP_LIMIT, &format!("a node to be {}", states.join(" or ")), || {
            let nodes = self.run.appliance.cli(&["node", "list"])?;
            let mut nodes = nodes.as_array().into_iter().flatten();
            Ok(nodes
                .any(|node| states.iter().any(|state| node["state"] == *state))
                .then_some(()))
        })
    }

    /// Waits until a job of the newest remediation is in one of these states; `false` when the run is over first.
    fn wait_job(&self, states: &[&str]) -> Result<bool> {
        wait_until(STEP_LIMIT, &format!("a job to be {}", states.join(" or ")), || {
            let run = self.run.appliance.cli(&["remediation", "show"])?;
            if run["state"] != "running" {
                return Ok(Some(false));
            }
            let mut jobs = run["jobs"].as_array().into_iter().flatten();
            Ok(jobs
                .any(|job| states.iter().any(|state| job["state"] == *state))
                .then_some(true))
        })
    }
}

/// The `kill-server` and `kill-postgres` scenarios: killed at every kind of moment between discovery and the end of a
/// remediation, the run ends as if nothing had happened.
pub(super) fn kill(environment: &LabEnvironment, victim: Victim) -> Result<Value> {
    let run = FleetRun::prepare(environment, victim.scenario(), NODES)?;
    let mut crashes = Crashes {
        run,
        victim,
        strikes: Vec::new(),
    };
    crashes.run.fleet.discover(&crashes.run.appliance)?;
    crashes.wait_any(&["discovering", "waiting_approval"])?;
    crashes.strike("while machines are discovered")?;
    crashes
        .run
        .fleet
        .wait_states(&crashes.run.appliance, "waiting_approval")?;
    for number in crashes.run.fleet.numbers() {
        crashes.run.fleet.approve(&crashes.run.appliance, number)?;
        if number == 1 {
            crashes.strike("right after an approval")?;
        }
    }
    crashes.wait_any(&["deploying", "installed"])?;
    crashes.strike("during installations")?;
    crashes.wait_any(&["installed", "deployed"])?;
    crashes.strike("before first scans")?;
    crashes.run.fleet.wait_states(&crashes.run.appliance, "deployed")?;
    for number in crashes.run.fleet.numbers() {
        let drift = crashes.run.drift_of(&node_name(number))?;
        ensure!(drift["verdict"] == "clean", "{drift}");
        crashes.run.fleet.tamper(number, Change::Sshd)?;
    }
    crashes.strike("while reports are due")?;
    crashes.run.wait_finding(CHANGED, u64::from(NODES))?;
    crashes.strike("after reports came in")?;
    let begin = ["remediate", "--apply", "--no-wait", "--json"];
    crashes.run.appliance.cli_code(&begin, STEP_LIMIT)?;
    if crashes.wait_job(&["issued"])? {
        crashes.strike("while a job waits to be pulled")?;
    }
    if crashes.wait_job(&["working", "checking"])? {
        crashes.strike("while a job is carried out or proved")?;
    }
    let remediation = wait_until(STEP_LIMIT, "the end of the remediation", || {
        let run = crashes.run.appliance.cli(&["remediation", "show"])?;
        Ok((run["state"] == "finished").then_some(run))
    })?;
    ensure!(remediation["nodes"] == json!({ "done": NODES }), "{remediation}");
    let (attempts, left) = check_end(&crashes)?;
    let outcome = json!({
        "scenario": victim.scenario(), "ok": true, "nodes": NODES, "killed": crashes.strikes.len(),
        "moments": crashes.strikes, "attempts_max": attempts, "repaired": remediation["nodes"]["done"],
        "findings_left": left,
    });
    crashes.run.stop()?;
    Ok(outcome)
}

/// Every node deployed and clean, by one deployment each, and one remediation. Returns the most attempts of any, and
/// the findings of all.
fn check_end(crashes: &Crashes) -> Result<(u64, usize)> {
    let appliance = &crashes.run.appliance;
    let (mut attempts, mut left) = (0, 0);
    for number in crashes.run.fleet.numbers() {
        let name = node_name(number);
        let drift = crashes.run.drift_of(&name)?;
        ensure!(drift["verdict"] == "clean", "{drift}");
        left += drift["findings"].as_array().context("findings")?.len();
        let deployments = appliance.cli(&["node", "deployments", &name])?;
        let deployments = deployments.as_array().context("deployments")?;
        ensure!(deployments.len() == 1, "{name} has {} deployments", deployments.len());
        ensure!(deployments[0]["state"] == "verified", "{}", deployments[0]);
        let attempt = deployments[0]["attempt"].as_u64().context("attempt")?;
        ensure!(
            attempt == 1,
            "a server away for seconds cost {name} an attempt: {}",
            deployments[0]
        );
        attempts = attempts.max(attempt);
    }
    let runs = appliance.cli(&["remediation", "list"])?;
    ensure!(runs.as_array().is_some_and(|runs| runs.len() == 1), "{runs}");
    Ok((attempts, left))
}

/// The `power-cut-once` scenario: the power of a node is cut while its disk is written; at its next power-on the
/// deployment goes on as its second attempt.
pub(super) fn power_cut_once(environment: &LabEnvironment, kind: BootKind) -> Result<Value> {
    let mut run = Run::start(environment, "powercut", kind)?;
    run.power_on_and_discover()?;
    run.approve()?;
    run.wait_event("stage", "write")?;
    let half = run.wait_written(1, 3)?;
    run.cut_power()?;
    step(&format!("power cut after {} of {} bytes", half.0, half.1));
    let node = run.record()?;
    ensure!(
        node["state"] == "deploying",
        "half-written, the node reads as {}",
        node["state"]
    );
    run.power_on()?;
    run.wait_deployed()?;
    let drift = run.definite_drift()?;
    ensure!(drift["verdict"] == "clean", "{drift}");
    let deployments = run.appliance.cli(&["node", "deployments", NODE_NAME])?;
    let (attempt, count) = (&deployments[0]["attempt"], deployments.as_array().map_or(0, Vec::len));
    ensure!(
        *attempt == 2 && count == 1,
        "expected one deployment with two attempts: {deployments}"
    );
    let outcome = json!({
        "scenario": "power-cut-once", "ok": true, "bytes_when_cut": half.0, "bytes": half.1, "attempts": attempt,
        "state": run.record()?["state"], "findings": drift["findings"].as_array().context("findings")?.len(),
    });
    run.stop()?;
    Ok(outcome)
}
