//! States of a node.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Where a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// In the rack plan; nothing of it was seen by a deployer yet.
    Listed,
    /// Answered because discovery is armed; the deployer is on its way.
    Discovering,
    /// Inventoried; somebody has to say what it becomes.
    WaitingApproval,
    /// A deployment is requested or runs.
    Deploying,
    /// Written and checked; the first full scan is due.
    Installed,
    /// The installed system has reported a full scan.
    Deployed,
    /// The last deployment ended without a usable system.
    Failed,
    /// Something happened that a person must look at before anything else: a token used twice.
    Quarantined,
}

impl NodeState {
    /// All states, in the order of a node's life.
    pub const ALL: [Self; 8] = [
        Self::Listed,
        Self::Discovering,
        Self::WaitingApproval,
        Self::Deploying,
        Self::Installed,
        Self::Deployed,
        Self::Failed,
        Self::Quarantined,
    ];

    /// The name used everywhere outside this code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Listed => "listed",
            Self::Discovering => "discovering",
            Self::WaitingApproval => "waiting_approval",
            Self::Deploying => "deploying",
            Self::Installed => "installed",
            Self::Deployed => "deployed",
            Self::Failed => "failed",
            Self::Quarantined => "quarantined",
        }
    }

    /// Reads the name back.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// How long a node may stay in this state before it counts as stuck; `None` where it may stay for ever.
    #[must_use]
    pub const fn allowance(self) -> Option<Duration> {
        match self {
            Self::Listed | Self::WaitingApproval | Self::Deployed | Self::Failed | Self::Quarantined => None,
            Self::Discovering => Some(Duration::from_secs(15 * 60)),
            Self::Deploying => Some(Duration::from_secs(60 * 60)),
            Self::Installed => Some(Duration::from_secs(30 * 60)),
        }
    }
}

/// What was observed of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// A deployer claimed its token and sent an inventory.
    Inventoried,
    /// Somebody asked for a deployment.
    DeploymentRequested,
    /// The deployer reported that everything is written and checked.
    Installed,
    /// The deployment is over without success.
    DeploymentFailed {
        /// Stage and reason.
        reason: String,
    },
    /// A report of a scan that looked at everything, from the installed system.
    FullScan {
        /// How many differences it found.
        differences: u64,
        /// How many places it could not look at; with any, "no drift" is not known.
        not_looked_at: u64,
    },
    /// A token was claimed a second time, or from elsewhere.
    TokenMisused {
        /// By whom, as far as known.
        reason: String,
    },
    /// A person has looked and lets the node go on.
    Released,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The node goes on to another state.
    Transition {
        /// The next state.
        next: NodeState,
        /// Why, for people.
        reason: String,
    },
    /// Nothing changes.
    Nothing,
    /// The observation does not fit the state; whoever asked is told.
    Refused {
        /// Why, for people.
        reason: String,
    },
}

/// The next state of a node.
#[must_use]
pub fn step(state: NodeState, observed: &Observed) -> Step {
    use NodeState as S;
    let to = |next, reason: &str| Step::Transition {
        next,
        reason: reason.to_owned(),
    };
    match (state, observed) {
        (_, Observed::TokenMisused { reason }) => Step::Transition {
            next: S::Quarantined,
            reason: reason.clone(),
        },
        (S::Quarantined, Observed::Released) => to(S::WaitingApproval, "released from quarantine"),
        (_, Observed::Released) => Step::Refused {
            reason: format!("the node is {}, not quarantined", state.as_str()),
        },
        (S::Quarantined, Observed::DeploymentRequested) => Step::Refused {
            reason: "the node is quarantined: look at its events and release it first".to_owned(),
        },
        (S::Quarantined, _) => Step::Nothing,

        (S::Listed | S::Discovering, Observed::Inventoried) => {
            to(S::WaitingApproval, "inventoried; waiting for approval")
        }
        (_, Observed::Inventoried) => Step::Nothing,

        (S::Discovering, Observed::DeploymentRequested) => Step::Refused {
            reason: "the node is not inventoried yet".to_owned(),
        },
        (S::Deploying, Observed::DeploymentRequested) => Step::Refused {
            reason: "a deployment is under way already".to_owned(),
        },
        (_, Observed::DeploymentRequested) => to(S::Deploying, "deployment requested"),

        (S::Deploying, Observed::Installed) => to(S::Installed, "written and checked; waiting for the first full scan"),
        (S::Deploying, Observed::DeploymentFailed { reason }) => Step::Transition {
            next: S::Failed,
            reason: reason.clone(),
        },
        (_, Observed::Installed | Observed::DeploymentFailed { .. }) => Step::Nothing,

        (
            S::Installed,
            Observed::FullScan {
                differences,
                not_looked_at,
            },
        ) => Step::Transition {
            next: S::Deployed,
            reason: match (differences, not_looked_at) {
                (0, 0) => "its first full scan found no drift".to_owned(),
                _ => format!(
                    "its first full scan found {differences} differences, and could not look at {not_looked_at} places"
                ),
            },
        },
        (_, Observed::FullScan { .. }) => Step::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(state: NodeState, observed: &Observed) -> Option<NodeState> {
        match step(state, observed) {
            Step::Transition { next, .. } => Some(next),
            Step::Nothing | Step::Refused { .. } => None,
        }
    }

    #[test]
    fn an_installation_goes_from_discovery_to_deployed() {
        let mut state = NodeState::Discovering;
        for observed in [
            Observed::Inventoried,
            Observed::DeploymentRequested,
            Observed::Installed,
            Observed::FullScan {
                differences: 0,
                not_looked_at: 0,
            },
        ] {
            state = next(state, &observed).unwrap();
        }
        assert_eq!(state, NodeState::Deployed);
    }

    #[test]
    fn an_observation_told_twice_changes_nothing_the_second_time() {
        for (state, observed) in [
            (NodeState::WaitingApproval, Observed::Inventoried),
            (NodeState::Installed, Observed::Installed),
            (NodeState::Failed, Observed::DeploymentFailed { reason: "x".into() }),
            (
                NodeState::Deployed,
                Observed::FullScan {
                    differences: 3,
                    not_looked_at: 0,
                },
            ),
        ] {
            assert_eq!(step(state, &observed), Step::Nothing, "{state:?}");
        }
    }

    #[test]
    fn a_failed_deployment_never_reads_as_deployed() {
        let failed = Observed::DeploymentFailed {
            reason: "write: pack damaged".into(),
        };
        assert_eq!(next(NodeState::Deploying, &failed), Some(NodeState::Failed));
        assert_eq!(next(NodeState::Failed, &Observed::Installed), None);
        assert_eq!(
            next(
                NodeState::Deploying,
                &Observed::FullScan {
                    differences: 0,
                    not_looked_at: 0
                }
            ),
            None
        );
    }

    #[test]
    fn what_nobody_looked_at_is_not_no_drift() {
        let scan = |not_looked_at| {
            step(
                NodeState::Installed,
                &Observed::FullScan {
                    differences: 0,
                    not_looked_at,
                },
            )
        };
        let reason = |step| match step {
            Step::Transition { reason, .. } => reason,
            other => panic!("{other:?}"),
        };
        assert!(reason(scan(0)).contains("no drift"));
        assert!(!reason(scan(1)).contains("no drift"));
    }

    #[test]
    fn a_misused_token_holds_the_node_until_a_person_looks() {
        for state in NodeState::ALL {
            let misused = Observed::TokenMisused {
                reason: "claimed twice".into(),
            };
            assert_eq!(next(state, &misused), Some(NodeState::Quarantined));
        }
        assert!(matches!(
            step(NodeState::Quarantined, &Observed::DeploymentRequested),
            Step::Refused { .. }
        ));
        assert_eq!(next(NodeState::Quarantined, &Observed::Installed), None);
        assert_eq!(
            next(NodeState::Quarantined, &Observed::Released),
            Some(NodeState::WaitingApproval)
        );
    }

    #[test]
    fn names_read_back() {
        for state in NodeState::ALL {
            assert_eq!(NodeState::parse(state.as_str()), Some(state));
        }
    }
}
