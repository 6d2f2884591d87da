//! The fleet in a few numbers.

use std::collections::BTreeMap;

use serde::Serialize;
use store::RunRecord;
use time::OffsetDateTime;

use super::nodes::NodeView;
use super::{App, AppError};

/// The fleet in a few numbers.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Overview {
    /// Nodes in all.
    pub nodes: u64,
    /// Nodes by state.
    pub nodes_by_state: BTreeMap<String, u64>,
    /// Nodes that run an installed system, by what is known of their drift.
    pub nodes_by_drift: BTreeMap<String, u64>,
    /// Nodes that have been in their state for longer than it should take.
    pub nodes_overdue: u64,
    /// Nodes held back from remediation.
    pub nodes_held: u64,
    /// Node groups with their sizes.
    pub node_groups: BTreeMap<String, u64>,
    /// Findings that nobody allows, by severity.
    pub findings_by_severity: BTreeMap<String, i64>,
    /// What became of findings within the last hour: `opened`, `changed`, `closed`.
    pub last_hour: BTreeMap<String, i64>,
    /// The newest remediation.
    pub newest_run: Option<RunRecord>,
}

/// Counts.
///
/// # Errors
/// [`AppError::Internal`] when the database fails.
pub async fn overview(app: &App) -> Result<Overview, AppError> {
    let now = OffsetDateTime::now_utc();
    let nodes: Vec<NodeView> = app
        .store
        .node_list(None)
        .await?
        .into_iter()
        .map(|record| NodeView::new(record, now))
        .collect();
    let installed = |view: &&NodeView| {
        use lifecycle::NodeState::{Deployed, Installed};
        matches!(view.record.state, Installed | Deployed)
    };
    Ok(Overview {
        nodes: nodes.len() as u64,
        nodes_by_state: count(nodes.iter().map(|view| view.record.state.as_str().to_owned())),
        nodes_by_drift: count(
            nodes
                .iter()
                .filter(installed)
                .map(|view| view.drift.as_str().to_owned()),
        ),
        nodes_overdue: nodes.iter().filter(|view| view.overdue).count() as u64,
        nodes_held: nodes.iter().filter(|view| view.record.hold.is_some()).count() as u64,
        node_groups: count(nodes.iter().map(|view| view.record.group.clone())),
        findings_by_severity: app.store.finding_count_by_severity().await?,
        last_hour: app.store.finding_count_last_hour().await?,
        newest_run: app.store.run_list(None, 1).await?.pop(),
    })
}

fn count(words: impl Iterator<Item = String>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    counts
}
