//! Where each blob lies.

use serde::{Deserialize, Serialize};

use super::{FRAME_BYTES, PACK_BYTES_MAX, PACKS_MAX};
use crate::{Digest, ManifestError};

/// All packs of an image, in stream order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackIndex {
    /// The packs.
    pub packs: Vec<PackInfo>,
}

/// One pack and what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackInfo {
    /// SHA-256 of the pack; its name in the store.
    pub digest: Digest,
    /// Compressed bytes.
    pub size: u64,
    /// The frames, back to back from offset 0.
    pub frames: Vec<Frame>,
    /// The blob pieces, back to back over the uncompressed frames.
    pub extents: Vec<Extent>,
}

/// A compressed run of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Frame {
    /// Compressed bytes.
    pub size: u64,
    /// Uncompressed bytes, at most [`FRAME_BYTES`].
    pub content_size: u64,
}

/// A piece of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extent {
    /// Digest of the whole blob.
    pub blob: Digest,
    /// Where in the blob this piece starts.
    pub blob_offset: u64,
    /// Bytes in this piece.
    pub size: u64,
}

impl PackIndex {
    /// Reads an index and checks that its numbers fit together.
    ///
    /// # Errors
    /// [`ManifestError`] when it is no index, over a bound, or contradicts itself.
    pub fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        let wrong = |problem: String| ManifestError::Line { line: 1, problem };
        let index: Self = serde_json::from_slice(bytes).map_err(|e| wrong(format!("pack index: {e}")))?;
        if index.packs.len() > PACKS_MAX {
            let (found, limit) = (index.packs.len() as u64, PACKS_MAX as u64);
            return Err(ManifestError::Limit {
                what: "packs in an index",
                found,
                limit,
            });
        }
        for pack in &index.packs {
            pack.check()?;
        }
        Ok(index)
    }

    /// The index as JSON.
    ///
    /// # Errors
    /// Never for values of this type.
    pub fn encode(&self) -> Result<Vec<u8>, ManifestError> {
        serde_json::to_vec(self).map_err(|e| ManifestError::Line {
            line: 1,
            problem: e.to_string(),
        })
    }

    /// Compressed bytes of all packs.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.packs.iter().map(|pack| pack.size).sum()
    }
}

impl PackInfo {
    /// Checks that frames fill the pack and extents fill the frames.
    ///
    /// # Errors
    /// [`ManifestError::Pack`] or [`ManifestError::Limit`].
    pub fn check(&self) -> Result<(), ManifestError> {
        let wrong = |problem: String| {
            Err(ManifestError::Pack {
                pack: self.digest,
                problem,
            })
        };
        if self.size > PACK_BYTES_MAX {
            return Err(ManifestError::Limit {
                what: "bytes in a pack",
                found: self.size,
                limit: PACK_BYTES_MAX,
            });
        }
        let (mut compressed, mut content, mut pieces) = (0_u64, 0_u64, 0_u64);
        for frame in &self.frames {
            if frame.content_size > FRAME_BYTES as u64 || frame.size > 2 * FRAME_BYTES as u64 {
                return wrong(format!("a frame of {} over {} bytes", frame.content_size, frame.size));
            }
            compressed += frame.size;
            content += frame.content_size;
        }
        for extent in &self.extents {
            pieces = pieces.saturating_add(extent.size);
        }
        if compressed != self.size || pieces != content {
            return wrong(format!(
                "frames hold {compressed} of {} bytes, extents {pieces} of {content} bytes of content",
                self.size
            ));
        }
        Ok(())
    }
}
