//! Whether the disk holds an installation of this node that can be gone on with.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use gpt::disk::LogicalBlockSize;
use gpt::{GptConfig, partition_types};
use uuid::Uuid;

use super::superblock;
use crate::deploy::holders::holders;
use crate::deploy::plan::DiskPlan;
use crate::deploy::program::run;
use crate::deploy::target::Target;
use crate::deploy::wipe::ensure_unused;

/// A full check reads all metadata; a spinning disk of some TB takes a quarter of an hour.
const CHECK_LIMIT: Duration = Duration::from_secs(3_600);
/// e2fsck(8), "EXIT CODE": nothing to correct; corrected. Preening corrects only what a cut of the power leaves.
const CHECKED: [i32; 2] = [0, 1];

/// An installation that can be gone on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Examined {
    /// Its root filesystem.
    pub root: Uuid,
}

/// Looks at the disk without changing anything. `known`: root filesystems that this node was given. Blocks.
///
/// # Errors
/// The reason why it is to be wiped.
pub fn examine(target: &Target, plan: &DiskPlan, known: &[Uuid]) -> Result<Examined, String> {
    if known.is_empty() {
        return Err("this node was not installed before".to_owned());
    }
    if let Some(holder) = holders(Path::new("/"), &target.disk().name).first() {
        return Err(format!("the disk is held by {holder:?}"));
    }
    ensure_unused(target).map_err(|error| error.to_string())?;
    table(target, plan)?;
    let mut bytes = vec![0; superblock::SIZE_BYTES];
    let node = target.partition_node(2);
    File::open(&node)
        .and_then(|device| device.read_exact_at(&mut bytes, superblock::OFFSET_BYTES))
        .map_err(|error| format!("{}: {error}", node.display()))?;
    let found = superblock::read(&bytes)?;
    if !known.contains(&found.uuid) {
        return Err(format!(
            "its root filesystem {} is not one that this node was given",
            found.uuid
        ));
    }
    let partition_bytes = plan.root.length.saturating_mul(u64::from(plan.sector_bytes));
    // mke2fs leaves out what does not fill a block, and a last group that is too small.
    if found.size_bytes > partition_bytes || found.size_bytes < partition_bytes / 16 * 15 {
        return Err(format!(
            "its root filesystem has {} bytes on a partition of {partition_bytes}",
            found.size_bytes
        ));
    }
    Ok(Examined { root: found.uuid })
}

/// Whether the partition table is the one that would be written.
fn table(target: &Target, plan: &DiskPlan) -> Result<(), String> {
    let block = match plan.sector_bytes {
        4096 => LogicalBlockSize::Lb4096,
        _ => LogicalBlockSize::Lb512,
    };
    let table = GptConfig::new()
        .logical_block_size(block)
        .only_valid_headers(true)
        .open(target.node())
        .map_err(|_| "it has no sound partition table".to_owned())?;
    let expected = [
        (1, plan.esp, partition_types::EFI),
        (2, plan.root, partition_types::LINUX_FS),
        (3, plan.bios_boot, partition_types::BIOS),
    ];
    let found = table.partitions();
    let fits = expected.iter().all(|(number, extent, kind)| {
        found.get(number).is_some_and(|partition| {
            partition.first_lba == extent.first
                && partition.last_lba.checked_sub(partition.first_lba) == extent.length.checked_sub(1)
                && partition.part_type_guid.guid == kind.guid
        })
    });
    let used = found.values().filter(|partition| partition.is_used()).count();
    if fits && used == expected.len() {
        Ok(())
    } else {
        Err("it is divided otherwise than this image needs it".to_owned())
    }
}

/// Checks the root filesystem, and lets e2fsck correct what a cut of the power leaves. Blocks.
///
/// # Errors
/// The reason why it is to be wiped.
pub fn check_filesystem(target: &Target) -> Result<(), String> {
    let node = target.partition_node(2);
    let path = node.to_str().unwrap_or_default();
    let done = run("e2fsck", &["-f", "-p", path], CHECK_LIMIT).map_err(|error| crate::deploy::chain(&error))?;
    match done.code {
        Some(code) if CHECKED.contains(&code) => Ok(()),
        code => {
            let said = format!("{} {}", done.output.trim(), done.errors.trim());
            let end: String = said.chars().take(300).collect();
            Err(format!(
                "its root filesystem has errors (e2fsck ended with {}): {}",
                code.map_or_else(|| "a signal".to_owned(), |code| code.to_string()),
                end.trim()
            ))
        }
    }
}
