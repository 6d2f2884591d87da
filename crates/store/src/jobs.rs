//! Jobs: one node's part of a remediation run.

use std::collections::BTreeMap;

use lifecycle::remediation::{JobObserved, JobState, JobStep, job_step};
use protocol::latest::{JobOutcome, RepairStep, SignedJob};
use protocol::{JobId, NodeId, RunId};
use serde::Serialize;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::{json, to_json};
use crate::{Store, StoreError};

/// A job as people see it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct JobRecord {
    /// Id.
    pub id: JobId,
    /// Its run.
    pub run_id: RunId,
    /// The node.
    pub node_id: NodeId,
    /// The node's name, or its id.
    pub node: String,
    /// Node group when the run began.
    pub node_group: String,
    /// Rack when the run began.
    pub rack: Option<String>,
    /// Where it stands.
    #[schema(value_type = String)]
    pub state: JobState,
    /// Why it stands there.
    pub reason: String,
    /// Since when.
    #[serde(with = "time::serde::rfc3339")]
    pub state_since: OffsetDateTime,
    /// What is done, in this order.
    pub steps: Vec<RepairStep>,
    /// What the agent says came of it.
    #[schema(value_type = Option<Object>)]
    pub outcome: Option<JobOutcome>,
    /// Findings of the job that the proving scan still showed.
    pub left_count: Option<i64>,
    /// When its turn came.
    #[serde(with = "time::serde::rfc3339::option")]
    pub begun_at: Option<OffsetDateTime>,
    /// When it was over.
    #[serde(with = "time::serde::rfc3339::option")]
    pub finished_at: Option<OffsetDateTime>,
}

struct JobRow {
    id: Uuid,
    run_id: Uuid,
    node_id: Uuid,
    node: String,
    node_group: String,
    rack: Option<String>,
    state: String,
    reason: String,
    state_since: OffsetDateTime,
    steps: serde_json::Value,
    outcome: Option<serde_json::Value>,
    left_count: Option<i64>,
    begun_at: Option<OffsetDateTime>,
    finished_at: Option<OffsetDateTime>,
}

impl TryFrom<JobRow> for JobRecord {
    type Error = StoreError;

    fn try_from(row: JobRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: JobId(row.id),
            run_id: RunId(row.run_id),
            node_id: NodeId(row.node_id),
            node: row.node,
            node_group: row.node_group,
            rack: row.rack,
            state: job_state(&row.state)?,
            reason: row.reason,
            state_since: row.state_since,
            steps: json("steps", row.steps)?,
            outcome: row.outcome.map(|value| json("outcome", value)).transpose()?,
            left_count: row.left_count,
            begun_at: row.begun_at,
            finished_at: row.finished_at,
        })
    }
}

fn job_state(name: &str) -> Result<JobState, StoreError> {
    JobState::parse(name).ok_or_else(|| StoreError::Stored {
        what: "job state",
        value: name.to_owned(),
    })
}

/// Which jobs.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobFilter {
    /// Of one run.
    pub run: Option<RunId>,
    /// Of one node.
    pub node: Option<NodeId>,
    /// Only those that are out.
    pub active: bool,
}

/// Takes one step under the row's lock, inside somebody's transaction.
pub(crate) async fn step_job(
    connection: &mut PgConnection,
    job: JobId,
    observed: &JobObserved,
) -> Result<Option<JobState>, StoreError> {
    let state = sqlx::query_scalar!("SELECT state FROM remediation_jobs WHERE id = $1 FOR UPDATE", job.0)
        .fetch_optional(&mut *connection)
        .await?
        .ok_or_else(|| StoreError::not_found("job", job))?;
    let JobStep::Transition { next, reason } = job_step(job_state(&state)?, observed) else {
        return Ok(None);
    };
    let left = match observed {
        JobObserved::Proved { left, .. } => Some(i64::try_from(*left).unwrap_or(i64::MAX)),
        _ => None,
    };
    sqlx::query!(
        "UPDATE remediation_jobs SET state = $2, reason = $3, state_since = now(), left_count = coalesce($4, left_count),
             finished_at = CASE WHEN $5 THEN now() END
         WHERE id = $1",
        job.0,
        next.as_str(),
        reason,
        left,
        next.is_over()
    )
    .execute(connection)
    .await?;
    Ok(Some(next))
}

/// The job that a report proves: it is the node's, and out. Returns it with the group hashes of its steps.
pub(crate) async fn job_to_prove(
    connection: &mut PgConnection,
    node: NodeId,
    job: JobId,
) -> Result<Option<Vec<RepairStep>>, StoreError> {
    let steps = sqlx::query_scalar!(
        "SELECT steps FROM remediation_jobs WHERE id = $1 AND node_id = $2 AND state IN ('issued', 'working', 'checking')",
        job.0,
        node.0
    )
    .fetch_optional(connection)
    .await?;
    steps.map(|steps| json("steps", steps)).transpose()
}

impl Store {
    /// Jobs, in order of node name. At most 20,000.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn job_list(&self, filter: JobFilter) -> Result<Vec<JobRecord>, StoreError> {
        sqlx::query_as!(
            JobRow,
            r#"SELECT j.id, j.run_id, j.node_id, coalesce(n.name, n.id::text) AS "node!", j.node_group, j.rack, j.state,
                 j.reason, j.state_since, j.steps, j.outcome, j.left_count, j.begun_at, j.finished_at
               FROM remediation_jobs j JOIN nodes n ON n.id = j.node_id
               WHERE ($1::uuid IS NULL OR j.run_id = $1) AND ($2::uuid IS NULL OR j.node_id = $2)
                 AND (NOT $3 OR j.state IN ('issued', 'working', 'checking'))
               ORDER BY n.name NULLS LAST, j.id DESC LIMIT 20000"#,
            filter.run.map(|run| run.0),
            filter.node.map(|node| node.0),
            filter.active
        )
        .fetch_all(&self.pool)
        .await?
        .into_iter()
        .map(TryInto::try_into)
        .collect()
    }

    /// Gives a waiting job out, signed. Returns `false` when its turn is over: somebody else gave it out, the run was
    /// stopped, or the node is under another job.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn job_issue(&self, job: JobId, steps: &[RepairStep], signed: &SignedJob) -> Result<bool, StoreError> {
        let issued = sqlx::query!(
            "UPDATE remediation_jobs SET state = 'issued', reason = 'the agent has not pulled it yet', state_since = now(),
                 begun_at = now(), steps = $2, job = $3, signature = $4
             WHERE id = $1 AND state = 'waiting'",
            job.0,
            to_json(&steps),
            signed.job,
            signed.signature
        )
        .execute(&self.pool)
        .await;
        match issued {
            Ok(done) => Ok(done.rows_affected() == 1),
            Err(error) if StoreError::is_unique_violation(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Keeps what was observed of a job; returns its new state, if that changed.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn job_observe(&self, job: JobId, observed: &JobObserved) -> Result<Option<JobState>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let next = step_job(&mut transaction, job, observed).await?;
        transaction.commit().await?;
        Ok(next)
    }

    /// Whether a job waits for this node to pull it, and whether one is under way or will come in the running
    /// remediation.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn job_outlook(&self, node: NodeId) -> Result<(bool, bool), StoreError> {
        let row = sqlx::query!(
            r#"SELECT coalesce(bool_or(state = 'issued'), false) AS "waits!", count(*) > 0 AS "expected!"
               FROM remediation_jobs WHERE node_id = $1 AND state IN ('waiting', 'issued', 'working', 'checking')"#,
            node.0
        )
        .fetch_one(&self.pool)
        .await?;
        Ok((row.waits, row.expected))
    }

    /// The node's job, which counts as pulled from now on. The same again while it is out: an answer may be lost.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn job_pull(&self, node: NodeId) -> Result<Option<(JobId, SignedJob)>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let row = sqlx::query!(
            "SELECT id, job, signature FROM remediation_jobs WHERE node_id = $1 AND state IN ('issued', 'working')
             FOR UPDATE",
            node.0
        )
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let (Some(job), Some(signature)) = (row.job, row.signature) else {
            return Ok(None);
        };
        let id = JobId(row.id);
        step_job(&mut transaction, id, &JobObserved::Pulled).await?;
        transaction.commit().await?;
        Ok(Some((id, SignedJob { job, signature })))
    }

    /// Keeps what an agent says came of its job. Told twice, the second time changes nothing.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when it is not this node's.
    pub async fn job_finish(
        &self,
        node: NodeId,
        job: JobId,
        outcome: &JobOutcome,
    ) -> Result<Option<JobState>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let done = sqlx::query!(
            "UPDATE remediation_jobs SET outcome = coalesce(outcome, $3) WHERE id = $1 AND node_id = $2",
            job.0,
            node.0,
            to_json(outcome)
        )
        .execute(&mut *transaction)
        .await?;
        if done.rows_affected() == 0 {
            return Err(StoreError::not_found("job of this node", job));
        }
        let observed = match outcome {
            JobOutcome::Ran { .. } => JobObserved::Ran,
            JobOutcome::Refused { reason } => JobObserved::Refused { reason: reason.clone() },
        };
        let next = step_job(&mut transaction, job, &observed).await?;
        transaction.commit().await?;
        Ok(next)
    }

    /// Nodes begun within the last hour, by group.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn job_begun_last_hour(&self) -> Result<BTreeMap<String, usize>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT node_group, count(*) AS "count!" FROM remediation_jobs
               WHERE begun_at > now() - interval '1 hour' GROUP BY node_group"#
        )
        .fetch_all(&self.pool)
        .await?;
        let size = |count: i64| usize::try_from(count).unwrap_or(usize::MAX);
        Ok(rows.into_iter().map(|row| (row.node_group, size(row.count))).collect())
    }
}
