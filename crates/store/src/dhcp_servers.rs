//! Other DHCP servers of the network: heard themselves, or named by machines that take their offers.

use serde::Serialize;
use time::OffsetDateTime;

use crate::{Store, StoreError};

/// Most servers kept; a forged request names any address.
const SERVERS_MAX: i64 = 256;

/// A DHCP server that is not this one.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct OtherDhcpServer {
    /// Its server identifier: an IPv4 address.
    pub address: String,
    /// Where it is heard: an interface, and `via RELAY` where a relay is between; empty: not known.
    pub interface: String,
    /// When it was first heard there.
    #[serde(with = "time::serde::rfc3339")]
    pub first_at: OffsetDateTime,
    /// When it was last heard there.
    #[serde(with = "time::serde::rfc3339")]
    pub last_at: OffsetDateTime,
    /// How often.
    pub count: i64,
    /// The machine that it spoke to last, or that took its offer.
    pub last_mac: String,
}

impl Store {
    /// Notes that another server spoke at a place, or that a machine there took its offer. Beyond 256 servers and places
    /// new ones are not noted.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn dhcp_server_seen(&self, address: &str, interface: &str, mac: &str) -> Result<(), StoreError> {
        sqlx::query!(
            "INSERT INTO dhcp_servers_heard (address, interface, last_mac)
             SELECT $1, $2, $3
             WHERE (SELECT count(*) FROM dhcp_servers_heard WHERE (address, interface) <> ($1, $2)) < $4
             ON CONFLICT (address, interface)
             DO UPDATE SET last_at = now(), count = dhcp_servers_heard.count + 1, last_mac = $3",
            address,
            interface,
            mac,
            SERVERS_MAX
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Other DHCP servers, the one seen last first.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn dhcp_server_list(&self) -> Result<Vec<OtherDhcpServer>, StoreError> {
        Ok(sqlx::query_as!(
            OtherDhcpServer,
            "SELECT address, interface, first_at, last_at, count, last_mac FROM dhcp_servers_heard
             ORDER BY last_at DESC"
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// Forgets servers that nobody named for so many days.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn dhcp_server_prune(&self, days: i32) -> Result<(), StoreError> {
        sqlx::query!(
            "DELETE FROM dhcp_servers_heard WHERE last_at < now() - make_interval(days => $1)",
            days
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
