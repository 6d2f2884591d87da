//! Taking packs apart again, as they arrive.

use std::io::Read;

use super::PackInfo;
use crate::{Digest, ManifestError};

/// A piece of a blob, in stream order.
#[derive(Debug)]
pub struct Piece<'a> {
    /// Digest of the whole blob.
    pub blob: Digest,
    /// Where in the blob this piece starts.
    pub blob_offset: u64,
    /// The bytes; at most a frame of them.
    pub bytes: &'a [u8],
}

/// Reads a pack from its first byte, and gives each piece of each blob to `sink` in order.
///
/// Memory is bounded by one frame, whatever the pack claims. The caller checks blobs against their digests.
///
/// # Errors
/// [`ManifestError::Pack`] when the data are cut short, damaged (each frame carries a checksum) or do not fit the
/// index; `E` from `sink` otherwise.
pub fn unpack<E: From<ManifestError>>(
    pack: &PackInfo,
    mut input: impl Read,
    mut sink: impl FnMut(Piece<'_>) -> Result<(), E>,
) -> Result<(), E> {
    pack.check()?;
    let wrong = |problem: String| ManifestError::Pack {
        pack: pack.digest,
        problem,
    };
    let mut extents = pack.extents.iter().copied();
    let mut extent = extents.next();
    let mut decompressor =
        zstd::bulk::Decompressor::new().map_err(|e| wrong(format!("starting decompression: {e}")))?;
    let mut compressed = Vec::new();
    for (number, frame) in pack.frames.iter().enumerate() {
        compressed.clear();
        let read = input.by_ref().take(frame.size).read_to_end(&mut compressed);
        let read = read.map_err(|e| wrong(format!("reading frame {number}: {e}")))? as u64;
        if read != frame.size {
            return Err(wrong(format!("frame {number}: expected {} bytes, found {read}", frame.size)).into());
        }
        let capacity = usize::try_from(frame.content_size).unwrap_or(super::FRAME_BYTES);
        let content = decompressor
            .decompress(&compressed, capacity)
            .map_err(|e| wrong(format!("frame {number} is damaged: {e}")))?;
        if content.len() as u64 != frame.content_size {
            let problem = format!("frame {number}: expected {} bytes of content", frame.content_size);
            return Err(wrong(problem).into());
        }
        let mut rest = content.as_slice();
        while !rest.is_empty() {
            // check() has proved that extents and frames hold the same number of bytes.
            let Some(current) = extent.as_mut() else {
                return Err(wrong("more content than extents".to_owned()).into());
            };
            let take = usize::try_from(current.size).unwrap_or(usize::MAX).min(rest.len());
            let (bytes, after) = rest.split_at(take);
            sink(Piece {
                blob: current.blob,
                blob_offset: current.blob_offset,
                bytes,
            })?;
            rest = after;
            current.blob_offset += take as u64;
            current.size -= take as u64;
            if current.size == 0 {
                extent = extents.next();
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::packs::{FRAME_BYTES, PackIndex, PackWriter};

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
        let mut writer = PackWriter::new(|pack: crate::packs::StoredPack<'_>| {
            stored.insert(pack.digest, pack.bytes.to_vec());
            Ok(())
        });
        for blob in blobs {
            writer
                .add(Digest::of(blob), blob.len() as u64, blob.as_slice())
                .unwrap();
        }
        let index = writer.finish().unwrap();
        (index, stored)
    }

    fn unpacked(
        index: &PackIndex,
        stored: &HashMap<Digest, Vec<u8>>,
    ) -> Result<HashMap<Digest, Vec<u8>>, ManifestError> {
        let mut blobs: HashMap<Digest, Vec<u8>> = HashMap::new();
        for pack in &index.packs {
            unpack(pack, stored[&pack.digest].as_slice(), |piece| {
                let blob = blobs.entry(piece.blob).or_default();
                assert_eq!(blob.len() as u64, piece.blob_offset);
                blob.extend_from_slice(piece.bytes);
                Ok::<(), ManifestError>(())
            })?;
        }
        Ok(blobs)
    }

    #[test]
    fn blobs_come_out_as_they_went_in() {
        let blobs = [
            noise(10, 1),
            noise(FRAME_BYTES - 10, 2),
            noise(3 * FRAME_BYTES + 7, 3),
            noise(1, 4),
            vec![],
        ];
        let (index, stored) = packed(&blobs);
        let index = PackIndex::decode(&index.encode().unwrap()).unwrap();
        let out = unpacked(&index, &stored).unwrap();
        for blob in blobs.iter().filter(|blob| !blob.is_empty()) {
            assert_eq!(&out[&Digest::of(blob)], blob);
        }
        assert_eq!(out.len(), 4, "an empty file needs no blob");
    }

    #[test]
    fn a_blob_goes_on_in_the_next_pack() {
        // Noise does not compress: 70 MB need two packs.
        let blobs = [noise(70_000_000, 5)];
        let (index, stored) = packed(&blobs);
        assert_eq!(index.packs.len(), 2);
        assert!(index.packs.iter().all(|pack| pack.size <= super::super::PACK_BYTES_MAX));
        assert_eq!(unpacked(&index, &stored).unwrap()[&Digest::of(&blobs[0])], blobs[0]);
    }

    #[test]
    fn damage_and_truncation_are_errors() {
        let (index, mut stored) = packed(&[noise(FRAME_BYTES, 6)]);
        let pack = index.packs[0].digest;
        let good = stored[&pack].clone();
        stored.get_mut(&pack).unwrap()[5000] ^= 1;
        assert!(unpacked(&index, &stored).unwrap_err().to_string().contains("damaged"));
        stored.insert(pack, good[..good.len() - 1].to_vec());
        assert!(unpacked(&index, &stored).unwrap_err().to_string().contains("expected"));
    }

    #[test]
    fn an_index_that_contradicts_itself_is_refused() {
        let (index, _) = packed(&[noise(5000, 7)]);
        for change in [
            |i: &mut PackIndex| i.packs[0].size += 1,
            |i: &mut PackIndex| i.packs[0].extents[0].size = u64::MAX,
            |i: &mut PackIndex| i.packs[0].frames[0].content_size = 1 << 40,
            |i: &mut PackIndex| i.packs[0].extents.clear(),
        ] {
            let mut bad = index.clone();
            change(&mut bad);
            assert!(PackIndex::decode(&bad.encode().unwrap()).is_err());
        }
    }

    #[test]
    fn a_file_that_changes_while_packed_is_an_error() {
        let mut writer = PackWriter::new(|_| Ok(()));
        let error = writer.add(Digest::of(b"before"), 6, b"after!".as_slice()).unwrap_err();
        assert!(error.to_string().contains("blob"), "{error}");
    }
}
