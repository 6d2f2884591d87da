//! Certificates the appliance's CA has issued.

use protocol::NodeId;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{Store, StoreError};

/// Who a certificate speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRecord {
    /// The node.
    pub node_id: NodeId,
    /// `ramdisk` (one boot of the deployer) or `agent`.
    pub purpose: String,
    /// The token it was issued for, for `ramdisk`.
    pub token_id: Option<Uuid>,
}

impl Store {
    /// Records a certificate. A new one for a boot of the deployer ends the ones of earlier boots.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn certificate_record(
        &self,
        fingerprint: &[u8],
        certificate: &CertificateRecord,
        not_after: OffsetDateTime,
    ) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        if certificate.purpose == "ramdisk" {
            sqlx::query!(
                "UPDATE certificates SET revoked_at = now()
                 WHERE node_id = $1 AND purpose = 'ramdisk' AND revoked_at IS NULL",
                certificate.node_id.0
            )
            .execute(&mut *transaction)
            .await?;
        }
        sqlx::query!(
            "INSERT INTO certificates (fingerprint, node_id, purpose, token_id, not_after)
             VALUES ($1, $2, $3, $4, $5)",
            fingerprint,
            certificate.node_id.0,
            certificate.purpose,
            certificate.token_id,
            not_after
        )
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Who a certificate speaks for, while it is neither revoked nor expired.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn certificate_find(&self, fingerprint: &[u8]) -> Result<Option<CertificateRecord>, StoreError> {
        let row = sqlx::query!(
            "SELECT node_id, purpose, token_id FROM certificates
             WHERE fingerprint = $1 AND revoked_at IS NULL AND not_after > now()",
            fingerprint
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|row| CertificateRecord {
            node_id: NodeId(row.node_id),
            purpose: row.purpose,
            token_id: row.token_id,
        }))
    }
}
