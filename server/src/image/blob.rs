//! One file's content out of an image, without reading the rest of it.

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use manifest::Digest;
use manifest::packs::Slice;

use super::{ImageStore, StoreError};

impl ImageStore {
    /// A blob's content in pieces of at most a frame; `None` when the image does not hold it. Whoever takes it checks
    /// it against its digest.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for the image; as [`ImageStore::pack_index`].
    pub async fn blob(
        &self,
        image: Digest,
        blob: Digest,
    ) -> Result<Option<BoxStream<'static, Result<Bytes, StoreError>>>, StoreError> {
        let slices = self.pack_index(image).await?.slices(blob);
        if slices.is_empty() {
            return Ok(None);
        }
        let store = self.clone();
        let pieces = stream::iter(slices).then(move |slice| {
            let store = store.clone();
            async move { store.piece(slice).await }
        });
        Ok(Some(pieces.boxed()))
    }

    /// A small blob's content, whole; `None` when the image does not hold it, or it is larger than `bytes_max`.
    ///
    /// # Errors
    /// As [`ImageStore::blob`]; [`StoreError::Manifest`] when it was damaged.
    pub async fn small_blob(
        &self,
        image: Digest,
        blob: Digest,
        bytes_max: usize,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(mut pieces) = self.blob(image, blob).await? else {
            return Ok(None);
        };
        let mut content = Vec::new();
        while let Some(piece) = pieces.next().await {
            content.extend_from_slice(&piece?);
            if content.len() > bytes_max {
                return Ok(None);
            }
        }
        let found = Digest::of(&content);
        if found == blob {
            return Ok(Some(content));
        }
        let problem = format!("the content of {blob} has digest {found}: it was damaged");
        Err(manifest::ManifestError::Pack { pack: blob, problem }.into())
    }

    async fn piece(&self, slice: Slice) -> Result<Bytes, StoreError> {
        let range = slice.offset..slice.offset.saturating_add(slice.size);
        let frame = self.get_pack(slice.pack, Some(range)).await?.bytes().await?;
        Ok(slice.cut(&frame)?.into())
    }
}
