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

    /// The nodes whose baseline has this image or agent layer, by name, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn node_list_of_image(
        &self,
        image: Digest,
        limit: i64,
    ) -> Result<Vec<(NodeId, Option<String>)>, StoreError> {
        let rows = sqlx::query!(
            "SELECT n.id, n.name FROM baselines b JOIN nodes n ON n.id = b.node_id
             WHERE b.image = $1 OR b.agent_layer = $1 ORDER BY n.name, n.id LIMIT $2",
            image.as_bytes().as_slice(),
            limit
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows.into_iter().map(|row| (NodeId(row.id), row.name)).collect())
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
