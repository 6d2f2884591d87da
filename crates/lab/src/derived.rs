//! An image that differs from another in a stated part of its bytes, for measuring what a re-image moves.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use manifest::packs::{PackIndex, PackWriter, StoredPack, packing_order, unpack};
use manifest::{Digest, Entry, EntryKind, FileContent, KeyPair, Manifest, ManifestError};

/// Larger files stay as they are: one of them would be the whole difference.
const FILE_BYTES_MAX: u64 = 2 << 20;

/// The two images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The one that was there.
    pub before: Digest,
    /// The one that was made.
    pub now: Digest,
    /// Bytes of content in all.
    pub content_bytes: u64,
    /// Bytes of the files that differ.
    pub changed_bytes: u64,
    /// How many files differ.
    pub changed_files: u64,
}

/// Makes a second image of the one named `name` in the store of `data_dir`: files all over the tree, chosen by their
/// digests, have other content of the same size that compresses as well, until their bytes are at least `percent` of all.
///
/// # Errors
/// When the image is not there, or the store cannot be written.
pub fn provide(data_dir: &Path, name: &str, percent: u64) -> Result<Pair> {
    let folder = data_dir.join("images");
    let (source, index) = find(&folder, name)?;
    let mut blobs = read_all(&folder, &index)?;
    let content_bytes = source.content_bytes();
    let changes = choose(&source, content_bytes / 100 * percent);
    let mut changed = Changed::default();
    let mut entries = source.entries.clone();
    for entry in &mut entries {
        if let EntryKind::File(Some(content)) = &mut entry.kind
            && changes.contains(&content.digest)
        {
            let other: Vec<u8> = blobs[&content.digest].iter().map(|byte| byte.wrapping_add(1)).collect();
            *content = FileContent {
                size: content.size,
                digest: Digest::of(&other),
            };
            changed.files += 1;
            changed.bytes += content.size;
            blobs.insert(content.digest, other);
        }
    }
    let mut header = source.header.clone();
    header.version.push_str("-derived");
    let image = Manifest::new(header, entries)?;
    let earlier: HashSet<Digest> = index
        .packs
        .iter()
        .flat_map(|pack| &pack.extents)
        .map(|extent| extent.blob)
        .collect();
    let now = put(&folder, &image, &earlier, &blobs, &data_dir.join("keys/image.key"))?;
    Ok(Pair {
        before: source.digest()?,
        now,
        content_bytes,
        changed_bytes: changed.bytes,
        changed_files: changed.files,
    })
}

#[derive(Default)]
struct Changed {
    files: u64,
    bytes: u64,
}

/// Contents to change: in the order of their digests, which is none.
fn choose(source: &Manifest, bytes_wanted: u64) -> HashSet<Digest> {
    let mut candidates: Vec<FileContent> = source
        .entries
        .iter()
        .filter_map(|entry| match entry.kind {
            EntryKind::File(content) => content.filter(|content| (1..=FILE_BYTES_MAX).contains(&content.size)),
            _ => None,
        })
        .collect();
    candidates.sort_by_key(|content| content.digest);
    let (mut chosen, mut bytes) = (HashSet::new(), 0);
    for content in candidates {
        if bytes >= bytes_wanted {
            break;
        }
        bytes += content.size;
        chosen.insert(content.digest);
    }
    chosen
}

fn find(folder: &Path, name: &str) -> Result<(Manifest, PackIndex)> {
    let mut found: Option<(Manifest, PackIndex)> = None;
    for item in fs::read_dir(folder.join("manifests"))? {
        let at = item?.path();
        let image = Manifest::decode(&fs::read(at.join("manifest.ndjson"))?)?;
        let is_newer = |other: &(Manifest, PackIndex)| image.header.version > other.0.header.version;
        if image.header.name == name && found.as_ref().is_none_or(is_newer) {
            found = Some((image, PackIndex::decode(&fs::read(at.join("packs.json"))?)?));
        }
    }
    found.with_context(|| format!("no image {name} in {}", folder.display()))
}

fn read_all(folder: &Path, index: &PackIndex) -> Result<HashMap<Digest, Vec<u8>>> {
    let mut blobs: HashMap<Digest, Vec<u8>> = HashMap::new();
    for pack in &index.packs {
        let bytes = fs::read(folder.join("packs").join(pack.digest.to_string()))?;
        unpack(pack, bytes.as_slice(), |piece| {
            blobs.entry(piece.blob).or_default().extend_from_slice(piece.bytes);
            Ok::<(), ManifestError>(())
        })?;
    }
    Ok(blobs)
}

fn put(
    folder: &Path,
    image: &Manifest,
    earlier: &HashSet<Digest>,
    blobs: &HashMap<Digest, Vec<u8>>,
    key: &Path,
) -> Result<Digest> {
    let packs = folder.join("packs");
    let mut writer = PackWriter::new(|pack: StoredPack<'_>| {
        let failed = |source: std::io::Error| ManifestError::Pack {
            pack: pack.digest,
            problem: source.to_string(),
        };
        let path = packs.join(pack.digest.to_string());
        // A file of this name has this content, and other runs may read it: the store's files are linked.
        match path.exists() {
            true => Ok(()),
            false => fs::write(path, pack.bytes).map_err(failed),
        }
    });
    for entry in packing_order(&image.entries, earlier) {
        let Entry {
            kind: EntryKind::File(Some(content)),
            ..
        } = entry
        else {
            continue;
        };
        if content.size > 0 {
            let bytes = blobs.get(&content.digest).map(Vec::as_slice).unwrap_or_default();
            ensure!(
                bytes.len() as u64 == content.size,
                "{}: its content is not in the packs",
                entry.path
            );
            writer.add(content.digest, content.size, bytes)?;
        }
    }
    let (index, bytes) = (writer.finish()?.encode()?, image.encode()?);
    let digest = Digest::of(&bytes);
    let key = KeyPair::from_secret_text(&fs::read_to_string(key).with_context(|| key.display().to_string())?)?;
    let signature = key.sign(&bytes, &format!("plumbline os {} {digest}", image.header.name))?;
    let at = folder.join("manifests").join(digest.to_string());
    fs::create_dir_all(&at)?;
    fs::write(at.join("packs.json.zst"), manifest::squeeze(&index)?)?;
    fs::write(at.join("manifest.ndjson.zst"), manifest::squeeze(&bytes)?)?;
    fs::write(at.join("packs.json"), &index)?;
    fs::write(at.join("manifest.ndjson"), &bytes)?;
    // Last: an image without a signature is none yet.
    fs::write(at.join("manifest.ndjson.minisig"), signature.as_str())?;
    Ok(digest)
}
