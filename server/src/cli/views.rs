//! What the server says, as far as it is shown. Fields that are not named here are left out, so that an older command
//! line works with a newer server; `--json` shows everything.

// The names are the API's, whose description says what each one means.
#![allow(missing_docs)]

mod keys;
mod upkeep;

use std::collections::BTreeMap;

pub use keys::{ImageRevoked, ImageUser, Key, KeyRevoked, KeyRotated};

use jiff::Timestamp;
use lifecycle::burn_in::Standing;
use protocol::latest::{
    DeployMode, Inventory, JobOutcome, NotLookedAt, Outcome, Progress, RepairStep, ScanSummary, TestOrder, TestResult,
};
use serde::Deserialize;

pub use upkeep::{Channel, ChannelMove, ChannelNode, Collection, GroupImage};

/// A node.
#[derive(Debug, Deserialize)]
pub struct Node {
    pub id: String,
    pub name: Option<String>,
    pub state: String,
    pub state_reason: String,
    pub state_since: Timestamp,
    pub macs: Vec<String>,
    #[serde(default)]
    pub address: Option<String>,
    #[serde(default)]
    pub fixed_address: Option<String>,
    #[serde(default)]
    pub ssh_host_keys: Vec<String>,
    pub inventory: Option<Inventory>,
    pub machine_id: String,
    pub agent: Option<Agent>,
    pub findings: i64,
    #[serde(default)]
    pub allowed: i64,
    #[serde(default)]
    pub group: String,
    pub rack: Option<String>,
    #[serde(default)]
    pub unit: Option<i32>,
    #[serde(default)]
    pub relay: Option<String>,
    #[serde(default)]
    pub relay_circuit: Option<String>,
    #[serde(default)]
    pub relay_remote: Option<String>,
    #[serde(default)]
    pub discovery_rule: Option<String>,
    #[serde(default)]
    pub image_channel: Option<String>,
    #[serde(default)]
    pub plan: Option<PlanLine>,
    #[serde(default)]
    pub mismatches: Vec<Mismatch>,
    #[serde(default)]
    pub chain: String,
    pub hold: Option<Hold>,
    pub scanned_at: Option<Timestamp>,
    pub drift: String,
    pub drift_reason: String,
    pub overdue: bool,
    #[serde(default)]
    pub burn_in: Option<Standing>,
    #[serde(default)]
    pub burn_in_reason: String,
}

impl Node {
    /// The shortest text that commands take for it: its name, else a MAC, else its id.
    pub fn reference(&self) -> &str {
        let named = self.name.as_ref().or(self.macs.first());
        named.unwrap_or(&self.id)
    }
}

/// A burn-in.
#[derive(Debug, Deserialize)]
pub struct BurnIn {
    pub ordered_by: String,
    pub reason: String,
    pub tests: Vec<TestOrder>,
    pub started_at: Timestamp,
    pub progress: Option<String>,
    pub ended_at: Option<Timestamp>,
    pub problem: Option<String>,
    pub results: Vec<TestResult>,
    pub standing: Standing,
    pub standing_reason: String,
}

/// What a node boots next, besides what its state says.
#[derive(Debug, Deserialize)]
pub struct Boot {
    pub order: Option<BootOrder>,
    pub restart: Option<Restart>,
}

/// An order of a person.
#[derive(Debug, Deserialize)]
pub struct BootOrder {
    pub kind: String,
    pub reason: String,
    pub ordered_by: String,
    pub ordered_at: Timestamp,
    pub address: Option<String>,
    pub ssh_host_key: Option<String>,
}

/// A restart that its agent is to do.
#[derive(Debug, Deserialize)]
pub struct Restart {
    pub ordered_by: String,
    pub ordered_at: Timestamp,
    pub answer: Option<String>,
}

impl Boot {
    /// Where the rescue system is, and the key it shows, once it is up.
    pub fn ssh(&self) -> Option<(&str, &str)> {
        let order = self.order.as_ref()?;
        order.address.as_deref().zip(order.ssh_host_key.as_deref())
    }
}

/// Why a node does not boot.
#[derive(Debug, Deserialize)]
pub struct Why {
    pub is_stuck: bool,
    pub reached: String,
    pub reached_at: Option<Timestamp>,
    pub detail: Option<String>,
    pub expected: String,
    pub sentence: String,
    pub advice: Vec<String>,
}

/// Why a node is held back from remediation.
#[derive(Debug, Deserialize)]
pub struct Hold {
    pub reason: String,
    pub by: String,
    pub since: Timestamp,
}

/// A node's agent.
#[derive(Debug, Deserialize)]
pub struct Agent {
    pub heartbeat_at: Timestamp,
    pub boot_id: String,
    pub agent_version: String,
    pub rss_max_bytes: u64,
    pub clock_skew_ms: i64,
}

/// A boot event.
#[derive(Debug, Deserialize)]
pub struct Event {
    pub id: i64,
    pub at: Timestamp,
    pub kind: String,
    pub detail: String,
}

/// A deployment.
#[derive(Debug, Deserialize)]
pub struct Deployment {
    pub id: String,
    pub image: String,
    #[serde(default)]
    pub channel: Option<String>,
    pub state: String,
    pub reason: String,
    pub attempt: i32,
    pub attempts_max: i32,
    pub progress: Option<Progress>,
    #[serde(default)]
    pub mode: DeployMode,
    #[serde(default)]
    pub keep: Vec<String>,
    pub outcome: Option<Outcome>,
    pub requested_by: String,
    pub created_at: Timestamp,
}

/// A machine that got no answer.
#[derive(Debug, Deserialize)]
pub struct Sighting {
    pub mac: String,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    pub count: i64,
    pub vendor_class: Option<String>,
    pub relay: Option<String>,
    #[serde(default)]
    pub relay_circuit: Option<String>,
}

/// What an import of the rack plan did.
#[derive(Debug, Deserialize)]
pub struct Imported {
    pub dry_run: bool,
    pub added: u64,
    pub changed: u64,
    pub unchanged: u64,
    pub not_in_file: u64,
    pub lines: Vec<ImportedLine>,
}

/// One line of it.
#[derive(Debug, Deserialize)]
pub struct ImportedLine {
    pub line: u64,
    pub label: String,
    pub action: String,
    pub changes: Vec<PlanChange>,
}

/// One cell of it.
#[derive(Debug, Deserialize)]
pub struct PlanChange {
    pub column: String,
    pub from: Option<String>,
    pub to: Option<String>,
}

/// Discovery rules.
#[derive(Debug, Deserialize)]
pub struct Rules {
    pub version: i64,
    pub applied_by: String,
    pub applied_at: Timestamp,
    pub rules: Vec<Rule>,
}

/// One rule.
#[derive(Debug, Deserialize)]
pub struct Rule {
    pub name: String,
    pub maximum: u64,
    pub placed: u64,
}

/// A line of the rack plan.
#[derive(Debug, Deserialize)]
pub struct PlanLine {
    pub rack: Option<String>,
    pub unit: Option<i32>,
    pub serial: Option<String>,
    pub mac: Option<String>,
    pub bmc_address: Option<String>,
    pub switch_port: Option<String>,
}

/// Where plan and reality differ.
#[derive(Debug, Deserialize)]
pub struct Mismatch {
    pub kind: String,
    pub detail: String,
}

/// A DHCP server that is not this one.
#[derive(Debug, Deserialize)]
pub struct OtherDhcpServer {
    pub address: String,
    #[serde(default)]
    pub interface: String,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    pub count: i64,
    pub last_mac: String,
}

/// An armed discovery.
#[derive(Debug, Deserialize)]
pub struct Window {
    pub subnet: String,
    #[serde(default)]
    pub relay_circuit: Option<String>,
    pub expires_at: Timestamp,
    pub nodes_max: i32,
    pub nodes_used: i32,
    pub armed_by: String,
}

impl Window {
    /// Where it answers: a subnet or a circuit.
    pub fn place(&self) -> &str {
        self.relay_circuit.as_deref().unwrap_or(&self.subnet)
    }
}

/// An image version.
#[derive(Debug, Deserialize)]
pub struct Image {
    pub digest: String,
    pub kind: String,
    pub name: String,
    pub version: String,
    pub description: Option<String>,
    pub architecture: String,
    pub files: u64,
    pub content_bytes: u64,
    pub stored_bytes: u64,
    pub files_by_class: BTreeMap<String, u64>,
    pub registered_at: Timestamp,
    #[serde(default)]
    pub signer: Option<String>,
    #[serde(default)]
    pub unusable: Option<String>,
}

/// What checking an image found.
#[derive(Debug, Deserialize)]
pub struct ImageCheck {
    pub image: Image,
    pub ok: bool,
    pub signed_by: Option<String>,
    pub signature_problem: Option<String>,
    #[serde(default)]
    pub revoked: Option<String>,
    pub packs: u64,
    pub pack_bytes: u64,
    pub packs_damaged: Vec<String>,
    pub blobs: u64,
    pub damaged: Vec<String>,
    pub damaged_count: u64,
}

/// A path in one image.
#[derive(Debug, Deserialize)]
pub struct ImagePath {
    #[serde(rename = "type")]
    pub kind: String,
    pub mode: String,
    pub uid: u32,
    pub gid: u32,
    pub class: String,
    pub size: Option<u64>,
    pub target: Option<String>,
}

/// A path that two images have otherwise.
#[derive(Debug, Deserialize)]
pub struct ImagePathDifference {
    pub path: String,
    pub fields: Vec<String>,
    pub before: Option<ImagePath>,
    pub now: Option<ImagePath>,
}

/// A fact that two images have otherwise.
#[derive(Debug, Deserialize)]
pub struct ImageFactDifference {
    pub area: String,
    pub name: String,
    pub before: Option<String>,
    pub now: Option<String>,
}

/// What is different between two images.
#[derive(Debug, Deserialize)]
pub struct ImageDiff {
    pub before: Image,
    pub now: Image,
    pub facts: Vec<ImageFactDifference>,
    pub paths: Vec<ImagePathDifference>,
    pub paths_added: u64,
    pub paths_removed: u64,
    pub paths_changed: u64,
    pub bytes_new: u64,
}

/// The same thing wrong on some nodes.
#[derive(Debug, Deserialize)]
pub struct Group {
    pub group: String,
    pub kind: String,
    pub key: String,
    pub severity: String,
    pub nodes: u64,
    pub open: u64,
    pub acknowledged: u64,
    pub waived: u64,
    pub accepted: u64,
    pub variants: u64,
    pub first_at: Timestamp,
}

/// Attributes of one side of a difference.
pub type Attributes = BTreeMap<String, String>;

/// One way in which a group's thing differs.
#[derive(Debug, Deserialize)]
pub struct Variant {
    pub variant: String,
    pub expected: Option<Attributes>,
    pub actual: Option<Attributes>,
    pub nodes: Vec<String>,
    pub node_count: u64,
}

/// One finding of one node.
#[derive(Debug, Deserialize)]
pub struct Finding {
    pub kind: String,
    pub key: String,
    pub severity: String,
    pub standing: String,
    pub expected: Option<Attributes>,
    pub actual: Option<Attributes>,
    pub opened_at: Timestamp,
}

/// A node's newest report.
#[derive(Debug, Deserialize)]
pub struct Report {
    pub received_at: Timestamp,
    pub complete: bool,
    pub scan: ScanSummary,
    pub not_looked_at: Vec<NotLookedAt>,
}

/// A node's drift.
#[derive(Debug, Deserialize)]
pub struct NodeDrift {
    pub node: String,
    pub name: Option<String>,
    pub verdict: String,
    pub reason: String,
    pub report: Option<Report>,
    pub findings: Vec<Finding>,
}

/// What changed in a text file.
#[derive(Debug, Deserialize)]
pub struct Diff {
    pub unified: Option<String>,
    pub reason: Option<String>,
}

/// Something that became of a finding.
#[derive(Debug, Deserialize)]
pub struct FindingEvent {
    pub at: Timestamp,
    pub node: String,
    pub kind: String,
    pub key: String,
    pub event: String,
    pub cause: String,
}

/// A decision.
#[derive(Debug, Deserialize)]
pub struct Review {
    pub id: String,
    pub kind: String,
    pub finding_kind: String,
    pub finding_key: String,
    pub scope: String,
    pub scope_value: String,
    pub reason: String,
    pub made_by: String,
    pub made_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub in_force: bool,
    pub findings: u64,
}

/// What a remediation would do.
#[derive(Debug, Deserialize)]
pub struct Plan {
    pub nodes: Vec<PlannedNode>,
    pub findings: u64,
    pub held: Vec<Held>,
    pub held_findings: u64,
    pub allowed: u64,
    pub at_once: BTreeMap<String, u64>,
    pub unknown: Vec<String>,
}

/// What would be done on one node.
#[derive(Debug, Deserialize)]
pub struct PlannedNode {
    pub node: String,
    pub group: String,
    pub rack: Option<String>,
    pub steps: Vec<RepairStep>,
}

/// A finding that is left alone.
#[derive(Debug, Deserialize)]
pub struct Held {
    pub group: String,
    pub kind: String,
    pub key: String,
    pub node_group: String,
    pub reason: String,
    pub nodes: u64,
}

/// A remediation.
#[derive(Debug, Deserialize)]
pub struct Run {
    pub id: String,
    pub state: String,
    pub reason: String,
    pub requested_by: String,
    #[serde(default)]
    pub held: Vec<Held>,
    pub nodes: BTreeMap<String, u64>,
    pub left: u64,
    pub created_at: Timestamp,
    #[serde(default)]
    pub jobs: Vec<Job>,
}

/// A recipe that the server may build.
#[derive(Debug, Deserialize)]
pub struct Recipe {
    pub name: String,
    pub kind: Option<String>,
    pub error: Option<String>,
    pub packages: u64,
    pub is_locked: bool,
}

/// How far a build is.
#[derive(Debug, Deserialize)]
pub struct BuildCount {
    pub done: u64,
    pub total: Option<u64>,
    pub unit: String,
}

/// A build by the server.
#[derive(Debug, Deserialize)]
pub struct Build {
    pub id: String,
    pub recipe: String,
    pub state: String,
    pub requested_by: String,
    pub requested_at: Timestamp,
    pub stage: String,
    pub detail: String,
    pub count: Option<BuildCount>,
    pub cancelled_by: Option<String>,
    pub image: Option<String>,
    pub error: Option<String>,
}

/// A piece of what a build said.
#[derive(Debug, Deserialize)]
pub struct BuildLogPiece {
    pub text: String,
    pub next: u64,
    pub is_complete: bool,
}

/// One node's part of a remediation.
#[derive(Debug, Deserialize)]
pub struct Job {
    pub node: String,
    pub state: String,
    pub reason: String,
    pub steps: Vec<RepairStep>,
    pub outcome: Option<JobOutcome>,
}

/// A released finding.
#[derive(Debug, Deserialize)]
pub struct Release {
    pub node_group: String,
    pub finding_kind: String,
    pub finding_key: String,
    pub reason: String,
    pub released_by: String,
    pub expires_at: Timestamp,
}

/// Who decided what.
#[derive(Debug, Deserialize)]
pub struct Audit {
    pub at: Timestamp,
    pub actor: String,
    pub action: String,
    pub object: String,
    pub detail: String,
}
