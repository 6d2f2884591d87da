//! GRUB's scripts (GNU GRUB manual, "Writing full configuration files directly").
//!
//! The chain is firmware, shim, GRUB, and from there the same decisions as for iPXE: `grub/grub.cfg`, the same for every
//! machine, fetches the machine's own script by the MAC that firmware booted from.
//!
//! Refused: going back to firmware with `exit`, wherever a disk can be found instead. GRUB ends with success, and then
//! much firmware shows its menu and waits for a person.

use std::fmt::Write as _;

use super::{ATTEMPTS, Checked, HOLD_SECS};

/// Starts the fallback loader of the disk that `root` was set to. Firmware verifies it as it would itself.
const CHAIN: &str = "if chainloader ($root)/EFI/BOOT/BOOTX64.EFI; then boot; fi";

/// The first script, the same for all machines: `base` is that of the boot HTTP service.
///
/// GRUB asks for it as `/grub/grub.cfg` where it was loaded from, by TFTP or HTTP.
pub fn start(base: &str, script_path: &str) -> String {
    let folder = device(base.trim_end_matches('/'));
    format!(
        "# Plumbline: where each machine gets its own script.\n\
         for attempt in {attempts}; do\n\
         configfile \"{folder}{script_path}/$net_default_mac/$grub_cpu/grub.cfg\"\n\
         echo \"Plumbline: no script from {base} (attempt $attempt of {ATTEMPTS}); trying again in 10 seconds\"\n\
         sleep 10\n\
         done\n\
         echo 'Plumbline: no script; rebooting in 30 seconds'\n\
         sleep 30\n\
         reboot\n",
        attempts = attempts(),
    )
}

pub(super) fn boot_local(said: &str, label: &str) -> String {
    format!(
        "echo '{said}'\nsleep 2\n\
         if search --no-floppy --set=root --label {label}; then\n{CHAIN}\nfi\n{}",
        leave()
    )
}

pub(super) fn refuse(said: &str) -> String {
    format!("echo '{said}'\nsleep 10\n{}", leave())
}

/// A script that fetched itself again would nest in itself without end, so the machine starts over.
pub(super) fn hold(said: &str) -> String {
    format!("echo '{said}'\nsleep {HOLD_SECS}\nreboot\n")
}

pub(super) fn deployer(boot: &Checked) -> String {
    let folder = device(&boot.base);
    let words: Vec<String> = boot.command_line.split(' ').map(|word| format!("'{word}'")).collect();
    let initrds: Vec<String> = boot.initrds.iter().map(|path| format!("\"{folder}{path}\"")).collect();
    let mut script = format!("echo 'Plumbline: {}'\nfor attempt in {}; do\n", boot.title, attempts());
    let _ = write!(
        script,
        "if linux \"{folder}{kernel}\" {words}; then\n\
         if initrd {initrds}; then boot; fi\n\
         fi\n\
         echo \"Plumbline: the deployer did not load from {base} (attempt $attempt of {ATTEMPTS}); trying again in 10 seconds\"\n\
         sleep 10\n\
         done\n\
         echo 'Plumbline: the deployer did not load from {base} in {ATTEMPTS} attempts; rebooting in 30 seconds'\n\
         sleep 30\n\
         reboot\n",
        kernel = boot.kernel,
        words = words.join(" "),
        initrds = initrds.join(" "),
        base = boot.base,
    );
    script
}

/// The first disk that has a fallback loader; only without one back to firmware.
fn leave() -> String {
    format!("if search --no-floppy --set=root --file /EFI/BOOT/BOOTX64.EFI; then\n{CHAIN}\nfi\nexit\n")
}

/// `http://10.77.0.1:8081` as GRUB names it: `(http,10.77.0.1:8081)`.
fn device(base: &str) -> String {
    match base.split_once("://") {
        Some((scheme, host)) => format!("({scheme},{host})"),
        None => format!("(http,{base})"),
    }
}

fn attempts() -> String {
    let numbers: Vec<String> = (1..=ATTEMPTS).map(|number| number.to_string()).collect();
    numbers.join(" ")
}
