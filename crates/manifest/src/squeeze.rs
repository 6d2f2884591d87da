//! Manifests and pack indexes as they travel: one zstd frame with a checksum.
//!
//! What is hashed and signed is always the text; this is only its shape on the way.

use std::io::Read;

use crate::ManifestError;

/// As for packs; half of what is left are digests, which no level makes smaller.
const LEVEL: i32 = 9;

/// The text as one frame.
///
/// # Errors
/// [`ManifestError::Io`], never for bytes in memory.
pub fn squeeze(text: &[u8]) -> Result<Vec<u8>, ManifestError> {
    zstd::bulk::compress(text, LEVEL).map_err(ManifestError::io("compressing a document"))
}

/// The text of a frame, at most `bytes_max` bytes of it.
///
/// # Errors
/// [`ManifestError::Io`] when it is no such frame; [`ManifestError::Limit`] when it holds more.
pub fn unsqueeze(frame: &[u8], bytes_max: usize) -> Result<Vec<u8>, ManifestError> {
    let wrong = || ManifestError::io("decompressing a document");
    let mut decoder = zstd::stream::read::Decoder::with_buffer(frame).map_err(wrong())?;
    // Read in pieces of its own size, so that a frame that says it is large takes no memory by saying so.
    let mut text = Vec::new();
    let limit = bytes_max as u64;
    decoder
        .by_ref()
        .take(limit.saturating_add(1))
        .read_to_end(&mut text)
        .map_err(wrong())?;
    if text.len() > bytes_max {
        return Err(ManifestError::Limit {
            what: "bytes in a document",
            found: text.len() as u64,
            limit,
        });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_comes_out_as_it_went_in_and_never_larger_than_allowed() {
        let text = b"{\"path\":\"/usr/bin/true\"}\n".repeat(10_000);
        let frame = squeeze(&text).unwrap();
        assert!(frame.len() < text.len() / 100);
        assert!(unsqueeze(&frame, text.len()).unwrap() == text);
        assert!(matches!(
            unsqueeze(&frame, text.len() - 1),
            Err(ManifestError::Limit { .. })
        ));
        assert!(unsqueeze(&frame[..frame.len() / 2], text.len()).is_err());
        assert!(unsqueeze(b"no frame", 100).is_err());
    }
}
