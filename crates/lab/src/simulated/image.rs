//! A small image for simulated nodes, cut out of the lab image: its configuration, unit files and package records, and
//! one whole package. Forty whole roots would be eleven gigabytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use manifest::packs::{PackIndex, PackWriter, StoredPack};
use manifest::{Digest, Entry, EntryKind, KeyPair, Manifest, TreePath};

/// Its name.
pub const IMAGE: &str = "debian-12-simulated";
/// The image it is cut out of.
const SOURCE: &str = "debian-12-lab";
/// The package that is kept whole, so that it can be taken away and put back.
pub const WHOLE_PACKAGE: &str = "sensible-utils";
/// Kept with all that is below.
const KEPT: [&str; 6] = [
    "/etc",
    "/usr/lib/systemd/system",
    "/usr/lib/sysctl.d",
    "/usr/lib/tmpfiles.d",
    "/var/lib/dpkg/status",
    "/var/lib/systemd",
];
/// Not kept although it is below something that is.
const LEFT_OUT: [&str; 1] = ["/etc/ssl/certs"];
/// Folders below which nothing is kept, not even folders.
const BARE: [&str; 4] = [
    "/usr/share",
    "/usr/lib/modules",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/locale",
];

/// Puts the image into the store in `data_dir`, which holds the lab image, signed with the key there. Made again each
/// time: it takes a second.
///
/// # Errors
/// When the lab image is not there, or the store cannot be written.
pub fn provide(data_dir: &Path) -> Result<Digest> {
    let store = Store {
        folder: data_dir.join("images"),
    };
    let (source, index) = store.find(SOURCE)?;
    let kept = kept_paths(&store, &source, &index)?;
    let entries: Vec<Entry> = source
        .entries
        .iter()
        .filter(|entry| is_kept(&entry.path, &entry.kind, &kept))
        .cloned()
        .collect();
    let mut header = source.header.clone();
    IMAGE.clone_into(&mut header.name);
    header.description = Some("Simulated nodes: a part of Debian 12 without programs".to_owned());
    // A folder has no kernel modules to be asked about.
    header.modules_forbidden.clear();
    let image = Manifest::new(header, entries)?;
    store.put(&image, &index, &data_dir.join("keys/image.key"))
}

/// Paths of the package that is kept whole.
fn kept_paths(store: &Store, source: &Manifest, index: &PackIndex) -> Result<BTreeSet<TreePath>> {
    let list: TreePath = format!("/var/lib/dpkg/info/{WHOLE_PACKAGE}.list").parse()?;
    let entry = source.get(&list).with_context(|| format!("{list} in {SOURCE}"))?;
    let EntryKind::File(Some(content)) = entry.kind else {
        bail!("{list} is no file");
    };
    let text = String::from_utf8(store.blob(index, content.digest)?)?;
    let mut kept: BTreeSet<TreePath> = text.lines().filter_map(|line| line.parse().ok()).collect();
    let records = format!("/var/lib/dpkg/info/{WHOLE_PACKAGE}.");
    kept.extend(
        source
            .entries
            .iter()
            .filter(|entry| entry.path.as_bytes().starts_with(records.as_bytes()))
            .map(|entry| entry.path.clone()),
    );
    Ok(kept)
}

fn is_kept(path: &TreePath, kind: &EntryKind, whole: &BTreeSet<TreePath>) -> bool {
    let is_below = |folders: &[&str]| {
        folders.iter().any(|folder| {
            let rest = path.as_bytes().strip_prefix(folder.as_bytes());
            rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        })
    };
    if whole.contains(path) {
        return true;
    }
    match kind {
        EntryKind::Directory => !is_below(&BARE),
        EntryKind::Symlink(_) if !path.as_bytes()[1..].contains(&b'/') => true,
        _ => is_below(&KEPT) && !is_below(&LEFT_OUT),
    }
}

/// The image store's folder, as the server lays it out.
struct Store {
    folder: std::path::PathBuf,
}

impl Store {
    /// The newest image of this name.
    fn find(&self, name: &str) -> Result<(Manifest, PackIndex)> {
        let mut found: BTreeMap<String, (Manifest, PackIndex)> = BTreeMap::new();
        for entry in fs::read_dir(self.folder.join("manifests"))? {
            let folder = entry?.path();
            let manifest = Manifest::decode(&fs::read(folder.join("manifest.ndjson"))?)?;
            if manifest.header.name == name {
                let index = PackIndex::decode(&fs::read(folder.join("packs.json"))?)?;
                found.insert(manifest.header.version.clone(), (manifest, index));
            }
        }
        let newest = found.into_values().next_back();
        newest.with_context(|| format!("no image {name} in {}", self.folder.display()))
    }

    fn blob(&self, index: &PackIndex, blob: Digest) -> Result<Vec<u8>> {
        let mut content = Vec::new();
        for slice in index.slices(blob) {
            let pack = fs::read(self.folder.join("packs").join(slice.pack.to_string()))?;
            let from = usize::try_from(slice.offset)?;
            let frame = pack
                .get(from..from + usize::try_from(slice.size)?)
                .context("a frame beyond its pack")?;
            content.extend(slice.cut(frame)?);
        }
        Ok(content)
    }

    fn put(&self, image: &Manifest, source: &PackIndex, key: &Path) -> Result<Digest> {
        let mut wanted: BTreeMap<Digest, u64> = BTreeMap::new();
        for entry in &image.entries {
            if let EntryKind::File(Some(content)) = entry.kind
                && content.size > 0
            {
                wanted.insert(content.digest, content.size);
            }
        }
        let packs = self.folder.join("packs");
        let mut writer = PackWriter::new(|pack: StoredPack<'_>| {
            let failed = |source: std::io::Error| manifest::ManifestError::Pack {
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
        for (digest, size) in wanted {
            writer.add(digest, size, self.blob(source, digest)?.as_slice())?;
        }
        let index = writer.finish()?;
        let bytes = image.encode()?;
        let digest = Digest::of(&bytes);
        let key = KeyPair::from_secret_text(&fs::read_to_string(key).with_context(|| key.display().to_string())?)?;
        let signature = key.sign(&bytes, &format!("{IMAGE} {digest}"))?;
        let folder = self.folder.join("manifests").join(digest.to_string());
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("packs.json"), index.encode()?)?;
        fs::write(folder.join("manifest.ndjson"), &bytes)?;
        // Last: an image without a signature is none yet.
        fs::write(folder.join("manifest.ndjson.minisig"), signature.as_str())?;
        Ok(digest)
    }
}
