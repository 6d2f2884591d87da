//! Findings as people review them: by group, then by variant, then by node.

use drift::Attributes;
use manifest::Digest;
use protocol::NodeId;
use serde::Serialize;
use time::OffsetDateTime;

use crate::error::{digest, json};
use crate::{Store, StoreError};

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
}

/// One finding of one node.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct FindingOnNode {
    /// Group hash.
    #[schema(value_type = String)]
    pub group: Digest,
    /// Kind of thing.
    pub kind: String,
    /// Which one.
    pub key: String,
    /// Severity.
    pub severity: String,
    /// As it should be.
    #[schema(value_type = Option<Object>)]
    pub expected: Option<Attributes>,
    /// As it is.
    #[schema(value_type = Option<Object>)]
    pub actual: Option<Attributes>,
    /// Since when.
    #[serde(with = "time::serde::rfc3339")]
    pub opened_at: OffsetDateTime,
}

impl Store {
    /// All groups, gravest and widest first.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn finding_group_list(&self) -> Result<Vec<FindingGroup>, StoreError> {
        let rows = sqlx::query!(
            r#"SELECT group_hash, min(kind) AS "kind!", min(key) AS "key!",
                 (array_agg(severity ORDER BY array_position(ARRAY['critical','high','medium','low','info'], severity)))[1]
                   AS "severity!",
                 count(*) AS "nodes!", count(DISTINCT variant_hash) AS "variants!", min(opened_at) AS "first_at!"
               FROM findings GROUP BY group_hash
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
            r#"SELECT variant_hash, (array_agg(expected))[1] AS expected, (array_agg(actual))[1] AS actual,
                 (array_agg(coalesce(n.name, n.id::text) ORDER BY n.name))[1:1000] AS "nodes!", count(*) AS "node_count!"
               FROM findings f JOIN nodes n ON n.id = f.node_id
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
                })
            })
            .collect()
    }

    /// A node's findings.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn finding_list(&self, node: NodeId) -> Result<Vec<FindingOnNode>, StoreError> {
        let rows = sqlx::query!(
            "SELECT group_hash, kind, key, severity, expected, actual, opened_at FROM findings
             WHERE node_id = $1 ORDER BY kind, key LIMIT 50000",
            node.0
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(FindingOnNode {
                    group: digest(&row.group_hash)?,
                    kind: row.kind,
                    key: row.key,
                    severity: row.severity,
                    expected: row.expected.map(|value| json("expected", value)).transpose()?,
                    actual: row.actual.map(|value| json("actual", value)).transpose()?,
                    opened_at: row.opened_at,
                })
            })
            .collect()
    }
}
