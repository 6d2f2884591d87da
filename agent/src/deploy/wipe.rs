//! Making a disk forget what it was: partition tables at both ends, RAID, LVM and filesystem signatures.
//!
//! What is left behind comes back at the worst time: a backup GPT is restored by the next partition tool, an array is
//! assembled while its members are being overwritten. So holders are stopped first, partitions are cleared before the
//! whole disk, both ends are zeroed, and a probe must find nothing afterwards.

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use super::holders::{Holder, holders};
use super::program::{run, run_ok};
use super::target::Target;

/// Zeroed at each end: a GPT of 128 entries takes 17 KiB (512-byte sectors) to 24 KiB (4,096), md 0.90 and 1.0 keep
/// their superblocks in the last 128 KiB, DDF in the last 32 MiB (which `wipefs` knows).
const END_BYTES: u64 = 1 << 20;
const PROGRAM_LIMIT: Duration = Duration::from_secs(60);

/// Clears the disk and proves it. Blocks.
///
/// # Errors
/// What is in the way, or what a probe still finds.
pub fn wipe(target: &Target) -> anyhow::Result<()> {
    ensure_unused(target)?;
    stop_holders(target)?;
    for name in target.partitions() {
        clear(&Path::new("/dev").join(&name)).with_context(|| format!("partition {name}"))?;
    }
    clear(&target.node()).with_context(|| format!("disk {}", target.disk().name))?;
    super::partition::reread(target)?;
    prove_blank(target)
}

/// A mounted filesystem or active swap on the disk means that it is not the one meant.
pub(super) fn ensure_unused(target: &Target) -> anyhow::Result<()> {
    let partitions = target.partitions();
    let is_on_disk = |device: &str| {
        let name = device.strip_prefix("/dev/").unwrap_or(device);
        name == target.disk().name || partitions.iter().any(|partition| partition == name)
    };
    for (file, what) in [("/proc/mounts", "is mounted"), ("/proc/swaps", "is used as swap")] {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let used = text
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .find(|device| is_on_disk(device));
        if let Some(device) = used {
            bail!("{device} {what}");
        }
    }
    Ok(())
}

fn stop_holders(target: &Target) -> anyhow::Result<()> {
    for holder in holders(Path::new("/"), &target.disk().name) {
        match holder {
            Holder::Raid(name) => {
                run_ok("mdadm", &["--stop", &format!("/dev/{name}")], PROGRAM_LIMIT)?;
            }
            Holder::Mapped(name) => {
                run_ok("dmsetup", &["remove", "--retry", &name], PROGRAM_LIMIT)?;
            }
            Holder::Other(name) => bail!("the disk is held by {name}, which cannot be stopped"),
        }
    }
    let left = holders(Path::new("/"), &target.disk().name);
    ensure!(left.is_empty(), "the disk is still held by {left:?}");
    Ok(())
}

/// Clears signatures and zeroes both ends of a device.
pub(super) fn clear(node: &Path) -> anyhow::Result<()> {
    let path = node.to_str().context("device name")?;
    run_ok("wipefs", &["--all", "--force", "--quiet", path], PROGRAM_LIMIT)?;
    zero_ends(node)
}

fn zero_ends(node: &Path) -> anyhow::Result<()> {
    // O_EXCL on a block device fails while anything holds it.
    let exclusive = rustix::fs::OFlags::EXCL.bits().cast_signed();
    let opened = OpenOptions::new().write(true).custom_flags(exclusive).open(node);
    let mut device = opened.with_context(|| format!("{} is in use", node.display()))?;
    let size = device.seek(SeekFrom::End(0))?;
    let length = END_BYTES.min(size);
    let zeros = vec![0_u8; usize::try_from(length)?];
    for start in [0, size - length] {
        device.seek(SeekFrom::Start(start))?;
        device
            .write_all(&zeros)
            .with_context(|| format!("{}: zeroing at {start}", node.display()))?;
    }
    device
        .sync_all()
        .with_context(|| format!("{}: flushing", node.display()))
}

fn prove_blank(target: &Target) -> anyhow::Result<()> {
    let node = target.node();
    let path = node.to_str().context("device name")?;
    let left = target.partitions();
    ensure!(left.is_empty(), "the kernel still sees partitions: {}", left.join(", "));
    let found = run_ok("wipefs", &["--no-act", "--parsable", path], PROGRAM_LIMIT)?;
    let signatures: Vec<&str> = found.lines().filter(|line| !line.starts_with('#')).collect();
    ensure!(
        signatures.is_empty(),
        "signatures are still there: {}",
        signatures.join("; ")
    );
    // Exit code 2: nothing was found (blkid(8), "EXIT STATUS").
    let probe = run("blkid", &["--probe", path], PROGRAM_LIMIT)?;
    ensure!(
        probe.code == Some(2),
        "a probe still finds: {} {}",
        probe.output.trim(),
        probe.errors.trim()
    );
    Ok(())
}
