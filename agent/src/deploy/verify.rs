//! The signed manifests: fetched over plain HTTP, trusted only after the check.
//!
//! Invariant: bytes are hashed and their signature is checked before anything is parsed out of them. The pack index is
//! not signed; it is only checked for saying where every needed blob lies, and each blob is hashed when it comes.

use std::collections::HashMap;

use anyhow::Context as _;
use manifest::packs::PackIndex;
use manifest::{
    Digest, EntryKind, FilesystemKind, Header, KeyId, Manifest, ManifestError, ManifestKind, PublicKey, Signature,
    TreePath, TrustedKeys, Untrusted,
};
use protocol::latest::{DeploySpec, paths};

use super::Context;
use super::fetch;
use super::progress::Tracker;
use crate::api::{Api, ApiError};

/// Largest manifest: 400,000 files are about 120 MB.
const MANIFEST_BYTES_MAX: usize = 512 << 20;
const SIGNATURE_BYTES_MAX: usize = 16 << 10;
const INDEX_BYTES_MAX: usize = 512 << 20;
/// Where the ESP is mounted when the image says nothing of filesystems.
const ESP_MOUNT: &str = "/boot/efi";

/// Why a manifest is not used.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// Other bytes than the deployment names.
    #[error("the manifest has the digest {found}, expected {expected}: it was changed, or damaged on its way")]
    Digest {
        /// As served.
        found: Digest,
        /// As ordered.
        expected: Digest,
    },
    /// Nobody who counts has signed it.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// It was revoked.
    #[error("it must not be used: {0}")]
    Revoked(String),
    /// Not a manifest.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A manifest of another kind.
    #[error("the manifest describes {found}, expected {expected}")]
    Kind {
        /// As served.
        found: &'static str,
        /// As needed.
        expected: &'static str,
    },
    /// For other machines.
    #[error("the image is for {found}, this machine is {expected}")]
    Architecture {
        /// As served.
        found: String,
        /// This machine's.
        expected: &'static str,
    },
    /// Filesystems that this deployer does not make.
    #[error("the image wants {found}; an ext4 root and one vfat are possible")]
    Roots {
        /// What it wants.
        found: String,
    },
    /// Content that no pack holds, or not in one run.
    #[error("the packs do not hold {path} as the manifest needs it: {problem}")]
    Coverage {
        /// A file with this content.
        path: TreePath,
        /// What is wrong.
        problem: &'static str,
    },
}

/// A verified manifest and where its contents are.
#[derive(Debug)]
pub struct Layer {
    /// What to write.
    pub manifest: Manifest,
    /// Where the contents are.
    pub index: PackIndex,
}

/// Both layers of an installation.
#[derive(Debug)]
pub struct Layers {
    /// The operating system.
    pub image: Layer,
    /// The agent, written after it.
    pub agent: Layer,
    /// Where the EFI system partition is mounted.
    pub esp_mount: TreePath,
}

impl Layers {
    /// Both, in the order they are written in.
    #[must_use]
    pub fn all(&self) -> [&Layer; 2] {
        [&self.image, &self.agent]
    }

    /// Regular files with content and their bytes.
    #[must_use]
    pub fn totals(&self) -> (u64, u64) {
        let mut totals = (0, 0);
        for entry in self.image.manifest.entries.iter().chain(&self.agent.manifest.entries) {
            if let EntryKind::File(Some(content)) = entry.kind {
                totals = (totals.0 + 1, totals.1 + content.size);
            }
        }
        totals
    }
}

/// Fetches and checks both layers. What the server says over TLS of keys and revocations is newer than the authority
/// file, which came with the boot, maybe days ago.
///
/// # Errors
/// The server's answer, or what does not fit; [`VerifyError`].
pub async fn fetch(spec: &DeploySpec, context: &Context, tracker: &Tracker) -> anyhow::Result<Layers> {
    let authority = &context.authority;
    let trust = spec.trust.clone().unwrap_or_else(|| authority.trust());
    let image_keys = trust.keys().context("the keys that sign images")?;
    let release_key = PublicKey::parse(&authority.agent_release_key).and_then(TrustedKeys::of);
    let release_key = release_key.context("the agent-release key in the authority file")?;
    let order = |digest, kind, keys: &TrustedKeys| -> Result<Order, VerifyError> {
        if let Some(reason) = trust.against(digest) {
            return Err(VerifyError::Revoked(reason.to_owned()));
        }
        let keys = keys.clone();
        Ok(Order { digest, kind, keys })
    };
    let image = order(spec.image, ManifestKind::Os, &image_keys);
    let image = async { layer(image?, &context.images, tracker).await };
    let (image, signer) = image.await.with_context(|| format!("image {}", spec.image))?;
    let agent = order(spec.agent_layer, ManifestKind::Agent, &release_key);
    let agent = async { layer(agent?, &context.images, tracker).await };
    let (agent, _) = agent
        .await
        .with_context(|| format!("agent layer {}", spec.agent_layer))?;
    let esp_mount = esp_mount(&image.manifest.header)?;
    tracker.say(format!(
        "{} {}, signed by key {signer}",
        image.manifest.header.name, image.manifest.header.version
    ));
    Ok(Layers {
        image,
        agent,
        esp_mount,
    })
}

/// A layer as it was ordered, and whose signature of it counts.
#[derive(Clone, Debug)]
pub struct Order {
    /// Manifest digest.
    pub digest: Digest,
    /// What it has to describe.
    pub kind: ManifestKind,
    /// Who may have signed it.
    pub keys: TrustedKeys,
}

/// Fetches and checks one layer; gives it with the key whose signature of it counts.
///
/// # Errors
/// As [`fetch`].
pub async fn layer(order: Order, images: &Api, tracker: &Tracker) -> anyhow::Result<(Layer, KeyId)> {
    let path = |part: &str| format!("{}/{}/{part}", paths::IMAGES, order.digest);
    let signature = match fetch::bytes(images, &path("signature"), SIGNATURE_BYTES_MAX, tracker).await {
        Ok(signature) => signature,
        // A manifest without a signature is no accident on the way.
        Err(ApiError::Refused { status: 404, .. }) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let bytes = document(images, &path("manifest"), MANIFEST_BYTES_MAX, tracker).await?;
    let index_path = path("packs");
    // The text of a large manifest is gone before the index comes.
    let (manifest, signer) = super::blocking(move || Ok(check(&bytes, &signature, &order)?)).await?;
    let index = document(images, &index_path, INDEX_BYTES_MAX, tracker).await?;
    super::blocking(move || {
        let index = PackIndex::decode(&index).context("pack index")?;
        covers(&manifest, &index)?;
        Ok((Layer { manifest, index }, signer))
    })
    .await
}

/// A document's text: squeezed where the image has it so.
async fn document(images: &Api, path: &str, bytes_max: usize, tracker: &Tracker) -> anyhow::Result<Vec<u8>> {
    match fetch::bytes(images, &format!("{path}.zst"), bytes_max, tracker).await {
        Ok(frame) => super::blocking(move || Ok(manifest::unsqueeze(&frame, bytes_max)?)).await,
        Err(ApiError::Refused { status: 404, .. }) => Ok(fetch::bytes(images, path, bytes_max, tracker).await?),
        Err(error) => Err(error.into()),
    }
}

/// The manifest in these bytes, if they are what was ordered and a key that counts signed them; and which one.
///
/// # Errors
/// [`VerifyError`].
pub fn check(bytes: &[u8], signature: &[u8], order: &Order) -> Result<(Manifest, KeyId), VerifyError> {
    let found = Digest::of(bytes);
    if found != order.digest {
        let expected = order.digest;
        return Err(VerifyError::Digest { found, expected });
    }
    let signature = Signature::from_text(String::from_utf8_lossy(signature));
    let signer = order.keys.check(bytes, &signature)?;
    let manifest = Manifest::decode(bytes)?;
    if manifest.header.kind != order.kind {
        return Err(VerifyError::Kind {
            found: manifest.header.kind.as_str(),
            expected: order.kind.as_str(),
        });
    }
    let expected = architecture();
    if manifest.header.architecture != expected {
        return Err(VerifyError::Architecture {
            found: manifest.header.architecture,
            expected,
        });
    }
    Ok((manifest, signer))
}

/// Debian's name of the architecture this program runs on.
const fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "amd64"
    }
}

/// Where the ESP belongs.
///
/// # Errors
/// [`VerifyError::Roots`] when the image wants filesystems that are not made here.
pub fn esp_mount(header: &Header) -> Result<TreePath, VerifyError> {
    let wrong = || VerifyError::Roots {
        found: header
            .roots
            .iter()
            .map(|root| format!("{} at {}", root.filesystem.as_str(), root.mount))
            .collect::<Vec<_>>()
            .join(", "),
    };
    let mut esp = None;
    for root in &header.roots {
        match (root.filesystem, root.mount.is_root()) {
            (FilesystemKind::Ext4, true) => {}
            (FilesystemKind::Vfat, false) if esp.is_none() => esp = Some(root.mount.clone()),
            _ => return Err(wrong()),
        }
    }
    match esp {
        Some(mount) => Ok(mount),
        None => Ok(ESP_MOUNT.parse()?),
    }
}

/// Checks that each blob the manifest needs comes once, whole, and in order.
///
/// # Errors
/// [`VerifyError::Coverage`] with the first file that would be missing.
pub fn covers(manifest: &Manifest, index: &PackIndex) -> Result<(), VerifyError> {
    let mut needed: HashMap<Digest, (u64, &TreePath)> = HashMap::new();
    for entry in &manifest.entries {
        if let EntryKind::File(Some(content)) = entry.kind
            && content.size > 0
        {
            let (size, first) = *needed.entry(content.digest).or_insert((content.size, &entry.path));
            if size != content.size {
                return Err(wrong(first, "its digest stands with two sizes"));
            }
        }
    }
    let mut open: Option<(Digest, u64)> = None;
    for extent in index.packs.iter().flat_map(|pack| &pack.extents) {
        let Some(&(size, path)) = needed.get(&extent.blob) else {
            continue;
        };
        let from = match open.take() {
            Some((blob, at)) if blob == extent.blob => at,
            Some((blob, _)) => return Err(wrong(needed[&blob].1, "it ends early")),
            None => 0,
        };
        if extent.blob_offset != from {
            return Err(wrong(path, "its pieces are out of order"));
        }
        match from.checked_add(extent.size) {
            Some(at) if at < size => open = Some((extent.blob, at)),
            Some(at) if at == size => {
                needed.remove(&extent.blob);
            }
            _ => return Err(wrong(path, "its pieces are longer than it")),
        }
    }
    if let Some((blob, _)) = open {
        return Err(wrong(needed[&blob].1, "it ends early"));
    }
    match needed.values().map(|(_, path)| path).min() {
        Some(path) => Err(wrong(path, "it is in no pack")),
        None => Ok(()),
    }
}

fn wrong(path: &TreePath, problem: &'static str) -> VerifyError {
    VerifyError::Coverage {
        path: path.clone(),
        problem,
    }
}

#[cfg(test)]
mod tests {
    use manifest::packs::PackWriter;
    use manifest::{Entry, FileContent, KeyPair, PathClass, Root, Xattrs};

    use super::*;
    use protocol::latest::ImageTrust;

    fn manifest_of(contents: &[&[u8]]) -> (Manifest, PackIndex) {
        let mut writer = PackWriter::new(|_| Ok(()));
        let mut entries = Vec::new();
        for (number, bytes) in contents.iter().enumerate() {
            let content = FileContent {
                size: bytes.len() as u64,
                digest: Digest::of(bytes),
            };
            writer.add(content.digest, content.size, *bytes).unwrap();
            entries.push(Entry {
                path: format!("/file{number}").parse().unwrap(),
                class: PathClass::Pinned,
                kind: EntryKind::File(Some(content)),
                mode: 0o644,
                uid: 0,
                gid: 0,
                mtime: 0,
                xattrs: Xattrs::new(),
            });
        }
        let header = Header::new(ManifestKind::Os, "sample", "1");
        (Manifest::new(header, entries).unwrap(), writer.finish().unwrap())
    }

    fn order(digest: Digest, kind: ManifestKind, keys: &TrustedKeys) -> Order {
        Order {
            digest,
            kind,
            keys: keys.clone(),
        }
    }

    #[test]
    fn only_the_ordered_bytes_signed_by_a_key_that_counts_are_used() {
        let (manifest, _) = manifest_of(&[b"abc"]);
        let bytes = manifest.encode().unwrap();
        let digest = manifest.digest().unwrap();
        let [current, older, revoked, foreign] = [(); 4].map(|()| KeyPair::generate().unwrap());
        let revoked_id = revoked.public().id().unwrap();
        let keys = TrustedKeys::new(
            [older.public(), current.public()],
            [(revoked_id, "the laptop was stolen".to_owned())],
        )
        .unwrap();
        let by = |key: &KeyPair, bytes: &[u8]| key.sign(bytes, "x").unwrap().as_str().as_bytes().to_vec();
        for key in [&current, &older] {
            let (found, signer) = check(&bytes, &by(key, &bytes), &order(digest, ManifestKind::Os, &keys)).unwrap();
            assert_eq!((found, signer), (manifest.clone(), key.public().id().unwrap()));
        }

        let mut changed = bytes.clone();
        let at = changed.len() - 30;
        changed[at] ^= 1;
        let good = by(&current, &bytes);
        let of_changed = Digest::of(&changed);
        let os = ManifestKind::Os;
        for (bytes, signature, digest, kind, words) in [
            (&bytes, Vec::new(), digest, os, "it is not signed"),
            (&bytes, b"hello".to_vec(), digest, os, "no minisign signature"),
            (&bytes, by(&foreign, &bytes), digest, os, "not trusted here"),
            (
                &bytes,
                by(&revoked, &bytes),
                digest,
                os,
                "revoked: the laptop was stolen",
            ),
            (&changed, good.clone(), digest, os, "expected"),
            (&changed, good.clone(), of_changed, os, "changed after it was signed"),
            (
                &bytes,
                good.clone(),
                digest,
                ManifestKind::Agent,
                "describes os, expected agent",
            ),
        ] {
            let error = check(bytes, &signature, &order(digest, kind, &keys))
                .unwrap_err()
                .to_string();
            assert!(error.contains(words), "{error} should say {words}");
        }
    }

    #[test]
    fn what_the_server_says_of_keys_is_newer_than_the_authority_file() {
        let (old, new) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let authority: protocol::latest::Authority = serde_json::from_value(serde_json::json!({
            "ca_certificate": "", "image_key": old.public().as_str(), "agent_release_key": "",
            "agent_url": "", "boot_url": "",
        }))
        .unwrap();
        let (bytes, image) = (b"manifest", Digest::of(b"manifest"));
        let (by_old, by_new) = (old.sign(bytes, "x").unwrap(), new.sign(bytes, "x").unwrap());
        // A server from before there was a set.
        let keys = authority.trust().keys().unwrap();
        assert!(keys.check(bytes, &by_old).is_ok() && keys.check(bytes, &by_new).is_err());

        let trust = ImageTrust {
            image_keys: vec![new.public().as_str().to_owned()],
            revoked_keys: vec![protocol::latest::RevokedKey {
                id: old.public().id().unwrap().to_string(),
                reason: "stolen".to_owned(),
            }],
            revoked_image: Some(protocol::latest::RevokedImage {
                image,
                reason: "it was revoked".to_owned(),
            }),
        };
        let keys = trust.keys().unwrap();
        assert!(keys.check(bytes, &by_new).is_ok());
        assert!(matches!(keys.check(bytes, &by_old), Err(Untrusted::Revoked { .. })));
        assert_eq!(trust.against(image), Some("it was revoked"));
        assert_eq!(trust.against(Digest::of(b"another")), None);
    }

    #[test]
    fn an_image_for_other_machines_or_filesystems_is_refused() {
        let (mut manifest, _) = manifest_of(&[]);
        manifest.header.architecture = "riscv64".to_owned();
        let bytes = manifest.encode().unwrap();
        let key = KeyPair::generate().unwrap();
        let signature = key.sign(&bytes, "x").unwrap();
        let keys = TrustedKeys::of(key.public()).unwrap();
        let result = check(
            &bytes,
            signature.as_str().as_bytes(),
            &order(Digest::of(&bytes), ManifestKind::Os, &keys),
        );
        assert!(matches!(result, Err(VerifyError::Architecture { .. })), "{result:?}");

        let root = |mount: &str, filesystem| Root {
            mount: mount.parse().unwrap(),
            filesystem,
        };
        let mut header = Header::new(ManifestKind::Os, "sample", "1");
        assert_eq!(esp_mount(&header).unwrap().to_string(), "/boot/efi");
        header.roots = vec![root("/", FilesystemKind::Ext4), root("/efi", FilesystemKind::Vfat)];
        assert_eq!(esp_mount(&header).unwrap().to_string(), "/efi");
        header.roots.push(root("/home", FilesystemKind::Ext4));
        assert!(esp_mount(&header).unwrap_err().to_string().contains("ext4 at /home"));
    }

    #[test]
    fn an_index_that_lacks_content_is_refused_before_the_disk_is_touched() {
        let large = vec![7_u8; 3 << 20];
        let (manifest, index) = manifest_of(&[b"one", b"two", &large, b""]);
        covers(&manifest, &index).unwrap();
        type Change = fn(&mut Vec<manifest::packs::Extent>);
        let changes: [(Change, &str); 5] = [
            (|e| e.truncate(0), "in no pack"),
            (|e| e.truncate(e.len() - 1), "ends early"),
            (|e| e[0].blob_offset = 1, "out of order"),
            (|e| e[1].size += 1, "longer"),
            (|e| e.swap(1, 2), "ends early"),
        ];
        for (change, expected) in changes {
            let mut bad = index.clone();
            change(&mut bad.packs[0].extents);
            let error = covers(&manifest, &bad).unwrap_err().to_string();
            assert!(error.contains(expected), "{error} should say {expected}");
        }
    }
}
