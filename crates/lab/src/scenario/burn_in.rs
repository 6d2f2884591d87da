//! A new machine is burned in: held back meanwhile, and when its power goes in the middle; approved once it has passed.

use super::run::{Run, Site};
use super::{BootKind, step};
use crate::environment::LabEnvironment;
use crate::wait::wait_until;
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use std::time::Duration;

/// Minutes are for real machines; emulation is slow, and so a pass over memory needs one.
const SETTINGS: &str = "[commissioning]\nnew_nodes = true\n\
    limit_secs = { links = 12, network = 12, memory = 90, cpu = 10, disk = 60 }\n\
    [[commissioning.links]]\nlayer = \"ethernet\"\ncount = 1\n";
const TEST_LIMIT: Duration = Duration::from_secs(600);

/// The `burn-in` scenario.
pub(super) fn play(environment: &LabEnvironment, kind: BootKind) -> Result<Value> {
    let site = Site {
        more: SETTINGS.to_owned(),
        ..Site::default()
    };
    let mut run = Run::start_at(environment, "burn-in", kind, &site)?;
    run.power_on_and_discover()?;
    let mac = run.machine.spec().mac.clone();

    step("the machine is burned in; meanwhile it cannot be approved");
    let reason = wait_standing(&mut run, &mac, "running", "memory: pass")?;
    let refused = refusal(&run, &mac)?;
    ensure!(refused.contains("being burned in"), "{refused}");

    step(&format!("its power goes in the middle ({reason})"));
    run.cut_power()?;
    run.power_on()?;
    let reason = wait_standing(&mut run, &mac, "failed", "")?;
    ensure!(reason.contains("the machine restarted during memory"), "{reason}");
    let refused = refusal(&run, &mac)?;
    ensure!(refused.contains("did not pass its burn-in"), "{refused}");

    step("a person orders another one; the machine that waits takes it up");
    let order = ["node", "boot", &mac, "--commission", "--reason", "its power was cut"];
    run.appliance.cli(&order)?;
    wait_standing(&mut run, &mac, "passed", "")?;
    let listed = run.appliance.cli_text(&["node", "burn-ins", &mac])?;
    eprintln!("{listed}");
    let burn_ins = run.appliance.cli(&["node", "burn-ins", &mac])?;
    let results = burn_ins[0]["results"].as_array().context("its results")?.clone();
    ensure!(results.len() == 5, "five tests: {burn_ins}");
    let disk = results
        .iter()
        .find(|result| result["kind"] == "disk")
        .context("the disk's result")?;
    let written = disk["detail"]
        .as_str()
        .is_some_and(|detail| detail.contains("MB written at"));
    ensure!(written, "a blank disk is written: {disk}");

    run.appliance.cli(&["node", "boot", &mac, "--normal"])?;
    run.approve_and_deploy()?;
    let drift = run.definite_drift()?;
    ensure!(drift["verdict"] == "clean", "{drift}");
    let figures: Vec<String> = results
        .iter()
        .flat_map(|result| result["figures"].as_array().into_iter().flatten())
        .map(|figure| {
            let value = figure["value"].as_f64().unwrap_or_default();
            format!("{} {value:.1} {}", text(&figure["name"]), text(&figure["unit"]))
        })
        .collect();
    let outcome = json!({
        "scenario": "burn-in", "ok": true, "firmware": kind, "first": reason, "figures": figures,
        "burn_ins": burn_ins.as_array().map(Vec::len), "verdict": drift["verdict"],
    });
    run.stop()?;
    Ok(outcome)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Waits until its burn-in stands like this, for a reason that begins like this.
fn wait_standing(run: &mut Run, mac: &str, standing: &str, begin: &str) -> Result<String> {
    wait_until(TEST_LIMIT, &format!("its burn-in to be {standing}"), || {
        run.check_alive()?;
        run.show_events()?;
        let node = run.appliance.cli(&["node", "show", mac])?;
        let reason = text(&node["burn_in_reason"]);
        let is_there = node["burn_in"] == standing && reason.starts_with(begin);
        Ok(is_there.then(|| reason.to_owned()))
    })
}

/// What approving it is refused with.
fn refusal(run: &Run, mac: &str) -> Result<String> {
    let approve = ["node", "approve", mac, "--name", "early", "--image", super::run::IMAGE];
    match run.appliance.cli(&approve) {
        Ok(deployment) => bail!("it was approved: {deployment}"),
        Err(error) => Ok(format!("{error:#}")),
    }
}
