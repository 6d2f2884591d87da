//! The rack plan: brought in as a file, compared with what is there.

pub mod text;

use lifecycle::plan::{Action, Change, LineOutcome, PlanLine};
use protocol::NodeId;
use serde::{Deserialize, Serialize};
use store::PlanImport;

use super::{App, AppError};

/// A line of the plan, and its node.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PlanLineView {
    /// The node.
    pub node: NodeId,
    /// Whether its deployer ever sent an inventory.
    pub was_seen: bool,
    /// What is planned.
    #[serde(flatten)]
    pub plan: PlanLine,
}

/// What one line of an import does.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ImportedLine {
    /// Line number in the file, from 1.
    pub line: usize,
    /// What people call the node.
    pub label: String,
    /// What the line does.
    pub action: Action,
    /// Cells that change.
    pub changes: Vec<Change>,
}

/// What an import did, or would do.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Imported {
    /// Nothing was changed: it was only asked what would be.
    pub dry_run: bool,
    /// Nodes that came into the plan.
    pub added: usize,
    /// Planned nodes that changed.
    pub changed: usize,
    /// Lines that the plan said already.
    pub unchanged: usize,
    /// Lines of the plan that the file does not have; they stay.
    pub not_in_file: usize,
    /// Each line of the file.
    pub lines: Vec<ImportedLine>,
}

impl From<LineOutcome> for ImportedLine {
    fn from(outcome: LineOutcome) -> Self {
        Self {
            line: outcome.line,
            label: outcome.plan.reference(),
            action: outcome.action,
            changes: outcome.changes,
        }
    }
}

/// The plan, by rack.
///
/// # Errors
/// [`AppError::Internal`] when the database fails.
pub async fn list(app: &App) -> Result<Vec<PlanLineView>, AppError> {
    let planned = app.store.rack_plan_list().await?;
    let lines = planned.into_iter().map(|planned| PlanLineView {
        node: planned.node,
        was_seen: planned.was_seen,
        plan: planned.line,
    });
    Ok(lines.collect())
}

/// Brings a file into the plan: all of it or nothing.
///
/// # Errors
/// [`AppError::Invalid`] with everything that is wrong, a line each; [`AppError::Conflict`] when somebody else was
/// faster.
pub async fn import(app: &App, text: &str, dry_run: bool, by: &str) -> Result<Imported, AppError> {
    let refused = |problems: Vec<text::Placed>| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        AppError::Invalid(lines.join("\n"))
    };
    let file = text::parse(text).map_err(refused)?;
    let done = app
        .store
        .rack_plan_import(&file.columns, &file.lines, dry_run, by)
        .await?;
    let (outcomes, not_in_file) = match done {
        PlanImport::Done { outcomes, not_in_file } => (outcomes, not_in_file),
        PlanImport::Refused(problems) => return Err(refused(text::place(&file.columns, problems))),
    };
    let count = |action| outcomes.iter().filter(|outcome| outcome.action == action).count();
    Ok(Imported {
        dry_run,
        added: count(Action::Added),
        changed: count(Action::Changed),
        unchanged: count(Action::Unchanged),
        not_in_file,
        lines: outcomes.into_iter().map(Into::into).collect(),
    })
}

/// The plan as a file.
///
/// # Errors
/// [`AppError::Internal`], which does not happen.
pub fn export(lines: &[PlanLineView]) -> Result<String, AppError> {
    let lines: Vec<PlanLine> = lines.iter().map(|line| line.plan.clone()).collect();
    text::write(&lines).map_err(AppError::internal)
}
