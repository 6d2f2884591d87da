//! How the disk is divided, and how large it must be.

use manifest::{EntryKind, Manifest};
use protocol::latest::{Disk, Layout};

const MIB: u64 = 1 << 20;
/// Size of the BIOS boot partition: GRUB's core takes a sixth of it, and everything stays at whole MiB.
const BIOS_BOOT_BYTES: u64 = MIB;
/// Smallest and largest EFI system partition, in MiB.
const ESP_MIB: std::ops::RangeInclusive<u32> = 33..=16_384;
/// FAT32 has at least 65,525 clusters (FAT specification 1.03, "FAT type determination"); some are lost to the FATs.
const FAT32_CLUSTERS_MIN: u64 = 65_525 + 64;
/// Room of a FAT32 that is not clusters: reserved sectors and two FATs of at most 4 bytes a cluster, generously.
const FAT32_OVERHEAD_PARTS: u64 = 100;

/// The layout cannot be made on this disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The server asks for something no disk can have.
    #[error("layout: {0}")]
    Layout(String),
    /// The disk's sectors are neither 512 nor 4,096 bytes.
    #[error("the disk has logical sectors of {0} bytes; 512 and 4096 are possible")]
    Sectors(u32),
    /// No room for a root.
    #[error("the disk of {disk_bytes} bytes has no room for a root beside an EFI system partition of {esp_mib} MiB")]
    NoRoom {
        /// Its size.
        disk_bytes: u64,
        /// The ESP's size.
        esp_mib: u32,
    },
}

/// First sector and number of sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First logical sector.
    pub first: u64,
    /// Logical sectors.
    pub length: u64,
}

/// Where the partitions lie, in logical sectors; all begin and end at multiples of 1 MiB. One layout for both
/// firmwares. The BIOS boot partition comes first on the disk, where every BIOS can read, and has the last number: GRUB
/// for BIOS finds its configuration on partition 1, and the root can grow at the disk's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskPlan {
    /// Logical sector size in bytes.
    pub sector_bytes: u32,
    /// Partition 1: EFI system partition.
    pub esp: Extent,
    /// Partition 2: root.
    pub root: Extent,
    /// Partition 3: what GRUB for BIOS loads, without a filesystem.
    pub bios_boot: Extent,
    /// FAT cluster of the ESP, in logical sectors.
    pub sectors_per_cluster: u32,
}

impl DiskPlan {
    /// Divides the disk.
    ///
    /// # Errors
    /// [`PlanError`] when the layout is impossible or the disk too small.
    pub fn new(disk: &Disk, layout: &Layout) -> Result<Self, PlanError> {
        let sector = u64::from(disk.sector_bytes);
        if !matches!(disk.sector_bytes, 512 | 4096) {
            return Err(PlanError::Sectors(disk.sector_bytes));
        }
        let is_volume_id = layout.esp_volume_id.len() == 8
            && layout
                .esp_volume_id
                .bytes()
                .all(|b| b.is_ascii_hexdigit() && !b.is_ascii_lowercase());
        if !is_volume_id {
            let problem = format!(
                "volume id {:?}: expected eight upper-case hexadecimal digits",
                layout.esp_volume_id
            );
            return Err(PlanError::Layout(problem));
        }
        let is_label = matches!(layout.esp_label.len(), 1..=11)
            && layout
                .esp_label
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
        if !is_label {
            let problem = format!(
                "volume label {:?}: expected one to eleven upper-case letters and digits",
                layout.esp_label
            );
            return Err(PlanError::Layout(problem));
        }
        if !ESP_MIB.contains(&layout.esp_mib) {
            let problem = format!(
                "an EFI system partition of {} MiB: expected {} to {}",
                layout.esp_mib,
                ESP_MIB.start(),
                ESP_MIB.end()
            );
            return Err(PlanError::Layout(problem));
        }
        let esp_bytes = u64::from(layout.esp_mib) * MIB;
        let esp_at = MIB + BIOS_BOOT_BYTES;
        // The backup table takes the end; a whole MiB is left to it.
        let end_bytes = (disk.size_bytes / MIB).saturating_sub(1) * MIB;
        let root_bytes = end_bytes.saturating_sub(esp_at + esp_bytes);
        if root_bytes < 64 * MIB {
            return Err(PlanError::NoRoom {
                disk_bytes: disk.size_bytes,
                esp_mib: layout.esp_mib,
            });
        }
        Ok(Self {
            sector_bytes: disk.sector_bytes,
            esp: Extent {
                first: esp_at / sector,
                length: esp_bytes / sector,
            },
            root: Extent {
                first: (esp_at + esp_bytes) / sector,
                length: root_bytes / sector,
            },
            bios_boot: Extent {
                first: MIB / sector,
                length: BIOS_BOOT_BYTES / sector,
            },
            sectors_per_cluster: sectors_per_cluster(esp_bytes, disk.sector_bytes)?,
        })
    }
}

/// The largest cluster up to 4 KiB with which the partition is a FAT32 for every reader: with too few clusters,
/// firmware takes it for a FAT16 and finds nothing.
fn sectors_per_cluster(esp_bytes: u64, sector_bytes: u32) -> Result<u32, PlanError> {
    let usable = esp_bytes - esp_bytes / FAT32_OVERHEAD_PARTS;
    let possible = [8, 4, 2, 1]
        .into_iter()
        .filter(|sectors| sectors * sector_bytes <= 4096);
    let enough = |sectors: &u32| usable / u64::from(sectors * sector_bytes) >= FAT32_CLUSTERS_MIN;
    possible.clone().find(enough).ok_or_else(|| {
        let least = FAT32_CLUSTERS_MIN * u64::from(sector_bytes) * FAT32_OVERHEAD_PARTS / (FAT32_OVERHEAD_PARTS - 1);
        PlanError::Layout(format!(
            "an EFI system partition of {} MiB is no FAT32 on sectors of {sector_bytes} bytes; at least {} MiB are needed",
            esp_bytes / MIB,
            least.div_ceil(MIB)
        ))
    })
}

/// The least disk that holds these manifests: contents in blocks, inodes, 6 % of ext4's own, and some room to live.
pub fn needed_bytes(manifests: &[&Manifest], layout: &Layout) -> u64 {
    let content = |manifest: &&Manifest| -> u64 {
        let size = |kind: &EntryKind| match kind {
            EntryKind::File(Some(content)) => content.size.div_ceil(4096).saturating_mul(4096),
            EntryKind::Directory => 4096,
            _ => 0,
        };
        manifest
            .entries
            .iter()
            .map(|entry| size(&entry.kind).saturating_add(512))
            .fold(0, u64::saturating_add)
    };
    let root = manifests.iter().map(content).fold(0, u64::saturating_add);
    root.saturating_add(root / 16)
        .saturating_add(256 * MIB)
        .saturating_add(u64::from(layout.esp_mib) * MIB)
        .saturating_add(2 * MIB + BIOS_BOOT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(size_bytes: u64, sector_bytes: u32) -> Disk {
        Disk {
            size_bytes,
            sector_bytes,
            ..Disk::default()
        }
    }

    fn layout(esp_mib: u32) -> Layout {
        Layout {
            esp_mib,
            esp_volume_id: "12AB34CD".to_owned(),
            esp_label: "PL12AB34CD".to_owned(),
            root_uuid: uuid::Uuid::nil(),
        }
    }

    #[test]
    fn partitions_begin_and_end_at_whole_mebibytes_for_both_sector_sizes() {
        for (sector, cluster) in [(512_u32, 8), (4096, 1)] {
            // A disk whose size is no multiple of 1 MiB.
            let size = 4_000_000_000 / u64::from(sector) * u64::from(sector);
            let plan = DiskPlan::new(&disk(size, sector), &layout(512)).unwrap();
            let bytes = |sectors: u64| sectors * u64::from(sector);
            assert_eq!(bytes(plan.bios_boot.first), MIB);
            assert_eq!(bytes(plan.bios_boot.length), MIB);
            assert_eq!(bytes(plan.esp.first), 2 * MIB);
            assert_eq!(bytes(plan.esp.length), 512 * MIB);
            assert_eq!(bytes(plan.root.first), 514 * MIB);
            let end = bytes(plan.root.first + plan.root.length);
            assert_eq!(end % MIB, 0);
            assert!(
                end + 33 * u64::from(sector) <= size && size - end <= 2 * MIB,
                "{end} of {size}"
            );
            assert_eq!(plan.sectors_per_cluster, cluster);
        }
    }

    #[test]
    fn an_esp_that_firmware_would_not_read_is_refused() {
        // 65,525 clusters of 4,096 bytes are 256 MiB; the FATs come on top.
        let error = DiskPlan::new(&disk(4_000_000_000, 4096), &layout(256))
            .unwrap_err()
            .to_string();
        assert!(error.contains("FAT32") && error.contains("259 MiB"), "{error}");
        assert!(DiskPlan::new(&disk(4_000_000_000, 4096), &layout(260)).is_ok());
        assert_eq!(
            DiskPlan::new(&disk(4_000_000_000, 512), &layout(64))
                .unwrap()
                .sectors_per_cluster,
            1
        );
    }

    #[test]
    fn what_no_disk_can_have_is_refused() {
        let good = disk(4_000_000_000, 512);
        let mut bad_id = layout(512);
        bad_id.esp_volume_id = "12ab34cd".to_owned();
        assert!(matches!(DiskPlan::new(&good, &bad_id), Err(PlanError::Layout(_))));
        assert!(matches!(DiskPlan::new(&good, &layout(0)), Err(PlanError::Layout(_))));
        assert!(matches!(
            DiskPlan::new(&disk(4_000_000_000, 520), &layout(512)),
            Err(PlanError::Sectors(520))
        ));
        assert!(matches!(
            DiskPlan::new(&disk(500 * MIB, 512), &layout(512)),
            Err(PlanError::NoRoom { .. })
        ));
        assert!(matches!(
            DiskPlan::new(&disk(0, 512), &layout(512)),
            Err(PlanError::NoRoom { .. })
        ));
    }
}
