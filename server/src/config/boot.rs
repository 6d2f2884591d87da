//! `[boot]`: the boot plane.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use ipnet::Ipv4Net;
use lifecycle::Chain;
use netboot::MacAddr;

use super::DhcpMode;
use super::interfaces::{self, BootInterface};
use super::raw::{RawBoot, RawRollover, RawTftp};
use super::subnets::{self, Subnet, Wrong};

/// Each of them has a file and a connection open.
const HTTP_BODIES_MAX: usize = 10_000;

/// Slower, and a kernel with its initramfs would not arrive before a person gives up.
const LOADER_RATE_MIN: u32 = 65_536;

/// The boot plane.
#[derive(Clone, Debug)]
pub struct BootConfig {
    /// Interfaces on provisioning networks, at least one; no two networks overlap.
    pub interfaces: Vec<BootInterface>,
    /// Port of the boot listener (plain HTTP), on each interface's address.
    pub http_port: u16,
    /// UDP port of TFTP, on each interface's address.
    pub tftp_port: u16,
    /// How TFTP serves.
    pub tftp: TftpSettings,
    /// Large bodies (kernels, initramfs, packs) that the boot listener sends at a time; more requests wait.
    pub http_bodies_max: usize,
    /// Bytes a second that one machine is sent of loaders, kernel and initramfs; none: as fast as it takes them. For
    /// firmware whose network driver loses what comes faster and then hangs.
    pub loader_bytes_per_sec_max: Option<u32>,
    /// Folder with the boot loaders that set-up fetched.
    pub loaders_dir: PathBuf,
    /// Which boot loader nodes get.
    pub chain: Chain,
    /// Which boot loader the nodes of a group get, where it is another.
    pub chain_by_group: BTreeMap<String, Chain>,
    /// Which boot loader machines get whose interface has this OUI (the first three octets of its MAC): some makers'
    /// firmware gets along with one chain only.
    pub chain_by_oui: BTreeMap<[u8; 3], Chain>,
    /// Where nodes boot: the interfaces' subnets first, then those behind relays. No two overlap.
    pub subnets: Vec<Subnet>,
    /// Lease time in seconds.
    pub lease_secs: u32,
}

impl BootConfig {
    /// The subnet that this address is of.
    #[must_use]
    pub fn subnet_of(&self, address: Ipv4Addr) -> Option<&Subnet> {
        self.subnets.iter().find(|subnet| subnet.network.contains(&address))
    }

    /// The subnet that this interface is on.
    #[must_use]
    pub fn subnet_on(&self, interface: &BootInterface) -> Option<&Subnet> {
        let is_on = |subnet: &&Subnet| subnet.interface.as_ref() == Some(&interface.name);
        self.subnets.iter().find(is_on)
    }

    /// The interface with this address of the appliance's; the first where it is of none.
    #[must_use]
    pub fn interface_at(&self, local: Option<IpAddr>) -> &BootInterface {
        let is_its = |interface: &&BootInterface| local == Some(IpAddr::V4(interface.address.addr()));
        self.interfaces.iter().find(is_its).unwrap_or(&self.interfaces[0])
    }

    /// The interface of this name.
    #[must_use]
    pub fn interface_named(&self, name: &str) -> Option<&BootInterface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }

    /// Whether this is one of the appliance's own addresses.
    #[must_use]
    pub fn is_own(&self, address: Ipv4Addr) -> bool {
        self.interfaces
            .iter()
            .any(|interface| interface.address.addr() == address)
    }

    /// Whether addresses are given out anywhere.
    #[must_use]
    pub fn gives_addresses(&self) -> bool {
        self.subnets.iter().any(|subnet| subnet.dhcp == DhcpMode::Full)
    }

    /// The chain of a machine that asks by this MAC: the narrowest choice of its node, its interface's maker, its group
    /// and the site.
    #[must_use]
    pub fn chain_of(&self, mac: MacAddr, node: Chain, group: &str, secure_boot: Option<bool>) -> Chain {
        let [a, b, c, ..] = mac.octets();
        let by_oui = self.chain_by_oui.get(&[a, b, c]).copied().unwrap_or_default();
        let by_group = self.chain_by_group.get(group).copied().unwrap_or_default();
        Chain::resolve(&[node, by_oui, by_group, self.chain], secure_boot)
    }

    /// Base URL of the boot listener as the machines on an interface's network reach it.
    #[must_use]
    pub fn http_url(&self, interface: &BootInterface) -> String {
        format!("http://{}:{}", interface.address.addr(), self.http_port)
    }
}

/// How TFTP serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TftpSettings {
    /// Bounds of what clients may negotiate.
    pub limits: netboot::tftp::Limits,
    /// What follows block 65535.
    pub rollover: netboot::tftp::Rollover,
    /// Answer from the port that was asked, for networks that translate addresses.
    pub is_single_port: bool,
}

/// Checks the section. Reads an interface's address from the system where none is given.
pub(super) fn boot(raw: RawBoot) -> Result<BootConfig, Wrong> {
    let (listed, keys) = interfaces::listed(&raw)?;
    let interfaces = interfaces::interfaces(&listed, keys, interface_address)?;
    let subnets = subnets::subnets((&listed, keys), &interfaces, &raw.subnets)?;
    if !(60..=31_536_000).contains(&raw.lease_secs) {
        let problem = format!("{}: expected 60 to 31536000", raw.lease_secs);
        return Err(("boot.lease_secs", problem));
    }
    let tftp = tftp(&raw.tftp)?;
    if !(1..=HTTP_BODIES_MAX).contains(&raw.http_bodies_max) {
        let problem = format!("{}: expected 1 to {HTTP_BODIES_MAX}", raw.http_bodies_max);
        return Err(("boot.http_bodies_max", problem));
    }
    if let Some(rate) = raw.loader_bytes_per_sec_max
        && rate < LOADER_RATE_MIN
    {
        let problem = format!("{rate}: expected {LOADER_RATE_MIN} or more");
        return Err(("boot.loader_bytes_per_sec_max", problem));
    }
    Ok(BootConfig {
        interfaces,
        http_port: raw.http_port,
        tftp_port: raw.tftp_port,
        tftp,
        http_bodies_max: raw.http_bodies_max,
        loader_bytes_per_sec_max: raw.loader_bytes_per_sec_max,
        loaders_dir: raw.loaders_dir,
        chain: raw.chain,
        chain_by_oui: by_oui(raw.chain_by_oui)?,
        chain_by_group: raw.chain_by_group,
        subnets,
        lease_secs: raw.lease_secs,
    })
}

fn by_oui(raw: BTreeMap<String, Chain>) -> Result<BTreeMap<[u8; 3], Chain>, Wrong> {
    let read = |(text, chain): (String, Chain)| {
        let parts: Option<Vec<u8>> = text
            .split([':', '-'])
            .map(|part| {
                u8::from_str_radix(part, 16)
                    .ok()
                    .filter(|_| part.len() == 2 && !part.starts_with('+'))
            })
            .collect();
        let oui = parts.and_then(|parts| <[u8; 3]>::try_from(parts).ok());
        let problem = || format!("{text:?}: expected the first three octets of a MAC, such as \"b8:59:9f\"");
        Ok((oui.ok_or_else(|| ("boot.chain_by_oui", problem()))?, chain))
    };
    raw.into_iter().map(read).collect()
}

fn tftp(raw: &RawTftp) -> Result<TftpSettings, Wrong> {
    let within = |key, value: u16, range: std::ops::RangeInclusive<u16>| match range.contains(&value) {
        true => Ok(()),
        false => Err((key, format!("{value}: expected {} to {}", range.start(), range.end()))),
    };
    within("boot.tftp.block_bytes_max", raw.block_bytes_max, 512..=65_464)?;
    within("boot.tftp.window_blocks_max", raw.window_blocks_max, 1..=64)?;
    Ok(TftpSettings {
        limits: netboot::tftp::Limits {
            block_bytes_max: raw.block_bytes_max,
            window_blocks_max: raw.window_blocks_max,
        },
        rollover: match raw.rollover {
            RawRollover::Zero => netboot::tftp::Rollover::Zero,
            RawRollover::One => netboot::tftp::Rollover::One,
        },
        is_single_port: raw.single_port,
    })
}

/// The first IPv4 address of an interface, as `ip` shows it.
fn interface_address(interface: &str) -> Result<Ipv4Net, String> {
    let output = std::process::Command::new("ip")
        .args(["-4", "-oneline", "address", "show", "dev", interface])
        .output()
        .map_err(|error| format!("cannot be asked: ip: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse_interface_address(&text).ok_or_else(|| "has no IPv4 address".to_owned())
}

fn parse_interface_address(text: &str) -> Option<Ipv4Net> {
    let mut words = text.lines().next()?.split_whitespace();
    words.find(|word| *word == "inet")?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_from_ip() {
        let text = "2: br0    inet 10.77.0.1/24 scope global br0\\       valid_lft forever preferred_lft forever\n";
        assert_eq!(parse_interface_address(text).unwrap().to_string(), "10.77.0.1/24");
        assert_eq!(parse_interface_address(""), None);
    }
}
