//! From entries to a signed image in the store.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::path::Path;

use bytes::Bytes;
use manifest::packs::{PackIndex, PackWriter, StoredPack, packing_order};
use manifest::{Digest, Entry, EntryKind, Header, Manifest, ManifestError, ManifestKind, PathClass};

use super::super::sbom::{self, Bill, Component, SbomFormat};
use super::super::store::{ArtifactName, ImageParts, manifest_place};
use super::progress::Count;
use super::{Build, BuildError, BuiltImage, ToSign, files};

/// Images that are looked at for contents that machines may have already, and how many contents are remembered.
const EARLIER_IMAGES_MAX: usize = 64;
const EARLIER_BLOBS_MAX: usize = 2_000_000;

/// Packs the contents of a tree and stores the image.
pub(super) fn tree(build: &Build, header: Header, entries: Vec<Entry>, root: &Path) -> Result<BuiltImage, BuildError> {
    let open = |entry: &Entry| {
        let file = File::open(files::place(root, &entry.path));
        file.map_err(BuildError::io(format!("{}: reading", entry.path)))
    };
    let components = bill_components(root, &header)?;
    with_contents(build, header, entries, Some(components), open)
}

/// What the packages of a tree are, for the bill of materials.
pub(super) fn bill_components(root: &Path, header: &Header) -> Result<Vec<Component>, BuildError> {
    sbom::root::components(root, &header.packages).map_err(BuildError::io("reading what packages say of themselves"))
}

/// Packs contents that `open` gives for each file, and stores the image, which has no bill of materials.
pub(super) fn with_packs<R: std::io::Read>(
    build: &Build,
    header: Header,
    entries: Vec<Entry>,
    open: impl FnMut(&Entry) -> Result<R, BuildError>,
) -> Result<BuiltImage, BuildError> {
    with_contents(build, header, entries, None, open)
}

fn with_contents<R: std::io::Read>(
    build: &Build,
    header: Header,
    entries: Vec<Entry>,
    components: Option<Vec<Component>>,
    mut open: impl FnMut(&Entry) -> Result<R, BuildError>,
) -> Result<BuiltImage, BuildError> {
    let manifest = Manifest::new(header, entries)?;
    let mut writer = PackWriter::new(|pack: StoredPack<'_>| {
        let bytes = Bytes::copy_from_slice(pack.bytes);
        let put = build.runtime.block_on(build.store.put_pack(pack.digest, bytes));
        put.map_err(|error| ManifestError::Io {
            what: format!("storing pack {}", pack.digest),
            source: std::io::Error::other(error),
        })
    });
    let (total, mut done) = (manifest.content_bytes(), 0);
    let mut said_at = std::time::Instant::now();
    build.reporter.say("pack", format!("{} MB", total / 1_000_000))?;
    let earlier = build.runtime.block_on(earlier_blobs(build));
    for entry in packing_order(&manifest.entries, &earlier) {
        if let EntryKind::File(Some(content)) = entry.kind {
            writer.add(content.digest, content.size, open(entry)?)?;
            done += content.size;
            if said_at.elapsed().as_secs() >= 2 {
                said_at = std::time::Instant::now();
                let line = format!("{} of {} MB", done / 1_000_000, total / 1_000_000);
                build.reporter.show("pack", line)?;
                let count = Count {
                    done,
                    total: Some(total),
                    unit: "bytes",
                };
                build.reporter.count("pack", count)?;
            }
        }
    }
    let packs = writer.finish()?;
    let stored_bytes = packs.size();
    store(build, &manifest, packs, Vec::new(), stored_bytes, components)
}

/// Contents of images that are in the store, as far as they can be read: nothing but the order in the packs hangs on it.
/// Of many images, those that come first are enough: their versions share most of what they hold.
async fn earlier_blobs(build: &Build) -> HashSet<Digest> {
    let mut blobs = HashSet::new();
    let images = build.store.list().await.unwrap_or_default();
    for image in images.into_iter().take(EARLIER_IMAGES_MAX) {
        if let Ok(index) = build.store.pack_index(image).await {
            let extents = index.packs.iter().flat_map(|pack| &pack.extents);
            blobs.extend(extents.map(|extent| extent.blob));
        }
        if blobs.len() > EARLIER_BLOBS_MAX {
            break;
        }
    }
    blobs
}

/// Stores an image whose contents are artifacts.
pub(super) fn with_artifacts(
    build: &Build,
    header: Header,
    entries: Vec<Entry>,
    artifacts: Vec<(ArtifactName, Bytes)>,
    components: Vec<Component>,
) -> Result<BuiltImage, BuildError> {
    let manifest = Manifest::new(header, entries)?;
    let stored_bytes = artifacts.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    let packs = PackIndex::default();
    store(build, &manifest, packs, artifacts, stored_bytes, Some(components))
}

fn store(
    build: &Build,
    manifest: &Manifest,
    packs: PackIndex,
    artifacts: Vec<(ArtifactName, Bytes)>,
    stored_bytes: u64,
    components: Option<Vec<Component>>,
) -> Result<BuiltImage, BuildError> {
    let header = &manifest.header;
    let (kind, name, version) = (header.kind, header.name.clone(), header.version.clone());
    let bytes = manifest.encode()?;
    let comment = format!("plumbline {} {name} {version}", kind.as_str());
    let signature = match kind {
        ManifestKind::Agent => Some(build.keys.agent_release.sign(&bytes, &comment)?),
        ManifestKind::Os | ManifestKind::Deployer | ManifestKind::Overlay => {
            let key = build.keys.image_signer()?;
            key.map(|key| key.sign(&bytes, &comment)).transpose()?
        }
    };
    let is_signed = signature.is_some();
    if let Some(components) = components {
        put_bills(build, Digest::of(&bytes), header, components)?;
    }
    let parts = ImageParts {
        manifest: bytes.into(),
        signature,
        packs,
        artifacts,
    };
    let digest = build.runtime.block_on(build.store.put_image(parts))?;
    let to_sign = match is_signed || build.runtime.block_on(build.store.is_signed(digest))? {
        true => None,
        false => Some(ToSign {
            manifest: build.data_dir.join(manifest_place(digest)),
            comment,
            key: build.keys.signers().trust.newest_active().map(|key| key.id),
        }),
    };

    let by_class = manifest.files_by_class();
    let files: u64 = by_class.values().sum();
    let pinned_share = share(&by_class, PathClass::Pinned);
    let line = format!(
        "{digest}: {} paths, {files} files, {:.1} % pinned, {} MB in {} MB",
        manifest.entries.len(),
        100.0 * pinned_share,
        manifest.content_bytes() / 1_000_000,
        stored_bytes / 1_000_000
    );
    let end = if to_sign.is_none() { "done" } else { "to sign" };
    build.reporter.say(end, line)?;
    Ok(BuiltImage {
        digest,
        kind,
        name,
        version,
        paths: manifest.entries.len() as u64,
        files,
        pinned_share,
        content_bytes: manifest.content_bytes(),
        stored_bytes,
        to_sign,
    })
}

/// Stores the bills of materials beside the manifest that is to come.
fn put_bills(build: &Build, image: Digest, header: &Header, components: Vec<Component>) -> Result<(), BuildError> {
    let bill = Bill::new(image, header, components);
    for format in SbomFormat::ALL {
        let text = bill.encode(format).map_err(std::io::Error::other);
        let text = text.map_err(BuildError::io("writing the bill of materials"))?;
        let put = build.store.put_document(image, format.document(), text.into());
        build.runtime.block_on(put)?;
    }
    Ok(())
}

/// The share of one class among all files; 1 when there are none.
#[allow(clippy::cast_precision_loss)] // At most ENTRIES_MAX files: exact.
fn share(by_class: &BTreeMap<PathClass, u64>, class: PathClass) -> f64 {
    let total: u64 = by_class.values().sum();
    if total == 0 {
        return 1.0;
    }
    by_class.get(&class).copied().unwrap_or(0) as f64 / total as f64
}
