//! A site's own DHCP and boot service on the rack's wire: the real dnsmasq, on a host of its own.

use crate::command::run_checked;
use crate::environment::LabEnvironment;
use crate::netns::{NetworkNamespace, UPLINK};
use crate::process::Supervised;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Its address on the wire.
pub const ADDRESS: &str = "10.77.0.2";
/// What a machine that it boots shows.
pub const WORDS: &str = "This machine is booted by the boot service of the site itself";
const START_LIMIT: Duration = Duration::from_secs(20);
const CHOWN_LIMIT: Duration = Duration::from_secs(10);

/// A running dnsmasq.
#[derive(Debug)]
pub struct SiteDhcp {
    /// Dropped before its namespace.
    server: Supervised,
    _host: NetworkNamespace,
}

impl SiteDhcp {
    /// Gives addresses to everybody on the wire; boots only the machine `boots`, with iPXE and a script that says
    /// [`WORDS`].
    ///
    /// # Errors
    /// When dnsmasq does not start.
    pub fn start(
        environment: &LabEnvironment,
        rack: &NetworkNamespace,
        folder: &Path,
        boots: Option<&str>,
    ) -> Result<Self> {
        let host = rack.add_host("site", &format!("{ADDRESS}/24"))?;
        let folder = folder.join("site");
        fs::create_dir_all(&folder)?;
        let files = served(environment, &folder)?;
        let mut lines = vec![
            "port=0".to_owned(),
            "keep-in-foreground".to_owned(),
            "log-facility=-".to_owned(),
            "log-dhcp".to_owned(),
            "user=root".to_owned(),
            format!("interface={UPLINK}"),
            "bind-interfaces".to_owned(),
            "dhcp-range=10.77.0.200,10.77.0.250,255.255.255.0,1h".to_owned(),
            format!("dhcp-leasefile={}", folder.join("leases").display()),
        ];
        if let Some(mac) = boots {
            lines.extend([
                "enable-tftp".to_owned(),
                format!("tftp-root={}", files.display()),
                format!("dhcp-host={mac},set:own"),
                "dhcp-userclass=set:ipxe,iPXE".to_owned(),
                "dhcp-boot=tag:own,tag:!ipxe,snponly.efi".to_owned(),
                format!("dhcp-boot=tag:own,tag:ipxe,tftp://{ADDRESS}/site.ipxe"),
            ]);
        }
        let configuration = folder.join("dnsmasq.conf");
        fs::write(&configuration, lines.join("\n") + "\n")?;
        let mut command = host.command("dnsmasq");
        command.arg(format!("--conf-file={}", configuration.display()));
        let mut server = Supervised::spawn("dnsmasq", command, &folder.join("dnsmasq.log"))?;
        server.wait_line("DHCP, IP range", START_LIMIT)?;
        Ok(Self { server, _host: host })
    }

    /// Everything it has said: with `log-dhcp`, each message in and out.
    pub fn log(&self) -> String {
        self.server.log_text()
    }
}

/// The folder that it serves by TFTP.
fn served(environment: &LabEnvironment, folder: &Path) -> Result<PathBuf> {
    let files = folder.join("tftp");
    fs::create_dir_all(&files)?;
    let loader = environment.loaders.join("snponly.efi");
    fs::copy(&loader, files.join("snponly.efi")).with_context(|| loader.display().to_string())?;
    let script = format!("#!ipxe\necho {WORDS}\nsleep 3600\n");
    fs::write(files.join("site.ipxe"), script)?;
    let mut readable = std::process::Command::new("chmod");
    readable.args(["-R", "a+rX"]).arg(&files);
    run_checked(&mut readable, CHOWN_LIMIT)?;
    Ok(files)
}
