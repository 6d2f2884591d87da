//! Discovery rules: what a machine that nobody listed is called and where it stands, by what was seen of it.
//!
//! Idea: rules in order; the first one that fits decides ([`decide`]). A rule places so many nodes and no more; a full one
//! is passed over, and that is said. Everything here is a function of values.
//!
//! Refused: rules that approve. A rule says what a machine is; a person says that it may be installed.

mod pattern;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::Deserialize;

pub use pattern::{Found, NamePattern, Pattern};

use crate::plan::UNIT_MAX;

/// Most rules of one set.
const RULES_MAX: usize = 500;
/// Most serials in all rules of a set together.
const SERIALS_MAX: usize = 20_000;
/// The only version of the format.
const VERSION: u32 = 1;

/// A set of rules, as written.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RawSet")]
pub struct RuleSet {
    /// In order; the first one that fits decides.
    pub rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSet {
    version: Version,
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(try_from = "u32")]
struct Version;

impl TryFrom<u32> for Version {
    type Error = String;

    fn try_from(version: u32) -> Result<Self, String> {
        match version {
            VERSION => Ok(Self),
            other => Err(format!("version {other}: expected {VERSION}")),
        }
    }
}

impl TryFrom<RawSet> for RuleSet {
    type Error = String;

    fn try_from(raw: RawSet) -> Result<Self, String> {
        let Version = raw.version;
        if raw.rules.len() > RULES_MAX {
            return Err(format!("{} rules: expected at most {RULES_MAX}", raw.rules.len()));
        }
        let mut names: Vec<&str> = raw.rules.iter().map(|rule| rule.name.0.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|two| two[0] == two[1]) {
            return Err(format!("two rules are named {:?}: expected a name for each", twice[0]));
        }
        let serials: usize = raw
            .rules
            .iter()
            .filter_map(|rule| Some(rule.when.serials.as_ref()?.len()))
            .sum();
        if serials > SERIALS_MAX {
            return Err(format!("{serials} serials: expected at most {SERIALS_MAX}"));
        }
        Ok(Self { rules: raw.rules })
    }
}

/// A name of a rule, rack or group: what people type and see.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Label(pub String);

impl TryFrom<String> for Label {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        match (1..=64).contains(&text.len()) && text.chars().all(fits) {
            true => Ok(Self(text)),
            false => Err(format!("{text:?}: expected 1 to 64 letters, digits, '.', '_' or '-'")),
        }
    }
}

/// What an approval proposes: an image's name, `name@version`, a channel (`name/stable`), or a digest.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ImageReference(pub String);

impl TryFrom<String> for ImageReference {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | '/');
        let marks = text.chars().filter(|c| matches!(c, '@' | '/')).count();
        match (1..=130).contains(&text.len()) && text.chars().all(fits) && marks <= 1 {
            true => Ok(Self(text)),
            false => Err(format!(
                "{text:?}: expected an image's name, name@version, a channel (name/stable), or a digest"
            )),
        }
    }
}

/// One to six octets at the beginning of a MAC.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct MacPrefix(String);

impl TryFrom<String> for MacPrefix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let is_octet = |octet: &str| octet.len() == 2 && octet.bytes().all(|b| b.is_ascii_hexdigit());
        match (1..=6).contains(&lower.split(':').count()) && lower.split(':').all(is_octet) {
            true => Ok(Self(lower)),
            false => Err(format!("{text:?}: expected one to six octets, such as 3c:ec:ef")),
        }
    }
}

/// A number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "i64")]
pub struct Maximum(pub usize);

impl TryFrom<i64> for Maximum {
    type Error = String;

    fn try_from(number: i64) -> Result<Self, String> {
        let fits = usize::try_from(number)
            .ok()
            .filter(|number| (1..=10_000).contains(number));
        fits.map(Self)
            .ok_or_else(|| format!("maximum {number}: expected 1 to 10000"))
    }
}

/// A height unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "i64")]
pub struct Unit(pub i32);

impl TryFrom<i64> for Unit {
    type Error = String;

    fn try_from(number: i64) -> Result<Self, String> {
        let fits = i32::try_from(number).ok().filter(|unit| (1..=UNIT_MAX).contains(unit));
        fits.map(Self)
            .ok_or_else(|| format!("unit {number}: expected 1 to {UNIT_MAX}"))
    }
}

/// What must be so for a rule to fit: all that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RawMatch")]
pub struct Match {
    serials: Option<Vec<String>>,
    mac_prefix: Option<MacPrefix>,
    switch_port: Option<Pattern>,
    subnet: Option<Ipv4Net>,
    relay_circuit: Option<Pattern>,
    vendor: Option<Pattern>,
    product: Option<Pattern>,
    sku: Option<Pattern>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMatch {
    serials: Option<Vec<String>>,
    mac_prefix: Option<MacPrefix>,
    switch_port: Option<Pattern>,
    subnet: Option<Ipv4Net>,
    relay_circuit: Option<Pattern>,
    vendor: Option<Pattern>,
    product: Option<Pattern>,
    sku: Option<Pattern>,
}

impl TryFrom<RawMatch> for Match {
    type Error = String;

    fn try_from(raw: RawMatch) -> Result<Self, String> {
        let found = Self {
            serials: raw.serials,
            mac_prefix: raw.mac_prefix,
            switch_port: raw.switch_port,
            subnet: raw.subnet,
            relay_circuit: raw.relay_circuit,
            vendor: raw.vendor,
            product: raw.product,
            sku: raw.sku,
        };
        if found == Self::default() {
            return Err("it fits every machine: expected at least one condition".to_owned());
        }
        Ok(found)
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "RawRule")]
pub struct Rule {
    /// Its name, which nodes keep.
    pub name: Label,
    when: Match,
    node_name: Option<NamePattern>,
    rack: Option<Label>,
    unit: Option<Unit>,
    group: Option<Label>,
    image: Option<ImageReference>,
    /// How many nodes it may place.
    pub maximum: Maximum,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    rule: Label,
    r#match: Match,
    name: Option<NamePattern>,
    rack: Option<Label>,
    unit: Option<Unit>,
    group: Option<Label>,
    image: Option<ImageReference>,
    maximum: Maximum,
}

impl TryFrom<RawRule> for Rule {
    type Error = String;

    fn try_from(raw: RawRule) -> Result<Self, String> {
        let rule = &raw.rule.0;
        let patterns = [&raw.r#match.switch_port, &raw.r#match.relay_circuit];
        let found = patterns.into_iter().flatten().map(Pattern::gives);
        let (rack, unit) = found.fold((raw.rack.is_some(), raw.unit.is_some()), |(rack, unit), found| {
            (rack || found.0, unit || found.1)
        });
        let (needs_rack, needs_unit) = raw.name.as_ref().map_or((false, false), NamePattern::needs);
        if needs_rack && !rack {
            return Err(format!(
                "rule {rule}: its name needs {{rack}}: expected a rack, or {{rack}} in what it matches"
            ));
        }
        if needs_unit && !unit {
            return Err(format!(
                "rule {rule}: its name needs {{unit}}: expected a unit, or {{unit}} in what it matches"
            ));
        }
        if unit && !rack {
            return Err(format!("rule {rule}: a unit without a rack: expected both"));
        }
        let has_places = [&raw.r#match.vendor, &raw.r#match.product, &raw.r#match.sku]
            .into_iter()
            .flatten()
            .any(|pattern| pattern.gives() != (false, false));
        if has_places {
            return Err(format!(
                "rule {rule}: expected {{rack}} and {{unit}} in switch_port and relay_circuit only"
            ));
        }
        Ok(Self {
            name: raw.rule,
            when: raw.r#match,
            node_name: raw.name,
            rack: raw.rack,
            unit: raw.unit,
            group: raw.group,
            image: raw.image,
            maximum: raw.maximum,
        })
    }
}

/// What was seen of a machine.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// Serial number; filler is none.
    pub serial: Option<String>,
    /// MACs, the one it booted from first.
    pub macs: Vec<String>,
    /// `switch:port` of its interfaces, as far as heard; the one it booted from first.
    pub switch_ports: Vec<String>,
    /// Its own address and its relay's.
    pub addresses: Vec<Ipv4Addr>,
    /// The circuit its relay named.
    pub relay_circuit: Option<String>,
    /// DMI manufacturer.
    pub vendor: Option<String>,
    /// DMI product name.
    pub product: Option<String>,
    /// DMI product SKU.
    pub sku: Option<String>,
}

/// What a rule makes of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The rule.
    pub rule: String,
    /// How many nodes it may place.
    pub maximum: usize,
    /// Name.
    pub name: Option<String>,
    /// Rack.
    pub rack: Option<String>,
    /// Unit.
    pub unit: Option<i32>,
    /// Node group.
    pub group: Option<String>,
    /// Image that is proposed.
    pub image: Option<String>,
}

/// What the rules say of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Rules that fitted and were full.
    pub full: Vec<String>,
    /// The rule that fits; or why it cannot do what it says.
    pub placement: Option<Result<Placement, String>>,
}

impl RuleSet {
    /// Whether a rule asks for a switch port: then nothing is decided before the switches were listened to.
    #[must_use]
    pub fn needs_switch_ports(&self) -> bool {
        self.rules.iter().any(|rule| rule.when.switch_port.is_some())
    }
}

/// Decides for one machine. `placed`: how many nodes each rule has placed.
#[must_use]
pub fn decide(set: &RuleSet, subject: &Subject, placed: &BTreeMap<String, usize>) -> Decision {
    let mut decision = Decision::default();
    for rule in &set.rules {
        let Some(found) = rule.when.fits(subject) else { continue };
        let count = placed.get(&rule.name.0).copied().unwrap_or(0);
        if count >= rule.maximum.0 {
            decision.full.push(rule.name.0.clone());
            continue;
        }
        decision.placement = Some(rule.place(subject, found));
        break;
    }
    decision
}

impl Match {
    /// Where the machine stands as far as the texts say, if everything fits.
    fn fits(&self, subject: &Subject) -> Option<Found> {
        let mut found = Found::default();
        let mut take = |pattern: &Pattern, texts: &[&str]| {
            let one = texts.iter().find_map(|text| pattern.find(text))?;
            found.rack = found.rack.take().or(one.rack);
            found.unit = found.unit.or(one.unit);
            Some(())
        };
        let text = |text: &Option<String>| text.iter().cloned().collect::<Vec<_>>();
        let conditions = [
            (&self.switch_port, subject.switch_ports.clone()),
            (&self.relay_circuit, text(&subject.relay_circuit)),
            (&self.vendor, text(&subject.vendor)),
            (&self.product, text(&subject.product)),
            (&self.sku, text(&subject.sku)),
        ];
        for (pattern, texts) in &conditions {
            if let Some(pattern) = pattern {
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                take(pattern, &texts)?;
            }
        }
        if let Some(serials) = &self.serials {
            let own = subject.serial.as_deref()?;
            serials.iter().find(|serial| serial.trim().eq_ignore_ascii_case(own))?;
        }
        if let Some(prefix) = &self.mac_prefix {
            subject.macs.iter().find(|mac| mac.starts_with(&prefix.0))?;
        }
        if let Some(subnet) = &self.subnet {
            subject.addresses.iter().find(|address| subnet.contains(*address))?;
        }
        Some(found)
    }
}

impl Rule {
    fn place(&self, subject: &Subject, found: Found) -> Result<Placement, String> {
        let text = |label: &Option<Label>| label.as_ref().map(|label| label.0.clone());
        let place = Found {
            rack: text(&self.rack).or(found.rack),
            unit: self.unit.map(|unit| unit.0).or(found.unit),
        };
        let mac = subject.macs.first().map(String::as_str);
        let name = self
            .node_name
            .as_ref()
            .map(|name| name.render(&place, subject.serial.as_deref(), mac));
        let name = name
            .transpose()
            .map_err(|why| format!("rule {} fits, but {why}", self.name.0))?;
        Ok(Placement {
            rule: self.name.0.clone(),
            maximum: self.maximum.0,
            name,
            rack: place.rack,
            unit: place.unit,
            group: text(&self.group),
            image: self.image.as_ref().map(|image| image.0.clone()),
        })
    }
}
