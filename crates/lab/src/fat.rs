//! Whether a FAT32 inside a disk's file has a path, read without mounting it: not every kernel has the driver.
//!
//! Names are compared as their short form (FAT specification 1.03, "FAT Directory Structure").

use anyhow::{Context as _, Result, ensure};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Clusters of one folder that are looked at.
const CLUSTERS_MAX: usize = 1_024;
const ENTRY_BYTES: usize = 32;

struct Fat {
    file: File,
    /// Where the filesystem, its table and its clusters begin, in bytes.
    table_at: u64,
    clusters_at: u64,
    cluster_bytes: usize,
    root: u32,
}

/// Whether `path` is there, given as short names of eleven bytes (`b"GRUB    CFG"`), on the filesystem that begins at
/// byte `at` of the file.
///
/// # Errors
/// When the file cannot be read or holds no FAT32 there.
pub fn has_path(disk: &Path, at: u64, path: &[&[u8; 11]]) -> Result<bool> {
    let fat = Fat::open(disk, at)?;
    let mut folder = fat.root;
    for name in path {
        match fat.find(folder, name)? {
            Some(cluster) => folder = cluster,
            None => return Ok(false),
        }
    }
    Ok(true)
}

impl Fat {
    fn open(disk: &Path, at: u64) -> Result<Self> {
        let file = File::open(disk).with_context(|| disk.display().to_string())?;
        let mut sector = [0_u8; 512];
        file.read_exact_at(&mut sector, at)?;
        let u16_at = |from: usize| u64::from(u16::from_le_bytes([sector[from], sector[from + 1]]));
        let u32_at =
            |from: usize| u32::from_le_bytes([sector[from], sector[from + 1], sector[from + 2], sector[from + 3]]);
        ensure!(
            sector[510..] == [0x55, 0xaa] && u16_at(22) == 0 && &sector[82..87] == b"FAT32",
            "{}: no FAT32 at byte {at}",
            disk.display()
        );
        let sector_bytes = u16_at(11);
        let table_at = at + u16_at(14) * sector_bytes;
        Ok(Self {
            table_at,
            clusters_at: table_at + u64::from(sector[16]) * u64::from(u32_at(36)) * sector_bytes,
            cluster_bytes: usize::try_from(u64::from(sector[13]) * sector_bytes)?,
            root: u32_at(44),
            file,
        })
    }

    /// The first cluster of what has this name in a folder.
    fn find(&self, folder: u32, name: &[u8; 11]) -> Result<Option<u32>> {
        let mut cluster = folder;
        for _ in 0..CLUSTERS_MAX {
            if !(2..0x0fff_fff8).contains(&cluster) {
                return Ok(None);
            }
            let mut bytes = vec![0_u8; self.cluster_bytes];
            let at = self.clusters_at + u64::from(cluster - 2) * self.cluster_bytes as u64;
            self.file.read_exact_at(&mut bytes, at)?;
            for entry in bytes.chunks_exact(ENTRY_BYTES) {
                if entry[0] == 0 {
                    return Ok(None);
                }
                if entry[..11] == name[..] {
                    let half = |from: usize| u32::from(u16::from_le_bytes([entry[from], entry[from + 1]]));
                    return Ok(Some(half(20) << 16 | half(26)));
                }
            }
            let mut next = [0_u8; 4];
            self.file
                .read_exact_at(&mut next, self.table_at + u64::from(cluster) * 4)?;
            cluster = u32::from_le_bytes(next) & 0x0fff_ffff;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filesystem with sectors and clusters of 512 bytes, one reserved sector and a table of one: `EFI` with
    /// `GRUB.CFG` in its second cluster.
    fn sample() -> Vec<u8> {
        let mut bytes = vec![0_u8; 512 * 8];
        bytes[11..13].copy_from_slice(&512_u16.to_le_bytes());
        (bytes[13], bytes[14], bytes[16], bytes[36], bytes[44]) = (1, 1, 1, 1, 2);
        bytes[82..87].copy_from_slice(b"FAT32");
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        for (cluster, next) in [(2, 0x0fff_ffff_u32), (3, 4), (4, 0x0fff_ffff)] {
            bytes[512 + cluster * 4..516 + cluster * 4].copy_from_slice(&next.to_le_bytes());
        }
        let mut entry = |cluster: usize, place: usize, name: &[u8], first: u8| {
            let at = 1_024 + (cluster - 2) * 512 + place * 32;
            bytes[at..at + 11].copy_from_slice(name);
            bytes[at + 26] = first;
        };
        entry(2, 0, b"EFI        ", 3);
        for place in 0..16 {
            entry(3, place, b"FILLER     ", 9);
        }
        entry(4, 0, b"GRUB    CFG", 9);
        bytes
    }

    #[test]
    fn a_path_is_found_over_clusters_and_what_is_gone_is_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [vec![0; 1_024], sample()].concat()).unwrap();
        let has = |path: &[&[u8; 11]]| has_path(file.path(), 1_024, path).unwrap();
        assert!(has(&[b"EFI        ", b"GRUB    CFG"]));
        assert!(!has(&[b"EFI        ", b"SHIM    EFI"]));
        assert!(!has(&[b"BOOT       "]));
        assert!(has_path(file.path(), 0, &[b"EFI        "]).is_err(), "no FAT32 there");
    }
}
