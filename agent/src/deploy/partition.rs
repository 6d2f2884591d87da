//! The partition table and the filesystems.

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use gpt::disk::LogicalBlockSize;
use gpt::mbr::ProtectiveMBR;
use gpt::{GptConfig, partition_types};
use protocol::latest::Layout;

use super::plan::DiskPlan;
use super::program::{run, run_ok};
use super::target::Target;

const PROGRAM_LIMIT: Duration = Duration::from_secs(60);
/// ext4 discards the whole partition first, which some controllers take minutes for.
const MKFS_LIMIT: Duration = Duration::from_secs(1_200);
/// How long the kernel may take to show what is in the table.
const NODES_LIMIT: Duration = Duration::from_secs(20);
/// ESP, root, BIOS boot.
const PARTITIONS: [u32; 3] = [1, 2, 3];
const POLL: Duration = Duration::from_millis(50);

/// Writes a new GPT with all partitions and waits until the kernel shows them. Blocks.
///
/// # Errors
/// When the table cannot be written, or the kernel does not take it.
pub fn write_table(target: &Target, plan: &DiskPlan) -> anyhow::Result<()> {
    let node = target.node();
    let mut device = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&node)
        .with_context(|| format!("opening {}", node.display()))?;
    let sectors = device.seek(SeekFrom::End(0))? / u64::from(plan.sector_bytes);
    let block = match plan.sector_bytes {
        4096 => LogicalBlockSize::Lb4096,
        _ => LogicalBlockSize::Lb512,
    };
    // The protective entry covers the disk, or as much of it as 32 bits count (UEFI 2.10, 5.2.3).
    let covered = u32::try_from(sectors.saturating_sub(1)).unwrap_or(u32::MAX);
    ProtectiveMBR::with_lb_size(covered)
        .overwrite_lba0(&mut device)
        .context("protective MBR")?;
    let mut table = GptConfig::new()
        .writable(true)
        .logical_block_size(block)
        .create_from_device(device, None)
        .context("partition table")?;
    for (number, name, extent, kind) in [
        (1, "ESP", plan.esp, partition_types::EFI),
        (2, "root", plan.root, partition_types::LINUX_FS),
        (3, "BIOS", plan.bios_boot, partition_types::BIOS),
    ] {
        table
            .add_partition_at(name, number, extent.first, extent.length, kind, 0)
            .with_context(|| format!("partition {number} at sector {}", extent.first))?;
    }
    let device = table.write().context("writing the partition table")?;
    device.sync_all().context("flushing the partition table")?;
    drop(device);
    reread(target)?;
    wait_for_nodes(target)
}

/// Tells the kernel that the table has changed.
pub(super) fn reread(target: &Target) -> anyhow::Result<()> {
    let node = target.node();
    let path = node.to_str().context("device name")?;
    let end = Instant::now() + NODES_LIMIT;
    loop {
        let said = match run("blockdev", &["--rereadpt", path], PROGRAM_LIMIT)? {
            done if done.code == Some(0) => return Ok(()),
            refused => refused.errors,
        };
        // Kernels without a partition scan on this device are told each partition instead.
        if said.contains("Invalid argument") {
            let update = run("partx", &["--update", path], PROGRAM_LIMIT)?;
            // It also says no when there is no table, which is what a wiped disk has.
            if update.code != Some(0) {
                let _ = run("partx", &["--delete", path], PROGRAM_LIMIT)?;
            }
            return Ok(());
        }
        if Instant::now() > end {
            bail!("the kernel does not read the partition table again: {}", said.trim());
        }
        std::thread::sleep(POLL);
    }
}

fn wait_for_nodes(target: &Target) -> anyhow::Result<()> {
    let end = Instant::now() + NODES_LIMIT;
    for number in PARTITIONS {
        let node = target.partition_node(number);
        while !node.exists() {
            if Instant::now() > end {
                bail!("the kernel does not show the new partition {}", node.display());
            }
            std::thread::sleep(POLL);
        }
    }
    Ok(())
}

/// Makes the FAT32 of the ESP and the ext4 of the root, after clearing what an old system may have left at the very
/// places where the new partitions begin and end. Blocks.
///
/// # Errors
/// When a partition cannot be cleared or a filesystem cannot be made.
pub fn make_filesystems(target: &Target, plan: &DiskPlan, layout: &Layout) -> anyhow::Result<()> {
    for number in PARTITIONS {
        super::wipe::clear(&target.partition_node(number)).with_context(|| format!("new partition {number}"))?;
    }
    make_esp(&target.partition_node(1), plan, layout)?;
    make_root(&target.partition_node(2), layout)
}

/// Makes the ESP alone, empty, in place of the one that is there. Blocks.
///
/// # Errors
/// When the partition is in use or the filesystem cannot be made.
pub(super) fn make_esp_again(target: &Target, plan: &DiskPlan, layout: &Layout) -> anyhow::Result<()> {
    let node = target.partition_node(1);
    super::wipe::clear(&node).context("EFI system partition")?;
    make_esp(&node, plan, layout)
}

fn make_esp(node: &Path, plan: &DiskPlan, layout: &Layout) -> anyhow::Result<()> {
    let (path, cluster) = (
        node.to_str().context("device name")?,
        plan.sectors_per_cluster.to_string(),
    );
    let sector = plan.sector_bytes.to_string();
    let arguments = [
        "-F",
        "32",
        "-n",
        &layout.esp_label,
        "-i",
        &layout.esp_volume_id,
        "-S",
        &sector,
        "-s",
        &cluster,
        path,
    ];
    run_ok("mkfs.vfat", &arguments, MKFS_LIMIT)?;
    Ok(())
}

/// Everything that could differ between two runs is given. The inode tables are zeroed by the kernel after the first
/// mount (lazy_itable_init, the default): on a disk of many TB that saves minutes here.
fn make_root(node: &Path, layout: &Layout) -> anyhow::Result<()> {
    let path = node.to_str().context("device name")?;
    let uuid = layout.root_uuid.to_string();
    let seed = format!("hash_seed={uuid}");
    let arguments = [
        "-q",
        "-F",
        "-t",
        "ext4",
        "-b",
        "4096",
        "-I",
        "256",
        "-m",
        "1",
        "-L",
        "root",
        "-U",
        &uuid,
        "-E",
        &seed,
        // GRUB 2.06 reads neither.
        "-O",
        "^metadata_csum_seed,^orphan_file",
        path,
    ];
    run_ok("mke2fs", &arguments, MKFS_LIMIT)?;
    Ok(())
}
