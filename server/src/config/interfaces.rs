//! The interfaces that the boot plane serves on: one in `[boot]` itself, or several as `[[boot.interfaces]]`.
//!
//! Both forms amount to the same list. Refused: mixing them. Which of two pools belongs to which interface would then
//! depend on where a line stands.

use ipnet::Ipv4Net;

use super::DhcpMode;
use super::raw::{RawBoot, RawInterface};
use super::subnets::{Wrong, overlap};

/// Sockets and tasks are kept for each; a site with more has relays.
const INTERFACES_MAX: usize = 64;
/// IFNAMSIZ less the terminating NUL.
const NAME_BYTES_MAX: usize = 15;

/// An interface on a provisioning network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootInterface {
    /// Its name, 1 to 15 bytes.
    pub name: String,
    /// The appliance's address and network there. The address is this interface's DHCP server identifier and the host
    /// in every URL that its machines are told; no other interface's network overlaps it.
    pub address: Ipv4Net,
    /// How DHCP is answered there.
    pub dhcp: DhcpMode,
}

/// Dotted keys of one form, for messages.
pub(super) struct Keys {
    pub(super) name: &'static str,
    pub(super) address: &'static str,
    pub(super) pool_first: &'static str,
    pub(super) router: &'static str,
}

const SINGLE: Keys = Keys {
    name: "boot.interface",
    address: "boot.address",
    pool_first: "boot.pool_first",
    router: "boot.router",
};
const LISTED: Keys = Keys {
    name: "boot.interfaces.name",
    address: "boot.interfaces.address",
    pool_first: "boot.interfaces.pool_first",
    router: "boot.interfaces.router",
};

/// The interfaces as they were written, with the keys of the form that was used.
pub(super) fn listed(boot: &RawBoot) -> Result<(Vec<RawInterface>, &'static Keys), Wrong> {
    if boot.interfaces.is_empty() {
        let name = boot.interface.clone().ok_or_else(|| {
            let problem = "expected the name of the interface on the provisioning network, or [[boot.interfaces]]";
            (SINGLE.name, problem.to_owned())
        })?;
        let single = RawInterface {
            name,
            address: boot.address,
            dhcp: boot.dhcp.unwrap_or_default(),
            pool_first: boot.pool_first,
            pool_last: boot.pool_last,
            router: boot.router,
        };
        return Ok((vec![single], &SINGLE));
    }
    for (key, is_given) in [
        ("boot.interface", boot.interface.is_some()),
        ("boot.address", boot.address.is_some()),
        ("boot.dhcp", boot.dhcp.is_some()),
        ("boot.pool_first", boot.pool_first.is_some()),
        ("boot.pool_last", boot.pool_last.is_some()),
        ("boot.router", boot.router.is_some()),
    ] {
        if is_given {
            let problem = "with [[boot.interfaces]] it belongs into one of them (there `interface` is called `name`)";
            return Err((key, problem.to_owned()));
        }
    }
    if boot.interfaces.len() > INTERFACES_MAX {
        let problem = format!("{}: expected at most {INTERFACES_MAX}", boot.interfaces.len());
        return Err(("boot.interfaces", problem));
    }
    Ok((boot.interfaces.clone(), &LISTED))
}

/// The checked interfaces, in the order in which they were written. `address_of` finds the address of one that was
/// given none.
pub(super) fn interfaces(
    raw: &[RawInterface],
    keys: &Keys,
    address_of: impl Fn(&str) -> Result<Ipv4Net, String>,
) -> Result<Vec<BootInterface>, Wrong> {
    let mut interfaces: Vec<BootInterface> = Vec::new();
    for one in raw {
        let is_name = |byte: u8| byte.is_ascii_graphic() && byte != b'/';
        if one.name.is_empty() || one.name.len() > NAME_BYTES_MAX || !one.name.bytes().all(is_name) {
            let problem = format!(
                "{:?}: expected the name of a network interface, 1 to {NAME_BYTES_MAX} bytes",
                one.name
            );
            return Err((keys.name, problem));
        }
        if interfaces.iter().any(|other| other.name == one.name) {
            let problem = format!("{} is there twice: expected each interface once", one.name);
            return Err((keys.name, problem));
        }
        let address = match one.address {
            Some(address) => address,
            None => address_of(&one.name)
                .map_err(|problem| (keys.address, format!("not given, and {} {problem}", one.name)))?,
        };
        let is_neighbour = |other: &&BootInterface| overlap(other.address.trunc(), address.trunc());
        if let Some(other) = interfaces.iter().find(is_neighbour) {
            let problem = format!(
                "{} of {} overlaps {} of {}: expected networks apart, since an address tells where a machine is",
                address.trunc(),
                one.name,
                other.address.trunc(),
                other.name
            );
            return Err((keys.address, problem));
        }
        interfaces.push(BootInterface {
            name: one.name.clone(),
            address,
            dhcp: one.dhcp,
        });
    }
    Ok(interfaces)
}
