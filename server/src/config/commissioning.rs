//! `[commissioning]`: how machines are burned in, and what is expected of them.

use std::collections::BTreeMap;

use lifecycle::burn_in::{Expectations, LinkPlan};
use protocol::latest::{LinkLayer, TestKind, TestOrder};
use protocol::limits::BURN_IN_SECS_MAX;
use serde::Deserialize;

/// Most plans of links.
const LINK_PLANS_MAX: usize = 256;
/// More ports than a machine has.
const PORTS_MAX: usize = 1_024;

/// How machines are burned in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commissioning {
    /// Whether each new machine is burned in before it may be approved.
    pub is_for_new_nodes: bool,
    /// Its tests, where nobody orders others.
    pub tests: Vec<TestOrder>,
    /// What is expected of results.
    pub expectations: Expectations,
}

impl Commissioning {
    /// How long a test may take where nobody says otherwise, in seconds.
    #[must_use]
    pub const fn limit_secs(kind: TestKind) -> u32 {
        match kind {
            TestKind::Links => 60,
            TestKind::Network => 30,
            TestKind::Memory => 600,
            TestKind::Cpu | TestKind::Disk => 300,
        }
    }

    /// The limit of a kind at this site.
    #[must_use]
    pub fn limit_of(&self, kind: TestKind) -> u32 {
        let own = self.tests.iter().find(|order| order.kind == kind);
        own.map_or_else(|| Self::limit_secs(kind), |order| order.limit_secs)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawCommissioning {
    new_nodes: bool,
    tests: Vec<TestKind>,
    limit_secs: BTreeMap<TestKind, u32>,
    network_mbps_min: Option<u32>,
    disk_mbytes_per_sec_min: Option<u32>,
    links: Vec<RawLinkPlan>,
}

impl Default for RawCommissioning {
    fn default() -> Self {
        Self {
            new_nodes: false,
            tests: TestKind::ALL.to_vec(),
            limit_secs: BTreeMap::new(),
            network_mbps_min: None,
            disk_mbytes_per_sec_min: None,
            links: Vec::new(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLinkPlan {
    #[serde(default)]
    groups: Vec<String>,
    layer: Option<LinkLayer>,
    driver: Option<String>,
    count: usize,
    speed_mbps: Option<u32>,
}

pub(super) fn commissioning(raw: RawCommissioning) -> Result<Commissioning, (&'static str, String)> {
    let mut kinds = raw.tests;
    kinds.sort_unstable();
    kinds.dedup();
    if raw.new_nodes && kinds.is_empty() {
        let problem = "empty, while commissioning.new_nodes is true: expected one test or more";
        return Err(("commissioning.tests", problem.to_owned()));
    }
    for (kind, secs) in &raw.limit_secs {
        if !(1..=BURN_IN_SECS_MAX).contains(secs) {
            let problem = format!("{}: {secs}: expected 1 to {BURN_IN_SECS_MAX}", kind.as_str());
            return Err(("commissioning.limit_secs", problem));
        }
    }
    if raw.links.len() > LINK_PLANS_MAX {
        let problem = format!("{} of them; expected at most {LINK_PLANS_MAX}", raw.links.len());
        return Err(("commissioning.links", problem));
    }
    for plan in &raw.links {
        if !(1..=PORTS_MAX).contains(&plan.count) {
            let problem = format!("{}: expected 1 to {PORTS_MAX}", plan.count);
            return Err(("commissioning.links.count", problem));
        }
    }
    let order = |kind: TestKind| TestOrder {
        kind,
        limit_secs: raw
            .limit_secs
            .get(&kind)
            .copied()
            .unwrap_or_else(|| Commissioning::limit_secs(kind)),
    };
    let tests: Vec<TestOrder> = kinds.into_iter().map(order).collect();
    total_check(&tests).map_err(|problem| ("commissioning.limit_secs", problem))?;
    Ok(Commissioning {
        is_for_new_nodes: raw.new_nodes,
        tests,
        expectations: Expectations {
            links: raw.links.into_iter().map(plan).collect(),
            network_mbps_min: raw.network_mbps_min,
            disk_mbytes_per_sec_min: raw.disk_mbytes_per_sec_min,
        },
    })
}

/// Whether tests together take no longer than a burn-in may.
///
/// # Errors
/// What was found, and what was expected.
pub fn total_check(tests: &[TestOrder]) -> Result<(), String> {
    let total: u64 = tests.iter().map(|test| u64::from(test.limit_secs)).sum();
    match total <= u64::from(BURN_IN_SECS_MAX) {
        true => Ok(()),
        false => Err(format!(
            "{total} s for all tests together: expected at most {BURN_IN_SECS_MAX}"
        )),
    }
}

fn plan(raw: RawLinkPlan) -> LinkPlan {
    LinkPlan {
        groups: raw.groups,
        layer: raw.layer,
        driver: raw.driver,
        count: raw.count,
        speed_mbps: raw.speed_mbps,
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use protocol::latest::TestKind;
    use std::path::Path;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, Path::new("plumbline.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn machines_are_burned_in_only_where_the_site_says_so() {
        let plain = parse("").unwrap().commissioning;
        assert!(!plain.is_for_new_nodes);
        assert_eq!(plain.tests.len(), TestKind::ALL.len());
        let config = parse(
            "[commissioning]\nnew_nodes = true\ntests = [\"memory\", \"links\"]\nlimit_secs = { memory = 7200 }\n\
             [[commissioning.links]]\ngroups = [\"gpu\"]\nlayer = \"infiniband\"\ncount = 8\nspeed_mbps = 400000\n",
        )
        .unwrap()
        .commissioning;
        let tests: Vec<_> = config.tests.iter().map(|test| (test.kind, test.limit_secs)).collect();
        assert_eq!(tests, [(TestKind::Links, 60), (TestKind::Memory, 7_200)]);
        assert_eq!(config.expectations.links[0].count, 8);
        assert_eq!(config.limit_of(TestKind::Disk), 300);
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_key() {
        for (text, expected) in [
            ("new_nodes = true\ntests = []", "commissioning.tests"),
            (
                "limit_secs = { cpu = 0 }",
                "commissioning.limit_secs: cpu: 0: expected 1 to",
            ),
            (
                "limit_secs = { cpu = 200000, disk = 200000 }",
                "400690 s for all tests together",
            ),
            ("limit_secs = { gpu = 9 }", "unknown variant `gpu`"),
            ("tests = [\"ram\"]", "unknown variant `ram`"),
            ("[[commissioning.links]]\ncount = 0", "commissioning.links.count: 0"),
            ("[[commissioning.links]]\ncount = 1\nspeed = 4", "unknown field `speed`"),
        ] {
            let error = parse(&format!("[commissioning]\n{text}\n")).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
