//! Bounds of an import.

/// What an import may cost. A source that needs more is refused with [`crate::ImportError::Limit`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries over all layers, those that later layers replace included.
    pub entries_max: u64,
    /// Bytes of content over all layers, by apparent size: holes of sparse files count.
    pub content_bytes_max: u64,
    /// Bytes of one file, by apparent size.
    pub file_bytes_max: u64,
    /// Layers of an image.
    pub layers_max: usize,
    /// Bytes of a JSON document: index, manifest, configuration.
    pub document_bytes_max: u64,
    /// Bytes of one tar extension (long name, PAX records of one entry, map of one sparse file).
    pub extension_bytes_max: u64,
    /// Components of a path.
    pub depth_max: usize,
    /// Notes kept; more are counted.
    pub notes_max: usize,
}

impl Default for Limits {
    /// Two million entries, 256 GiB of content, 64 GiB for one file: several times the largest GPU image known.
    fn default() -> Self {
        Self {
            entries_max: 2_000_000,
            content_bytes_max: 256 << 30,
            file_bytes_max: 64 << 30,
            layers_max: 512,
            document_bytes_max: 4 << 20,
            extension_bytes_max: 1 << 20,
            depth_max: 256,
            notes_max: 1_000,
        }
    }
}

impl Limits {
    /// Bytes that an uncompressed archive may have: its content, and 4 KiB an entry for headers.
    pub(crate) fn stream_bytes_max(&self) -> u64 {
        self.content_bytes_max
            .saturating_add(self.entries_max.saturating_mul(4096))
            .saturating_add(self.extension_bytes_max)
    }
}
