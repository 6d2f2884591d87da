//! One simulated node, from its boot script to its agent.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use plumbline_agent::api::Api;
use plumbline_agent::deploy::{self, Context};
use plumbline_agent::node::NodeParts;
use plumbline_agent::ramdisk::{self, Console};
use plumbline_agent::service::{self, Config};
use protocol::latest::{Authority, Cpu, DeploySpec, Disk, Dmi, Inventory, Nic, Outcome, Task};

use super::fleet::{FleetOptions, node_mac, node_name};

/// Pause before a node that was refused, or whose server was away, tries again.
const PAUSE: Duration = Duration::from_secs(2);
/// Largest boot script that is read, in bytes.
const SCRIPT_BYTES_MAX: usize = 64 << 10;
const DISK_BYTES: u64 = 3_840_755_982_336;
const GPUS: u32 = 8;

/// A node of the fleet.
pub(super) struct SimulatedNode {
    number: u32,
    name: String,
    mac: String,
    folder: PathBuf,
    boot: Api,
    authority: Authority,
    watches_max: usize,
}

impl SimulatedNode {
    pub(super) fn new(number: u32, options: &FleetOptions, authority: Authority) -> Result<Self> {
        Ok(Self {
            number,
            name: node_name(number),
            mac: node_mac(number),
            folder: super::fleet::node_folder(&options.folder, number),
            boot: Api::plain(&options.boot_url)?,
            authority,
            watches_max: options.watches_max,
        })
    }

    /// Boots again and again, as a machine does: the deployer while the server has something for it, else its own
    /// system.
    pub(super) async fn live(self) {
        loop {
            if let Err(error) = self.boot_once().await {
                tracing::info!(node = self.name, error = format!("{error:#}"), "starts again");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn boot_once(&self) -> Result<()> {
        let path = format!("/boot/v1/script?mac={}", self.mac);
        let script = String::from_utf8(self.boot.get_bytes(&path, SCRIPT_BYTES_MAX).await?)?;
        match token(&script) {
            Some(token) => self.run_deployer(token).await,
            None if self.root().join("etc/plumbline/agent.toml").exists() => self.run_system().await,
            None => Ok(()),
        }
    }

    fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    async fn run_deployer(&self, token: &str) -> Result<()> {
        let console = Console::silent();
        let claimed = ramdisk::claim(&self.authority, token, &self.mac, &console).await?;
        ramdisk::send_inventory(&claimed.api, &self.inventory(), &console).await?;
        let context = Context {
            api: claimed.api,
            images: self.boot.clone(),
            authority: self.authority.clone(),
            boot_mac: self.mac.clone(),
            console,
        };
        loop {
            match ramdisk::next_task(&context.api).await {
                Ok(Task::Wait { .. }) => tokio::time::sleep(Duration::from_millis(200)).await,
                Ok(Task::Reboot { .. }) => return Ok(()),
                Ok(task @ (Task::Rescue { .. } | Task::BurnIn(_))) => {
                    bail!("a simulated node does no such thing: {task:?}")
                }
                Ok(Task::Deploy(spec)) => return self.install(&spec, &context).await,
                // A server that is away is waited for, as in the ramdisk.
                Err(error) if error.is_temporary() => tokio::time::sleep(PAUSE).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn install(&self, spec: &DeploySpec, context: &Context) -> Result<()> {
        let (root, started) = (self.root(), Instant::now());
        if root.exists() {
            fs::remove_dir_all(&root).with_context(|| root.display().to_string())?;
        }
        fs::create_dir_all(&root)?;
        let result = deploy::into_folder(spec, context, &root, self.disk()).await;
        let outcome = match &result {
            Ok(installed) => Outcome::Installed {
                files: installed.files,
                bytes: installed.bytes,
                requests: installed.requests,
                duration_secs: started.elapsed().as_secs(),
                work: Some(installed.work.clone()),
            },
            Err(failure) => Outcome::Failed {
                stage: failure.stage,
                reason: failure.reason.clone(),
            },
        };
        if result.is_ok() {
            super::fleet::keep_header(&context.images, spec.image, &root).await?;
        }
        ramdisk::tell_outcome(spec, context, &outcome).await;
        if let Err(failure) = result {
            anyhow::bail!("{}: {}", failure.stage.as_str(), failure.reason);
        }
        Ok(())
    }

    async fn run_system(&self) -> Result<()> {
        let root = self.root();
        kernel_files(&root).context("the simulated kernel's files")?;
        let config = Config::read(&root.join("etc/plumbline/agent.toml"))?.below(&root);
        let mut parts = NodeParts::of_folder(&root);
        parts.watches_max = self.watches_max;
        service::run_on(config, parts).await
    }

    fn disk(&self) -> Disk {
        Disk {
            name: "nvme0n1".to_owned(),
            size_bytes: DISK_BYTES,
            sector_bytes: 512,
            model: Some("Simulated NVMe".to_owned()),
            serial: Some(format!("SIMD{:05}", self.number)),
            wwn: None,
            rotational: false,
            removable: false,
        }
    }

    fn inventory(&self) -> Inventory {
        let gpu = |slot: u32| protocol::latest::PciDevice {
            address: format!("0000:{:02x}:00.0", 0x18 + slot * 0x10),
            vendor: "10de".to_owned(),
            device: "2330".to_owned(),
            class: "0302".to_owned(),
        };
        Inventory {
            lldp: Default::default(),
            cpu: Cpu {
                model: Some("Simulated CPU".to_owned()),
                sockets: 2,
                cores: 112,
                threads: 224,
            },
            memory_bytes: 2 << 40,
            disks: vec![self.disk()],
            nics: vec![Nic {
                name: "eth0".to_owned(),
                mac: self.mac.clone(),
                driver: None,
                pci_address: None,
                speed_mbps: Some(100_000),
                link: true,
                boot: true,
                lldp: None,
            }],
            pci: (0..GPUS).map(gpu).collect(),
            dmi: Dmi {
                serial: Some(format!("SIM{:05}", self.number)),
                manufacturer: Some("Plumbline".to_owned()),
                product: Some("Simulated node".to_owned()),
                ..Dmi::default()
            },
            uefi: true,
            secure_boot: Some(false),
            problems: Vec::new(),
        }
    }
}

/// The token on the kernel command line of a deployer's script.
fn token(script: &str) -> Option<&str> {
    script
        .split_whitespace()
        .find_map(|word| word.strip_prefix("plumbline.token="))
}

/// What a kernel would show below `/proc`, taken from the manifest the node was installed from.
fn kernel_files(root: &Path) -> Result<()> {
    let header = super::fleet::installed_header(root)?;
    let kernel = header.kernel.context("the image has no kernel")?;
    let grub = fs::read_to_string(root.join("boot/efi/EFI/debian/grub.cfg"))?;
    let line = grub.lines().find_map(|line| line.trim().strip_prefix("linux "));
    let command_line = line
        .and_then(|line| line.split_once(' '))
        .context("the kernel's line in grub.cfg")?
        .1;
    let mut files = vec![
        ("proc/cmdline".to_owned(), format!("{command_line}\n")),
        ("proc/sys/kernel/osrelease".to_owned(), format!("{}\n", kernel.release)),
        ("proc/modules".to_owned(), String::new()),
    ];
    for (key, value) in header.sysctls {
        files.push((format!("proc/sys/{}", key.replace('.', "/")), format!("{value}\n")));
    }
    for (path, text) in files {
        ensure!(!path.contains(".."), "{path}");
        let path = root.join(path);
        // A restart of the simulator is no restart of the node.
        if !path.exists() {
            fs::create_dir_all(path.parent().context("a folder")?)?;
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_found_in_the_script() {
        let script = "#!ipxe\nkernel http://x/vmlinuz console=tty0 plumbline.token=abc.def BOOTIF=01-52\nboot\n";
        assert_eq!(token(script), Some("abc.def"));
        assert_eq!(token("#!ipxe\nexit\n"), None);
    }
}
