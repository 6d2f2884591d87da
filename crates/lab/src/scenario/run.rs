//! A rack with an appliance and one machine, and what is done with them.

use super::appliance::{Appliance, BootSettings};
use super::images::{self, OsImage};
use super::relay::{self, Relay};
use super::{BootKind, run_folder, step};
use crate::environment::LabEnvironment;
use crate::netns::NetworkNamespace;
use crate::qemu::{BootOrder, DiskBus, Firmware, Machine, MachineSpec};
use crate::ssh::SshTarget;
use crate::wait::wait_until;
use crate::wire::faults::{Fates, Rates};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Name of the node that is installed.
pub const NODE_NAME: &str = "node1";
pub(super) const IMAGE: &str = "debian-12-lab";
/// Software emulation on two shared cores: limits are generous, and only ever reached by a fault.
const DISCOVERY_LIMIT: Duration = Duration::from_secs(600);
const DEPLOY_LIMIT: Duration = Duration::from_secs(1200);
const SCAN_LIMIT: Duration = Duration::from_secs(900);
const NEIGHBOUR_LIMIT: Duration = Duration::from_secs(300);
/// The console says nothing for this long only when it hangs, between firmware and kernel.
const FIRMWARE_SILENCE: Duration = Duration::from_secs(150);
const FIRMWARE_HANGS_MAX: u32 = 2;
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(180);

/// A rack with an appliance and one empty machine.
pub struct Run {
    /// Dropped first: the machine's wire goes with the appliance's namespace.
    pub(super) machine: Machine,
    relay: Option<Relay>,
    kind: BootKind,
    /// Name of the image that its node gets.
    image: String,
    pub(super) appliance: Appliance,
    folder: PathBuf,
    powered_on: Option<Instant>,
    pub(super) discovered_secs: f64,
    pub(super) deploy_secs: f64,
    pub(super) first_scan_secs: f64,
    events_seen: i64,
    /// Size of the console's log, and since when.
    console: (u64, Instant),
    pub(super) firmware_hangs: u32,
}

/// What an appliance does of DHCP (`boot.dhcp`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ApplianceDhcp {
    /// It gives addresses and boot answers.
    #[default]
    Full,
    /// The site has a DHCP server of its own: the appliance only adds boot answers.
    Proxy,
    /// The site's DHCP server names the appliance, which sees no DHCP.
    Off,
}

impl ApplianceDhcp {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Proxy => "proxy",
            Self::Off => "off",
        }
    }
}

/// What is special about a run's site.
#[derive(Debug, Clone, Default)]
pub(super) struct Site {
    /// What the machine's cable does to frames.
    pub cable: Option<Rates>,
    /// What the appliance does of DHCP.
    pub dhcp: ApplianceDhcp,
    /// The operating system that its machine gets.
    pub os: OsImage,
    /// The machine is in another subnet, behind a DHCP relay.
    pub is_relayed: bool,
    /// More sections of the server's configuration.
    pub more: String,
}

impl Run {
    /// Puts up the rack: images, appliance, an empty machine that is off.
    pub(super) fn start(environment: &LabEnvironment, purpose: &str, kind: BootKind) -> Result<Self> {
        Self::start_at(environment, purpose, kind, &Site::default())
    }

    /// As [`Self::start`], at a site that has something special.
    pub(super) fn start_at(environment: &LabEnvironment, purpose: &str, kind: BootKind, site: &Site) -> Result<Self> {
        let folder = run_folder(environment, purpose)?;
        images::provide(environment, &folder.join("data"), &site.os)?;
        let namespace = NetworkNamespace::create_unique(purpose)?;
        let machine_folder = folder.join(NODE_NAME);
        fs::create_dir_all(&machine_folder)?;
        let spec = MachineSpec {
            firmware: kind.firmware(),
            boot_protocol: kind.protocol(),
            cable: site.cable,
            memory_mib: site.os.memory_mib,
            ..MachineSpec::numbered(1, &environment.firmware_files)
        };
        let spec = spec.with_disk(&machine_folder, site.os.disk_bytes, DiskBus::Virtio);
        let relay = match site.is_relayed {
            true => Some(Relay::start(environment, &namespace, &folder)?),
            false => None,
        };
        let wire = relay.as_ref().map_or(&namespace, Relay::namespace);
        let machine = Machine::prepare(spec, wire, &machine_folder)?;
        let mut settings = BootSettings::alone(kind.chain());
        settings.dhcp = site.dhcp.as_str();
        if site.is_relayed {
            settings.more = relay::SUBNET.to_owned();
        }
        settings.more.push_str(&site.more);
        let appliance = Appliance::start(environment, namespace, &folder, &settings)?;
        step(&format!("the appliance is up; logs in {}", folder.display()));
        let image = site.os.name();
        wait_until(Duration::from_secs(60), "three images to be registered", || {
            let images = appliance.cli(&["image", "list"])?;
            let images = images.as_array().map_or(&[][..], Vec::as_slice);
            let is_there = images.iter().any(|one| one["name"] == image.as_str());
            Ok((images.len() >= 3 && is_there).then_some(()))
        })?;
        Ok(Self {
            kind,
            image,
            machine,
            relay,
            appliance,
            folder,
            powered_on: None,
            discovered_secs: 0.0,
            deploy_secs: 0.0,
            first_scan_secs: 0.0,
            events_seen: 0,
            console: (0, Instant::now()),
            firmware_hangs: 0,
        })
    }

    /// A second machine on the wire, listed by nobody, while discovery is not armed: seen, and not answered.
    pub(super) fn neighbour_is_left_alone(&self) -> Result<()> {
        step("a machine nobody listed starts from the network; discovery is not armed");
        let folder = self.folder.join("neighbour");
        fs::create_dir_all(&folder)?;
        let spec = MachineSpec {
            firmware: self.kind.firmware(),
            boot_protocol: self.kind.protocol(),
            ..MachineSpec::numbered(2, &self.machine.spec().ovmf)
        };
        let mac = spec.mac.clone();
        let mut neighbour = Machine::prepare(spec, self.appliance.namespace(), &folder)?;
        neighbour.power_on()?;
        let sighting = wait_until(NEIGHBOUR_LIMIT, "the unlisted machine to be sighted twice", || {
            let sightings = self.appliance.cli(&["sightings"])?;
            let found = sightings
                .as_array()
                .and_then(|all| all.iter().find(|one| one["mac"] == mac.as_str()).cloned());
            Ok(found.filter(|one| one["count"].as_u64().unwrap_or(0) >= 2))
        })?;
        if let Some(text) = self.kind.no_answer_text() {
            neighbour
                .wait_serial(text, NEIGHBOUR_LIMIT)
                .context("its firmware should say that nobody answered")?;
        }
        neighbour.power_off()?;
        let nodes = self.appliance.cli(&["node", "list"])?;
        ensure!(count(&nodes)? == 0, "an unlisted machine got a record: {nodes}");
        let answered = self.appliance.counter("plumbline_boot_http_requests_total", "")?;
        ensure!(answered == 0, "the boot listener was asked {answered} times");
        step(&format!("it asked {} times and got no answer", sighting["count"]));
        Ok(())
    }

    /// Powers the machine on, arms discovery, and waits until it is inventoried.
    pub(super) fn power_on_and_discover(&mut self) -> Result<()> {
        step("arm discovery for one machine");
        let subnet = match self.relay {
            Some(_) => relay::NETWORK,
            None => "10.77.0.0/24",
        };
        self.appliance
            .cli(&["discovery", "arm", subnet, "--minutes", "30", "--nodes-max", "1"])?;
        self.power_on_and_inventory()
    }

    /// Lists the machine by this name, as a person does from a rack plan; returns its MAC.
    pub(super) fn list(&self, name: &str) -> Result<String> {
        let mac = self.machine.spec().mac.clone();
        self.appliance.cli(&["node", "add", name, &mac])?;
        Ok(mac)
    }

    /// Powers on a machine that is listed or will be admitted, and waits until it is inventoried.
    pub(super) fn power_on_and_inventory(&mut self) -> Result<()> {
        self.power_on()?;
        let started = Instant::now();
        self.powered_on = Some(started);
        let node = self.wait_state(DISCOVERY_LIMIT, &["waiting_approval"])?;
        self.discovered_secs = started.elapsed().as_secs_f64();
        let inventory = &node["inventory"];
        ensure!(
            inventory["disks"].as_array().is_some_and(|disks| disks.len() == 1),
            "one disk: {inventory}"
        );
        ensure!(
            inventory["dmi"]["serial"] == "LAB0001",
            "the SMBIOS serial: {inventory}"
        );
        let is_uefi = self.kind != BootKind::Bios;
        ensure!(inventory["uefi"] == is_uefi, "how it starts: {inventory}");
        // Firmware that was built without Secure Boot has no such variable: then it is unknown.
        let is_secure = inventory["secure_boot"] == true;
        ensure!(
            is_secure == (self.kind == BootKind::SecureBoot),
            "Secure Boot: {inventory}"
        );
        step(&format!("discovered after {:.0} s", self.discovered_secs));
        Ok(())
    }

    /// Approves the machine.
    pub(super) fn approve(&mut self) -> Result<Instant> {
        let mac = self.machine.spec().mac.clone();
        self.appliance
            .cli(&["node", "approve", &mac, "--name", NODE_NAME, "--image", &self.image])?;
        step("approved");
        Ok(Instant::now())
    }

    /// Approves the machine and waits for the first full scan of the installed node.
    pub(super) fn approve_and_deploy(&mut self) -> Result<()> {
        let approved = self.approve()?;
        self.wait_state(DEPLOY_LIMIT, &["installed", "deployed"])?;
        self.deploy_secs = approved.elapsed().as_secs_f64();
        step(&format!("installed after {:.0} s", self.deploy_secs));
        self.wait_state(SCAN_LIMIT, &["deployed"])?;
        self.first_scan_secs = self.powered_on.map_or(0.0, |started| started.elapsed().as_secs_f64());
        step(&format!("first full scan {:.0} s after power-on", self.first_scan_secs));
        Ok(())
    }

    /// Approves the machine and waits for the deployment to fail; returns the reason.
    pub(super) fn approve_and_fail(&mut self) -> Result<String> {
        self.approve()?;
        let node = self.wait_state(DEPLOY_LIMIT, &["failed"])?;
        Ok(node["state_reason"].as_str().unwrap_or_default().to_owned())
    }

    /// How to sign in to the node: with its published host key.
    pub(super) fn ssh_target(&self) -> Result<SshTarget> {
        let node = self.node()?.context("the node's record")?;
        let address = node["address"].as_str().context("the node's address")?;
        let known_hosts = self.folder.join("known_hosts");
        let keys = node["ssh_host_keys"].as_array().context("ssh_host_keys of the node")?;
        let lines: String = keys
            .iter()
            .filter_map(Value::as_str)
            .map(|key| format!("{address} {key}\n"))
            .collect();
        fs::write(&known_hosts, lines)?;
        let target = SshTarget {
            user: "root".to_owned(),
            address: address.parse()?,
            key: self.folder.join("operator"),
            known_hosts,
        };
        let name = target.run(self.appliance.namespace(), "hostname", Duration::from_secs(60))?;
        ensure!(
            name.stdout.trim() == NODE_NAME,
            "over SSH the node says {:?} {:?}",
            name.stdout,
            name.stderr
        );
        step("signed in over SSH with the published host key");
        Ok(target)
    }

    /// The kernel's lockdown mode under Secure Boot; both are checked on the running node.
    pub(super) fn lockdown(&self, target: &SshTarget) -> Result<String> {
        let command =
            "tail -c 1 /sys/firmware/efi/efivars/SecureBoot-* | od -An -tu1; cat /sys/kernel/security/lockdown";
        let said = target.run(self.appliance.namespace(), command, Duration::from_secs(60))?;
        let (secure_boot, modes) = said.stdout.trim().split_once('\n').context("two lines")?;
        ensure!(secure_boot.trim() == "1", "Secure Boot is off: {said:?}");
        // "none [integrity] confidentiality"
        let mode = modes.split(['[', ']']).nth(1).unwrap_or_default();
        ensure!(
            ["integrity", "confidentiality"].contains(&mode),
            "no lockdown under Secure Boot: {modes}"
        );
        Ok(mode.to_owned())
    }

    /// Restarts the node and waits for a scan of the new boot.
    pub(super) fn reboot_and_scan(&mut self, target: &SshTarget) -> Result<()> {
        let boot_before = self.node()?.context("the node's record")?["agent"]["boot_id"].clone();
        step("restarting the node");
        // The connection ends with the machine, so the status says nothing.
        let _ended = target.run(self.appliance.namespace(), "systemctl reboot", Duration::from_secs(60))?;
        self.wait_scan_of_another_boot(&boot_before)?;
        step("scanned again after the reboot");
        Ok(())
    }

    /// Shuts the node down, starts it by the other firmware, and waits for a scan of the new boot.
    pub(super) fn start_by(&mut self, firmware: Firmware) -> Result<()> {
        let boot_before = self.drift()?["report"]["boot_id"].clone();
        self.machine.system_powerdown()?;
        self.machine.wait_off(SHUTDOWN_LIMIT)?;
        self.machine.power_off()?;
        step(&format!("shut down; starting the same disk by {firmware:?}"));
        self.machine.set_firmware(firmware)?;
        self.machine.power_on()?;
        self.wait_scan_of_another_boot(&boot_before)?;
        step("scanned again");
        Ok(())
    }

    /// Shuts the node down and starts it with another boot order; waits for a scan of the new boot.
    pub(super) fn start_in_order(&mut self, order: BootOrder) -> Result<()> {
        let boot_before = self.drift()?["report"]["boot_id"].clone();
        self.machine.system_powerdown()?;
        self.machine.wait_off(SHUTDOWN_LIMIT)?;
        self.machine.power_off()?;
        step(&format!("shut down; from now on firmware starts with {order:?}"));
        self.machine.set_boot_order(order)?;
        self.machine.power_on()?;
        self.wait_scan_of_another_boot(&boot_before)
    }

    /// What a bad cable did to frames.
    pub(super) fn fates(&self) -> Option<Fates> {
        self.machine.fates()
    }

    pub(super) fn wait_scan_of_another_boot(&mut self, boot_before: &Value) -> Result<()> {
        wait_until(SCAN_LIMIT, "a complete scan of the new boot", || {
            self.check_alive()?;
            self.show_events()?;
            let boot = self.drift()?["report"]["boot_id"].clone();
            Ok((boot.is_string() && boot != *boot_before).then_some(()))
        })
    }

    /// The verdict on the node.
    pub(super) fn drift(&self) -> Result<Value> {
        self.appliance.cli(&["drift", "show", NODE_NAME])
    }

    /// The verdict, once everything could be looked at: right after a start something may be busy, and the agent looks
    /// again a minute later. "Could not look" is never taken for "no drift".
    pub(super) fn definite_drift(&self) -> Result<Value> {
        wait_until(SCAN_LIMIT, "a scan that could look everywhere", || {
            let drift = self.drift()?;
            let verdict = drift["verdict"].as_str().unwrap_or_default();
            Ok((verdict == "clean" || verdict == "drift").then_some(drift))
        })
    }

    /// The folder of this run.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Waits for an event of this kind whose detail begins like this.
    pub(super) fn wait_event(&mut self, kind: &str, begin: &str) -> Result<()> {
        let mac = self.machine.spec().mac.clone();
        wait_until(DEPLOY_LIMIT, &format!("the event {kind} {begin}"), || {
            self.check_alive()?;
            self.show_events()?;
            let events = self.appliance.cli(&["node", "events", &mac])?;
            let mut events = events.as_array().into_iter().flatten();
            let fits = |event: &Value| {
                event["kind"] == kind && event["detail"].as_str().is_some_and(|detail| detail.starts_with(begin))
            };
            Ok(events.any(fits).then_some(()))
        })
    }

    /// Waits until `part` of `whole` of the image's bytes are on the disk; returns how many, and how many there are.
    pub(super) fn wait_written(&mut self, part: u64, whole: u64) -> Result<(u64, u64)> {
        wait_until(
            DEPLOY_LIMIT,
            &format!("{part}/{whole} of the files to be written"),
            || {
                let deployments = self.appliance.cli(&["node", "deployments", NODE_NAME])?;
                let progress = &deployments[0]["progress"];
                let (done, total) = (progress["bytes_done"].as_u64(), progress["bytes_total"].as_u64());
                Ok(done
                    .zip(total)
                    .filter(|(done, total)| *total > 0 && whole * done >= part * total))
            },
        )
    }

    /// Cuts the machine's power, whatever it is doing.
    pub(super) fn cut_power(&mut self) -> Result<()> {
        self.machine.power_off()
    }

    /// Switches the machine on again.
    pub(super) fn power_on(&mut self) -> Result<()> {
        step("power on");
        self.powered_on.get_or_insert_with(Instant::now);
        self.machine.power_on()
    }

    /// Waits for the first full scan of an installation.
    pub(super) fn wait_deployed(&mut self) -> Result<()> {
        self.wait_state(DEPLOY_LIMIT, &["deployed"]).map(drop)
    }

    /// The node's record.
    pub(super) fn record(&self) -> Result<Value> {
        self.node()?.context("the node's record")
    }

    pub(super) fn node(&self) -> Result<Option<Value>> {
        let mac = self.machine.spec().mac.clone();
        let nodes = self.appliance.cli(&["node", "list"])?;
        let has_mac = |node: &&Value| node["macs"].as_array().is_some_and(|macs| macs.contains(&json!(mac)));
        Ok(nodes.as_array().and_then(|all| all.iter().find(has_mac).cloned()))
    }

    /// Requests for manifests and packs so far.
    pub(super) fn image_requests(&self) -> Result<u64> {
        let name = "plumbline_boot_http_requests_total";
        Ok(self.appliance.counter(name, "\"image\"")? + self.appliance.counter(name, "\"pack\"")?)
    }

    /// Waits for one of these states, showing the node's events meanwhile; an unexpected `failed` ends it.
    pub(super) fn wait_state(&mut self, limit: Duration, states: &[&str]) -> Result<Value> {
        let what = format!("the node to be {}", states.join(" or "));
        let log = self.machine.serial_log().to_owned();
        wait_until(limit, &what, || {
            self.check_alive()?;
            self.show_events()?;
            let Some(node) = self.node()? else { return Ok(None) };
            let state = node["state"].as_str().unwrap_or_default();
            if states.contains(&state) {
                return Ok(Some(node));
            }
            if state == "failed" || state == "quarantined" {
                bail!("the node is {state}: {}", node["state_reason"]);
            }
            Ok(None)
        })
        .with_context(|| format!("console in {}", log.display()))
    }

    pub(super) fn show_events(&mut self) -> Result<()> {
        let mac = self.machine.spec().mac.clone();
        if self.node()?.is_none() {
            return Ok(());
        }
        let events = self.appliance.cli(&["node", "events", &mac])?;
        for event in events.as_array().into_iter().flatten() {
            let id = event["id"].as_i64().unwrap_or(0);
            if id > self.events_seen {
                self.events_seen = id;
                let since = self.powered_on.map_or(0.0, |started| started.elapsed().as_secs_f64());
                let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
                eprintln!("  {since:6.1} s  {:<20} {}", text("kind"), text("detail"));
            }
        }
        Ok(())
    }

    /// Fails when the appliance or the machine has ended by itself.
    pub(super) fn check_alive(&mut self) -> Result<()> {
        ensure!(
            self.appliance.is_running()?,
            "the appliance has ended; its log is in {}",
            self.folder.display()
        );
        ensure!(
            self.powered_on.is_none() || self.machine.is_running()?,
            "the virtual machine has ended; see {}",
            self.folder.join(NODE_NAME).display()
        );
        self.end_firmware_hang()
    }

    /// Emulated firmware has been seen to hang between its own last word and the first of the loader or the kernel: its
    /// timer's handler then takes longer than the timer's period, and nothing else gets a turn. A technician would pull
    /// the plug; so does this, twice at most, and the outcome says how often.
    fn end_firmware_hang(&mut self) -> Result<()> {
        let size = self.machine.serial_size_bytes();
        if size != self.console.0 {
            self.console = (size, Instant::now());
        }
        let is_silent = self.powered_on.is_some() && self.console.1.elapsed() > FIRMWARE_SILENCE;
        if !is_silent || self.firmware_hangs >= FIRMWARE_HANGS_MAX {
            return Ok(());
        }
        let text = self.machine.serial_text();
        let last = text
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .unwrap_or_default();
        if last.contains("BdsDxe: starting") || last.contains("reboot: machine restart") {
            step("the emulated firmware hangs; power off and on");
            self.firmware_hangs += 1;
            self.machine.power_off()?;
            self.machine.power_on()?;
        }
        self.console.1 = Instant::now();
        Ok(())
    }

    /// Takes the rack down; the folder of a run that went well is removed.
    pub(super) fn stop(mut self) -> Result<()> {
        self.machine.power_off()?;
        self.appliance.stop()?;
        fs::remove_dir_all(&self.folder).with_context(|| format!("removing {}", self.folder.display()))
    }
}

pub(super) fn count(value: &Value) -> Result<u64> {
    value
        .as_array()
        .map(|all| all.len() as u64)
        .with_context(|| format!("expected a list, found {value}"))
}

pub(super) fn entries(scan: &Value) -> u64 {
    scan["roots"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|root| root["entries"].as_u64())
        .sum()
}
