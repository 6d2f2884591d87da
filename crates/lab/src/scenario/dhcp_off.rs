//! The site's own DHCP server alone (`dhcp = "off"`): each server that docs/operations.md has a part for boots machines
//! of each firmware, and the appliance, which sees no DHCP, installs one.

use super::documented_dhcp::{DocumentedDhcp, SiteServer};
use super::run::{ApplianceDhcp, NODE_NAME, Run, Site};
use super::{BootKind, arm64, boot_question, step};
use crate::environment::LabEnvironment;
use crate::netns::BRIDGE_ADDRESS;
use crate::qemu::{BootProtocol, DiskBus, Firmware, Machine, MachineSpec};
use crate::wait::wait_until;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};

const INVENTORY_LIMIT: Duration = Duration::from_secs(400);
const DISK_BYTES: u64 = 1 << 30;
const KINDS: [BootKind; 3] = [BootKind::Uefi, BootKind::Bios, BootKind::UefiHttp];

/// How the appliance comes to know a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// A person listed it.
    Listed,
    /// It is admitted by its first script, while discovery is armed for its address.
    ByItsScript,
}

/// How machines came by their loaders, counted at the appliance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Loaders {
    by_tftp: u64,
    by_http: u64,
}

impl Loaders {
    pub(super) fn so_far(run: &Run) -> Result<Self> {
        let appliance = &run.appliance;
        Ok(Self {
            by_tftp: appliance.counter("plumbline_tftp_total", "\"complete\"")?,
            by_http: appliance.counter("plumbline_boot_http_requests_total", "\"loader\"")?,
        })
    }

    /// Refuses a way that is not this firmware's: the server's answer for another kind of client would have been used.
    pub(super) fn check(self, before: Self, firmware: Firmware, protocol: BootProtocol) -> Result<&'static str> {
        let (by_tftp, by_http) = (self.by_tftp - before.by_tftp, self.by_http - before.by_http);
        let (fits, way) = match (firmware, protocol) {
            // QEMU's NIC has an iPXE as its ROM: it goes on to its script at once.
            (Firmware::Bios, _) => (by_tftp == 0 && by_http == 0, "none: the NIC's ROM is an iPXE"),
            (_, BootProtocol::Http) => (by_http > 0 && by_tftp == 0, "http"),
            (_, BootProtocol::Pxe) => (by_tftp > 0 && by_http == 0, "tftp"),
        };
        ensure!(
            fits,
            "{firmware:?} by {protocol:?}: {by_tftp} loaders by TFTP and {by_http} by HTTP"
        );
        Ok(way)
    }
}

/// The `site-dhcp` scenario.
pub(super) fn play(environment: &LabEnvironment) -> Result<Value> {
    let site = Site {
        dhcp: ApplianceDhcp::Off,
        ..Site::default()
    };
    let mut run = Run::start_at(environment, "sitedhcp", BootKind::Uefi, &site)?;
    let folder = run.folder().to_owned();
    let (mut booted, mut arm64_told) = (Vec::new(), Vec::new());
    let mut number = 1;
    for server in SiteServer::ALL {
        step(&format!(
            "the site's DHCP server is {server:?}, as docs/operations.md has it"
        ));
        let running = DocumentedDhcp::start(environment, run.appliance.namespace(), &folder, server)?;
        let asked = boot_question::ask_as_bios(run.appliance.namespace())?;
        ensure!(
            asked.boot_file == "undionly.kpxe" && asked.next_server == BRIDGE_ADDRESS,
            "{server:?} tells BIOS firmware to boot {asked:?}"
        );
        // Beside Kea the machine that is installed is the one by UEFI.
        let is_installed = server == SiteServer::Kea;
        for kind in KINDS
            .into_iter()
            .filter(|kind| !(is_installed && *kind == BootKind::Uefi))
        {
            number += 1;
            let known = match kind {
                BootKind::UefiHttp => Known::ByItsScript,
                _ => Known::Listed,
            };
            booted.push(boot(environment, &run, number, server, kind, known)?);
        }
        for protocol in [BootProtocol::Pxe, BootProtocol::Http] {
            number += 1;
            let mut told = arm64::boot(environment, &run, number, protocol)?;
            told["server"] = json!(server);
            arm64_told.push(told);
        }
        if is_installed {
            install(&mut run)?;
        }
        drop(running);
    }
    let verdict = run.drift()?["verdict"].clone();
    let outcome = json!({
        "scenario": "site-dhcp", "ok": true, "booted": booted, "arm64": arm64_told, "installed_beside": SiteServer::Kea,
        "installed_by": BootKind::Uefi, "power_on_to_inventory_s": run.discovered_secs.round(),
        "deploy_s": run.deploy_secs.round(), "verdict": verdict,
    });
    run.stop()?;
    Ok(outcome)
}

/// The whole way of a listed node, by UEFI.
fn install(run: &mut Run) -> Result<()> {
    step("a listed node is installed");
    why_blames_no_dhcp(run, &run.list(NODE_NAME)?)?;
    run.power_on_and_inventory()?;
    run.approve_and_deploy()?;
    let drift = run.definite_drift()?;
    ensure!(drift["verdict"] == "clean", "{drift}");
    run.cut_power()
}

/// Boots a machine until its deployer has told what it is made of.
fn boot(
    environment: &LabEnvironment,
    run: &Run,
    number: u8,
    server: SiteServer,
    kind: BootKind,
    known: Known,
) -> Result<Value> {
    step(&format!("{kind:?}, {known:?}"));
    let spec = MachineSpec {
        firmware: kind.firmware(),
        boot_protocol: kind.protocol(),
        ..MachineSpec::numbered(number, &environment.firmware_files)
    };
    let machine_folder = run.folder().join(&spec.name);
    fs::create_dir_all(&machine_folder)?;
    let spec = spec.with_disk(&machine_folder, DISK_BYTES, DiskBus::Virtio);
    let (name, mac) = (spec.name.clone(), spec.mac.clone());
    match known {
        Known::Listed => {
            run.appliance.cli(&["node", "add", &name, &mac])?;
            why_blames_no_dhcp(run, &mac)?;
        }
        Known::ByItsScript => {
            let arm = [
                "discovery",
                "arm",
                "10.77.0.0/24",
                "--minutes",
                "30",
                "--nodes-max",
                "1",
            ];
            run.appliance.cli(&arm)?;
        }
    }
    let loaders = Loaders::so_far(run)?;
    let mut machine = Machine::prepare(spec, run.appliance.namespace(), &machine_folder)?;
    machine.power_on()?;
    let started = Instant::now();
    let events = wait_until(INVENTORY_LIMIT, &format!("the inventory of {name}"), || {
        ensure!(machine.is_running()?, "{name} went off");
        let nodes = run.appliance.cli(&["node", "list"])?;
        let mut nodes = nodes.as_array().into_iter().flatten();
        let is_ours = |node: &Value| node["macs"].as_array().is_some_and(|macs| macs.contains(&json!(mac)));
        if !nodes.any(is_ours) {
            return Ok(None);
        }
        let events = run.appliance.cli(&["node", "events", &mac])?;
        let events = events.as_array().context("events")?.clone();
        let is_inventoried = events.iter().any(|event| event["kind"] == "inventory");
        Ok(is_inventoried.then_some(events))
    })
    .with_context(|| format!("console in {}", machine.serial_log().display()))?;
    let seconds = started.elapsed().as_secs_f64().round();
    machine.power_off()?;
    let way = Loaders::so_far(run)?.check(loaders, kind.firmware(), kind.protocol())?;
    let has = |kind: &str| events.iter().any(|event| event["kind"] == kind);
    ensure!(!has("dhcp"), "an appliance that sees no DHCP tells of it: {events:?}");
    ensure!(
        has("discovered") == (known == Known::ByItsScript),
        "how it came to be known: {events:?}"
    );
    step(&format!("inventoried after {seconds} s; loader: {way}"));
    Ok(json!({
        "server": server, "firmware": kind, "known": if known == Known::Listed { "listed" } else { "by its script" },
        "loader": way, "power_on_to_inventory_s": seconds,
    }))
}

/// Of a machine of which nothing was seen, the site's server is asked about, not a DHCP request that cannot be seen.
fn why_blames_no_dhcp(run: &Run, node: &str) -> Result<()> {
    let why = run.appliance.cli_text(&["node", "why", node])?;
    ensure!(
        why.contains("the site's DHCP server") && !why.contains("a DHCP request from its firmware"),
        "what is said of a machine that was never seen: {why}"
    );
    Ok(())
}
