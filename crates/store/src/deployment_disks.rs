//! What deployments know of disks: the filesystems that a node was given, and what became of what was there.

use protocol::latest::{DeployMode, DiskWork};
use protocol::{DeploymentId, NodeId};
use uuid::Uuid;

use crate::{Store, StoreError};

impl Store {
    /// The root filesystems that a node was given, by its newest deployments, the newest first; at most `count`.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn deployment_roots(&self, node: NodeId, count: usize) -> Result<Vec<Uuid>, StoreError> {
        let mut roots: Vec<Uuid> = Vec::new();
        for deployment in self.deployment_list(node).await? {
            let root = deployment.layout.root_uuid;
            if !roots.contains(&root) && roots.len() < count {
                roots.push(root);
            }
        }
        Ok(roots)
    }

    /// Keeps which root filesystem a deployment has, when it is an older one's.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn deployment_set_root(&self, id: DeploymentId, root: Uuid) -> Result<(), StoreError> {
        sqlx::query!(
            "UPDATE deployments SET layout = jsonb_set(layout, '{root_uuid}', to_jsonb($2::text)) WHERE id = $1",
            id.0,
            root.to_string()
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}

/// What an installation came to, for people.
pub(crate) fn installed_text(files: u64, bytes: u64, work: Option<&DiskWork>) -> String {
    let total = format!("{files} files, {bytes} bytes written and checked");
    let Some(work) = work else { return total };
    let DiskWork {
        bytes_fetched: fetched,
        files_kept: kept,
        files_written: written,
        files_removed: removed,
        reason,
        ..
    } = work;
    match work.mode {
        DeployMode::Wipe => format!("{total}, {fetched} bytes fetched; the disk was wiped: {reason}"),
        DeployMode::InPlace => format!(
            "{total}, {fetched} bytes fetched; in place: {kept} files of {} bytes kept, {written} written, {removed} removed",
            work.bytes_kept
        ),
    }
}
