//! The appliance beside others: a machine that is none of its own, and another DHCP server.

use super::run::{ApplianceDhcp, Run, Site};
use super::site_dhcp::{self, SiteDhcp};
use super::{BootKind, step};
use crate::environment::LabEnvironment;
use crate::netns::{BRIDGE_ADDRESS, NetworkNamespace};
use crate::qemu::{Machine, MachineSpec};
use crate::wait::wait_until;
use crate::wire::recorded;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Duration;

const BOOT_LIMIT: Duration = Duration::from_secs(300);
const LIST_LIMIT: Duration = Duration::from_secs(30);

/// The `stranger` scenario.
pub(super) fn stranger(environment: &LabEnvironment, kind: BootKind) -> Result<Value> {
    let site = Site {
        dhcp: ApplianceDhcp::Proxy,
        ..Site::default()
    };
    let mut run = Run::start_at(environment, "stranger", kind, &site)?;
    let folder = run.folder().to_owned();
    let spec = MachineSpec {
        firmware: kind.firmware(),
        boot_protocol: kind.protocol(),
        is_recorded: true,
        ..MachineSpec::numbered(2, &environment.firmware_files)
    };

    step("a machine of somebody else boots from the site's own service, the appliance not there");
    let elsewhere = NetworkNamespace::create_unique("alone")?;
    let before = {
        let _server = SiteDhcp::start(environment, &elsewhere, &folder.join("alone"), Some(&spec.mac))?;
        boot_by_site(spec.clone(), &elsewhere, &folder.join("alone").join("stranger"))?
    };
    step("the same with the appliance beside it, in mode proxy");
    let server = SiteDhcp::start(environment, run.appliance.namespace(), &folder, Some(&spec.mac))?;
    let with = boot_by_site(spec.clone(), run.appliance.namespace(), &folder.join("stranger"))?;
    ensure!(
        with.shown == before.shown,
        "its console differs.\nbefore:\n{}\nwith the appliance:\n{}",
        before.shown.join("\n"),
        with.shown.join("\n")
    );
    ensure!(
        with.from_appliance == 0,
        "{} frames of the appliance reached it",
        with.from_appliance
    );
    let sightings = run.appliance.cli(&["sightings"])?;
    let seen = sightings
        .as_array()
        .and_then(|all| all.iter().find(|one| one["mac"] == spec.mac.as_str()))
        .context("the stranger is not among the sightings")?;
    let asked = seen["count"].clone();
    step(&format!(
        "it asked {asked} times, and got no frame of the appliance; nothing changed for it"
    ));

    step("a machine that is wanted is installed beside both");
    run.power_on_and_discover()?;
    run.approve_and_deploy()?;
    let drift = run.definite_drift()?;
    ensure!(drift["verdict"] == "clean", "{drift}");
    let addresses = server.log().lines().filter(|line| line.contains("DHCPACK")).count();
    let outcome = json!({
        "scenario": "stranger", "ok": true, "firmware": kind, "stranger_asked": asked,
        "frames_from_appliance": with.from_appliance, "frames_to_stranger": with.frames,
        "console_lines_alike": with.shown.len(), "addresses_by_site": addresses, "verdict": drift["verdict"],
    });
    drop(server);
    run.stop()?;
    Ok(outcome)
}

/// What was seen of a machine that the site's own service boots.
struct Booted {
    /// Its console, without what differs from one boot to the next.
    shown: Vec<String>,
    frames: u64,
    from_appliance: u64,
}

fn boot_by_site(spec: MachineSpec, namespace: &NetworkNamespace, folder: &Path) -> Result<Booted> {
    fs::create_dir_all(folder)?;
    let mut machine = Machine::prepare(spec, namespace, folder)?;
    machine.power_on()?;
    machine.wait_serial(site_dhcp::WORDS, BOOT_LIMIT)?;
    machine.power_off()?;
    let recorded = fs::read(machine.frames()).context("the recorded frames")?;
    let counts = recorded::count(&recorded, BRIDGE_ADDRESS)?;
    Ok(Booted {
        shown: without_times(&machine.serial_text()),
        frames: counts.frames,
        from_appliance: counts.from_address,
    })
}

/// Lines of a console, without what time alone changes: dots of waiting, counters of the interface.
fn without_times(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| {
        let line = line.split("[Link:").next().unwrap_or_default().trim().replace('.', " ");
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    lines.filter(|line| !line.is_empty()).collect()
}

/// The `second-dhcp` scenario.
pub(super) fn second_dhcp(environment: &LabEnvironment, kind: BootKind) -> Result<Value> {
    let mut run = Run::start(environment, "second", kind)?;
    step("another DHCP server on the same segment gives addresses and no boot file");
    let folder = run.folder().to_owned();
    let other = SiteDhcp::start(environment, run.appliance.namespace(), &folder, None)?;
    run.power_on_and_discover()?;
    run.approve_and_deploy()?;
    let drift = run.definite_drift()?;
    ensure!(drift["verdict"] == "clean", "{drift}");
    let servers = wait_until(LIST_LIMIT, "the other server to be listed", || {
        let servers = run.appliance.cli(&["dhcp-servers"])?;
        let mut found = servers.as_array().into_iter().flatten();
        Ok(found.find(|server| server["address"] == site_dhcp::ADDRESS).cloned())
    })?;
    let state = run.record()?["state"].clone();
    ensure!(state == "deployed", "the node is {state}");
    let offers = other.log().lines().filter(|line| line.contains("DHCPOFFER")).count();
    ensure!(offers > 0, "the other server offered nothing: there was no race");
    let outcome = json!({
        "scenario": "second-dhcp", "ok": true, "firmware": kind, "other_server": servers, "its_offers": offers,
        "state": state, "verdict": drift["verdict"],
    });
    drop(other);
    run.stop()?;
    Ok(outcome)
}
