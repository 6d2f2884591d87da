//! Bundles: images in one file, for a site without a network.
//!
//! A bundle is a plain tar file, so that people can look into it and check it with `tar`, `minisign` and `sha256sum`:
//!
//! ```text
//! bundle.json             the index: every member with size and SHA-256, in order
//! bundle.json.minisig     its signature, by the image key of the site that made it
//! manifests/…             of each image: manifest, signature, pack index, bills of materials
//! artifacts/…             kernel and initramfs of deployers
//! packs/…                 each once
//! ```
//!
//! The same images give the same members, so that an export that was broken off goes on where it ended. Nothing is
//! compressed again: packs are already.
//!
//! Refused: a member that is not the index's next one, by name, size or digest. A reader therefore follows the index, and
//! names like `../x` or links have no way to mean anything.

mod error;
mod export;
mod import;
mod trust;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use manifest::packs::PACK_BYTES_MAX;
use manifest::{Digest, ManifestKind};
use serde::{Deserialize, Serialize};

pub use error::BundleError;
pub use export::{Exported, export};
pub use import::{Imported, ImportedImage, import};

use super::build::Progress;
use super::store::{ArtifactName, Document};

/// The index's name in a bundle.
const INDEX: &str = "bundle.json";
/// Its signature's.
const INDEX_SIGNATURE: &str = "bundle.json.minisig";
/// The form of bundles that this code writes and reads.
const FORMAT: u32 = 1;
/// Largest index, in bytes.
const INDEX_BYTES_MAX: u64 = 64 << 20;
/// Most images in a bundle.
const IMAGES_MAX: usize = 1_000;
/// Most members.
const MEMBERS_MAX: usize = 200_000;
/// Largest document, in bytes: what is held in memory.
const DOCUMENT_BYTES_MAX: u64 = 1 << 30;
/// Unit of tar, in bytes.
const BLOCK: u64 = 512;

/// What is in a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    format: u32,
    images: Vec<BundledImage>,
    members: Vec<Member>,
}

/// An image in a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BundledImage {
    digest: Digest,
    kind: ManifestKind,
    name: String,
    version: String,
}

/// A file in a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Member {
    path: String,
    size: u64,
    sha256: Digest,
}

/// What a member is, from its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Document(Digest, Document),
    Artifact(Digest, ArtifactName),
    Pack(Digest),
}

impl Part {
    /// Only the paths that [`Part::path`] writes are any.
    fn parse(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').collect();
        let part = match parts.as_slice() {
            ["manifests", image, name] => Self::Document(image.parse().ok()?, Document::of_name(name)?),
            ["artifacts", image, name] => Self::Artifact(image.parse().ok()?, ArtifactName::parse(name)?),
            ["packs", pack] => Self::Pack(pack.parse().ok()?),
            _ => return None,
        };
        (part.path() == path).then_some(part)
    }

    fn path(self) -> String {
        match self {
            Self::Document(image, document) => format!("manifests/{image}/{}", document.name()),
            Self::Artifact(image, name) => format!("artifacts/{image}/{name}"),
            Self::Pack(pack) => format!("packs/{pack}"),
        }
    }
}

impl Index {
    fn encode(&self) -> Result<Vec<u8>, BundleError> {
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| BundleError::refused(INDEX, error))?;
        text.push(b'\n');
        Ok(text)
    }

    /// Reads an index, and checks that it is one that can be followed.
    fn decode(bytes: &[u8]) -> Result<Self, BundleError> {
        let refused = |problem: String| BundleError::refused(INDEX, problem);
        // The number first: another form may have other fields.
        let form: Form = serde_json::from_slice(bytes).map_err(|error| refused(error.to_string()))?;
        if form.format != FORMAT {
            return Err(refused(format!(
                "its form is {}, expected {FORMAT}: was it made by a newer version?",
                form.format
            )));
        }
        let index: Self = serde_json::from_slice(bytes).map_err(|error| refused(error.to_string()))?;
        if index.images.is_empty() || index.images.len() > IMAGES_MAX || index.members.len() > MEMBERS_MAX {
            return Err(refused(format!(
                "{} images and {} members, expected 1 to {IMAGES_MAX} and at most {MEMBERS_MAX}",
                index.images.len(),
                index.members.len()
            )));
        }
        index.check().map_err(refused)?;
        Ok(index)
    }

    fn check(&self) -> Result<(), String> {
        let images: BTreeSet<Digest> = self.images.iter().map(|image| image.digest).collect();
        if images.len() != self.images.len() {
            return Err("an image is in it twice".to_owned());
        }
        let mut parts = BTreeMap::new();
        let mut packs_began = false;
        for member in &self.members {
            let path: String = member.path.chars().take(200).collect();
            let part = Part::parse(&member.path).ok_or_else(|| {
                format!("member {path:?}: expected a document, an artifact or a pack of an image store")
            })?;
            let (is_named_so, bytes_max) = match part {
                Part::Document(image, Document::Manifest) => (image == member.sha256, DOCUMENT_BYTES_MAX),
                Part::Document(..) | Part::Artifact(..) => (true, DOCUMENT_BYTES_MAX),
                Part::Pack(pack) => (pack == member.sha256, PACK_BYTES_MAX),
            };
            if !is_named_so {
                return Err(format!("member {path}: its digest is not its name"));
            }
            if member.size > bytes_max {
                return Err(format!(
                    "member {path}: {} bytes, expected at most {bytes_max}",
                    member.size
                ));
            }
            let is_pack = matches!(part, Part::Pack(_));
            if packs_began && !is_pack {
                return Err(format!("member {path}: expected before the packs"));
            }
            packs_began |= is_pack;
            if let Part::Document(image, _) | Part::Artifact(image, _) = part
                && !images.contains(&image)
            {
                return Err(format!("member {path}: of no image of this bundle"));
            }
            if parts.insert(part, ()).is_some() {
                return Err(format!("member {path}: twice"));
            }
        }
        for image in images {
            for document in [Document::Manifest, Document::Signature, Document::PackIndex] {
                if !parts.contains_key(&Part::Document(image, document)) {
                    return Err(format!("image {image}: no {}", document.name()));
                }
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct Form {
    format: u32,
}

/// Says how far it has come, every two seconds.
#[derive(Default)]
struct Pace {
    said_at: Option<Instant>,
}

impl Pace {
    fn report(&mut self, progress: &dyn Progress, stage: &str, done: u64, total: u64) {
        if self.said_at.is_some_and(|at| at.elapsed() < Duration::from_secs(2)) {
            return;
        }
        self.said_at = Some(Instant::now());
        progress.report(stage, &format!("{} of {} MB", done / 1_000_000, total / 1_000_000));
    }
}

/// Bytes that a member takes in the file beside its header.
const fn padded(size: u64) -> u64 {
    size.div_ceil(BLOCK) * BLOCK
}

/// A member's header: a regular file of root, without a time, so that the same member is the same bytes.
fn header(path: &str, size: u64) -> Result<[u8; BLOCK as usize], BundleError> {
    let mut header = tar::Header::new_ustar();
    let set = header.set_path(path);
    set.map_err(|source| BundleError::io(format!("naming member {path}"), source))?;
    header.set_size(size);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_entry_type(tar::EntryType::Regular);
    header.set_cksum();
    Ok(*header.as_bytes())
}

#[cfg(test)]
mod tests;
