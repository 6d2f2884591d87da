//! What is known of a node's drift. The verdict is a pure function of what was reported and when.
//!
//! Invariant: "clean" is only said of a node whose agent still speaks, whose last scan walked everything to its end and
//! found nothing it could not look at. Everything else is drift, incomplete, or unknown.

use protocol::NodeId;
use serde::Serialize;
use store::{FindingOnNode, NodeRecord, ReportRecord};
use time::OffsetDateTime;

use super::{App, AppError};

/// An agent that said nothing for this long leaves its node's drift unknown.
const SILENT_SECS_MAX: i64 = 15 * 60;

/// A scan runs at least once a day, whatever the configuration; one that is older says nothing of today.
const SCAN_SECS_MAX: i64 = 26 * 3_600;

/// What is known of a node's drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Everything was looked at and is as it should be.
    Clean,
    /// Something differs.
    Drift,
    /// Nobody knows: no complete scan has arrived, or the agent is silent.
    Unknown,
    /// Nothing was found to differ, but not everything was looked at.
    Incomplete,
}

impl Verdict {
    /// The name used everywhere outside this code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Drift => "drift",
            Self::Unknown => "unknown",
            Self::Incomplete => "incomplete",
        }
    }
}

/// What the verdict follows from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Findings that nobody allows.
    pub findings: u64,
    /// Findings that people have waived or accepted.
    pub allowed: u64,
    /// A complete scan of this installation has arrived at some time.
    pub scanned: bool,
    /// The newest scan walked everything to its end; none: there is no scan.
    pub complete: Option<bool>,
    /// Places the newest scan could not look at.
    pub not_looked_at: u64,
    /// Seconds since anything was heard of the agent; none: never.
    pub silent_secs: Option<i64>,
    /// Seconds since the last complete scan arrived; none: never.
    pub scan_secs: Option<i64>,
    /// The server took the node out of service: what is reported may be of another machine.
    pub quarantine: Option<String>,
    /// Why the image that the node is compared with must not be used any more: what it should be is not known then.
    pub image_problem: Option<String>,
}

impl Evidence {
    /// What a node's record says.
    #[must_use]
    pub fn of_node(node: &NodeRecord, now: OffsetDateTime) -> Self {
        let heartbeat_at = node.agent.as_ref().map(|agent| agent.heartbeat_at);
        let heard_at = heartbeat_at.max(node.scanned_at);
        Self {
            findings: u64::try_from(node.findings).unwrap_or(0),
            allowed: u64::try_from(node.allowed).unwrap_or(0),
            scanned: node.scanned_at.is_some(),
            complete: node.scan_complete,
            not_looked_at: u64::try_from(node.not_looked_at.unwrap_or(0)).unwrap_or(0),
            silent_secs: heard_at.map(|at| (now - at).whole_seconds()),
            scan_secs: node.scanned_at.map(|at| (now - at).whole_seconds()),
            quarantine: node
                .hold
                .as_ref()
                .filter(|hold| hold.is_quarantine())
                .map(|hold| hold.reason.clone()),
            image_problem: node.image_problem.clone(),
        }
    }

    /// The same, with the newest report itself, which may tell more than the record.
    #[must_use]
    pub fn with_report(mut self, report: Option<&ReportRecord>, now: OffsetDateTime) -> Self {
        if let Some(report) = report {
            let listed = u64::try_from(report.not_looked_at.len()).unwrap_or(u64::MAX);
            self.complete =
                Some(report.complete && report.scan.complete && report.scan.roots.iter().all(|r| r.complete));
            self.not_looked_at = self.not_looked_at.max(report.scan.not_looked_at_count).max(listed);
            // Beyond its limits a report only counts what differs; nobody can have allowed that.
            let unlisted = report
                .scan
                .difference_count
                .saturating_sub(self.findings + self.allowed);
            self.findings += unlisted;
            let heard_secs = (now - report.received_at).whole_seconds();
            self.silent_secs = Some(self.silent_secs.map_or(heard_secs, |secs| secs.min(heard_secs)));
        }
        self
    }

    /// That the agent is silent, and for how long; `None` while it speaks.
    #[must_use]
    pub fn silence(&self) -> Option<String> {
        match self.silent_secs {
            Some(secs) if secs <= SILENT_SECS_MAX => None,
            Some(secs) => Some(format!("nothing heard of the agent for {}", duration_text(secs))),
            None => Some("nothing was ever heard of the agent".to_owned()),
        }
    }
}

/// The verdict, and why, for people.
#[must_use]
pub fn verdict(evidence: &Evidence) -> (Verdict, String) {
    let silent = evidence.silent_secs.filter(|secs| *secs > SILENT_SECS_MAX);
    let silence = silent.map_or(String::new(), |secs| {
        format!("; nothing heard of the agent for {}", duration_text(secs))
    });
    let gaps = match (evidence.complete, evidence.not_looked_at) {
        (Some(true), 0) | (None, _) => None,
        (Some(true), places) => Some(format!("{} could not be looked at", count_text(places, "place"))),
        (Some(false), 0) => Some("the last scan did not reach its end".to_owned()),
        (Some(false), places) => {
            let places = count_text(places, "place");
            Some(format!(
                "the last scan did not reach its end, {places} could not be looked at"
            ))
        }
    };
    let old = evidence.scan_secs.filter(|secs| *secs > SCAN_SECS_MAX);
    let quarantine = evidence.quarantine.as_deref();
    let image = evidence.image_problem.as_deref();
    if evidence.findings > 0 {
        let gaps = gaps.map_or(String::new(), |gaps| format!("; {gaps}"));
        let old = old.map_or(String::new(), |secs| {
            format!("; the last complete scan came {} ago", duration_text(secs))
        });
        let quarantine = quarantine.map_or(String::new(), |reason| format!("; {reason}"));
        let image = image.map_or(String::new(), |reason| format!("; {reason}"));
        let reason = format!(
            "{}{gaps}{silence}{old}{quarantine}{image}",
            count_text(evidence.findings, "difference")
        );
        return (Verdict::Drift, reason);
    }
    if let Some(reason) = quarantine {
        return (Verdict::Unknown, reason.to_owned());
    }
    if let Some(reason) = image {
        return (
            Verdict::Unknown,
            format!("{reason}; install the node again from another image{silence}"),
        );
    }
    if !evidence.scanned || evidence.complete.is_none() {
        let gaps = gaps.map_or(String::new(), |gaps| format!("; {gaps}"));
        return (Verdict::Unknown, format!("no complete scan has arrived{gaps}{silence}"));
    }
    if let Some(gaps) = gaps {
        return (Verdict::Incomplete, format!("{gaps}{silence}"));
    }
    match silent {
        Some(secs) => {
            let secs = duration_text(secs);
            (
                Verdict::Unknown,
                format!("nothing heard of the agent for {secs}; its last scan found no difference"),
            )
        }
        // The agent speaks and its scans do not end.
        None if old.is_some() => (
            Verdict::Unknown,
            format!(
                "the last complete scan came {} ago and found no difference",
                duration_text(old.unwrap_or(0))
            ),
        ),
        None if evidence.allowed > 0 => (
            Verdict::Clean,
            format!(
                "everything was looked at; {} allowed",
                count_text(evidence.allowed, "difference")
            ),
        ),
        None => (
            Verdict::Clean,
            "everything was looked at and nothing differs".to_owned(),
        ),
    }
}

/// `1 difference`, `2 differences`.
pub(crate) fn count_text(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

fn duration_text(secs: i64) -> String {
    match secs {
        ..3_600 => format!("{} min", secs / 60),
        3_600..172_800 => format!("{} h", secs / 3_600),
        _ => format!("{} days", secs / 86_400),
    }
}

/// A node's drift: the verdict, the scan it rests on, and what differs.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct NodeDrift {
    /// The node.
    pub node: NodeId,
    /// Its name.
    pub name: Option<String>,
    /// What is known.
    pub verdict: Verdict,
    /// Why, for people.
    pub reason: String,
    /// The newest report: what was looked at and what could not be.
    pub report: Option<ReportRecord>,
    /// What differs.
    pub findings: Vec<FindingOnNode>,
}

/// What is known of one node's drift.
///
/// # Errors
/// [`AppError::NotFound`].
pub async fn node_drift(app: &App, node: NodeId) -> Result<NodeDrift, AppError> {
    let record = app.store.node_get(node).await?;
    let report = app.store.report_newest(node).await?;
    let findings = app.store.finding_list(node).await?;
    let now = OffsetDateTime::now_utc();
    let (verdict, reason) = verdict(&Evidence::of_node(&record, now).with_report(report.as_ref(), now));
    Ok(NodeDrift {
        node,
        name: record.name,
        verdict,
        reason,
        report,
        findings,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: Evidence = Evidence {
        findings: 0,
        allowed: 0,
        scanned: true,
        complete: Some(true),
        not_looked_at: 0,
        silent_secs: Some(30),
        scan_secs: Some(600),
        quarantine: None,
        image_problem: None,
    };

    /// keylime/keylime#1091, osquery/osquery#3290: an agent whose scans hang still speaks, and its node turns unknown by
    /// itself.
    #[test]
    fn keylime_1091_a_node_whose_scans_ended_turns_unknown() {
        let after = |secs| Evidence {
            scan_secs: Some(secs),
            ..CLEAN
        };
        assert_eq!(verdict(&after(24 * 3_600)).0, Verdict::Clean, "the longest interval");
        let (found, reason) = verdict(&after(3 * 86_400));
        assert_eq!(found, Verdict::Unknown);
        assert!(reason.contains("complete scan came 3 days ago"), "{reason}");
        let (found, reason) = verdict(&Evidence {
            findings: 1,
            ..after(3 * 86_400)
        });
        assert_eq!(found, Verdict::Drift);
        assert!(reason.contains("3 days ago"), "{reason}");
    }

    /// fleetdm/fleet#102: what two machines say under one name is the word of neither.
    #[test]
    fn fleet_102_a_cloned_node_is_never_clean() {
        let cloned = Evidence {
            quarantine: Some("two machines".to_owned()),
            ..CLEAN
        };
        assert_eq!(verdict(&cloned), (Verdict::Unknown, "two machines".to_owned()));
        let (found, reason) = verdict(&Evidence { findings: 1, ..cloned });
        assert_eq!(found, Verdict::Drift);
        assert!(reason.contains("two machines"), "{reason}");
    }

    #[test]
    fn a_node_of_a_revoked_image_is_never_clean() {
        let revoked = Evidence {
            image_problem: Some("debian@1 must not be used: it was revoked".to_owned()),
            ..CLEAN
        };
        let (found, reason) = verdict(&revoked);
        assert_eq!(found, Verdict::Unknown);
        assert!(reason.contains("it was revoked; install the node again"), "{reason}");
        let (found, reason) = verdict(&Evidence { findings: 1, ..revoked });
        assert_eq!(found, Verdict::Drift);
        assert!(
            reason.contains("1 difference") && reason.contains("it was revoked"),
            "{reason}"
        );
    }

    #[test]
    fn only_a_complete_scan_of_a_speaking_agent_is_clean() {
        for (evidence, expected, words) in [
            (CLEAN, Verdict::Clean, "nothing differs"),
            (Evidence { findings: 1, ..CLEAN }, Verdict::Drift, "1 difference"),
            (
                Evidence {
                    complete: Some(false),
                    ..CLEAN
                },
                Verdict::Incomplete,
                "did not reach its end",
            ),
            (
                Evidence {
                    not_looked_at: 2,
                    ..CLEAN
                },
                Verdict::Incomplete,
                "2 places could not be looked at",
            ),
            (
                Evidence {
                    silent_secs: Some(7_300),
                    ..CLEAN
                },
                Verdict::Unknown,
                "for 2 h",
            ),
            (
                Evidence {
                    scanned: false,
                    complete: None,
                    silent_secs: None,
                    ..CLEAN
                },
                Verdict::Unknown,
                "no complete scan",
            ),
            (
                Evidence {
                    scanned: false,
                    complete: Some(false),
                    ..CLEAN
                },
                Verdict::Unknown,
                "did not reach its end",
            ),
        ] {
            let (found, reason) = verdict(&evidence);
            assert_eq!(found, expected, "{evidence:?}");
            assert!(reason.contains(words), "{reason}");
        }
    }

    #[test]
    fn drift_is_told_with_what_was_not_seen() {
        let (found, reason) = verdict(&Evidence {
            findings: 3,
            complete: Some(false),
            silent_secs: Some(1_000),
            ..CLEAN
        });
        assert_eq!(found, Verdict::Drift);
        assert!(
            reason.contains("3 differences") && reason.contains("end") && reason.contains("16 min"),
            "{reason}"
        );
    }

    #[test]
    fn what_people_allow_is_no_drift_and_is_said() {
        let (found, reason) = verdict(&Evidence { allowed: 2, ..CLEAN });
        assert_eq!(found, Verdict::Clean);
        assert!(reason.contains("2 differences allowed"), "{reason}");
        let (found, _) = verdict(&Evidence {
            allowed: 2,
            complete: Some(false),
            ..CLEAN
        });
        assert_eq!(found, Verdict::Incomplete);
    }

    #[test]
    fn no_gap_of_any_size_is_ever_clean() {
        for complete in [None, Some(false), Some(true)] {
            for not_looked_at in [0, 1, 1_000] {
                for scanned in [false, true] {
                    let evidence = Evidence {
                        complete,
                        not_looked_at,
                        scanned,
                        ..CLEAN
                    };
                    let is_clean = verdict(&evidence).0 == Verdict::Clean;
                    assert_eq!(is_clean, evidence == CLEAN, "{evidence:?}");
                }
            }
        }
    }
}
