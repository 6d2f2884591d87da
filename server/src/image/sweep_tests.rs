//! Tests of the sweep, over a local folder.

use std::path::PathBuf;

use bytes::Bytes;
use manifest::packs::{PackWriter, StoredPack};
use manifest::{Entry, FileContent, Header, KeyPair, Manifest, ManifestKind, PathClass, TrustedKeys, Xattrs};

use super::super::keys::Signers;
use super::super::store::ImageParts;
use super::*;

const DAY: Duration = Duration::from_secs(24 * 3_600);

struct Lab {
    folder: tempfile::TempDir,
    store: ImageStore,
    key: KeyPair,
}

impl Lab {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = ImageStore::open(folder.path()).unwrap();
        let key = KeyPair::generate().unwrap();
        Self { folder, store, key }
    }

    fn object(&self, path: &str) -> PathBuf {
        self.folder.path().join("images").join(path)
    }

    /// An object is that much older.
    fn age(&self, path: &str, by: Duration) {
        let file = std::fs::File::options().append(true).open(self.object(path)).unwrap();
        file.set_modified(std::time::SystemTime::now() - by).unwrap();
    }

    /// Packs of these contents, stored.
    async fn packs(&self, contents: &[Vec<u8>]) -> PackIndex {
        let mut stored = Vec::new();
        let mut writer = PackWriter::new(|pack: StoredPack<'_>| {
            stored.push((pack.digest, Bytes::copy_from_slice(pack.bytes)));
            Ok(())
        });
        for content in contents {
            writer
                .add(Digest::of(content), content.len() as u64, content.as_slice())
                .unwrap();
        }
        let index = writer.finish().unwrap();
        for (digest, bytes) in stored {
            self.store.put_pack(digest, bytes).await.unwrap();
        }
        index
    }

    /// An image of these contents, which lie in these packs.
    async fn image(&self, name: &str, contents: &[&Vec<u8>], packs: PackIndex) -> Digest {
        let entries = contents.iter().enumerate().map(|(number, content)| Entry {
            path: format!("/{number}").parse().unwrap(),
            class: PathClass::Pinned,
            kind: EntryKind::File(Some(FileContent {
                size: content.len() as u64,
                digest: Digest::of(content),
            })),
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime: 0,
            xattrs: Xattrs::new(),
        });
        let manifest = Manifest::new(Header::new(ManifestKind::Os, name, "1"), entries.collect()).unwrap();
        let bytes = manifest.encode().unwrap();
        let parts = ImageParts {
            signature: Some(self.key.sign(&bytes, name).unwrap()),
            manifest: bytes.into(),
            packs,
            artifacts: Vec::new(),
        };
        self.store.put_image(parts).await.unwrap()
    }

    async fn sweep(&self, dry_run: bool, grace: Duration) -> Swept {
        let without = HashSet::new();
        let how = Sweeping {
            dry_run,
            grace,
            without: &without,
        };
        self.store.sweep(how).await.unwrap()
    }

    async fn is_whole(&self, image: Digest) -> bool {
        let trusted = Signers {
            trust: super::super::trust::Trust::default(),
            image: TrustedKeys::of(self.key.public()).unwrap(),
            agent_release: TrustedKeys::of(self.key.public()).unwrap(),
        };
        let report = self.store.verify(image, &trusted).await.unwrap();
        report.is_ok()
    }

    fn packs_there(&self) -> usize {
        std::fs::read_dir(self.object("packs")).map_or(0, Iterator::count)
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

#[tokio::test]
async fn packs_that_no_image_names_go_when_they_are_old() {
    let lab = Lab::new();
    let (used, unused) = (noise(1000, 1), noise(1000, 2));
    let packs = lab.packs(std::slice::from_ref(&used)).await;
    let image = lab.image("a", &[&used], packs).await;
    let left = lab.packs(std::slice::from_ref(&unused)).await.packs[0].digest;

    let young = lab.sweep(false, DAY).await;
    assert_eq!((young.packs_removed.len(), young.packs_waiting), (0, vec![left]));
    lab.age(&format!("packs/{left}"), 2 * DAY);
    let dry = lab.sweep(true, DAY).await;
    assert_eq!((dry.packs_removed, lab.packs_there()), (vec![left], 2), "only looked");
    let done = lab.sweep(false, DAY).await;
    assert!(done.bytes_freed > 1000, "{done:?}");
    assert_eq!((done.packs_removed, lab.packs_there()), (vec![left], 1));
    assert!(lab.is_whole(image).await);
}

#[tokio::test]
async fn what_a_killed_build_left_goes_and_what_waits_for_its_signature_stays() {
    let lab = Lab::new();
    let contents = [noise(1000, 1), noise(1000, 2)];
    let shared = lab.packs(&contents[..1]).await;
    let image = lab.image("a", &[&contents[0]], shared.clone()).await;
    let killed = lab.image("b", &[&contents[0]], shared).await;
    let own = lab.packs(&contents[1..]).await;
    let unsigned = lab.image("c", &[&contents[1]], own).await;
    for (image, document) in [
        (killed, Document::Signature),
        (killed, Document::Manifest),
        (unsigned, Document::Signature),
    ] {
        std::fs::remove_file(lab.object(&format!("manifests/{image}/{}", document.name()))).unwrap();
    }
    let young = lab.sweep(false, DAY).await;
    assert_eq!((young.unfinished, young.unsigned), (0, 1), "it may be under way");
    let done = lab.sweep(false, Duration::ZERO).await;
    assert_eq!((done.unfinished, done.unsigned, done.packs_removed.len()), (1, 1, 0));
    assert!(!lab.object(&format!("manifests/{killed}")).exists());
    assert!(lab.object(&format!("manifests/{unsigned}")).exists());
    assert!(lab.is_whole(image).await);
}

#[tokio::test]
async fn a_pack_that_is_mostly_unneeded_becomes_small_and_its_readers_do_not_break() {
    let lab = Lab::new();
    let (kept, gone) = (noise(1 << 20, 1), [noise(1 << 20, 2), noise(1 << 20, 3)]);
    let new = noise(5000, 4);
    let old_packs = lab.packs(&[gone[0].clone(), kept.clone(), gone[1].clone()]).await;
    let old = old_packs.packs[0].digest;
    let mut packs = old_packs.clone();
    packs.packs.extend(lab.packs(std::slice::from_ref(&new)).await.packs);
    let image = lab.image("b", &[&kept, &new], packs.clone()).await;
    // A second image takes other parts of it: together they need two thirds.
    let other = lab.image("c", &[&gone[0]], old_packs).await;

    assert_eq!(lab.sweep(false, DAY).await.repacked, [], "two thirds are needed");
    lab.store.remove_documents(other).await.unwrap();
    let dry = lab.sweep(true, DAY).await;
    assert_eq!((dry.repacked.len(), lab.packs_there()), (1, 2), "only looked");
    let done = lab.sweep(false, DAY).await;
    let [repacked] = done.repacked.as_slice() else {
        panic!("{done:?}")
    };
    assert_eq!((repacked.pack, done.rewritten.len()), (old, 1));
    assert!(repacked.new_size < repacked.size * 4 / 10, "{repacked:?}");
    assert!(lab.is_whole(image).await);
    let index = lab.store.pack_index(image).await.unwrap();
    assert_eq!((index.packs.len(), index.packs[0].size), (2, repacked.new_size));

    // Whoever read the index before finds its packs.
    for pack in &packs.packs {
        let download = lab.store.get_pack(pack.digest, None).await.unwrap();
        assert_eq!(Digest::of(&download.bytes().await.unwrap()), pack.digest);
    }
    let object = format!("packs/{old}");
    lab.age(&object, 9 * DAY);
    let later = lab.sweep(false, DAY).await;
    assert_eq!(
        later.packs_waiting,
        [old],
        "its time runs since it was repacked, not since it was made"
    );
    lab.age(&format!("replaced/{old}"), 2 * DAY);
    let later = lab.sweep(false, DAY).await;
    assert_eq!((later.packs_removed, later.repacked.len()), (vec![old], 0));
    assert!(!lab.object(&object).exists() && !lab.object(&format!("replaced/{old}")).exists());
    assert!(lab.is_whole(image).await);
}

#[tokio::test]
async fn a_damaged_pack_is_left_alone() {
    let lab = Lab::new();
    let contents = [noise(1000, 1), noise(9000, 2)];
    let packs = lab.packs(&contents).await;
    let pack = packs.packs[0].digest;
    lab.image("a", &[&contents[0]], packs.clone()).await;
    let path = lab.object(&format!("packs/{pack}"));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[50] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let done = lab.sweep(false, Duration::ZERO).await;
    assert_eq!(
        (done.damaged, done.repacked.len(), done.rewritten.len()),
        (vec![pack], 0, 0)
    );
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

#[tokio::test]
async fn nothing_goes_while_an_index_cannot_be_read() {
    let lab = Lab::new();
    let contents = [noise(1000, 1), noise(1000, 2)];
    let packs = lab.packs(&contents[..1]).await;
    let image = lab.image("a", &[&contents[0]], packs).await;
    lab.packs(&contents[1..]).await;
    std::fs::write(lab.object(&format!("manifests/{image}/packs.json")), "{").unwrap();
    let without = HashSet::new();
    let how = Sweeping {
        dry_run: false,
        grace: Duration::ZERO,
        without: &without,
    };
    assert!(lab.store.sweep(how).await.is_err());
    assert_eq!(lab.packs_there(), 2);
}

#[tokio::test]
async fn each_removal_is_said_to_free_what_only_it_still_used() {
    let lab = Lab::new();
    let contents = [noise(1000, 1), noise(3000, 2)];
    let shared = lab.packs(&contents[..1]).await;
    let mut both = shared.clone();
    both.packs.extend(lab.packs(&contents[1..]).await.packs);
    let (small, large) = (shared.size(), both.size());
    let first = lab.image("a", &[&contents[0]], shared).await;
    let second = lab.image("b", &[&contents[0], &contents[1]], both).await;
    let freed = async |images: &[Digest]| {
        let freed = lab.store.bytes_freed_by(images).await.unwrap();
        freed.into_iter().map(|(packs, _)| packs).collect::<Vec<_>>()
    };
    assert_eq!(freed(&[first]).await, [0]);
    assert_eq!(freed(&[second]).await, [large - small]);
    assert_eq!(freed(&[first, second]).await, [0, large]);
}

#[tokio::test]
async fn a_removal_that_was_broken_off_lists_nothing_and_is_finished_by_the_next_sweep() {
    let content = noise(1000, 1);
    // After the mark, and after each document.
    for done in 0..=Document::REMOVAL.len() {
        let lab = Lab::new();
        let packs = lab.packs(std::slice::from_ref(&content)).await;
        let image = lab.image("a", &[&content], packs).await;
        let mark = lab.object(&format!("removed/{image}"));
        std::fs::create_dir_all(mark.parent().unwrap()).unwrap();
        std::fs::write(&mark, "").unwrap();
        for document in &Document::REMOVAL[..done] {
            let _there = std::fs::remove_file(lab.object(&format!("manifests/{image}/{}", document.name())));
        }
        let listed = lab.store.list().await.unwrap();
        if done == 0 {
            assert!(lab.is_whole(image).await, "listed, and whole");
            continue;
        }
        assert!(listed.is_empty(), "{done} documents are gone");
        let swept = lab.sweep(false, Duration::ZERO).await;
        assert_eq!(
            (swept.unsigned, swept.packs_removed.len(), lab.packs_there()),
            (0, 1, 0)
        );
        assert!(!mark.exists() && !lab.object(&format!("manifests/{image}/manifest.ndjson")).exists());
    }
}
