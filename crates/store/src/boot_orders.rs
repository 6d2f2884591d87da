//! What people want nodes to boot, once; and running nodes that are to restart into the network.

use lifecycle::BootOrder;
use protocol::NodeId;
use protocol::latest::TestOrder;
use serde::Serialize;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::audit::{NewAudit, insert_audit};
use crate::error::{json, to_json};
use crate::nodes::lock_node;
use crate::{Store, StoreError};

/// An order as it stands.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct BootOrderRecord {
    /// What it is to boot.
    #[schema(value_type = String, example = "rescue")]
    pub kind: BootOrder,
    /// Why, for whoever wonders.
    pub reason: String,
    /// Who ordered it.
    pub ordered_by: String,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub ordered_at: OffsetDateTime,
    /// Who may sign in to the rescue system: one line of an authorized_keys file.
    pub authorized_key: Option<String>,
    /// Tests to run; none given: those of the configuration.
    pub tests: Option<Vec<TestOrder>>,
    /// The boot that carries it out: its token.
    #[serde(skip)]
    pub token_id: Option<Uuid>,
    /// Where the rescue system is, once it is up.
    pub address: Option<String>,
    /// The key that the rescue system shows, once it is up.
    pub ssh_host_key: Option<String>,
}

/// A restart as it stands.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct RestartRecord {
    /// Its id: an agent does it once.
    pub id: Uuid,
    /// Who ordered it.
    pub ordered_by: String,
    /// When.
    #[serde(with = "time::serde::rfc3339")]
    pub ordered_at: OffsetDateTime,
    /// What the agent said of it.
    pub answer: Option<String>,
}

/// A new order.
#[derive(Clone, Copy, Debug)]
pub struct NewBootOrder<'a> {
    /// What it is to boot.
    pub kind: BootOrder,
    /// Why.
    pub reason: &'a str,
    /// Who orders it.
    pub ordered_by: &'a str,
    /// Who may sign in to the rescue system.
    pub authorized_key: Option<&'a str>,
    /// Tests to run.
    pub tests: Option<&'a [TestOrder]>,
}

struct OrderRow {
    kind: String,
    reason: String,
    ordered_by: String,
    ordered_at: OffsetDateTime,
    authorized_key: Option<String>,
    tests: Option<serde_json::Value>,
    token_id: Option<Uuid>,
    address: Option<String>,
    ssh_host_key: Option<String>,
}

impl Store {
    /// A node's order.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn boot_order_find(&self, node: NodeId) -> Result<Option<BootOrderRecord>, StoreError> {
        let row = sqlx::query_as!(
            OrderRow,
            "SELECT kind, reason, ordered_by, ordered_at, authorized_key, tests, token_id, address, ssh_host_key
             FROM boot_orders WHERE node_id = $1",
            node.0
        )
        .fetch_optional(&self.pool)
        .await?;
        row.map(|row| {
            Ok(BootOrderRecord {
                kind: BootOrder::parse(&row.kind).ok_or_else(|| StoreError::Stored {
                    what: "boot order",
                    value: row.kind.clone(),
                })?,
                reason: row.reason,
                ordered_by: row.ordered_by,
                ordered_at: row.ordered_at,
                authorized_key: row.authorized_key,
                tests: row.tests.map(|tests| json("tests", tests)).transpose()?,
                token_id: row.token_id,
                address: row.address,
                ssh_host_key: row.ssh_host_key,
            })
        })
        .transpose()
    }

    /// Orders what a node boots next; an earlier order is replaced.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for no such node.
    pub async fn boot_order_set(&self, node: NodeId, new: &NewBootOrder<'_>) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        let name = lock_node(&mut transaction, node).await?;
        sqlx::query!("DELETE FROM boot_orders WHERE node_id = $1", node.0)
            .execute(&mut *transaction)
            .await?;
        sqlx::query!(
            "INSERT INTO boot_orders (node_id, kind, reason, ordered_by, authorized_key, tests)
             VALUES ($1, $2, $3, $4, $5, $6)",
            node.0,
            new.kind.as_str(),
            new.reason,
            new.ordered_by,
            new.authorized_key,
            new.tests.map(|tests| to_json(&tests))
        )
        .execute(&mut *transaction)
        .await?;
        let audit = NewAudit {
            actor: new.ordered_by,
            action: "boot_ordered",
            object: &name,
            detail: &format!("{}: {}", new.kind.as_str(), new.reason),
        };
        insert_audit(&mut transaction, &audit).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Lifts a node's order, or with `token` only the one which that boot carries out; `false` when there was none.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn boot_order_lift(&self, node: NodeId, token: Option<Uuid>, by: &str) -> Result<bool, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let name = lock_node(&mut transaction, node).await?;
        let kind = sqlx::query_scalar!(
            "DELETE FROM boot_orders WHERE node_id = $1 AND ($2::uuid IS NULL OR token_id = $2) RETURNING kind",
            node.0,
            token
        )
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(kind) = kind else { return Ok(false) };
        let audit = NewAudit {
            actor: by,
            action: "boot_order_lifted",
            object: &name,
            detail: &kind,
        };
        insert_audit(&mut transaction, &audit).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Gives an order that no boot has taken yet to the boot with this token; whether it is this boot's now.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn boot_order_take(&self, node: NodeId, token: Uuid) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            "UPDATE boot_orders SET token_id = $2 WHERE node_id = $1 AND (token_id IS NULL OR token_id = $2)",
            node.0,
            token
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// Where the rescue system of a boot is, and the key it shows; `false` when the order is another boot's.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn boot_order_up(
        &self,
        node: NodeId,
        token: Uuid,
        address: &str,
        host_key: &str,
    ) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            "UPDATE boot_orders SET address = $3, ssh_host_key = $4 WHERE node_id = $1 AND token_id = $2",
            node.0,
            token,
            address,
            host_key
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// The restart that a node's agent is to do; one that was ordered more than half an hour ago is void: nobody expects
    /// it any more.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn restart_find(&self, node: NodeId) -> Result<Option<RestartRecord>, StoreError> {
        Ok(sqlx::query_as!(
            RestartRecord,
            "SELECT id, ordered_by, ordered_at, answer FROM restart_orders
             WHERE node_id = $1 AND ordered_at > now() - interval '30 minutes'",
            node.0
        )
        .fetch_optional(&self.pool)
        .await?)
    }

    /// Orders a running node to restart into the network.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn restart_order(&self, node: NodeId, ordered_by: &str) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        let name = lock_node(&mut transaction, node).await?;
        sqlx::query!(
            "INSERT INTO restart_orders (node_id, id, ordered_by) VALUES ($1, $2, $3)
             ON CONFLICT (node_id) DO UPDATE SET id = excluded.id, ordered_by = excluded.ordered_by,
               ordered_at = now(), answer = NULL",
            node.0,
            Uuid::new_v4(),
            ordered_by
        )
        .execute(&mut *transaction)
        .await?;
        let audit = NewAudit {
            actor: ordered_by,
            action: "restart_ordered",
            object: &name,
            detail: "into the network",
        };
        insert_audit(&mut transaction, &audit).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// What the agent said of a restart; `false` when that was known already, or the restart is another.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn restart_answer(&self, node: NodeId, id: Uuid, answer: &str) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            "UPDATE restart_orders SET answer = $3 WHERE node_id = $1 AND id = $2 AND answer IS DISTINCT FROM $3",
            node.0,
            id,
            answer
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }

    /// The node came to the network: its restart is done.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn restart_done(&self, node: NodeId) -> Result<(), StoreError> {
        sqlx::query!("DELETE FROM restart_orders WHERE node_id = $1", node.0)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}
