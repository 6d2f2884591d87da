//! Inventories as they arrive: what a machine is made of, which aliases it has, what it turns out to be.

use lifecycle::Observed;
use lifecycle::placement::is_locally_administered;
use protocol::NodeId;
use protocol::latest::Inventory;

use crate::adopt::adopt;
use crate::error::to_json;
use crate::nodes::{StepTaken, step_node};
use crate::placement::nics_write;
use crate::{Store, StoreError};

/// What an inventory came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InventoryTaken {
    /// The step that followed.
    pub step: StepTaken,
    /// Aliases that belong to another node already and stay there, a sentence each.
    pub foreign: Vec<String>,
    /// Records that turned out to be the same machine, a sentence each.
    pub adopted: Vec<String>,
}

impl Store {
    /// Keeps an inventory, takes over what else is known of the machine, adds its MACs and identity as aliases, and
    /// takes the step that follows.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn node_set_inventory(
        &self,
        node: NodeId,
        inventory: &Inventory,
        aliases: &[(&str, String)],
    ) -> Result<InventoryTaken, StoreError> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query!(
            "UPDATE nodes SET inventory = $2, inventory_at = now() WHERE id = $1",
            node.0,
            to_json(inventory)
        )
        .execute(&mut *transaction)
        .await?;
        let adopted = adopt(&mut transaction, node, aliases).await?;
        let boots = |mac: &str| {
            inventory
                .nics
                .iter()
                .any(|nic| nic.boot && nic.mac.eq_ignore_ascii_case(mac))
        };
        let mut foreign = Vec::new();
        for (kind, value) in aliases {
            let owner = sqlx::query_scalar!(
                "INSERT INTO node_aliases (kind, value, node_id) VALUES ($1, $2, $3)
                 ON CONFLICT (kind, value) DO UPDATE SET kind = excluded.kind RETURNING node_id",
                kind,
                value,
                node.0
            )
            .fetch_one(&mut *transaction)
            .await?;
            // A MAC that somebody made up, and nobody boots from, may be in many machines.
            let is_shared = *kind == "mac" && is_locally_administered(value) && !boots(value);
            if owner != node.0 && !is_shared {
                foreign.push(format!("{kind} {value} belongs to node {owner}"));
            }
        }
        nics_write(&mut transaction, node, inventory).await?;
        let step = step_node(&mut transaction, node, &Observed::Inventoried).await?;
        transaction.commit().await?;
        Ok(InventoryTaken { step, foreign, adopted })
    }
}
