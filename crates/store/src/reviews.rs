//! What people decide about findings: acknowledgements, waivers, acceptances.

use manifest::Digest;
use protocol::ReviewId;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::audit::{NewAudit, insert_audit};
use crate::error::digest;
use crate::{Store, StoreError};

/// What is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReviewKind {
    /// Somebody has seen it and works on it; it stays drift.
    Acknowledgement,
    /// Allowed until an instant.
    Waiver,
    /// Expected from now on.
    Acceptance,
}

impl ReviewKind {
    /// The name used everywhere outside this code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acknowledgement => "acknowledgement",
            Self::Waiver => "waiver",
            Self::Acceptance => "acceptance",
        }
    }

    fn parse(name: &str) -> Result<Self, StoreError> {
        [Self::Acknowledgement, Self::Waiver, Self::Acceptance]
            .into_iter()
            .find(|kind| kind.as_str() == name)
            .ok_or_else(|| StoreError::Stored {
                what: "review kind",
                value: name.to_owned(),
            })
    }
}

/// Where it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReviewScope {
    /// On one node.
    Node,
    /// On all nodes of a node group.
    Group,
    /// On all nodes.
    Everywhere,
}

impl ReviewScope {
    /// The name used everywhere outside this code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Group => "group",
            Self::Everywhere => "everywhere",
        }
    }

    fn parse(name: &str) -> Result<Self, StoreError> {
        [Self::Node, Self::Group, Self::Everywhere]
            .into_iter()
            .find(|scope| scope.as_str() == name)
            .ok_or_else(|| StoreError::Stored {
                what: "review scope",
                value: name.to_owned(),
            })
    }
}

/// A decision to keep.
#[derive(Clone, Debug)]
pub struct NewReview {
    /// What is decided.
    pub kind: ReviewKind,
    /// Finding group.
    pub group: Digest,
    /// One variant of it; none: all of them.
    pub variant: Option<Digest>,
    /// Where it holds.
    pub scope: ReviewScope,
    /// Node id or node group; empty for everywhere.
    pub scope_value: String,
    /// Why.
    pub reason: String,
    /// Who.
    pub made_by: String,
    /// Until when, of a waiver.
    pub expires_at: Option<OffsetDateTime>,
}

/// A decision as people see it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ReviewRecord {
    /// Id.
    pub id: ReviewId,
    /// What is decided.
    pub kind: ReviewKind,
    /// Finding group.
    #[schema(value_type = String)]
    pub group: Digest,
    /// One variant of it; none: all of them.
    #[schema(value_type = Option<String>)]
    pub variant: Option<Digest>,
    /// Kind of the thing that differs.
    pub finding_kind: String,
    /// Which one.
    pub finding_key: String,
    /// Where it holds.
    pub scope: ReviewScope,
    /// Node (its name where it has one) or node group; empty for everywhere.
    pub scope_value: String,
    /// Why.
    pub reason: String,
    /// Who.
    pub made_by: String,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub made_at: OffsetDateTime,
    /// Until when, of a waiver.
    #[serde(with = "time::serde::rfc3339::option")]
    pub expires_at: Option<OffsetDateTime>,
    /// When somebody took it back.
    #[serde(with = "time::serde::rfc3339::option")]
    pub ended_at: Option<OffsetDateTime>,
    /// Who took it back.
    pub ended_by: Option<String>,
    /// Whether it holds now.
    pub in_force: bool,
    /// Findings it is about now.
    pub findings: i64,
}

struct ReviewRow {
    id: Uuid,
    kind: String,
    group_hash: Vec<u8>,
    variant_hash: Option<Vec<u8>>,
    finding_kind: String,
    finding_key: String,
    scope: String,
    scope_value: String,
    reason: String,
    made_by: String,
    made_at: OffsetDateTime,
    expires_at: Option<OffsetDateTime>,
    ended_at: Option<OffsetDateTime>,
    ended_by: Option<String>,
    in_force: bool,
    findings: i64,
}

impl TryFrom<ReviewRow> for ReviewRecord {
    type Error = StoreError;

    fn try_from(row: ReviewRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: ReviewId(row.id),
            kind: ReviewKind::parse(&row.kind)?,
            group: digest(&row.group_hash)?,
            variant: row.variant_hash.as_deref().map(digest).transpose()?,
            finding_kind: row.finding_kind,
            finding_key: row.finding_key,
            scope: ReviewScope::parse(&row.scope)?,
            scope_value: row.scope_value,
            reason: row.reason,
            made_by: row.made_by,
            made_at: row.made_at,
            expires_at: row.expires_at,
            ended_at: row.ended_at,
            ended_by: row.ended_by,
            in_force: row.in_force,
            findings: row.findings,
        })
    }
}

impl Store {
    /// Keeps a decision about findings that are there now.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] when no node has such a finding.
    pub async fn review_create(&self, new: &NewReview) -> Result<ReviewId, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let finding = sqlx::query!(
            "SELECT kind, key FROM findings WHERE group_hash = $1 AND ($2::bytea IS NULL OR variant_hash = $2) LIMIT 1",
            new.group.as_bytes().as_slice(),
            new.variant.as_ref().map(|variant| variant.as_bytes().as_slice())
        )
        .fetch_optional(&mut *transaction)
        .await?
        .ok_or_else(|| StoreError::not_found("finding", new.group))?;
        let id = ReviewId::new();
        sqlx::query!(
            "INSERT INTO reviews (id, kind, group_hash, variant_hash, finding_kind, finding_key, scope, scope_value,
                                  reason, made_by, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
            id.0,
            new.kind.as_str(),
            new.group.as_bytes().as_slice(),
            new.variant.as_ref().map(|variant| variant.as_bytes().as_slice()),
            finding.kind,
            finding.key,
            new.scope.as_str(),
            new.scope_value,
            new.reason,
            new.made_by,
            new.expires_at
        )
        .execute(&mut *transaction)
        .await?;
        let place = [new.scope.as_str(), new.scope_value.as_str()].join(" ");
        let detail = format!("{}: {}", place.trim_end(), new.reason);
        let audit = NewAudit {
            actor: &new.made_by,
            action: new.kind.as_str(),
            object: &format!("{} {}", finding.kind, finding.key),
            detail: &detail,
        };
        insert_audit(&mut transaction, &audit).await?;
        transaction.commit().await?;
        Ok(id)
    }

    /// Takes a decision back. Told twice, the second time changes nothing.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn review_end(&self, id: ReviewId, ended_by: &str) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        let review = sqlx::query!(
            "SELECT kind, finding_kind, finding_key, ended_at FROM reviews WHERE id = $1 FOR UPDATE",
            id.0
        )
        .fetch_optional(&mut *transaction)
        .await?
        .ok_or_else(|| StoreError::not_found("review", id))?;
        if review.ended_at.is_some() {
            return Ok(());
        }
        sqlx::query!(
            "UPDATE reviews SET ended_at = now(), ended_by = $2 WHERE id = $1",
            id.0,
            ended_by
        )
        .execute(&mut *transaction)
        .await?;
        let audit = NewAudit {
            actor: ended_by,
            action: "review_ended",
            object: &format!("{} {}", review.finding_kind, review.finding_key),
            detail: &format!("{} {id}", review.kind),
        };
        insert_audit(&mut transaction, &audit).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Decisions, newest first: those in force, or all; of one finding group, or of any. At most 5,000.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn review_list(&self, group: Option<Digest>, all: bool) -> Result<Vec<ReviewRecord>, StoreError> {
        sqlx::query_as!(
            ReviewRow,
            r#"SELECT r.id, r.kind, r.group_hash, r.variant_hash, r.finding_kind, r.finding_key, r.scope,
                 coalesce((SELECT n.name FROM nodes n WHERE r.scope = 'node' AND n.id::text = r.scope_value),
                          r.scope_value) AS "scope_value!",
                 r.reason, r.made_by, r.made_at, r.expires_at, r.ended_at, r.ended_by,
                 (r.ended_at IS NULL AND (r.expires_at IS NULL OR r.expires_at > now())) AS "in_force!",
                 (SELECT count(*) FROM judged_findings f WHERE f.review_id = r.id) AS "findings!"
               FROM reviews r
               WHERE ($1::bytea IS NULL OR r.group_hash = $1)
                 AND ($2 OR (r.ended_at IS NULL AND (r.expires_at IS NULL OR r.expires_at > now())))
               ORDER BY r.made_at DESC LIMIT 5000"#,
            group.as_ref().map(|group| group.as_bytes().as_slice()),
            all
        )
        .fetch_all(&self.pool)
        .await?
        .into_iter()
        .map(TryInto::try_into)
        .collect()
    }
}
