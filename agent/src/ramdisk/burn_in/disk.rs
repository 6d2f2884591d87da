//! Disks: a region that nothing uses is written and read, then the disk is read in places all over it.
//!
//! All disks at once, past the page cache. One without such a region (`scratch`) is only read, which the result says.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use protocol::latest::{Disk, Figure};

use super::counters::{Counters, number};
use super::scratch::{ALIGN, regions};
use super::watch::Watch;
use super::{Found, figure};
use crate::deploy::holders::holders;
use crate::ramdisk::inventory;

/// Bytes of one request to the disk.
const BLOCK: usize = 1 << 20;
/// Memory, offsets and lengths fit every disk's sectors.
const DIRECT_ALIGN: usize = 4_096;
/// Times that a region is written and read: a test is no wear.
const PASSES_MAX: u32 = 4;
/// Places that are read all over the disk.
const PLACES: u64 = 512;
/// Errors that are described, a disk.
const DESCRIBED_MAX: usize = 3;
/// `size` and `start` in /sys count in these.
const SECTOR_BYTES: u64 = 512;

/// What a disk showed.
#[derive(Debug, Default)]
struct Shown {
    problems: Vec<String>,
    detail: String,
    figures: Vec<Figure>,
    /// Why it was not looked at.
    not_run: Option<String>,
}

/// Blocks.
pub fn run(root: &Path, watch: &Watch) -> Found {
    let disks = inventory::disks(root, &mut Vec::new());
    if disks.is_empty() {
        return Found::not_run("there is no disk");
    }
    let shown: Vec<(&Disk, Shown)> = std::thread::scope(|scope| {
        let handles: Vec<_> = disks
            .iter()
            .map(|disk| (disk, scope.spawn(move || one(root, disk, watch))))
            .collect();
        handles
            .into_iter()
            .map(|(disk, handle)| (disk, handle.join().unwrap_or_else(|_| broken())))
            .collect()
    });
    judged(shown)
}

fn broken() -> Shown {
    Shown {
        not_run: Some("the test is broken".to_owned()),
        ..Shown::default()
    }
}

fn judged(shown: Vec<(&Disk, Shown)>) -> Found {
    let (mut problems, mut details, mut figures, mut not_run) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (disk, shown) in shown {
        let name = &disk.name;
        problems.extend(shown.problems.iter().map(|problem| format!("{name}: {problem}")));
        not_run.extend(shown.not_run.map(|reason| format!("{name}: {reason}")));
        if !shown.detail.is_empty() {
            details.push(format!("{name}: {}", shown.detail));
        }
        figures.extend(shown.figures);
    }
    if problems.is_empty() && !not_run.is_empty() {
        not_run.extend(details);
        return Found {
            figures,
            ..Found::not_run(not_run.join("; "))
        };
    }
    problems.extend(not_run);
    Found::of(&problems, details.join("; "), figures)
}

fn one(root: &Path, disk: &Disk, watch: &Watch) -> Shown {
    let path = root.join("dev").join(&disk.name);
    // A disk that something stands on cannot be had for writing alone, and is only read.
    let opened = open(&path, true).map(|device| (device, true));
    let (device, is_writable) = match opened.or_else(|_| Ok((open(&path, false)?, false))) {
        Ok(opened) => opened,
        Err::<_, std::io::Error>(error) => {
            return Shown {
                not_run: Some(format!("{}: {error}", path.display())),
                ..Shown::default()
            };
        }
    };
    let partitions = partitions(&root.join("sys/block").join(&disk.name));
    let is_used = !is_writable || !holders(root, &disk.name).is_empty();
    let before = Counters::disk(root, &disk.name);
    let mut shown = tested(&device, disk.size_bytes, &partitions, is_used, &disk.name, watch);
    for (name, by) in Counters::disk(root, &disk.name).grown(&before) {
        shown.problems.push(format!("its driver counted {by} {name}"));
    }
    shown
}

fn open(path: &Path, write: bool) -> std::io::Result<File> {
    let mut flags = rustix::fs::OFlags::DIRECT;
    // For a block device: nobody else may have it, the kernel's own filesystems and arrays among them.
    flags.set(rustix::fs::OFlags::EXCL, write);
    OpenOptions::new()
        .read(true)
        .write(write)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

/// Partitions that the kernel knows, in bytes.
fn partitions(folder: &Path) -> Vec<Range<u64>> {
    let listed = std::fs::read_dir(folder).into_iter().flatten();
    let partition = |path: &Path| {
        number(&path.join("partition"))?;
        let (start, length) = (number(&path.join("start"))?, number(&path.join("size"))?);
        let start = start.saturating_mul(SECTOR_BYTES);
        Some(start..start.saturating_add(length.saturating_mul(SECTOR_BYTES)))
    };
    listed.filter_map(|entry| partition(&entry.ok()?.path())).collect()
}

/// A piece of memory that a disk can be asked to fill without the kernel's copy.
struct Buffer {
    bytes: Vec<u8>,
    from: usize,
}

impl Buffer {
    fn new() -> Self {
        let bytes = vec![0; BLOCK + DIRECT_ALIGN];
        let from = bytes.as_ptr().align_offset(DIRECT_ALIGN).min(DIRECT_ALIGN);
        Self { bytes, from }
    }

    fn block(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + BLOCK]
    }
}

/// Noise that a block of a pass is filled with; another one for each.
fn noise(block: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for word in block.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
}

fn is_zero(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte == 0)
}

fn blocks(region: &Range<u64>) -> impl Iterator<Item = u64> {
    (region.start..region.end).step_by(BLOCK)
}

fn tested(device: &File, size: u64, partitions: &[Range<u64>], is_used: bool, name: &str, watch: &Watch) -> Shown {
    let mut shown = Shown::default();
    let mut buffer = Buffer::new();
    let region = match is_used {
        true => None,
        false => region(device, size, partitions, &mut buffer),
    };
    let mut words = Vec::new();
    match &region {
        Some(region) => {
            let written = write_and_read(device, region, name, watch, &mut buffer, &mut shown);
            if let Err(problem) = zeros(device, region, &mut buffer) {
                shown
                    .problems
                    .push(format!("making zeros of what was written: {problem}"));
            }
            words.extend(written);
        }
        None => words.push("only read: no region of zeros lies outside partitions".to_owned()),
    }
    words.push(all_over(device, size, name, watch, &mut buffer, &mut shown));
    if region.is_none() && watch.is_over() && shown.figures.is_empty() {
        shown.not_run = Some("the limit is too short".to_owned());
    }
    shown.detail = words.join(", ");
    shown
}

/// A region that may be written, and was read to hold nothing but zeros.
fn region(device: &File, size: u64, partitions: &[Range<u64>], buffer: &mut Buffer) -> Option<Range<u64>> {
    let mut is_blank_at = |at: u64| device.read_exact_at(buffer.block(), at).is_ok() && is_zero(buffer.block());
    let last = size.saturating_sub(BLOCK as u64) / DIRECT_ALIGN as u64 * DIRECT_ALIGN as u64;
    let is_blank = partitions.is_empty() && size >= 2 * ALIGN && is_blank_at(0) && is_blank_at(last);
    regions(size, partitions, is_blank)
        .into_iter()
        .find(|region| blocks(region).all(&mut is_blank_at))
}

/// What was done, if anything.
fn write_and_read(
    device: &File,
    region: &Range<u64>,
    name: &str,
    watch: &Watch,
    buffer: &mut Buffer,
    shown: &mut Shown,
) -> Option<String> {
    let mut expected = vec![0; BLOCK];
    let (mut writing, mut reading, mut bytes, mut passes) = (Duration::ZERO, Duration::ZERO, 0_u64, 0);
    let length = region.end - region.start;
    while passes < PASSES_MAX && !watch.is_over() && shown.problems.is_empty() {
        let start = Instant::now();
        for at in blocks(region) {
            noise(buffer.block(), at ^ u64::from(passes));
            if let Err(error) = device.write_all_at(buffer.block(), at) {
                shown.problems.push(format!("writing at byte {at}: {error}"));
                return None;
            }
        }
        if let Err(error) = device.sync_data() {
            shown.problems.push(format!("writing its cache to the disk: {error}"));
            return None;
        }
        writing += start.elapsed();
        let start = Instant::now();
        for at in blocks(region) {
            if let Err(error) = device.read_exact_at(buffer.block(), at) {
                describe(shown, format!("reading at byte {at}: {error}"));
                continue;
            }
            noise(&mut expected, at ^ u64::from(passes));
            if *buffer.block() != *expected {
                describe(shown, format!("another content than written at byte {at}"));
            }
        }
        reading += start.elapsed();
        bytes += length;
        passes += 1;
        watch.say(format!("{name}: {} MB written and read", bytes / 1_000_000));
    }
    if passes == 0 {
        return None;
    }
    let rate = |time: Duration| bytes as f64 / 1e6 / time.as_secs_f64().max(0.001);
    shown
        .figures
        .push(figure(format!("{name} write"), rate(writing), "MB/s"));
    shown
        .figures
        .push(figure(format!("{name} read"), rate(reading), "MB/s"));
    Some(format!(
        "{} MB written at {:.0} and read at {:.0} MB/s",
        bytes / 1_000_000,
        rate(writing),
        rate(reading)
    ))
}

/// A disk that is worn out has very many errors.
fn describe(shown: &mut Shown, problem: String) {
    if shown.problems.len() < DESCRIBED_MAX {
        shown.problems.push(problem);
    }
}

fn zeros(device: &File, region: &Range<u64>, buffer: &mut Buffer) -> std::io::Result<()> {
    buffer.block().fill(0);
    for at in blocks(region) {
        device.write_all_at(buffer.block(), at)?;
    }
    device.sync_data()
}

/// Reads in places all over the disk, each another one's neighbour later: the first ones span it already.
fn all_over(device: &File, size: u64, name: &str, watch: &Watch, buffer: &mut Buffer, shown: &mut Shown) -> String {
    let span = size.saturating_sub(BLOCK as u64);
    let mut read = 0;
    for place in 0..PLACES {
        if watch.is_over() {
            break;
        }
        // Bits of the number in reverse: halves, quarters, eighths …
        let part = (place as u32).reverse_bits() >> (32 - PLACES.ilog2());
        let at = (u128::from(span) * u128::from(part) / u128::from(PLACES)) as u64 / DIRECT_ALIGN as u64
            * DIRECT_ALIGN as u64;
        let length = (size - at).min(BLOCK as u64) as usize / DIRECT_ALIGN * DIRECT_ALIGN;
        if let Err(error) = device.read_exact_at(&mut buffer.block()[..length], at) {
            describe(shown, format!("reading at byte {at}: {error}"));
        }
        read += 1;
        if place % 64 == 63 {
            watch.say(format!("{name}: read in {read} places"));
        }
    }
    if read > 0 {
        shown
            .figures
            .push(figure(format!("{name} places read"), f64::from(read), "places"));
    }
    format!("read in {read} places")
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::latest::TestOutcome;

    const SIZE: u64 = 40 << 20;

    fn image(content: &[(u64, &[u8])]) -> (tempfile::TempDir, File) {
        let folder = tempfile::tempdir().unwrap();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(folder.path().join("disk"))
            .unwrap();
        file.set_len(SIZE).unwrap();
        for (at, bytes) in content {
            file.write_all_at(bytes, *at).unwrap();
        }
        (folder, file)
    }

    fn digest(file: &File) -> manifest::Digest {
        let mut bytes = vec![0; SIZE as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        manifest::Digest::of(&bytes)
    }

    fn long() -> Watch {
        Watch::new(Instant::now() + Duration::from_secs(120))
    }

    #[test]
    fn a_blank_disk_is_written_and_is_blank_afterwards() {
        let (_folder, file) = image(&[]);
        let before = digest(&file);
        let shown = tested(&file, SIZE, &[], false, "vda", &long());
        assert!(shown.problems.is_empty() && shown.not_run.is_none(), "{shown:?}");
        assert!(
            shown.detail.contains("MB written at") && shown.detail.contains("read in 512 places"),
            "{shown:?}"
        );
        assert_eq!(digest(&file), before);
    }

    #[test]
    fn a_disk_that_holds_something_keeps_it() {
        // A filesystem on the whole disk: nothing of it at the ends but its first block.
        let (_folder, file) = image(&[(1_024, b"superblock"), (20 << 20, b"data")]);
        let before = digest(&file);
        let shown = tested(&file, SIZE, &[], false, "vda", &long());
        assert!(shown.detail.starts_with("only read"), "{shown:?}");
        assert_eq!(digest(&file), before);
        // A free part of a partitioned disk in which somebody left something.
        let (_folder, file) = image(&[(15 << 20, b"left over"), (26 << 20, b"left over")]);
        let before = digest(&file);
        let shown = tested(
            &file,
            SIZE,
            std::slice::from_ref(&(1 << 20..10 << 20)),
            false,
            "vda",
            &long(),
        );
        assert!(shown.detail.starts_with("only read"), "{shown:?}");
        assert_eq!(digest(&file), before);
    }

    #[test]
    fn what_is_broken_off_leaves_zeros_too() {
        let (_folder, file) = image(&[]);
        let before = digest(&file);
        let watch = long();
        let shown = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !watch.said().contains("MB written") && !watch.is_over() {
                    std::thread::yield_now();
                }
                watch.cancel();
            });
            tested(&file, SIZE, &[], false, "vda", &watch)
        });
        assert!(shown.detail.contains("MB written at"), "{shown:?}");
        assert!(!shown.detail.contains("512 places"), "it went on: {shown:?}");
        assert_eq!(digest(&file), before);
    }

    #[test]
    fn a_disk_that_does_not_take_what_is_written_fails() {
        let (folder, _) = image(&[]);
        let read_only = File::open(folder.path().join("disk")).unwrap();
        let shown = tested(&read_only, SIZE, &[], false, "vda", &long());
        assert!(shown.problems[0].starts_with("writing at byte"), "{shown:?}");
        let disk = Disk {
            name: "vda".to_owned(),
            ..Disk::default()
        };
        let found = judged(vec![(&disk, shown)]);
        assert_eq!(found.outcome, TestOutcome::Failed);
        assert!(found.detail.starts_with("vda: writing at byte"), "{found:?}");
    }

    #[test]
    fn a_disk_that_cannot_be_opened_is_no_pass() {
        let root = tempfile::tempdir().unwrap();
        let disk = Disk {
            name: "sdz".to_owned(),
            ..Disk::default()
        };
        let found = judged(vec![(&disk, one(root.path(), &disk, &long()))]);
        assert_eq!(found.outcome, TestOutcome::NotRun, "{found:?}");
    }
}
