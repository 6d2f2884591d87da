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
    /// When it was first heard.
    #[serde(with = "time::serde::rfc3339")]
    pub first_at: OffsetDateTime,
    /// When it was last heard.
    #[serde(with = "time::serde::rfc3339")]
    pub last_at: OffsetDateTime,
    /// How often.
    pub count: i64,
    /// The machine that it spoke to last, or that took its offer.
    pub last_mac: String,
}

impl Store {
    /// Notes that another server spoke, or that a machine took its offer. Beyond 256 servers new ones are not noted.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub async fn dhcp_server_seen(&self, address: &str, mac: &str) -> Result<(), StoreError> {
        sqlx::query!(
            "INSERT INTO dhcp_servers (address, last_mac)
             SELECT $1, $2 WHERE (SELECT count(*) FROM dhcp_servers WHERE address <> $1) < $3
             ON CONFLICT (address) DO UPDATE SET last_at = now(), count = dhcp_servers.count + 1, last_mac = $2",
            address,
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
            "SELECT address, first_at, last_at, count, last_mac FROM dhcp_servers ORDER BY last_at DESC"
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
            "DELETE FROM dhcp_servers WHERE last_at < now() - make_interval(days => $1)",
            days
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }
}
