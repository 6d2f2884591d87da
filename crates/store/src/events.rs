//! Boot events: what each node was seen to do.

use protocol::NodeId;
use serde::Serialize;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{Store, StoreError};

/// Most events one request returns.
const EVENTS_MAX: i64 = 2_000;

/// One thing a node was seen to do.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct BootEvent {
    /// Ascending; ask for events after it.
    pub id: i64,
    /// The node, if it has a record.
    #[schema(value_type = Option<String>)]
    pub node_id: Option<Uuid>,
    /// The MAC it was seen with.
    pub mac: Option<String>,
    /// When the server saw it.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// What: `dhcp`, `tftp`, `script`, `claimed`, `stage`, ….
    pub kind: String,
    /// For people.
    pub detail: String,
}

/// An event to be kept.
#[derive(Clone, Debug)]
pub struct NewEvent<'a> {
    /// The node, if known; otherwise it is looked up by the MAC.
    pub node_id: Option<NodeId>,
    /// The MAC.
    pub mac: Option<&'a str>,
    /// What.
    pub kind: &'a str,
    /// For people; cut to 1,000 characters.
    pub detail: &'a str,
}

impl Store {
    /// Keeps an event.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn event_add(&self, event: NewEvent<'_>) -> Result<(), StoreError> {
        // PostgreSQL's text holds no NUL, and nobody reads more.
        let detail: String = event.detail.chars().filter(|c| *c != '\0').take(1_000).collect();
        sqlx::query!(
            "INSERT INTO boot_events (node_id, mac, kind, detail)
             VALUES (coalesce($1, (SELECT node_id FROM node_aliases WHERE kind = 'mac' AND value = $2)), $2, $3, $4)",
            event.node_id.map(|id| id.0),
            event.mac,
            event.kind,
            detail
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// A node's events after `after`, oldest first; with `after` 0 the newest ones.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn event_list(&self, node: NodeId, after: i64) -> Result<Vec<BootEvent>, StoreError> {
        Ok(sqlx::query_as!(
            BootEvent,
            r#"SELECT id AS "id!", node_id, mac, at AS "at!", kind AS "kind!", detail AS "detail!" FROM (
                 SELECT * FROM boot_events
                 WHERE id > $2 AND (node_id = $1
                    OR (node_id IS NULL AND mac IN
                        (SELECT value FROM node_aliases WHERE kind = 'mac' AND node_id = $1)))
                 ORDER BY id DESC LIMIT $3) newest
               ORDER BY id"#,
            node.0,
            after,
            EVENTS_MAX
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// What the newest event of this kind of a node says.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn event_newest(&self, node: NodeId, kind: &str) -> Result<Option<String>, StoreError> {
        Ok(sqlx::query_scalar!(
            "SELECT detail FROM boot_events WHERE node_id = $1 AND kind = $2 ORDER BY id DESC LIMIT 1",
            node.0,
            kind
        )
        .fetch_optional(&self.pool)
        .await?)
    }

    /// Drops events older than this many days.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn event_prune(&self, days: i32) -> Result<u64, StoreError> {
        let done = sqlx::query!(
            "DELETE FROM boot_events WHERE at < now() - make_interval(days => $1)",
            days
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected())
    }
}
