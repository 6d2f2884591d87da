//! Machines nobody listed: sightings, and the windows in which they are answered.

use protocol::NodeId;
use serde::Serialize;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::nodes::insert_node;
use crate::{Store, StoreError};

/// Most sightings kept; the oldest go first.
const SIGHTINGS_MAX: i64 = 10_000;

/// A machine that asked and got no answer.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Sighting {
    /// Its MAC.
    pub mac: String,
    /// When it was first seen.
    #[serde(with = "time::serde::rfc3339")]
    pub first_at: OffsetDateTime,
    /// When it was last seen.
    #[serde(with = "time::serde::rfc3339")]
    pub last_at: OffsetDateTime,
    /// How often.
    pub count: i64,
    /// DHCP vendor class.
    pub vendor_class: Option<String>,
    /// DHCP client architecture (RFC 4578).
    pub architecture: Option<i32>,
    /// Relay it came through.
    pub relay: Option<String>,
    /// The circuit that relay named (option 82, suboption 1): a switch port, as the relay writes it.
    pub relay_circuit: Option<String>,
    /// Who the relay is, by its own word (option 82, suboption 2).
    pub relay_remote: Option<String>,
}

/// How a request came: through which relay, and what that relay said of it (option 82).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelaySeen {
    /// Address of the relay.
    pub address: Option<String>,
    /// Circuit id, as text.
    pub circuit: Option<String>,
    /// Remote id, as text.
    pub remote: Option<String>,
}

/// Where unknown machines are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WindowPlace {
    /// In a subnet, CIDR form.
    Subnet(String),
    /// On a circuit of a relay; with `*` at its end, on all circuits that begin so.
    RelayCircuit(String),
}

/// A time in which unknown machines of a subnet or a relay circuit are answered.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct DiscoveryWindow {
    /// Id.
    pub id: Uuid,
    /// Subnet in CIDR form; empty: it is for a circuit.
    pub subnet: String,
    /// Circuit of a relay; with `*` at its end, all circuits that begin so.
    pub relay_circuit: Option<String>,
    /// When it ends.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
    /// How many machines it admits.
    pub nodes_max: i32,
    /// How many it has admitted.
    pub nodes_used: i32,
    /// Who armed it.
    pub armed_by: String,
}

impl Store {
    /// Notes that an unlisted machine asked.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn sighting_record(
        &self,
        mac: &str,
        vendor_class: Option<&str>,
        architecture: Option<i32>,
        relay: &RelaySeen,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "INSERT INTO sightings (mac, vendor_class, architecture, relay, relay_circuit, relay_remote)
             VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (mac) DO UPDATE SET last_at = now(), count = sightings.count + 1,
                 vendor_class = coalesce(excluded.vendor_class, sightings.vendor_class),
                 architecture = coalesce(excluded.architecture, sightings.architecture),
                 relay = coalesce(excluded.relay, sightings.relay),
                 relay_circuit = coalesce(excluded.relay_circuit, sightings.relay_circuit),
                 relay_remote = coalesce(excluded.relay_remote, sightings.relay_remote)",
            mac,
            vendor_class,
            architecture,
            relay.address,
            relay.circuit,
            relay.remote
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Keeps only the newest sightings.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn sighting_prune(&self) -> Result<u64, StoreError> {
        let done = sqlx::query!(
            "DELETE FROM sightings WHERE last_at < (SELECT last_at FROM sightings ORDER BY last_at DESC OFFSET $1 LIMIT 1)",
            SIGHTINGS_MAX
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected())
    }

    /// Sightings, newest first.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn sighting_list(&self) -> Result<Vec<Sighting>, StoreError> {
        Ok(sqlx::query_as!(
            Sighting,
            "SELECT mac, first_at, last_at, count, vendor_class, architecture, relay, relay_circuit, relay_remote
             FROM sightings ORDER BY last_at DESC LIMIT 1000"
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// Arms discovery for a subnet or a circuit.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn discovery_arm(
        &self,
        place: &WindowPlace,
        expires_at: OffsetDateTime,
        nodes_max: i32,
        armed_by: &str,
    ) -> Result<DiscoveryWindow, StoreError> {
        // The release before this one reads the subnet alone: an empty one is none to it.
        let (subnet, circuit) = match place {
            WindowPlace::Subnet(subnet) => (subnet.as_str(), None),
            WindowPlace::RelayCircuit(circuit) => ("", Some(circuit.as_str())),
        };
        Ok(sqlx::query_as!(
            DiscoveryWindow,
            "INSERT INTO discovery_windows (id, subnet, relay_circuit, expires_at, nodes_max, armed_by)
             VALUES ($1, $2, $3, $4, $5, $6)
             RETURNING id, subnet, relay_circuit, expires_at, nodes_max, nodes_used, armed_by",
            Uuid::now_v7(),
            subnet,
            circuit,
            expires_at,
            nodes_max,
            armed_by
        )
        .fetch_one(&self.pool)
        .await?)
    }

    /// Keeps how a node's newest DHCP request came, if that is news.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn node_set_relay(&self, node: NodeId, relay: &RelaySeen) -> Result<(), StoreError> {
        sqlx::query!(
            "UPDATE nodes SET relay = $2, relay_circuit = $3, relay_remote = $4
             WHERE id = $1 AND (relay, relay_circuit, relay_remote) IS DISTINCT FROM ($2, $3, $4)",
            node.0,
            relay.address,
            relay.circuit,
            relay.remote
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Windows that are open: not expired, not full.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn discovery_list_open(&self) -> Result<Vec<DiscoveryWindow>, StoreError> {
        Ok(sqlx::query_as!(
            DiscoveryWindow,
            "SELECT id, subnet, relay_circuit, expires_at, nodes_max, nodes_used, armed_by
             FROM discovery_windows WHERE expires_at > now() AND nodes_used < nodes_max ORDER BY id LIMIT 1000"
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// Ends all open windows.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn discovery_disarm(&self) -> Result<u64, StoreError> {
        let done = sqlx::query!("UPDATE discovery_windows SET expires_at = now() WHERE expires_at > now()")
            .execute(&self.pool)
            .await?;
        Ok(done.rows_affected())
    }

    /// Gives an unknown machine a record under a window, if a place is left. The count and the record are one
    /// transaction: a window never admits more than it says, and a machine that asks twice takes one place.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn discovery_admit(
        &self,
        window: Uuid,
        mac: &str,
        machine_id: &str,
    ) -> Result<Option<NodeId>, StoreError> {
        let mut transaction = self.pool.begin().await?;
        let taken = sqlx::query!(
            "UPDATE discovery_windows SET nodes_used = nodes_used + 1
             WHERE id = $1 AND expires_at > now() AND nodes_used < nodes_max
               AND NOT EXISTS (SELECT 1 FROM node_aliases WHERE kind = 'mac' AND value = $2)",
            window,
            mac
        )
        .execute(&mut *transaction)
        .await?;
        if taken.rows_affected() == 0 {
            return Ok(None);
        }
        let reason = "answered: discovery is armed";
        let node = insert_node(
            &mut transaction,
            None,
            lifecycle::NodeState::Discovering,
            reason,
            machine_id,
        )
        .await?;
        let alias = sqlx::query!(
            "INSERT INTO node_aliases (kind, value, node_id) VALUES ('mac', $1, $2) ON CONFLICT DO NOTHING",
            mac,
            node.0
        )
        .execute(&mut *transaction)
        .await?;
        if alias.rows_affected() == 0 {
            return Ok(None);
        }
        sqlx::query!(
            "UPDATE boot_events SET node_id = $1 WHERE mac = $2 AND node_id IS NULL",
            node.0,
            mac
        )
        .execute(&mut *transaction)
        .await?;
        sqlx::query!("DELETE FROM sightings WHERE mac = $1", mac)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(Some(node))
    }
}
