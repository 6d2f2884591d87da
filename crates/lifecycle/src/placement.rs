//! Plan against reality: is each machine the one that the rack plan means, where it means it, on the cables it means?
//!
//! Idea: [`mismatches`] compares values that somebody else looked up and says for each node what does not fit, in words
//! for the person in front of the rack. It decides nothing else: a node with a mismatch goes on living.
//!
//! Invariants:
//! - only what was seen is compared: a machine without an inventory, a port that was not heard, a place that nobody knows
//!   is no mismatch, and no proof of a match either;
//! - an interface that BMCs offer their host over USB identifies nobody: its MAC may be the same in a thousand machines
//!   ([`is_identity`]), so it neither merges nodes nor counts against them.
//!
//! Refused: guessing from one swapped cable who stands where. What is said names both nodes, and a person looks.

use std::collections::HashMap;

use protocol::NodeId;
use serde::{Deserialize, Serialize};

use crate::plan::PlanLine;

/// Other nodes named in one sentence.
const NAMED_MAX: usize = 3;
/// Drivers of network interfaces on USB: the ones that BMCs offer to their host, and adapters that wander.
const USB_DRIVERS: [&str; 14] = [
    "cdc_ether",
    "cdc_ncm",
    "cdc_eem",
    "cdc_subset",
    "cdc_mbim",
    "rndis_host",
    "usbnet",
    "ipheth",
    "r8152",
    "r8153_ecm",
    "asix",
    "ax88179_178a",
    "smsc75xx",
    "smsc95xx",
];
/// The host's end of the USB network of MegaRAC firmware (American Megatrends), the same in every machine.
const BMC_USB_MACS: [&str; 2] = ["be:3a:f2:b6:05:9f", "b2:3a:f2:b6:05:9f"];

/// What does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MismatchKind {
    /// It stands elsewhere than planned.
    WrongSlot,
    /// It is another machine than planned.
    WrongSerial,
    /// A switch port or a MAC is that of another node of the plan.
    SwappedCables,
    /// Two machines have one MAC.
    MacTwice,
    /// A MAC is in several machines and means nothing: an interface to a BMC. No problem, and no identity.
    SharedMac,
}

impl MismatchKind {
    /// The name used everywhere outside this code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WrongSlot => "wrong_slot",
            Self::WrongSerial => "wrong_serial",
            Self::SwappedCables => "swapped_cables",
            Self::MacTwice => "mac_twice",
            Self::SharedMac => "shared_mac",
        }
    }

    /// Whether somebody has to do something about it.
    #[must_use]
    pub const fn is_problem(self) -> bool {
        !matches!(self, Self::SharedMac)
    }
}

/// One thing that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Mismatch {
    /// What.
    pub kind: MismatchKind,
    /// What was planned and what was seen, for people.
    pub detail: String,
}

/// An interface of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NicSeen {
    /// MAC, lower case with colons.
    pub mac: String,
    /// Kernel name.
    pub name: String,
    /// Driver.
    pub driver: Option<String>,
    /// Whether the machine booted from it.
    pub is_boot: bool,
    /// `switch:port` as LLDP named them; none: not heard.
    pub switch_port: Option<String>,
}

/// What is planned and seen of a node.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The node.
    pub node: NodeId,
    /// What people call it.
    pub label: String,
    /// Its line of the rack plan.
    pub plan: Option<PlanLine>,
    /// Rack it was found in.
    pub rack: Option<String>,
    /// Unit it was found in.
    pub unit: Option<i32>,
    /// Serial number of the newest inventory.
    pub serial: Option<String>,
    /// Serial numbers of all machines that have booted as this node.
    pub serials: Vec<String>,
    /// Interfaces of the newest inventory.
    pub nics: Vec<NicSeen>,
}

/// Whether an interface tells which machine it is in.
///
/// What the machine booted from always does, because that is how it was found. An interface on USB does not: BMCs offer
/// one to their host with one MAC for a whole series, and adapters wander from machine to machine.
#[must_use]
pub fn is_identity(mac: &str, driver: Option<&str>, is_boot: bool) -> bool {
    let is_usb = driver.is_some_and(|driver| USB_DRIVERS.contains(&driver));
    is_boot || !(is_usb || BMC_USB_MACS.contains(&mac))
}

/// Whether somebody made up this MAC (IEEE 802: the second bit of the first octet), and another machine may have it.
#[must_use]
pub fn is_locally_administered(mac: &str) -> bool {
    let first = mac.get(..2).and_then(|octet| u8::from_str_radix(octet, 16).ok());
    first.is_some_and(|octet| octet & 2 != 0)
}

/// What does not fit, for each node of `all` that has something.
#[must_use]
pub fn mismatches(all: &[Evidence]) -> HashMap<NodeId, Vec<Mismatch>> {
    let index = Index::new(all);
    let judged = all.iter().map(|one| (one.node, judge(one, &index)));
    judged.filter(|(_, found)| !found.is_empty()).collect()
}

/// Nodes by what is planned and seen of them.
struct Index<'a> {
    planned_mac: HashMap<&'a str, &'a Evidence>,
    planned_serial: HashMap<String, &'a Evidence>,
    planned_port: HashMap<String, &'a Evidence>,
    planned_slot: HashMap<(&'a str, i32), &'a Evidence>,
    seen_mac: HashMap<&'a str, Vec<(&'a Evidence, &'a NicSeen)>>,
}

impl<'a> Index<'a> {
    fn new(all: &'a [Evidence]) -> Self {
        let mut index = Self {
            planned_mac: HashMap::new(),
            planned_serial: HashMap::new(),
            planned_port: HashMap::new(),
            planned_slot: HashMap::new(),
            seen_mac: HashMap::new(),
        };
        for one in all {
            if let Some(plan) = &one.plan {
                index.planned_mac.extend(plan.mac.as_deref().map(|mac| (mac, one)));
                index
                    .planned_serial
                    .extend(plan.serial.as_deref().map(|serial| (folded(serial), one)));
                index
                    .planned_port
                    .extend(plan.switch_port.as_deref().map(|port| (folded(port), one)));
                index.planned_slot.extend(plan.slot().map(|slot| (slot, one)));
            }
            for nic in &one.nics {
                index.seen_mac.entry(&nic.mac).or_default().push((one, nic));
            }
        }
        index
    }
}

/// Serials and ports are compared without their case: labels, firmware and switches spell them as they like.
fn folded(text: &str) -> String {
    text.trim().to_ascii_lowercase()
}

fn judge(one: &Evidence, index: &Index<'_>) -> Vec<Mismatch> {
    let mut found = Vec::new();
    let mut add = |kind, detail: Option<String>| found.extend(detail.map(|detail| Mismatch { kind, detail }));
    add(MismatchKind::WrongSlot, slot(one, index));
    add(MismatchKind::WrongSerial, serial(one, index));
    for nic in &one.nics {
        add(MismatchKind::SwappedCables, planned_mac(one, nic, index));
    }
    add(MismatchKind::SwappedCables, port(one, index));
    for nic in &one.nics {
        if let Some((kind, detail)) = seen_mac(one, nic, index) {
            add(kind, Some(detail));
        }
    }
    add(MismatchKind::MacTwice, machines(one));
    found
}

fn slot(one: &Evidence, index: &Index<'_>) -> Option<String> {
    let plan = one.plan.as_ref()?;
    let (planned, rack) = (plan.rack.as_deref()?, one.rack.as_deref()?);
    let is_elsewhere = planned != rack || matches!((plan.unit, one.unit), (Some(a), Some(b)) if a != b);
    if !is_elsewhere {
        return None;
    }
    let place = |rack: &str, unit: Option<i32>| match unit {
        Some(unit) => format!("rack {rack} unit {unit}"),
        None => format!("rack {rack}"),
    };
    let owner = one.unit.and_then(|unit| index.planned_slot.get(&(rack, unit)));
    let owner = owner.filter(|owner| owner.node != one.node);
    let owner = owner.map_or_else(String::new, |owner| format!(", the place of {}", owner.label));
    let (planned, found) = (place(planned, plan.unit), place(rack, one.unit));
    Some(format!("planned for {planned}, found in {found}{owner}"))
}

fn serial(one: &Evidence, index: &Index<'_>) -> Option<String> {
    let serial = one.serial.as_deref()?;
    let planned = one.plan.as_ref().and_then(|plan| plan.serial.as_deref());
    if planned.is_some_and(|planned| folded(planned) == folded(serial)) {
        return None;
    }
    let owner = index.planned_serial.get(&folded(serial));
    let owner = owner.filter(|owner| owner.node != one.node);
    match (planned, owner) {
        (Some(planned), Some(owner)) => Some(format!(
            "the plan says serial {planned}; the machine is {serial}, which is planned as {}",
            owner.label
        )),
        (Some(planned), None) => Some(format!("the plan says serial {planned}; the machine is {serial}")),
        (None, Some(owner)) => Some(format!("the machine is {serial}, which is planned as {}", owner.label)),
        (None, None) => None,
    }
}

fn planned_mac(one: &Evidence, nic: &NicSeen, index: &Index<'_>) -> Option<String> {
    if !is_identity(&nic.mac, nic.driver.as_deref(), nic.is_boot) {
        return None;
    }
    let owner = index.planned_mac.get(nic.mac.as_str())?;
    (owner.node != one.node).then(|| format!("MAC {} ({}) is planned for {}", nic.mac, nic.name, owner.label))
}

fn port(one: &Evidence, index: &Index<'_>) -> Option<String> {
    let planned = one.plan.as_ref().and_then(|plan| plan.switch_port.as_deref());
    let ports = || {
        let heard = one
            .nics
            .iter()
            .filter_map(|nic| Some((nic, nic.switch_port.as_deref()?)));
        heard.map(|(nic, port)| (nic, port, folded(port)))
    };
    if planned.is_some_and(|planned| ports().any(|(_, _, port)| port == folded(planned))) {
        return None;
    }
    let says = planned.map_or_else(String::new, |planned| format!("; its own is {planned}"));
    let foreign = ports().find_map(|(nic, port, key)| {
        let owner = index.planned_port.get(&key)?;
        (owner.node != one.node).then(|| format!("{} is on {port}, the port of {}{says}", nic.name, owner.label))
    });
    foreign.or_else(|| {
        let (nic, port, _) = ports().find(|(nic, ..)| nic.is_boot)?;
        planned.map(|planned| format!("{} is on {port}; the plan says {planned}", nic.name))
    })
}

fn seen_mac(one: &Evidence, nic: &NicSeen, index: &Index<'_>) -> Option<(MismatchKind, String)> {
    let seen = index.seen_mac.get(nic.mac.as_str())?;
    let others: Vec<&(&Evidence, &NicSeen)> = seen.iter().filter(|(other, _)| other.node != one.node).collect();
    let (first, _) = others.first()?;
    let tells = |nic: &NicSeen| is_identity(&nic.mac, nic.driver.as_deref(), nic.is_boot);
    let boots = nic.is_boot || others.iter().any(|(_, nic)| nic.is_boot);
    let is_shared =
        !tells(nic) || others.iter().all(|(_, nic)| !tells(nic)) || (!boots && is_locally_administered(&nic.mac));
    if is_shared {
        let nodes = others.len() + 1;
        let detail = format!(
            "MAC {} ({}) is in {nodes} machines, such as {}: an interface that identifies nobody",
            nic.mac, nic.name, first.label
        );
        return Some((MismatchKind::SharedMac, detail));
    }
    let mut labels: Vec<&str> = others
        .iter()
        .take(NAMED_MAX)
        .map(|(other, _)| other.label.as_str())
        .collect();
    if others.len() > NAMED_MAX {
        labels.push("others");
    }
    let detail = format!("MAC {} ({}) is also in {}", nic.mac, nic.name, labels.join(", "));
    Some((MismatchKind::MacTwice, detail))
}

/// Two machines with one boot MAC boot as one node in turns: each time with another serial.
fn machines(one: &Evidence) -> Option<String> {
    let serial = one.serial.as_deref()?;
    let planned = one.plan.as_ref().and_then(|plan| plan.serial.as_deref());
    if planned.is_some_and(|planned| folded(planned) == folded(serial)) {
        return None;
    }
    let mut others = one
        .serials
        .iter()
        .filter(|other| folded(other) != folded(serial))
        .peekable();
    others.peek()?;
    let others: Vec<&str> = others.take(NAMED_MAX).map(String::as_str).collect();
    Some(format!(
        "the machine is {serial}, and was {} before: two machines have one MAC, or its mainboard was exchanged (then put \
         the new serial into the rack plan)",
        others.join(", ")
    ))
}

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;
