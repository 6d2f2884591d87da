//! States of one node's repair.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Where a node's repair stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Its turn has not come.
    Waiting,
    /// Signed; the agent has not pulled it.
    Issued,
    /// The agent has it.
    Working,
    /// Carried out; the scan that proves it is due.
    Checking,
    /// A fresh scan shows none of its findings.
    Done,
    /// A fresh scan still shows some of them.
    Left,
    /// Refused, expired, or never proved.
    Failed,
    /// Not begun: the run was stopped, or the node was held meanwhile.
    Skipped,
}

impl JobState {
    /// All states, in order.
    pub const ALL: [Self; 8] = [
        Self::Waiting,
        Self::Issued,
        Self::Working,
        Self::Checking,
        Self::Done,
        Self::Left,
        Self::Failed,
        Self::Skipped,
    ];

    /// The name used everywhere outside this code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Issued => "issued",
            Self::Working => "working",
            Self::Checking => "checking",
            Self::Done => "done",
            Self::Left => "left",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }

    /// Reads the name back.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether the node is being touched.
    #[must_use]
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Issued | Self::Working | Self::Checking)
    }

    /// Whether nothing more comes.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Left | Self::Failed | Self::Skipped)
    }

    /// How long it may stay so before it counts as failed; `None` where that does not depend on time. An issued job
    /// is good for [`protocol::limits::JOB_SECS_MAX`]; an agent that pulled it at the last moment still needs time.
    #[must_use]
    pub const fn allowance(self) -> Option<Duration> {
        match self {
            Self::Issued => Some(Duration::from_secs(protocol::limits::JOB_SECS_MAX + 60)),
            Self::Working | Self::Checking => Some(Duration::from_secs(30 * 60)),
            _ => None,
        }
    }
}

/// What was observed of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// The agent pulled it. It may do so again, after an answer that was lost.
    Pulled,
    /// The agent carried it out.
    Ran,
    /// The agent refused the whole job.
    Refused {
        /// Why.
        reason: String,
    },
    /// The scan after it has arrived.
    Proved {
        /// How many of its findings are still there.
        left: u64,
        /// How many places that scan could not look at.
        not_looked_at: u64,
    },
    /// It stayed in its state for longer than the allowance.
    TimedOut,
    /// The run was stopped, or the node held, before its turn came.
    CalledOff {
        /// Why.
        reason: String,
    },
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It goes on to another state.
    Transition {
        /// The next state.
        next: JobState,
        /// Why, for people.
        reason: String,
    },
    /// Nothing changes.
    Nothing,
}

/// The next state of a job.
#[must_use]
pub fn step(state: JobState, observed: &Observed) -> Step {
    use JobState as S;
    let to = |next, reason: &str| Step::Transition {
        next,
        reason: reason.to_owned(),
    };
    match (state, observed) {
        (S::Issued, Observed::Pulled) => to(S::Working, "the agent works on it"),
        (S::Issued | S::Working, Observed::Ran) => to(S::Checking, "carried out; waiting for a fresh scan"),
        (S::Issued | S::Working, Observed::Refused { reason }) => Step::Transition {
            next: S::Failed,
            reason: format!("the agent refused: {reason}"),
        },
        // The outcome's own message may be lost; a scan that says it came after the job proves as much.
        (S::Issued | S::Working | S::Checking, Observed::Proved { left, not_looked_at }) => match (left, not_looked_at)
        {
            (0, 0) => to(S::Done, "a fresh scan shows none of its findings"),
            // A finding that nobody could look at is kept by the agent, so zero left is zero left.
            (0, places) => Step::Transition {
                next: S::Done,
                reason: format!(
                    "a fresh scan shows none of its findings; {places} other places could not be looked at"
                ),
            },
            (left, _) => Step::Transition {
                next: S::Left,
                reason: format!("a fresh scan still shows {left} of its findings"),
            },
        },
        (S::Issued, Observed::TimedOut) => to(S::Failed, "the agent did not pull it in time"),
        (S::Working, Observed::TimedOut) => to(S::Failed, "the agent did not say what came of it"),
        (S::Checking, Observed::TimedOut) => to(S::Failed, "no fresh scan has proved it"),
        (S::Waiting, Observed::CalledOff { reason }) => Step::Transition {
            next: S::Skipped,
            reason: reason.clone(),
        },
        _ => Step::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(state: JobState, observed: &Observed) -> Option<JobState> {
        match step(state, observed) {
            Step::Transition { next, .. } => Some(next),
            Step::Nothing => None,
        }
    }

    const PROVED: Observed = Observed::Proved {
        left: 0,
        not_looked_at: 0,
    };

    #[test]
    fn only_a_fresh_scan_makes_it_done() {
        assert_eq!(next(JobState::Issued, &Observed::Pulled), Some(JobState::Working));
        assert_eq!(next(JobState::Working, &Observed::Ran), Some(JobState::Checking));
        assert_eq!(next(JobState::Checking, &PROVED), Some(JobState::Done));
        let left = Observed::Proved {
            left: 2,
            not_looked_at: 0,
        };
        assert_eq!(next(JobState::Checking, &left), Some(JobState::Left));
        for observed in [Observed::Pulled, Observed::Ran] {
            for state in JobState::ALL {
                assert_ne!(next(state, &observed), Some(JobState::Done), "{state:?}");
            }
        }
    }

    #[test]
    fn what_is_told_twice_changes_nothing() {
        assert_eq!(next(JobState::Working, &Observed::Pulled), None);
        assert_eq!(next(JobState::Checking, &Observed::Ran), None);
        for state in JobState::ALL.into_iter().filter(|state| state.is_over()) {
            for observed in [Observed::Pulled, Observed::Ran, PROVED, Observed::TimedOut] {
                assert_eq!(next(state, &observed), None, "{state:?} {observed:?}");
            }
        }
    }

    #[test]
    fn a_job_that_is_out_cannot_be_called_off() {
        let off = Observed::CalledOff {
            reason: "stopped".into(),
        };
        assert_eq!(next(JobState::Waiting, &off), Some(JobState::Skipped));
        assert_eq!(next(JobState::Working, &off), None);
    }

    #[test]
    fn nothing_active_waits_for_ever() {
        for state in JobState::ALL {
            assert_eq!(state.allowance().is_some(), state.is_active(), "{state:?}");
            assert_eq!(
                next(state, &Observed::TimedOut).is_some(),
                state.is_active(),
                "{state:?}"
            );
            assert_eq!(JobState::parse(state.as_str()), Some(state));
        }
    }
}
