//! Discovery rules: what a machine that nobody listed is called, as its inventory arrives.
//!
//! A machine of the rack plan has its name from there: for it, a rule only says where it was found.

use std::net::Ipv4Addr;
use std::path::Path;

use lifecycle::rules::{self, RuleSet, Subject};
use protocol::latest::{Inventory, LldpListening};
use serde::Serialize;
use store::{NodeRecord, PlacedByRule, RulesRecord};

use super::boot::event;
use super::enrol::{Ramdisk, is_filler};
use super::nodes::hostname_check;
use super::{App, AppError};
use yaml::YamlError;

/// Largest text of rules, in bytes.
const RULES_BYTES_MAX: usize = 900 << 10;
/// Looks at the rules for one machine: each further one because a rule became full meanwhile.
const LOOKS_MAX: usize = 5;

/// The rules that are in force, or were.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct RulesView {
    /// The version.
    #[serde(flatten)]
    pub record: RulesRecord,
    /// Each rule, in order.
    pub rules: Vec<RuleView>,
}

/// A rule and what it has done.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct RuleView {
    /// Its name.
    pub name: String,
    /// How many nodes it may place.
    pub maximum: usize,
    /// How many it has placed.
    pub placed: usize,
}

/// Reads rules; `path` only names them in errors.
///
/// # Errors
/// [`YamlError::Content`], with line and column.
pub fn parse(path: &Path, text: &str) -> Result<RuleSet, YamlError> {
    yaml::parse(path, text)
}

async fn view(app: &App, record: RulesRecord) -> Result<RulesView, AppError> {
    let set = parse(Path::new("stored rules"), &record.content).map_err(AppError::internal)?;
    let placed = app.store.rules_placed().await?;
    let rules = set.rules.iter().map(|rule| RuleView {
        name: rule.name.0.clone(),
        maximum: rule.maximum.0,
        placed: placed.get(&rule.name.0).copied().unwrap_or(0),
    });
    Ok(RulesView {
        rules: rules.collect(),
        record,
    })
}

/// A version of the rules; without one, those in force.
///
/// # Errors
/// [`AppError::NotFound`] when there are none.
pub async fn get(app: &App, version: Option<i64>) -> Result<RulesView, AppError> {
    let record = app.store.rules_find(version).await?.ok_or_else(|| AppError::NotFound {
        what: "discovery rules".to_owned(),
        key: version.map_or_else(|| "in force".to_owned(), |version| format!("of version {version}")),
    })?;
    view(app, record).await
}

/// Puts rules in force.
///
/// # Errors
/// [`AppError::Invalid`] with line and column.
pub async fn apply(app: &App, content: &str, by: &str) -> Result<RulesView, AppError> {
    if content.len() > RULES_BYTES_MAX {
        let bytes = content.len();
        return Err(AppError::Invalid(format!(
            "rules: {bytes} bytes, expected at most {RULES_BYTES_MAX}"
        )));
    }
    parse(Path::new("rules"), content).map_err(|error| AppError::Invalid(error.to_string()))?;
    let record = app.store.rules_apply(content, by).await?;
    tracing::info!(
        rules.version = record.version,
        user.name = by,
        "discovery rules applied"
    );
    view(app, record).await
}

/// Lets the rules place a machine whose inventory arrived; what they did is an event of the node.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn inventory_arrived(app: &App, ramdisk: &Ramdisk, inventory: &Inventory) -> Result<(), AppError> {
    let Some(record) = app.store.rules_find(None).await? else {
        return Ok(());
    };
    let set = match parse(Path::new("stored rules"), &record.content) {
        Ok(set) => set,
        Err(error) => {
            // Another version of the server wrote them; machines go on without rules.
            tracing::error!(rules.version = record.version, %error, "the stored discovery rules are not understood");
            return Ok(());
        }
    };
    // The second inventory is half a minute away, and the first rule that fits decides.
    if set.needs_switch_ports() && inventory.lldp == LldpListening::Listening {
        return Ok(());
    }
    let view = super::nodes::node_get(app, ramdisk.node).await?;
    let is_planned = view.plan.is_some();
    let node = view.record;
    let is_new = node.name.is_none() && node.discovery_rule.is_none();
    if !is_planned && (!is_new || node.state != lifecycle::NodeState::WaitingApproval) {
        return Ok(());
    }
    let peer = app
        .store
        .token_get(ramdisk.token)
        .await
        .ok()
        .and_then(|token| token.peer.parse().ok());
    let subject = subject(&node, inventory, peer);
    for _ in 0..LOOKS_MAX {
        let placed = match is_planned {
            true => Default::default(),
            false => app.store.rules_placed().await?,
        };
        let decision = rules::decide(&set, &subject, &placed);
        let full = match decision.full.is_empty() {
            true => String::new(),
            false => format!("; full and passed over: {}", decision.full.join(", ")),
        };
        let told = match decision.placement {
            None if decision.full.is_empty() || is_planned => return Ok(()),
            None => format!("no rule places it{full}"),
            Some(Err(why)) => format!("{why}; nothing was changed{full}"),
            Some(Ok(placement)) if is_planned => {
                let Some(rack) = &placement.rack else { return Ok(()) };
                if !app.store.node_found_in(node.id, rack, placement.unit).await? {
                    return Ok(());
                }
                let unit = placement.unit.map_or_else(String::new, |unit| format!(" unit {unit}"));
                format!("found in rack {rack}{unit} by rule {}", placement.rule)
            }
            Some(Ok(placement)) => {
                let name = placement.name.clone().unwrap_or_default();
                if let Some(problem) = placement.name.as_deref().and_then(|name| hostname_check(name).err()) {
                    format!("rule {} fits, but {problem}; nothing was changed{full}", placement.rule)
                } else {
                    match app.store.node_place_by_rule(node.id, &placement).await? {
                        PlacedByRule::Done => format!("{}{full}", placed_text(&placement)),
                        PlacedByRule::NotNeeded => return Ok(()),
                        PlacedByRule::Full => continue,
                        PlacedByRule::NameTaken => format!(
                            "rule {} fits, but another node is named {name}; nothing was changed{full}",
                            placement.rule
                        ),
                    }
                }
            }
        };
        return event(app, node.id, "", "rule", &told).await;
    }
    Ok(())
}

fn placed_text(placement: &rules::Placement) -> String {
    let mut text = format!("rule {}:", placement.rule);
    let unit = placement.unit.map(|unit| unit.to_string());
    for (what, value) in [
        ("name", &placement.name),
        ("rack", &placement.rack),
        ("unit", &unit),
        ("group", &placement.group),
        ("image proposed", &placement.image),
    ] {
        if let Some(value) = value {
            text.push_str(&format!(" {what} {value},"));
        }
    }
    text.trim_end_matches([',', ':']).to_owned()
}

fn subject(node: &NodeRecord, inventory: &Inventory, peer: Option<Ipv4Addr>) -> Subject {
    let mut nics: Vec<_> = inventory.nics.iter().collect();
    nics.sort_by_key(|nic| !nic.boot);
    let dmi = &inventory.dmi;
    let relay = node.relay.as_deref().and_then(|relay| relay.parse().ok());
    Subject {
        serial: dmi
            .serial
            .as_deref()
            .map(str::trim)
            .filter(|serial| !is_filler(serial))
            .map(str::to_owned),
        macs: nics.iter().map(|nic| nic.mac.to_ascii_lowercase()).collect(),
        switch_ports: nics
            .iter()
            .filter_map(|nic| Some(nic.lldp.as_ref()?.switch_port()))
            .collect(),
        addresses: [peer, relay].into_iter().flatten().collect(),
        relay_circuit: node.relay_circuit.clone(),
        vendor: dmi.manufacturer.clone(),
        product: dmi.product.clone(),
        sku: dmi.sku.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "version: 1\nrules:\n  - rule: by-port\n    match:\n      switch_port: \"leaf-{rack}:Ethernet{unit}\"\n      \
                         product: SYS-821GE*\n    name: gpu-{rack}-{unit:02}\n    group: gpu\n    image: debian-12-lab\n    \
                         maximum: 2\n  - rule: rest\n    match:\n      mac_prefix: 3c:ec:ef\n      subnet: 10.77.0.0/16\n    \
                         name: \"{serial}\"\n    rack: unsorted\n    maximum: 10\n";

    fn machine(serial: &str) -> Subject {
        Subject {
            serial: Some(serial.to_owned()),
            macs: vec!["3c:ec:ef:00:00:01".to_owned()],
            switch_ports: vec!["leaf-r7:Ethernet12".to_owned()],
            addresses: vec![Ipv4Addr::new(10, 77, 1, 9)],
            product: Some("SYS-821GE-TNHR".to_owned()),
            ..Subject::default()
        }
    }

    #[test]
    fn the_first_rule_that_fits_decides_and_a_full_one_is_passed_over_and_told() {
        let set = parse(Path::new("x.yaml"), RULES).unwrap();
        let none = Default::default();
        let placement = rules::decide(&set, &machine("S1"), &none).placement.unwrap().unwrap();
        assert_eq!(
            (placement.rule.as_str(), placement.name.as_deref()),
            ("by-port", Some("gpu-r7-12"))
        );
        assert_eq!(
            (placement.rack.as_deref(), placement.unit, placement.group.as_deref()),
            (Some("r7"), Some(12), Some("gpu"))
        );
        assert_eq!(
            placed_text(&placement),
            "rule by-port: name gpu-r7-12, rack r7, unit 12, group gpu, image proposed debian-12-lab"
        );
        let full = [("by-port".to_owned(), 2)].into();
        let decision = rules::decide(&set, &machine("S1"), &full);
        assert_eq!(decision.full, ["by-port"]);
        assert_eq!(decision.placement.unwrap().unwrap().name.as_deref(), Some("s1"));
        let mut elsewhere = machine("S1");
        elsewhere.switch_ports.clear();
        assert_eq!(
            rules::decide(&set, &elsewhere, &none).placement.unwrap().unwrap().rule,
            "rest"
        );
        elsewhere.serial = None;
        let why = rules::decide(&set, &elsewhere, &none).placement.unwrap().unwrap_err();
        assert_eq!(why, "rule rest fits, but its serial is not known");
        elsewhere.addresses.clear();
        assert_eq!(rules::decide(&set, &elsewhere, &none), Default::default());
    }

    #[test]
    fn a_mistake_is_told_by_line_column_and_what_was_expected() {
        for (old, new, place, words) in [
            ("version: 1", "version: 2", "x.yaml:1:10: ", "expected 1"),
            ("    group: gpu", "    grupp: gpu", "x.yaml:8:5: ", "expected one of"),
            ("maximum: 2", "maximum: 0", "x.yaml:10:14: ", "expected 1 to 10000"),
            (
                "mac_prefix: 3c:ec:ef",
                "mac_prefix: 3cecef",
                "x.yaml:13:19: ",
                "such as 3c:ec:ef",
            ),
            ("subnet: 10.77.0.0/16", "subnet: 10.77", "x.yaml:14:15: ", ""),
            ("{unit:02}", "{slot}", "x.yaml:7:11: ", "{slot} is not known"),
            (
                "Ethernet{unit}",
                "Ethernet1",
                "x.yaml:",
                "rule by-port: its name needs {unit}",
            ),
            (
                "rule: rest",
                "rule: by-port",
                "x.yaml:",
                "two rules are named \"by-port\"",
            ),
        ] {
            assert!(RULES.contains(old), "{old}");
            let error = parse(Path::new("x.yaml"), &RULES.replacen(old, new, 1))
                .unwrap_err()
                .to_string();
            assert!(error.starts_with(place), "{error} should start with {place}");
            assert!(error.contains(words), "{error} should say {words}");
        }
        let everything = "version: 1\nrules:\n  - rule: all\n    match: {}\n    maximum: 1\n";
        let error = parse(Path::new("x.yaml"), everything).unwrap_err().to_string();
        assert!(error.contains("fits every machine"), "{error}");
    }
}
