//! What the superblock of an ext4 says (Documentation/filesystems/ext4/super.rst of the Linux kernel).

/// Where it begins on the partition, and its size in bytes.
pub(super) const OFFSET_BYTES: u64 = 1_024;
pub(super) const SIZE_BYTES: usize = 1_024;

const MAGIC: u16 = 0xef53;
/// s_state: errors were detected.
const STATE_ERRORS: u16 = 0x2;
/// Compatible features that must be there: has_journal.
const COMPAT_NEEDED: u32 = 0x4;
/// Incompatible features that may be there, which are those that mke2fs of the deployer sets and GRUB reads: filetype,
/// recover (a journal to be replayed), extents, 64bit, flex_bg.
const INCOMPAT_KNOWN: u32 = 0x2 | 0x4 | 0x40 | 0x80 | 0x200;
/// The same of those that only writing needs: sparse_super, large_file, huge_file, gdt_csum, dir_nlink, extra_isize,
/// metadata_csum.
const RO_COMPAT_KNOWN: u32 = 0x1 | 0x2 | 0x8 | 0x10 | 0x20 | 0x40 | 0x400;

/// The fields that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Superblock {
    /// Which filesystem.
    pub(super) uuid: uuid::Uuid,
    /// Its size in bytes.
    pub(super) size_bytes: u64,
}

/// Reads a superblock; a reason why a filesystem is not one that this deployer makes and that is sound.
pub(super) fn read(bytes: &[u8]) -> Result<Superblock, String> {
    let short = || "its root partition is too small".to_owned();
    let u16_at = |at: usize| {
        let field = bytes.get(at..at + 2).and_then(|field| field.try_into().ok());
        field.map(u16::from_le_bytes).ok_or_else(short)
    };
    let u32_at = |at: usize| {
        let field = bytes.get(at..at + 4).and_then(|field| field.try_into().ok());
        field.map(u32::from_le_bytes).ok_or_else(short)
    };
    if u16_at(0x38)? != MAGIC {
        return Err("there is no ext4 on its root partition".to_owned());
    }
    let (compat, incompat, ro_compat) = (u32_at(0x5c)?, u32_at(0x60)?, u32_at(0x64)?);
    let foreign = (incompat & !INCOMPAT_KNOWN, ro_compat & !RO_COMPAT_KNOWN);
    if compat & COMPAT_NEEDED != COMPAT_NEEDED || foreign != (0, 0) {
        return Err(format!(
            "the root filesystem has features that a fresh one has not (compat {compat:#x}, incompat {incompat:#x}, \
             ro_compat {ro_compat:#x})"
        ));
    }
    if u16_at(0x3a)? & STATE_ERRORS != 0 {
        return Err("the kernel found errors in the root filesystem".to_owned());
    }
    // s_log_block_size counts from 1,024 bytes; a fresh one has 4,096.
    if u32_at(0x18)? != 2 {
        return Err("the root filesystem has blocks of another size than 4,096 bytes".to_owned());
    }
    let high = if incompat & 0x80 == 0 { 0 } else { u32_at(0x150)? };
    let blocks = (u64::from(high) << 32) | u64::from(u32_at(0x4)?);
    let uuid = bytes
        .get(0x68..0x78)
        .and_then(|field| uuid::Uuid::from_slice(field).ok());
    Ok(Superblock {
        uuid: uuid.ok_or_else(short)?,
        size_bytes: blocks.saturating_mul(4_096),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut bytes = vec![0_u8; SIZE_BYTES];
        bytes[0x38..0x3a].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[0x3a] = 1;
        bytes[0x18] = 2;
        bytes[0x4..0x8].copy_from_slice(&1_000_u32.to_le_bytes());
        bytes[0x5c] = 0x3c;
        bytes[0x60..0x64].copy_from_slice(&0x2c2_u32.to_le_bytes());
        bytes[0x64..0x68].copy_from_slice(&0x46b_u32.to_le_bytes());
        bytes[0x68..0x78].copy_from_slice(&[7; 16]);
        bytes
    }

    #[test]
    fn a_filesystem_of_an_earlier_installation_is_known() {
        let expected = Superblock {
            uuid: uuid::Uuid::from_bytes([7; 16]),
            size_bytes: 4_096_000,
        };
        assert_eq!(read(&sample()), Ok(expected));
        // The journal is replayed by the check.
        let mut cut_off = sample();
        cut_off[0x60] |= 0x4;
        assert_eq!(read(&cut_off), Ok(expected));
    }

    #[test]
    fn another_filesystem_and_one_with_errors_are_told_apart_and_refused() {
        type Change = fn(&mut Vec<u8>);
        let cases: [(Change, &str); 7] = [
            (|bytes| bytes[0x38] = 0, "no ext4"),
            (|bytes| bytes[0x3a] |= 2, "errors"),
            (|bytes| bytes[0x18] = 0, "4,096"),
            // encrypt, metadata_csum_seed.
            (|bytes| bytes[0x62] = 1, "features"),
            (|bytes| bytes[0x61] |= 0x20, "features"),
            // No journal.
            (|bytes| bytes[0x5c] = 0, "features"),
            (|bytes| bytes.truncate(0x60), "too small"),
        ];
        for (change, reason) in cases {
            let mut bytes = sample();
            change(&mut bytes);
            let found = read(&bytes).unwrap_err();
            assert!(found.contains(reason), "{found} should say {reason}");
        }
    }
}
