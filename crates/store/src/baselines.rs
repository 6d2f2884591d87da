//! What each node should be.

use manifest::Digest;
use protocol::NodeId;
use protocol::latest::Baseline;

use crate::error::digest;
use crate::{Store, StoreError};

impl Store {
    /// A node's baseline; none before its first installation.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn baseline_find(&self, node: NodeId) -> Result<Option<Baseline>, StoreError> {
        let row = sqlx::query!(
            "SELECT image, agent_layer, overlay, digest FROM baselines WHERE node_id = $1",
            node.0
        )
        .fetch_optional(&self.pool)
        .await?;
        row.map(|row| {
            Ok(Baseline {
                node_id: node,
                image: digest(&row.image)?,
                agent_layer: digest(&row.agent_layer)?,
                overlay: digest(&row.overlay)?,
                digest: digest(&row.digest)?,
            })
        })
        .transpose()
    }

    /// A rendered overlay's canonical text.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn overlay_find(&self, overlay: Digest) -> Result<Option<String>, StoreError> {
        let text = sqlx::query_scalar!(
            "SELECT manifest FROM overlays WHERE digest = $1",
            overlay.as_bytes().as_slice()
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(text)
    }
}
