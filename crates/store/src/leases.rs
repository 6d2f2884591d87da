//! Addresses given out in DHCP mode `full`.

use protocol::NodeId;
use time::OffsetDateTime;

use crate::audit::{NewAudit, insert_audit};
use crate::nodes::lock_node;
use crate::{Store, StoreError};

/// An address and who has it.
#[derive(Clone, Debug, serde::Serialize, utoipa::ToSchema)]
pub struct Lease {
    /// IPv4 address.
    pub address: String,
    /// MAC.
    pub mac: String,
    /// When it ends.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

impl Store {
    /// The address this machine had last, expired or not: a node keeps its address from firmware to operating system.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn lease_find(&self, mac: &str) -> Result<Option<Lease>, StoreError> {
        Ok(
            sqlx::query_as!(Lease, "SELECT address, mac, expires_at FROM leases WHERE mac = $1", mac)
                .fetch_optional(&self.pool)
                .await?,
        )
    }

    /// Addresses that people gave nodes.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn fixed_address_list(&self) -> Result<Vec<String>, StoreError> {
        Ok(
            sqlx::query_scalar!("SELECT address FROM fixed_addresses ORDER BY address LIMIT 70000")
                .fetch_all(&self.pool)
                .await?,
        )
    }

    /// Whether somebody gave a node this address.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn fixed_address_is(&self, address: &str) -> Result<bool, StoreError> {
        Ok(sqlx::query_scalar!(
            r#"SELECT EXISTS (SELECT 1 FROM fixed_addresses WHERE address = $1) AS "is_fixed!""#,
            address
        )
        .fetch_one(&self.pool)
        .await?)
    }

    /// Gives a node a fixed address, or none.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when another node has it.
    pub async fn fixed_address_set(
        &self,
        node: NodeId,
        address: Option<&str>,
        changed_by: &str,
    ) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        let name = lock_node(&mut transaction, node).await?;
        sqlx::query!("DELETE FROM fixed_addresses WHERE node_id = $1", node.0)
            .execute(&mut *transaction)
            .await?;
        if let Some(address) = address {
            sqlx::query!(
                "INSERT INTO fixed_addresses (node_id, address) VALUES ($1, $2)",
                node.0,
                address
            )
            .execute(&mut *transaction)
            .await
            .map_err(|error| match StoreError::is_unique_violation(&error) {
                true => StoreError::Conflict(format!("{address} is another node's fixed address")),
                false => error.into(),
            })?;
        }
        let audit = NewAudit {
            actor: changed_by,
            action: "node_placed",
            object: &name,
            detail: &address.map_or_else(|| "no fixed address".to_owned(), |one| format!("fixed address {one}")),
        };
        insert_audit(&mut transaction, &audit).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Whose address this is or was last; none for one that was set aside.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn lease_find_by_address(&self, address: &str) -> Result<Option<Lease>, StoreError> {
        Ok(sqlx::query_as!(
            Lease,
            "SELECT address, mac, expires_at FROM leases WHERE address = $1 AND mac NOT LIKE 'declined %'",
            address
        )
        .fetch_optional(&self.pool)
        .await?)
    }

    /// All addresses that are taken.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn lease_list(&self) -> Result<Vec<Lease>, StoreError> {
        Ok(sqlx::query_as!(
            Lease,
            "SELECT address, mac, expires_at FROM leases ORDER BY expires_at LIMIT 70000"
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// Takes an address for a machine, or renews it; `false` when another machine holds it unexpired.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn lease_take(&self, address: &str, mac: &str, lease_secs: i64) -> Result<bool, StoreError> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query!(
            "DELETE FROM leases WHERE (address = $1 AND mac <> $2 AND expires_at < now())
                OR (mac = $2 AND address <> $1)",
            address,
            mac
        )
        .execute(&mut *transaction)
        .await?;
        let done = sqlx::query!(
            "INSERT INTO leases (address, mac, expires_at) VALUES ($1, $2, now() + make_interval(secs => $3))
             ON CONFLICT (address) DO UPDATE SET expires_at = excluded.expires_at WHERE leases.mac = excluded.mac",
            address,
            mac,
            lease_secs as f64
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(done.rows_affected() == 1)
    }

    /// Sets aside an address that a machine found in use by somebody else: nobody gets it for ten minutes.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn lease_decline(&self, mac: &str) -> Result<(), StoreError> {
        sqlx::query!(
            "UPDATE leases SET mac = 'declined ' || address, expires_at = now() + interval '10 minutes' WHERE mac = $1",
            mac
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Ends a machine's lease; the address stays reserved for it until somebody else needs it.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn lease_release(&self, mac: &str) -> Result<(), StoreError> {
        sqlx::query!("UPDATE leases SET expires_at = now() WHERE mac = $1", mac)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}
