//! The rack plan: which machine is to stand where.
//!
//! A line of the plan is a node's: it comes with the node's record and goes with it. Lines that name no MAC have a node
//! too, which nothing has been seen of; when a machine turns out to be it, the line moves to the machine's record
//! (`adopt.rs`) and the empty one goes.

use lifecycle::NodeState;
use lifecycle::plan::{self, Action, Column, ImportLine, LineOutcome, PlanLine, PlanProblem, Planned};
use protocol::NodeId;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::audit::{NewAudit, insert_audit};
use crate::nodes::insert_node;
use crate::{Store, StoreError};

/// Longest detail of an audit entry, in characters.
const DETAIL_CHARS_MAX: usize = 2_000;

/// What an import came to.
#[derive(Debug)]
pub enum PlanImport {
    /// It was done, or would be.
    Done {
        /// A line of the file each.
        outcomes: Vec<LineOutcome>,
        /// Lines of the plan that the file does not have; they stay.
        not_in_file: usize,
    },
    /// Nothing was changed.
    Refused(Vec<PlanProblem>),
}

/// Why an import fails: a node that came in between has what a line asks for.
fn conflict(line: &LineOutcome) -> impl FnOnce(sqlx::Error) -> StoreError {
    let what = format!("line {} ({})", line.line, line.plan.reference());
    move |error| match StoreError::is_unique_violation(&error) {
        true => StoreError::Conflict(format!(
            "{what}: a node that was added meanwhile has its name or MAC; nothing was changed, try again"
        )),
        false => error.into(),
    }
}

async fn known(connection: &mut PgConnection) -> Result<Vec<Planned>, StoreError> {
    let rows = sqlx::query!(
        r#"SELECT n.id, n.name, n.node_group, p.node_id AS "planned?", p.rack AS "rack?", p.unit AS "unit?",
             p.serial AS "serial?", p.mac AS "mac?", p.bmc_address AS "bmc_address?", p.switch_port AS "switch_port?",
             n.inventory_at IS NOT NULL AS "was_seen!", n.inventory->'dmi'->>'serial' AS seen_serial,
             ARRAY(SELECT value FROM node_aliases a WHERE a.node_id = n.id AND a.kind = 'mac' ORDER BY value)
               AS "macs!"
           FROM nodes n LEFT JOIN rack_plan p ON p.node_id = n.id
           ORDER BY p.rack, p.unit DESC, n.name, n.id"#
    )
    .fetch_all(connection)
    .await?;
    let planned = rows.into_iter().map(|row| Planned {
        node: NodeId(row.id),
        is_planned: row.planned.is_some(),
        line: PlanLine {
            rack: row.rack,
            unit: row.unit,
            serial: row.serial,
            mac: row.mac,
            bmc_address: row.bmc_address,
            name: row.name,
            group: Some(row.node_group),
            switch_port: row.switch_port,
        },
        macs: row.macs,
        serial: row.seen_serial,
        was_seen: row.was_seen,
    });
    Ok(planned.collect())
}

impl Store {
    /// The plan, by rack and from the top of each.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn rack_plan_list(&self) -> Result<Vec<Planned>, StoreError> {
        let mut connection = self.pool.acquire().await?;
        let mut planned = known(&mut connection).await?;
        planned.retain(|node| node.is_planned);
        Ok(planned)
    }

    /// Brings lines into the plan, all or none; with `dry_run` only says what they would do. One import at a time.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when a node was added meanwhile that has what a line asks for; nothing is changed then.
    pub async fn rack_plan_import(
        &self,
        columns: &[Column],
        lines: &[ImportLine],
        dry_run: bool,
        by: &str,
    ) -> Result<PlanImport, StoreError> {
        let mut transaction = self.pool.begin().await?;
        sqlx::query!("LOCK TABLE rack_plan IN SHARE ROW EXCLUSIVE MODE")
            .execute(&mut *transaction)
            .await?;
        let known = known(&mut transaction).await?;
        let outcomes = match plan::import(&known, columns, lines) {
            Ok(outcomes) => outcomes,
            Err(problems) => return Ok(PlanImport::Refused(problems)),
        };
        let planned = known.iter().filter(|node| node.is_planned).count();
        let kept = outcomes
            .iter()
            .filter(|outcome| outcome.action != Action::Added)
            .count();
        let not_in_file = planned.saturating_sub(kept);
        if !dry_run {
            carry_out(&mut transaction, &known, &outcomes, by).await?;
            transaction.commit().await?;
        }
        Ok(PlanImport::Done { outcomes, not_in_file })
    }
}

/// Carries an import out. What changes is taken away first, so that two nodes may exchange what is unique.
async fn carry_out(
    connection: &mut PgConnection,
    known: &[Planned],
    outcomes: &[LineOutcome],
    by: &str,
) -> Result<(), StoreError> {
    let changed: Vec<&LineOutcome> = outcomes.iter().filter(|o| o.action != Action::Unchanged).collect();
    let Some(last) = changed.last() else { return Ok(()) };
    let ids: Vec<Uuid> = changed.iter().filter_map(|outcome| Some(outcome.node?.0)).collect();
    let named: Vec<Uuid> = changed
        .iter()
        .filter(|outcome| outcome.changes.iter().any(|change| change.column == Column::Name))
        .filter_map(|outcome| Some(outcome.node?.0))
        .collect();
    // The MAC of a plan goes with it as long as no machine was seen with it.
    sqlx::query!(
        "DELETE FROM node_aliases a USING rack_plan p, nodes n
         WHERE p.node_id = ANY($1) AND a.node_id = p.node_id AND n.id = p.node_id
           AND a.kind = 'mac' AND a.value = p.mac AND n.inventory_at IS NULL",
        &ids
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query!("DELETE FROM rack_plan WHERE node_id = ANY($1)", &ids)
        .execute(&mut *connection)
        .await?;
    sqlx::query!("UPDATE nodes SET name = NULL WHERE id = ANY($1)", &named)
        .execute(&mut *connection)
        .await?;
    let old: std::collections::HashMap<NodeId, &PlanLine> = known.iter().map(|node| (node.node, &node.line)).collect();
    for outcome in &changed {
        let old = outcome.node.and_then(|node| old.get(&node).copied());
        line_write(connection, outcome, old, by).await?;
    }
    let count = |action| outcomes.iter().filter(|outcome| outcome.action == action).count();
    let detail = format!(
        "{} added, {} changed: {}",
        count(Action::Added),
        count(Action::Changed),
        changed
            .iter()
            .map(|o| o.plan.reference())
            .collect::<Vec<_>>()
            .join(", ")
    );
    let audit = NewAudit {
        actor: by,
        action: "rack_plan_imported",
        object: "rack plan",
        detail: &detail.chars().take(DETAIL_CHARS_MAX).collect::<String>(),
    };
    tracing::info!(lines = last.line, user.name = by, "the rack plan was imported");
    insert_audit(connection, &audit).await
}

async fn line_write(
    connection: &mut PgConnection,
    outcome: &LineOutcome,
    old: Option<&PlanLine>,
    by: &str,
) -> Result<(), StoreError> {
    let plan = &outcome.plan;
    let node = match outcome.node {
        Some(node) => node,
        None => {
            let machine_id = Uuid::new_v4().simple().to_string();
            insert_node(
                connection,
                None,
                NodeState::Listed,
                "added to the rack plan",
                &machine_id,
            )
            .await?
        }
    };
    // Where a machine was found otherwise than planned stays: it is evidence.
    sqlx::query!(
        "UPDATE nodes SET name = coalesce($2, name), node_group = coalesce($3, node_group),
           rack = CASE WHEN rack IS NOT DISTINCT FROM $4 AND unit IS NOT DISTINCT FROM $5 OR rack IS NULL
                       THEN $6 ELSE rack END,
           unit = CASE WHEN rack IS NOT DISTINCT FROM $4 AND unit IS NOT DISTINCT FROM $5 OR rack IS NULL
                         OR unit IS NULL AND rack = $6
                       THEN $7 ELSE unit END
         WHERE id = $1",
        node.0,
        plan.name,
        plan.group,
        old.and_then(|old| old.rack.as_deref()),
        old.and_then(|old| old.unit),
        plan.rack,
        plan.unit
    )
    .execute(&mut *connection)
    .await
    .map_err(conflict(outcome))?;
    sqlx::query!(
        "INSERT INTO rack_plan (node_id, rack, unit, serial, mac, bmc_address, switch_port)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        node.0,
        plan.rack,
        plan.unit,
        plan.serial,
        plan.mac,
        plan.bmc_address,
        plan.switch_port
    )
    .execute(&mut *connection)
    .await
    .map_err(conflict(outcome))?;
    if let Some(mac) = &plan.mac {
        let owner = sqlx::query_scalar!(
            "INSERT INTO node_aliases (kind, value, node_id) VALUES ('mac', $1, $2)
             ON CONFLICT (kind, value) DO UPDATE SET kind = excluded.kind RETURNING node_id",
            mac,
            node.0
        )
        .fetch_one(&mut *connection)
        .await?;
        if owner != node.0 {
            return Err(StoreError::Conflict(format!(
                "line {} ({}): MAC {mac} belongs to a node that was added meanwhile; nothing was changed, try again",
                outcome.line,
                plan.reference()
            )));
        }
        sqlx::query!("DELETE FROM sightings WHERE mac = $1", mac)
            .execute(&mut *connection)
            .await?;
    }
    let changes: Vec<String> = outcome
        .changes
        .iter()
        .map(|change| {
            let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
            format!("{} {}", change.column.as_str(), text(&change.to))
        })
        .collect();
    let detail = format!("{}, by {by}", changes.join(", "));
    sqlx::query!(
        "INSERT INTO boot_events (node_id, kind, detail) VALUES ($1, 'planned', $2)",
        node.0,
        detail
    )
    .execute(connection)
    .await?;
    Ok(())
}
