//! The last DHCP messages of each node, as they were on the wire.

use std::net::SocketAddrV4;

use protocol::NodeId;
use time::OffsetDateTime;

use crate::{Store, StoreError};

/// Messages kept of each interface: some ten starts of a machine.
pub const PACKETS_MAX: i64 = 100;

/// A UDP datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootPacket {
    /// When it came or went.
    pub at: OffsetDateTime,
    /// Who sent it.
    pub source: SocketAddrV4,
    /// To whom.
    pub destination: SocketAddrV4,
    /// What it carried.
    pub payload: Vec<u8>,
}

struct PacketRow {
    at: OffsetDateTime,
    source: String,
    destination: String,
    payload: Vec<u8>,
}

fn address(text: &str) -> Result<SocketAddrV4, StoreError> {
    text.parse().map_err(|_| StoreError::Stored {
        what: "address of a packet",
        value: text.to_owned(),
    })
}

impl Store {
    /// Keeps datagrams of a node's interface, and forgets its oldest; those of nobody's machine are not kept.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn packet_keep(&self, mac: &str, packets: &[BootPacket]) -> Result<(), StoreError> {
        let at: Vec<OffsetDateTime> = packets.iter().map(|packet| packet.at).collect();
        let source: Vec<String> = packets.iter().map(|packet| packet.source.to_string()).collect();
        let destination: Vec<String> = packets.iter().map(|packet| packet.destination.to_string()).collect();
        let payload: Vec<Vec<u8>> = packets.iter().map(|packet| packet.payload.clone()).collect();
        sqlx::query!(
            "INSERT INTO boot_packets (mac, at, source, destination, payload)
             SELECT $1, p.at, p.source, p.destination, p.payload
             FROM unnest($2::timestamptz[], $3::text[], $4::text[], $5::bytea[]) AS p (at, source, destination, payload)
             WHERE EXISTS (SELECT 1 FROM node_aliases WHERE kind = 'mac' AND value = $1)",
            mac,
            &at,
            &source,
            &destination,
            &payload
        )
        .execute(&self.pool)
        .await?;
        sqlx::query!(
            "DELETE FROM boot_packets WHERE mac = $1 AND id <=
               (SELECT id FROM boot_packets WHERE mac = $1 ORDER BY id DESC OFFSET $2 LIMIT 1)",
            mac,
            PACKETS_MAX
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Drops datagrams older than so many days, those of nodes that were removed with them.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn packet_prune(&self, days: i32) -> Result<u64, StoreError> {
        let done = sqlx::query!(
            "DELETE FROM boot_packets WHERE at < now() - make_interval(days => $1)
               OR NOT EXISTS (SELECT 1 FROM node_aliases a WHERE a.kind = 'mac' AND a.value = boot_packets.mac)",
            days
        )
        .execute(&self.pool)
        .await?;
        Ok(done.rows_affected())
    }

    /// What is kept of a node's interfaces, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn packet_list(&self, node: NodeId) -> Result<Vec<BootPacket>, StoreError> {
        let rows = sqlx::query_as!(
            PacketRow,
            "SELECT p.at, p.source, p.destination, p.payload FROM boot_packets p
             JOIN node_aliases a ON a.kind = 'mac' AND a.value = p.mac
             WHERE a.node_id = $1 ORDER BY p.id LIMIT 5000",
            node.0
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                Ok(BootPacket {
                    at: row.at,
                    source: address(&row.source)?,
                    destination: address(&row.destination)?,
                    payload: row.payload,
                })
            })
            .collect()
    }
}
