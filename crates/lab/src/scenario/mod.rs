//! What is played in a rack: the end-to-end run and the demonstration.

mod appliance;
mod images;
mod install;

use crate::environment::LabEnvironment;
use crate::forward::Forward;
use crate::interrupt;
use crate::qemu::Firmware;
use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;

use install::Run;

/// Scenarios by name, with what each shows.
pub const SCENARIOS: [(&str, &str); 2] = [
    (
        "install",
        "power-on to a verified node with zero drift, beside a machine nobody listed",
    ),
    (
        "damaged-pack",
        "one pack damaged on the server: a failed deployment that says so",
    ),
];

/// What the end-to-end run is asked for.
#[derive(Debug, Clone)]
pub struct E2eOptions {
    /// Where the binaries and loaders are.
    pub environment: LabEnvironment,
    /// The firmware of the nodes.
    pub firmware: Firmware,
    /// The scenario; `install` when absent.
    pub scenario: Option<String>,
}

/// What the demonstration is asked for.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// Where the binaries and loaders are.
    pub environment: LabEnvironment,
    /// Play through once and end, instead of leaving the dashboard running.
    pub once: bool,
}

/// Plays a scenario and returns what was seen, for the last line of output.
///
/// # Errors
/// When the scenario fails: the message says which step, and where its logs are.
pub fn run_e2e(options: &E2eOptions) -> Result<Value> {
    options.environment.check()?;
    ensure!(
        options.firmware == Firmware::Uefi,
        "BIOS machines are not installed yet: use --firmware uefi"
    );
    match options.scenario.as_deref().unwrap_or("install") {
        "install" => install::end_to_end(&options.environment),
        "damaged-pack" => install::damaged_pack(&options.environment),
        other => {
            let known: Vec<&str> = SCENARIOS.iter().map(|(name, _)| *name).collect();
            bail!("no scenario `{other}`; expected one of {}", known.join(", "))
        }
    }
}

/// Plays the demonstration and, unless `once`, stays until Ctrl-C.
///
/// # Errors
/// As [`run_e2e`].
pub fn run_demo(options: &DemoOptions) -> Result<Value> {
    options.environment.check()?;
    let mut run = Run::start(&options.environment, "demo")?;
    run.power_on_and_discover()?;
    run.approve_and_deploy()?;
    let drift = run.definite_drift()?;
    println!("{}", run.appliance.cli_text(&["node", "list"])?);
    println!("{}", run.appliance.cli_text(&["drift", "show", install::NODE_NAME])?);
    if options.once {
        return Ok(json!({ "node": install::NODE_NAME, "verdict": drift["verdict"], "reason": drift["reason"] }));
    }
    let forward = Forward::start(
        run.appliance.namespace(),
        SocketAddr::from(([127, 0, 0, 1], 8080)),
        appliance::PEOPLE,
    )?;
    println!("{}", run.appliance.look_around(forward.address()));
    while !interrupt::requested() {
        run.check_alive()?;
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok(json!({ "node": install::NODE_NAME, "verdict": drift["verdict"] }))
}
