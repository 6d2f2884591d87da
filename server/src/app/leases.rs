//! Which address a machine gets, in DHCP mode `full`.
//!
//! Idea: a node keeps its address from firmware to operating system and over re-images: a fixed one that a person gave
//! it, else the one that it had, else one that nobody has. What was never given out before is looked for on the wire
//! first.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use protocol::NodeId;
use store::{NewEvent, NodeRecord};

use super::{App, AppError, nodes};
use crate::boot_plane::address_probe;
use crate::config::{BootConfig, Subnet};

/// Addresses that are tried for one request.
const CANDIDATES_MAX: usize = 8;

/// The address of a machine in a subnet; none where there is none to give.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn lease_choose(
    app: &App,
    boot: &BootConfig,
    subnet: &Subnet,
    node: &NodeRecord,
    mac: &str,
) -> Result<Option<Ipv4Addr>, AppError> {
    let secs = i64::from(boot.lease_secs);
    let own = node.fixed_address.as_deref();
    if let Some(address) = own.and_then(|text| text.parse::<Ipv4Addr>().ok())
        && subnet.network.contains(&address)
    {
        if app.store.lease_take(&address.to_string(), mac, secs).await? {
            return Ok(Some(address));
        }
        said(
            app,
            mac,
            format!("{address} is the node's address, and another interface still has it"),
        )
        .await?;
    }
    let Some((first, last)) = subnet.pool else {
        return Ok(None);
    };
    let is_of_pool = |address: &Ipv4Addr| {
        (first..=last).contains(address) && !boot.is_own(*address) && Some(*address) != subnet.router
    };
    if let Some(lease) = app.store.lease_find(mac).await?
        && let Some(address) = lease.address.parse().ok().filter(is_of_pool)
        && !app.store.fixed_address_is(&lease.address).await?
        && app.store.lease_take(&lease.address, mac, secs).await?
    {
        return Ok(Some(address));
    }
    let fixed = app.store.fixed_address_list().await?;
    let reserved: HashSet<Ipv4Addr> = fixed.iter().filter_map(|address| address.parse().ok()).collect();
    let leases = app.store.lease_list().await?;
    let now = time::OffsetDateTime::now_utc();
    let taken: HashSet<Ipv4Addr> = leases
        .iter()
        .filter(|lease| lease.expires_at > now)
        .filter_map(|lease| lease.address.parse().ok())
        .collect();
    let used: HashSet<Ipv4Addr> = leases.iter().filter_map(|lease| lease.address.parse().ok()).collect();
    let pool = || {
        (u32::from(first)..=u32::from(last))
            .map(Ipv4Addr::from)
            .filter(|address| is_of_pool(address) && !reserved.contains(address))
    };
    // Never used ones first: an address stays its node's as long as there is room.
    let candidates = pool()
        .filter(|a| !used.contains(a))
        .chain(pool().filter(|a| used.contains(a) && !taken.contains(a)));
    for address in candidates.take(CANDIDATES_MAX) {
        if !app.store.lease_take(&address.to_string(), mac, secs).await? {
            continue;
        }
        // Behind a relay nobody can be asked by ARP: there the machine itself looks, and declines.
        let holder = match &subnet.interface {
            Some(interface) => address_probe::holder(interface, address).await,
            None => None,
        };
        match holder {
            Some(holder) if holder.to_string() != mac => {
                said(
                    app,
                    mac,
                    format!("{address} is in use by {holder}, which did not get it here; set aside"),
                )
                .await?;
                app.store.lease_decline(mac).await?;
            }
            _ => return Ok(Some(address)),
        }
    }
    Ok(None)
}

async fn said(app: &App, mac: &str, detail: String) -> Result<(), AppError> {
    tracing::warn!(node.mac = mac, detail, "address conflict");
    let event = NewEvent {
        node_id: None,
        mac: Some(mac),
        kind: "address_conflict",
        detail: &detail,
    };
    Ok(app.store.event_add(event).await?)
}

/// Gives a node a fixed address, or none.
///
/// # Errors
/// [`AppError::Invalid`] for an address outside every subnet or of the plumbing itself, a conflict for another node's.
pub async fn fixed_address_set(
    app: &App,
    node: NodeId,
    address: Option<Ipv4Addr>,
    changed_by: &str,
) -> Result<nodes::NodeView, AppError> {
    if let Some(address) = address {
        let boot = app.config.boot.as_ref();
        let subnet = boot.and_then(|boot| boot.subnet_of(address));
        let Some((boot, subnet)) = boot.zip(subnet) else {
            return Err(AppError::Invalid(format!(
                "address {address}: expected one inside a subnet of the configuration"
            )));
        };
        let network = subnet.network;
        if [network.network(), network.broadcast()].contains(&address)
            || boot.is_own(address)
            || subnet.router == Some(address)
        {
            return Err(AppError::Invalid(format!(
                "address {address}: it is the network's, the broadcast, the router's or this server's own"
            )));
        }
    }
    let text = address.map(|address| address.to_string());
    app.store.fixed_address_set(node, text.as_deref(), changed_by).await?;
    nodes::node_get(app, node).await
}
