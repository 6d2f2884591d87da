//! Heartbeats and reports of agents.

use drift::{Difference, Severity};
use lifecycle::remediation::JobObserved;
use manifest::Digest;
use protocol::NodeId;
use protocol::latest::{DriftReport, Heartbeat, NotLookedAt, ReportKind, ScanSummary};
use serde::Serialize;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::error::{digest, json, to_json};
use crate::jobs::{job_to_prove, step_job};
use crate::{Store, StoreError};

/// Reports kept of a node.
const REPORTS_KEPT: i64 = 50;

/// What became of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportStored {
    /// Stored; this many findings opened, changed and closed.
    Stored {
        /// New findings.
        opened: u64,
        /// Findings that differ in another way now.
        changed: u64,
        /// Findings that are gone.
        closed: u64,
    },
    /// A delta whose base the server does not hold.
    NeedFull {
        /// Why.
        reason: String,
    },
    /// Older than what the server has, or against a baseline that is not the node's.
    Stale {
        /// Why.
        reason: String,
    },
}

/// Which boot a heartbeat comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootSeen {
    /// The one that spoke last.
    Same,
    /// One that was never heard of.
    First,
    /// One that reported before another one spoke. A machine never goes back to an earlier boot: two machines have this
    /// node's identity.
    Returned {
        /// The boot that spoke last.
        other: Uuid,
    },
}

/// What the server holds when a heartbeat comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatStored {
    /// State digest of the node's last report.
    pub state: Option<Digest>,
    /// Its boot.
    pub boot: BootSeen,
}

/// The newest report of a node.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ReportRecord {
    /// When the server received it.
    #[serde(with = "time::serde::rfc3339")]
    pub received_at: OffsetDateTime,
    /// Boot the scan ran in.
    pub boot_id: Uuid,
    /// Whether everything was walked to its end.
    pub complete: bool,
    /// What was looked at.
    #[schema(value_type = Object)]
    pub scan: ScanSummary,
    /// What could not be.
    #[schema(value_type = Vec<Object>)]
    pub not_looked_at: Vec<NotLookedAt>,
}

impl Store {
    /// Keeps a heartbeat; one of a boot that returned is left aside, so that two machines are kept apart.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn heartbeat_record(
        &self,
        node: NodeId,
        heartbeat: &Heartbeat,
        clock_skew_ms: i64,
    ) -> Result<HeartbeatStored, StoreError> {
        let previous = sqlx::query!(
            r#"SELECT a.boot_id, EXISTS (SELECT 1 FROM reports r WHERE r.node_id = a.node_id AND r.boot_id = $2
                                           AND r.received_at < a.heartbeat_at) AS "came_before!"
               FROM agents a WHERE a.node_id = $1"#,
            node.0,
            heartbeat.boot_id
        )
        .fetch_optional(&self.pool)
        .await?;
        let state = sqlx::query_scalar!(
            "SELECT state FROM reports WHERE node_id = $1 ORDER BY id DESC LIMIT 1",
            node.0
        )
        .fetch_optional(&self.pool)
        .await?
        .map(|bytes| digest(&bytes))
        .transpose()?;
        let boot = match previous {
            Some(previous) if previous.boot_id == heartbeat.boot_id => BootSeen::Same,
            Some(previous) if previous.came_before => {
                let other = previous.boot_id;
                let boot = BootSeen::Returned { other };
                return Ok(HeartbeatStored { state, boot });
            }
            _ => BootSeen::First,
        };
        sqlx::query!(
            "INSERT INTO agents (node_id, boot_id, sequence, baseline, agent_version, rss_max_bytes, uptime_secs,
                                 clock_skew_ms)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
             ON CONFLICT (node_id) DO UPDATE SET boot_id = excluded.boot_id, sequence = excluded.sequence,
                 baseline = excluded.baseline, agent_version = excluded.agent_version,
                 rss_max_bytes = excluded.rss_max_bytes, uptime_secs = excluded.uptime_secs,
                 clock_skew_ms = excluded.clock_skew_ms, heartbeat_at = now()",
            node.0,
            heartbeat.boot_id,
            i64::try_from(heartbeat.sequence).unwrap_or(i64::MAX),
            heartbeat.baseline.map(|d| d.as_bytes().to_vec()),
            heartbeat.agent_version,
            i64::try_from(heartbeat.rss_max_bytes).unwrap_or(i64::MAX),
            i64::try_from(heartbeat.uptime_secs).unwrap_or(i64::MAX),
            clock_skew_ms
        )
        .execute(&self.pool)
        .await?;
        Ok(HeartbeatStored { state, boot })
    }

    /// Stores a report and the findings that follow from it, in one transaction.
    ///
    /// `severity` is the policy's word for each difference.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn report_store(
        &self,
        node: NodeId,
        report: &DriftReport,
        severity: impl Fn(&Difference) -> Severity + Send + Sync,
    ) -> Result<ReportStored, StoreError> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query_scalar!("SELECT id FROM nodes WHERE id = $1 FOR UPDATE", node.0)
            .fetch_optional(&mut *transaction)
            .await?
            .ok_or_else(|| StoreError::not_found("node", node))?;
        let baseline = sqlx::query_scalar!("SELECT digest FROM baselines WHERE node_id = $1", node.0)
            .fetch_optional(&mut *transaction)
            .await?;
        if baseline.as_deref() != Some(report.baseline.as_bytes()) {
            return Ok(ReportStored::Stale {
                reason: "compared with a baseline that is not this node's".to_owned(),
            });
        }
        let last = sqlx::query!(
            r#"SELECT boot_id, sequence, state,
                 EXISTS (SELECT 1 FROM reports r WHERE r.node_id = $1 AND r.boot_id = $2) AS "was_seen!"
               FROM reports WHERE node_id = $1 ORDER BY id DESC LIMIT 1"#,
            node.0,
            report.boot_id
        )
        .fetch_optional(&mut *transaction)
        .await?;
        let sequence = i64::try_from(report.sequence).unwrap_or(i64::MAX);
        if last
            .as_ref()
            .is_some_and(|last| last.boot_id == report.boot_id && last.sequence >= sequence)
        {
            return Ok(ReportStored::Stale {
                reason: format!("sequence {sequence} was seen in this boot already"),
            });
        }
        if last
            .as_ref()
            .is_some_and(|last| last.boot_id != report.boot_id && last.was_seen)
        {
            return Ok(ReportStored::Stale {
                reason: "a later boot of this node has reported since".to_owned(),
            });
        }
        if let ReportKind::Delta { base, .. } = &report.kind {
            let held = last.as_ref().map(|last| digest(&last.state)).transpose()?;
            if held != Some(*base) {
                return Ok(ReportStored::NeedFull {
                    reason: "the server does not hold the base of this delta".into(),
                });
            }
        }
        let report_id = sqlx::query_scalar!(
            "INSERT INTO reports (node_id, boot_id, sequence, baseline, state, complete, scan, not_looked_at, after_job)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING id",
            node.0,
            report.boot_id,
            sequence,
            report.baseline.as_bytes().as_slice(),
            report.state.as_bytes().as_slice(),
            report.scan.complete,
            to_json(&report.scan),
            to_json(&report.not_looked_at),
            report.after_job.map(|job| job.0)
        )
        .fetch_one(&mut *transaction)
        .await?;
        let proof = match report.after_job {
            Some(job) => job_to_prove(&mut transaction, node, job)
                .await?
                .map(|steps| (job, steps)),
            None => None,
        };
        let cause = proof
            .as_ref()
            .map_or("scan".to_owned(), |(job, _)| format!("remediation job {job}"));
        let change = Change {
            node,
            report: report_id,
            cause: &cause,
        };
        let stored = match &report.kind {
            ReportKind::Full { differences } => {
                let closed = close_all_but(&mut transaction, change, differences).await?;
                let (opened, changed) = set_findings(&mut transaction, change, differences, &severity).await?;
                ReportStored::Stored {
                    opened,
                    changed,
                    closed,
                }
            }
            ReportKind::Delta { set, cleared, .. } => {
                let cleared: Vec<Vec<u8>> = cleared.iter().map(|group| group.as_bytes().to_vec()).collect();
                let closed = close_these(&mut transaction, change, &cleared).await?;
                let (opened, changed) = set_findings(&mut transaction, change, set, &severity).await?;
                ReportStored::Stored {
                    opened,
                    changed,
                    closed,
                }
            }
        };
        if let Some((job, steps)) = proof {
            let groups: Vec<Vec<u8>> = steps.iter().map(|step| step.group.as_bytes().to_vec()).collect();
            let left = sqlx::query_scalar!(
                r#"SELECT count(*) AS "count!" FROM findings WHERE node_id = $1 AND group_hash = ANY($2)"#,
                node.0,
                &groups
            )
            .fetch_one(&mut *transaction)
            .await?;
            let observed = JobObserved::Proved {
                left: u64::try_from(left).unwrap_or(0),
                not_looked_at: report.scan.not_looked_at_count,
            };
            // A scan that did not reach its end proves nothing; the next one comes.
            if report.scan.complete {
                step_job(&mut transaction, job, &observed).await?;
            }
        }
        // What findings and their history refer to stays; the rest is bounded.
        sqlx::query!(
            "DELETE FROM reports r WHERE r.node_id = $1
               AND r.id < (SELECT id FROM reports WHERE node_id = $1 ORDER BY id DESC OFFSET $2 LIMIT 1)
               AND NOT EXISTS (SELECT 1 FROM findings f WHERE f.report_id = r.id)",
            node.0,
            REPORTS_KEPT
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(stored)
    }

    /// The newest report of a node; none means that nobody knows its drift.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn report_newest(&self, node: NodeId) -> Result<Option<ReportRecord>, StoreError> {
        let row = sqlx::query!(
            "SELECT received_at, boot_id, complete, scan, not_looked_at FROM reports
             WHERE node_id = $1 ORDER BY id DESC LIMIT 1",
            node.0
        )
        .fetch_optional(&self.pool)
        .await?;
        row.map(|row| {
            Ok(ReportRecord {
                received_at: row.received_at,
                boot_id: row.boot_id,
                complete: row.complete,
                scan: json("scan", row.scan)?,
                not_looked_at: json("not_looked_at", row.not_looked_at)?,
            })
        })
        .transpose()
    }
}

/// Which report changes which node's findings, and what brought the changes about.
#[derive(Clone, Copy)]
struct Change<'a> {
    node: NodeId,
    report: i64,
    cause: &'a str,
}

async fn set_findings(
    connection: &mut PgConnection,
    change: Change<'_>,
    differences: &[Difference],
    severity: &(impl Fn(&Difference) -> Severity + Send + Sync),
) -> Result<(u64, u64), StoreError> {
    let Change { node, report, cause } = change;
    let (mut opened, mut changed) = (0, 0);
    for difference in differences {
        let (group, variant) = (difference.group(), difference.variant());
        let event = sqlx::query_scalar!(
            r#"WITH old AS (SELECT variant_hash FROM findings WHERE node_id = $1 AND group_hash = $2),
               written AS (
                 INSERT INTO findings (node_id, group_hash, variant_hash, kind, key, expected, actual, severity, report_id)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
                 ON CONFLICT (node_id, group_hash) DO UPDATE SET variant_hash = excluded.variant_hash,
                     expected = excluded.expected, actual = excluded.actual, severity = excluded.severity,
                     changed_at = now(), report_id = excluded.report_id
                   WHERE findings.variant_hash <> excluded.variant_hash OR findings.severity <> excluded.severity
                 RETURNING 1)
               SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM old) THEN 'opened'
                           WHEN (SELECT variant_hash FROM old) <> $3 THEN 'changed' ELSE '' END AS "event!"
               FROM (SELECT count(*) FROM written) AS done"#,
            node.0,
            group.as_bytes().as_slice(),
            variant.as_bytes().as_slice(),
            difference.kind.as_str(),
            difference.key,
            difference.expected.as_ref().map(to_json),
            difference.actual.as_ref().map(to_json),
            severity(difference).as_str(),
            report
        )
        .fetch_one(&mut *connection)
        .await?;
        match event.as_str() {
            "opened" => opened += 1,
            "changed" => changed += 1,
            _ => continue,
        }
        sqlx::query!(
            "INSERT INTO finding_history (node_id, group_hash, variant_hash, kind, key, event, report_id, cause)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            node.0,
            group.as_bytes().as_slice(),
            variant.as_bytes().as_slice(),
            difference.kind.as_str(),
            difference.key,
            event,
            report,
            cause
        )
        .execute(&mut *connection)
        .await?;
    }
    Ok((opened, changed))
}

async fn close_all_but(
    connection: &mut PgConnection,
    change: Change<'_>,
    kept: &[Difference],
) -> Result<u64, StoreError> {
    let kept: std::collections::HashSet<[u8; 32]> = kept.iter().map(|d| *d.group().as_bytes()).collect();
    let open = sqlx::query_scalar!("SELECT group_hash FROM findings WHERE node_id = $1", change.node.0)
        .fetch_all(&mut *connection)
        .await?;
    let gone: Vec<Vec<u8>> = open
        .into_iter()
        .filter(|group| !kept.iter().any(|k| k == group.as_slice()))
        .collect();
    close_these(connection, change, &gone).await
}

async fn close_these(connection: &mut PgConnection, change: Change<'_>, groups: &[Vec<u8>]) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "WITH gone AS (DELETE FROM findings WHERE node_id = $1 AND group_hash = ANY($2)
                       RETURNING group_hash, variant_hash, kind, key)
         INSERT INTO finding_history (node_id, group_hash, variant_hash, kind, key, event, report_id, cause)
         SELECT $1, group_hash, variant_hash, kind, key, 'closed', $3, $4 FROM gone",
        change.node.0,
        groups,
        change.report,
        change.cause
    )
    .execute(connection)
    .await?;
    Ok(done.rows_affected())
}
