//! What the machine is made of, read from /proc and /sys.
//!
//! Idea: every reader takes the root under which `proc` and `sys` lie, so that a recorded tree tests it; the parsers
//! take text. Invariant: what cannot be read is `None` and, where a person would expect it, named in `problems`;
//! nothing is made up.

mod cpu;
mod disks;
mod dmi;
mod nics;
mod pci;

use std::path::Path;

use protocol::latest::{Inventory, Nic};

pub use disks::disks;
pub use nics::mac_of_link_address;

/// The global variable of the UEFI specification, of 5 bytes.
const SECURE_BOOT: &str = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// Longest value read from one file of /sys, in bytes.
const VALUE_BYTES_MAX: u64 = 4_096;
/// Most devices of one kind that are listed.
const DEVICES_MAX: usize = 4_096;

/// Reads everything under `root` (`/` on a machine). `boot_mac` marks the interface the machine booted from.
#[must_use]
pub fn read(root: &Path, boot_mac: Option<&str>) -> Inventory {
    let mut problems = Vec::new();
    let mut text = |path: &str| match std::fs::read_to_string(root.join(path)) {
        Ok(text) => text,
        Err(error) => {
            problems.push(format!("/{path}: {error}"));
            String::new()
        }
    };
    let cpu = cpu::parse(&text("proc/cpuinfo"));
    let meminfo = text("proc/meminfo");
    let mut inventory = Inventory {
        cpu,
        memory_bytes: memory_bytes(&meminfo).unwrap_or(0),
        uefi: root.join("sys/firmware/efi").is_dir(),
        secure_boot: std::fs::read(root.join(SECURE_BOOT))
            .ok()
            .as_deref()
            .and_then(secure_boot),
        ..Inventory::default()
    };
    if inventory.memory_bytes == 0 {
        problems.push("/proc/meminfo: no MemTotal".to_owned());
    }
    inventory.disks = disks(root, &mut problems);
    inventory.nics = nics::nics(root, boot_mac, &mut problems);
    inventory.pci = pci::functions(root, &mut problems);
    inventory.dmi = dmi::read(root, &mut problems);
    inventory.problems = problems;
    inventory
}

/// The network interfaces alone.
#[must_use]
pub fn read_nics(root: &Path) -> Vec<Nic> {
    nics::nics(root, None, &mut Vec::new())
}

/// Names in a folder, sorted, at most 4,096; none where it cannot be read.
#[must_use]
pub fn entries(folder: &Path) -> Vec<String> {
    names(folder, "", &mut Vec::new())
}

/// The variable's content: four bytes of attributes, then the value (UEFI specification, "Globally Defined Variables").
fn secure_boot(variable: &[u8]) -> Option<bool> {
    match variable {
        [_, _, _, _, value] => Some(*value == 1),
        _ => None,
    }
}

/// `MemTotal` in bytes; the kernel's "kB" are KiB.
fn memory_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1_024)
}

/// The trimmed content of a small file; `None` when it is missing, unreadable, empty or not text.
fn value(path: &Path) -> Option<String> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(VALUE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

/// A number in a small file.
fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    value(path)?.parse().ok()
}

/// Names in a folder, sorted; a folder that cannot be read is a problem.
fn names(root: &Path, folder: &str, problems: &mut Vec<String>) -> Vec<String> {
    let listed = match std::fs::read_dir(root.join(folder)) {
        Ok(listed) => listed,
        Err(error) => {
            problems.push(format!("/{folder}: {error}"));
            return Vec::new();
        }
    };
    let mut names: Vec<String> = listed
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    if names.len() > DEVICES_MAX {
        problems.push(format!("/{folder}: {} entries, {DEVICES_MAX} looked at", names.len()));
        names.truncate(DEVICES_MAX);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_in_bytes() {
        assert_eq!(
            memory_bytes("MemTotal:        1004592 kB\nMemFree: 1 kB\n"),
            Some(1_028_702_208)
        );
        assert_eq!(secure_boot(&[6, 0, 0, 0, 1]), Some(true));
        assert_eq!(secure_boot(&[6, 0, 0, 0, 0]), Some(false));
        assert_eq!(secure_boot(&[6, 0, 0, 0]), None);
        assert_eq!(memory_bytes("MemFree: 1 kB\n"), None);
        assert_eq!(memory_bytes("MemTotal: many\n"), None);
    }
}
