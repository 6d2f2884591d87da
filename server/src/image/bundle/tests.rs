//! Bundles, whole and broken.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use bytes::Bytes;
use manifest::packs::{PackIndex, PackWriter, StoredPack};
use manifest::{Entry, EntryKind, FileContent, Header, Manifest, PathClass, Xattrs};
use tokio::runtime::Handle;

use super::super::exclusive::Exclusive;
use super::super::keys::Keys;
use super::super::store::{ImageParts, ImageStore};
use super::*;

/// An appliance's data folder.
struct Site {
    folder: tempfile::TempDir,
    store: ImageStore,
    keys: Keys,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            store: ImageStore::open(folder.path()).unwrap(),
            keys: Keys::load_or_create(&folder.path().join("keys")).unwrap(),
            folder,
        }
    }

    /// A site with the same keys.
    fn twin(&self) -> Self {
        let twin = Self::new();
        let (from, to) = (self.folder.path().join("keys"), twin.folder.path().join("keys"));
        let mut copy = std::process::Command::new("cp");
        copy.arg("--archive").arg("--no-target-directory").arg(from).arg(&to);
        assert!(copy.status().unwrap().success());
        let keys = Keys::load_or_create(&to).unwrap();
        Self { keys, ..twin }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn image(&self, kind: ManifestKind, name: &str, version: &str, contents: &[Vec<u8>]) -> Digest {
        let mut stored = Vec::new();
        let mut writer = PackWriter::new(|pack: StoredPack<'_>| {
            stored.push((pack.digest, Bytes::copy_from_slice(pack.bytes)));
            Ok(())
        });
        let mut entries = Vec::new();
        for (number, content) in contents.iter().enumerate() {
            let (digest, size) = (Digest::of(content), content.len() as u64);
            if kind == ManifestKind::Os {
                writer.add(digest, size, content.as_slice()).unwrap();
            }
            entries.push(Entry {
                path: format!("/{number}").parse().unwrap(),
                class: PathClass::Pinned,
                kind: EntryKind::File(Some(FileContent { size, digest })),
                mode: 0o644,
                uid: 0,
                gid: 0,
                mtime: 0,
                xattrs: Xattrs::new(),
            });
        }
        let packs = writer.finish().unwrap();
        for (digest, bytes) in stored {
            self.store.put_pack(digest, bytes).await.unwrap();
        }
        let manifest = Manifest::new(Header::new(kind, name, version), entries).unwrap();
        let bytes = manifest.encode().unwrap();
        let artifacts = match kind {
            ManifestKind::Deployer => ArtifactName::ALL
                .into_iter()
                .zip(contents.iter().cloned().map(Bytes::from))
                .collect(),
            _ => Vec::new(),
        };
        let parts = ImageParts {
            signature: Some(self.keys.image_signer().unwrap().unwrap().sign(&bytes, name).unwrap()),
            manifest: bytes.into(),
            packs,
            artifacts,
        };
        self.store.put_image(parts).await.unwrap()
    }

    async fn export(&self, references: &[&str], file: &std::path::Path) -> Result<Exported, BundleError> {
        let (data, runtime) = (self.folder.path().to_owned(), Handle::current());
        let references: Vec<String> = references.iter().map(|one| (*one).to_owned()).collect();
        let file = file.to_owned();
        tokio::task::spawn_blocking(move || export(&data, &references, &file, &runtime, &()))
            .await
            .unwrap()
    }

    async fn import(&self, file: &std::path::Path) -> Result<Imported, BundleError> {
        let (data, file, runtime) = (self.folder.path().to_owned(), file.to_owned(), Handle::current());
        tokio::task::spawn_blocking(move || import(&data, &file, &runtime, &()))
            .await
            .unwrap()
    }

    async fn is_whole(&self, image: Digest) -> bool {
        self.store.verify(image, &self.keys.signers()).await.unwrap().is_ok()
    }

    /// What there is beside packs.
    fn documents(&self) -> usize {
        let count = |folder| std::fs::read_dir(self.path(folder)).map_or(0, Iterator::count);
        count("images/manifests") + count("images/artifacts")
    }

    fn packs(&self) -> usize {
        std::fs::read_dir(self.path("images/packs")).map_or(0, Iterator::count)
    }
}

/// Bytes that do not compress.
fn noise(size: usize, mut seed: u64) -> Vec<u8> {
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed.to_le_bytes()[0]
    };
    (0..size).map(|_| next()).collect()
}

/// Two versions of one image and a deployer, in a bundle.
async fn bundled() -> (Site, Vec<Digest>, PathBuf) {
    let site = Site::new();
    let contents = [noise(5_000, 1), noise(300_000, 2), noise(7_000, 3)];
    let images = vec![
        site.image(ManifestKind::Os, "debian", "20260101T000000Z", &contents[..2])
            .await,
        site.image(ManifestKind::Os, "debian", "20260201T000000Z", &contents[1..])
            .await,
        site.image(ManifestKind::Deployer, "deployer", "1", &[noise(900, 4), noise(901, 5)])
            .await,
    ];
    let file = site.path("site.bundle");
    let all = ["debian@20260101T000000Z", "debian", "deployer"];
    site.export(&all, &file).await.unwrap();
    (site, images, file)
}

#[allow(clippy::needless_pass_by_value, reason = "nothing else is done with it")]
fn text(error: BundleError) -> String {
    error.to_string()
}

#[tokio::test]
async fn images_come_out_elsewhere_as_they_went_in() {
    let (site, images, file) = bundled().await;
    let there = site.twin();
    let done = there.import(&file).await.unwrap();
    let named: Vec<_> = done.images.iter().map(|image| image.digest).collect();
    assert_eq!(named, images, "in the order they were named");
    assert!(
        done.packs_new == 2 && done.packs_there == 0 && done.bytes == std::fs::metadata(&file).unwrap().len(),
        "{done:?}"
    );
    for image in images {
        assert!(there.is_whole(image).await);
        assert_eq!(
            there.store.manifest_bytes(image).await.unwrap(),
            site.store.manifest_bytes(image).await.unwrap()
        );
    }
    let again = there.import(&file).await.unwrap();
    assert!(
        again.packs_new == 0 && again.packs_there == 2 && again.images[0].was_there,
        "{again:?}"
    );
}

#[tokio::test]
async fn a_bundle_is_a_tar_file_that_begins_with_what_is_in_it() {
    let (_site, images, file) = bundled().await;
    let mut archive = tar::Archive::new(std::fs::File::open(&file).unwrap());
    let mut names = Vec::new();
    let mut first = String::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        names.push(String::from_utf8(entry.path_bytes().to_vec()).unwrap());
        if names.len() == 1 {
            entry.read_to_string(&mut first).unwrap();
        }
    }
    assert_eq!(names[..2], [INDEX, INDEX_SIGNATURE]);
    assert!(
        names[2].ends_with("/manifest.ndjson") && names.last().unwrap().starts_with("packs/"),
        "{names:?}"
    );
    let index: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!(index["images"][0]["digest"], images[0].to_string());
    assert_eq!(index["members"].as_array().unwrap().len(), names.len() - 2);
}

#[tokio::test]
async fn an_export_goes_on_where_it_was_broken_off() {
    let (site, _, file) = bundled().await;
    let whole = std::fs::read(&file).unwrap();
    let all = ["debian@20260101T000000Z", "debian", "deployer"];
    let refused = site.export(&all, &file).await.unwrap_err();
    assert!(text(refused).contains("there already"));
    std::fs::remove_file(&file).unwrap();
    let part = site.path("site.bundle.part");
    for cut in [0, 100, 3_000, whole.len() / 2, whole.len() - 1_500, whole.len()] {
        std::fs::write(&part, &whole[..cut]).unwrap();
        let done = site.export(&all, &file).await.unwrap();
        let written = std::fs::read(&file).unwrap();
        // Another signature of the same bytes is another one.
        assert!(
            written.len() == whole.len() && (done.bytes_kept == 0 || written == whole),
            "cut at {cut}"
        );
        assert!(
            done.bytes_kept <= cut as u64 && (cut < whole.len() / 2 || done.bytes_kept > 5_000),
            "cut at {cut}: {done:?}"
        );
        assert!(!part.exists());
        std::fs::remove_file(&file).unwrap();
    }
    // What was torn in the middle is written again, and so is all of another selection.
    let mut torn = whole.clone();
    torn[whole.len() / 3] ^= 1;
    std::fs::write(&part, &torn).unwrap();
    site.export(&all, &file).await.unwrap();
    assert!(std::fs::read(&file).unwrap() == whole);
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&part, &whole).unwrap();
    let other = site.export(&["deployer"], &file).await.unwrap();
    assert_eq!((other.bytes_kept, other.images), (0, vec!["deployer@1".to_owned()]));
    let there = site.twin();
    there.import(&file).await.unwrap();
}

#[tokio::test]
async fn an_import_that_was_cut_off_lists_nothing_and_the_next_one_finds_its_packs() {
    let (site, images, file) = bundled().await;
    let whole = std::fs::read(&file).unwrap();
    let there = site.twin();
    let cut = there.path("cut.bundle");
    // After the first pack, before the end of the second.
    std::fs::write(&cut, &whole[..whole.len() - 20_000]).unwrap();
    let error = text(there.import(&cut).await.unwrap_err());
    assert!(error.contains("cut short in packs/"), "{error}");
    assert_eq!((there.documents(), there.packs()), (0, 1));
    assert!(there.store.list().await.unwrap().is_empty());
    let done = there.import(&file).await.unwrap();
    assert_eq!((done.packs_new, done.packs_there), (1, 1));
    assert!(there.is_whole(images[0]).await);
    // Cut anywhere: never an image, never a panic.
    let other = site.twin();
    for cut in (0..whole.len())
        .step_by(20_011)
        .chain([whole.len() - 1, whole.len() - 1_024])
    {
        let path = other.path("cut.bundle");
        std::fs::write(&path, &whole[..cut]).unwrap();
        let error = text(other.import(&path).await.unwrap_err());
        assert!(error.contains("cut short"), "cut at {cut}: {error}");
        assert_eq!(other.documents(), 0, "cut at {cut}");
    }
}

#[tokio::test]
async fn a_pack_that_was_damaged_in_the_store_is_written_again() {
    let (site, images, file) = bundled().await;
    let there = site.twin();
    there.import(&file).await.unwrap();
    let pack = there.store.pack_index(images[0]).await.unwrap().packs[0].digest;
    let path = there.path(&format!("images/packs/{pack}"));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(there.import(&file).await.unwrap().packs_new, 1);
    assert!(there.is_whole(images[0]).await);
}

#[tokio::test]
async fn a_flipped_bit_is_refused_wherever_it_is() {
    let (site, _, file) = bundled().await;
    let whole = std::fs::read(&file).unwrap();
    let there = site.twin();
    let path = there.path("flipped.bundle");
    for at in (0..whole.len()).step_by(9_973) {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        std::fs::write(&path, &flipped).unwrap();
        match there.import(&path).await {
            // What pads a member, or the id of an owner in its header, is nobody's.
            Ok(_) => assert_eq!(whole[at], 0, "a flip at {at} was not noticed"),
            Err(error) => {
                let error = text(error);
                assert!(error.contains("refused"), "a flip at {at}: {error}");
                assert_eq!(there.documents(), 0, "a flip at {at}");
            }
        }
        let _cleaned = std::fs::remove_dir_all(there.path("images/manifests"));
        let _cleaned = std::fs::remove_dir_all(there.path("images/artifacts"));
    }
}

/// The members of a bundle, to be put together otherwise.
fn members(bundle: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = tar::Archive::new(bundle);
    let entries = archive.entries().unwrap();
    entries
        .map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (String::from_utf8(entry.path_bytes().to_vec()).unwrap(), content)
        })
        .collect()
}

fn bundle_of(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut bundle = Vec::new();
    for (path, content) in members {
        let mut header = tar::Header::new_ustar();
        // Names that the crate would refuse.
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_entry_type(tar::EntryType::Regular);
        header.set_cksum();
        bundle.write_all(header.as_bytes()).unwrap();
        bundle.write_all(content).unwrap();
        bundle.resize(usize::try_from(padded(bundle.len() as u64)).unwrap(), 0);
    }
    bundle.resize(bundle.len() + 1_024, 0);
    bundle
}

/// A bundle with another index, signed by this site.
fn with_index(site: &Site, members: &[(String, Vec<u8>)], change: impl FnOnce(&mut Index)) -> Vec<u8> {
    let mut members = members.to_vec();
    let mut index: Index = serde_json::from_slice(&members[0].1).unwrap();
    change(&mut index);
    members[0].1 = index.encode().unwrap();
    members[1].1 = site
        .keys
        .image_signer()
        .unwrap()
        .unwrap()
        .sign(&members[0].1, "x")
        .unwrap()
        .as_str()
        .as_bytes()
        .to_vec();
    bundle_of(&members)
}

async fn refusal(there: &Site, bundle: &[u8]) -> String {
    let path = there.path("bad.bundle");
    std::fs::write(&path, bundle).unwrap();
    let error = text(there.import(&path).await.unwrap_err());
    assert_eq!(there.documents(), 0, "{error}");
    error
}

#[tokio::test]
async fn members_that_are_swapped_renamed_added_or_lead_elsewhere_are_refused() {
    let (site, images, file) = bundled().await;
    let there = site.twin();
    let good = members(&std::fs::read(&file).unwrap());
    assert_eq!(bundle_of(&good).len(), std::fs::read(&file).unwrap().len());
    let last = good.len() - 1;

    let mut swapped = good.clone();
    swapped.swap(last, last - 1);
    let error = refusal(&there, &bundle_of(&swapped)).await;
    assert!(error.contains("expected here, found \"packs/"), "{error}");

    let mut contents = good.clone();
    let content = std::mem::take(&mut contents[last].1);
    contents[last].1 = std::mem::replace(&mut contents[last - 1].1, content);
    let error = refusal(&there, &bundle_of(&contents)).await;
    assert!(error.contains("the index says"), "{error}");

    let mut climbing = good.clone();
    climbing[last].0 = "../../etc/cron.d/x".to_owned();
    let error = refusal(&there, &bundle_of(&climbing)).await;
    assert!(error.contains("found \"../../etc/cron.d/x\""), "{error}");

    let mut more = good.clone();
    more.push(("etc/passwd".to_owned(), b"x".to_vec()));
    let error = refusal(&there, &bundle_of(&more)).await;
    assert!(error.contains("more members"), "{error}");

    // Indexes that a trusted site signed all the same.
    let path = |name: &'static str| move |index: &mut Index| index.members[0].path = name.to_owned();
    for name in [
        "../x",
        "/etc/passwd",
        "packs/../../x",
        "packs/abc",
        "manifests/x/manifest.ndjson",
    ] {
        let error = refusal(&there, &with_index(&site, &good, path(name))).await;
        assert!(
            error.contains("expected a document, an artifact or a pack"),
            "{name}: {error}"
        );
    }
    let upper = images[0].to_string().to_ascii_uppercase();
    let bundle = with_index(&site, &good, |index| {
        index.members[0].path = format!("manifests/{upper}/manifest.ndjson")
    });
    let error = refusal(&there, &bundle).await;
    assert!(error.contains("expected a document"), "one name for one thing: {error}");
    let bundle = with_index(&site, &good, |index| {
        let twice = index.members[2].clone();
        index.members.insert(2, twice);
    });
    assert!(refusal(&there, &bundle).await.contains("twice"));
    let bundle = with_index(&site, &good, |index| index.images.truncate(1));
    assert!(refusal(&there, &bundle).await.contains("of no image"));
    let bundle = with_index(&site, &good, |index| index.images[0].version = "2".to_owned());
    assert!(refusal(&there, &bundle).await.contains("another kind, name or version"));
    let bundle = with_index(&site, &good, |index| index.format = 2);
    assert!(refusal(&there, &bundle).await.contains("newer version"));
    assert!(refusal(&there, b"hello").await.contains("cut short"));
    assert!(refusal(&there, &[b'x'; 4_096]).await.contains("no bundle"));
}

#[tokio::test]
async fn a_bundle_whose_packs_lack_a_file_is_refused() {
    let (site, images, file) = bundled().await;
    let there = site.twin();
    let mut good = members(&std::fs::read(&file).unwrap());
    // The pack index of the first image is another's: it is listed with its digest, and signed.
    let other = site.store.pack_index_bytes(images[1]).await.unwrap();
    let at = good.iter().position(|(path, _)| path.ends_with("packs.json")).unwrap();
    good[at].1 = other.to_vec();
    let bundle = with_index(&site, &good, |index| {
        index.members[at - 2].size = other.len() as u64;
        index.members[at - 2].sha256 = Digest::of(&other);
    });
    let error = refusal(&there, &bundle).await;
    assert!(
        error.contains("files have no content") && error.contains("/0"),
        "{error}"
    );
    PackIndex::decode(&other).unwrap();
}

#[tokio::test]
async fn a_bundle_of_an_unknown_site_is_refused_with_the_key_and_what_to_do() {
    let (site, _, file) = bundled().await;
    let there = Site::new();
    let error = text(there.import(&file).await.unwrap_err());
    let minisign = site.keys.image_signer().unwrap().unwrap().sign(b"x", "x").unwrap();
    let comment = minisign.as_str().lines().next().unwrap_or_default().to_owned();
    assert!(
        error.contains("not trusted here") && error.contains("plumbline key add"),
        "{error}"
    );
    let id = error
        .split("signed by key ")
        .nth(1)
        .unwrap()
        .split(',')
        .next()
        .unwrap()
        .to_owned();
    assert!(
        id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit()),
        "{id} of {comment}"
    );
    assert_eq!((there.documents(), there.packs()), (0, 0), "nothing was taken");

    // Somebody signs the index anew: the images in it are still not theirs.
    let twin = site.twin();
    let good = members(&std::fs::read(&file).unwrap());
    let foreign = with_index(&there, &good, |_| ());
    let error = refusal(&there, &foreign).await;
    assert!(
        error.contains("image ") && error.contains("not trusted here"),
        "{error}"
    );
    let mut edited = good.clone();
    edited[0].1.extend_from_slice(b" ");
    let error = refusal(&twin, &bundle_of(&edited)).await;
    assert!(error.contains("changed after it was signed"), "{error}");
}

#[tokio::test]
async fn what_is_meant_is_found_or_said_to_be_missing() {
    let (site, images, _) = bundled().await;
    let file = site.path("x");
    let error = async |reference: &str| text(site.export(&[reference], &file).await.unwrap_err());
    assert!(error("nothing").await.contains("no such image"));
    assert!(error("debian@2").await.contains("no such image"));
    assert!(error("debian/stable").await.contains("channel"));
    let beginning: String = images[1].to_string().chars().take(10).collect();
    let done = site.export(&[&beginning, "debian"], &file).await.unwrap();
    assert_eq!(done.images, ["debian@20260201T000000Z"], "the same image once");
}

#[tokio::test]
async fn nothing_is_taken_in_while_a_build_is_at_work() {
    let (site, _, file) = bundled().await;
    let there = site.twin();
    let build = Exclusive::claim(there.folder.path()).unwrap();
    assert!(text(there.import(&file).await.unwrap_err()).contains("at work"));
    drop(build);
    there.import(&file).await.unwrap();
}

#[tokio::test]
async fn a_damaged_store_is_not_exported() {
    let (site, images, _) = bundled().await;
    let pack = site.store.pack_index(images[0]).await.unwrap().packs[0].digest;
    let path = site.path(&format!("images/packs/{pack}"));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let file = site.path("y");
    let error = text(site.export(&["debian@20260101T000000Z"], &file).await.unwrap_err());
    assert!(error.contains("image verify"), "{error}");
    assert!(!file.exists());
}
