//! Simulated fleets beside the real appliance: many nodes, real agents, no machines.

use super::appliance::{Appliance, BootSettings};
use super::{images, run_folder, step};
use crate::environment::LabEnvironment;
use crate::netns::NetworkNamespace;
use crate::process::Supervised;
use crate::simulated::tamper::Change;
use crate::simulated::{self, node_folder, node_mac, node_name};
use crate::wait::wait_until;
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time for a whole fleet, on two shared cores.
const FLEET_LIMIT: Duration = Duration::from_secs(900);
const STEP_LIMIT: Duration = Duration::from_secs(600);
/// URL of the boot listener in a rack's namespace.
const BOOT_URL: &str = "http://10.77.0.1:8081";

/// A running fleet. Dropped, it ends.
#[derive(Debug)]
pub(super) struct Fleet {
    process: Supervised,
    folder: PathBuf,
    first: u32,
    nodes: u32,
}

impl Fleet {
    /// Powers the nodes on, in the appliance's namespace.
    ///
    /// # Errors
    /// When the simulator does not come up.
    pub(super) fn power_on(namespace: &NetworkNamespace, folder: &Path, first: u32, nodes: u32) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let program = std::env::current_exe().context("this program's file")?;
        let mut command = namespace.command(program);
        command.args(["simulate", "--boot-url", BOOT_URL]);
        command.args(["--first", &first.to_string(), "--nodes", &nodes.to_string()]);
        command.arg("--folder").arg(folder.join("nodes"));
        let mut process = Supervised::spawn(
            "the simulated fleet",
            command,
            &folder.join(format!("fleet-{first}.log")),
        )?;
        process.wait_line("powered on", STEP_LIMIT)?;
        Ok(Self {
            process,
            folder: folder.join("nodes"),
            first,
            nodes,
        })
    }

    /// The nodes' numbers.
    pub(super) fn numbers(&self) -> std::ops::Range<u32> {
        self.first..self.first + self.nodes
    }

    /// Names, groups and racks of the nodes, and their installation: three racks, groups `gpu` and, each tenth node,
    /// `login`. Waits until each has had its first full scan.
    ///
    /// # Errors
    /// When one of them ends otherwise.
    pub(super) fn install(&mut self, appliance: &Appliance) -> Result<()> {
        self.discover(appliance)?;
        self.wait_states(appliance, "waiting_approval")?;
        for number in self.numbers() {
            self.approve(appliance, number)?;
        }
        self.wait_states(appliance, "deployed")
    }

    /// Arms discovery for as many machines as there are.
    ///
    /// # Errors
    /// When the appliance refuses.
    pub(super) fn discover(&self, appliance: &Appliance) -> Result<()> {
        appliance.cli(&[
            "discovery",
            "arm",
            "10.77.0.0/24",
            "--nodes-max",
            &self.nodes.to_string(),
        ])?;
        Ok(())
    }

    /// Gives a node its name and place, and asks for its installation.
    ///
    /// # Errors
    /// When the appliance refuses.
    pub(super) fn approve(&self, appliance: &Appliance, number: u32) -> Result<()> {
        let (group, rack) = place(number);
        let (mac, name) = (node_mac(number), node_name(number));
        let image = simulated::IMAGE;
        appliance.cli(&[
            "node", "approve", &mac, "--name", &name, "--image", image, "--group", group, "--rack", &rack,
        ])?;
        Ok(())
    }

    /// Waits until all nodes are in this state.
    ///
    /// # Errors
    /// When one of them fails, or the limit passes.
    pub(super) fn wait_states(&mut self, appliance: &Appliance, state: &str) -> Result<()> {
        let what = format!("{} simulated nodes to be {state}", self.nodes);
        let macs: Vec<String> = self.numbers().map(node_mac).collect();
        wait_until(FLEET_LIMIT, &what, || {
            ensure!(
                self.process.is_running()?,
                "the fleet has ended: {}",
                self.process.log_text()
            );
            let nodes = appliance.cli(&["node", "list"])?;
            let mut there = 0;
            for node in nodes.as_array().into_iter().flatten() {
                let is_ours = node["macs"]
                    .as_array()
                    .is_some_and(|all| all.iter().any(|mac| macs.iter().any(|m| mac == m)));
                if is_ours {
                    ensure!(node["state"] != "failed", "{}: {}", node["name"], node["state_reason"]);
                    there += u32::from(node["state"] == state);
                }
            }
            Ok((there == self.nodes).then_some(()))
        })
    }

    /// Waits until all nodes have a record, in whatever state.
    ///
    /// # Errors
    /// When the limit passes.
    pub(super) fn wait_listed(&self, appliance: &Appliance) -> Result<()> {
        wait_until(STEP_LIMIT, "the simulated nodes to be seen", || {
            let seen = self
                .numbers()
                .all(|number| appliance.cli(&["node", "show", &node_mac(number)]).is_ok());
            Ok(seen.then_some(()))
        })
    }

    /// The folder that is a node's disk.
    pub(super) fn root(&self, number: u32) -> PathBuf {
        node_folder(&self.folder, number).join("root")
    }

    /// Makes a change on a node.
    ///
    /// # Errors
    /// As [`Change::make`].
    pub(super) fn tamper(&self, number: u32, change: Change) -> Result<()> {
        let who = format!("tool{}", number % 3);
        change
            .make(&self.root(number), &who)
            .with_context(|| format!("{change:?} on {}", node_name(number)))
    }
}

/// Node group and rack of a simulated node.
fn place(number: u32) -> (&'static str, String) {
    let group = if number.is_multiple_of(10) { "login" } else { "gpu" };
    (group, format!("r{}", 1 + (number - 1) % 3))
}

/// A rack with an appliance and a simulated fleet, installed and clean.
pub(super) struct FleetRun {
    pub(super) fleet: Fleet,
    pub(super) appliance: Appliance,
    folder: PathBuf,
}

impl FleetRun {
    /// Puts the rack up and installs the fleet.
    ///
    /// # Errors
    /// When something does not come up.
    pub(super) fn start(environment: &LabEnvironment, purpose: &str, nodes: u32) -> Result<Self> {
        let mut run = Self::prepare(environment, purpose, nodes)?;
        run.fleet.install(&run.appliance)?;
        step(&format!("{nodes} simulated nodes are installed"));
        Ok(run)
    }

    /// Puts the rack up and powers the fleet on.
    ///
    /// # Errors
    /// When something does not come up.
    pub(super) fn prepare(environment: &LabEnvironment, purpose: &str, nodes: u32) -> Result<Self> {
        let folder = run_folder(environment, purpose)?;
        images::provide(environment, &folder.join("data"), &images::OsImage::default())?;
        simulated::provide_image(&folder.join("data"))?;
        let namespace = NetworkNamespace::create_unique(purpose)?;
        let appliance = Appliance::start(environment, namespace, &folder, &BootSettings::alone("auto"))?;
        step(&format!("the appliance is up; logs in {}", folder.display()));
        let fleet = Fleet::power_on(appliance.namespace(), &folder, 1, nodes)?;
        Ok(Self {
            fleet,
            appliance,
            folder,
        })
    }

    /// The folder of this run.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The verdict on a node.
    ///
    /// # Errors
    /// When the appliance does not say.
    pub(super) fn drift_of(&self, name: &str) -> Result<Value> {
        self.appliance.cli(&["drift", "show", name])
    }

    /// Waits until the same finding stands on this many nodes; returns its group.
    ///
    /// # Errors
    /// When the limit passes.
    pub(super) fn wait_finding(&self, key: &str, nodes: u64) -> Result<Value> {
        wait_until(STEP_LIMIT, &format!("{key} to be found on {nodes} nodes"), || {
            let groups = self.appliance.cli(&["drift", "list", "--all"])?;
            let found = groups
                .as_array()
                .into_iter()
                .flatten()
                .find(|group| group["key"] == key);
            Ok(found.filter(|group| group["nodes"].as_u64() == Some(nodes)).cloned())
        })
    }

    /// Takes the rack down; the folder of a run that went well is removed.
    ///
    /// # Errors
    /// When something does not end.
    pub(super) fn stop(mut self) -> Result<()> {
        self.fleet.process.terminate(Duration::from_secs(20))?;
        self.appliance.stop()?;
        fs::remove_dir_all(&self.folder).with_context(|| format!("removing {}", self.folder.display()))
    }
}

/// The `baseline-suspect` scenario: the same change on 30 of 40 nodes of one group; nothing is touched until a person
/// releases it, and then a few at a time.
pub(super) fn baseline_suspect(environment: &LabEnvironment) -> Result<Value> {
    const NODES: u32 = 40;
    const CHANGED: u32 = 30;
    let run = FleetRun::start(environment, "suspect", NODES)?;
    for number in 1..=NODES {
        run.appliance
            .cli(&["node", "set", &node_name(number), "--group", "gpu"])?;
    }
    for number in 1..=CHANGED {
        run.fleet.tamper(number, Change::Timesync)?;
    }
    let finding = run.wait_finding("/etc/systemd/timesyncd.conf", u64::from(CHANGED))?;
    step("the same finding stands on 30 of 40 nodes");

    let before = contents(&run, CHANGED)?;
    let held = run.remediate(&["--apply"])?;
    ensure!(
        held.code == 2,
        "remediate ended with {}, expected 2: {}",
        held.code,
        held.json
    );
    let entry = &held.json["run"]["held"][0];
    ensure!(
        entry["why"] == "baseline_suspect" && entry["nodes"] == CHANGED,
        "held: {}",
        held.json
    );
    ensure!(
        held.json["run"]["jobs"] == json!([]),
        "jobs were given out: {}",
        held.json
    );
    let after = contents(&run, CHANGED)?;
    let touched = before
        .iter()
        .zip(&after)
        .filter(|(before, after)| before != after)
        .count();
    ensure!(touched == 0, "{touched} nodes were touched before the release");
    step("nothing was touched; release it and go on");

    let hash = finding["group"].as_str().context("the finding's hash")?;
    let reason = "the new time server is the one in the image";
    run.appliance.cli_text(&[
        "remediation",
        "release",
        hash,
        "--node-group",
        "gpu",
        "--reason",
        reason,
    ])?;
    let repaired = run.remediate(&["--apply"])?;
    ensure!(
        repaired.code == 0,
        "remediate ended with {}: {}",
        repaired.code,
        repaired.json
    );
    let at_once = most_at_once(&repaired.json["run"])?;
    ensure!(
        at_once <= 1,
        "{at_once} nodes of a group of {NODES} were under a job at once"
    );
    let left = run.drift_of(&node_name(1))?;
    ensure!(left["verdict"] == "clean", "{left}");
    let outcome = json!({
        "scenario": "baseline-suspect", "ok": true, "nodes": NODES, "changed": CHANGED,
        "touched_before_release": touched, "repaired": repaired.json["run"]["nodes"]["done"], "most_at_once": at_once,
    });
    run.stop()?;
    Ok(outcome)
}

/// What `plumbline remediate` ended with.
struct Remediated {
    code: i32,
    json: Value,
}

impl FleetRun {
    fn remediate(&self, arguments: &[&str]) -> Result<Remediated> {
        let all = [&["remediate", "--json"], arguments].concat();
        let (code, text) = self.appliance.cli_code(&all, FLEET_LIMIT)?;
        let json = serde_json::from_str(&text).with_context(|| format!("remediate printed {text:?}"))?;
        Ok(Remediated { code, json })
    }
}

fn contents(run: &FleetRun, nodes: u32) -> Result<Vec<(Vec<u8>, std::time::SystemTime)>> {
    let of = |number: u32| {
        let path = run.fleet.root(number).join("etc/systemd/timesyncd.conf");
        Ok((fs::read(&path)?, fs::metadata(&path)?.modified()?))
    };
    (1..=nodes).map(of).collect()
}

/// The most jobs of a run that were out at the same time.
fn most_at_once(run: &Value) -> Result<usize> {
    let mut changes: BTreeMap<String, i64> = BTreeMap::new();
    for job in run["jobs"].as_array().context("the run's jobs")? {
        let (Some(begun), Some(over)) = (job["begun_at"].as_str(), job["finished_at"].as_str()) else {
            continue;
        };
        // RFC 3339 in UTC with the same form sorts as text; an end comes before a beginning of the same instant.
        *changes.entry(format!("{begun} +")).or_default() += 1;
        *changes.entry(format!("{over} !")).or_default() -= 1;
    }
    let (mut now, mut most) = (0, 0);
    for change in changes.into_values() {
        now += change;
        most = most.max(now);
    }
    Ok(usize::try_from(most).unwrap_or(0))
}
