//! The image store: manifests, packs and boot artifacts over an object store.
//!
//! ```text
//! manifests/<manifest digest>/manifest.ndjson          the canonical bytes
//!                             manifest.ndjson.minisig  their signature
//!                             packs.json               where each blob lies
//!                             sbom.{cdx,spdx}.json     bills of materials; older images have none
//! packs/<pack digest>                                  shared between images
//! replaced/<pack digest>                               marks a pack that was repacked, until it is removed
//! removed/<manifest digest>                            marks an image while it is taken apart
//! artifacts/<manifest digest>/vmlinuz, initrd.img      what a loader fetches, for deployers
//! ```
//!
//! Objects are immutable and named by what is in them, but for `packs.json`: it is not signed and trusted in nothing, and
//! a repacking (`sweep.rs`) replaces it in one step. The signature is written last: an image is there when its
//! signature is, and what a failed build left without one is not listed and is written over by the next build. A build
//! whose key is on another machine ends there as well, until the signature is brought.
//!
//! Refused: an index of images in the database. The folder is the truth; it can be copied, mirrored and checked with
//! `sha256sum` and `minisign` alone.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures::stream::StreamExt;
use manifest::packs::PackIndex;
use manifest::{Digest, Manifest, ManifestError, Signature};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutPayload};

use super::Download;

/// Largest manifest, pack index or signature that is read into memory, in bytes.
const DOCUMENT_BYTES_MAX: u64 = 2 << 30;
/// Most images in one store; listing stops there.
const IMAGES_MAX: usize = 100_000;

const MANIFEST: &str = "manifest.ndjson";
const SIGNATURE: &str = "manifest.ndjson.minisig";
const PACK_INDEX: &str = "packs.json";
/// The same, as they travel (`manifest::squeeze`). Images from before they were made have none.
const MANIFEST_SQUEEZED: &str = "manifest.ndjson.zst";
const PACK_INDEX_SQUEEZED: &str = "packs.json.zst";

/// Something the store could not do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such image, pack or artifact.
    #[error("{what} is not in the image store")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// An object is larger than what is read into memory.
    #[error("{what}: {found} bytes, expected at most {limit}")]
    Size {
        /// The object.
        what: String,
        /// Its size.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// An image names a pack that was not put before it.
    #[error("image {image}: its pack {pack} is not in the store")]
    PackMissing {
        /// The image.
        image: Digest,
        /// The pack.
        pack: Digest,
    },
    /// The store's content is not what it should be.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The object store failed.
    #[error("image store: {what}")]
    Backend {
        /// What was being done.
        what: String,
        /// Its error.
        #[source]
        source: object_store::Error,
    },
}

/// A file of a deployer that loaders fetch by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArtifactName {
    /// The kernel.
    Kernel,
    /// The initramfs.
    Initramfs,
}

impl ArtifactName {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Kernel, Self::Initramfs];

    /// The name in the store and in URLs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kernel => "vmlinuz",
            Self::Initramfs => "initrd.img",
        }
    }

    /// The artifact of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|artifact| artifact.as_str() == name)
    }
}

impl fmt::Display for ArtifactName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A document of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Document {
    /// The manifest's canonical bytes.
    Manifest,
    /// Their signature.
    Signature,
    /// Where each blob lies.
    PackIndex,
    /// The manifest in one zstd frame.
    ManifestSqueezed,
    /// The pack index in one zstd frame.
    PackIndexSqueezed,
    /// Bill of materials, CycloneDX.
    Cyclonedx,
    /// Bill of materials, SPDX.
    Spdx,
}

impl Document {
    /// The document of this name in URLs of the boot listener, which machines fetch.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "manifest" => Some(Self::Manifest),
            "signature" => Some(Self::Signature),
            "packs" => Some(Self::PackIndex),
            "manifest.zst" => Some(Self::ManifestSqueezed),
            "packs.zst" => Some(Self::PackIndexSqueezed),
            _ => None,
        }
    }

    /// All of them, in the order in which an image is taken apart: without its signature it is none.
    pub(super) const REMOVAL: [Self; 7] = [
        Self::Signature,
        Self::Manifest,
        Self::PackIndex,
        Self::ManifestSqueezed,
        Self::PackIndexSqueezed,
        Self::Cyclonedx,
        Self::Spdx,
    ];
    /// Those that travel, in the order of a bundle; the squeezed ones are made anew.
    pub(super) const BUNDLED: [Self; 5] = [
        Self::Manifest,
        Self::Signature,
        Self::PackIndex,
        Self::Cyclonedx,
        Self::Spdx,
    ];

    /// Whether an image may be without it.
    pub(super) const fn is_optional(self) -> bool {
        matches!(self, Self::Cyclonedx | Self::Spdx)
    }

    /// The document of this name in the store.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        Self::BUNDLED.into_iter().find(|document| document.name() == name)
    }

    /// Its name in the store.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Manifest => MANIFEST,
            Self::Signature => SIGNATURE,
            Self::PackIndex => PACK_INDEX,
            Self::ManifestSqueezed => MANIFEST_SQUEEZED,
            Self::PackIndexSqueezed => PACK_INDEX_SQUEEZED,
            Self::Cyclonedx => "sbom.cdx.json",
            Self::Spdx => "sbom.spdx.json",
        }
    }
}

/// What makes an image beside its packs.
#[derive(Debug)]
pub struct ImageParts {
    /// The manifest's canonical bytes.
    pub manifest: Bytes,
    /// Their signature; none when it is made on another machine and put by [`ImageStore::put_signature`]. One that is
    /// there for the same bytes stays then.
    pub signature: Option<Signature>,
    /// Where each blob lies; its packs must be in the store already.
    pub packs: PackIndex,
    /// Boot artifacts.
    pub artifacts: Vec<(ArtifactName, Bytes)>,
}

/// The image store.
#[derive(Clone)]
pub struct ImageStore {
    pub(super) objects: Arc<dyn ObjectStore>,
}

impl fmt::Debug for ImageStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImageStore({})", self.objects)
    }
}

impl ImageStore {
    /// A store over any object store.
    #[must_use]
    pub fn new(objects: Arc<dyn ObjectStore>) -> Self {
        Self { objects }
    }

    /// The store in the folder `images` of this data folder; made when it is not there.
    ///
    /// # Errors
    /// [`StoreError::Backend`] when the folder cannot be made.
    pub fn open(data_dir: &FilePath) -> Result<Self, StoreError> {
        let folder = data_dir.join("images");
        let failed = |source| backend_error(format!("opening {}", folder.display()), source);
        std::fs::create_dir_all(&folder).map_err(|source| {
            failed(object_store::Error::Generic {
                store: "folder",
                source: Box::new(source),
            })
        })?;
        let objects = LocalFileSystem::new_with_prefix(&folder).map_err(failed)?;
        Ok(Self::new(Arc::new(objects.with_automatic_cleanup(true))))
    }

    /// Puts a pack. One that is there already is left alone: it has the same name because it has the same content.
    ///
    /// # Errors
    /// [`ManifestError::Pack`] when the bytes do not have this digest; [`StoreError::Backend`].
    pub async fn put_pack(&self, digest: Digest, bytes: Bytes) -> Result<(), StoreError> {
        let found = Digest::of(&bytes);
        if found != digest {
            let problem = format!("the bytes have digest {found}");
            return Err(ManifestError::Pack { pack: digest, problem }.into());
        }
        let path = pack_path(digest);
        if self.size(&path).await? == Some(bytes.len() as u64) {
            return Ok(());
        }
        self.put(&path, bytes).await
    }

    /// Puts an image whose packs are there. Gives its digest.
    ///
    /// # Errors
    /// [`StoreError::PackMissing`], [`StoreError::Manifest`] when the manifest is not canonical, [`StoreError::Backend`].
    pub async fn put_image(&self, parts: ImageParts) -> Result<Digest, StoreError> {
        Manifest::decode(&parts.manifest)?;
        let image = Digest::of(&parts.manifest);
        for pack in &parts.packs.packs {
            if self.size(&pack_path(pack.digest)).await? != Some(pack.size) {
                let pack = pack.digest;
                return Err(StoreError::PackMissing { image, pack });
            }
        }
        for (name, bytes) in parts.artifacts {
            self.put(&artifact_path(image, name), bytes).await?;
        }
        let index: Bytes = parts.packs.encode()?.into();
        self.put_squeezed(image, Document::ManifestSqueezed, &parts.manifest)
            .await?;
        self.put_squeezed(image, Document::PackIndexSqueezed, &index).await?;
        self.put(&document_path(image, PACK_INDEX), index).await?;
        self.put(&document_path(image, MANIFEST), parts.manifest).await?;
        if let Some(signature) = parts.signature {
            self.put_signature(image, &signature).await?;
        }
        Ok(image)
    }

    /// Puts the signature of an image whose other parts are there, in the place of one that is. It is not checked here.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without manifest or pack index, [`StoreError::Backend`].
    pub async fn put_signature(&self, image: Digest, signature: &Signature) -> Result<(), StoreError> {
        for name in [MANIFEST, PACK_INDEX] {
            if self.size(&document_path(image, name)).await?.is_none() {
                let what = format!("{name} of image {image}");
                return Err(StoreError::NotFound { what });
            }
        }
        self.put(&document_path(image, SIGNATURE), signature.as_str().to_owned().into())
            .await
    }

    /// Puts a document in one zstd frame, beside the one that it is made of.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(super) async fn put_squeezed(&self, image: Digest, document: Document, text: &[u8]) -> Result<(), StoreError> {
        let frame = manifest::squeeze(text)?;
        self.put(&document_path(image, document.name()), frame.into()).await
    }

    /// Puts a document beside a manifest that is to come, or is there.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    pub(super) async fn put_document(&self, image: Digest, document: Document, bytes: Bytes) -> Result<(), StoreError> {
        self.put(&document_path(image, document.name()), bytes).await
    }

    /// Whether an image bears a signature, whosever.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    pub async fn is_signed(&self, image: Digest) -> Result<bool, StoreError> {
        Ok(self.size(&document_path(image, SIGNATURE)).await?.is_some())
    }

    /// The digests of all images, sorted.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    pub async fn list(&self) -> Result<Vec<Digest>, StoreError> {
        Ok(self.list_signed().await?.into_iter().map(|(image, _)| image).collect())
    }

    /// The digests of all images, sorted, and when the signature of each was written.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    pub async fn list_signed(&self) -> Result<Vec<(Digest, SystemTime)>, StoreError> {
        let failed = |source| backend_error("listing images", source);
        let mut digests = Vec::new();
        let mut objects = self.objects.list(Some(&Path::from("manifests")));
        while let Some(object) = objects.next().await {
            let object = object.map_err(failed)?;
            let mut parts = object.location.parts().skip(1);
            let (Some(digest), Some(name)) = (parts.next(), parts.next()) else {
                continue;
            };
            if name.as_ref() == SIGNATURE && digests.len() < IMAGES_MAX {
                // Whatever else somebody put beside the images is none.
                let digest = digest.as_ref().parse::<Digest>();
                digests.extend(digest.map(|digest| (digest, SystemTime::from(object.last_modified))));
            }
        }
        digests.sort();
        Ok(digests)
    }

    /// A manifest's canonical bytes, checked against the digest they are asked for by.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Manifest`] when they were damaged; [`StoreError::Backend`].
    pub async fn manifest_bytes(&self, image: Digest) -> Result<Bytes, StoreError> {
        let bytes = self.document(image, MANIFEST).await?;
        let found = Digest::of(&bytes);
        if found == image {
            return Ok(bytes);
        }
        let problem = format!("the stored manifest of {image} has digest {found}: it was damaged");
        Err(ManifestError::Line { line: 1, problem }.into())
    }

    /// A manifest, decoded.
    ///
    /// # Errors
    /// As [`ImageStore::manifest_bytes`].
    pub async fn manifest(&self, image: Digest) -> Result<Manifest, StoreError> {
        Ok(Manifest::decode(&self.manifest_bytes(image).await?)?)
    }

    /// A manifest's signature, not checked here.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Backend`].
    pub async fn signature(&self, image: Digest) -> Result<Signature, StoreError> {
        let bytes = self.document(image, SIGNATURE).await?;
        Ok(Signature::from_text(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// An image's pack index as it is stored.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Backend`].
    pub async fn pack_index_bytes(&self, image: Digest) -> Result<Bytes, StoreError> {
        self.document(image, PACK_INDEX).await
    }

    /// An image's pack index, decoded.
    ///
    /// # Errors
    /// As [`ImageStore::pack_index_bytes`], and [`StoreError::Manifest`] when it contradicts itself.
    pub async fn pack_index(&self, image: Digest) -> Result<PackIndex, StoreError> {
        Ok(PackIndex::decode(&self.pack_index_bytes(image).await?)?)
    }

    /// A pack, or a range of its bytes.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Backend`], also for a range outside the pack.
    pub async fn get_pack(&self, pack: Digest, range: Option<Range<u64>>) -> Result<Download, StoreError> {
        self.get(&pack_path(pack), format!("pack {pack}"), range).await
    }

    /// One of an image's documents, or a range of its bytes, as it is stored: whoever takes it checks it against the
    /// image's digest and signature.
    ///
    /// # Errors
    /// As [`ImageStore::get_pack`].
    pub async fn get_document(
        &self,
        image: Digest,
        document: Document,
        range: Option<Range<u64>>,
    ) -> Result<Download, StoreError> {
        let name = document.name();
        self.get(&document_path(image, name), format!("{name} of image {image}"), range)
            .await
    }

    /// A boot artifact, or a range of its bytes.
    ///
    /// # Errors
    /// As [`ImageStore::get_pack`].
    pub async fn artifact(
        &self,
        image: Digest,
        name: ArtifactName,
        range: Option<Range<u64>>,
    ) -> Result<Download, StoreError> {
        let what = format!("artifact {name} of image {image}");
        self.get(&artifact_path(image, name), what, range).await
    }

    /// Removes an image and those of its packs that no other image uses. Gives how many packs were removed.
    ///
    /// The signature goes first, so that an interrupted removal leaves no image that looks whole; removing it again is
    /// then [`StoreError::NotFound`]. Not to be called while an image is being put, whose packs nobody uses yet.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Backend`]; [`StoreError::Manifest`] when another image's pack index
    /// cannot be read, since then nobody knows what it uses.
    pub async fn remove(&self, image: Digest) -> Result<usize, StoreError> {
        self.signature(image).await?;
        let mut unused: HashSet<Digest> = self.packs_of(image).await?.collect();
        for other in self.list().await? {
            if other != image {
                for pack in self.packs_of(other).await? {
                    unused.remove(&pack);
                }
            }
        }
        self.remove_documents(image).await?;
        for pack in &unused {
            self.delete(&pack_path(*pack)).await?;
        }
        Ok(unused.len())
    }

    async fn packs_of(&self, image: Digest) -> Result<impl Iterator<Item = Digest>, StoreError> {
        let index = self.pack_index(image).await?;
        Ok(index.packs.into_iter().map(|pack| pack.digest))
    }

    async fn document(&self, image: Digest, name: &str) -> Result<Bytes, StoreError> {
        let what = format!("image {image}");
        let download = self.get(&document_path(image, name), what, None).await?;
        if download.size > DOCUMENT_BYTES_MAX {
            return Err(StoreError::Size {
                what: format!("{name} of image {image}"),
                found: download.size,
                limit: DOCUMENT_BYTES_MAX,
            });
        }
        download.bytes().await
    }

    async fn get(&self, path: &Path, what: String, range: Option<Range<u64>>) -> Result<Download, StoreError> {
        let options = GetOptions {
            range: range.map(GetRange::Bounded),
            ..GetOptions::default()
        };
        match self.objects.get_opts(path, options).await {
            Ok(result) => Ok(Download::of(result, what)),
            Err(object_store::Error::NotFound { .. }) => Err(StoreError::NotFound { what }),
            Err(source) => Err(backend_error(format!("reading {what}"), source)),
        }
    }

    pub(super) async fn size(&self, path: &Path) -> Result<Option<u64>, StoreError> {
        match self.objects.head(path).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(backend_error(format!("looking for {path}"), source)),
        }
    }

    pub(super) async fn put(&self, path: &Path, bytes: Bytes) -> Result<(), StoreError> {
        let put = self.objects.put(path, PutPayload::from(bytes)).await;
        put.map_err(|source| backend_error(format!("writing {path}"), source))?;
        Ok(())
    }

    pub(super) async fn delete(&self, path: &Path) -> Result<(), StoreError> {
        match self.objects.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(backend_error(format!("removing {path}"), source)),
        }
    }
}

pub(super) fn backend_error(what: impl Into<String>, source: object_store::Error) -> StoreError {
    StoreError::Backend {
        what: what.into(),
        source,
    }
}

/// Where the manifest of an image lies in the data folder.
pub(super) fn manifest_place(image: Digest) -> std::path::PathBuf {
    format!("images/manifests/{image}/{MANIFEST}").into()
}

pub(super) fn document_path(image: Digest, name: &str) -> Path {
    Path::from(format!("manifests/{image}/{name}"))
}

pub(super) fn pack_path(pack: Digest) -> Path {
    Path::from(format!("packs/{pack}"))
}

/// Marks an image that is being taken apart.
pub(super) fn removed_path(image: Digest) -> Path {
    Path::from(format!("removed/{image}"))
}

/// Marks a pack that was repacked; its time is when.
pub(super) fn replaced_path(pack: Digest) -> Path {
    Path::from(format!("replaced/{pack}"))
}

pub(super) fn artifact_path(image: Digest, name: ArtifactName) -> Path {
    Path::from(format!("artifacts/{image}/{name}"))
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
