//! Burn-ins: what results are good enough, and whether a node may be installed.
//!
//! Idea: the deployer tells what it measured; [`judge`] compares it with what the site expects, [`Standing`] says in one
//! word where a node stands. Invariant: a test that could not be done holds a node back like one that failed, until a
//! person says otherwise; silence never passes.

mod links;

use protocol::latest::{TestKind, TestOutcome, TestResult};
use serde::{Deserialize, Serialize};

pub use links::LinkPlan;

/// What the site expects of results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expectations {
    /// Links that machines must have.
    pub links: Vec<LinkPlan>,
    /// Least throughput to the server and back, each, in Mb/s.
    pub network_mbps_min: Option<u32>,
    /// Least throughput of every disk, written and read, in MB/s.
    pub disk_mbytes_per_sec_min: Option<u32>,
}

/// Holds a result against what is expected of a node in this group: it can only become worse.
#[must_use]
pub fn judge(mut result: TestResult, group: &str, expectations: &Expectations) -> TestResult {
    if result.outcome != TestOutcome::Passed {
        return result;
    }
    let problems = match result.kind {
        TestKind::Links => links::problems(&result.ports, group, &expectations.links),
        TestKind::Network => below(&result, expectations.network_mbps_min, "Mb/s"),
        TestKind::Disk => below(&result, expectations.disk_mbytes_per_sec_min, "MB/s"),
        TestKind::Memory | TestKind::Cpu => Vec::new(),
    };
    if !problems.is_empty() {
        result.outcome = TestOutcome::Failed;
        result.detail = format!("{}. {}", problems.join("; "), result.detail);
    }
    result
}

/// Figures in this unit that are below what is expected. Figures that are missing are too: a number was asked for.
fn below(result: &TestResult, least: Option<u32>, unit: &str) -> Vec<String> {
    let Some(least) = least else { return Vec::new() };
    let mut figures = result.figures.iter().filter(|figure| figure.unit == unit).peekable();
    if figures.peek().is_none() {
        return vec![format!("nothing was measured in {unit}; expected {least} or more")];
    }
    figures
        .filter(|figure| figure.value < f64::from(least))
        .map(|figure| format!("{} {:.0} {unit}; expected {least} or more", figure.name, figure.value))
        .collect()
}

/// The last burn-in of a node, as far as decisions need it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Last {
    /// Whether it has ended.
    pub has_ended: bool,
    /// What it does, while it runs.
    pub progress: Option<String>,
    /// Why it ended before its end.
    pub problem: Option<String>,
    /// Tests that did not pass, with what was found.
    pub not_passed: Vec<(TestKind, TestOutcome, String)>,
    /// Who lets the node be installed all the same, and why.
    pub waived: Option<String>,
}

/// Where a node's burn-in stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It never had one.
    None,
    /// It runs.
    Running,
    /// All tests passed.
    Passed,
    /// A test failed or could not be done, or it was broken off.
    Failed,
    /// It failed, and a person lets the node be installed all the same.
    Waived,
}

impl Standing {
    /// Where a node with this last burn-in stands, and why, for people.
    #[must_use]
    pub fn of(last: Option<&Last>) -> (Self, String) {
        let Some(last) = last else {
            return (Self::None, "not burned in".to_owned());
        };
        if let Some(waived) = &last.waived {
            return (Self::Waived, waived.clone());
        }
        if !last.has_ended {
            let what = last.progress.as_deref().unwrap_or("about to begin");
            return (Self::Running, what.to_owned());
        }
        let mut found: Vec<String> = last
            .not_passed
            .iter()
            .map(|(kind, outcome, detail)| match outcome {
                TestOutcome::NotRun => format!("{} could not be tested: {detail}", kind.as_str()),
                _ => format!("{}: {detail}", kind.as_str()),
            })
            .collect();
        found.extend(last.problem.clone());
        match found.is_empty() {
            true => (Self::Passed, "all tests passed".to_owned()),
            false => (Self::Failed, found.join("; ")),
        }
    }

    /// Why a node that stands here may not be installed; none: it may. `is_required`: the site wants every new machine
    /// burned in, and this is one.
    #[must_use]
    pub fn holds_back(self, detail: &str, is_required: bool) -> Option<String> {
        match self {
            Self::None if is_required => Some("the node was not burned in yet: start it and let it finish".to_owned()),
            Self::Running => Some(format!("the node is being burned in ({detail})")),
            Self::Failed => Some(format!("the node did not pass its burn-in: {detail}")),
            Self::None | Self::Passed | Self::Waived => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::latest::Figure;

    fn result(kind: TestKind, figures: &[(&str, f64, &str)]) -> TestResult {
        TestResult {
            kind,
            outcome: TestOutcome::Passed,
            detail: "done".to_owned(),
            figures: figures
                .iter()
                .map(|(name, value, unit)| Figure {
                    name: (*name).to_owned(),
                    value: *value,
                    unit: (*unit).to_owned(),
                })
                .collect(),
            ports: Vec::new(),
            secs: 10,
        }
    }

    #[test]
    fn a_slow_disk_or_network_fails_and_says_how_slow() {
        let expectations = Expectations {
            network_mbps_min: Some(9_000),
            disk_mbytes_per_sec_min: Some(500),
            ..Expectations::default()
        };
        let network = result(
            TestKind::Network,
            &[("download", 9_400.0, "Mb/s"), ("upload", 941.2, "Mb/s")],
        );
        let judged = judge(network.clone(), "default", &expectations);
        assert_eq!(judged.outcome, TestOutcome::Failed);
        assert_eq!(judged.detail, "upload 941 Mb/s; expected 9000 or more. done");
        assert_eq!(
            judge(network, "default", &Expectations::default()).outcome,
            TestOutcome::Passed
        );
        let disk = result(
            TestKind::Disk,
            &[("sda read", 501.0, "MB/s"), ("sda errors", 0.0, "errors")],
        );
        assert_eq!(judge(disk, "default", &expectations).outcome, TestOutcome::Passed);
        let nothing = judge(result(TestKind::Disk, &[]), "default", &expectations);
        assert_eq!(nothing.outcome, TestOutcome::Failed, "{nothing:?}");
    }

    #[test]
    fn a_result_never_becomes_better() {
        let mut failed = result(TestKind::Memory, &[]);
        failed.outcome = TestOutcome::NotRun;
        let judged = judge(failed.clone(), "default", &Expectations::default());
        assert_eq!(judged, failed);
    }

    #[test]
    fn what_could_not_be_tested_holds_a_node_back_like_what_failed() {
        let last = |not_passed: &[(TestKind, TestOutcome, &str)]| Last {
            has_ended: true,
            not_passed: not_passed.iter().map(|(k, o, d)| (*k, *o, (*d).to_owned())).collect(),
            ..Last::default()
        };
        let passed = last(&[]);
        assert_eq!(Standing::of(Some(&passed)).0, Standing::Passed);
        let failed = last(&[
            (TestKind::Memory, TestOutcome::Failed, "3 words differ"),
            (TestKind::Disk, TestOutcome::NotRun, "no disk"),
        ]);
        let (standing, detail) = Standing::of(Some(&failed));
        assert_eq!(
            standing.holds_back(&detail, false).unwrap(),
            "the node did not pass its burn-in: memory: 3 words differ; disk could not be tested: no disk"
        );
        let broken_off = Last {
            problem: Some("it restarted during memory".to_owned()),
            ..last(&[])
        };
        assert_eq!(Standing::of(Some(&broken_off)).0, Standing::Failed);
        let waived = Last {
            waived: Some("admin: known DIMM".to_owned()),
            ..failed
        };
        assert_eq!(Standing::of(Some(&waived)).0, Standing::Waived);
    }

    #[test]
    fn a_new_machine_is_held_back_until_it_was_burned_in_where_the_site_wants_it() {
        let (standing, detail) = Standing::of(None);
        assert!(standing.holds_back(&detail, true).is_some());
        assert_eq!(standing.holds_back(&detail, false), None);
        let running = Last {
            progress: Some("memory: pass 2".to_owned()),
            ..Last::default()
        };
        let (standing, detail) = Standing::of(Some(&running));
        assert!(standing.holds_back(&detail, false).unwrap().contains("memory: pass 2"));
    }
}
