//! Carries the running remediation on: ends what took too long, gives out the next jobs, ends the run.

use std::collections::BTreeMap;

use lifecycle::remediation::{Active, JobObserved, JobState, Waiting, next_turns};
use protocol::RunId;
use store::{JobFilter, JobRecord};
use time::OffsetDateTime;

use super::{Basis, basis, group_sizes, job, still_planned};
use crate::app::boot::event;
use crate::app::drift::count_text;
use crate::app::{App, AppError};

/// One look at all that is under way. May run at any time, twice, and on several servers at once.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn advance(app: App) -> Result<(), AppError> {
    end_overdue(&app).await?;
    let Some(run) = app.store.run_list(Some("running"), 1).await?.pop() else {
        return Ok(());
    };
    let limits = app.store.run_limits(run.id).await?;
    let jobs = app
        .store
        .job_list(JobFilter {
            run: Some(run.id),
            ..JobFilter::default()
        })
        .await?;
    let waiting: Vec<&JobRecord> = jobs.iter().filter(|job| job.state == JobState::Waiting).collect();
    if !waiting.is_empty() {
        // Jobs of a run that was stopped may still be out.
        let active = app
            .store
            .job_list(JobFilter {
                active: true,
                ..JobFilter::default()
            })
            .await?;
        let basis = basis(&app, &run.selection, &limits).await?;
        let is_at_rest = active.is_empty();
        let turns = next_turns(
            &waiting.iter().map(|job| waiting_node(job)).collect::<Vec<_>>(),
            &active.iter().map(active_node).collect::<Vec<_>>(),
            &app.store.job_begun_last_hour().await?,
            &group_sizes(&basis.standings),
            &limits,
        );
        let next = waiting.iter().filter(|job| turns.contains(&job.node_id));
        for job in next {
            give_out(&app, job, &basis).await?;
        }
        if turns.is_empty() && is_at_rest {
            let reason = format!(
                "{} nodes of its group were begun within the last hour; the next run goes on",
                limits.hourly_max
            );
            for job in &waiting {
                let observed = JobObserved::CalledOff { reason: reason.clone() };
                app.store.job_observe(job.id, &observed).await?;
            }
        }
    }
    close(&app, run.id).await
}

fn waiting_node(job: &JobRecord) -> Waiting {
    Waiting {
        node: job.node_id,
        group: job.node_group.clone(),
        rack: job.rack.clone(),
    }
}

fn active_node(job: &JobRecord) -> Active {
    Active {
        group: job.node_group.clone(),
        rack: job.rack.clone(),
    }
}

async fn end_overdue(app: &App) -> Result<(), AppError> {
    let now = OffsetDateTime::now_utc();
    for job in app
        .store
        .job_list(JobFilter {
            active: true,
            ..JobFilter::default()
        })
        .await?
    {
        let is_over = job
            .state
            .allowance()
            .is_some_and(|allowance| now - job.state_since > allowance);
        if is_over && app.store.job_observe(job.id, &JobObserved::TimedOut).await?.is_some() {
            let detail = format!("job {} took too long while {}", job.id, job.state.as_str());
            event(app, job.node_id, "", "remediation", &detail).await?;
        }
    }
    Ok(())
}

/// Gives a job out as the plan is now: what was waived, held or spread since the run began is left alone.
async fn give_out(app: &App, job: &JobRecord, basis: &Basis) -> Result<(), AppError> {
    let steps = still_planned(&basis.plan, job.node_id, &job.steps);
    if steps.is_empty() {
        let reason = called_off_reason(job, basis);
        app.store
            .job_observe(job.id, &JobObserved::CalledOff { reason })
            .await?;
        return Ok(());
    }
    let signed = job::sign(app, job.id, job.node_id, &steps).await?;
    if app.store.job_issue(job.id, &steps, &signed).await? {
        tracing::info!(job.id = %job.id, node.id = %job.node_id, steps = steps.len(), "job given out");
        let findings = count_text(steps.len() as u64, "finding");
        let detail = format!("{findings} to repair, remediation {}", job.run_id);
        event(app, job.node_id, "", "remediation", &detail).await?;
    }
    Ok(())
}

fn called_off_reason(job: &JobRecord, basis: &Basis) -> String {
    let held = basis.plan.held.iter().find(|held| held.node == job.node_id);
    held.map_or_else(
        || "its findings are gone or allowed by now".to_owned(),
        |held| held.reason.text(),
    )
}

/// Says where the run stands, and ends it when nothing is left to do.
async fn close(app: &App, run: RunId) -> Result<(), AppError> {
    let record = app.store.run_get(run).await?;
    let reason = progress_text(&record.nodes);
    if app.store.run_finish(run, &reason).await? {
        tracing::info!(run.id = %run, reason, "remediation finished");
    } else {
        app.store.run_set_reason(run, &reason).await?;
    }
    Ok(())
}

fn progress_text(nodes: &BTreeMap<String, i64>) -> String {
    let total: i64 = nodes.values().sum();
    let count = |state: JobState| nodes.get(state.as_str()).copied().unwrap_or(0);
    let parts: Vec<String> = JobState::ALL
        .into_iter()
        .filter(|state| count(*state) > 0)
        .map(|state| format!("{} {}", count(state), state.as_str()))
        .collect();
    let nodes = count_text(u64::try_from(total).unwrap_or(0), "node");
    format!("{nodes}: {}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_counted_by_state() {
        let nodes = BTreeMap::from([("done".to_owned(), 3), ("waiting".to_owned(), 27)]);
        assert_eq!(progress_text(&nodes), "30 nodes: 27 waiting, 3 done");
    }
}
