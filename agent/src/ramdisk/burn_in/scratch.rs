//! Where on a disk a test may write: nowhere that anybody could miss it.
//!
//! A region qualifies when no partition has it, when it holds nothing but zeros, and, on a disk without partitions, when
//! both ends of the disk are zeros too: what lies on a whole disk (a filesystem, LVM, a database) begins or ends there.
//! It is written, read, and made zeros again, so that the disk holds afterwards what it held before; a machine that loses
//! its power meanwhile keeps noise where nothing was.

use std::ops::Range;

/// Largest and smallest region.
pub const REGION_BYTES_MAX: u64 = 256 << 20;
const REGION_BYTES_MIN: u64 = 16 << 20;
/// Boundaries of regions; both ends of a disk are left alone for as much.
pub const ALIGN: u64 = 1 << 20;

/// Regions to try, best first. `partitions` are in bytes; `is_blank`: both ends of the disk hold nothing but zeros.
pub fn regions(size: u64, partitions: &[Range<u64>], is_blank: bool) -> Vec<Range<u64>> {
    if partitions.is_empty() && !is_blank {
        return Vec::new();
    }
    let mut gaps = gaps(size, partitions);
    gaps.sort_by_key(|gap| std::cmp::Reverse(gap.end - gap.start));
    let mut regions: Vec<Range<u64>> = Vec::new();
    for gap in gaps.into_iter().take(4) {
        let length = (gap.end - gap.start).min(REGION_BYTES_MAX);
        let middle = down(gap.start + (gap.end - gap.start - length) / 2);
        for start in [middle, gap.start, gap.end - length] {
            let region = start..start + length;
            if !regions.contains(&region) {
                regions.push(region);
            }
        }
    }
    regions
}

fn gaps(size: u64, partitions: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<&Range<u64>> = partitions.iter().collect();
    sorted.sort_by_key(|partition| partition.start);
    let end = down(size.saturating_sub(ALIGN));
    let (mut gaps, mut at) = (Vec::new(), ALIGN);
    for partition in sorted {
        gaps.push(at..down(partition.start).min(end));
        at = at.max(up(partition.end));
    }
    gaps.push(at..end);
    gaps.retain(|gap| gap.end >= gap.start + REGION_BYTES_MIN);
    gaps
}

const fn down(at: u64) -> u64 {
    at / ALIGN * ALIGN
}

const fn up(at: u64) -> u64 {
    at.div_ceil(ALIGN) * ALIGN
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_disk_that_may_hold_something_without_partitions_has_no_region() {
        assert!(regions(1 << 40, &[], false).is_empty());
        let blank = regions(1 << 40, &[], true);
        assert_eq!(blank.len(), 3);
        assert!(blank.iter().all(|region| region.end - region.start == REGION_BYTES_MAX));
        assert!(
            blank
                .iter()
                .all(|region| region.start >= MIB && region.end <= (1 << 40) - MIB)
        );
    }

    #[test]
    fn no_region_touches_a_partition_or_an_end_of_the_disk() {
        // Odd borders, a nested (logical) partition, and one that the kernel lists first.
        let partitions = [
            900 * MIB + 512..1_000 * MIB,
            MIB + 3_584..300 * MIB + 1,
            310 * MIB..500 * MIB,
            320 * MIB..330 * MIB,
        ];
        let size = 1_100 * MIB + 777;
        let found = regions(size, &partitions, false);
        assert!(!found.is_empty());
        for region in &found {
            assert!(region.start >= MIB && region.end <= size - MIB, "{region:?}");
            assert_eq!((region.start % MIB, region.end % MIB), (0, 0));
            for partition in &partitions {
                assert!(
                    region.end <= partition.start || region.start >= partition.end,
                    "{region:?} {partition:?}"
                );
            }
        }
        assert_eq!(
            found[0].end - found[0].start,
            REGION_BYTES_MAX,
            "the largest gap is 400 MiB: {found:?}"
        );
    }

    #[test]
    fn a_full_disk_has_no_region() {
        assert!(regions(1 << 30, std::slice::from_ref(&(MIB..(1 << 30) - MIB)), true).is_empty());
        assert!(regions(0, &[], true).is_empty());
        assert!(regions(17 * MIB, &[], true).is_empty());
        // A table that speaks of more than there is.
        assert!(regions(100 * MIB, std::slice::from_ref(&(MIB..u64::MAX / 2)), true).is_empty());
    }
}
