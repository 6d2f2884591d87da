//! `/etc/plumbline/agent.toml`, rendered by the server for each node.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use manifest::{PublicKey, TrustedKeys};
use serde::Deserialize;

use crate::baseline::Keys;

/// Shortest pause between two scans, in seconds.
const SCAN_INTERVAL_SECS_MIN: u64 = 60;
/// Longest: a day, after which every digest is made anew anyway.
const SCAN_INTERVAL_SECS_MAX: u64 = 24 * 3600;

/// The agent's settings, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Base URL of the server's listener for agents.
    pub server: String,
    /// The appliance's CA certificate, a PEM file.
    pub ca_certificate: PathBuf,
    /// Folder with `key.pem` and `certificate.pem`.
    pub identity_folder: PathBuf,
    /// Folder for what the agent remembers.
    pub state_folder: PathBuf,
    /// Whose signatures count, until the server has said more.
    pub keys: Keys,
    /// Time between two scans.
    pub scan_interval: Duration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unvalidated {
    server: String,
    #[serde(default = "default_ca_certificate")]
    ca_certificate: PathBuf,
    #[serde(default = "default_identity_dir")]
    identity_dir: PathBuf,
    #[serde(default = "default_state_dir")]
    state_dir: PathBuf,
    image_key: String,
    agent_release_key: String,
    job_key: String,
    #[serde(default = "default_scan_interval_secs")]
    scan_interval_secs: u64,
}

fn default_ca_certificate() -> PathBuf {
    "/etc/plumbline/ca.pem".into()
}

fn default_identity_dir() -> PathBuf {
    "/var/lib/plumbline/identity".into()
}

fn default_state_dir() -> PathBuf {
    "/var/lib/plumbline/state".into()
}

const fn default_scan_interval_secs() -> u64 {
    3600
}

impl TryFrom<Unvalidated> for Config {
    type Error = anyhow::Error;

    fn try_from(raw: Unvalidated) -> anyhow::Result<Self> {
        anyhow::ensure!(
            raw.server.starts_with("https://"),
            "server = {:?}: expected an https URL",
            raw.server
        );
        let secs = raw.scan_interval_secs;
        anyhow::ensure!(
            (SCAN_INTERVAL_SECS_MIN..=SCAN_INTERVAL_SECS_MAX).contains(&secs),
            "scan_interval_secs = {secs}: expected {SCAN_INTERVAL_SECS_MIN} to {SCAN_INTERVAL_SECS_MAX}"
        );
        let one = |line: &str| PublicKey::parse(line).and_then(TrustedKeys::of);
        Ok(Self {
            server: raw.server,
            ca_certificate: raw.ca_certificate,
            identity_folder: raw.identity_dir,
            state_folder: raw.state_dir,
            keys: Keys {
                image: one(&raw.image_key).context("image_key")?,
                agent_release: one(&raw.agent_release_key).context("agent_release_key")?,
                job: PublicKey::parse(&raw.job_key).context("job_key")?,
            },
            scan_interval: Duration::from_secs(secs),
        })
    }
}

impl Config {
    /// Takes the file's text.
    ///
    /// # Errors
    /// The first key that is unknown, missing or out of bounds.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        toml::from_str::<Unvalidated>(text)?.try_into()
    }

    /// The same settings for a node in a folder: all paths lie below it.
    #[must_use]
    pub fn below(mut self, base: &Path) -> Self {
        for path in [
            &mut self.ca_certificate,
            &mut self.identity_folder,
            &mut self.state_folder,
        ] {
            *path = base.join(path.strip_prefix("/").unwrap_or(path));
        }
        self
    }

    /// Reads the file.
    ///
    /// # Errors
    /// As [`Config::parse`], or when the file cannot be read.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use manifest::KeyPair;

    use super::*;

    fn text(more: &str) -> String {
        let key = KeyPair::generate().unwrap().public().as_str().to_owned();
        format!(
            "server = \"https://10.77.0.1:8443\"\nimage_key = \"{key}\"\nagent_release_key = \"{key}\"\n\
             job_key = \"{key}\"\n{more}"
        )
    }

    #[test]
    fn what_is_left_out_has_its_usual_place() {
        let config = Config::parse(&text("")).unwrap();
        assert_eq!(config.state_folder, Path::new("/var/lib/plumbline/state"));
        assert_eq!(config.scan_interval, Duration::from_secs(3600));
    }

    #[test]
    fn mistakes_are_refused_by_name() {
        for (text, expected) in [
            (text("scan_intervall_secs = 60\n"), "scan_intervall_secs"),
            (text("scan_interval_secs = 5\n"), "60 to 86400"),
            (text("").replace("https:", "http:"), "https"),
            (text("").replace("image_key = \"", "image_key = \"x"), "image_key"),
            (text("").replace("job_key", "jobkey"), "job_key"),
            (String::new(), "server"),
        ] {
            let error = format!("{:#}", Config::parse(&text).unwrap_err());
            assert!(error.contains(expected), "{error} should say {expected}");
        }
    }
}
