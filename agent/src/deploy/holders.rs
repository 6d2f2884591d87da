//! What stands on the disk: RAID arrays and mapped devices (LVM, crypt), topmost first.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Most devices ever looked at.
const DEVICES_MAX: usize = 10_000;

/// A device that must be stopped before its disk can be cleared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// An md array: its kernel name.
    Raid(String),
    /// A device-mapper device: the name `dmsetup` knows it by.
    Mapped(String),
    /// Something this deployer cannot stop: its kernel name.
    Other(String),
}

/// Devices that stand on `disk`, directly or through others, in the order they can be stopped in. Devices that have no
/// part of this disk are never among them.
///
/// `root` holds `sys`, so that a recorded tree tests it.
pub fn holders(root: &Path, disk: &str) -> Vec<Holder> {
    let below = slaves(root);
    // What stands on the disk, found from below.
    let mut affected: BTreeSet<&str> = BTreeSet::new();
    loop {
        let stands_on = |lower: &String| {
            let whole = whole_device(root, lower);
            whole == disk || affected.contains(whole.as_str())
        };
        let found: Vec<&str> = below
            .iter()
            .filter(|(name, lower)| !affected.contains(name.as_str()) && lower.iter().any(stands_on))
            .map(|(name, _)| name.as_str())
            .collect();
        if found.is_empty() {
            break;
        }
        affected.extend(found);
    }
    // Stopped from above: always one on which no other remaining one stands.
    let mut order = Vec::new();
    while !affected.is_empty() {
        let carries = |name: &str| {
            let stands_on_it = |other: &&str| below[*other].iter().any(|lower| whole_device(root, lower) == name);
            affected.iter().any(stands_on_it)
        };
        // A circle cannot exist in a kernel; if /sys shows one, any order is as good.
        let next = affected
            .iter()
            .copied()
            .find(|name| !carries(name))
            .or_else(|| affected.first().copied());
        let Some(next) = next else { break };
        affected.remove(next);
        order.push(holder(root, next));
    }
    order
}

/// Each block device that stands on others, with their names.
fn slaves(root: &Path) -> BTreeMap<String, Vec<String>> {
    let list = |path: &Path| -> Vec<String> {
        let listed = std::fs::read_dir(path).into_iter().flatten();
        listed
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .take(DEVICES_MAX)
            .collect()
    };
    let block = root.join("sys/block");
    list(&block)
        .into_iter()
        .map(|name| (list(&block.join(&name).join("slaves")), name))
        .filter(|(lower, _)| !lower.is_empty())
        .map(|(lower, name)| (name, lower))
        .collect()
}

/// The whole device a partition belongs to; any other name is its own.
fn whole_device(root: &Path, name: &str) -> String {
    let block = root.join("sys/block");
    if block.join(name).exists() {
        return name.to_owned();
    }
    // `vda1` → `vda`, `nvme0n1p1` → `nvme0n1`: the only device that has a folder of that name in it.
    let mut cut = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if !block.join(cut).join(name).exists() {
        cut = cut.trim_end_matches('p');
    }
    cut.to_owned()
}

fn holder(root: &Path, name: &str) -> Holder {
    let mapped = std::fs::read_to_string(root.join("sys/block").join(name).join("dm/name"));
    match mapped {
        Ok(mapped) => Holder::Mapped(mapped.trim().to_owned()),
        Err(_) if name.starts_with("md") => Holder::Raid(name.to_owned()),
        Err(_) => Holder::Other(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(devices: &[(&str, &[&str], &[&str])]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, partitions, lower) in devices {
            let folder = root.path().join("sys/block").join(name);
            std::fs::create_dir_all(folder.join("slaves")).unwrap();
            for partition in *partitions {
                std::fs::create_dir(folder.join(partition)).unwrap();
            }
            for lower in *lower {
                std::fs::write(folder.join("slaves").join(lower), "").unwrap();
            }
            if name.starts_with("dm-") {
                std::fs::create_dir(folder.join("dm")).unwrap();
                std::fs::write(folder.join("dm/name"), format!("vg0-{name}\n")).unwrap();
            }
        }
        root
    }

    /// metal-hammer#61 and its family, b: arrays and volumes go before the disk under them.
    #[test]
    fn metal_hammer_61_what_stands_on_the_disk_is_stopped_from_the_top() {
        let root = tree(&[
            ("nvme0n1", &["nvme0n1p1", "nvme0n1p2"], &[]),
            ("nvme1n1", &["nvme1n1p1"], &[]),
            ("md0", &[], &["nvme0n1p2", "nvme1n1p1"]),
            ("dm-0", &[], &["md0"]),
            ("dm-1", &[], &["dm-0", "md0"]),
            ("loop0", &[], &[]),
        ]);
        let expected = [
            Holder::Mapped("vg0-dm-1".to_owned()),
            Holder::Mapped("vg0-dm-0".to_owned()),
            Holder::Raid("md0".to_owned()),
        ];
        assert_eq!(holders(root.path(), "nvme0n1"), expected);
    }

    /// The same family, b: only on the target.
    #[test]
    fn metal_hammer_61_other_disks_keep_what_stands_on_them() {
        let root = tree(&[
            ("sda", &["sda1"], &[]),
            ("sdb", &["sdb1"], &[]),
            ("md1", &["md1p1"], &["sdb1"]),
            ("dm-0", &[], &["md1p1"]),
            ("bcache0", &[], &["sdb"]),
        ]);
        assert_eq!(holders(root.path(), "sda"), []);
        let on_b = holders(root.path(), "sdb");
        assert_eq!(on_b.len(), 3, "{on_b:?}");
        assert!(on_b.contains(&Holder::Other("bcache0".to_owned())));
        let at = |holder: &Holder| on_b.iter().position(|one| one == holder).unwrap();
        assert!(
            at(&Holder::Mapped("vg0-dm-0".to_owned())) < at(&Holder::Raid("md1".to_owned())),
            "{on_b:?}"
        );
    }
}
