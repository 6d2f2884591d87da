//! Which parts of packs to fetch for the blobs that are missing.
//!
//! A part is a run of frames that are fetched by one request. Frames that nobody needs are fetched all the same where
//! that costs less than another request; what is left over is bounded by a number of requests.

use std::borrow::Cow;
use std::ops::Range;

use super::{Extent, PackIndex, PackInfo};
use crate::Digest;

/// Bytes that nobody needs and that cost less than another request.
const GAP_BYTES_MAX: u64 = 64 << 10;

/// A run of frames of one pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// The run as if it were a pack: its frames, and the pieces of blobs in them. The digest is the whole pack's.
    pub info: Cow<'a, PackInfo>,
    /// Where it begins in the pack, in compressed bytes.
    pub offset: u64,
    /// Whether it is all of the pack.
    pub is_whole: bool,
}

/// Numbers of the first frame and of the one after the last.
struct Run {
    pack: usize,
    frames: Range<usize>,
}

impl PackIndex {
    /// All packs, whole.
    #[must_use]
    pub fn whole_parts(&self) -> Vec<Part<'_>> {
        let whole = |pack| Part {
            info: Cow::Borrowed(pack),
            offset: 0,
            is_whole: true,
        };
        self.packs.iter().map(whole).collect()
    }

    /// The parts that hold all needed blobs, in stream order; at most `parts_max`, or one a pack where there are more
    /// packs than that.
    #[must_use]
    pub fn parts(&self, is_needed: impl Fn(&Digest) -> bool, parts_max: usize) -> Vec<Part<'_>> {
        let mut runs: Vec<Run> = Vec::new();
        for (number, pack) in self.packs.iter().enumerate() {
            runs.extend(needed_runs(number, pack, &is_needed));
        }
        let mut gaps: Vec<u64> = runs
            .windows(2)
            .filter_map(|pair| self.gap(&pair[0], &pair[1]))
            .collect();
        // Joining all gaps up to this one leaves few enough parts.
        let excess = runs.len().saturating_sub(parts_max);
        let mut limit = GAP_BYTES_MAX;
        if excess > 0 && !gaps.is_empty() {
            gaps.sort_unstable();
            limit = limit.max(gaps[excess.min(gaps.len()) - 1]);
        }
        let mut joined: Vec<Run> = Vec::new();
        for run in runs {
            match joined.last_mut() {
                Some(last) if self.gap(last, &run).is_some_and(|gap| gap <= limit) => last.frames.end = run.frames.end,
                _ => joined.push(run),
            }
        }
        joined.into_iter().map(|run| self.part(&run)).collect()
    }

    /// Compressed bytes between two runs of the same pack.
    fn gap(&self, before: &Run, after: &Run) -> Option<u64> {
        let between = (before.pack == after.pack).then_some(before.frames.end..after.frames.start)?;
        let frames = self.packs[before.pack].frames.get(between)?;
        Some(frames.iter().map(|frame| frame.size).sum())
    }

    fn part(&self, run: &Run) -> Part<'_> {
        let pack = &self.packs[run.pack];
        if run.frames == (0..pack.frames.len()) {
            return Part {
                info: Cow::Borrowed(pack),
                offset: 0,
                is_whole: true,
            };
        }
        let content = |frames: &[super::Frame]| frames.iter().map(|frame| frame.content_size).sum::<u64>();
        let frames = &pack.frames[run.frames.clone()];
        let begin = content(&pack.frames[..run.frames.start]);
        Part {
            offset: pack.frames[..run.frames.start].iter().map(|frame| frame.size).sum(),
            is_whole: false,
            info: Cow::Owned(PackInfo {
                digest: pack.digest,
                size: frames.iter().map(|frame| frame.size).sum(),
                frames: frames.to_vec(),
                extents: cut(&pack.extents, begin, begin.saturating_add(content(frames))),
            }),
        }
    }
}

/// Runs of frames that hold something needed.
fn needed_runs(number: usize, pack: &PackInfo, is_needed: impl Fn(&Digest) -> bool) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let (mut frame, mut frame_end) = (0, pack.frames.first().map_or(0, |frame| frame.content_size));
    let mut begin = 0_u64;
    for extent in &pack.extents {
        let end = begin.saturating_add(extent.size);
        // The frame in which this extent begins.
        while frame_end <= begin && frame + 1 < pack.frames.len() {
            frame += 1;
            frame_end = frame_end.saturating_add(pack.frames[frame].content_size);
        }
        if extent.size > 0 && is_needed(&extent.blob) {
            let (mut last, mut last_end) = (frame, frame_end);
            while last_end < end && last + 1 < pack.frames.len() {
                last += 1;
                last_end = last_end.saturating_add(pack.frames[last].content_size);
            }
            match runs.last_mut() {
                Some(run) if run.frames.end >= frame => run.frames.end = run.frames.end.max(last + 1),
                _ => runs.push(Run {
                    pack: number,
                    frames: frame..last + 1,
                }),
            }
        }
        begin = end;
    }
    runs
}

/// The pieces that lie within these bytes of content.
fn cut(extents: &[Extent], from: u64, to: u64) -> Vec<Extent> {
    let (mut pieces, mut begin) = (Vec::new(), 0_u64);
    for extent in extents {
        let end = begin.saturating_add(extent.size);
        let (first, last) = (begin.max(from), end.min(to));
        if first < last {
            pieces.push(Extent {
                blob: extent.blob,
                blob_offset: extent.blob_offset + (first - begin),
                size: last - first,
            });
        }
        begin = end;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::ManifestError;
    use crate::packs::{FRAME_BYTES, PackWriter, StoredPack, unpack};

    fn noise(size: usize, mut seed: u64) -> Vec<u8> {
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed.to_le_bytes()[0]
        };
        (0..size).map(|_| next()).collect()
    }

    fn packed(blobs: &[Vec<u8>]) -> (PackIndex, HashMap<Digest, Vec<u8>>) {
        let mut stored = HashMap::new();
        let mut writer = PackWriter::new(|pack: StoredPack<'_>| {
            stored.insert(pack.digest, pack.bytes.to_vec());
            Ok(())
        });
        for blob in blobs {
            writer
                .add(Digest::of(blob), blob.len() as u64, blob.as_slice())
                .unwrap();
        }
        (writer.finish().unwrap(), stored)
    }

    /// What comes out of the parts, by blob, without what came in beside it.
    fn read(parts: &[Part<'_>], stored: &HashMap<Digest, Vec<u8>>) -> HashMap<Digest, Vec<u8>> {
        let mut blobs: HashMap<Digest, Vec<u8>> = HashMap::new();
        for part in parts {
            let from = usize::try_from(part.offset).unwrap();
            let bytes = &stored[&part.info.digest][from..from + usize::try_from(part.info.size).unwrap()];
            unpack(&part.info, bytes, |piece| {
                let blob = blobs.entry(piece.blob).or_default();
                if blob.len() as u64 == piece.blob_offset {
                    blob.extend_from_slice(piece.bytes);
                }
                Ok::<(), ManifestError>(())
            })
            .unwrap();
        }
        blobs
    }

    /// Blobs of three quarters of a frame: most lie in two.
    fn sample() -> Vec<Vec<u8>> {
        (1..=96).map(|seed| noise(FRAME_BYTES * 3 / 4, seed)).collect()
    }

    #[test]
    fn parts_hold_what_is_needed_and_little_else() {
        let blobs = sample();
        let (index, stored) = packed(&blobs);
        assert_eq!(index.packs.len(), 2, "the test needs a blob in two packs");
        let across = index.packs[1].extents[0];
        assert!(across.blob_offset > 0);
        let wanted: Vec<Digest> = [0, 1, 40, 95].iter().map(|at| Digest::of(&blobs[*at])).collect();
        let needed: Vec<Digest> = wanted.iter().copied().chain([across.blob]).collect();
        let parts = index.parts(|blob| needed.contains(blob), 1000);
        let found = read(&parts, &stored);
        for blob in &needed {
            assert!(Digest::of(&found[blob]) == *blob, "{blob}");
        }
        let bytes: u64 = parts.iter().map(|part| part.info.size).sum();
        // Two frames for each of five blobs, and a few where one ends in another frame.
        assert!(bytes < 13 * FRAME_BYTES as u64, "{bytes}");
        assert!(parts.iter().all(|part| !part.is_whole));
    }

    #[test]
    fn what_is_all_needed_is_fetched_as_whole_packs() {
        let blobs = sample();
        let (index, _) = packed(&blobs);
        assert_eq!(index.parts(|_| true, 1000), index.whole_parts());
        assert_eq!(index.parts(|_| false, 1000), []);
        assert_eq!(PackIndex::default().parts(|_| true, 1000), []);
    }

    #[test]
    fn requests_are_bounded_and_the_smallest_gaps_are_filled() {
        let blobs = sample();
        let (index, stored) = packed(&blobs);
        // Every tenth blob: as many parts, with gaps of some frames.
        let needed: Vec<Digest> = blobs.iter().step_by(10).map(|blob| Digest::of(blob)).collect();
        let many = index.parts(|blob| needed.contains(blob), 1000);
        assert_eq!(many.len(), 10);
        let few = index.parts(|blob| needed.contains(blob), 4);
        assert!((2..=4).contains(&few.len()), "{}", few.len());
        let found = read(&few, &stored);
        assert!(needed.iter().all(|blob| Digest::of(&found[blob]) == *blob));
        assert_eq!(index.parts(|blob| needed.contains(blob), 0).len(), 2, "one a pack");
    }

    #[test]
    fn a_small_gap_costs_less_than_a_request() {
        // Frames of zeros are a few bytes.
        let zeros = vec![0_u8; 4 * FRAME_BYTES];
        let blobs = [
            noise(FRAME_BYTES, 1),
            zeros,
            noise(FRAME_BYTES, 2),
            noise(FRAME_BYTES, 3),
        ];
        let (index, _) = packed(&blobs);
        let needed = [Digest::of(&blobs[0]), Digest::of(&blobs[2])];
        let parts = index.parts(|blob| needed.contains(blob), 1000);
        assert_eq!(parts.len(), 1);
        assert!(!parts[0].is_whole);
    }
}
