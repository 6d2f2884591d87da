//! A site's own DHCP server that names the appliance, set up with what docs/operations.md prints for DHCP mode `off`.
//!
//! The idea: people copy what is printed there, so what is printed there is what runs. Around it stands only what the
//! document leaves to the site: interface, addresses, where leases are kept. The appliance's address in it becomes the
//! rack's, and nothing else of it is changed. Refused: copies of it in tests; the document would then be as untested as before.

use crate::environment::LabEnvironment;
use crate::netns::{BRIDGE_ADDRESS, NetworkNamespace, UPLINK};
use crate::process::Supervised;
use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Its address on the wire, with its prefix length.
const ADDRESS: &str = "10.77.0.2/24";
const DOCUMENT: &str = "docs/operations.md";
const SECTION: &str = "## DHCP mode `off`";
const FENCE: &str = "```";
/// The appliance's address in the document.
const DOCUMENTED_ADDRESS: &str = "10.20.0.5";
const START_LIMIT: Duration = Duration::from_secs(20);

/// The servers that the document knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum SiteServer {
    Kea,
    Dhcpd,
    Dnsmasq,
}

impl SiteServer {
    pub(super) const ALL: [Self; 3] = [Self::Kea, Self::Dhcpd, Self::Dnsmasq];

    /// How the line before its part of the document begins.
    const fn heading(self) -> &'static str {
        match self {
            Self::Kea => "Kea",
            Self::Dhcpd => "ISC dhcpd",
            Self::Dnsmasq => "dnsmasq",
        }
    }

    /// What it says once it answers.
    const fn ready(self) -> &'static str {
        match self {
            Self::Kea => "DHCP4_STARTED",
            Self::Dhcpd => "Server starting service",
            Self::Dnsmasq => "DHCP, IP range",
        }
    }
}

/// A running server.
#[derive(Debug)]
pub(super) struct DocumentedDhcp {
    /// Dropped before its namespace.
    _server: Supervised,
    _host: NetworkNamespace,
}

impl DocumentedDhcp {
    /// Starts the server on a host of its own on the rack's wire; its files are kept in a folder below `folder`.
    ///
    /// # Errors
    /// When the document has no such part, or the server does not take it; its log then says why.
    pub(super) fn start(
        environment: &LabEnvironment,
        rack: &NetworkNamespace,
        folder: &Path,
        server: SiteServer,
    ) -> Result<Self> {
        let path = environment.root.join(DOCUMENT);
        let document = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let snippet = snippet(&document, server)?;
        let host = rack.add_host("site", ADDRESS)?;
        let name = format!("{server:?}").to_lowercase();
        let folder = folder.join(format!("site-{name}"));
        fs::create_dir_all(&folder)?;
        let configuration = folder.join("configuration");
        fs::write(&configuration, text(server, &snippet, &folder))?;
        let command = command(environment, &host, server, &configuration, &folder)?;
        let mut process = Supervised::spawn(&name, command, &folder.join("log"))?;
        process.wait_line(server.ready(), START_LIMIT)?;
        Ok(Self {
            _server: process,
            _host: host,
        })
    }
}

/// The part of the document for this server, with the rack's appliance in place of the document's.
fn snippet(document: &str, server: SiteServer) -> Result<String> {
    let lines = document.lines().skip_while(|line| *line != SECTION).skip(1);
    let mut lines = lines.take_while(|line| !line.starts_with("## "));
    let heading = server.heading();
    lines
        .find(|line| line.starts_with(heading))
        .with_context(|| format!("no line that begins with `{heading}` below `{SECTION}` in {DOCUMENT}"))?;
    let lines: Vec<&str> = lines
        .skip_while(|line| !line.starts_with(FENCE))
        .skip(1)
        .take_while(|line| !line.starts_with(FENCE))
        .collect();
    let text = lines.join("\n");
    ensure!(
        text.contains(DOCUMENTED_ADDRESS),
        "what {DOCUMENT} prints for {heading} does not name the appliance, {DOCUMENTED_ADDRESS}: {text}"
    );
    Ok(text.replace(DOCUMENTED_ADDRESS, &BRIDGE_ADDRESS.to_string()))
}

/// The whole configuration.
fn text(server: SiteServer, snippet: &str, folder: &Path) -> String {
    let leases = folder.join("leases");
    let leases = leases.display();
    match server {
        SiteServer::Kea => format!(
            "{{ \"Dhcp4\": {{\n\
             \"interfaces-config\": {{ \"interfaces\": [ \"{UPLINK}\" ] }},\n\
             \"lease-database\": {{ \"type\": \"memfile\", \"name\": \"{leases}\", \"lfc-interval\": 0 }},\n\
             \"subnet4\": [ {{ \"subnet\": \"10.77.0.0/24\", \"pools\": [ {{ \"pool\": \"10.77.0.200 - 10.77.0.250\" }} ] }} ],\n\
             \"loggers\": [ {{ \"name\": \"kea-dhcp4\", \"severity\": \"INFO\", \
             \"output_options\": [ {{ \"output\": \"stdout\" }} ] }} ],\n\
             {snippet}\n}} }}\n"
        ),
        SiteServer::Dhcpd => format!(
            "authoritative;\ndefault-lease-time 3600;\n\
             subnet 10.77.0.0 netmask 255.255.255.0 {{ range 10.77.0.200 10.77.0.250; }}\n{snippet}\n"
        ),
        SiteServer::Dnsmasq => format!(
            "port=0\nkeep-in-foreground\nlog-facility=-\nlog-dhcp\nuser=root\ninterface={UPLINK}\nbind-interfaces\n\
             dhcp-range=10.77.0.200,10.77.0.250,255.255.255.0,1h\ndhcp-leasefile={leases}\n{snippet}\n"
        ),
    }
}

/// What starts it, in the foreground.
fn command(
    environment: &LabEnvironment,
    host: &NetworkNamespace,
    server: SiteServer,
    configuration: &Path,
    folder: &Path,
) -> Result<Command> {
    Ok(match server {
        SiteServer::Kea => {
            let kea = environment.kea();
            let mut command = host.command("env");
            command.arg(format!(
                "LD_LIBRARY_PATH={}",
                kea.join("usr/lib/x86_64-linux-gnu").display()
            ));
            command.arg(format!("KEA_PIDFILE_DIR={}", folder.display()));
            command.arg("KEA_LOCKFILE_DIR=none");
            command.arg(kea.join("usr/sbin/kea-dhcp4")).arg("-c").arg(configuration);
            command
        }
        SiteServer::Dhcpd => {
            let leases = folder.join("leases");
            fs::write(&leases, "")?;
            let mut command = host.command(environment.dhcpd());
            command.args(["-4", "-f", "-d", "--no-pid", "-cf"]).arg(configuration);
            command.arg("-lf").arg(leases).arg(UPLINK);
            command
        }
        SiteServer::Dnsmasq => {
            let mut command = host.command("dnsmasq");
            command.arg(format!("--conf-file={}", configuration.display()));
            command
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_a_part_for_each_server() {
        let document = include_str!("../../../../docs/operations.md");
        for server in SiteServer::ALL {
            let snippet = snippet(document, server).unwrap();
            for words in [
                "http://10.77.0.1:8081/boot/v1/script?mac=${netX/mac}",
                "http://10.77.0.1:8081/boot/v1/loaders/snponly.efi",
                "undionly.kpxe",
            ] {
                assert!(snippet.contains(words), "{server:?}: {words} in {snippet}");
            }
            assert!(!snippet.contains(FENCE) && !snippet.contains("10.20."), "{snippet}");
        }
    }

    #[test]
    fn a_part_that_is_missing_is_named() {
        let document = format!("{SECTION}\n\nKea:\n\n{FENCE}\nx 10.20.0.5\n{FENCE}\n\n## Next\n\ndnsmasq:\n");
        assert_eq!(snippet(&document, SiteServer::Kea).unwrap(), "x 10.77.0.1");
        let error = snippet(&document, SiteServer::Dnsmasq).unwrap_err().to_string();
        assert!(error.contains("`dnsmasq`"), "{error}");
    }
}
