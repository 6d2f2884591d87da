//! Jobs between the server and one agent.

use lifecycle::remediation::JobState;
use protocol::latest::{Job, JobOutcome, RepairStep, SignedJob, StepOutcome};
use protocol::limits::JOB_SECS_MAX;
use protocol::{JobId, NodeId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::app::boot::event;
use crate::app::{App, AppError, agents};

/// Signs a job for a node against the baseline it should hold now.
pub(super) async fn sign(app: &App, id: JobId, node: NodeId, steps: &[RepairStep]) -> Result<SignedJob, AppError> {
    let baseline = agents::baseline(app, node).await?;
    let not_after = OffsetDateTime::now_utc() + time::Duration::seconds(i64::try_from(JOB_SECS_MAX).unwrap_or(0));
    let job = Job {
        job_id: id,
        node_id: node,
        baseline: baseline.digest,
        nonce: Uuid::new_v4(),
        not_after_unix_ms: u64::try_from(not_after.unix_timestamp_nanos() / 1_000_000).unwrap_or(0),
        steps: steps.to_vec(),
    };
    let text = serde_json::to_string(&job).map_err(AppError::internal)?;
    let signature = app.keys.job.sign(text.as_bytes(), &format!("plumbline job {id}"))?;
    Ok(SignedJob {
        job: text,
        signature: signature.as_str().to_owned(),
    })
}

/// The node's job, if one waits for it.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn pull(app: &App, node: NodeId) -> Result<Option<SignedJob>, AppError> {
    let Some((id, signed)) = app.store.job_pull(node).await? else {
        return Ok(None);
    };
    tracing::info!(job.id = %id, node.id = %node, "job pulled");
    Ok(Some(signed))
}

/// Keeps what an agent says came of its job.
///
/// # Errors
/// [`AppError::NotFound`] when it is not this node's.
pub async fn outcome(app: &App, node: NodeId, id: JobId, outcome: &JobOutcome) -> Result<(), AppError> {
    let changed = app.store.job_finish(node, id, outcome).await?;
    if changed.is_some() {
        event(app, node, "", "remediation", &outcome_text(outcome)).await?;
    }
    if changed == Some(JobState::Failed) {
        app.remediation_nudge.notify_one();
    }
    Ok(())
}

fn outcome_text(outcome: &JobOutcome) -> String {
    match outcome {
        JobOutcome::Refused { reason } => format!("the agent refused its job: {reason}"),
        JobOutcome::Ran { steps } => {
            let count = |is: fn(&StepOutcome) -> bool| steps.iter().filter(|step| is(&step.outcome)).count();
            let done = count(|outcome| matches!(outcome, StepOutcome::Done { .. } | StepOutcome::NothingToDo));
            let refused = count(|outcome| matches!(outcome, StepOutcome::Refused { .. }));
            let failed = count(|outcome| matches!(outcome, StepOutcome::Failed { .. }));
            let first_problem = steps.iter().find_map(|step| match &step.outcome {
                StepOutcome::Refused { reason } | StepOutcome::Failed { reason } => Some(format!("; first: {reason}")),
                _ => None,
            });
            format!(
                "{done} of {} steps done, {refused} refused, {failed} failed{}; a scan follows",
                steps.len(),
                first_problem.unwrap_or_default()
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manifest::Digest;
    use protocol::latest::StepResult;

    #[test]
    fn an_outcome_names_its_first_problem() {
        let step = |outcome| StepResult {
            group: Digest::of(b"x"),
            outcome,
        };
        let ran = JobOutcome::Ran {
            steps: vec![
                step(StepOutcome::NothingToDo),
                step(StepOutcome::Failed {
                    reason: "/etc/motd: no space".into(),
                }),
            ],
        };
        assert_eq!(
            outcome_text(&ran),
            "1 of 2 steps done, 0 refused, 1 failed; first: /etc/motd: no space; a scan follows"
        );
    }
}
