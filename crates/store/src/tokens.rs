//! One-shot tokens of the deployer: the same when fetched again until claimed, bound to one key by the claim.

use protocol::{DeploymentId, NodeId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{Store, StoreError};

/// A token as it stands.
#[derive(Clone, Debug)]
pub struct BootToken {
    /// Id; the secret part is derived from it by the server's key and stored nowhere.
    pub id: Uuid,
    /// The node it is for.
    pub node_id: NodeId,
    /// The deployment, if it is for one.
    pub deployment_id: Option<DeploymentId>,
    /// Its attempt.
    pub attempt: Option<i32>,
    /// MAC the script was fetched for.
    pub mac: String,
    /// Address the script was last fetched from.
    pub peer: String,
    /// When the script was last fetched.
    pub fetched_at: OffsetDateTime,
    /// When it was claimed.
    pub claimed_at: Option<OffsetDateTime>,
    /// SHA-256 of the key that claimed it.
    pub claimed_key: Option<Vec<u8>>,
}

struct TokenRow {
    id: Uuid,
    node_id: Uuid,
    deployment_id: Option<Uuid>,
    attempt: Option<i32>,
    mac: String,
    peer: String,
    fetched_at: OffsetDateTime,
    claimed_at: Option<OffsetDateTime>,
    claimed_key: Option<Vec<u8>>,
}

impl From<TokenRow> for BootToken {
    fn from(row: TokenRow) -> Self {
        Self {
            id: row.id,
            node_id: NodeId(row.node_id),
            deployment_id: row.deployment_id.map(DeploymentId),
            attempt: row.attempt,
            mac: row.mac,
            peer: row.peer,
            fetched_at: row.fetched_at,
            claimed_at: row.claimed_at,
            claimed_key: row.claimed_key,
        }
    }
}

impl Store {
    /// The token for a boot of the deployer: the unclaimed one of this node and attempt, or a new one.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn token_issue(
        &self,
        node: NodeId,
        deployment: Option<(DeploymentId, i32)>,
        mac: &str,
        peer: &str,
    ) -> Result<Uuid, StoreError> {
        let (deployment, attempt) = deployment.map_or((None, None), |(id, attempt)| (Some(id.0), Some(attempt)));
        let mut transaction = self.pool.begin().await?;
        // The node's row is the lock: two fetches at once get one token.
        sqlx::query_scalar!("SELECT id FROM nodes WHERE id = $1 FOR UPDATE", node.0)
            .fetch_optional(&mut *transaction)
            .await?
            .ok_or_else(|| StoreError::not_found("node", node))?;
        let again = sqlx::query_scalar!(
            "UPDATE boot_tokens SET fetched_at = now(), mac = $4, peer = $5
             WHERE id = (SELECT id FROM boot_tokens WHERE node_id = $1 AND deployment_id IS NOT DISTINCT FROM $2
                           AND attempt IS NOT DISTINCT FROM $3 AND claimed_at IS NULL
                         ORDER BY created_at DESC LIMIT 1)
             RETURNING id",
            node.0,
            deployment,
            attempt,
            mac,
            peer
        )
        .fetch_optional(&mut *transaction)
        .await?;
        let id = match again {
            Some(id) => id,
            None => {
                let id = Uuid::new_v4();
                sqlx::query!(
                    "INSERT INTO boot_tokens (id, node_id, deployment_id, attempt, mac, peer)
                     VALUES ($1, $2, $3, $4, $5, $6)",
                    id,
                    node.0,
                    deployment,
                    attempt,
                    mac,
                    peer
                )
                .execute(&mut *transaction)
                .await?;
                id
            }
        };
        transaction.commit().await?;
        Ok(id)
    }

    /// One token.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn token_get(&self, id: Uuid) -> Result<BootToken, StoreError> {
        let row = sqlx::query_as!(
            TokenRow,
            "SELECT id, node_id, deployment_id, attempt, mac, peer, fetched_at, claimed_at, claimed_key
             FROM boot_tokens WHERE id = $1",
            id
        )
        .fetch_optional(&self.pool)
        .await?;
        row.map(Into::into)
            .ok_or_else(|| StoreError::not_found("boot token", id))
    }

    /// The interface that a node last started a deployer from.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn token_newest_mac(&self, node: NodeId) -> Result<Option<String>, StoreError> {
        Ok(sqlx::query_scalar!(
            "SELECT mac FROM boot_tokens WHERE node_id = $1 ORDER BY fetched_at DESC LIMIT 1",
            node.0
        )
        .fetch_optional(&self.pool)
        .await?)
    }

    /// Whether this attempt's token was claimed.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn token_is_claimed(&self, deployment: DeploymentId, attempt: i32) -> Result<bool, StoreError> {
        Ok(sqlx::query_scalar!(
            r#"SELECT EXISTS (SELECT 1 FROM boot_tokens WHERE deployment_id = $1 AND attempt = $2
                              AND claimed_at IS NOT NULL) AS "claimed!""#,
            deployment.0,
            attempt
        )
        .fetch_one(&self.pool)
        .await?)
    }

    /// Binds a token to a key. `false` when another key has it; the same key may ask again (a lost answer).
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn token_claim(&self, id: Uuid, key: &[u8]) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            "UPDATE boot_tokens SET claimed_at = coalesce(claimed_at, now()), claimed_key = $2
             WHERE id = $1 AND (claimed_key IS NULL OR claimed_key = $2)",
            id,
            key
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected() == 1)
    }
}
