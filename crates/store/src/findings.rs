//! Findings as people review them: by group, then by variant, then by node.

use std::collections::BTreeMap;

use drift::{Attributes, Difference, FindingKind};
use lifecycle::remediation::{Candidate, Standing};
use manifest::Digest;
use protocol::NodeId;
use serde::Serialize;
use time::OffsetDateTime;

use crate::error::{digest, json};
use crate::{Store, StoreError};

/// Most findings that are planned over.
const CANDIDATES_MAX: i64 = 2_000_000;

/// The same thing wrong on some nodes.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct FindingGroup {
    /// Group hash.
    #[schema(value_type = String)]
    pub group: Digest,
    /// Kind of thing.
    pub kind: String,
    /// Which one.
    pub key: String,
    /// Highest severity in the group.
    pub severity: String,
    /// Nodes it stands on.
    pub nodes: i64,
    /// Of these: nothing is decided.
    pub open: i64,
    /// Of these: somebody has seen it; it is still drift.
    pub acknowledged: i64,
    /// Of these: allowed for a while.
    pub waived: i64,
    /// Of these: expected.
    pub accepted: i64,
    /// Ways in which it differs.
    pub variants: i64,
    /// When it was first seen on a node that still has it.
    #[serde(with = "time::serde::rfc3339")]
    pub first_at: OffsetDateTime,
}

/// One way in which a group's thing differs.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct FindingVariant {
    /// Variant hash.
    #[schema(value_type = String)]
    pub variant: Digest,
    /// As it should be; none: it should not be there.
    #[schema(value_type = Option<Object>)]
    pub expected: Option<Attributes>,
    /// As it is; none: it is not there.
    #[schema(value_type = Option<Object>)]
    pub actual: Option<Attributes>,
    /// Names (or ids) of the nodes, at most 1,000.
    pub nodes: Vec<String>,
    /// How many nodes.
    pub node_count: i64,
    /// How many of them nobody allowed it on.
    pub open: i64,
}

/// One finding of one node.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct FindingOnNode {
    /// Group hash.
    #[schema(value_type = String)]
    pub group: Digest,
    /// Variant hash.
    #[schema(value_type = String)]
    pub variant: Digest,
    /// Kind of thing.
    pub kind: String,
    /// Which one.
    pub key: String,
    /// Severity.
    pub severity: String,
    /// `open`, `acknowledged`, `waived` or `accepted`.
    pub standing: String,
    /// As it should be.
    #[schema(value_type = Option<Object>)]
    pub expected: Option<Attributes>,
    /// As it is.
    #[schema(value_type = Option<Object>)]
    pub actual: Option<Attributes>,
    /// Since when.
    #[serde(with = "time::serde::rfc3339")]
    pub opened_at: OffsetDateTime,
    /// When it last changed.
    #[serde(with = "time::serde::rfc3339")]
    pub changed_at: OffsetDateTime,
}

/// Something that became of a finding.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct FindingEvent {
    /// Counts up.
    pub id: i64,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// The node's name, or its id.
    pub node: String,
    /// Group hash.
    #[schema(value_type = String)]
    pub group: Digest,
    /// Kind of thing.
    pub kind: String,
    /// Which one.
    pub key: String,
    /// `opened`, `changed` or `closed`.
    pub event: String,
    /// By what: a scan, or a remediation job.
    pub cause: String,
}

impl Store {
    /// All groups, gravest and widest first.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn finding_group_list(&self) -> Result<Vec<FindingGroup>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT group_hash AS "group_hash!", min(kind) AS "kind!", min(key) AS "key!",
                 (array_agg(severity ORDER BY array_position(ARRAY['critical','high','medium','low','info'], severity)))[1]
                   AS "severity!",
                 count(*) AS "nodes!", count(DISTINCT variant_hash) AS "variants!", min(opened_at) AS "first_at!",
                 count(*) FILTER (WHERE standing = 'open') AS "open!",
                 count(*) FILTER (WHERE standing = 'acknowledged') AS "acknowledged!",
                 count(*) FILTER (WHERE standing = 'waived') AS "waived!",
                 count(*) FILTER (WHERE standing = 'accepted') AS "accepted!"
               FROM judged_findings GROUP BY group_hash
               ORDER BY min(array_position(ARRAY['critical','high','medium','low','info'], severity)), count(*) DESC, 3
               LIMIT 10000"#
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(FindingGroup {
                    group: digest(&row.group_hash)?,
                    kind: row.kind,
                    key: row.key,
                    severity: row.severity,
                    nodes: row.nodes,
                    open: row.open,
                    acknowledged: row.acknowledged,
                    waived: row.waived,
                    accepted: row.accepted,
                    variants: row.variants,
                    first_at: row.first_at,
                })
            })
            .collect()
    }

    /// The variants of a group, widest first.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn finding_variant_list(&self, group: Digest) -> Result<Vec<FindingVariant>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT variant_hash AS "variant_hash!", (array_agg(expected))[1] AS expected,
                 (array_agg(actual))[1] AS actual,
                 (array_agg(coalesce(node_name, node_id::text) ORDER BY node_name))[1:1000] AS "nodes!",
                 count(*) AS "node_count!",
                 count(*) FILTER (WHERE standing IN ('open', 'acknowledged')) AS "open!"
               FROM judged_findings
               WHERE group_hash = $1 GROUP BY variant_hash ORDER BY count(*) DESC LIMIT 1000"#,
            group.as_bytes().as_slice()
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(FindingVariant {
                    variant: digest(&row.variant_hash)?,
                    expected: row.expected.map(|value| json("expected", value)).transpose()?,
                    actual: row.actual.map(|value| json("actual", value)).transpose()?,
                    nodes: row.nodes,
                    node_count: row.node_count,
                    open: row.open,
                })
            })
            .collect()
    }

    /// One finding of a variant, and a node that has it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when no node has it.
    pub async fn finding_sample(&self, group: Digest, variant: Digest) -> Result<(Difference, NodeId), StoreError> {
        let row = sqlx::query!(
            "SELECT node_id, kind, key, expected, actual FROM findings WHERE group_hash = $1 AND variant_hash = $2 LIMIT 1",
            group.as_bytes().as_slice(),
            variant.as_bytes().as_slice()
        )
        .fetch_optional(&self.pool)
        .await?
        .ok_or_else(|| StoreError::not_found("finding", variant))?;
        let difference = Difference {
            kind: FindingKind::parse(&row.kind).ok_or(StoreError::Stored {
                what: "finding kind",
                value: row.kind,
            })?,
            key: row.key,
            expected: row.expected.map(|value| json("expected", value)).transpose()?,
            actual: row.actual.map(|value| json("actual", value)).transpose()?,
        };
        Ok((difference, NodeId(row.node_id)))
    }

    /// A node's findings.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn finding_list(&self, node: NodeId) -> Result<Vec<FindingOnNode>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT group_hash AS "group_hash!", variant_hash AS "variant_hash!", kind AS "kind!", key AS "key!",
                 severity AS "severity!", standing AS "standing!", expected, actual, opened_at AS "opened_at!",
                 changed_at AS "changed_at!"
               FROM judged_findings WHERE node_id = $1 ORDER BY kind, key LIMIT 50000"#,
            node.0
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(FindingOnNode {
                    group: digest(&row.group_hash)?,
                    variant: digest(&row.variant_hash)?,
                    kind: row.kind,
                    key: row.key,
                    severity: row.severity,
                    standing: row.standing,
                    expected: row.expected.map(|value| json("expected", value)).transpose()?,
                    actual: row.actual.map(|value| json("actual", value)).transpose()?,
                    opened_at: row.opened_at,
                    changed_at: row.changed_at,
                })
            })
            .collect()
    }

    /// What became of findings, newest first: of one node, of one group, or of both. At most 1,000.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn finding_history(
        &self,
        node: Option<NodeId>,
        group: Option<Digest>,
    ) -> Result<Vec<FindingEvent>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT h.id, h.at, coalesce(n.name, n.id::text) AS "node!", h.group_hash, h.kind, h.key, h.event, h.cause
               FROM finding_history h JOIN nodes n ON n.id = h.node_id
               WHERE ($1::uuid IS NULL OR h.node_id = $1) AND ($2::bytea IS NULL OR h.group_hash = $2)
               ORDER BY h.id DESC LIMIT 1000"#,
            node.map(|node| node.0),
            group.as_ref().map(|group| group.as_bytes().as_slice())
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(FindingEvent {
                    id: row.id,
                    at: row.at,
                    node: row.node,
                    group: digest(&row.group_hash)?,
                    kind: row.kind,
                    key: row.key,
                    event: row.event,
                    cause: row.cause,
                })
            })
            .collect()
    }

    /// All findings of all nodes as candidates for repair, in order of node.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when there are more than two million: a plan over some of them would read as if
    /// the rest were as it should be.
    pub async fn finding_candidates(&self) -> Result<Vec<Candidate>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT node_id AS "node_id!", kind AS "kind!", key AS "key!", expected, actual, standing AS "standing!"
               FROM judged_findings ORDER BY node_id, kind, key LIMIT $1"#,
            CANDIDATES_MAX + 1
        )
        .fetch_all(&self.pool)
        .await?;
        if rows.len() as i64 > CANDIDATES_MAX {
            return Err(StoreError::Conflict(format!(
                "there are more than {CANDIDATES_MAX} findings: nobody can plan over all of them"
            )));
        }
        rows.into_iter()
            .map(|row| {
                let kind = FindingKind::parse(&row.kind).ok_or(StoreError::Stored {
                    what: "finding kind",
                    value: row.kind,
                })?;
                Ok(Candidate {
                    node: NodeId(row.node_id),
                    difference: Difference {
                        kind,
                        key: row.key,
                        expected: row.expected.map(|value| json("expected", value)).transpose()?,
                        actual: row.actual.map(|value| json("actual", value)).transpose()?,
                    },
                    standing: match row.standing.as_str() {
                        "waived" => Standing::Waived,
                        "accepted" => Standing::Accepted,
                        _ => Standing::Open,
                    },
                })
            })
            .collect()
    }

    /// Findings that nobody allows, by severity.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn finding_count_by_severity(&self) -> Result<BTreeMap<String, i64>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT severity AS "severity!", count(*) AS "count!" FROM judged_findings
               WHERE standing IN ('open', 'acknowledged') GROUP BY severity"#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|row| (row.severity, row.count)).collect())
    }

    /// What became of findings within the last hour: by event (`opened`, `changed`, `closed`).
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn finding_count_last_hour(&self) -> Result<BTreeMap<String, i64>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT event, count(*) AS "count!" FROM finding_history WHERE at > now() - interval '1 hour' GROUP BY event"#
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|row| (row.event, row.count)).collect())
    }

    /// Drops the history of findings that is older than this many days.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn finding_history_prune(&self, days: i32) -> Result<u64, StoreError> {
        let done = sqlx::query!(
            "DELETE FROM finding_history WHERE at < now() - make_interval(days => $1)",
            days
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected())
    }

    /// Brings the severity of all findings to what the policy says now; returns how many changed.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn finding_rejudge(&self, severity: impl Fn(&Difference) -> drift::Severity) -> Result<u64, StoreError> {
        let rows = sqlx::query!(
            "SELECT DISTINCT ON (group_hash, variant_hash, severity) group_hash, variant_hash, kind, key, expected, actual,
               severity FROM findings"
        )
        .fetch_all(&self.pool)
        .await?;
        let mut changed = 0;
        for row in rows {
            let Some(kind) = FindingKind::parse(&row.kind) else {
                continue;
            };
            let difference = Difference {
                kind,
                key: row.key,
                expected: row.expected.map(|value| json("expected", value)).transpose()?,
                actual: row.actual.map(|value| json("actual", value)).transpose()?,
            };
            let now = severity(&difference).as_str();
            if now == row.severity {
                continue;
            }
            let done = sqlx::query!(
                "UPDATE findings SET severity = $4 WHERE group_hash = $1 AND variant_hash = $2 AND severity = $3",
                row.group_hash,
                row.variant_hash,
                row.severity,
                now
            )
            .execute(&self.pool)
            .await?;
            changed += done.rows_affected();
        }
        Ok(changed)
    }
}
