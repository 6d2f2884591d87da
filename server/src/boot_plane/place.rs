//! Where a DHCP request comes from, and in whose name it is answered: a function of values.
//!
//! Idea: an interface answers what is on its own network, in its own name. What a relay brings belongs to the subnet that
//! the relay stands for, and comes in on whichever interface the route leads to; so there the subnet's definition says
//! how it is answered, and only the name is the interface's.
//!
//! Invariant: without a relay no request is answered for another interface's network, whatever it says of itself.

use netboot::dhcp::{Mode, Request, Stance};

use crate::config::{BootConfig, BootInterface, DhcpMode, Subnet};

/// A request's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place<'a> {
    /// The interface whose address answers.
    pub(super) speaker: &'a BootInterface,
    /// The subnet that the machine is in; none behind a relay that nobody configured.
    pub(super) subnet: Option<&'a Subnet>,
}

impl Place<'_> {
    /// How DHCP is answered there.
    pub(super) fn mode(&self) -> Mode {
        match self.subnet.map_or(self.speaker.dhcp, |subnet| subnet.dhcp) {
            DhcpMode::Proxy => Mode::Proxy,
            DhcpMode::Full => Mode::Full,
            DhcpMode::Off => Mode::Off,
        }
    }

    /// As whom it is answered.
    pub(super) fn stance(&self, config: &BootConfig) -> Stance {
        Stance {
            mode: self.mode(),
            server_ip: self.speaker.address.addr(),
            http_base: config.http_url(self.speaker),
        }
    }
}

/// The place of a request that came in on an interface.
pub(super) fn place<'a>(config: &'a BootConfig, heard_on: &'a BootInterface, request: &Request) -> Place<'a> {
    let named = request.subnet_address().and_then(|address| config.subnet_of(address));
    if request.header().giaddr.is_unspecified() {
        // A renewal that was routed here comes from behind a relay. An address of another interface's network was kept
        // from there by a machine that has moved: it is refused where the machine is now.
        let is_here = |subnet: &&Subnet| subnet.interface.as_ref().is_none_or(|name| *name == heard_on.name);
        let subnet = named.filter(is_here).or_else(|| config.subnet_on(heard_on));
        return Place {
            speaker: heard_on,
            subnet,
        };
    }
    let on_network = named.and_then(|subnet| config.interface_named(subnet.interface.as_deref()?));
    // A relay that forwards to two of our addresses, or by two routes: the machine hears the one that it chose.
    let chosen = request.server_id().filter(|server| config.is_own(*server));
    let chosen = chosen.map(|server| config.interface_at(Some(server.into())));
    Place {
        speaker: on_network.or(chosen).unwrap_or(heard_on),
        subnet: named,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::path::Path;

    use netboot::MacAddr;
    use netboot::dhcp::options::code;
    use netboot::dhcp::{Header, MessageType, OptionList};

    use super::*;
    use crate::config::Config;

    const TEXT: &str = "\
[[boot.interfaces]]
name = \"eno1\"
address = \"10.77.0.1/24\"
dhcp = \"full\"
pool_first = \"10.77.0.100\"
pool_last = \"10.77.0.199\"
[[boot.interfaces]]
name = \"eno2\"
address = \"10.87.0.5/24\"
[[boot.subnets]]
network = \"10.78.0.0/24\"
router = \"10.78.0.1\"
dhcp = \"full\"
[[boot.subnets]]
network = \"10.79.0.0/24\"
router = \"10.79.0.1\"
dhcp = \"off\"
";

    fn ip(text: &str) -> Ipv4Addr {
        text.parse().unwrap()
    }

    /// Mode and server identifier of the answer to a request from this relay, with this own address, for this server.
    fn answer(heard_on: usize, relay: &str, own: &str, server: Option<&str>) -> (Mode, String) {
        let config = Config::parse(TEXT, Path::new("test.toml")).unwrap().boot.unwrap();
        let mut header = Header::ethernet(7, MacAddr::new([0x52, 0x54, 0, 0xaa, 0, 1]));
        (header.giaddr, header.ciaddr) = (ip(relay), ip(own));
        let mut options = OptionList::new();
        if let Some(server) = server {
            options.set(code::SERVER_ID, ip(server).octets());
        }
        let request = Request::new(header, MessageType::Request, options).unwrap();
        let stance = place(&config, &config.interfaces[heard_on], &request).stance(&config);
        assert_eq!(stance.http_base, format!("http://{}:8081", stance.server_ip));
        (stance.mode, stance.server_ip.to_string())
    }

    #[test]
    fn an_interface_answers_its_own_network_in_its_own_name() {
        let own = |mode, server: &str| (mode, server.to_owned());
        assert_eq!(answer(0, "0.0.0.0", "0.0.0.0", None), own(Mode::Full, "10.77.0.1"));
        assert_eq!(answer(1, "0.0.0.0", "0.0.0.0", None), own(Mode::Proxy, "10.87.0.5"));
        for (address, server) in [("10.77.0.100", None), ("0.0.0.0", Some("10.77.0.1"))] {
            let moved = answer(1, "0.0.0.0", address, server);
            assert_eq!(moved, own(Mode::Proxy, "10.87.0.5"), "{address} {server:?}");
        }
    }

    #[test]
    fn what_a_relay_brings_is_answered_by_its_subnets_definition_on_either_interface() {
        for (heard_on, server) in [(0, "10.77.0.1"), (1, "10.87.0.5")] {
            assert_eq!(
                answer(heard_on, "10.78.0.1", "0.0.0.0", None),
                (Mode::Full, server.to_owned())
            );
            assert_eq!(answer(heard_on, "10.79.0.1", "0.0.0.0", None).0, Mode::Off);
            assert_eq!(
                answer(heard_on, "0.0.0.0", "10.78.0.9", None),
                (Mode::Full, server.to_owned()),
                "a renewal that was routed here"
            );
            assert_eq!(
                answer(heard_on, "10.78.0.1", "0.0.0.0", Some("10.87.0.5")).1,
                "10.87.0.5",
                "the server that the machine chose"
            );
            assert_eq!(
                answer(heard_on, "10.77.0.2", "0.0.0.0", None),
                (Mode::Full, "10.77.0.1".to_owned()),
                "a relay on an interface's own network stands for that network"
            );
        }
        assert_eq!(answer(0, "10.78.0.1", "0.0.0.0", Some("10.78.0.2")).1, "10.77.0.1");
        assert_eq!(
            answer(1, "192.168.9.1", "0.0.0.0", None).0,
            Mode::Proxy,
            "nobody's subnet"
        );
    }
}
