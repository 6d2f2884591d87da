//! Texts of files, kept once by digest: of rendered configuration, and of files in findings for their diff.

use manifest::Digest;
use protocol::NodeId;

use crate::{Store, StoreError};

impl Store {
    /// Keeps contents. What is `rendered` is needed for repair and never dropped by age.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn content_put(&self, contents: &[(Digest, &[u8])], rendered: bool) -> Result<(), StoreError> {
        let digests: Vec<Vec<u8>> = contents.iter().map(|(digest, _)| digest.as_bytes().to_vec()).collect();
        let bodies: Vec<Vec<u8>> = contents.iter().map(|(_, content)| content.to_vec()).collect();
        sqlx::query!(
            "INSERT INTO contents (digest, content, rendered)
             SELECT digest, content, $3 FROM unnest($1::bytea[], $2::bytea[]) AS new (digest, content)
             ON CONFLICT (digest) DO UPDATE SET rendered = contents.rendered OR excluded.rendered",
            &digests,
            &bodies,
            rendered
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// A content by its digest.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn content_find(&self, content: Digest) -> Result<Option<Vec<u8>>, StoreError> {
        let found = sqlx::query_scalar!(
            "SELECT content FROM contents WHERE digest = $1",
            content.as_bytes().as_slice()
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(found)
    }

    /// Those of these digests that are not kept.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn content_missing(&self, wanted: &[Digest]) -> Result<Vec<Digest>, StoreError> {
        let digests: Vec<Vec<u8>> = wanted.iter().map(|digest| digest.as_bytes().to_vec()).collect();
        let rows = sqlx::query_scalar!(
            r#"SELECT wanted AS "wanted!" FROM unnest($1::bytea[]) AS w (wanted)
               WHERE NOT EXISTS (SELECT 1 FROM contents c WHERE c.digest = wanted)"#,
            &digests
        )
        .fetch_all(&self.pool)
        .await?;
        rows.iter().map(|bytes| crate::error::digest(bytes)).collect()
    }

    /// Whether a finding of this node names this content as the actual one, and fewer than `kept_max` contents that its
    /// findings name are kept: a node that makes findings up must not fill the database.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn content_is_wanted(&self, node: NodeId, content: Digest, kept_max: i64) -> Result<bool, StoreError> {
        let wanted = sqlx::query_scalar!(
            r#"SELECT EXISTS (SELECT 1 FROM findings WHERE node_id = $1 AND actual->>'digest' = $2)
                 AND (SELECT count(*) FROM findings f JOIN contents c ON encode(c.digest, 'hex') = f.actual->>'digest'
                      WHERE f.node_id = $1) < $3 AS "wanted!""#,
            node.0,
            content.to_string(),
            kept_max
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(wanted)
    }

    /// Drops texts of files that no finding names any more, after `days`.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn content_prune(&self, days: i32) -> Result<u64, StoreError> {
        let done = sqlx::query!(
            "DELETE FROM contents c WHERE NOT c.rendered AND c.added_at < now() - make_interval(days => $1)
               AND NOT EXISTS (SELECT 1 FROM findings f WHERE f.actual->>'digest' = encode(c.digest, 'hex'))",
            days
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected())
    }
}
