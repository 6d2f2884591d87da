//! The subnets that nodes boot in: the appliance's own, and those behind relays.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::DhcpMode;
use super::raw::{RawBoot, RawSubnet};

/// A subnet, and the addresses that mode `full` gives there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// The network.
    pub network: Ipv4Net,
    /// Addresses given to whoever has no fixed one: first and last.
    pub pool: Option<(Ipv4Addr, Ipv4Addr)>,
    /// Default gateway for nodes.
    pub router: Option<Ipv4Addr>,
}

type Wrong = (&'static str, String);

/// All subnets, the appliance's own first.
pub(super) fn subnets(boot: &RawBoot, address: Ipv4Net) -> Result<Vec<Subnet>, Wrong> {
    let mut subnets = vec![Subnet {
        network: address.trunc(),
        pool: pool("boot.pool_first", (boot.pool_first, boot.pool_last), address)?,
        router: boot.router,
    }];
    for raw in &boot.subnets {
        let subnet = relayed(raw)?;
        if let Some(other) = subnets.iter().find(|other| overlap(other.network, subnet.network)) {
            let problem = format!(
                "{} lies in {}, which is a subnet already",
                subnet.network, other.network
            );
            return Err(("boot.subnets.network", problem));
        }
        subnets.push(subnet);
    }
    if boot.dhcp == DhcpMode::Full && subnets.iter().all(|subnet| subnet.pool.is_none()) {
        return Err(("boot.pool_first", "mode full needs pool_first and pool_last".to_owned()));
    }
    Ok(subnets)
}

fn relayed(raw: &RawSubnet) -> Result<Subnet, Wrong> {
    let network = raw.network.trunc();
    let inside = |address: Ipv4Addr| network.contains(&address);
    let router = raw.router.ok_or_else(|| {
        let problem = format!("expected the router of {network}: nodes there reach this server through it");
        ("boot.subnets.router", problem)
    })?;
    if !inside(router) {
        return Err((
            "boot.subnets.router",
            format!("{router}: expected an address inside {network}"),
        ));
    }
    Ok(Subnet {
        network,
        pool: pool("boot.subnets.pool_first", (raw.pool_first, raw.pool_last), network)?,
        router: Some(router),
    })
}

fn pool(
    key: &'static str,
    ends: (Option<Ipv4Addr>, Option<Ipv4Addr>),
    network: Ipv4Net,
) -> Result<Option<(Ipv4Addr, Ipv4Addr)>, Wrong> {
    match ends {
        (None, None) => Ok(None),
        (Some(first), Some(last)) if first <= last && network.contains(&first) && network.contains(&last) => {
            Ok(Some((first, last)))
        }
        (first, last) => {
            let shown = |address: Option<Ipv4Addr>| address.map_or_else(|| "nothing".to_owned(), |one| one.to_string());
            let (first, last) = (shown(first), shown(last));
            Err((
                key,
                format!("expected two ascending addresses inside {network}, found {first} to {last}"),
            ))
        }
    }
}

fn overlap(one: Ipv4Net, other: Ipv4Net) -> bool {
    one.contains(&other.network()) || other.contains(&one.network())
}
