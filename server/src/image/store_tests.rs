//! Tests of the store and of its check, over a local folder.

use std::path::PathBuf;

use manifest::packs::PackWriter;
use manifest::{Entry, EntryKind, FileContent, Header, KeyPair, ManifestKind, PathClass, TrustedKeys, Xattrs};

use super::super::keys::Signers;
use super::super::trust::Trust;
use super::*;

struct Lab {
    folder: tempfile::TempDir,
    store: ImageStore,
    image_key: KeyPair,
    agent_key: KeyPair,
}

impl Lab {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            store: ImageStore::open(folder.path()).unwrap(),
            folder,
            image_key: KeyPair::generate().unwrap(),
            agent_key: KeyPair::generate().unwrap(),
        }
    }

    fn trusted(&self) -> Signers {
        Signers {
            trust: Trust::default(),
            image: TrustedKeys::of(self.image_key.public()).unwrap(),
            agent_release: TrustedKeys::of(self.agent_key.public()).unwrap(),
        }
    }

    fn object(&self, path: &str) -> PathBuf {
        self.folder.path().join("images").join(path)
    }

    /// An image of these files, in packs of its own, signed by `key`.
    async fn put(&self, kind: ManifestKind, key: &KeyPair, files: &[(&str, &[u8])]) -> Digest {
        let mut stored = Vec::new();
        let mut writer = PackWriter::new(|pack: manifest::packs::StoredPack<'_>| {
            stored.push((pack.digest, Bytes::copy_from_slice(pack.bytes)));
            Ok(())
        });
        let mut entries = Vec::new();
        for (path, content) in files {
            let digest = Digest::of(content);
            let size = content.len() as u64;
            writer.add(digest, size, *content).unwrap();
            entries.push(Entry {
                path: path.parse().unwrap(),
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
        let manifest = Manifest::new(Header::new(kind, "sample", "1"), entries).unwrap();
        let bytes = manifest.encode().unwrap();
        let parts = ImageParts {
            signature: Some(key.sign(&bytes, "sample").unwrap()),
            manifest: bytes.into(),
            packs,
            artifacts: vec![(ArtifactName::Kernel, Bytes::from_static(b"kernel"))],
        };
        self.store.put_image(parts).await.unwrap()
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
async fn an_image_comes_out_as_it_went_in() {
    let lab = Lab::new();
    let image = lab.put(ManifestKind::Os, &lab.image_key, &[("/a", b"abc")]).await;
    assert_eq!(lab.store.list().await.unwrap(), [image]);
    assert_eq!(lab.store.manifest(image).await.unwrap().entries.len(), 1);
    assert_eq!(Digest::of(&lab.store.manifest_bytes(image).await.unwrap()), image);

    let pack = &lab.store.pack_index(image).await.unwrap().packs[0];
    let whole = lab.store.get_pack(pack.digest, None).await.unwrap();
    assert_eq!((whole.size, whole.range.clone()), (pack.size, 0..pack.size));
    let whole = whole.bytes().await.unwrap();
    let part = lab.store.get_pack(pack.digest, Some(2..7)).await.unwrap();
    assert_eq!((part.size, part.range.clone()), (pack.size, 2..7));
    assert_eq!(part.bytes().await.unwrap(), whole.slice(2..7));

    let kernel = lab.store.artifact(image, ArtifactName::Kernel, None).await.unwrap();
    assert_eq!(kernel.bytes().await.unwrap(), "kernel");
    let missing = lab.store.artifact(image, ArtifactName::Initramfs, None).await;
    assert!(matches!(missing, Err(StoreError::NotFound { .. })));
    let unknown = Digest::of(b"unknown");
    assert!(matches!(
        lab.store.manifest(unknown).await,
        Err(StoreError::NotFound { .. })
    ));
    assert!(matches!(
        lab.store.get_pack(unknown, None).await,
        Err(StoreError::NotFound { .. })
    ));
}

#[tokio::test]
async fn an_image_without_its_signature_is_not_there() {
    let lab = Lab::new();
    let image = lab.put(ManifestKind::Os, &lab.image_key, &[("/a", b"abc")]).await;
    std::fs::remove_file(lab.object(&format!("manifests/{image}/{SIGNATURE}"))).unwrap();
    assert_eq!(lab.store.list().await.unwrap(), []);
    lab.put(ManifestKind::Os, &lab.image_key, &[("/a", b"abc")]).await;
    assert_eq!(lab.store.list().await.unwrap(), [image]);
}

/// The key that signs is on another machine: the build ends without it, and the signature is brought later.
#[tokio::test]
async fn a_signature_that_is_brought_makes_it_an_image() {
    let lab = Lab::new();
    let image = lab.put(ManifestKind::Os, &lab.image_key, &[("/a", b"abc")]).await;
    let signature = lab.store.signature(image).await.unwrap();
    std::fs::remove_file(lab.object(&format!("manifests/{image}/{SIGNATURE}"))).unwrap();
    let parts = ImageParts {
        manifest: lab.store.manifest_bytes(image).await.unwrap(),
        signature: None,
        packs: lab.store.pack_index(image).await.unwrap(),
        artifacts: Vec::new(),
    };
    assert_eq!(lab.store.put_image(parts).await.unwrap(), image);
    assert_eq!(lab.store.list().await.unwrap(), []);
    lab.store.put_signature(image, &signature).await.unwrap();
    assert_eq!(lab.store.list().await.unwrap(), [image]);
    let nothing = lab.store.put_signature(Digest::of(b"x"), &signature).await;
    assert!(matches!(nothing, Err(StoreError::NotFound { .. })));
    assert_eq!(lab.store.list().await.unwrap(), [image]);
}

#[tokio::test]
async fn what_does_not_belong_together_is_refused() {
    let lab = Lab::new();
    let wrong_name = lab.store.put_pack(Digest::of(b"x"), Bytes::from_static(b"y")).await;
    assert!(wrong_name.unwrap_err().to_string().contains("digest"));

    let image = lab.put(ManifestKind::Os, &lab.image_key, &[("/a", b"abc")]).await;
    let parts = ImageParts {
        manifest: lab.store.manifest_bytes(image).await.unwrap(),
        signature: Some(lab.store.signature(image).await.unwrap()),
        packs: lab.store.pack_index(image).await.unwrap(),
        artifacts: Vec::new(),
    };
    lab.store.remove(image).await.unwrap();
    let error = lab.store.put_image(parts).await.unwrap_err();
    assert!(matches!(error, StoreError::PackMissing { .. }), "{error}");
    assert_eq!(lab.store.list().await.unwrap(), []);
}

#[tokio::test]
async fn removal_keeps_packs_that_another_image_uses() {
    let lab = Lab::new();
    let first = lab.put(ManifestKind::Os, &lab.image_key, &[("/a", b"shared")]).await;
    let second = lab.put(ManifestKind::Os, &lab.image_key, &[("/b", b"shared")]).await;
    let third = lab.put(ManifestKind::Os, &lab.image_key, &[("/c", b"its own")]).await;
    assert_ne!(first, second);
    assert_eq!(lab.store.remove(first).await.unwrap(), 0);
    assert!(lab.store.verify(second, &lab.trusted()).await.unwrap().is_ok());
    assert_eq!(lab.store.remove(second).await.unwrap(), 1);
    assert_eq!(lab.store.list().await.unwrap(), [third]);
    assert_eq!(std::fs::read_dir(lab.object("packs")).unwrap().count(), 1);
    assert!(matches!(
        lab.store.remove(first).await,
        Err(StoreError::NotFound { .. })
    ));
}

#[tokio::test]
async fn a_whole_image_verifies_with_the_key_of_its_kind() {
    let lab = Lab::new();
    // The large file goes through several frames.
    let files: [(&str, &[u8]); 3] = [("/a", b"abc"), ("/empty", b""), ("/large", &noise(3_000_000, 1))];
    let os = lab.put(ManifestKind::Os, &lab.image_key, &files).await;
    let report = lab.store.verify(os, &lab.trusted()).await.unwrap();
    assert!(report.is_ok(), "{report:?}");
    assert_eq!((report.signed_by, report.packs, report.blobs), (Some("image"), 1, 2));
    let agent = lab.put(ManifestKind::Agent, &lab.agent_key, &[("/b", b"agent")]).await;
    let report = lab.store.verify(agent, &lab.trusted()).await.unwrap();
    assert_eq!(report.signed_by, Some("agent-release"));
    assert!(report.is_ok());
}

#[tokio::test]
async fn a_kind_signed_by_the_other_key_is_refused() {
    let lab = Lab::new();
    for (kind, key, expected) in [
        (ManifestKind::Os, &lab.agent_key, "expected an image key's"),
        (ManifestKind::Deployer, &lab.agent_key, "expected an image key's"),
        (ManifestKind::Agent, &lab.image_key, "expected an agent-release key's"),
        (ManifestKind::Overlay, &lab.image_key, "never signed"),
    ] {
        let image = lab.put(kind, key, &[("/a", b"abc")]).await;
        let report = lab.store.verify(image, &lab.trusted()).await.unwrap();
        assert!(!report.is_ok());
        let problem = report.signature_problem.unwrap();
        assert!(problem.contains(expected), "{problem}");
    }
}

#[tokio::test]
async fn a_flipped_byte_in_a_pack_names_the_file_and_only_that() {
    let lab = Lab::new();
    // One frame each: noise of a frame's size.
    let (first, second, third) = (noise(1 << 20, 1), noise(1 << 20, 2), noise(1 << 20, 3));
    let files: [(&str, &[u8]); 3] = [("/first", &first), ("/second", &second), ("/third", &third)];
    let image = lab.put(ManifestKind::Os, &lab.image_key, &files).await;
    let pack = lab.store.pack_index(image).await.unwrap().packs[0].clone();
    let path = lab.object(&format!("packs/{}", pack.digest));
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = usize::try_from(pack.frames[0].size).unwrap() + 1000;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();

    let report = lab.store.verify(image, &lab.trusted()).await.unwrap();
    assert!(!report.is_ok());
    assert_eq!(
        report.signed_by,
        Some("image"),
        "the signature covers the manifest, which is whole"
    );
    assert_eq!(report.packs_damaged, [pack.digest]);
    let named: Vec<_> = report.damaged.iter().map(ToString::to_string).collect();
    assert_eq!((named, report.damaged_count), (vec!["/second".to_owned()], 1));
}

#[tokio::test]
async fn a_missing_pack_names_every_file_and_counts_beyond_the_bound() {
    let lab = Lab::new();
    let contents: Vec<_> = (0..150_u32).map(|n| (format!("/file{n}"), n.to_le_bytes())).collect();
    let files: Vec<_> = contents
        .iter()
        .map(|(path, content)| (path.as_str(), content.as_slice()))
        .collect();
    let image = lab.put(ManifestKind::Os, &lab.image_key, &files).await;
    let pack = lab.store.pack_index(image).await.unwrap().packs[0].digest;
    std::fs::remove_file(lab.object(&format!("packs/{pack}"))).unwrap();
    let report = lab.store.verify(image, &lab.trusted()).await.unwrap();
    assert_eq!(report.packs_damaged, [pack]);
    assert_eq!((report.damaged.len(), report.damaged_count), (100, 150));
}

#[tokio::test]
async fn a_deployer_is_checked_in_its_artifacts() {
    let lab = Lab::new();
    let image = lab
        .put(ManifestKind::Deployer, &lab.image_key, &[("/boot/vmlinuz", b"kernel")])
        .await;
    // The contents of a deployer are in no pack.
    let pack = lab.store.pack_index(image).await.unwrap().packs[0].digest;
    std::fs::remove_file(lab.object(&format!("packs/{pack}"))).unwrap();
    let report = lab.store.verify(image, &lab.trusted()).await.unwrap();
    assert_eq!(report.damaged_count, 0);
    std::fs::write(lab.object(&format!("artifacts/{image}/vmlinuz")), "kerneL").unwrap();
    let report = lab.store.verify(image, &lab.trusted()).await.unwrap();
    let named: Vec<_> = report.damaged.iter().map(ToString::to_string).collect();
    assert_eq!(named, ["/boot/vmlinuz"]);
}

#[tokio::test]
async fn a_damaged_manifest_is_never_handed_out() {
    let lab = Lab::new();
    let image = lab.put(ManifestKind::Os, &lab.image_key, &[("/a", b"abc")]).await;
    let path = lab.object(&format!("manifests/{image}/{MANIFEST}"));
    let text = std::fs::read_to_string(&path).unwrap().replace("/a", "/b");
    std::fs::write(&path, text).unwrap();
    let error = lab.store.manifest(image).await.unwrap_err().to_string();
    assert!(error.contains("damaged"), "{error}");
    assert!(lab.store.verify(image, &lab.trusted()).await.is_err());
}
