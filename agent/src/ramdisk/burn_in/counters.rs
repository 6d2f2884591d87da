//! Counters of the kernel that are to stand still while a machine is tested.
//!
//! Read before and after. One that cannot be read is no zero: [`Counters::grown`] tells what grew, [`Counters::is_empty`]
//! that there was nothing to look at.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Most entries of one folder that are looked at.
const ENTRIES_MAX: usize = 10_000;

/// Values by what they count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, u64>);

impl Counters {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// How many names end in this.
    #[cfg(test)]
    fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    /// What is larger than it was, with by how much.
    pub fn grown(&self, before: &Self) -> Vec<(String, u64)> {
        let grown = self.0.iter().filter_map(|(name, now)| {
            let by = now.checked_sub(*before.0.get(name)?)?;
            (by > 0).then(|| (name.clone(), by))
        });
        grown.collect()
    }

    fn add(&mut self, name: String, path: &Path) {
        if let Some(value) = number(path) {
            self.0.insert(name, value);
        }
    }

    /// Errors that memory controllers count (EDAC), by DIMM where they tell it, else by controller.
    pub fn memory(root: &Path) -> Self {
        let mut counters = Self::default();
        for controller in entries(&root.join("sys/devices/system/edac/mc"), "mc") {
            let dimms: Vec<PathBuf> = entries(&controller, "dimm")
                .into_iter()
                .chain(entries(&controller, "rank"))
                .collect();
            if dimms.is_empty() {
                let name = base(&controller);
                counters.add(format!("corrected errors of {name}"), &controller.join("ce_count"));
                counters.add(format!("uncorrected errors of {name}"), &controller.join("ue_count"));
            }
            for dimm in dimms {
                let label = text(&dimm.join("dimm_label")).filter(|label| !label.is_empty());
                let name = label.unwrap_or_else(|| format!("{} {}", base(&controller), base(&dimm)));
                counters.add(format!("corrected errors of {name}"), &dimm.join("dimm_ce_count"));
                counters.add(format!("uncorrected errors of {name}"), &dimm.join("dimm_ue_count"));
            }
        }
        counters
    }

    /// How often processors were slowed down for heat.
    pub fn throttling(root: &Path) -> Self {
        let mut counters = Self::default();
        for cpu in entries(&root.join("sys/devices/system/cpu"), "cpu") {
            for what in ["core", "package"] {
                let path = cpu.join(format!("thermal_throttle/{what}_throttle_count"));
                counters.add(format!("throttling of {} ({what})", base(&cpu)), &path);
            }
        }
        counters
    }

    /// Machine check exceptions, from the text of `/proc/interrupts`.
    pub fn machine_checks(interrupts: &str) -> Self {
        let line = interrupts
            .lines()
            .find_map(|line| line.trim_start().strip_prefix("MCE:"));
        let sum = line.map(|line| line.split_whitespace().map_while(|word| word.parse::<u64>().ok()).sum());
        Self(sum.map(|sum| ("machine checks".to_owned(), sum)).into_iter().collect())
    }

    /// Errors of a network interface.
    pub fn interface(root: &Path, name: &str) -> Self {
        let folder = root.join("sys/class/net").join(name).join("statistics");
        let mut counters = Self::default();
        for what in [
            "rx_errors",
            "rx_crc_errors",
            "rx_frame_errors",
            "tx_errors",
            "tx_carrier_errors",
        ] {
            counters.add(format!("{what} of {name}"), &folder.join(what));
        }
        counters
    }

    /// Errors of a disk, where its driver counts them (SCSI does, in hexadecimal).
    pub fn disk(root: &Path, name: &str) -> Self {
        let path = root.join("sys/block").join(name).join("device/ioerr_cnt");
        let value = text(&path).and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok());
        Self(value.map(|value| ("errors".to_owned(), value)).into_iter().collect())
    }

    /// Segments that TCP sent, and sent again (`/proc/net/snmp`).
    pub fn tcp(snmp: &str) -> Self {
        let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp:"));
        let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
            return Self::default();
        };
        let pairs = names.split_whitespace().zip(values.split_whitespace());
        let wanted = pairs.filter(|(name, _)| ["OutSegs", "RetransSegs"].contains(name));
        Self(
            wanted
                .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
                .collect(),
        )
    }
}

/// Folders with this beginning and a number after it, in the order of the numbers.
fn entries(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(folder).into_iter().flatten().take(ENTRIES_MAX);
    let mut found: Vec<(u32, PathBuf)> = listed
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let number = path.file_name()?.to_str()?.strip_prefix(prefix)?.parse().ok()?;
            Some((number, path))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

fn base(path: &Path) -> String {
    path.file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn text(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// A decimal number in a small file.
pub fn number(path: &Path) -> Option<u64> {
    text(path)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, content: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    #[test]
    fn a_dimm_with_errors_is_called_by_the_name_on_the_board() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for (dimm, label) in [(0, "CPU0_DIMM_A1\n"), (1, "CPU0_DIMM_B1\n")] {
            let folder = format!("sys/devices/system/edac/mc/mc0/dimm{dimm}");
            write(root, &format!("{folder}/dimm_label"), label);
            write(root, &format!("{folder}/dimm_ce_count"), "4\n");
            write(root, &format!("{folder}/dimm_ue_count"), "0\n");
        }
        write(root, "sys/devices/system/edac/mc/mc1/ce_count", "0\n");
        write(root, "sys/devices/system/edac/mc/power/control", "auto\n");
        let before = Counters::memory(root);
        write(root, "sys/devices/system/edac/mc/mc0/dimm1/dimm_ce_count", "11\n");
        let after = Counters::memory(root);
        assert_eq!(
            after.grown(&before),
            [("corrected errors of CPU0_DIMM_B1".to_owned(), 7)]
        );
        assert!(after.names().contains(&"corrected errors of mc1"), "{after:?}");
        assert!(Counters::memory(&root.join("nowhere")).is_empty());
    }

    #[test]
    fn machine_checks_are_summed_over_the_processors() {
        let text = "           CPU0       CPU1\n  0:  42  0  IO-APIC  2-edge timer\n MCE:          1          2   Machine check exceptions\n MCP:          9          9   Machine check polls\n";
        assert_eq!(Counters::machine_checks(text).get("machine checks"), Some(3));
        assert!(Counters::machine_checks("no such line\n").is_empty());
    }

    #[test]
    fn segments_sent_again_are_found_by_their_name() {
        let text = "Ip: a\nIp: 1\nTcp: RtoAlgorithm OutSegs RetransSegs\nTcp: 1 2000 7\n";
        let counters = Counters::tcp(text);
        assert_eq!(
            (counters.get("OutSegs"), counters.get("RetransSegs")),
            (Some(2_000), Some(7))
        );
    }

    #[test]
    fn a_disks_errors_are_hexadecimal() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "sys/block/sda/device/ioerr_cnt", "0x1f\n");
        assert_eq!(Counters::disk(root.path(), "sda").get("errors"), Some(31));
    }
}
