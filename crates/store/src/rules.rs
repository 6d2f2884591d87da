//! Discovery rules: every version that was in force, and what they placed.

use std::collections::BTreeMap;

use lifecycle::rules::Placement;
use protocol::NodeId;
use serde::Serialize;
use time::OffsetDateTime;

use crate::audit::{NewAudit, insert_audit};
use crate::{Store, StoreError};

/// A version of the rules.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct RulesRecord {
    /// Counts up; the highest is in force.
    pub version: i64,
    /// The YAML text.
    pub content: String,
    /// Who applied it.
    pub applied_by: String,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub applied_at: OffsetDateTime,
}

/// What became of a placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacedByRule {
    /// The node has it.
    Done,
    /// The rule has placed as many as it may: somebody was faster.
    Full,
    /// Another node has the name.
    NameTaken,
    /// The node is not one that rules place: it has a name, a rule or a plan already, or does not wait for approval.
    NotNeeded,
}

impl Store {
    /// A version of the rules; without one, the newest, which is in force.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn rules_find(&self, version: Option<i64>) -> Result<Option<RulesRecord>, StoreError> {
        Ok(sqlx::query_as!(
            RulesRecord,
            "SELECT version, content, applied_by, applied_at FROM discovery_rules
             WHERE $1::bigint IS NULL OR version = $1 ORDER BY version DESC LIMIT 1",
            version
        )
        .fetch_optional(&self.pool)
        .await?)
    }

    /// Puts rules in force. The same text again is no new version.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn rules_apply(&self, content: &str, by: &str) -> Result<RulesRecord, StoreError> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query!("LOCK TABLE discovery_rules IN SHARE ROW EXCLUSIVE MODE")
            .execute(&mut *transaction)
            .await?;
        let newest = sqlx::query_as!(
            RulesRecord,
            "SELECT version, content, applied_by, applied_at FROM discovery_rules ORDER BY version DESC LIMIT 1"
        )
        .fetch_optional(&mut *transaction)
        .await?;
        if let Some(newest) = newest.filter(|newest| newest.content == content) {
            return Ok(newest);
        }
        let record = sqlx::query_as!(
            RulesRecord,
            "INSERT INTO discovery_rules (content, applied_by) VALUES ($1, $2)
             RETURNING version, content, applied_by, applied_at",
            content,
            by
        )
        .fetch_one(&mut *transaction)
        .await?;
        let audit = NewAudit {
            actor: by,
            action: "discovery_rules_applied",
            object: "discovery rules",
            detail: &format!("version {}, {} bytes", record.version, content.len()),
        };
        insert_audit(&mut transaction, &audit).await?;
        transaction.commit().await?;
        Ok(record)
    }

    /// How many nodes each rule has placed; nodes that are gone do not count.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn rules_placed(&self) -> Result<BTreeMap<String, usize>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT discovery_rule AS "rule!", count(*) AS "count!" FROM nodes
               WHERE discovery_rule IS NOT NULL GROUP BY discovery_rule"#
        )
        .fetch_all(&self.pool)
        .await?;
        let counted = rows
            .into_iter()
            .map(|row| (row.rule, usize::try_from(row.count).unwrap_or(usize::MAX)));
        Ok(counted.collect())
    }

    /// Places a node that waits for approval as a rule says. The count and the place are one transaction: a rule never
    /// places more than it may.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn node_place_by_rule(&self, node: NodeId, placement: &Placement) -> Result<PlacedByRule, StoreError> {
        let mut transaction = self.pool.begin().await?;
        // One rule at a time, over all servers of this database.
        sqlx::query!(
            "SELECT pg_advisory_xact_lock(hashtextextended('discovery rule ' || $1, 0))",
            placement.rule
        )
        .execute(&mut *transaction)
        .await?;
        let placed = sqlx::query_scalar!(
            r#"SELECT count(*) AS "count!" FROM nodes WHERE discovery_rule = $1 AND id <> $2"#,
            placement.rule,
            node.0
        )
        .fetch_one(&mut *transaction)
        .await?;
        if usize::try_from(placed).unwrap_or(usize::MAX) >= placement.maximum {
            return Ok(PlacedByRule::Full);
        }
        let done = sqlx::query!(
            "UPDATE nodes n SET name = $2, rack = coalesce($3, rack), unit = CASE WHEN $3::text IS NULL THEN unit ELSE $4 END,
               node_group = coalesce($5, node_group), image_channel = $6, discovery_rule = $7
             WHERE id = $1 AND name IS NULL AND discovery_rule IS NULL AND state = 'waiting_approval'
               AND NOT EXISTS (SELECT 1 FROM rack_plan p WHERE p.node_id = n.id)",
            node.0,
            placement.name,
            placement.rack,
            placement.unit,
            placement.group,
            placement.image,
            placement.rule
        )
        .execute(&mut *transaction)
        .await;
        let done = match done {
            Ok(done) => done,
            Err(error) if StoreError::is_unique_violation(&error) => return Ok(PlacedByRule::NameTaken),
            Err(error) => return Err(error.into()),
        };
        transaction.commit().await?;
        Ok(match done.rows_affected() {
            0 => PlacedByRule::NotNeeded,
            _ => PlacedByRule::Done,
        })
    }

    /// Keeps where a machine of the plan was found, and says whether that is news.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn node_found_in(&self, node: NodeId, rack: &str, unit: Option<i32>) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            "UPDATE nodes SET rack = $2, unit = coalesce($3, CASE WHEN rack = $2 THEN unit END)
             WHERE id = $1 AND (rack IS DISTINCT FROM $2 OR unit IS DISTINCT FROM coalesce($3, unit))",
            node.0,
            rack,
            unit
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() > 0)
    }
}
