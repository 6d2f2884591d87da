//! What is planned and seen of nodes, for comparing both.

use std::collections::HashMap;

use lifecycle::placement::{Evidence, NicSeen};
use lifecycle::plan::PlanLine;
use protocol::NodeId;
use protocol::latest::Inventory;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{Store, StoreError};

/// Other nodes looked at for one: a BMC's interface may be the same in all of them.
const RELATED_MAX: i64 = 200;

impl Store {
    /// Planned and seen facts of all nodes; or of one, and of those that share a MAC, serial, port or place with it (at
    /// most 200).
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn placement_evidence(&self, only: Option<NodeId>) -> Result<Vec<Evidence>, StoreError> {
        let ids = match only {
            Some(node) => Some(self.related(node).await?),
            None => None,
        };
        let rows = sqlx::query!(
            r#"SELECT n.id, coalesce(n.name, n.id::text) AS "label!", n.name, n.rack, n.unit, n.node_group,
                 n.inventory->'dmi'->>'serial' AS serial,
                 ARRAY(SELECT value FROM node_aliases a WHERE a.node_id = n.id AND a.kind = 'serial' ORDER BY value)
                   AS "serials!",
                 p.node_id AS "planned?", p.rack AS "plan_rack?", p.unit AS "plan_unit?", p.serial AS "plan_serial?",
                 p.mac AS "plan_mac?", p.bmc_address AS "bmc_address?", p.switch_port AS "switch_port?"
               FROM nodes n LEFT JOIN rack_plan p ON p.node_id = n.id
               WHERE $1::uuid[] IS NULL OR n.id = ANY($1)
               LIMIT 20000"#,
            ids.as_deref()
        )
        .fetch_all(&self.pool)
        .await?;
        let mut nics = self.nics(ids.as_deref()).await?;
        let evidence = rows.into_iter().map(|row| {
            // What the firmware's makers left in is no serial; only those that became an alias are.
            let serial = row
                .serial
                .filter(|serial| row.serials.iter().any(|alias| alias == serial.trim()));
            Evidence {
                node: NodeId(row.id),
                label: row.label,
                plan: row.planned.map(|_| PlanLine {
                    rack: row.plan_rack,
                    unit: row.plan_unit,
                    serial: row.plan_serial,
                    mac: row.plan_mac,
                    bmc_address: row.bmc_address,
                    name: row.name,
                    group: Some(row.node_group),
                    switch_port: row.switch_port,
                }),
                rack: row.rack,
                unit: row.unit,
                serial,
                serials: row.serials,
                nics: nics.remove(&row.id).unwrap_or_default(),
            }
        });
        Ok(evidence.collect())
    }

    async fn related(&self, node: NodeId) -> Result<Vec<Uuid>, StoreError> {
        let mut ids = sqlx::query_scalar!(
            r#"WITH own AS (SELECT mac, switch_port FROM node_nics WHERE node_id = $1)
               SELECT node_id AS "id!" FROM rack_plan
               WHERE mac IN (SELECT mac FROM own) OR lower(switch_port) IN (SELECT lower(switch_port) FROM own)
                  OR lower(serial) IN (SELECT lower(value) FROM node_aliases WHERE node_id = $1 AND kind = 'serial')
                  OR (rack, unit) IN (SELECT rack, unit FROM nodes WHERE id = $1)
               UNION SELECT node_id FROM (SELECT node_id FROM node_nics WHERE mac IN (SELECT mac FROM own) LIMIT $2) s
               LIMIT $2"#,
            node.0,
            RELATED_MAX
        )
        .fetch_all(&self.pool)
        .await?;
        ids.push(node.0);
        Ok(ids)
    }

    async fn nics(&self, ids: Option<&[Uuid]>) -> Result<HashMap<Uuid, Vec<NicSeen>>, StoreError> {
        let rows = sqlx::query!(
            "SELECT node_id, mac, name, driver, is_boot, switch_port FROM node_nics
             WHERE $1::uuid[] IS NULL OR node_id = ANY($1) ORDER BY node_id, name",
            ids
        )
        .fetch_all(&self.pool)
        .await?;
        let mut nics: HashMap<Uuid, Vec<NicSeen>> = HashMap::new();
        for row in rows {
            nics.entry(row.node_id).or_default().push(NicSeen {
                mac: row.mac,
                name: row.name,
                driver: row.driver,
                is_boot: row.is_boot,
                switch_port: row.switch_port,
            });
        }
        Ok(nics)
    }
}

/// Replaces the interfaces of a node by those of its inventory, inside somebody's transaction.
pub(crate) async fn nics_write(
    connection: &mut PgConnection,
    node: NodeId,
    inventory: &Inventory,
) -> Result<(), StoreError> {
    let mut nics: Vec<_> = inventory.nics.iter().collect();
    nics.sort_by_key(|nic| (nic.mac.to_lowercase(), !nic.boot));
    nics.dedup_by_key(|nic| nic.mac.to_lowercase());
    let macs: Vec<String> = nics.iter().map(|nic| nic.mac.to_lowercase()).collect();
    let names: Vec<String> = nics.iter().map(|nic| nic.name.clone()).collect();
    let drivers: Vec<Option<String>> = nics.iter().map(|nic| nic.driver.clone()).collect();
    let boots: Vec<bool> = nics.iter().map(|nic| nic.boot).collect();
    let ports: Vec<Option<String>> = nics
        .iter()
        .map(|nic| nic.lldp.as_ref().map(protocol::latest::Neighbour::switch_port))
        .collect();
    sqlx::query!("DELETE FROM node_nics WHERE node_id = $1", node.0)
        .execute(&mut *connection)
        .await?;
    sqlx::query!(
        "INSERT INTO node_nics (node_id, mac, name, driver, is_boot, switch_port)
         SELECT $1, * FROM unnest($2::text[], $3::text[], $4::text[], $5::bool[], $6::text[])",
        node.0,
        &macs,
        &names,
        &drivers as &[Option<String>],
        &boots,
        &ports as &[Option<String>]
    )
    .execute(connection)
    .await?;
    Ok(())
}
