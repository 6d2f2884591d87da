//! Making one record of what turns out to be one machine.
//!
//! A machine is found by the MAC that asked first. When its inventory comes, other records may turn out to be the same
//! machine: a line of the rack plan that knew its serial or another of its MACs, and records of other interfaces that
//! asked while discovery was armed. Those records are empty (nothing was ever claimed, inventoried or installed under
//! them), so what they hold moves over and they go.
//!
//! Refused: merging records that both hold something. Two of them for one machine is for a person to look at, and so is
//! a machine whose serial and MAC belong to different lines of the plan.

use protocol::NodeId;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::StoreError;

/// An empty record of the same machine.
struct Empty {
    id: Uuid,
    name: Option<String>,
    node_group: String,
    is_planned: bool,
}

/// Takes over the empty records of the machine that `node` is. Returns what was done, a sentence each.
pub(crate) async fn adopt(
    connection: &mut PgConnection,
    node: NodeId,
    aliases: &[(&str, String)],
) -> Result<Vec<String>, StoreError> {
    let of = |wanted: &str| -> Vec<String> {
        let found = aliases.iter().filter(|(kind, _)| *kind == wanted);
        found.map(|(_, value)| value.clone()).collect()
    };
    let serial = of("serial").pop();
    let empty = sqlx::query_as!(
        Empty,
        r#"SELECT n.id, n.name, n.node_group, p.node_id IS NOT NULL AS "is_planned!"
           FROM nodes n LEFT JOIN rack_plan p ON p.node_id = n.id
           WHERE n.id <> $1 AND n.inventory_at IS NULL AND n.state IN ('listed', 'discovering')
             AND NOT EXISTS (SELECT 1 FROM deployments d WHERE d.node_id = n.id)
             AND NOT EXISTS (SELECT 1 FROM certificates c WHERE c.node_id = n.id)
             AND (EXISTS (SELECT 1 FROM node_aliases a
                          WHERE a.node_id = n.id AND a.kind = 'mac' AND a.value = ANY($2))
                  OR lower(p.serial) = lower($3))
           ORDER BY n.id FOR UPDATE OF n"#,
        node.0,
        &of("mac"),
        serial
    )
    .fetch_all(&mut *connection)
    .await?;
    let is_planned = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT 1 FROM rack_plan WHERE node_id = $1) AS "is_planned!""#,
        node.0
    )
    .fetch_one(&mut *connection)
    .await?;
    let lines = empty.iter().filter(|empty| empty.is_planned).count();
    let mut done = Vec::new();
    for one in &empty {
        let label = one.name.clone().unwrap_or_else(|| one.id.to_string());
        if one.is_planned && (is_planned || lines > 1) {
            done.push(format!(
                "its MAC or serial also belongs to {label} of the rack plan; nothing was merged"
            ));
            continue;
        }
        take_over(connection, node, one).await?;
        done.push(match one.is_planned {
            true => format!("it is {label} of the rack plan"),
            false => format!("record {label} was another interface of it"),
        });
    }
    Ok(done)
}

async fn take_over(connection: &mut PgConnection, node: NodeId, empty: &Empty) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE node_aliases SET node_id = $1 WHERE node_id = $2",
        node.0,
        empty.id
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "UPDATE boot_events SET node_id = $1 WHERE node_id = $2",
        node.0,
        empty.id
    )
    .execute(&mut *connection)
    .await?;
    // What people said of the record holds for the machine, as far as they said nothing else of it.
    sqlx::query!(
        "UPDATE nodes n SET chain = CASE WHEN n.chain = 'auto' THEN e.chain ELSE n.chain END,
           hold_reason = CASE WHEN n.hold_reason IS NULL THEN e.hold_reason ELSE n.hold_reason END,
           hold_by = CASE WHEN n.hold_reason IS NULL THEN e.hold_by ELSE n.hold_by END,
           hold_since = CASE WHEN n.hold_reason IS NULL THEN e.hold_since ELSE n.hold_since END
         FROM nodes e WHERE n.id = $1 AND e.id = $2",
        node.0,
        empty.id
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "UPDATE fixed_addresses SET node_id = $1
         WHERE node_id = $2 AND NOT EXISTS (SELECT 1 FROM fixed_addresses WHERE node_id = $1)",
        node.0,
        empty.id
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!(
        "UPDATE boot_orders SET node_id = $1
         WHERE node_id = $2 AND NOT EXISTS (SELECT 1 FROM boot_orders WHERE node_id = $1)",
        node.0,
        empty.id
    )
    .execute(&mut *connection)
    .await?;
    if empty.is_planned {
        sqlx::query!("UPDATE rack_plan SET node_id = $1 WHERE node_id = $2", node.0, empty.id)
            .execute(&mut *connection)
            .await?;
    }
    sqlx::query!("DELETE FROM nodes WHERE id = $1", empty.id)
        .execute(&mut *connection)
        .await?;
    if empty.is_planned {
        // A name that a person gave the machine meanwhile stays, and so does a place where it was found.
        sqlx::query!(
            "UPDATE nodes n SET name = coalesce(n.name, $2), node_group = $3,
               rack = coalesce(n.rack, p.rack), unit = CASE WHEN n.rack IS NULL THEN p.unit ELSE n.unit END
             FROM rack_plan p WHERE n.id = $1 AND p.node_id = n.id",
            node.0,
            empty.name,
            empty.node_group
        )
        .execute(connection)
        .await?;
    }
    Ok(())
}
