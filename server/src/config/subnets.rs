//! The subnets that nodes boot in: those of the appliance's interfaces, and those behind relays.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use super::DhcpMode;
use super::interfaces::{BootInterface, Keys};
use super::raw::{RawInterface, RawSubnet};

/// A subnet, and the addresses that mode `full` gives there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// The network.
    pub network: Ipv4Net,
    /// The interface that is on it; none where a relay is between.
    pub interface: Option<String>,
    /// How DHCP is answered there, whichever interface a request comes in on.
    pub dhcp: DhcpMode,
    /// Addresses given to whoever has no fixed one: first and last.
    pub pool: Option<(Ipv4Addr, Ipv4Addr)>,
    /// Default gateway for nodes.
    pub router: Option<Ipv4Addr>,
}

/// The key, and what is wrong with its value.
pub(super) type Wrong = (&'static str, String);

/// All subnets, those of interfaces first. `raw` and `interfaces` are the same list, as written and as checked.
pub(super) fn subnets(
    (raw, keys): (&[RawInterface], &Keys),
    interfaces: &[BootInterface],
    relayed: &[RawSubnet],
) -> Result<Vec<Subnet>, Wrong> {
    let mut subnets = Vec::new();
    for (raw, interface) in raw.iter().zip(interfaces) {
        let network = interface.address.trunc();
        if let Some(router) = raw.router.filter(|router| !network.contains(router)) {
            let problem = format!("{router}: expected an address inside {network}");
            return Err((keys.router, problem));
        }
        subnets.push(Subnet {
            network,
            interface: Some(interface.name.clone()),
            dhcp: interface.dhcp,
            pool: pool(keys.pool_first, (raw.pool_first, raw.pool_last), network)?,
            router: raw.router,
        });
    }
    for raw in relayed {
        let subnet = behind_relay(raw, interfaces)?;
        if let Some(other) = subnets.iter().find(|other| overlap(other.network, subnet.network)) {
            let problem = format!(
                "{} lies in {}, which is a subnet already",
                subnet.network, other.network
            );
            return Err(("boot.subnets.network", problem));
        }
        subnets.push(subnet);
    }
    // An interface without addresses of its own may be there for what relays bring.
    let gives = |subnet: &Subnet| subnet.dhcp == DhcpMode::Full && subnet.pool.is_some();
    let relays_get_some = subnets.iter().any(|subnet| subnet.interface.is_none() && gives(subnet));
    let lacks = |subnet: &&Subnet| subnet.interface.is_some() && subnet.dhcp == DhcpMode::Full && subnet.pool.is_none();
    if let Some(name) = subnets.iter().find(lacks).and_then(|subnet| subnet.interface.as_ref())
        && !relays_get_some
    {
        let problem = format!("{name}: mode full needs pool_first and pool_last");
        return Err((keys.pool_first, problem));
    }
    Ok(subnets)
}

fn behind_relay(raw: &RawSubnet, interfaces: &[BootInterface]) -> Result<Subnet, Wrong> {
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
    let dhcp = match (raw.dhcp, common_mode(interfaces)) {
        (Some(dhcp), _) | (None, Some(dhcp)) => dhcp,
        (None, None) => {
            let problem = format!(
                "expected full, proxy or off for {network}: the interfaces differ, so none of their modes holds for it"
            );
            return Err(("boot.subnets.dhcp", problem));
        }
    };
    if dhcp != DhcpMode::Off && interfaces.iter().all(|interface| interface.dhcp == DhcpMode::Off) {
        let problem = format!("{network} is never heard of: no interface answers DHCP");
        return Err(("boot.subnets.dhcp", problem));
    }
    Ok(Subnet {
        network,
        interface: None,
        dhcp,
        pool: pool("boot.subnets.pool_first", (raw.pool_first, raw.pool_last), network)?,
        router: Some(router),
    })
}

/// The mode of all interfaces, where they have the same.
fn common_mode(interfaces: &[BootInterface]) -> Option<DhcpMode> {
    let first = interfaces.first()?.dhcp;
    interfaces
        .iter()
        .all(|interface| interface.dhcp == first)
        .then_some(first)
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

/// Whether two networks have addresses in common.
pub(super) fn overlap(one: Ipv4Net, other: Ipv4Net) -> bool {
    one.contains(&other.network()) || other.contains(&one.network())
}
