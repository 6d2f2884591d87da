//! Machines that cannot be installed yet: real arm64 firmware gets its loader, and the loader gets a plain answer.

use super::dhcp_off::Loaders;
use super::run::{Run, Site};
use super::{BootKind, step};
use crate::environment::LabEnvironment;
use crate::qemu::{BootProtocol, Firmware, Machine, MachineSpec};
use crate::wait::wait_until;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};

/// AAVMF takes its time where it is emulated.
const BOOT_LIMIT: Duration = Duration::from_secs(600);
/// What its loader shows; the console's width may break the line behind it.
const SHOWN: &str = "it is arm64, and there is no deployer";

/// The `arm64` scenario.
pub(super) fn play(environment: &LabEnvironment) -> Result<Value> {
    let run = Run::start_at(environment, "arm64", BootKind::Uefi, &Site::default())?;
    let mut seen = Vec::new();
    for (number, protocol) in [(2, BootProtocol::Pxe), (3, BootProtocol::Http)] {
        seen.push(boot(environment, &run, number, protocol)?);
    }
    let kernels = run
        .appliance
        .counter("plumbline_boot_http_requests_total", "\"artifact\"")?;
    ensure!(kernels == 0, "{kernels} kernels or ramdisks were asked for");
    run.stop()?;
    Ok(json!({ "scenario": "arm64", "ok": true, "machines": seen }))
}

/// Boots an arm64 machine that is listed until it is told that it cannot be installed.
pub(super) fn boot(environment: &LabEnvironment, run: &Run, number: u8, protocol: BootProtocol) -> Result<Value> {
    step(&format!(
        "an arm64 machine that is listed boots from the network: {protocol:?}"
    ));
    let spec = MachineSpec {
        firmware: Firmware::UefiArm64,
        boot_protocol: protocol,
        ..MachineSpec::numbered(number, &environment.firmware_files)
    };
    let (name, mac) = (spec.name.clone(), spec.mac.clone());
    let folder = run.folder().join(&name);
    fs::create_dir_all(&folder)?;
    run.appliance.cli(&["node", "add", &name, &mac])?;
    let loaders = Loaders::so_far(run)?;
    let mut machine = Machine::prepare(spec, run.appliance.namespace(), &folder)?;
    machine.power_on()?;
    let started = Instant::now();
    machine.wait_serial(SHOWN, BOOT_LIMIT)?;
    let shown_secs = started.elapsed().as_secs_f64().round();
    let console = machine.serial_text();
    let script_url = url_in(&console).context("the script's URL on the console")?;
    let events = wait_until(BOOT_LIMIT, "the event of its script", || {
        let events = run.appliance.cli(&["node", "events", &mac])?;
        let events = events.as_array().context("events")?.clone();
        let is_answered = events.iter().any(|event| event["kind"] == "script");
        Ok(is_answered.then_some(events))
    })?;
    machine.power_off()?;
    let details = |kind: &'static str| {
        let of_kind = events.iter().filter(move |event| event["kind"] == kind);
        of_kind.filter_map(|event| event["detail"].as_str())
    };
    let answered = details("script").next_back().unwrap_or_default().to_owned();
    ensure!(
        answered.contains("no deployer for arm64"),
        "what its script was: {answered}"
    );
    let way = Loaders::so_far(run)?.check(loaders, Firmware::UefiArm64, protocol)?;
    // Where the appliance sees the machine's DHCP, its timeline says more.
    let loader = match protocol {
        BootProtocol::Pxe => details("tftp").find(|detail| detail.contains(" complete: ")),
        BootProtocol::Http => details("dhcp").find(|detail| detail.ends_with("http_loader")),
    };
    let loader = loader.unwrap_or(way).to_owned();
    let why = run.appliance.cli_text(&["node", "why", &mac])?;
    ensure!(
        why.contains("this machine is arm64, and there is no deployer for arm64"),
        "what is said of it: {why}"
    );
    step(&format!("told so after {shown_secs} s"));
    Ok(json!({
        "protocol": protocol, "power_on_to_answer_s": shown_secs, "loader": loader, "script_url": script_url,
        "answered": answered, "why": why.lines().next(),
    }))
}

/// The URL of the script, as the loader shows it while it fetches it.
fn url_in(console: &str) -> Option<String> {
    let line = console.lines().find(|line| line.contains("/boot/v1/script?"))?;
    let url = line.get(line.find("http://")?..)?;
    let url = url.split("...").next()?.split_whitespace().next()?;
    Some(url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_is_found_where_the_loader_shows_it() {
        let console = "net0: 10.77.0.100/255.255.255.0\nhttp://10.77.0.1:8081/boot/v1/script?mac=52:54:00:77:00:02&arch=11\nhttp://10.77.0.1:8081/boot/v1/script... ok\n";
        assert_eq!(
            url_in(console).as_deref(),
            Some("http://10.77.0.1:8081/boot/v1/script?mac=52:54:00:77:00:02&arch=11")
        );
        assert_eq!(url_in("nothing"), None);
    }
}
