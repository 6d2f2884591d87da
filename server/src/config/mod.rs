//! The configuration: one TOML file, every key optional.
//!
//! `Unvalidated` is what the file says; [`Config`] is what was checked. Unknown keys and wrong types are refused with
//! line and column, values that do not fit with their key.

mod commissioning;
mod raw;
mod subnets;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::Ipv4Net;
use lifecycle::Chain;
use lifecycle::remediation::Limits;

pub use commissioning::{Commissioning, total_check};
pub use raw::{DhcpMode, LogFormat};
use raw::{RawRemediation, RawRollover, RawTftp, Unvalidated};
pub use subnets::Subnet;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("configuration {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file is not what was expected; the message holds line and column.
    #[error("configuration {path}: {message}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// The parser's message.
        message: String,
    },
    /// A value does not fit.
    #[error("configuration: {key}: {problem}")]
    Value {
        /// Dotted key.
        key: &'static str,
        /// What was found and expected.
        problem: String,
    },
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where everything is kept that is not in PostgreSQL, and the private PostgreSQL too.
    pub data_dir: PathBuf,
    /// An outside PostgreSQL; none: a private cluster in the data folder.
    pub database_url: Option<String>,
    /// Log form.
    pub log_format: LogFormat,
    /// The provisioning network; none: no boot plane.
    pub boot: Option<BootConfig>,
    /// Agents' listener.
    pub agents_listen: SocketAddr,
    /// People's listener.
    pub people_listen: SocketAddr,
    /// What every node gets.
    pub site: SiteConfig,
    /// File with the drift policy; none: the built-in one.
    pub policy: Option<PathBuf>,
    /// Limits of remediation.
    pub remediation: Limits,
    /// How machines are burned in.
    pub commissioning: Commissioning,
}

/// The boot plane.
#[derive(Clone, Debug)]
pub struct BootConfig {
    /// Interface on the provisioning network.
    pub interface: String,
    /// The appliance's address and network there.
    pub address: Ipv4Net,
    /// How DHCP is answered.
    pub dhcp: DhcpMode,
    /// Port of the boot listener (plain HTTP), on `address`.
    pub http_port: u16,
    /// UDP port of TFTP.
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
    /// Where nodes boot: the appliance's own subnet first, then those behind relays.
    pub subnets: Vec<Subnet>,
    /// Lease time in seconds.
    pub lease_secs: u32,
}

impl BootConfig {
    /// The subnet with this address; the appliance's own where none is given.
    #[must_use]
    pub fn subnet(&self, address: Option<Ipv4Addr>) -> Option<&Subnet> {
        match address {
            None => self.subnets.first(),
            Some(address) => self.subnets.iter().find(|subnet| subnet.network.contains(&address)),
        }
    }

    /// Base URL of the boot listener as nodes reach it.
    #[must_use]
    pub fn http_url(&self) -> String {
        format!("http://{}:{}", self.address.addr(), self.http_port)
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

/// Variables of the site.
#[derive(Clone, Debug)]
pub struct SiteConfig {
    /// Public keys for root's authorized_keys.
    pub authorized_keys: Vec<String>,
    /// DNS servers.
    pub dns: Vec<Ipv4Addr>,
    /// DNS domain.
    pub domain: Option<String>,
    /// Kernel command line additions.
    pub kernel_arguments: String,
    /// Seconds between two scans of a node.
    pub scan_interval_secs: u64,
}

impl Config {
    /// Reads a file; none: all defaults.
    ///
    /// # Errors
    /// [`ConfigError`] that says what, where and what was expected.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(path) = path else {
            return Self::parse("", Path::new("(none)"));
        };
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path)
    }

    /// Reads a configuration's text; `path` is for messages.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let raw: Unvalidated = toml::from_str(text).map_err(|error| ConfigError::Parse {
            path: path.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        })?;
        raw.try_into()
    }

    /// The address and port agents reach, written into their configuration.
    #[must_use]
    pub fn agents_url(&self) -> String {
        let address = match (self.agents_listen.ip().is_unspecified(), &self.boot) {
            (true, Some(boot)) => boot.address.addr().into(),
            _ => self.agents_listen.ip(),
        };
        format!("https://{}", SocketAddr::new(address, self.agents_listen.port()))
    }
}

impl TryFrom<Unvalidated> for Config {
    type Error = ConfigError;

    fn try_from(raw: Unvalidated) -> Result<Self, ConfigError> {
        let value = |key, problem: String| ConfigError::Value { key, problem };
        let boot = raw.boot.map(|boot| -> Result<BootConfig, ConfigError> {
            let interface = boot.interface.clone().ok_or_else(|| {
                value(
                    "boot.interface",
                    "expected the name of the interface on the provisioning network".to_owned(),
                )
            })?;
            let address = match boot.address {
                Some(address) => address,
                None => interface_address(&interface)
                    .map_err(|problem| value("boot.address", format!("not given, and {interface} {problem}")))?,
            };
            let subnets = subnets::subnets(&boot, address).map_err(|(key, problem)| value(key, problem))?;
            if !(60..=31_536_000).contains(&boot.lease_secs) {
                return Err(value(
                    "boot.lease_secs",
                    format!("{}: expected 60 to 31536000", boot.lease_secs),
                ));
            }
            let tftp = tftp(&boot.tftp).map_err(|(key, problem)| value(key, problem))?;
            if !(1..=HTTP_BODIES_MAX).contains(&boot.http_bodies_max) {
                let problem = format!("{}: expected 1 to {HTTP_BODIES_MAX}", boot.http_bodies_max);
                return Err(value("boot.http_bodies_max", problem));
            }
            if let Some(rate) = boot.loader_bytes_per_sec_max
                && rate < LOADER_RATE_MIN
            {
                return Err(value(
                    "boot.loader_bytes_per_sec_max",
                    format!("{rate}: expected {LOADER_RATE_MIN} or more"),
                ));
            }
            Ok(BootConfig {
                interface,
                address,
                dhcp: boot.dhcp,
                http_port: boot.http_port,
                tftp_port: boot.tftp_port,
                tftp,
                http_bodies_max: boot.http_bodies_max,
                loader_bytes_per_sec_max: boot.loader_bytes_per_sec_max,
                loaders_dir: boot.loaders_dir,
                chain: boot.chain,
                chain_by_group: boot.chain_by_group,
                subnets,
                lease_secs: boot.lease_secs,
            })
        });
        if !(60..=86_400).contains(&raw.site.scan_interval_secs) {
            let problem = format!("{}: expected 60 to 86400", raw.site.scan_interval_secs);
            return Err(value("site.scan_interval_secs", problem));
        }
        for key in &raw.site.authorized_keys {
            if ssh_key::PublicKey::from_openssh(key).is_err() {
                let shown: String = key.chars().take(40).collect();
                return Err(value(
                    "site.authorized_keys",
                    format!("{shown:?}: expected an OpenSSH public key"),
                ));
            }
        }
        if raw
            .site
            .kernel_arguments
            .contains(['\n', '\r', '"', '\'', '$', '\\', ';', '{', '}'])
        {
            let problem = "expected plain arguments without quotes, '$', ';', braces or backslashes".to_owned();
            return Err(value("site.kernel_arguments", problem));
        }
        let commissioning =
            commissioning::commissioning(raw.commissioning).map_err(|(key, problem)| value(key, problem))?;
        let remediation = limits(&raw.remediation).map_err(|(key, problem)| value(key, problem))?;
        Ok(Self {
            data_dir: raw.data_dir,
            database_url: raw.database.url,
            log_format: raw.log.format,
            boot: boot.transpose()?,
            agents_listen: raw.agents.listen,
            people_listen: raw.people.listen,
            site: SiteConfig {
                authorized_keys: raw.site.authorized_keys,
                dns: raw.site.dns,
                domain: raw.site.domain,
                kernel_arguments: raw.site.kernel_arguments,
                scan_interval_secs: raw.site.scan_interval_secs,
            },
            policy: raw.drift.policy,
            remediation,
            commissioning,
        })
    }
}

/// Each of them has a file and a connection open.
const HTTP_BODIES_MAX: usize = 10_000;

/// Slower, and a kernel with its initramfs would not arrive before a person gives up.
const LOADER_RATE_MIN: u32 = 65_536;

fn tftp(raw: &RawTftp) -> Result<TftpSettings, (&'static str, String)> {
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

/// Limits that protect something: none of them can be switched off by a number that looks harmless.
fn limits(raw: &RawRemediation) -> Result<Limits, (&'static str, String)> {
    let within = |key, value: usize, range: std::ops::RangeInclusive<usize>| match range.contains(&value) {
        true => Ok(()),
        false => Err((key, format!("{value}: expected {} to {}", range.start(), range.end()))),
    };
    let (at_once, suspect) = (raw.at_once_percent as usize, raw.suspect_percent as usize);
    within("remediation.at_once_percent", at_once, 1..=50)?;
    within("remediation.rack_at_once_max", raw.rack_at_once_max, 1..=1_000)?;
    within("remediation.hourly_max", raw.hourly_max, 1..=10_000)?;
    within("remediation.suspect_group_min", raw.suspect_group_min, 2..=100)?;
    within("remediation.suspect_percent", suspect, 1..=50)?;
    Ok(Limits {
        at_once_percent: raw.at_once_percent,
        rack_at_once_max: raw.rack_at_once_max,
        hourly_max: raw.hourly_max,
        suspect_group_min: raw.suspect_group_min,
        suspect_percent: raw.suspect_percent,
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

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, Path::new("plumbline.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn every_key_is_optional() {
        let config = parse("").unwrap();
        assert_eq!(config.people_listen.to_string(), "127.0.0.1:8080");
        assert!(config.boot.is_none());
    }

    #[test]
    fn an_unknown_key_is_refused_with_line_and_column() {
        let error = parse("data_dir = \"/x\"\n[boot]\ninterfaec = \"br0\"\n").unwrap_err();
        assert!(
            error.contains("line 3, column 1") && error.contains("interfaec"),
            "{error}"
        );
        assert!(
            error.contains("plumbline.toml") && error.contains("expected one of"),
            "{error}"
        );
    }

    #[test]
    fn values_that_do_not_fit_name_their_key() {
        let boot = "[boot]\ninterface = \"br0\"\naddress = \"10.77.0.1/24\"\n";
        for (text, expected) in [
            (format!("{boot}dhcp = \"full\"\n"), "boot.pool_first"),
            (
                format!("{boot}dhcp = \"full\"\npool_first = \"10.78.0.1\"\npool_last = \"10.78.0.9\"\n"),
                "inside",
            ),
            (
                format!("{boot}[[boot.subnets]]\nnetwork = \"10.78.0.0/24\"\n"),
                "boot.subnets.router: expected the router of 10.78.0.0/24",
            ),
            (
                format!("{boot}[[boot.subnets]]\nnetwork = \"10.77.0.128/25\"\nrouter = \"10.77.0.129\"\n"),
                "10.77.0.128/25 lies in 10.77.0.0/24",
            ),
            (format!("{boot}dhcp = \"sometimes\"\n"), "line 4"),
            ("[boot]\n".to_owned(), "boot.interface"),
            (
                format!("{boot}[boot.tftp]\nblock_bytes_max = 65535\n"),
                "boot.tftp.block_bytes_max: 65535: expected 512 to 65464",
            ),
            (
                format!("{boot}[boot.tftp]\nwindow_blocks_max = 0\n"),
                "boot.tftp.window_blocks_max",
            ),
            (format!("{boot}[boot.tftp]\nrollover = \"two\"\n"), "line 5"),
            (format!("{boot}loader_bytes_per_sec_max = 1\n"), "65536 or more"),
            (
                format!("{boot}http_bodies_max = 0\n"),
                "boot.http_bodies_max: 0: expected 1 to 10000",
            ),
            (
                "[site]\nauthorized_keys = [\"hello\"]\n".to_owned(),
                "site.authorized_keys",
            ),
            ("[site]\nscan_interval_secs = 1\n".to_owned(), "60 to 86400"),
            (
                "[site]\nkernel_arguments = \"x; reboot\"\n".to_owned(),
                "site.kernel_arguments",
            ),
            (
                "[remediation]\nsuspect_percent = 100\n".to_owned(),
                "remediation.suspect_percent: 100: expected 1 to 50",
            ),
            ("[remediation]\nat_once = 2\n".to_owned(), "at_once_percent"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(expected), "{error} should say {expected}");
        }
    }

    /// uftpd#45, edk2#7632, docker-netbootxyz#39: what some firmware and networks need can be set.
    #[test]
    fn uftpd_45_tftp_can_be_set_for_firmware_and_networks_that_need_it() {
        let boot = "[boot]\ninterface = \"br0\"\naddress = \"10.77.0.1/24\"\n";
        let usual = parse(boot).unwrap().boot.unwrap();
        assert_eq!(usual.tftp, TftpSettings::default());
        assert_eq!(
            (usual.tftp.limits.block_bytes_max, usual.tftp.limits.window_blocks_max),
            (1468, 64)
        );
        let text = format!(
            "{boot}loader_bytes_per_sec_max = 1000000\n[boot.tftp]\nblock_bytes_max = 1024\nwindow_blocks_max = 1\n\
             rollover = \"one\"\nsingle_port = true\n"
        );
        let set = parse(&text).unwrap().boot.unwrap();
        assert_eq!(set.loader_bytes_per_sec_max, Some(1_000_000));
        assert_eq!(
            set.tftp,
            TftpSettings {
                limits: netboot::tftp::Limits {
                    block_bytes_max: 1024,
                    window_blocks_max: 1,
                },
                rollover: netboot::tftp::Rollover::One,
                is_single_port: true,
            }
        );
    }

    #[test]
    fn agents_are_told_an_address_they_can_reach() {
        let config =
            parse("[agents]\nlisten = \"0.0.0.0:8443\"\n[boot]\ninterface = \"br0\"\naddress = \"10.77.0.1/24\"\n")
                .unwrap();
        assert_eq!(config.agents_url(), "https://10.77.0.1:8443");
    }

    #[test]
    fn an_address_is_read_from_ip() {
        let text = "2: br0    inet 10.77.0.1/24 scope global br0\\       valid_lft forever preferred_lft forever\n";
        assert_eq!(parse_interface_address(text).unwrap().to_string(), "10.77.0.1/24");
        assert_eq!(parse_interface_address(""), None);
    }
}
