//! A node: one QEMU process with real firmware, and the folder that holds everything of it.
//!
//! The idea: power is a process. A machine off has no process; its firmware variables and disks stay in its folder,
//! so that the next power-on finds them as metal would. It really reboots (no `-no-reboot`): what a deployment does to
//! boot order and boot loaders shows only across a reboot.

pub mod arguments;
pub mod qmp;
mod serial;

pub use arguments::{BootOrder, BootProtocol, DiskBus, DiskSpec, Firmware, MachineSpec, Smbios};

use crate::netns::NetworkNamespace;
use crate::process::{Supervised, text_of};
use crate::wait::wait_until;
use crate::wire::Wire;
use crate::wire::faults::Fates;
use anyhow::{Context as _, Result, bail};
use arguments::{Files, firmware_variables_template, machine_arguments};
use qmp::Qmp;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The kernel's limit for a unix socket's path is 108 bytes with its NUL.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// A slash and the longest name of a cable's socket.
const WIRE_SOCKET_BYTES_MAX: usize = 7;
/// A bad cable does the same in every run, as far as the frames are the same.
const CABLE_SEED: u64 = 77;
/// How long QEMU may take to answer on its control socket.
const QMP_LIMIT: Duration = Duration::from_secs(10);
/// How long QEMU may take to end after SIGTERM; it only has to close its files.
const POWER_OFF_LIMIT: Duration = Duration::from_secs(5);

/// A virtual node, on or off. Dropping it switches it off; its folder stays for whoever reads the logs.
#[derive(Debug)]
pub struct Machine {
    spec: MachineSpec,
    files: Files,
    /// The `ip netns exec …` prefix is made from this name at each power-on.
    namespace: String,
    process: Option<Supervised>,
    wire: Option<Wire>,
}

impl Machine {
    /// Prepares a machine in `folder`, switched off: a TAP named as `spec.tap` on the rack's bridge, its own copy of
    /// the firmware's variables, and its disks as sparse files. What is there already from an earlier run is kept.
    ///
    /// # Errors
    /// When the specification cannot be (a disk's serial too long, …), or files or the TAP cannot be made.
    pub fn prepare(spec: MachineSpec, namespace: &NetworkNamespace, folder: &Path) -> Result<Self> {
        spec.check()?;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        // QEMU and this program need not share a working folder.
        let folder = folder.canonicalize()?;
        let files = Files {
            firmware_variables: folder.join("firmware-vars.fd"),
            serial_log: folder.join("serial.log"),
            qemu_log: folder.join("qemu.log"),
            pid: folder.join("pid"),
            qmp_socket: qmp_socket_path(&folder),
            wire: wire_folder(&folder),
            frames: folder.join("frames.pcap"),
        };
        if spec.cable.is_some() {
            fs::create_dir_all(&files.wire).with_context(|| format!("cannot make {}", files.wire.display()))?;
        }
        prepare_variables(spec.firmware, &spec.ovmf, &files)?;
        for disk in &spec.disks {
            make_sparse(&disk.path, disk.size_bytes)?;
        }
        namespace.add_tap(&spec.tap)?;
        Ok(Self {
            spec,
            files,
            namespace: namespace.name().to_owned(),
            process: None,
            wire: None,
        })
    }

    /// The specification it was made from.
    pub fn spec(&self) -> &MachineSpec {
        &self.spec
    }

    /// The file that everything on the serial console is appended to, over all boots.
    pub fn serial_log(&self) -> &Path {
        &self.files.serial_log
    }

    /// What a bad cable has done to frames since the last power-on.
    pub fn fates(&self) -> Option<Fates> {
        self.wire.as_ref().map(Wire::fates)
    }

    /// The file that frames are recorded in, where they are.
    pub fn frames(&self) -> &Path {
        &self.files.frames
    }

    /// Changes the firmware setting of a machine that is off; its disks stay as they are.
    ///
    /// # Errors
    /// When it is on, or the new firmware's variables cannot be made.
    pub fn set_firmware(&mut self, firmware: Firmware) -> Result<()> {
        if self.is_running()? {
            bail!("{} is on: its firmware cannot be changed", self.spec.name);
        }
        prepare_variables(firmware, &self.spec.ovmf, &self.files)?;
        self.spec.firmware = firmware;
        Ok(())
    }

    /// Changes what the firmware of a machine that is off tries first.
    ///
    /// # Errors
    /// When it is on.
    pub fn set_boot_order(&mut self, order: BootOrder) -> Result<()> {
        if self.is_running()? {
            bail!("{} is on: its boot order cannot be changed", self.spec.name);
        }
        self.spec.boot_order = order;
        Ok(())
    }

    /// Switches the machine on and returns once QEMU answers on its control socket.
    ///
    /// # Errors
    /// When it is on already, or QEMU cannot be started; the message carries QEMU's own words.
    pub fn power_on(&mut self) -> Result<()> {
        if self.is_running()? {
            bail!("{} is switched on already", self.spec.name);
        }
        // One left by a QEMU that was killed would be taken for the new one's.
        let _absent = fs::remove_file(&self.files.qmp_socket);
        if let Some(rates) = self.spec.cable {
            self.wire = Some(Wire::open(&self.files.wire, rates, CABLE_SEED)?);
        }
        let mut command = std::process::Command::new("ip");
        command.args(["netns", "exec", &self.namespace, self.spec.firmware.program()]);
        command.args(machine_arguments(&self.spec, &self.files));
        let process = Supervised::spawn(&self.spec.name, command, &self.files.qemu_log)?;
        fs::write(&self.files.pid, format!("{}\n", process.id()))?;
        let process = self.process.insert(process);
        let (name, socket) = (&self.spec.name, &self.files.qmp_socket);
        wait_until(QMP_LIMIT, &format!("the control socket of {name}"), || {
            if let Some(status) = process.exit_status()? {
                bail!("QEMU of {name} ended at once ({status}): {}", process.log_text().trim());
            }
            Ok(Qmp::connect(socket, QMP_LIMIT).ok())
        })?;
        tracing::info!(machine.name = name, process.id = process.id(), "powered on");
        Ok(())
    }

    /// Pulls the plug: no warning to the guest. Safe to repeat.
    ///
    /// # Errors
    /// When QEMU cannot be ended.
    pub fn power_off(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.terminate(POWER_OFF_LIMIT)?;
            tracing::info!(machine.name = self.spec.name, "powered off");
        }
        for path in [&self.files.pid, &self.files.qmp_socket] {
            let _absent = fs::remove_file(path);
        }
        Ok(())
    }

    /// Whether the machine is on; one that switched itself off is not.
    ///
    /// # Errors
    /// When the operating system cannot say.
    pub fn is_running(&mut self) -> Result<bool> {
        self.process.as_mut().map_or(Ok(false), Supervised::is_running)
    }

    /// Presses the reset button.
    ///
    /// # Errors
    /// When the machine is off or QEMU does not answer within 10 s.
    pub fn reset(&self) -> Result<()> {
        self.qmp("system_reset", None).map(drop)
    }

    /// Presses the power button (ACPI): a running system then shuts itself down. Returns at once.
    ///
    /// # Errors
    /// As [`Self::reset`].
    pub fn system_powerdown(&self) -> Result<()> {
        self.qmp("system_powerdown", None).map(drop)
    }

    /// Plugs or pulls the network cable.
    ///
    /// # Errors
    /// As [`Self::reset`].
    pub fn set_link(&self, up: bool) -> Result<()> {
        self.qmp("set_link", Some(json!({ "name": arguments::NETDEV_ID, "up": up })))
            .map(drop)
    }

    /// Runs one QMP command and returns its `return` value.
    ///
    /// # Errors
    /// As [`Self::reset`], and when QEMU refuses the command.
    pub fn qmp(&self, command: &str, command_arguments: Option<Value>) -> Result<Value> {
        Qmp::connect(&self.files.qmp_socket, QMP_LIMIT)
            .and_then(|mut qmp| qmp.execute(command, command_arguments))
            .with_context(|| format!("{command} on {}", self.spec.name))
    }

    /// Waits until the machine has switched itself off.
    ///
    /// # Errors
    /// When the limit passes.
    pub fn wait_off(&mut self, limit: Duration) -> Result<()> {
        let what = format!("{} to switch itself off", self.spec.name);
        wait_until(limit, &what, || Ok((!self.is_running()?).then_some(())))
    }

    /// What the serial console showed, over all boots, without terminal escape sequences.
    pub fn serial_text(&self) -> String {
        self.serial_text_from(0)
    }

    /// As [`Self::serial_text`], from a place in the log that [`Self::serial_size_bytes`] gave earlier.
    pub fn serial_text_from(&self, offset_bytes: u64) -> String {
        serial::without_escapes(&text_of(&self.files.serial_log, offset_bytes))
    }

    /// The size of the serial log: taken before a reset, it separates the boot after it from those before.
    pub fn serial_size_bytes(&self) -> u64 {
        fs::metadata(&self.files.serial_log).map_or(0, |metadata| metadata.len())
    }

    /// Waits until the serial console has shown `pattern` (plain text) in any boot.
    ///
    /// # Errors
    /// When the limit passes or the machine goes off first; the message carries the console's last lines.
    pub fn wait_serial(&mut self, pattern: &str, limit: Duration) -> Result<()> {
        self.wait_serial_from(0, pattern, limit)
    }

    /// As [`Self::wait_serial`], for what came after `offset_bytes` of the log.
    ///
    /// # Errors
    /// As [`Self::wait_serial`].
    pub fn wait_serial_from(&mut self, offset_bytes: u64, pattern: &str, limit: Duration) -> Result<()> {
        let what = format!("`{pattern}` on the console of {}", self.spec.name);
        let waited = wait_until(limit, &what, || {
            // Looked at before the log: the last words before the end count.
            let running = self.is_running()?;
            if self.serial_text_from(offset_bytes).contains(pattern) {
                return Ok(Some(()));
            }
            if !running {
                bail!("{} went off before its console showed `{pattern}`", self.spec.name);
            }
            Ok(None)
        });
        waited.with_context(|| {
            let tail = serial::tail(&self.serial_text_from(offset_bytes));
            format!(
                "the console of {} ends ({}):\n{tail}",
                self.spec.name,
                self.files.serial_log.display()
            )
        })
    }

    /// Resident memory of the QEMU process in MiB, or `None` while the machine is off.
    pub fn rss_mib(&self) -> Option<u64> {
        self.process.as_ref().and_then(Supervised::rss_mib)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Err(error) = self.power_off() {
            tracing::warn!(machine.name = self.spec.name, error = %format!("{error:#}"), "may still run");
        }
    }
}

/// The machine's own copy of the firmware's variables, unless there is one.
fn prepare_variables(firmware: Firmware, ovmf: &Path, files: &Files) -> Result<()> {
    if let Some(template) = firmware_variables_template(firmware)
        && !files.firmware_variables.exists()
    {
        let template = ovmf.join(template);
        fs::copy(&template, &files.firmware_variables)
            .with_context(|| format!("cannot copy {}; `cargo xtask setup` fetches it", template.display()))?;
    }
    Ok(())
}

fn make_sparse(path: &Path, size_bytes: u64) -> Result<()> {
    let file = File::options().create(true).truncate(false).write(true).open(path);
    let file = file.with_context(|| format!("cannot make the disk {}", path.display()))?;
    if file.metadata()?.len() != size_bytes {
        file.set_len(size_bytes)
            .with_context(|| format!("cannot size the disk {}", path.display()))?;
    }
    Ok(())
}

/// Beside the machine's other files, unless that path is too long for a socket.
fn qmp_socket_path(folder: &Path) -> PathBuf {
    short_enough(folder.join("qmp"), 0)
}

/// As [`qmp_socket_path`], for a folder of sockets.
fn wire_folder(folder: &Path) -> PathBuf {
    short_enough(folder.join("wire"), WIRE_SOCKET_BYTES_MAX)
}

/// The path, or one of its name elsewhere when it is too long for a socket, or for one in it with `more` bytes.
fn short_enough(beside: PathBuf, more: usize) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    if beside.as_os_str().len() + more <= SOCKET_PATH_BYTES_MAX {
        return beside;
    }
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = beside.file_name().unwrap_or_default().display().to_string();
    std::env::temp_dir().join(format!("plumb-{}-{count}.{name}", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deep_folder_gets_a_short_socket_elsewhere() {
        assert_eq!(qmp_socket_path(Path::new("/lab/n1")), Path::new("/lab/n1/qmp"));
        let deep = PathBuf::from(format!("/{}", "deep/".repeat(30)));
        let (first, second) = (qmp_socket_path(&deep), qmp_socket_path(&deep));
        assert!(first.as_os_str().len() <= SOCKET_PATH_BYTES_MAX);
        assert_ne!(first, second, "two machines must not share a socket");
    }

    #[test]
    fn a_disk_is_sparse_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        make_sparse(&path, 1 << 30).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(metadata.len(), 1 << 30);
        assert!(std::os::unix::fs::MetadataExt::blocks(&metadata) < 100);
        {
            use std::io::Write as _;
            File::options()
                .write(true)
                .open(&path)
                .unwrap()
                .write_all(b"kept")
                .unwrap();
        }
        make_sparse(&path, 1 << 30).unwrap();
        let mut head = [0; 4];
        std::io::Read::read_exact(&mut File::open(&path).unwrap(), &mut head).unwrap();
        assert_eq!(&head, b"kept");
    }
}
