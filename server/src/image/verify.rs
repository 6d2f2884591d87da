//! Checking a stored image from its signature down to every blob.
//!
//! The order of trust: the signature covers the manifest, the manifest names the blobs; packs and their index are only
//! how blobs are kept and are trusted in nothing. A damaged pack is therefore reported twice: as a pack that no longer
//! has its name, and as the files that would come out of it wrong.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use manifest::packs::{Extent, PackIndex, PackInfo, unpack};
use manifest::{Digest, EntryKind, Hasher, Manifest, ManifestError, ManifestKind, TreePath};

use super::keys::TrustedKeys;
use super::store::{ArtifactName, ImageStore, StoreError};

/// Paths named in a report; the rest is counted.
pub const NAMED_MAX: usize = 100;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// The key that signed the manifest (`image`, `agent-release`), when the signature holds and this key may sign this
    /// kind of image.
    pub signed_by: Option<&'static str>,
    /// What is wrong with the signature.
    pub signature_problem: Option<String>,
    /// Packs read.
    pub packs: u64,
    /// Bytes of packs read.
    pub pack_bytes: u64,
    /// Packs that are missing or do not have the digest they are named by.
    pub packs_damaged: Vec<Digest>,
    /// Distinct blobs of the manifest.
    pub blobs: u64,
    /// Paths whose content is missing or damaged, in order, at most [`NAMED_MAX`].
    pub damaged: Vec<TreePath>,
    /// How many such paths there are in all.
    pub damaged_count: u64,
}

impl VerifyReport {
    /// Whether nothing was found.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.signed_by.is_some() && self.packs_damaged.is_empty() && self.damaged_count == 0
    }
}

impl ImageStore {
    /// Checks an image: its signature, by the key that may sign its kind; every pack; every blob.
    ///
    /// # Errors
    /// [`StoreError`] when the image is not there, its manifest or pack index cannot be read, or the backend fails:
    /// the check could not be made. What a check finds is in the report.
    pub async fn verify(&self, image: Digest, keys: &TrustedKeys) -> Result<VerifyReport, StoreError> {
        let bytes = self.manifest_bytes(image).await?;
        let manifest = Manifest::decode(&bytes)?;
        let mut report = VerifyReport::default();
        self.check_signature(image, &bytes, &manifest, keys, &mut report)
            .await?;

        let mut good = HashSet::new();
        if manifest.header.kind == ManifestKind::Deployer {
            // A deployer's contents are its artifacts.
            for name in [ArtifactName::Kernel, ArtifactName::Initramfs] {
                match self.artifact(image, name, None).await {
                    Ok(download) => good.extend([Digest::of(&download.bytes().await?)]),
                    Err(StoreError::NotFound { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let packs = self.pack_index(image).await?;
        self.check_against(&manifest, packs, good, &mut report).await?;
        Ok(report)
    }

    /// Checks that the packs of this index and these artifacts hold every blob of a manifest. Says nothing of signatures.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    pub(super) async fn check_contents(
        &self,
        manifest: &Manifest,
        packs: PackIndex,
        artifacts: HashSet<Digest>,
    ) -> Result<VerifyReport, StoreError> {
        let mut report = VerifyReport::default();
        self.check_against(manifest, packs, artifacts, &mut report).await?;
        Ok(report)
    }

    async fn check_against(
        &self,
        manifest: &Manifest,
        packs: PackIndex,
        mut good: HashSet<Digest>,
        report: &mut VerifyReport,
    ) -> Result<(), StoreError> {
        self.check_packs(packs, &mut good, report).await?;
        let mut wanted = HashSet::new();
        for entry in &manifest.entries {
            let EntryKind::File(Some(content)) = entry.kind else {
                continue;
            };
            // An empty file has no blob.
            if content.size == 0 {
                continue;
            }
            wanted.insert(content.digest);
            if !good.contains(&content.digest) {
                report.damaged_count += 1;
                if report.damaged.len() < NAMED_MAX {
                    report.damaged.push(entry.path.clone());
                }
            }
        }
        report.blobs = wanted.len() as u64;
        Ok(())
    }

    async fn check_signature(
        &self,
        image: Digest,
        bytes: &[u8],
        manifest: &Manifest,
        keys: &TrustedKeys,
        report: &mut VerifyReport,
    ) -> Result<(), StoreError> {
        let signature = self.signature(image).await?;
        let kind = manifest.header.kind;
        match keys.for_kind(kind) {
            Some((name, key)) => match key.verify(bytes, &signature) {
                Ok(()) => report.signed_by = Some(name),
                Err(error) => report.signature_problem = Some(format!("expected the {name} key's: {error}")),
            },
            None => report.signature_problem = Some(format!("an image of kind {} is never signed", kind.as_str())),
        }
        Ok(())
    }

    async fn check_packs(
        &self,
        packs: PackIndex,
        good: &mut HashSet<Digest>,
        report: &mut VerifyReport,
    ) -> Result<(), StoreError> {
        // A blob may go on in the next pack: hashers that are not done are carried over.
        let mut open = HashMap::new();
        for pack in packs.packs {
            let bytes = match self.get_pack(pack.digest, None).await {
                Ok(download) if download.size == pack.size => download.bytes().await?,
                Ok(_) | Err(StoreError::NotFound { .. }) => {
                    report.packs_damaged.push(pack.digest);
                    continue;
                }
                Err(error) => return Err(error),
            };
            report.packs += 1;
            report.pack_bytes += bytes.len() as u64;
            let digest = pack.digest;
            let check = move || {
                let sound = Digest::of(&bytes) == pack.digest;
                let whole = hash_blobs(&pack, &bytes, &mut open);
                (sound, whole, open)
            };
            let (sound, whole, rest) =
                tokio::task::spawn_blocking(check)
                    .await
                    .map_err(|error| StoreError::Backend {
                        what: format!("checking pack {digest}"),
                        source: error.into(),
                    })?;
            open = rest;
            good.extend(whole);
            if !sound {
                report.packs_damaged.push(digest);
            }
        }
        Ok(())
    }
}

/// A blob that is being put together: how many bytes of it were seen, and their hash.
type Open = HashMap<Digest, (u64, Hasher)>;

/// Hashes the blobs of a pack, frame by frame so that damage to one frame costs only the blobs in it. Gives those that
/// are complete and have their digest. A piece whose earlier piece is missing cannot complete its blob.
fn hash_blobs(pack: &PackInfo, bytes: &Bytes, open: &mut Open) -> Vec<Digest> {
    let mut whole = Vec::new();
    let mut at = 0;
    for frame in single_frames(pack) {
        let end = at + usize::try_from(frame.size).unwrap_or(usize::MAX);
        let Some(compressed) = bytes.get(at..end) else {
            break;
        };
        at = end;
        let _damaged = unpack(&frame, compressed, |piece| {
            let (seen, hasher) = open.entry(piece.blob).or_insert_with(|| (0, Hasher::new()));
            if *seen == piece.blob_offset {
                hasher.update(piece.bytes);
                *seen += piece.bytes.len() as u64;
                // The hash of a prefix can only be the digest when the prefix is the whole.
                if hasher.clone().finish() == piece.blob {
                    whole.push(piece.blob);
                    open.remove(&piece.blob);
                }
            }
            Ok::<(), ManifestError>(())
        });
    }
    whole
}

/// The pack as packs of one frame each.
fn single_frames(pack: &PackInfo) -> Vec<PackInfo> {
    let mut extents = pack.extents.iter().copied();
    let mut next = extents.next();
    let mut frames = Vec::with_capacity(pack.frames.len());
    for frame in &pack.frames {
        let mut left = frame.content_size;
        let mut inside = Vec::new();
        while left > 0 {
            let Some(extent) = next.as_mut() else {
                break;
            };
            let size = extent.size.min(left);
            inside.push(Extent { size, ..*extent });
            left -= size;
            extent.size -= size;
            extent.blob_offset += size;
            if extent.size == 0 {
                next = extents.next();
            }
        }
        frames.push(PackInfo {
            digest: pack.digest,
            size: frame.size,
            frames: vec![*frame],
            extents: inside,
        });
    }
    frames
}
