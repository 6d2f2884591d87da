//! A smaller pack in place of one of which most is needed no more.
//!
//! The new pack holds the pieces that are needed, in the order they had. It can therefore stand where the old one stood
//! in the index of every image that uses it, also where a blob goes on in the pack after it. Packs are not joined here:
//! two that stand side by side in one index need not do so in another.

use std::collections::HashSet;

use super::{PackInfo, PackWriter, StoredPack, unpack};
use crate::{Digest, ManifestError};

/// A pack that takes another's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repacked {
    /// What is in it.
    pub info: PackInfo,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl PackInfo {
    /// Uncompressed bytes of the pieces whose blob `is_needed`.
    pub fn content_bytes_of(&self, is_needed: impl Fn(&Digest) -> bool) -> u64 {
        let needed = self.extents.iter().filter(|extent| is_needed(&extent.blob));
        needed.map(|extent| extent.size).sum()
    }

    /// Uncompressed bytes.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes_of(|_| true)
    }
}

/// The pack with these blobs only; `None` when it holds none of them. The same input gives the same pack.
///
/// # Errors
/// [`ManifestError::Pack`] when the bytes are not those of the pack.
pub fn repack(pack: &PackInfo, bytes: &[u8], needed: &HashSet<Digest>) -> Result<Option<Repacked>, ManifestError> {
    let wrong = |problem: &str| ManifestError::Pack {
        pack: pack.digest,
        problem: problem.to_owned(),
    };
    // Afterwards nobody could tell any more that the pieces were damaged before.
    if Digest::of(bytes) != pack.digest {
        return Err(wrong("its bytes have another digest"));
    }
    let mut stored = Vec::new();
    let mut writer = PackWriter::new(|pack: StoredPack<'_>| {
        stored.push(pack.bytes.to_vec());
        Ok(())
    });
    unpack(pack, bytes, |piece| {
        if needed.contains(&piece.blob) {
            writer.add_piece(piece.blob, piece.blob_offset, piece.bytes)?;
        }
        Ok::<(), ManifestError>(())
    })?;
    let mut index = writer.finish()?;
    match (index.packs.pop(), stored.pop(), index.packs.is_empty()) {
        (None, None, true) => Ok(None),
        (Some(info), Some(bytes), true) => Ok(Some(Repacked { info, bytes })),
        _ => Err(wrong("the part that is needed does not fit into one pack")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packs::{FRAME_BYTES, PackIndex};

    /// Bytes that do not compress.
    fn noise(size: usize, mut seed: u64) -> Vec<u8> {
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed.to_le_bytes()[0]
        };
        (0..size).map(|_| next()).collect()
    }

    fn packed(blobs: &[Vec<u8>]) -> (PackIndex, Vec<Vec<u8>>) {
        let mut stored = Vec::new();
        let mut writer = PackWriter::new(|pack: StoredPack<'_>| {
            stored.push(pack.bytes.to_vec());
            Ok(())
        });
        for blob in blobs {
            writer
                .add(Digest::of(blob), blob.len() as u64, blob.as_slice())
                .unwrap();
        }
        (writer.finish().unwrap(), stored)
    }

    #[test]
    fn what_is_needed_stays_and_the_rest_goes() {
        let blobs = [
            noise(FRAME_BYTES, 1),
            noise(2_500_000, 2),
            noise(10, 3),
            noise(FRAME_BYTES, 4),
        ];
        let (index, stored) = packed(&blobs);
        let needed = HashSet::from([Digest::of(&blobs[1]), Digest::of(&blobs[2])]);
        assert_eq!(index.packs[0].content_bytes_of(|blob| needed.contains(blob)), 2_500_010);
        let new = repack(&index.packs[0], &stored[0], &needed).unwrap().unwrap();
        new.info.check().unwrap();
        assert_eq!(Digest::of(&new.bytes), new.info.digest);
        assert!(new.info.size < index.packs[0].size * 6 / 10, "{}", new.info.size);
        let mut out = std::collections::HashMap::<Digest, Vec<u8>>::new();
        unpack(&new.info, new.bytes.as_slice(), |piece| {
            out.entry(piece.blob).or_default().extend_from_slice(piece.bytes);
            Ok::<(), ManifestError>(())
        })
        .unwrap();
        assert_eq!(out.len(), 2);
        assert!(out[&Digest::of(&blobs[1])] == blobs[1] && out[&Digest::of(&blobs[2])] == blobs[2]);
        let again = repack(&index.packs[0], &stored[0], &needed).unwrap().unwrap();
        assert_eq!(again, new, "the same again");
    }

    #[test]
    fn a_blob_that_goes_on_in_the_next_pack_still_does() {
        // Noise does not compress: 70 MB need two packs, and the second blob lies in both.
        let blobs = [noise(60_000_000, 5), noise(10_000_000, 6)];
        let (mut index, stored) = packed(&blobs);
        assert_eq!(index.packs.len(), 2);
        let needed = HashSet::from([Digest::of(&blobs[1])]);
        let new = repack(&index.packs[0], &stored[0], &needed).unwrap().unwrap();
        index.packs[0] = new.info.clone();
        let mut out = Vec::new();
        for (pack, bytes) in index.packs.iter().zip([&new.bytes, &stored[1]]) {
            unpack(pack, bytes.as_slice(), |piece| {
                assert_eq!(piece.blob_offset, out.len() as u64, "in order");
                out.extend_from_slice(piece.bytes);
                Ok::<(), ManifestError>(())
            })
            .unwrap();
        }
        assert!(out == blobs[1]);
    }

    #[test]
    fn a_damaged_pack_is_not_repacked_and_an_unneeded_one_is_nothing() {
        let blobs = [noise(5_000, 7)];
        let (index, mut stored) = packed(&blobs);
        assert_eq!(repack(&index.packs[0], &stored[0], &HashSet::new()).unwrap(), None);
        stored[0][100] ^= 1;
        let error = repack(&index.packs[0], &stored[0], &HashSet::from([Digest::of(&blobs[0])])).unwrap_err();
        assert!(error.to_string().contains("digest"), "{error}");
    }
}
