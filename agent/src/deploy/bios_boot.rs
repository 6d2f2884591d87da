//! GRUB for BIOS machines: its first sector and its core, which lie on the disk outside every filesystem.
//!
//! Idea: the image carries both as files, the same for all nodes. Here they are put where a BIOS and GRUB look for them
//! on a disk with a GPT: the first sector beside the protective partition table, the core in a partition of its own. Few
//! bytes differ between two disks, and they follow from where that partition begins. Every disk gets them, also of a
//! machine that starts by UEFI now, so that its firmware can be switched without another installation.
//!
//! Invariants: nothing is changed in a sector or a core that does not look as GRUB's documentation and source say; the
//! protective partition table stays as it is; what was written is read back from the disk.
//!
//! Refused: running grub-install here or on the node. It looks at the running system to decide, and what it decides is
//! then in no manifest.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context as _, ensure};
use manifest::{Digest, EntryKind, Manifest, TreePath};
use protocol::latest::Disk;

use super::plan::{DiskPlan, Extent};
use super::target::Target;
use super::tree::Tree;

/// Where an image keeps GRUB's first sector.
const BOOT_FILE: &str = "/boot/grub/i386-pc/boot.img";
/// Where an image keeps GRUB's core: kernel, filesystems, menu.
const CORE_FILE: &str = "/boot/grub/i386-pc/core.img";
/// A BIOS counts sectors of 512 bytes, and so does GRUB's first sector.
const SECTOR_BYTES: usize = 512;
/// Largest core that is read; GRUB's own limit is below 512 KiB.
const CORE_BYTES_MAX: u64 = 1 << 20;

/// The first sector's code; what follows belongs to the disk: its signature and the partition table (UEFI 2.10, 5.2.3).
const CODE: Range<usize> = 0..440;
const SIGNATURE: Range<usize> = 510..512;
/// Type of the protective entry.
const PROTECTIVE_TYPE: usize = 450;
// Fields of the first sector: include/grub/i386/pc/boot.h of GRUB 2.12, GRUB_BOOT_MACHINE_*.
const KERNEL_ADDRESS: Range<usize> = 0x5a..0x5c;
const KERNEL_SECTOR: Range<usize> = 0x5c..0x64;
const BOOT_DRIVE: usize = 0x64;
const DRIVE_CHECK: Range<usize> = 0x66..0x68;
// The core's first sector ends with one block list: start, length and segment of what follows it, as
// grub_pc_bios_boot_blocklist in include/grub/offsets.h.
const LIST_START: Range<usize> = 500..508;
const LIST_LENGTH: Range<usize> = 508..510;
const LIST_SEGMENT: Range<usize> = 510..512;
/// Where the core is loaded, as a segment: its second sector belongs at 0x8200.
const CORE_SEGMENT: u16 = 0x820;

/// GRUB for BIOS cannot be put on this disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BiosBootError {
    /// The machine started by BIOS, and the image is from before images carried this.
    #[error(
        "this machine starts by BIOS, and the image has no {BOOT_FILE}: build it again, or switch the firmware to UEFI"
    )]
    NotInImage,
    /// The machine started by BIOS and the disk has larger sectors.
    #[error("this machine starts by BIOS, which cannot start from sectors of {0} bytes: switch the firmware to UEFI")]
    Sectors(u32),
    /// Not GRUB's first sector as this version knows it.
    #[error("{BOOT_FILE} is not the first sector of a GRUB 2 for BIOS: {0}")]
    Boot(String),
    /// Not GRUB's core as this version knows it.
    #[error("{CORE_FILE} is not the core of a GRUB 2 for BIOS: {0}")]
    Core(String),
    /// Too large.
    #[error("{CORE_FILE} has {core} sectors of 512 bytes, its partition {partition}")]
    CoreTooLarge {
        /// What is needed.
        core: u64,
        /// What there is.
        partition: u64,
    },
    /// The disk's first sector is not what was written there with the partition table.
    #[error("the disk has no protective partition table in its first sector")]
    NoProtectiveTable,
}

/// What an image brings.
#[derive(Clone, Debug)]
pub struct BiosGrub {
    /// The first sector.
    boot: Vec<u8>,
    /// The core.
    core: Vec<u8>,
}

/// Whether this machine can start from that disk afterwards, known before anything is written.
///
/// # Errors
/// [`BiosBootError`], on a machine that started by BIOS.
pub fn ensure_possible(image: &Manifest, disk: &Disk, starts_by_bios: bool) -> Result<(), BiosBootError> {
    if !starts_by_bios {
        return Ok(());
    }
    if !is_carried_by(image) {
        return Err(BiosBootError::NotInImage);
    }
    match disk.sector_bytes {
        512 => Ok(()),
        other => Err(BiosBootError::Sectors(other)),
    }
}

/// How this machine was started.
#[must_use]
pub fn machine_starts_by_bios() -> bool {
    !Path::new("/sys/firmware/efi").is_dir()
}

fn is_carried_by(image: &Manifest) -> bool {
    let has = |path: &str| path.parse().is_ok_and(|path: TreePath| image.get(&path).is_some());
    has(BOOT_FILE) && has(CORE_FILE)
}

/// Puts the GRUB of the written image on the disk; says what was done. Blocks.
///
/// # Errors
/// When the image's files are not GRUB's, or the disk does not keep what is written.
pub fn install(tree: &Tree, image: &Manifest, target: &Target, plan: &DiskPlan) -> anyhow::Result<&'static str> {
    if !is_carried_by(image) {
        return Ok("the image has no GRUB for BIOS: this disk starts by UEFI only");
    }
    if usize::try_from(plan.sector_bytes)? != SECTOR_BYTES {
        return Ok("a BIOS cannot start from this disk's sectors: it starts by UEFI only");
    }
    let grub = BiosGrub::from_image(tree, image)?;
    grub.write(target, plan)?;
    Ok("the disk starts by UEFI and by BIOS")
}

impl BiosGrub {
    /// GRUB from bytes: first sector and core.
    #[must_use]
    pub const fn new(boot: Vec<u8>, core: Vec<u8>) -> Self {
        Self { boot, core }
    }

    /// From the files that were just written, once more against the manifest.
    fn from_image(tree: &Tree, image: &Manifest) -> anyhow::Result<Self> {
        let read = |path: &str| -> anyhow::Result<Vec<u8>> {
            let path: TreePath = path.parse()?;
            let mut bytes = Vec::new();
            tree.reopen_file(&path)?.take(CORE_BYTES_MAX).read_to_end(&mut bytes)?;
            let expected = match image.get(&path).map(|entry| &entry.kind) {
                Some(EntryKind::File(Some(content))) => Some(content.digest),
                _ => None,
            };
            ensure!(
                expected == Some(Digest::of(&bytes)),
                "{path} is not as the manifest says"
            );
            Ok(bytes)
        };
        Ok(Self::new(read(BOOT_FILE)?, read(CORE_FILE)?))
    }

    /// Writes core and first sector, in this order: a disk on which only half was done starts nothing. Blocks.
    ///
    /// # Errors
    /// [`BiosBootError`], or a write that did not reach the disk.
    pub fn write(&self, target: &Target, plan: &DiskPlan) -> anyhow::Result<()> {
        let node = target.node();
        let device = OpenOptions::new().read(true).write(true).open(&node);
        let device = device.with_context(|| format!("opening {}", node.display()))?;
        let mut first = [0; SECTOR_BYTES];
        device
            .read_exact_at(&mut first, 0)
            .context("reading the first sector")?;
        let core_at = plan.bios_boot.first * SECTOR_BYTES as u64;
        let core = placed_core(&self.core, plan.bios_boot)?;
        let sector = first_sector(&self.boot, &first, plan.bios_boot.first)?;
        put(&device, core_at, &core).context("GRUB's core")?;
        put(&device, 0, &sector).context("GRUB's first sector")
    }
}

/// Writes, flushes, and reads back from the disk.
fn put(device: &File, at: u64, bytes: &[u8]) -> anyhow::Result<()> {
    device.write_all_at(bytes, at).context("writing")?;
    device.sync_all().context("flushing")?;
    // What is read below shall not come from memory.
    rustix::fs::fadvise(device, 0, None, rustix::fs::Advice::DontNeed).context("forgetting what was written")?;
    let mut found = vec![0; bytes.len()];
    device.read_exact_at(&mut found, at).context("reading it back")?;
    ensure!(found == bytes, "the disk does not give back what was written");
    Ok(())
}

/// GRUB's code with this disk's partition table; `core_first` is the sector the core begins at.
fn first_sector(boot: &[u8], disk: &[u8; SECTOR_BYTES], core_first: u64) -> Result<[u8; SECTOR_BYTES], BiosBootError> {
    let wrong = |what: &str| Err(BiosBootError::Boot(what.to_owned()));
    if boot.len() != SECTOR_BYTES {
        return wrong(&format!("it has {} bytes, expected {SECTOR_BYTES}", boot.len()));
    }
    if boot[SIGNATURE] != [0x55, 0xaa] {
        return wrong("it ends with no signature");
    }
    // Loads the core to 0x8000, from a sector filled in here, from the drive that the BIOS names.
    if boot[KERNEL_ADDRESS] != [0x00, 0x80] || boot[KERNEL_SECTOR] != 1_u64.to_le_bytes() || boot[BOOT_DRIVE] != 0xff {
        return wrong("its fields are at other places");
    }
    // A short jump over the check.
    if boot[DRIVE_CHECK] != [0xeb, 0x05] {
        return wrong("its check of the drive number is another one");
    }
    if disk[SIGNATURE] != [0x55, 0xaa] || disk[PROTECTIVE_TYPE] != 0xee {
        return Err(BiosBootError::NoProtectiveTable);
    }
    let mut sector = *disk;
    sector[CODE].copy_from_slice(&boot[CODE]);
    sector[KERNEL_SECTOR].copy_from_slice(&core_first.to_le_bytes());
    // Two no-operations: the check runs. Some BIOSes give a hard disk's first sector a wrong drive number, and
    // grub-bios-setup switches this on for every disk that is no floppy.
    sector[DRIVE_CHECK].copy_from_slice(&[0x90, 0x90]);
    Ok(sector)
}

/// The core in whole sectors, with its first sector naming where the others are.
fn placed_core(core: &[u8], partition: Extent) -> Result<Vec<u8>, BiosBootError> {
    let wrong = |what: String| Err(BiosBootError::Core(what));
    let sectors = core.len().div_ceil(SECTOR_BYTES);
    if sectors < 2 {
        return wrong(format!("it has {} bytes", core.len()));
    }
    if sectors as u64 > partition.length {
        return Err(BiosBootError::CoreTooLarge {
            core: sectors as u64,
            partition: partition.length,
        });
    }
    let following = u16::try_from(sectors - 1).unwrap_or(u16::MAX).to_le_bytes();
    if core[LIST_LENGTH] != following || core[LIST_SEGMENT] != CORE_SEGMENT.to_le_bytes() {
        return wrong(format!(
            "its block list says length {:02x?} and segment {:02x?}, expected {following:02x?} and {:02x?}",
            &core[LIST_LENGTH],
            &core[LIST_SEGMENT],
            CORE_SEGMENT.to_le_bytes()
        ));
    }
    let mut placed = core.to_vec();
    placed.resize(sectors * SECTOR_BYTES, 0);
    placed[LIST_START].copy_from_slice(&(partition.first + 1).to_le_bytes());
    Ok(placed)
}

#[cfg(test)]
mod tests {
    use manifest::{Entry, FileContent, Header, ManifestKind, PathClass, Xattrs};

    use super::*;

    const PARTITION: Extent = Extent {
        first: 2048,
        length: 2048,
    };

    /// As grub-mkimage leaves it, with code of 0x11.
    fn boot() -> Vec<u8> {
        let mut boot = vec![0x11; SECTOR_BYTES];
        boot[KERNEL_ADDRESS].copy_from_slice(&[0x00, 0x80]);
        boot[KERNEL_SECTOR].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
        boot[BOOT_DRIVE] = 0xff;
        boot[DRIVE_CHECK].copy_from_slice(&[0xeb, 0x05]);
        boot[SIGNATURE].copy_from_slice(&[0x55, 0xaa]);
        boot
    }

    /// 1,300 bytes: three sectors, the last one not full.
    fn core() -> Vec<u8> {
        let mut core = vec![0x22; 1300];
        core[500..512].copy_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0x20, 0x08]);
        core
    }

    /// A first sector with a disk signature and a protective entry.
    fn disk() -> [u8; SECTOR_BYTES] {
        let mut disk = [0; SECTOR_BYTES];
        disk[440..444].copy_from_slice(&[0xd1, 0xd2, 0xd3, 0xd4]);
        let entry = [0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0xff, 0xff, 0x7f, 0];
        disk[446..462].copy_from_slice(&entry);
        disk[510..].copy_from_slice(&[0x55, 0xaa]);
        disk
    }

    #[test]
    fn the_first_sector_names_the_core_and_keeps_the_partition_table() {
        let sector = first_sector(&boot(), &disk(), 0x0102_0304_0506).unwrap();
        assert_eq!(sector[440..], disk()[440..], "what belongs to the disk");
        assert_eq!(
            sector[0x5a..0x64],
            [0x00, 0x80, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0, 0]
        );
        assert_eq!(sector[0x64..0x68], [0xff, 0x11, 0x90, 0x90]);
        let is_code = |at: &usize| !(0x5a..0x68).contains(at);
        assert!((0..440).filter(is_code).all(|at| sector[at] == 0x11), "GRUB's code");
    }

    #[test]
    fn the_core_names_its_own_second_sector_and_fills_whole_sectors() {
        let placed = placed_core(&core(), PARTITION).unwrap();
        assert_eq!(placed.len(), 3 * 512);
        assert_eq!(placed[500..512], [0x01, 0x08, 0, 0, 0, 0, 0, 0, 2, 0, 0x20, 0x08]);
        assert_eq!(placed[..500], core()[..500]);
        assert_eq!(placed[512..1300], core()[512..]);
        assert!(placed[1300..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_core_larger_than_its_partition_is_refused() {
        let extent = |length| Extent { first: 2048, length };
        assert!(placed_core(&core(), extent(3)).is_ok());
        let refused = placed_core(&core(), extent(2));
        assert_eq!(refused, Err(BiosBootError::CoreTooLarge { core: 3, partition: 2 }));
    }

    #[test]
    fn what_is_not_grubs_is_not_changed_and_not_written() {
        type Change = fn(&mut Vec<u8>);
        let boots: [Change; 6] = [
            |b| b.truncate(511),
            |b| b[511] = 0,
            |b| b[0x5b] = 0x7c,
            |b| b[0x5c] = 2,
            |b| b[0x64] = 0x80,
            |b| b[0x66] = 0x90,
        ];
        for (number, change) in boots.into_iter().enumerate() {
            let mut bad = boot();
            change(&mut bad);
            let result = first_sector(&bad, &disk(), 2048);
            assert!(
                matches!(result, Err(BiosBootError::Boot(_))),
                "case {number}: {result:?}"
            );
        }
        let cores: [Change; 4] = [
            |c| c.truncate(512),
            |c| c.truncate(900),
            |c| c[508] = 3,
            |c| c[511] = 0x80,
        ];
        for (number, change) in cores.into_iter().enumerate() {
            let mut bad = core();
            change(&mut bad);
            let result = placed_core(&bad, PARTITION);
            assert!(
                matches!(result, Err(BiosBootError::Core(_))),
                "case {number}: {result:?}"
            );
        }
        for at in [450, 511] {
            let mut bare = disk();
            bare[at] = 0;
            assert_eq!(
                first_sector(&boot(), &bare, 2048),
                Err(BiosBootError::NoProtectiveTable)
            );
        }
    }

    #[test]
    fn a_bios_machine_that_could_not_start_afterwards_is_refused_before_anything_is_written() {
        let image = |paths: &[&str]| {
            let entry = |path: &&str| Entry {
                path: path.parse().unwrap(),
                class: PathClass::Pinned,
                kind: EntryKind::File(Some(FileContent {
                    size: 1,
                    digest: Digest::of(b"x"),
                })),
                mode: 0o644,
                uid: 0,
                gid: 0,
                mtime: 0,
                xattrs: Xattrs::new(),
            };
            let header = Header::new(ManifestKind::Os, "sample", "1");
            Manifest::new(header, paths.iter().map(entry).collect()).unwrap()
        };
        let disk = |sector_bytes| Disk {
            sector_bytes,
            ..Disk::default()
        };
        let (full, old) = (image(&[BOOT_FILE, CORE_FILE]), image(&[BOOT_FILE]));
        assert_eq!(ensure_possible(&full, &disk(512), true), Ok(()));
        assert_eq!(ensure_possible(&old, &disk(512), true), Err(BiosBootError::NotInImage));
        let sectors = Err(BiosBootError::Sectors(4096));
        assert_eq!(ensure_possible(&full, &disk(4096), true), sectors);
        assert_eq!(ensure_possible(&old, &disk(4096), false), Ok(()), "by UEFI all is well");
    }
}
