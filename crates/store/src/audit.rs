//! Who decided what.

use serde::Serialize;
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::{Store, StoreError};

/// Something a person decided, or that was done in a person's name.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct AuditEvent {
    /// Counts up.
    pub id: i64,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// Who.
    pub actor: String,
    /// What was done, one word.
    pub action: String,
    /// To what.
    pub object: String,
    /// How, and why.
    pub detail: String,
}

/// A new entry.
#[derive(Clone, Copy, Debug)]
pub struct NewAudit<'a> {
    /// Who.
    pub actor: &'a str,
    /// What was done, one word.
    pub action: &'a str,
    /// To what.
    pub object: &'a str,
    /// How, and why.
    pub detail: &'a str,
}

/// Keeps an entry inside somebody's transaction: a decision and its record are one.
pub(crate) async fn insert_audit(connection: &mut PgConnection, new: &NewAudit<'_>) -> Result<(), StoreError> {
    sqlx::query!(
        "INSERT INTO audit_events (actor, action, object, detail) VALUES ($1, $2, $3, $4)",
        new.actor,
        new.action,
        new.object,
        new.detail
    )
    .execute(connection)
    .await?;
    Ok(())
}

impl Store {
    /// Keeps an entry that belongs to no other change.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn audit_add(&self, actor: &str, action: &str, object: &str, detail: &str) -> Result<(), StoreError> {
        let mut connection = self.pool.acquire().await?;
        let new = NewAudit {
            actor,
            action,
            object,
            detail,
        };
        insert_audit(&mut connection, &new).await
    }

    /// The newest entries, newest first; those before `before`, if given.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn audit_list(&self, before: Option<i64>, limit: i64) -> Result<Vec<AuditEvent>, StoreError> {
        Ok(sqlx::query_as!(
            AuditEvent,
            "SELECT id, at, actor, action, object, detail FROM audit_events
             WHERE $1::bigint IS NULL OR id < $1 ORDER BY id DESC LIMIT $2",
            before,
            limit
        )
        .fetch_all(&self.pool)
        .await?)
    }
}
