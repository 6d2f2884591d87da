//! Remediation runs and what people release for them.

use std::collections::{BTreeMap, BTreeSet};

use lifecycle::remediation::{Limits, NodePlan, Selection};
use manifest::Digest;
use protocol::{JobId, RunId};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::audit::{NewAudit, insert_audit};
use crate::error::{digest, json, to_json};
use crate::{Store, StoreError};

/// Findings a run leaves alone, with the reason: one entry for the same finding held for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HeldFinding {
    /// Group hash.
    #[schema(value_type = String)]
    pub group: Digest,
    /// Kind of thing.
    pub kind: String,
    /// Which one.
    pub key: String,
    /// Node group it is held in.
    pub node_group: String,
    /// One word: `no_verb`, `node_hold`, `unreachable`, `baseline_suspect`, `job_full`, `image_revoked`.
    pub why: String,
    /// For people.
    pub reason: String,
    /// On how many nodes.
    pub nodes: u64,
}

/// A run to keep.
#[derive(Clone, Debug)]
pub struct NewRun {
    /// Who asks.
    pub requested_by: String,
    /// What was asked for.
    pub selection: Selection,
    /// Limits it keeps.
    pub limits: Limits,
    /// What is done, with each node's group and rack.
    pub nodes: Vec<(NodePlan, String, Option<String>)>,
    /// What stays.
    pub held: Vec<HeldFinding>,
    /// Findings people allow.
    pub allowed: u64,
}

/// A run as people see it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct RunRecord {
    /// Id.
    pub id: RunId,
    /// `running`, `finished` or `stopped`.
    pub state: String,
    /// Where it stands, for people.
    pub reason: String,
    /// Who asked.
    pub requested_by: String,
    /// What was asked for.
    #[schema(value_type = Object)]
    pub selection: Selection,
    /// What it leaves alone.
    pub held: Vec<HeldFinding>,
    /// Findings people allow.
    pub allowed: i64,
    /// Nodes by state of their job.
    pub nodes: BTreeMap<String, i64>,
    /// Findings of its jobs that the proving scans still showed.
    pub left: i64,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it was over.
    #[serde(with = "time::serde::rfc3339::option")]
    pub finished_at: Option<OffsetDateTime>,
}

struct RunRow {
    id: Uuid,
    state: String,
    reason: String,
    requested_by: String,
    selection: serde_json::Value,
    held: serde_json::Value,
    allowed: i64,
    nodes: serde_json::Value,
    left: i64,
    created_at: OffsetDateTime,
    finished_at: Option<OffsetDateTime>,
}

impl TryFrom<RunRow> for RunRecord {
    type Error = StoreError;

    fn try_from(row: RunRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: RunId(row.id),
            state: row.state,
            reason: row.reason,
            requested_by: row.requested_by,
            selection: json("selection", row.selection)?,
            held: json("held", row.held)?,
            allowed: row.allowed,
            nodes: json("nodes", row.nodes)?,
            left: row.left,
            created_at: row.created_at,
            finished_at: row.finished_at,
        })
    }
}

/// A wide-spread finding that a person lets be repaired in a node group.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ReleaseRecord {
    /// Id.
    pub id: Uuid,
    /// Node group.
    pub node_group: String,
    /// Finding group.
    #[schema(value_type = String)]
    pub group: Digest,
    /// Kind of the thing that differs.
    pub finding_kind: String,
    /// Which one.
    pub finding_key: String,
    /// Why.
    pub reason: String,
    /// Who.
    pub released_by: String,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub released_at: OffsetDateTime,
    /// Until when.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

impl Store {
    /// Begins a run. With nothing to do it is over at once, and takes the place of its requester's earlier runs that had
    /// nothing to do: a program that asks every ten minutes would bury the others.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] while another one runs.
    pub async fn run_create(&self, new: &NewRun) -> Result<RunId, StoreError> {
        let id = RunId::new();
        let is_over = new.nodes.is_empty();
        let mut transaction = self.pool.begin().await?;
        let created = sqlx::query!(
            "INSERT INTO remediation_runs (id, state, reason, requested_by, selection, limits, held, allowed, finished_at)
             VALUES ($1, CASE WHEN $2 THEN 'finished' ELSE 'running' END, $3, $4, $5, $6, $7, $8,
                     CASE WHEN $2 THEN now() END)",
            id.0,
            is_over,
            if is_over { "there was nothing to repair" } else { "begun" },
            new.requested_by,
            to_json(&new.selection),
            to_json(&new.limits),
            to_json(&new.held),
            i64::try_from(new.allowed).unwrap_or(i64::MAX)
        )
        .execute(&mut *transaction)
        .await;
        if let Err(error) = created {
            drop(transaction);
            return Err(match StoreError::is_unique_violation(&error) {
                true => StoreError::Conflict(self.run_in_the_way().await?),
                false => error.into(),
            });
        }
        for (plan, group, rack) in &new.nodes {
            sqlx::query!(
                "INSERT INTO remediation_jobs (id, run_id, node_id, node_group, rack, state, reason, steps)
                 VALUES ($1, $2, $3, $4, $5, 'waiting', 'waits for its turn', $6)",
                JobId::new().0,
                id.0,
                plan.node.0,
                group,
                rack.as_deref(),
                to_json(&plan.steps)
            )
            .execute(&mut *transaction)
            .await?;
        }
        if is_over {
            sqlx::query!(
                "DELETE FROM remediation_runs WHERE requested_by = $1 AND id <> $2 AND state = 'finished'
                 AND NOT EXISTS (SELECT FROM remediation_jobs WHERE run_id = remediation_runs.id)",
                new.requested_by,
                id.0
            )
            .execute(&mut *transaction)
            .await?;
            transaction.commit().await?;
            return Ok(id);
        }
        let steps: usize = new.nodes.iter().map(|(plan, ..)| plan.steps.len()).sum();
        let audit = NewAudit {
            actor: &new.requested_by,
            action: "remediation_begun",
            object: &id.to_string(),
            detail: &format!("{steps} findings on {} nodes", new.nodes.len()),
        };
        insert_audit(&mut transaction, &audit).await?;
        transaction.commit().await?;
        Ok(id)
    }

    async fn run_in_the_way(&self) -> Result<String, StoreError> {
        let running = self.run_list(Some("running"), 1).await?.pop();
        Ok(running.map_or_else(
            || "another remediation has just begun".to_owned(),
            |run| {
                format!(
                    "remediation {} of {} is under way ({})",
                    run.id, run.requested_by, run.reason
                )
            },
        ))
    }

    /// Runs, newest first: of one state, or all.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn run_list(&self, state: Option<&str>, limit: i64) -> Result<Vec<RunRecord>, StoreError> {
        self.run_select(None, state, limit).await
    }

    /// One run.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn run_get(&self, id: RunId) -> Result<RunRecord, StoreError> {
        let found = self.run_select(Some(id), None, 1).await?.pop();
        found.ok_or_else(|| StoreError::not_found("remediation run", id))
    }

    async fn run_select(
        &self,
        id: Option<RunId>,
        state: Option<&str>,
        limit: i64,
    ) -> Result<Vec<RunRecord>, StoreError> {
        sqlx::query_as!(
            RunRow,
            r#"SELECT r.id, r.state, r.reason, r.requested_by, r.selection, r.held, r.allowed, r.created_at, r.finished_at,
                 (SELECT coalesce(jsonb_object_agg(c.state, c.count), '{}'::jsonb)
                    FROM (SELECT j.state, count(*) FROM remediation_jobs j WHERE j.run_id = r.id GROUP BY j.state) c)
                   AS "nodes!",
                 (SELECT coalesce(sum(j.left_count), 0)::bigint FROM remediation_jobs j WHERE j.run_id = r.id) AS "left!"
               FROM remediation_runs r
               WHERE ($1::uuid IS NULL OR r.id = $1) AND ($2::text IS NULL OR r.state = $2)
               ORDER BY r.created_at DESC LIMIT $3"#,
            id.map(|id| id.0),
            state,
            limit
        )
        .fetch_all(&self.pool)
        .await?
        .into_iter()
        .map(TryInto::try_into)
        .collect()
    }

    /// The limits a run keeps.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn run_limits(&self, id: RunId) -> Result<Limits, StoreError> {
        let limits = sqlx::query_scalar!("SELECT limits FROM remediation_runs WHERE id = $1", id.0)
            .fetch_optional(&self.pool)
            .await?;
        json(
            "limits",
            limits.ok_or_else(|| StoreError::not_found("remediation run", id))?,
        )
    }

    /// Says where a run stands.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn run_set_reason(&self, id: RunId, reason: &str) -> Result<(), StoreError> {
        sqlx::query!(
            "UPDATE remediation_runs SET reason = $2 WHERE id = $1 AND state = 'running' AND reason <> $2",
            id.0,
            reason
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Ends a run whose jobs are all over; returns whether it did.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn run_finish(&self, id: RunId, reason: &str) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            "UPDATE remediation_runs SET state = 'finished', reason = $2, finished_at = now()
             WHERE id = $1 AND state = 'running'
               AND NOT EXISTS (SELECT 1 FROM remediation_jobs WHERE run_id = $1
                               AND state IN ('waiting', 'issued', 'working', 'checking'))",
            id.0,
            reason
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Stops a run: no node is begun any more, and jobs that are out come to their end.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Conflict`] when it is over.
    pub async fn run_stop(&self, id: RunId, stopped_by: &str) -> Result<(), StoreError> {
        let reason = format!("stopped by {stopped_by}");
        let mut transaction = self.pool.begin().await?;
        let done = sqlx::query!(
            "UPDATE remediation_runs SET state = 'stopped', reason = $2, finished_at = now()
             WHERE id = $1 AND state = 'running'",
            id.0,
            reason
        )
        .execute(&mut *transaction)
        .await?;
        if done.rows_affected() == 0 {
            drop(transaction);
            let run = self.run_get(id).await?;
            return Err(StoreError::Conflict(format!("remediation {id} is {}", run.state)));
        }
        sqlx::query!(
            "UPDATE remediation_jobs SET state = 'skipped', reason = $2, state_since = now(), finished_at = now()
             WHERE run_id = $1 AND state = 'waiting'",
            id.0,
            reason
        )
        .execute(&mut *transaction)
        .await?;
        let audit = NewAudit {
            actor: stopped_by,
            action: "remediation_stopped",
            object: &id.to_string(),
            detail: "",
        };
        insert_audit(&mut transaction, &audit).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Lets a wide-spread finding be repaired in one group of nodes until an instant.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when no node of that group has such a finding.
    pub async fn release_create(
        &self,
        node_group: &str,
        group: Digest,
        reason: &str,
        released_by: &str,
        expires_at: OffsetDateTime,
    ) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        let finding = sqlx::query!(
            r#"SELECT kind AS "kind!", key AS "key!" FROM judged_findings
               WHERE group_hash = $1 AND node_group = $2 LIMIT 1"#,
            group.as_bytes().as_slice(),
            node_group
        )
        .fetch_optional(&mut *transaction)
        .await?
        .ok_or_else(|| StoreError::not_found("finding in that node group", group))?;
        sqlx::query!(
            "INSERT INTO remediation_releases (id, node_group, group_hash, finding_kind, finding_key, reason, released_by,
                                               expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            Uuid::now_v7(),
            node_group,
            group.as_bytes().as_slice(),
            finding.kind,
            finding.key,
            reason,
            released_by,
            expires_at
        )
        .execute(&mut *transaction)
        .await?;
        let audit = NewAudit {
            actor: released_by,
            action: "finding_released",
            object: &format!("{} {}", finding.kind, finding.key),
            detail: &format!("node group {node_group}: {reason}"),
        };
        insert_audit(&mut transaction, &audit).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Releases in force, newest first. At most 5,000.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn release_list(&self) -> Result<Vec<ReleaseRecord>, StoreError> {
        let rows = sqlx::query!(
            "SELECT id, node_group, group_hash, finding_kind, finding_key, reason, released_by, released_at, expires_at
             FROM remediation_releases WHERE expires_at > now() ORDER BY released_at DESC LIMIT 5000"
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(ReleaseRecord {
                    id: row.id,
                    node_group: row.node_group,
                    group: digest(&row.group_hash)?,
                    finding_kind: row.finding_kind,
                    finding_key: row.finding_key,
                    reason: row.reason,
                    released_by: row.released_by,
                    released_at: row.released_at,
                    expires_at: row.expires_at,
                })
            })
            .collect()
    }

    /// The same as the planner takes it.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn release_set(&self) -> Result<BTreeSet<(String, Digest)>, StoreError> {
        let releases = self.release_list().await?;
        Ok(releases
            .into_iter()
            .map(|release| (release.node_group, release.group))
            .collect())
    }

    /// How many nodes each group has.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn node_group_sizes(&self) -> Result<BTreeMap<String, usize>, StoreError> {
        let rows = sqlx::query!(r#"SELECT node_group, count(*) AS "count!" FROM nodes GROUP BY node_group"#)
            .fetch_all(&self.pool)
            .await?;
        let size = |count: i64| usize::try_from(count).unwrap_or(0);
        Ok(rows.into_iter().map(|row| (row.node_group, size(row.count))).collect())
    }

    /// Drops runs that have been over for `days`, and releases that ran out as long ago.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn run_prune(&self, days: i32) -> Result<(), StoreError> {
        sqlx::query!(
            "DELETE FROM remediation_runs WHERE finished_at < now() - make_interval(days => $1)",
            days
        )
        .execute(&self.pool)
        .await?;
        sqlx::query!(
            "DELETE FROM remediation_releases WHERE expires_at < now() - make_interval(days => $1)",
            days
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
