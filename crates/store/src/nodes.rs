//! Node records: identity, state, inventory.

use lifecycle::{Chain, NodeState, Observed, Step};
use protocol::NodeId;
use protocol::latest::Inventory;
use serde::Serialize;
use sqlx::PgConnection;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::audit::{NewAudit, insert_audit};
use crate::error::json;
use crate::{Store, StoreError};

/// A node as people see it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct NodeRecord {
    /// Id.
    pub id: NodeId,
    /// Name, once somebody gave it one; also its hostname.
    pub name: Option<String>,
    /// Where it stands.
    #[schema(value_type = String)]
    pub state: NodeState,
    /// Why it stands there.
    pub state_reason: String,
    /// Since when.
    #[serde(with = "time::serde::rfc3339")]
    pub state_since: OffsetDateTime,
    /// MACs, lower case.
    pub macs: Vec<String>,
    /// The address this server's DHCP gave it last.
    pub address: Option<String>,
    /// The address that a person gave it; its boot interface gets it in mode `full`.
    pub fixed_address: Option<String>,
    /// SSH host public keys its deployer made, for known_hosts.
    pub ssh_host_keys: Vec<String>,
    /// What it is made of.
    pub inventory: Option<Inventory>,
    /// Identity of the operating system, kept over re-images.
    pub machine_id: String,
    /// What its agent said last.
    pub agent: Option<AgentRecord>,
    /// Node group: what percentages and scopes are about.
    pub group: String,
    /// Rack, if known.
    pub rack: Option<String>,
    /// Height unit of its lower edge in the rack, if known.
    pub unit: Option<i32>,
    /// The relay its newest DHCP request came through.
    pub relay: Option<String>,
    /// The circuit that relay named (option 82): a switch port, as the relay writes it.
    pub relay_circuit: Option<String>,
    /// Who the relay is, by its own word (option 82).
    pub relay_remote: Option<String>,
    /// The discovery rule that placed it.
    pub discovery_rule: Option<String>,
    /// The image that rule proposes.
    pub image_channel: Option<String>,
    /// Why what it was installed from must not be used any more; none: it may be.
    pub image_problem: Option<String>,
    /// Which boot loader it gets; `auto`: what its group or the site says.
    #[schema(value_type = String, example = "auto")]
    pub chain: Chain,
    /// A person holds it back from remediation.
    pub hold: Option<NodeHold>,
    /// Findings that nobody allows.
    pub findings: i64,
    /// Findings that people have waived or accepted.
    pub allowed: i64,
    /// When its last complete scan arrived; none means that nobody knows its drift.
    #[serde(with = "time::serde::rfc3339::option")]
    pub scanned_at: Option<OffsetDateTime>,
    /// Places its last scan could not look at.
    pub not_looked_at: Option<i64>,
    /// Whether its last scan walked everything to its end.
    pub scan_complete: Option<bool>,
}

/// Why a node is held back from remediation.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct NodeHold {
    /// Why.
    pub reason: String,
    /// Who.
    pub by: String,
    /// Since when.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
}

impl NodeHold {
    /// Who holds a node that the server itself took out of service. No user can have this name.
    pub const SERVER: &'static str = "(server)";

    /// Whether the server took it out of service.
    #[must_use]
    pub fn is_quarantine(&self) -> bool {
        self.by == Self::SERVER
    }
}

/// What people change of a node's place; what is `None` stays.
#[derive(Clone, Debug, Default)]
pub struct NodeChange {
    /// Node group.
    pub group: Option<String>,
    /// Rack; empty: none.
    pub rack: Option<String>,
    /// Height unit in the rack; 0: unknown.
    pub unit: Option<i32>,
    /// Which boot loader it gets.
    pub chain: Option<Chain>,
}

/// What an agent said last.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct AgentRecord {
    /// When the server last heard of it.
    #[serde(with = "time::serde::rfc3339")]
    pub heartbeat_at: OffsetDateTime,
    /// Boot it runs in.
    pub boot_id: Uuid,
    /// Its version.
    pub agent_version: String,
    /// Its highest resident memory in bytes.
    pub rss_max_bytes: i64,
    /// Node clock minus server clock in milliseconds, network included.
    pub clock_skew_ms: i64,
}

struct NodeRow {
    id: Uuid,
    name: Option<String>,
    state: String,
    state_reason: String,
    state_since: OffsetDateTime,
    macs: Vec<String>,
    address: Option<String>,
    fixed_address: Option<String>,
    ssh_host_keys: Vec<String>,
    inventory: Option<serde_json::Value>,
    machine_id: String,
    heartbeat_at: Option<OffsetDateTime>,
    boot_id: Option<Uuid>,
    agent_version: Option<String>,
    rss_max_bytes: Option<i64>,
    clock_skew_ms: Option<i64>,
    node_group: String,
    rack: Option<String>,
    unit: Option<i32>,
    relay: Option<String>,
    relay_circuit: Option<String>,
    relay_remote: Option<String>,
    discovery_rule: Option<String>,
    image_channel: Option<String>,
    image_problem: Option<String>,
    chain: String,
    hold_reason: Option<String>,
    hold_by: Option<String>,
    hold_since: Option<OffsetDateTime>,
    findings: i64,
    allowed: i64,
    scanned_at: Option<OffsetDateTime>,
    not_looked_at: Option<i64>,
    scan_complete: Option<bool>,
}

impl TryFrom<NodeRow> for NodeRecord {
    type Error = StoreError;

    fn try_from(row: NodeRow) -> Result<Self, StoreError> {
        let agent = match (
            row.heartbeat_at,
            row.boot_id,
            row.agent_version,
            row.rss_max_bytes,
            row.clock_skew_ms,
        ) {
            (Some(heartbeat_at), Some(boot_id), Some(agent_version), Some(rss_max_bytes), Some(clock_skew_ms)) => {
                Some(AgentRecord {
                    heartbeat_at,
                    boot_id,
                    agent_version,
                    rss_max_bytes,
                    clock_skew_ms,
                })
            }
            _ => None,
        };
        Ok(Self {
            id: NodeId(row.id),
            name: row.name,
            state: node_state(&row.state)?,
            state_reason: row.state_reason,
            state_since: row.state_since,
            macs: row.macs,
            address: row.address,
            fixed_address: row.fixed_address,
            ssh_host_keys: row.ssh_host_keys,
            inventory: row.inventory.map(|value| json("inventory", value)).transpose()?,
            machine_id: row.machine_id,
            agent,
            group: row.node_group,
            rack: row.rack,
            unit: row.unit,
            relay: row.relay,
            relay_circuit: row.relay_circuit,
            relay_remote: row.relay_remote,
            discovery_rule: row.discovery_rule,
            image_channel: row.image_channel,
            image_problem: row.image_problem,
            chain: Chain::parse(&row.chain).ok_or_else(|| StoreError::Stored {
                what: "chain",
                value: row.chain.clone(),
            })?,
            hold: match (row.hold_reason, row.hold_by, row.hold_since) {
                (Some(reason), Some(by), Some(since)) => Some(NodeHold { reason, by, since }),
                _ => None,
            },
            findings: row.findings,
            allowed: row.allowed,
            scanned_at: row.scanned_at,
            not_looked_at: row.not_looked_at,
            scan_complete: row.scan_complete,
        })
    }
}

fn node_state(name: &str) -> Result<NodeState, StoreError> {
    NodeState::parse(name).ok_or_else(|| StoreError::Stored {
        what: "node state",
        value: name.to_owned(),
    })
}

/// What [`Store::node_step`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepTaken {
    /// State before.
    pub from: NodeState,
    /// What followed.
    pub step: Step,
}

/// Locks a node's record until the transaction ends; gives what people call it.
pub(crate) async fn lock_node(connection: &mut PgConnection, node: NodeId) -> Result<String, StoreError> {
    sqlx::query_scalar!(
        r#"SELECT coalesce(name, id::text) AS "name!" FROM nodes WHERE id = $1 FOR UPDATE"#,
        node.0
    )
    .fetch_optional(connection)
    .await?
    .ok_or_else(|| StoreError::not_found("node", node))
}

/// Writes a node record inside somebody's transaction.
pub(crate) async fn insert_node(
    connection: &mut PgConnection,
    name: Option<&str>,
    state: NodeState,
    reason: &str,
    machine_id: &str,
) -> Result<NodeId, StoreError> {
    let id = NodeId::new();
    sqlx::query!(
        "INSERT INTO nodes (id, name, state, state_reason, machine_id) VALUES ($1, $2, $3, $4, $5)",
        id.0,
        name,
        state.as_str(),
        reason,
        machine_id
    )
    .execute(connection)
    .await?;
    Ok(id)
}

/// Takes one step under the row's lock, inside somebody's transaction.
pub(crate) async fn step_node(
    connection: &mut PgConnection,
    node: NodeId,
    observed: &Observed,
) -> Result<StepTaken, StoreError> {
    let state = sqlx::query_scalar!("SELECT state FROM nodes WHERE id = $1 FOR UPDATE", node.0)
        .fetch_optional(&mut *connection)
        .await?
        .ok_or_else(|| StoreError::not_found("node", node))?;
    let from = node_state(&state)?;
    let step = lifecycle::step(from, observed);
    if let Step::Transition { next, reason } = &step {
        sqlx::query!(
            "UPDATE nodes SET state = $2, state_reason = $3, state_since = now() WHERE id = $1",
            node.0,
            next.as_str(),
            reason
        )
        .execute(connection)
        .await?;
    }
    Ok(StepTaken { from, step })
}

impl Store {
    /// Adds a node of the rack plan.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when its name or MAC is taken.
    pub async fn node_create(&self, name: &str, mac: &str, machine_id: &str) -> Result<NodeId, StoreError> {
        let conflict = |what: String| {
            move |error: sqlx::Error| match StoreError::is_unique_violation(&error) {
                true => StoreError::Conflict(what),
                false => error.into(),
            }
        };
        let mut transaction = self.pool.begin().await?;
        let node = insert_node(
            &mut transaction,
            Some(name),
            NodeState::Listed,
            "added to the rack plan",
            machine_id,
        )
        .await
        .map_err(|error| match error {
            StoreError::Database(error) => conflict(format!("a node named {name} exists already"))(error),
            other => other,
        })?;
        sqlx::query!(
            "INSERT INTO node_aliases (kind, value, node_id) VALUES ('mac', $1, $2)",
            mac,
            node.0
        )
        .execute(&mut *transaction)
        .await
        .map_err(conflict(format!("MAC {mac} belongs to a node already")))?;
        sqlx::query!("DELETE FROM sightings WHERE mac = $1", mac)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(node)
    }

    /// Forgets a node and everything recorded of it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn node_delete(&self, node: NodeId) -> Result<(), StoreError> {
        let done = sqlx::query!("DELETE FROM nodes WHERE id = $1", node.0)
            .execute(&self.pool)
            .await?;
        match done.rows_affected() {
            0 => Err(StoreError::not_found("node", node)),
            _ => Ok(()),
        }
    }

    /// The node a machine with this MAC is.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn node_find_by_mac(&self, mac: &str) -> Result<Option<NodeId>, StoreError> {
        let id = sqlx::query_scalar!(
            "SELECT node_id FROM node_aliases WHERE kind = 'mac' AND value = $1",
            mac
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(id.map(NodeId))
    }

    /// The node a person means: id, name or MAC.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn node_find(&self, reference: &str) -> Result<NodeId, StoreError> {
        let id = sqlx::query_scalar!(
            r#"SELECT id AS "id!" FROM nodes WHERE name = $1 OR id::text = lower($1)
               UNION SELECT node_id FROM node_aliases WHERE kind = 'mac' AND value = lower($1) LIMIT 1"#,
            reference
        )
        .fetch_optional(&self.pool)
        .await?;
        id.map(NodeId).ok_or_else(|| StoreError::not_found("node", reference))
    }

    /// All nodes, or one.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn node_list(&self, only: Option<NodeId>) -> Result<Vec<NodeRecord>, StoreError> {
        sqlx::query_as!(
            NodeRow,
            r#"SELECT n.id, n.name, n.state, n.state_reason, n.state_since, n.inventory, n.machine_id,
                 ARRAY(SELECT value FROM node_aliases a WHERE a.node_id = n.id AND a.kind = 'mac' ORDER BY value)
                   AS "macs!",
                 (SELECT l.address FROM leases l JOIN node_aliases m ON m.kind = 'mac' AND m.value = l.mac
                   WHERE m.node_id = n.id ORDER BY l.expires_at DESC LIMIT 1) AS address,
                 (SELECT x.address FROM fixed_addresses x WHERE x.node_id = n.id) AS fixed_address,
                 ARRAY(SELECT public_key FROM ssh_host_keys k WHERE k.node_id = n.id ORDER BY public_key)
                   AS "ssh_host_keys!",
                 a.heartbeat_at AS "heartbeat_at?", a.boot_id AS "boot_id?", a.agent_version AS "agent_version?",
                 a.rss_max_bytes AS "rss_max_bytes?", a.clock_skew_ms AS "clock_skew_ms?",
                 n.node_group, n.rack, n.unit, n.relay, n.relay_circuit, n.relay_remote, n.discovery_rule,
                 n.image_channel,
                 (SELECT i.name || '@' || i.version || ' must not be used: ' || i.unusable FROM baselines b
                    JOIN images i ON i.digest IN (b.image, b.agent_layer) AND i.unusable IS NOT NULL
                    WHERE b.node_id = n.id ORDER BY i.kind DESC LIMIT 1) AS image_problem,
                 n.chain, n.hold_reason, n.hold_by, n.hold_since,
                 coalesce(f.open, 0) AS "findings!", coalesce(f.allowed, 0) AS "allowed!",
                 (SELECT max(received_at) FROM reports r WHERE r.node_id = n.id AND r.complete) AS scanned_at,
                 (SELECT (r.scan->>'not_looked_at_count')::bigint FROM reports r WHERE r.node_id = n.id
                   ORDER BY r.id DESC LIMIT 1) AS not_looked_at,
                 (SELECT r.complete FROM reports r WHERE r.node_id = n.id ORDER BY r.id DESC LIMIT 1) AS scan_complete
               FROM nodes n LEFT JOIN agents a ON a.node_id = n.id
                 LEFT JOIN (SELECT node_id, count(*) FILTER (WHERE standing IN ('open', 'acknowledged')) AS open,
                              count(*) FILTER (WHERE standing IN ('waived', 'accepted')) AS allowed
                            FROM judged_findings WHERE $1::uuid IS NULL OR node_id = $1 GROUP BY node_id) f
                   ON f.node_id = n.id
               WHERE $1::uuid IS NULL OR n.id = $1
               ORDER BY n.name NULLS LAST, n.id LIMIT 20000"#,
            only.map(|id| id.0)
        )
        .fetch_all(&self.pool)
        .await?
        .into_iter()
        .map(TryInto::try_into)
        .collect()
    }

    /// One node.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn node_get(&self, node: NodeId) -> Result<NodeRecord, StoreError> {
        self.node_list(Some(node))
            .await?
            .pop()
            .ok_or_else(|| StoreError::not_found("node", node))
    }

    /// Gives a node its name.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when another node has it, [`StoreError::NotFound`].
    pub async fn node_rename(&self, node: NodeId, name: &str) -> Result<(), StoreError> {
        let done = sqlx::query!("UPDATE nodes SET name = $2 WHERE id = $1", node.0, name)
            .execute(&self.pool)
            .await
            .map_err(|error| match StoreError::is_unique_violation(&error) {
                true => StoreError::Conflict(format!("a node named {name} exists already")),
                false => error.into(),
            })?;
        match done.rows_affected() {
            0 => Err(StoreError::not_found("node", node)),
            _ => Ok(()),
        }
    }

    /// Says where a node belongs.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn node_change(&self, node: NodeId, change: &NodeChange, changed_by: &str) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        let name = sqlx::query_scalar!(
            r#"UPDATE nodes SET node_group = coalesce($2, node_group),
                 rack = CASE WHEN $3::text IS NULL THEN rack ELSE nullif($3, '') END,
                 unit = CASE WHEN $3 = '' THEN NULL WHEN $5::integer IS NULL THEN unit ELSE nullif($5, 0) END,
                 chain = coalesce($4, chain)
               WHERE id = $1 RETURNING coalesce(name, id::text) AS "name!""#,
            node.0,
            change.group.as_deref(),
            change.rack.as_deref(),
            change.chain.map(Chain::as_str),
            change.unit
        )
        .fetch_optional(&mut *transaction)
        .await?
        .ok_or_else(|| StoreError::not_found("node", node))?;
        let part = |what: &str, value: &Option<String>| value.as_ref().map(|value| format!("{what} {value:?}"));
        let chain = change.chain.map(|chain| chain.as_str().to_owned());
        let parts = [
            part("group", &change.group),
            part("rack", &change.rack),
            part("unit", &change.unit.map(|unit| unit.to_string())),
            part("chain", &chain),
        ];
        let audit = NewAudit {
            actor: changed_by,
            action: "node_placed",
            object: &name,
            detail: &parts.into_iter().flatten().collect::<Vec<_>>().join(", "),
        };
        insert_audit(&mut transaction, &audit).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Holds a node back from remediation with a reason, or lets it go on (`None`).
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn node_hold(&self, node: NodeId, reason: Option<&str>, by: &str) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await?;
        let name = sqlx::query_scalar!(
            r#"UPDATE nodes SET hold_reason = $2, hold_by = CASE WHEN $2::text IS NULL THEN NULL ELSE $3 END,
                 hold_since = CASE WHEN $2::text IS NULL THEN NULL ELSE now() END
               WHERE id = $1 RETURNING coalesce(name, id::text) AS "name!""#,
            node.0,
            reason,
            by
        )
        .fetch_optional(&mut *transaction)
        .await?
        .ok_or_else(|| StoreError::not_found("node", node))?;
        let audit = NewAudit {
            actor: by,
            action: if reason.is_some() { "node_held" } else { "node_let_go" },
            object: &name,
            detail: reason.unwrap_or_default(),
        };
        insert_audit(&mut transaction, &audit).await?;
        transaction.commit().await?;
        Ok(())
    }

    /// Holds a node back because of what the server saw, until a person lets it go on. What a person wrote there stays.
    /// Says whether it was done.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn node_quarantine(&self, node: NodeId, reason: &str) -> Result<bool, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let name = sqlx::query_scalar!(
            r#"UPDATE nodes SET hold_reason = $2, hold_by = $3, hold_since = now()
               WHERE id = $1 AND hold_reason IS NULL RETURNING coalesce(name, id::text) AS "name!""#,
            node.0,
            reason,
            NodeHold::SERVER
        )
        .fetch_optional(&mut *transaction)
        .await?;
        let Some(name) = name else { return Ok(false) };
        let audit = NewAudit {
            actor: NodeHold::SERVER,
            action: "node_held",
            object: &name,
            detail: reason,
        };
        insert_audit(&mut transaction, &audit).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// Takes the step that follows from an observation.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn node_step(&self, node: NodeId, observed: &Observed) -> Result<StepTaken, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let taken = step_node(&mut transaction, node, observed).await?;
        transaction.commit().await?;
        Ok(taken)
    }
}
