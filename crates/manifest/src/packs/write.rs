//! Joining blobs into packs.

use std::collections::HashSet;
use std::io::Read;

use super::{Extent, FRAME_BYTES, Frame, PACK_BYTES_MAX, PackIndex, PackInfo};
use crate::{Digest, ManifestError};

/// Compression level: 9 packs a 370 MB root in seconds, 12 % larger than 19, which takes minutes on two cores.
const LEVEL: i32 = 9;

/// A finished pack, handed to whoever stores it.
#[derive(Debug)]
pub struct StoredPack<'a> {
    /// Its name.
    pub digest: Digest,
    /// Its bytes, at most [`PACK_BYTES_MAX`].
    pub bytes: &'a [u8],
}

/// Joins blobs into packs; each finished pack goes to `store`.
pub struct PackWriter<S> {
    store: S,
    seen: HashSet<Digest>,
    index: PackIndex,
    frame: Vec<u8>,
    pack: Vec<u8>,
    frames: Vec<Frame>,
    extents: Vec<Extent>,
    /// Extents of the frame being filled.
    open: Vec<Extent>,
}

impl<S> PackWriter<S>
where
    S: FnMut(StoredPack<'_>) -> Result<(), ManifestError>,
{
    /// A writer that hands finished packs to `store`.
    pub fn new(store: S) -> Self {
        Self {
            store,
            seen: HashSet::new(),
            index: PackIndex::default(),
            frame: Vec::with_capacity(FRAME_BYTES),
            pack: Vec::new(),
            frames: Vec::new(),
            extents: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Adds a blob once; a digest already added is passed over without reading.
    ///
    /// # Errors
    /// [`ManifestError::Io`] when reading fails or the content does not have this digest and size (the file changed
    /// while the image was built), or whatever `store` returns.
    pub fn add(&mut self, blob: Digest, size: u64, mut content: impl Read) -> Result<(), ManifestError> {
        if size == 0 || !self.seen.insert(blob) {
            return Ok(());
        }
        let mut hasher = crate::Hasher::new();
        let mut blob_offset = 0;
        loop {
            let from = self.frame.len();
            let room = (FRAME_BYTES - from) as u64;
            content
                .by_ref()
                .take(room)
                .read_to_end(&mut self.frame)
                .map_err(ManifestError::io(format!("blob {blob}")))?;
            let read = &self.frame[from..];
            if read.is_empty() {
                break;
            }
            hasher.update(read);
            let size = read.len() as u64;
            self.open.push(Extent {
                blob,
                blob_offset,
                size,
            });
            blob_offset += size;
            if self.frame.len() == FRAME_BYTES {
                self.finish_frame()?;
            }
        }
        if hasher.finish() != blob || blob_offset != size {
            let source = std::io::Error::other(format!("the content changed while it was read ({blob_offset} bytes)"));
            return Err(ManifestError::Io {
                what: format!("blob {blob} of {size} bytes"),
                source,
            });
        }
        Ok(())
    }

    /// Adds a piece of a blob as it came out of another pack, whose bytes were checked.
    pub(super) fn add_piece(&mut self, blob: Digest, offset: u64, piece: &[u8]) -> Result<(), ManifestError> {
        let mut blob_offset = offset;
        let mut rest = piece;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(FRAME_BYTES - self.frame.len()));
            self.frame.extend_from_slice(now);
            let size = now.len() as u64;
            self.open.push(Extent {
                blob,
                blob_offset,
                size,
            });
            blob_offset += size;
            rest = later;
            if self.frame.len() == FRAME_BYTES {
                self.finish_frame()?;
            }
        }
        Ok(())
    }

    /// Finishes the last pack and gives the index.
    ///
    /// # Errors
    /// Whatever `store` returns.
    pub fn finish(mut self) -> Result<PackIndex, ManifestError> {
        self.finish_frame()?;
        self.finish_pack()?;
        Ok(self.index)
    }

    fn finish_frame(&mut self) -> Result<(), ManifestError> {
        if self.frame.is_empty() {
            return Ok(());
        }
        let failed = |source| ManifestError::Io {
            what: "compressing a frame".to_owned(),
            source,
        };
        let mut compressor = zstd::bulk::Compressor::new(LEVEL).map_err(failed)?;
        compressor.include_checksum(true).map_err(failed)?;
        let compressed = compressor.compress(&self.frame).map_err(failed)?;
        if (self.pack.len() + compressed.len()) as u64 > PACK_BYTES_MAX {
            self.finish_pack()?;
        }
        self.frames.push(Frame {
            size: compressed.len() as u64,
            content_size: self.frame.len() as u64,
        });
        self.pack.extend_from_slice(&compressed);
        self.extents.append(&mut self.open);
        self.frame.clear();
        Ok(())
    }

    fn finish_pack(&mut self) -> Result<(), ManifestError> {
        if self.pack.is_empty() {
            return Ok(());
        }
        let digest = Digest::of(&self.pack);
        (self.store)(StoredPack {
            digest,
            bytes: &self.pack,
        })?;
        self.index.packs.push(PackInfo {
            digest,
            size: self.pack.len() as u64,
            frames: std::mem::take(&mut self.frames),
            extents: std::mem::take(&mut self.extents),
        });
        self.pack.clear();
        Ok(())
    }
}

impl<S> std::fmt::Debug for PackWriter<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "PackWriter({} packs, {} blobs)",
            self.index.packs.len(),
            self.seen.len()
        )
    }
}
