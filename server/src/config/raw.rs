//! The file as it is written.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::Ipv4Net;
use lifecycle::Chain;
use serde::Deserialize;

use super::commissioning::RawCommissioning;
use super::images::RawImages;

/// How DHCP is answered on a provisioning network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DhcpMode {
    /// Beside the site's DHCP; only boot answers are added.
    #[default]
    Proxy,
    /// Addresses too.
    Full,
    /// The site's DHCP names this server; DHCP is not answered.
    Off,
}

impl DhcpMode {
    /// As it is written in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Full => "full",
            Self::Off => "off",
        }
    }
}

/// Form of the log on standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Unvalidated {
    pub data_dir: PathBuf,
    pub database: RawDatabase,
    pub log: RawLog,
    pub boot: Option<RawBoot>,
    pub agents: RawAgents,
    pub people: RawPeople,
    pub site: RawSite,
    pub drift: RawDrift,
    pub remediation: RawRemediation,
    pub commissioning: RawCommissioning,
    pub images: RawImages,
}

impl Default for Unvalidated {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("/var/lib/plumbline"),
            database: RawDatabase::default(),
            log: RawLog::default(),
            boot: None,
            agents: RawAgents::default(),
            people: RawPeople::default(),
            site: RawSite::default(),
            drift: RawDrift::default(),
            remediation: RawRemediation::default(),
            commissioning: RawCommissioning::default(),
            images: RawImages::default(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawDatabase {
    pub url: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLog {
    pub format: LogFormat,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawBoot {
    pub interface: Option<String>,
    pub address: Option<Ipv4Net>,
    pub dhcp: Option<DhcpMode>,
    pub interfaces: Vec<RawInterface>,
    pub http_port: u16,
    pub tftp_port: u16,
    pub tftp: RawTftp,
    pub http_bodies_max: usize,
    pub loader_bytes_per_sec_max: Option<u32>,
    pub loaders_dir: PathBuf,
    pub chain: Chain,
    pub chain_by_group: BTreeMap<String, Chain>,
    pub chain_by_oui: BTreeMap<String, Chain>,
    pub pool_first: Option<Ipv4Addr>,
    pub pool_last: Option<Ipv4Addr>,
    pub router: Option<Ipv4Addr>,
    pub subnets: Vec<RawSubnet>,
    pub lease_secs: u32,
}

/// One of several interfaces.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawInterface {
    pub name: String,
    pub address: Option<Ipv4Net>,
    #[serde(default)]
    pub dhcp: DhcpMode,
    pub pool_first: Option<Ipv4Addr>,
    pub pool_last: Option<Ipv4Addr>,
    pub router: Option<Ipv4Addr>,
}

/// A subnet behind a relay.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSubnet {
    pub network: Ipv4Net,
    pub dhcp: Option<DhcpMode>,
    pub pool_first: Option<Ipv4Addr>,
    pub pool_last: Option<Ipv4Addr>,
    pub router: Option<Ipv4Addr>,
}

impl Default for RawBoot {
    fn default() -> Self {
        Self {
            interface: None,
            address: None,
            dhcp: None,
            interfaces: Vec::new(),
            http_port: 8081,
            tftp_port: 69,
            tftp: RawTftp::default(),
            http_bodies_max: 256,
            loader_bytes_per_sec_max: None,
            loaders_dir: PathBuf::from(super::LOADERS_DEFAULT),
            chain: Chain::Auto,
            chain_by_group: BTreeMap::new(),
            chain_by_oui: BTreeMap::new(),
            pool_first: None,
            pool_last: None,
            router: None,
            subnets: Vec::new(),
            lease_secs: 3_600,
        }
    }
}

/// What follows block 65535 of a TFTP transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawRollover {
    #[default]
    Zero,
    One,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawTftp {
    pub block_bytes_max: u16,
    pub window_blocks_max: u16,
    pub rollover: RawRollover,
    pub single_port: bool,
}

impl Default for RawTftp {
    fn default() -> Self {
        let limits = netboot::tftp::Limits::default();
        Self {
            block_bytes_max: limits.block_bytes_max,
            window_blocks_max: limits.window_blocks_max,
            rollover: RawRollover::default(),
            single_port: false,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawAgents {
    pub listen: SocketAddr,
}

impl Default for RawAgents {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 8443)),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawPeople {
    pub listen: SocketAddr,
}

impl Default for RawPeople {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawSite {
    pub authorized_keys: Vec<String>,
    pub dns: Vec<Ipv4Addr>,
    pub domain: Option<String>,
    pub kernel_arguments: String,
    pub scan_interval_secs: u64,
}

impl Default for RawSite {
    fn default() -> Self {
        Self {
            authorized_keys: Vec::new(),
            dns: Vec::new(),
            domain: None,
            kernel_arguments: String::new(),
            scan_interval_secs: 3_600,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawDrift {
    pub policy: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRemediation {
    pub at_once_percent: u32,
    pub rack_at_once_max: usize,
    pub hourly_max: usize,
    pub suspect_group_min: usize,
    pub suspect_percent: u32,
}

impl Default for RawRemediation {
    fn default() -> Self {
        let limits = lifecycle::remediation::Limits::default();
        Self {
            at_once_percent: limits.at_once_percent,
            rack_at_once_max: limits.rack_at_once_max,
            hourly_max: limits.hourly_max,
            suspect_group_min: limits.suspect_group_min,
            suspect_percent: limits.suspect_percent,
        }
    }
}
