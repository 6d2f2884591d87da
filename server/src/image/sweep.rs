//! Removing from the store what no image needs, and making small what is needed in part only.
//!
//! - **Unfinished images**: documents without a manifest, which is written before the signature and after all else, and
//!   artifacts of no image, left by a build that was killed. A manifest without a signature may wait for one, from a key on
//!   another machine: it stays, with its packs.
//! - **Packs that no index names.**
//! - **Packs of which less than half is needed**: an image that reuses packs of an older version keeps all of them, and of
//!   some only a few files. They are repacked: the needed part becomes a new pack, and the indexes of the images are
//!   written anew. An index is the one document of an image that may change: it is not signed, and trusted in nothing.
//!   Each index is replaced in one step, and the old pack stays until nobody can be at work any more with the old index.
//!
//! Whatever is younger than a grace time stays. The caller holds [`Exclusive`](super::exclusive::Exclusive). Broken off
//! at any point, every image in the store is whole, and the next sweep goes on.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use futures::stream::StreamExt as _;
use manifest::packs::{PackIndex, PackInfo, Repacked, repack};
use manifest::{Digest, EntryKind, ManifestError};
use object_store::path::Path;

use super::store::{
    ArtifactName, Document, ImageStore, StoreError, artifact_path, backend_error, document_path, pack_path,
    removed_path, replaced_path,
};

/// How to sweep.
#[derive(Clone, Copy, Debug)]
pub struct Sweeping<'a> {
    /// Only look.
    pub dry_run: bool,
    /// What is younger stays.
    pub grace: Duration,
    /// Images to be taken as removed, in a dry run.
    pub without: &'a HashSet<Digest>,
}

/// What was done, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Unfinished images removed.
    pub unfinished: u64,
    /// Images without a signature, which stay.
    pub unsigned: u64,
    /// Packs removed.
    pub packs_removed: Vec<Digest>,
    /// Packs that nothing names and that stay for the grace time.
    pub packs_waiting: Vec<Digest>,
    /// Packs that were repacked; they stay for the grace time.
    pub repacked: Vec<RepackedPack>,
    /// Packs that would be repacked and are damaged: left alone.
    pub damaged: Vec<Digest>,
    /// Images whose index was written anew, with the bytes of their packs.
    pub rewritten: Vec<(Digest, u64)>,
    /// Bytes that removed packs and unfinished images held.
    pub bytes_freed: u64,
}

/// A pack of which little was needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepackedPack {
    /// The old pack.
    pub pack: Digest,
    /// Its bytes.
    pub size: u64,
    /// Bytes of the new one; in a dry run what they would be about.
    pub new_size: u64,
}

/// How a pack is used.
#[derive(Debug, Default)]
struct Usage {
    content: u64,
    /// The most that one image needs of it, in uncompressed bytes.
    needed_most: u64,
    images: Vec<Digest>,
}

/// What there is of an image without a signature.
struct LeftOver {
    bytes: u64,
    is_old: bool,
    is_whole: bool,
}

/// An object of the store.
struct Object {
    path: Path,
    size: u64,
    age: Duration,
}

impl ImageStore {
    /// Removes an image's documents, its signature first: broken off in between, nothing is left that is listed, and a mark
    /// says that it waits for no new signature. Its packs stay. What is not there is passed over.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    pub async fn remove_documents(&self, image: Digest) -> Result<(), StoreError> {
        self.put(&removed_path(image), bytes::Bytes::new()).await?;
        for document in Document::REMOVAL {
            self.delete(&document_path(image, document.name())).await?;
        }
        for name in ArtifactName::ALL {
            self.delete(&artifact_path(image, name)).await?;
        }
        self.delete(&removed_path(image)).await?;
        Ok(())
    }

    /// Whether an image is there, which is so when its signature is.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    pub async fn holds(&self, image: Digest) -> Result<bool, StoreError> {
        Ok(self
            .size(&document_path(image, Document::Signature.name()))
            .await?
            .is_some())
    }

    /// Bytes that the removal of each of these images frees, when they are removed in this order: of packs that no other
    /// image names, and of artifacts.
    ///
    /// # Errors
    /// [`StoreError::Manifest`] when an index cannot be read, [`StoreError::Backend`].
    pub async fn bytes_freed_by(&self, images: &[Digest]) -> Result<Vec<(u64, u64)>, StoreError> {
        let mut names: HashMap<Digest, u64> = HashMap::new();
        let mut indexes: HashMap<Digest, Vec<(Digest, u64)>> = HashMap::new();
        for image in self.list().await? {
            let packs: Vec<_> = self.pack_index(image).await?.packs;
            let packs: Vec<_> = packs.into_iter().map(|pack| (pack.digest, pack.size)).collect();
            for (pack, _) in &packs {
                *names.entry(*pack).or_default() += 1;
            }
            indexes.insert(image, packs);
        }
        let mut freed = Vec::with_capacity(images.len());
        for image in images {
            let mut bytes = 0;
            for (pack, size) in indexes.remove(image).unwrap_or_default() {
                let left = names.entry(pack).or_insert(1);
                *left -= 1;
                if *left == 0 {
                    bytes += size;
                }
            }
            let mut artifacts = 0;
            for name in ArtifactName::ALL {
                artifacts += self.size(&artifact_path(*image, name)).await?.unwrap_or(0);
            }
            freed.push((bytes, artifacts));
        }
        Ok(freed)
    }

    /// Sweeps.
    ///
    /// # Errors
    /// [`StoreError::Manifest`] when the manifest or the index of an image cannot be read: nobody knows then what it
    /// needs, and nothing is removed. [`StoreError::Backend`].
    pub async fn sweep(&self, how: Sweeping<'_>) -> Result<Swept, StoreError> {
        let signed: Vec<Digest> = self.list().await?;
        let signed: Vec<Digest> = signed
            .into_iter()
            .filter(|image| !how.without.contains(image))
            .collect();
        let left = self.left_over(&signed, how).await?;
        let unsigned: Vec<Digest> = left
            .iter()
            .filter(|(_, left)| left.is_whole)
            .map(|(image, _)| *image)
            .collect();
        let images: Vec<Digest> = signed.into_iter().chain(unsigned.iter().copied()).collect();
        let usage = self.usage(&images).await?;
        let mut swept = Swept {
            unsigned: unsigned.len() as u64,
            ..Swept::default()
        };
        for (image, left) in left.into_iter().filter(|(_, left)| !left.is_whole && left.is_old) {
            if !how.dry_run {
                self.remove_documents(image).await?;
            }
            swept.unfinished += 1;
            swept.bytes_freed += left.bytes;
        }
        self.sweep_packs(&usage, how, &mut swept).await?;
        self.sweep_halves(&usage, how, &mut swept).await?;
        Ok(swept)
    }

    /// Which packs the images use, and how much of them.
    async fn usage(&self, images: &[Digest]) -> Result<BTreeMap<Digest, Usage>, StoreError> {
        let mut usage: BTreeMap<Digest, Usage> = BTreeMap::new();
        for &image in images {
            let blobs = self.blobs_of(image).await?;
            for pack in self.pack_index(image).await?.packs {
                let used = usage.entry(pack.digest).or_default();
                used.content = pack.content_bytes();
                used.needed_most = used.needed_most.max(pack.content_bytes_of(|blob| blobs.contains(blob)));
                used.images.push(image);
            }
        }
        Ok(usage)
    }

    async fn blobs_of(&self, image: Digest) -> Result<HashSet<Digest>, StoreError> {
        let manifest = self.manifest(image).await?;
        let blobs = manifest.entries.iter().filter_map(|entry| match entry.kind {
            EntryKind::File(Some(content)) => Some(content.digest),
            _ => None,
        });
        Ok(blobs.collect())
    }

    async fn objects(&self, folder: &str) -> Result<Vec<Object>, StoreError> {
        let now = time::OffsetDateTime::now_utc().unix_timestamp();
        let mut found = Vec::new();
        let prefix = Path::from(folder);
        let mut objects = self.objects.list(Some(&prefix));
        while let Some(object) = objects.next().await {
            let object = object.map_err(|source| backend_error(format!("listing {folder}"), source))?;
            let age = now.saturating_sub(object.last_modified.timestamp());
            found.push(Object {
                path: object.location,
                size: object.size,
                // A clock that was set back makes things young.
                age: Duration::from_secs(u64::try_from(age).unwrap_or(0)),
            });
        }
        Ok(found)
    }

    /// What there is of images without a signature.
    async fn left_over(&self, signed: &[Digest], how: Sweeping<'_>) -> Result<BTreeMap<Digest, LeftOver>, StoreError> {
        let signed: HashSet<Digest> = signed.iter().copied().collect();
        let marks = self.objects("removed").await?;
        let removed: HashSet<Digest> = marks.iter().filter_map(|mark| digest_of(&mark.path)).collect();
        let mut left: BTreeMap<Digest, LeftOver> = BTreeMap::new();
        for folder in ["manifests", "artifacts"] {
            for object in self.objects(folder).await? {
                // Whatever else somebody put there is not ours.
                let name = object.path.parts().nth(1);
                let Some(Ok(image)) = name.map(|name| name.as_ref().parse::<Digest>()) else {
                    continue;
                };
                if signed.contains(&image) || how.without.contains(&image) {
                    continue;
                }
                let one = left.entry(image).or_insert(LeftOver {
                    bytes: 0,
                    is_old: true,
                    is_whole: false,
                });
                one.bytes += object.size;
                one.is_old &= object.age >= how.grace;
                let is_manifest = object.path.filename() == Some(Document::Manifest.name());
                one.is_whole |= is_manifest && !removed.contains(&image);
            }
        }
        for image in removed.into_iter().filter(|image| !signed.contains(image)) {
            // At least its mark is left.
            left.entry(image).or_insert(LeftOver {
                bytes: 0,
                is_old: true,
                is_whole: false,
            });
        }
        Ok(left)
    }

    async fn sweep_packs(
        &self,
        usage: &BTreeMap<Digest, Usage>,
        how: Sweeping<'_>,
        swept: &mut Swept,
    ) -> Result<(), StoreError> {
        let mut replaced = HashMap::new();
        for mark in self.objects("replaced").await? {
            if let Some(pack) = digest_of(&mark.path) {
                replaced.insert(pack, mark.age);
            }
        }
        for object in self.objects("packs").await? {
            let Some(pack) = digest_of(&object.path).filter(|pack| !usage.contains_key(pack)) else {
                continue;
            };
            let age = replaced.get(&pack).map_or(object.age, |age| object.age.min(*age));
            if age < how.grace {
                swept.packs_waiting.push(pack);
                continue;
            }
            if !how.dry_run {
                self.delete(&pack_path(pack)).await?;
                self.delete(&replaced_path(pack)).await?;
            }
            swept.packs_removed.push(pack);
            swept.bytes_freed += object.size;
        }
        Ok(())
    }

    /// Repacks packs of which less than half is needed.
    async fn sweep_halves(
        &self,
        usage: &BTreeMap<Digest, Usage>,
        how: Sweeping<'_>,
        swept: &mut Swept,
    ) -> Result<(), StoreError> {
        let is_half = |needed: u64, content: u64| needed.saturating_mul(2) >= content;
        let candidates: BTreeMap<Digest, &Usage> = usage
            .iter()
            .filter(|(_, used)| !is_half(used.needed_most, used.content))
            .map(|(pack, used)| (*pack, used))
            .collect();
        // Only now, and only for them, what all images together need of them.
        let mut needed: HashMap<Digest, (PackInfo, HashSet<Digest>)> = HashMap::new();
        let images: BTreeSet<Digest> = candidates
            .values()
            .flat_map(|used| used.images.iter().copied())
            .collect();
        for &image in &images {
            let blobs = self.blobs_of(image).await?;
            for pack in self.pack_index(image).await?.packs {
                if candidates.contains_key(&pack.digest) {
                    let of_pack = pack.extents.iter().map(|extent| extent.blob);
                    let wanted: Vec<Digest> = of_pack.filter(|blob| blobs.contains(blob)).collect();
                    needed
                        .entry(pack.digest)
                        .or_insert_with(|| (pack, HashSet::new()))
                        .1
                        .extend(wanted);
                }
            }
        }
        let mut replacements: HashMap<Digest, Option<PackInfo>> = HashMap::new();
        for (digest, (pack, blobs)) in needed {
            let bytes = pack.content_bytes_of(|blob| blobs.contains(blob));
            if is_half(bytes, pack.content_bytes()) {
                continue;
            }
            let size = pack.size;
            if how.dry_run {
                let share = u128::from(size) * u128::from(bytes) / u128::from(pack.content_bytes().max(1));
                let new_size = u64::try_from(share).unwrap_or(size);
                swept.repacked.push(RepackedPack {
                    pack: digest,
                    size,
                    new_size,
                });
                continue;
            }
            match self.repack(pack, blobs).await {
                Ok(new) => {
                    let new_size = new.as_ref().map_or(0, |new| new.size);
                    replacements.insert(digest, new);
                    swept.repacked.push(RepackedPack {
                        pack: digest,
                        size,
                        new_size,
                    });
                }
                Err(StoreError::Manifest(error)) => {
                    tracing::error!(pack.digest = %digest, %error, "a pack is damaged and was not repacked");
                    swept.damaged.push(digest);
                }
                Err(error) => return Err(error),
            }
        }
        swept.repacked.sort_by_key(|one| one.pack);
        for image in images {
            if let Some(size) = self.rewrite_index(image, &replacements).await? {
                swept.rewritten.push((image, size));
            }
        }
        Ok(())
    }

    /// Stores the needed part of a pack, and marks the pack: it stays for the grace time from now on.
    async fn repack(&self, pack: PackInfo, blobs: HashSet<Digest>) -> Result<Option<PackInfo>, StoreError> {
        let digest = pack.digest;
        let bytes = self.get_pack(digest, None).await?.bytes().await?;
        let work = tokio::task::spawn_blocking(move || repack(&pack, &bytes, &blobs));
        let done = work.await.map_err(|error| StoreError::Backend {
            what: format!("repacking {digest}"),
            source: error.into(),
        })?;
        let new: Option<Repacked> = done?;
        if let Some(new) = &new {
            self.put_pack(new.info.digest, new.bytes.clone().into()).await?;
        }
        let text = new
            .as_ref()
            .map_or_else(String::new, |new| format!("{}\n", new.info.digest));
        self.put(&replaced_path(digest), text.into()).await?;
        Ok(new.map(|new| new.info))
    }

    /// Writes an image's index with the new packs in place of the old ones; gives the bytes of its packs when it changed.
    async fn rewrite_index(
        &self,
        image: Digest,
        replacements: &HashMap<Digest, Option<PackInfo>>,
    ) -> Result<Option<u64>, StoreError> {
        let before = self.pack_index(image).await?;
        let is_old = |pack: &PackInfo| replacements.contains_key(&pack.digest);
        if !before.packs.iter().any(is_old) {
            return Ok(None);
        }
        let packs = before
            .packs
            .into_iter()
            .filter_map(|pack| match replacements.get(&pack.digest) {
                Some(new) => new.clone(),
                None => Some(pack),
            });
        let index = PackIndex { packs: packs.collect() };
        // Read again as everybody reads it, before it takes the place of one that is good.
        let bytes = index.encode()?;
        self.check_index(image, &PackIndex::decode(&bytes)?).await?;
        // Whoever asks for the squeezed one finds none for a moment, and takes the plain one: it is never older.
        self.delete(&document_path(image, Document::PackIndexSqueezed.name()))
            .await?;
        let bytes = bytes::Bytes::from(bytes);
        self.put(&document_path(image, Document::PackIndex.name()), bytes.clone())
            .await?;
        self.put_squeezed(image, Document::PackIndexSqueezed, &bytes).await?;
        Ok(Some(index.size()))
    }

    /// Whether an index holds every byte that the image needs.
    async fn check_index(&self, image: Digest, index: &PackIndex) -> Result<(), StoreError> {
        let mut held: HashMap<Digest, u64> = HashMap::new();
        for extent in index.packs.iter().flat_map(|pack| &pack.extents) {
            *held.entry(extent.blob).or_default() += extent.size;
        }
        let manifest = self.manifest(image).await?;
        for entry in &manifest.entries {
            if let EntryKind::File(Some(content)) = entry.kind
                && content.size > 0
                && held.get(&content.digest).copied().unwrap_or(0) < content.size
            {
                let problem = format!("a new index of image {image} would not hold {}", entry.path);
                return Err(ManifestError::Line { line: 1, problem }.into());
            }
        }
        Ok(())
    }
}

fn digest_of(path: &Path) -> Option<Digest> {
    path.filename()?.parse().ok()
}

#[cfg(test)]
#[path = "sweep_tests.rs"]
mod tests;
