//! Packs: how file contents are stored and travel.
//!
//! Half the files of a root are under 4 KB, so contents are joined into one stream, cut into frames of 1 MiB, each
//! frame compressed by itself (zstd with checksum), and the frames gathered into immutable packs of at most 64 MB. An
//! install reads whole packs in order; a re-image reads by HTTP range just the frames that hold what it lacks. A blob
//! may go on in the next frame or the next pack; the index says where its pieces lie.
//!
//! Nothing here is trusted by a reader: every blob is checked against the signed manifest's digest after unpacking, so
//! a hostile index or pack can make an installation fail and nothing else.

mod index;
mod order;
mod parts;
mod read;
mod repack;
mod slices;
mod write;

pub use index::{Extent, Frame, PackIndex, PackInfo};
pub use order::packing_order;
pub use parts::Part;
pub use read::{Piece, unpack};
pub use repack::{Repacked, repack};
pub use slices::Slice;
pub use write::{PackWriter, StoredPack};

/// Uncompressed bytes in a frame.
pub const FRAME_BYTES: usize = 1 << 20;
/// Most compressed bytes in a pack.
pub const PACK_BYTES_MAX: u64 = 64_000_000;
/// Most packs in one index: 128 GB of compressed content.
pub const PACKS_MAX: usize = 2_000;
