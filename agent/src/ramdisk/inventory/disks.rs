//! Disks that could hold an installation.

use std::io::Read;
use std::path::Path;

use protocol::latest::Disk;

use super::{names, number, value};

/// `size` in /sys counts in these, whatever the disk's own sectors are.
const SIZE_UNIT_BYTES: u64 = 512;
/// Names of block devices that are no hardware a system can be put on.
const NOT_DISKS: [&str; 10] = [
    "loop", "ram", "zram", "sr", "fd", "md", "dm-", "nbd", "drbd", "mtdblock",
];

/// The whole disks under `root`, by name: no partitions, no stacked or optical devices, no read-only or empty ones,
/// no hidden paths of a multipath NVMe.
#[must_use]
pub fn disks(root: &Path, problems: &mut Vec<String>) -> Vec<Disk> {
    names(root, "sys/block", problems)
        .into_iter()
        .filter(|name| !NOT_DISKS.iter().any(|prefix| name.starts_with(prefix)))
        .filter(|name| !(name.starts_with("mmcblk") && (name.contains("boot") || name.ends_with("rpmb"))))
        .filter_map(|name| disk(&root.join("sys/block").join(&name), name, problems))
        .collect()
}

fn disk(folder: &Path, name: String, problems: &mut Vec<String>) -> Option<Disk> {
    let flag = |file: &str| number::<u8>(&folder.join(file)) == Some(1);
    if flag("hidden") || flag("ro") {
        return None;
    }
    let Some(size) = number::<u64>(&folder.join("size")) else {
        problems.push(format!("/sys/block/{name}: no size"));
        return None;
    };
    // A card reader without a card.
    if size == 0 {
        return None;
    }
    Some(Disk {
        size_bytes: size.saturating_mul(SIZE_UNIT_BYTES),
        sector_bytes: number(&folder.join("queue/logical_block_size")).unwrap_or(512),
        model: value(&folder.join("device/model")),
        serial: value(&folder.join("serial"))
            .or_else(|| value(&folder.join("device/serial")))
            .or_else(|| unit_serial(&folder.join("device/vpd_pg80"))),
        wwn: value(&folder.join("wwid"))
            .or_else(|| value(&folder.join("device/wwid")))
            .filter(|id| is_world_wide(id)),
        rotational: flag("queue/rotational"),
        removable: flag("removable"),
        name,
    })
}

/// The kernel also puts vendor, model and serial together where a disk has no name of its own; that is no WWN.
fn is_world_wide(id: &str) -> bool {
    ["naa.", "eui.", "uuid."].iter().any(|prefix| id.starts_with(prefix))
}

/// Unit serial number page (SPC-4, 7.8.18): four bytes of header, the length in the last two of them.
fn unit_serial(path: &Path) -> Option<String> {
    let mut page = Vec::new();
    std::fs::File::open(path).ok()?.take(260).read_to_end(&mut page).ok()?;
    parse_unit_serial(&page)
}

fn parse_unit_serial(page: &[u8]) -> Option<String> {
    let length = usize::from(u16::from_be_bytes([*page.get(2)?, *page.get(3)?]));
    let text = std::str::from_utf8(page.get(4..4 + length)?).ok()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_serial_page_is_read_by_its_own_length() {
        assert_eq!(
            parse_unit_serial(b"\0\x80\0\x08 Z1X2Y3 garbage").as_deref(),
            Some("Z1X2Y3")
        );
        assert_eq!(parse_unit_serial(b"\0\x80\0\xffshort"), None);
        assert_eq!(parse_unit_serial(b"\0\x80"), None);
        assert_eq!(parse_unit_serial(b"\0\x80\0\x02  "), None);
    }

    #[test]
    fn only_names_given_to_the_disk_are_world_wide() {
        assert!(is_world_wide("naa.5000c500a1b2c3d4"));
        assert!(is_world_wide("eui.002538b911b3a5c1"));
        assert!(!is_world_wide(
            "t10.ATA     QEMU HARDDISK                           QM00001"
        ));
        assert!(!is_world_wide("nvme.1b36-4c4142-51454d55-00000001"));
    }
}
