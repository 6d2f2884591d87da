//! The configuration: one TOML file, every key optional.
//!
//! `Unvalidated` is what the file says; [`Config`] is what was checked. Unknown keys and wrong types are refused with
//! line and column, values that do not fit with their key.

mod boot;
mod commissioning;
mod images;
mod interfaces;
mod raw;
mod subnets;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use lifecycle::remediation::Limits;

pub use boot::{BootConfig, TftpSettings};
pub use commissioning::{Commissioning, total_check};
pub use images::{BuildLimits, ImagesConfig};
pub use interfaces::BootInterface;
pub use raw::{DhcpMode, LogFormat};
use raw::{RawRemediation, Unvalidated};
pub use subnets::Subnet;

/// Where packages put the boot loaders.
pub const LOADERS_DEFAULT: &str = "/usr/lib/plumbline/loaders";

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
    /// Recipes, and builds by the server.
    pub images: ImagesConfig,
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

    /// The folder of the boot loaders that images of kind `os` hold.
    #[must_use]
    pub fn image_loaders_dir(&self) -> &Path {
        let of_boot = self.boot.as_ref().map(|boot| boot.loaders_dir.as_path());
        let configured = self.images.loaders_dir.as_deref().or(of_boot);
        configured.unwrap_or(Path::new(LOADERS_DEFAULT))
    }

    /// The URL that agents reach this server by, as it is written into their configuration. `local`: the address by
    /// which a machine reached this server. A configured address holds for all; where the agents' listener is on all
    /// addresses, it is the one of the boot interface that `local` is of, else of the first.
    #[must_use]
    pub fn agents_url(&self, local: Option<IpAddr>) -> String {
        let address = match (self.agents_listen.ip().is_unspecified(), &self.boot) {
            (true, Some(boot)) => boot.interface_at(local).address.addr().into(),
            _ => self.agents_listen.ip(),
        };
        format!("https://{}", SocketAddr::new(address, self.agents_listen.port()))
    }
}

impl TryFrom<Unvalidated> for Config {
    type Error = ConfigError;

    fn try_from(raw: Unvalidated) -> Result<Self, ConfigError> {
        let value = |key, problem: String| ConfigError::Value { key, problem };
        let boot = raw.boot.map(boot::boot).transpose();
        let boot = boot.map_err(|(key, problem)| value(key, problem))?;
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
        let images = images::images(raw.images).map_err(|(key, problem)| value(key, problem))?;
        Ok(Self {
            data_dir: raw.data_dir,
            database_url: raw.database.url,
            log_format: raw.log.format,
            boot,
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
            images,
        })
    }
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
