//! Burn-ins: tests that deployers run, and what they found.
//!
//! A burn-in belongs to one boot of the node. It ends when all its tests have results; when its machine restarts, goes
//! silent or is sent on, it ends with that as its problem. At most one of a node runs.

use std::collections::HashMap;

use lifecycle::burn_in::{Last, Standing};
use protocol::latest::{TestKind, TestOrder, TestOutcome, TestResult};
use protocol::{BurnInId, NodeId};
use serde::Serialize;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::audit::{NewAudit, insert_audit};
use crate::error::{json, to_json};
use crate::nodes::lock_node;
use crate::{Store, StoreError};

/// Burn-ins of a node that are told.
const LISTED_MAX: i64 = 20;

/// A burn-in as it stands.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct BurnInRecord {
    /// Id.
    pub id: BurnInId,
    /// The boot that runs it.
    #[serde(skip)]
    pub token_id: Uuid,
    /// Who ordered it.
    pub ordered_by: String,
    /// Why.
    pub reason: String,
    /// What is run, in this order.
    pub tests: Vec<TestOrder>,
    /// When it began.
    #[serde(with = "time::serde::rfc3339")]
    pub started_at: OffsetDateTime,
    /// When its deployer was last heard.
    #[serde(with = "time::serde::rfc3339")]
    pub heard_at: OffsetDateTime,
    /// What its deployer does, or did last.
    pub progress: Option<String>,
    /// When it was over.
    #[serde(with = "time::serde::rfc3339::option")]
    pub ended_at: Option<OffsetDateTime>,
    /// Why it ended before its end.
    pub problem: Option<String>,
    /// Who lets the node be installed although it did not pass.
    pub waived_by: Option<String>,
    /// Why.
    pub waive_reason: Option<String>,
    /// What was found so far, in the order of the tests.
    pub results: Vec<TestResult>,
    /// Where it stands.
    pub standing: Standing,
    /// Why, for people.
    pub standing_reason: String,
}

impl BurnInRecord {
    /// What decisions need of it.
    fn last(&self) -> Last {
        let not_passed = self
            .results
            .iter()
            .filter(|result| result.outcome != TestOutcome::Passed);
        Last {
            has_ended: self.ended_at.is_some(),
            progress: self.progress.clone(),
            problem: self.problem.clone(),
            not_passed: not_passed
                .map(|result| (result.kind, result.outcome, result.detail.clone()))
                .collect(),
            waived: waived(self.waived_by.as_deref(), self.waive_reason.as_deref()),
        }
    }

    /// Tests that have no result yet.
    #[must_use]
    pub fn tests_left(&self) -> Vec<TestOrder> {
        let is_done = |order: &TestOrder| self.results.iter().any(|result| result.kind == order.kind);
        self.tests.iter().filter(|order| !is_done(order)).copied().collect()
    }
}

fn waived(by: Option<&str>, reason: Option<&str>) -> Option<String> {
    Some(format!("{}: {}", by?, reason.unwrap_or("no reason given")))
}

/// A new burn-in.
#[derive(Clone, Copy, Debug)]
pub struct NewBurnIn<'a> {
    /// The node.
    pub node_id: NodeId,
    /// The boot that runs it.
    pub token_id: Uuid,
    /// Who ordered it.
    pub ordered_by: &'a str,
    /// Why.
    pub reason: &'a str,
    /// What is to be run.
    pub tests: &'a [TestOrder],
}

struct BurnInRow {
    id: Uuid,
    token_id: Uuid,
    ordered_by: String,
    reason: String,
    tests: serde_json::Value,
    started_at: OffsetDateTime,
    heard_at: OffsetDateTime,
    progress: Option<String>,
    ended_at: Option<OffsetDateTime>,
    problem: Option<String>,
    waived_by: Option<String>,
    waive_reason: Option<String>,
    results: Option<serde_json::Value>,
}

impl TryFrom<BurnInRow> for BurnInRecord {
    type Error = StoreError;

    fn try_from(row: BurnInRow) -> Result<Self, StoreError> {
        let tests: Vec<TestOrder> = json("tests", row.tests)?;
        let mut results: Vec<TestResult> = row
            .results
            .map(|results| json("results", results))
            .transpose()?
            .unwrap_or_default();
        results.sort_by_key(|result| tests.iter().position(|order| order.kind == result.kind));
        let mut record = Self {
            id: BurnInId(row.id),
            token_id: row.token_id,
            ordered_by: row.ordered_by,
            reason: row.reason,
            tests,
            started_at: row.started_at,
            heard_at: row.heard_at,
            progress: row.progress,
            ended_at: row.ended_at,
            problem: row.problem,
            waived_by: row.waived_by,
            waive_reason: row.waive_reason,
            results,
            standing: Standing::None,
            standing_reason: String::new(),
        };
        (record.standing, record.standing_reason) = Standing::of(Some(&record.last()));
        Ok(record)
    }
}

/// Ends the one that runs on a node, if one does.
async fn end(connection: &mut PgConnection, node: NodeId, problem: &str) -> Result<Option<BurnInId>, StoreError> {
    let ended = sqlx::query_scalar!(
        "UPDATE burn_ins SET ended_at = now(), problem = $2 WHERE node_id = $1 AND ended_at IS NULL RETURNING id",
        node.0,
        problem
    )
    .fetch_optional(connection)
    .await?;
    Ok(ended.map(BurnInId))
}

impl Store {
    /// Begins a burn-in; one that still runs on the node ends, as its machine has restarted.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for no such node.
    pub async fn burn_in_start(&self, new: &NewBurnIn<'_>) -> Result<BurnInId, StoreError> {
        let id = BurnInId::new();
        let mut transaction = self.pool.begin().await?;
        lock_node(&mut transaction, new.node_id).await?;
        end(&mut transaction, new.node_id, "another one was begun").await?;
        sqlx::query!(
            "INSERT INTO burn_ins (id, node_id, token_id, ordered_by, reason, tests) VALUES ($1, $2, $3, $4, $5, $6)",
            id.0,
            new.node_id.0,
            new.token_id,
            new.ordered_by,
            new.reason,
            to_json(&new.tests)
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(id)
    }

    /// A node's burn-ins, newest first, at most 20.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn burn_in_list(&self, node: NodeId) -> Result<Vec<BurnInRecord>, StoreError> {
        self.burn_ins(node, LISTED_MAX).await
    }

    /// A node's newest burn-in.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn burn_in_find(&self, node: NodeId) -> Result<Option<BurnInRecord>, StoreError> {
        Ok(self.burn_ins(node, 1).await?.pop())
    }

    async fn burn_ins(&self, node: NodeId, limit: i64) -> Result<Vec<BurnInRecord>, StoreError> {
        sqlx::query_as!(
            BurnInRow,
            "SELECT id, token_id, ordered_by, reason, tests, started_at, heard_at, progress, ended_at, problem,
               waived_by, waive_reason,
               (SELECT jsonb_agg(r.result) FROM burn_in_results r WHERE r.burn_in_id = b.id) AS results
             FROM burn_ins b WHERE node_id = $1 ORDER BY started_at DESC, id DESC LIMIT $2",
            node.0,
            limit
        )
        .fetch_all(&self.pool)
        .await?
        .into_iter()
        .map(TryInto::try_into)
        .collect()
    }

    /// Where the newest burn-in of each node stands, or of one node, and why. Nodes that never had one are missing.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn burn_in_standings(
        &self,
        only: Option<NodeId>,
    ) -> Result<HashMap<NodeId, (Standing, String)>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT DISTINCT ON (b.node_id) b.node_id, b.progress, b.ended_at IS NOT NULL AS "has_ended!", b.problem,
                 b.waived_by, b.waive_reason,
                 (SELECT jsonb_agg(jsonb_build_array(r.kind, r.outcome, r.result->'detail') ORDER BY r.at)
                  FROM burn_in_results r WHERE r.burn_in_id = b.id AND r.outcome <> 'passed') AS not_passed
               FROM burn_ins b WHERE $1::uuid IS NULL OR b.node_id = $1
               ORDER BY b.node_id, b.started_at DESC, b.id DESC"#,
            only.map(|node| node.0)
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                let not_passed = row.not_passed.map(|value| json("results", value)).transpose()?;
                let last = Last {
                    has_ended: row.has_ended,
                    progress: row.progress,
                    problem: row.problem,
                    not_passed: not_passed.unwrap_or_default(),
                    waived: waived(row.waived_by.as_deref(), row.waive_reason.as_deref()),
                };
                Ok((NodeId(row.node_id), Standing::of(Some(&last))))
            })
            .collect()
    }

    /// Keeps how far a burn-in is; whether it still runs, as one of this node and boot.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn burn_in_heard(
        &self,
        id: BurnInId,
        node: NodeId,
        token: Uuid,
        progress: &str,
    ) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            "UPDATE burn_ins SET heard_at = now(), progress = $4
             WHERE id = $1 AND node_id = $2 AND token_id = $3 AND ended_at IS NULL",
            id.0,
            node.0,
            token,
            progress
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Keeps a result as it was `told` and as it was `judged`; the first one of a kind stays. With the last one the
    /// burn-in ends. Whether it is a new one.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when no such burn-in runs, [`StoreError::Conflict`] for a test that is none of it.
    pub async fn burn_in_result(
        &self,
        id: BurnInId,
        told: &TestResult,
        judged: &TestResult,
    ) -> Result<bool, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let tests = sqlx::query_scalar!(
            "SELECT tests FROM burn_ins WHERE id = $1 AND ended_at IS NULL FOR UPDATE",
            id.0
        )
        .fetch_optional(&mut *transaction)
        .await?
        .ok_or_else(|| StoreError::not_found("running burn-in", id))?;
        let tests: Vec<TestOrder> = json("tests", tests)?;
        if !tests.iter().any(|order| order.kind == told.kind) {
            return Err(StoreError::Conflict(format!(
                "{} is no test of this burn-in",
                told.kind.as_str()
            )));
        }
        let done = sqlx::query!(
            "INSERT INTO burn_in_results (burn_in_id, kind, outcome, told, result) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT DO NOTHING",
            id.0,
            told.kind.as_str(),
            judged.outcome.as_str(),
            to_json(told),
            to_json(judged)
        )
        .execute(&mut *transaction)
        .await?;
        let kinds = sqlx::query_scalar!("SELECT kind FROM burn_in_results WHERE burn_in_id = $1", id.0)
            .fetch_all(&mut *transaction)
            .await?;
        let kinds: Vec<TestKind> = kinds.iter().filter_map(|kind| TestKind::parse(kind)).collect();
        let is_complete = tests.iter().all(|order| kinds.contains(&order.kind));
        sqlx::query!(
            "UPDATE burn_ins SET heard_at = now(), ended_at = CASE WHEN $2 THEN now() END WHERE id = $1",
            id.0,
            is_complete
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(done.rows_affected() == 1)
    }

    /// Judges the results of a node's newest burn-in again, as they were told: the node is in another group now, or more
    /// is expected.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn burn_in_rejudge(
        &self,
        node: NodeId,
        judge: impl Fn(TestResult) -> TestResult + Send,
    ) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        let rows = sqlx::query!(
            "SELECT burn_in_id, kind, told, result FROM burn_in_results
             WHERE burn_in_id = (SELECT id FROM burn_ins WHERE node_id = $1 ORDER BY started_at DESC, id DESC LIMIT 1)
             ORDER BY kind FOR UPDATE",
            node.0
        )
        .fetch_all(&mut *transaction)
        .await?;
        for row in rows {
            let judged = judge(json("result", row.told)?);
            let result = to_json(&judged);
            if result == row.result {
                continue;
            }
            sqlx::query!(
                "UPDATE burn_in_results SET outcome = $3, result = $4 WHERE burn_in_id = $1 AND kind = $2",
                row.burn_in_id,
                row.kind,
                judged.outcome.as_str(),
                result
            )
            .execute(&mut *transaction)
            .await?;
        }
        transaction.commit().await?;
        Ok(())
    }

    /// Ends the burn-in that runs on a node before its end; which one, if one did.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn burn_in_end(&self, node: NodeId, problem: &str) -> Result<Option<BurnInId>, StoreError> {
        end(&mut *self.pool.acquire().await?, node, problem).await
    }

    /// Burn-ins whose deployer has said nothing for so long: their nodes, and what it said last.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn burn_in_list_silent(&self, secs: i64) -> Result<Vec<(NodeId, Option<String>)>, StoreError> {
        let rows = sqlx::query!(
            "SELECT node_id, progress FROM burn_ins
             WHERE ended_at IS NULL AND heard_at < now() - make_interval(secs => $1) LIMIT 1000",
            secs as f64
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| (NodeId(row.node_id), row.progress))
            .collect())
    }

    /// Lets a node be installed although its newest burn-in did not pass; one that runs is broken off.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for no such node.
    pub async fn burn_in_waive(&self, node: NodeId, by: &str, reason: &str) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        let name = lock_node(&mut transaction, node).await?;
        let problem = format!("broken off by {by}");
        end(&mut transaction, node, &problem).await?;
        sqlx::query!(
            "UPDATE burn_ins SET waived_by = $2, waive_reason = $3, waived_at = now()
             WHERE id = (SELECT id FROM burn_ins WHERE node_id = $1 ORDER BY started_at DESC, id DESC LIMIT 1)",
            node.0,
            by,
            reason
        )
        .execute(&mut *transaction)
        .await?;
        let audit = NewAudit {
            actor: by,
            action: "burn_in_waived",
            object: &name,
            detail: reason,
        };
        insert_audit(&mut transaction, &audit).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Drops burn-ins older than so many days, but the newest of each node.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn burn_in_prune(&self, days: i32) -> Result<u64, StoreError> {
        let done = sqlx::query!(
            "DELETE FROM burn_ins b WHERE started_at < now() - make_interval(days => $1)
               AND EXISTS (SELECT 1 FROM burn_ins n WHERE n.node_id = b.node_id AND n.started_at > b.started_at)",
            days
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected())
    }
}
