//! Leases that came from another server: which one is a machine's own, and what to make of one that is not.
//!
//! Idea: the address that something comes from tells whether it is the machine that it says it is. Two DHCP servers on one
//! segment break that: the loader may have the address of the one, the deployer that of the other. So where this server
//! gives the addresses, the deployer is told which lease is its own ([`own_lease`]); and one that comes from elsewhere all
//! the same, where another server was heard, is refused for that reason and not taken for a thief ([`reason`]).
//!
//! Invariant: whoever comes from another address than the node's gets nothing, whatever the reason is.
//!
//! Refused: taking an address of the other server where this one gives them. What a stray server says could then put
//! anybody in a node's place.

use std::net::{IpAddr, Ipv4Addr};

use protocol::NodeId;
use store::{BootEvent, OtherDhcpServer};
use time::OffsetDateTime;

use super::{App, AppError};
use crate::config::{BootConfig, DhcpMode, Subnet};

/// How recently a server was heard that still counts as there: its leases are renewed within such a time.
const HEARD_WITHIN: time::Duration = time::Duration::hours(1);
/// Identifiers on one kernel command line.
const SERVERS_MAX: usize = 8;

/// What the deployer's command line says of the lease that is its own; empty where the site gives the addresses, since
/// every lease is right there. `local`: the address by which its loader reached this server.
pub(super) fn own_lease(boot: &BootConfig, lease: Option<IpAddr>, local: Option<IpAddr>) -> String {
    let Some(IpAddr::V4(address)) = lease else {
        return String::new();
    };
    let Some(subnet) = boot.subnet_of(address).filter(|subnet| subnet.dhcp == DhcpMode::Full) else {
        return String::new();
    };
    let servers: Vec<String> = match &subnet.interface {
        Some(name) => boot.interface_named(name).into_iter().map(identifier).collect(),
        // A relay may forward to each of them.
        None => {
            let first = boot.interface_at(local);
            let others = boot.interfaces.iter().filter(|one| *one != first);
            let speaking = std::iter::once(first)
                .chain(others)
                .filter(|one| one.dhcp != DhcpMode::Off);
            speaking.take(SERVERS_MAX).map(identifier).collect()
        }
    };
    let router = subnet.router.map(|router| format!(" plumbline.router={router}"));
    format!(
        " plumbline.dhcp={} plumbline.address={address}/{}{}",
        servers.join(","),
        subnet.network.prefix_len(),
        router.unwrap_or_default()
    )
}

fn identifier(interface: &crate::config::BootInterface) -> String {
    interface.address.addr().to_string()
}

/// Why a machine comes from an address that is not its node's, where other DHCP servers explain it; none where nothing
/// does. `since`: when the boot began that it belongs to.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn explanation(
    app: &App,
    node: NodeId,
    (expected, peer): (IpAddr, IpAddr),
    since: OffsetDateTime,
) -> Result<Option<String>, AppError> {
    let (Some(boot), IpAddr::V4(expected), IpAddr::V4(peer)) = (&app.config.boot, expected, peer) else {
        return Ok(None);
    };
    let seen = Seen {
        events: &app.store.event_list(node, 0).await?,
        servers: &app.store.dhcp_server_list().await?,
        since,
        now: OffsetDateTime::now_utc(),
    };
    Ok(reason(boot, (expected, peer), &seen))
}

/// What was seen of other servers.
struct Seen<'a> {
    /// Of the node, oldest first.
    events: &'a [BootEvent],
    servers: &'a [OtherDhcpServer],
    since: OffsetDateTime,
    now: OffsetDateTime,
}

/// Decides from what was seen alone.
fn reason(boot: &BootConfig, (expected, peer): (Ipv4Addr, Ipv4Addr), seen: &Seen<'_>) -> Option<String> {
    let subnet = boot.subnet_of(expected)?;
    let took = seen
        .events
        .iter()
        .rev()
        .find(|event| event.kind == "dhcp_other_server" && event.at >= seen.since);
    if subnet.dhcp == DhcpMode::Full
        && let Some(took) = took
    {
        return Some(format!(
            "it comes from {peer}, and the node's address is {expected}: it took the offer of another DHCP server, {}",
            took.detail
        ));
    }
    let is_recent = |server: &&OtherDhcpServer| seen.now - server.last_at <= HEARD_WITHIN;
    let heard: Vec<String> = seen
        .servers
        .iter()
        .filter(is_recent)
        .filter(|server| is_heard_in(subnet, &server.interface))
        .map(|server| format!("{} on {}", server.address, server.interface))
        .collect();
    // Beside this server one more is one too many; where the site gives the addresses, one is as it should be.
    let are_too_many = heard.len() > usize::from(subnet.dhcp != DhcpMode::Full);
    are_too_many.then(|| {
        format!(
            "it comes from {peer}, and the node's address is {expected}: more than one DHCP server gives addresses there \
             ({})",
            heard.join(", ")
        )
    })
}

/// Whether a place where a server was heard (`INTERFACE`, or `INTERFACE via RELAY`) is in a subnet.
fn is_heard_in(subnet: &Subnet, place: &str) -> bool {
    match (place.split_once(" via "), &subnet.interface) {
        (Some((_, relay)), _) => relay
            .parse()
            .is_ok_and(|relay: Ipv4Addr| subnet.network.contains(&relay)),
        (None, Some(interface)) => place == interface,
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn boot() -> BootConfig {
        let text = "\
[[boot.interfaces]]
name = \"eno1\"
address = \"10.77.0.1/24\"
dhcp = \"full\"
pool_first = \"10.77.0.100\"
pool_last = \"10.77.0.199\"
router = \"10.77.0.254\"
[[boot.interfaces]]
name = \"eno2\"
address = \"10.87.0.5/24\"
[[boot.subnets]]
network = \"10.78.0.0/24\"
router = \"10.78.0.1\"
dhcp = \"full\"
";
        Config::parse(text, Path::new("test.toml")).unwrap().boot.unwrap()
    }

    fn ip(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    #[test]
    fn a_deployer_is_told_which_lease_is_its_own_where_this_server_gives_it() {
        let told = |lease: &str, local: &str| own_lease(&boot(), Some(ip(lease).into()), Some(ip(local).into()));
        assert_eq!(
            told("10.77.0.100", "10.77.0.1"),
            " plumbline.dhcp=10.77.0.1 plumbline.address=10.77.0.100/24 plumbline.router=10.77.0.254"
        );
        assert_eq!(
            told("10.78.0.100", "10.87.0.5"),
            " plumbline.dhcp=10.87.0.5,10.77.0.1 plumbline.address=10.78.0.100/24 plumbline.router=10.78.0.1"
        );
        assert_eq!(told("10.87.0.100", "10.87.0.5"), "", "the site's server gives it");
        assert_eq!(own_lease(&boot(), None, None), "");
    }

    fn server(address: &str, interface: &str, secs_ago: i64) -> OtherDhcpServer {
        OtherDhcpServer {
            address: address.to_owned(),
            interface: interface.to_owned(),
            first_at: NOW,
            last_at: NOW - time::Duration::seconds(secs_ago),
            count: 1,
            last_mac: "52:54:00:aa:00:01".to_owned(),
        }
    }

    fn said(expected: &str, servers: &[OtherDhcpServer], took: Option<i64>) -> Option<String> {
        let took = took.map(|secs_ago| BootEvent {
            id: 1,
            node_id: None,
            mac: None,
            at: NOW - time::Duration::seconds(secs_ago),
            kind: "dhcp_other_server".to_owned(),
            detail: "10.77.0.2".to_owned(),
        });
        let seen = Seen {
            events: took.as_slice(),
            servers,
            since: NOW - time::Duration::seconds(60),
            now: NOW,
        };
        reason(&boot(), (ip(expected), ip("10.77.0.66")), &seen)
    }

    #[test]
    fn another_servers_lease_is_told_from_a_thief() {
        let full = "10.77.0.100";
        assert_eq!(said(full, &[], None), None, "nobody else gives addresses: a thief");
        let took = said(full, &[], Some(30)).unwrap();
        assert!(
            took.contains("10.77.0.66") && took.contains("another DHCP server, 10.77.0.2"),
            "{took}"
        );
        assert_eq!(said(full, &[], Some(90)), None, "before this boot");
        let heard = said(full, &[server("10.77.0.2", "eno1", 600)], None).unwrap();
        assert!(heard.contains("10.77.0.2 on eno1"), "{heard}");
        for elsewhere in [
            server("10.77.0.2", "eno2", 600),
            server("10.77.0.2", "eno1 via 10.78.0.1", 600),
            server("10.77.0.2", "eno1", 4_000),
        ] {
            assert_eq!(
                said(full, std::slice::from_ref(&elsewhere), None),
                None,
                "{elsewhere:?}"
            );
        }
        assert!(said("10.78.0.100", &[server("10.78.0.2", "eno1 via 10.78.0.1", 600)], None).is_some());
    }

    #[test]
    fn beside_the_sites_server_it_takes_a_second_one() {
        let (one, other) = (server("10.87.0.1", "eno2", 60), server("10.87.0.2", "eno2", 60));
        assert_eq!(
            said("10.87.0.100", std::slice::from_ref(&one), Some(30)),
            None,
            "as it should be there"
        );
        assert!(said("10.87.0.100", &[one, other], None).is_some());
        assert_eq!(said("192.168.7.7", &[], None), None, "an address of no subnet");
    }
}
