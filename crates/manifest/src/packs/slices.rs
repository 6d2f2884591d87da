//! One blob out of its packs, without reading the rest.

use super::PackIndex;
use crate::{Digest, ManifestError};

/// A part of one frame that belongs to a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The pack.
    pub pack: Digest,
    /// Where the frame begins in the pack, in compressed bytes.
    pub offset: u64,
    /// Compressed bytes of the frame.
    pub size: u64,
    /// Uncompressed bytes of the frame; at most [`super::FRAME_BYTES`].
    pub content_size: u64,
    /// Where in the uncompressed frame the part begins.
    pub skip: u64,
    /// Bytes of the part.
    pub take: u64,
}

impl PackIndex {
    /// The frames that hold a blob, in the order of its bytes; empty when no pack holds it.
    #[must_use]
    pub fn slices(&self, blob: Digest) -> Vec<Slice> {
        let mut slices = Vec::new();
        for pack in &self.packs {
            let mut begin = 0_u64;
            for extent in &pack.extents {
                let end = begin.saturating_add(extent.size);
                if extent.blob == blob {
                    let (mut offset, mut content) = (0_u64, 0_u64);
                    for frame in &pack.frames {
                        let frame_end = content.saturating_add(frame.content_size);
                        let (from, to) = (begin.max(content), end.min(frame_end));
                        if from < to {
                            slices.push(Slice {
                                pack: pack.digest,
                                offset,
                                size: frame.size,
                                content_size: frame.content_size,
                                skip: from - content,
                                take: to - from,
                            });
                        }
                        offset = offset.saturating_add(frame.size);
                        content = frame_end;
                    }
                }
                begin = end;
            }
        }
        slices
    }
}

impl Slice {
    /// The blob's part out of the compressed frame.
    ///
    /// # Errors
    /// [`ManifestError::Pack`] when the frame is damaged or does not fit the index.
    pub fn cut(&self, frame: &[u8]) -> Result<Vec<u8>, ManifestError> {
        let wrong = |problem: String| ManifestError::Pack {
            pack: self.pack,
            problem,
        };
        let capacity = usize::try_from(self.content_size)
            .unwrap_or(super::FRAME_BYTES)
            .min(super::FRAME_BYTES);
        let mut content = zstd::bulk::decompress(frame, capacity)
            .map_err(|e| wrong(format!("the frame at {} is damaged: {e}", self.offset)))?;
        let range = usize::try_from(self.skip)
            .ok()
            .zip(usize::try_from(self.skip + self.take).ok());
        let Some((from, to)) = range.filter(|(from, to)| from <= to && *to <= content.len()) else {
            return Err(wrong(format!(
                "the frame at {} is shorter than the index says",
                self.offset
            )));
        };
        content.truncate(to);
        content.drain(..from);
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::packs::{FRAME_BYTES, PackWriter, StoredPack};

    #[test]
    fn every_blob_comes_out_of_its_frames_whole() {
        let blobs: Vec<Vec<u8>> = [3, FRAME_BYTES - 1, 2 * FRAME_BYTES + 17, 5]
            .iter()
            .enumerate()
            .map(|(number, size)| (0..*size).map(|at| (at % 251) as u8 ^ number as u8).collect())
            .collect();
        let mut stored = HashMap::new();
        let mut writer = PackWriter::new(|pack: StoredPack<'_>| {
            stored.insert(pack.digest, pack.bytes.to_vec());
            Ok(())
        });
        for blob in &blobs {
            writer
                .add(Digest::of(blob), blob.len() as u64, blob.as_slice())
                .unwrap();
        }
        let index = writer.finish().unwrap();
        for blob in &blobs {
            let mut content = Vec::new();
            for slice in index.slices(Digest::of(blob)) {
                let (from, to) = (slice.offset as usize, (slice.offset + slice.size) as usize);
                content.extend(slice.cut(&stored[&slice.pack][from..to]).unwrap());
            }
            assert!(content == *blob, "{} bytes of {}", content.len(), blob.len());
        }
        assert_eq!(index.slices(Digest::of(b"another")), []);
        let slice = index.slices(Digest::of(&blobs[0]))[0];
        assert!(slice.cut(b"not a frame").is_err());
    }
}
