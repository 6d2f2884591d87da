//! What is played in a rack: the end-to-end run and the demonstration.

mod again;
mod appliance;
mod arm64;
mod bad_signature;
mod bench_deploy;
mod boot_kind;
mod boot_question;
mod burn_in;
mod crash;
mod dashboard;
mod demo;
mod dhcp_off;
mod documented_dhcp;
mod fleet;
mod images;
mod install;
mod module_signing;
mod neighbours;
mod oci_import;
mod own_image;
mod recipes;
mod reimage;
mod relay;
mod rescue;
mod run;
mod site_dhcp;
mod stages;
mod tamper;

use crate::command::run_checked;
use crate::environment::LabEnvironment;
use crate::wire::faults::Rates;
use anyhow::{Result, bail};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

pub use boot_kind::BootKind;
use clap::ValueEnum;
use crash::Victim;
use stages::Blow;

/// What may be wrong in a rack while the end-to-end run is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// 5 % of frames lost, 5 % doubled, 5 % swapped with the next, each way
    Lossy,
    /// The machine's power is cut at each stage of an installation
    PowerCycleStages,
    /// The server is killed and started again at each stage of an installation
    RestartServerStages,
}

/// The cable of [`Fault::Lossy`].
const LOSSY: Rates = Rates {
    dropped_percent: 5,
    doubled_percent: 5,
    swapped_percent: 5,
};

/// Scenarios by name, with what each shows.
pub const SCENARIOS: [(&str, &str); 23] = [
    (
        "install",
        "power-on to a verified node with zero drift, beside a machine nobody listed",
    ),
    (
        "baseline-suspect",
        "the same change on 30 of 40 simulated nodes: nothing is touched until a person releases it",
    ),
    (
        "kill-server",
        "the server is killed again and again, from discovery to remediation: the run ends the same",
    ),
    ("kill-postgres", "the same with its PostgreSQL"),
    (
        "power-cut-once",
        "a node's power is cut while its disk is written: its next start finishes the deployment",
    ),
    (
        "dashboard",
        "the dashboard in a real browser: sign in, follow an installation, read drift, waive, remediate, be refused",
    ),
    (
        "damaged-pack",
        "one pack damaged on the server: a failed deployment that says so",
    ),
    (
        "bad-signature",
        "unsigned, edited, foreign and revoked images: each refused by the deployer with its reason, the disk untouched",
    ),
    (
        "stranger",
        "beside the site's own DHCP and boot service nothing is said to a machine that nobody listed; a listed one is installed",
    ),
    (
        "second-dhcp",
        "another DHCP server on the segment: it is named, and the node is installed all the same",
    ),
    (
        "site-dhcp",
        "the site's DHCP server alone (dhcp = \"off\"): Kea, ISC dhcpd and dnsmasq as docs/operations.md has them",
    ),
    (
        "arm64",
        "arm64 machines get to their loader, and are told there and by the server that there is no deployer for them",
    ),
    ("relay", "a node in another subnet, behind a DHCP relay, is installed"),
    (
        "rescue",
        "a running node is sent into the rescue system: shell on the console, SSH with a key for this once, and back",
    ),
    (
        "burn-in",
        "a new machine is tested before it can be approved; its power goes in the middle, and it is tested again",
    ),
    (
        "reimage-by-agent",
        "a running node whose firmware starts from its disk is installed again, without a BMC",
    ),
    (
        "node-image",
        "debian-12-node, hardened, with the generic kernel: installed, no unit failed, zero drift, also after a restart",
    ),
    (
        "oci-import",
        "a root of three layers in a registry becomes an image: installed, zero drift; one that cannot boot is refused",
    ),
    (
        "module-signing",
        "under Secure Boot a module that DKMS built is refused until the machine is told of the site's key, then loaded",
    ),
    ("debian-13", "the same as node-image with debian-13-node"),
    ("gpu-image", "the same with debian-12-gpu"),
    (
        "reimage",
        "a node that was worked on goes to another image in place; on the way back its power is cut, and it ends right",
    ),
    (
        "other-firmware",
        "a node installed by one firmware starts by the other, and by the first again, with zero drift",
    ),
];

/// What the end-to-end run is asked for.
#[derive(Debug, Clone)]
pub struct E2eOptions {
    /// Where the binaries and loaders are.
    pub environment: LabEnvironment,
    /// How the nodes start.
    pub firmware: BootKind,
    /// What goes wrong meanwhile; for `install` alone.
    pub fault: Option<Fault>,
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
    match options.scenario.as_deref().unwrap_or("install") {
        "install" => match options.fault {
            None => install::end_to_end(&options.environment, options.firmware, None),
            Some(Fault::Lossy) => install::end_to_end(&options.environment, options.firmware, Some(LOSSY)),
            Some(Fault::PowerCycleStages) => stages::play(&options.environment, options.firmware, Blow::PowerCycle),
            Some(Fault::RestartServerStages) => {
                stages::play(&options.environment, options.firmware, Blow::ServerRestart)
            }
        },
        "stranger" => neighbours::stranger(&options.environment, options.firmware),
        "second-dhcp" => neighbours::second_dhcp(&options.environment, options.firmware),
        "site-dhcp" => dhcp_off::play(&options.environment),
        "arm64" => arm64::play(&options.environment),
        "relay" => relay::play(&options.environment, options.firmware),
        "rescue" => rescue::play(&options.environment, options.firmware),
        "burn-in" => burn_in::play(&options.environment, options.firmware),
        "reimage-by-agent" => again::by_agent(&options.environment, options.firmware),
        "reimage" => reimage::play(&options.environment, options.firmware),
        "baseline-suspect" => fleet::baseline_suspect(&options.environment),
        "kill-server" => crash::kill(&options.environment, Victim::Server),
        "kill-postgres" => crash::kill(&options.environment, Victim::Postgres),
        "power-cut-once" => crash::power_cut_once(&options.environment, options.firmware),
        "dashboard" => dashboard::browse(&options.environment),
        "damaged-pack" => install::damaged_pack(&options.environment, options.firmware),
        "node-image" => own_image::node(&options.environment, options.firmware),
        "oci-import" => oci_import::play(&options.environment, options.firmware),
        "module-signing" => module_signing::play(&options.environment),
        "debian-13" => own_image::debian_13(&options.environment, options.firmware),
        "gpu-image" => own_image::gpu(&options.environment, options.firmware),
        "bad-signature" => bad_signature::play(&options.environment, options.firmware),
        "other-firmware" => install::other_firmware(&options.environment, options.firmware),
        other => {
            let known: Vec<&str> = SCENARIOS.iter().map(|(name, _)| *name).collect();
            bail!("no scenario `{other}`; expected one of {}", known.join(", "))
        }
    }
}

/// Says which step of a scenario begins, or what came of one.
fn step(what: &str) {
    eprintln!("── {what}");
}

/// A new folder for a run, with the operator's SSH key in it.
fn run_folder(environment: &LabEnvironment, purpose: &str) -> Result<PathBuf> {
    let folder = environment
        .work_folder()
        .join(format!("run-{purpose}-{}", std::process::id()));
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let mut keygen = Command::new("ssh-keygen");
    keygen
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "operator", "-f"])
        .arg(folder.join("operator"));
    run_checked(&mut keygen, Duration::from_secs(20))?;
    Ok(folder)
}

/// Measures writing an image on a node, for `cargo xtask bench deploy`.
///
/// # Errors
/// As [`run_e2e`].
pub fn run_bench_deploy(environment: &LabEnvironment, rounds: u32) -> Result<Value> {
    environment.check()?;
    bench_deploy::measure(environment, rounds)
}

/// Plays the demonstration and, unless `once`, stays until Ctrl-C.
///
/// # Errors
/// As [`run_e2e`].
pub fn run_demo(options: &DemoOptions) -> Result<Value> {
    options.environment.check()?;
    demo::run(options)
}
