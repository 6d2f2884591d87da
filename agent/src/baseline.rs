//! The manifests of a baseline: fetched by digest, kept on disk, read line by line.
//!
//! A manifest is kept under its digest only after digest and signature were found right; each load computes the digest
//! again. Loading goes through the canonical decoder in parts, so that neither the text nor all entries are ever in
//! memory at once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use drift::{Expected, ExpectedBuilder, ExpectedError};
use manifest::{
    Digest, Entry, Hasher, Header, LINE_BYTES_MAX, Manifest, ManifestError, ManifestKind, PublicKey, Signature,
    TreePath, TrustedKeys, Untrusted,
};
use protocol::latest::{Baseline, paths};

use crate::api::{Api, ApiError};
use crate::state::write_file;

/// Largest manifest, in bytes: 400,000 entries have about 100 MB.
const MANIFEST_BYTES_MAX: usize = 1 << 30;
/// Largest signature, in bytes.
const SIGNATURE_BYTES_MAX: usize = 16 << 10;
/// Lines decoded at once.
const PART_LINES: usize = 500;

/// A baseline that cannot be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BaselineError {
    /// The server did not give it.
    #[error("fetching manifest {digest}")]
    Fetch {
        /// Which.
        digest: Digest,
        /// Why.
        #[source]
        source: ApiError,
    },
    /// What came is not what was asked for.
    #[error("manifest {digest}: the content has digest {found}")]
    Digest {
        /// Which.
        digest: Digest,
        /// Its content's digest.
        found: Digest,
    },
    /// It is signed by nobody we trust.
    #[error("manifest {digest}")]
    Untrusted {
        /// Which.
        digest: Digest,
        /// Why.
        #[source]
        source: Untrusted,
    },
    /// It is no manifest.
    #[error("manifest {digest}")]
    Manifest {
        /// Which.
        digest: Digest,
        /// Why.
        #[source]
        source: ManifestError,
    },
    /// It does not fit with the others.
    #[error("manifest {digest}")]
    Expected {
        /// Which.
        digest: Digest,
        /// Why.
        #[source]
        source: ExpectedError,
    },
    /// The kept copy cannot be read or written.
    #[error("{}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl BaselineError {
    /// The server's refusal or silence, if that is what it is.
    #[must_use]
    pub const fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Fetch { source, .. } => Some(source),
            _ => None,
        }
    }

    /// What came is not to be used, whoever sent it; asking again gives the same.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Untrusted { .. } | Self::Digest { .. } | Self::Manifest { .. } | Self::Expected { .. }
        )
    }
}

/// Whose signatures count.
#[derive(Clone, Debug)]
pub struct Keys {
    /// Sign images.
    pub image: TrustedKeys,
    /// Signs agent layers.
    pub agent_release: TrustedKeys,
    /// Signs jobs.
    pub job: PublicKey,
}

/// Kept manifests, one file each, named by digest.
#[derive(Clone, Debug)]
pub struct ManifestStore {
    folder: PathBuf,
}

impl ManifestStore {
    /// Keeps manifests in `folder`.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(digest.to_string())
    }

    /// Fetches the manifests of a baseline that are not kept yet, checks digests and signatures, and builds what the
    /// node should be. The overlay is signed by nobody: it came from the authenticated server under this digest.
    ///
    /// # Errors
    /// [`BaselineError`]; a manifest that fails is not kept.
    pub async fn fetch(&self, api: &Api, baseline: &Baseline, keys: &Keys) -> Result<Expected, BaselineError> {
        let signers = [
            (baseline.image, Some(&keys.image)),
            (baseline.agent_layer, Some(&keys.agent_release)),
            (baseline.overlay, None),
        ];
        for (digest, key) in signers {
            if !self.path(&digest).exists() {
                self.fetch_one(api, digest, key).await?;
            }
        }
        match self.load(baseline) {
            // A damaged copy was thrown away: once more.
            Err(BaselineError::Digest { digest, .. }) => {
                let key = signers.iter().find(|(of, _)| *of == digest).and_then(|(_, key)| *key);
                self.fetch_one(api, digest, key).await?;
                self.load(baseline)
            }
            result => result,
        }
    }

    async fn fetch_one(&self, api: &Api, digest: Digest, keys: Option<&TrustedKeys>) -> Result<(), BaselineError> {
        let failed = |source| BaselineError::Fetch { digest, source };
        let path = format!("{}/{digest}", paths::MANIFESTS);
        let bytes = api.get_bytes(&path, MANIFEST_BYTES_MAX).await.map_err(failed)?;
        let found = Digest::of(&bytes);
        if found != digest {
            return Err(BaselineError::Digest { digest, found });
        }
        if let Some(keys) = keys {
            let path = format!("{path}/signature");
            let signature = match api.get_bytes(&path, SIGNATURE_BYTES_MAX).await {
                Err(ApiError::Refused { status: 404, .. }) => Vec::new(),
                answer => answer.map_err(failed)?,
            };
            let signature = Signature::from_text(String::from_utf8_lossy(&signature));
            keys.check(&bytes, &signature)
                .map_err(|source| BaselineError::Untrusted { digest, source })?;
        }
        self.put(&digest, &bytes)
    }

    /// Keeps a manifest that was checked.
    ///
    /// # Errors
    /// [`BaselineError::Io`].
    pub fn put(&self, digest: &Digest, bytes: &[u8]) -> Result<(), BaselineError> {
        let path = self.path(digest);
        write_file(&path, bytes).map_err(|source| BaselineError::Io { path, source })
    }

    /// What the node should be, from kept manifests. A damaged one is thrown away.
    ///
    /// # Errors
    /// [`BaselineError`] when one is missing or not as it was kept.
    pub fn load(&self, baseline: &Baseline) -> Result<Expected, BaselineError> {
        let mut builder = ExpectedBuilder::default();
        for digest in baseline.layers() {
            let result = self.load_one(&digest, &mut builder);
            if matches!(result, Err(BaselineError::Digest { .. })) {
                let _ = std::fs::remove_file(self.path(&digest));
            }
            result?;
        }
        Ok(builder.finish())
    }

    fn load_one(&self, digest: &Digest, builder: &mut ExpectedBuilder) -> Result<(), BaselineError> {
        let path = self.path(digest);
        let failed = |source| BaselineError::Io {
            path: path.clone(),
            source,
        };
        // The digest first: what is not what it should be is not even parsed.
        let mut hasher = Hasher::new();
        let mut file = File::open(&path).map_err(failed)?;
        std::io::copy(&mut file, &mut hasher).map_err(failed)?;
        let found = hasher.finish();
        if found != *digest {
            return Err(BaselineError::Digest { digest: *digest, found });
        }
        let file = File::open(&path).map_err(failed)?;
        let misfit = |source| BaselineError::Expected {
            digest: *digest,
            source,
        };
        // Both take the builder, one after the other.
        let builder = std::cell::RefCell::new(builder);
        self.read_entries(
            digest,
            file,
            |header| builder.borrow_mut().layer(header).map_err(misfit),
            |entry| builder.borrow_mut().entry(entry).map_err(misfit),
        )
    }

    /// Decodes a manifest in parts.
    fn read_entries(
        &self,
        digest: &Digest,
        file: File,
        mut on_header: impl FnMut(Header) -> Result<(), BaselineError>,
        mut on_entry: impl FnMut(&Entry) -> Result<(), BaselineError>,
    ) -> Result<(), BaselineError> {
        let failed = |source| BaselineError::Io {
            path: self.path(digest),
            source,
        };
        let wrong = |source| BaselineError::Manifest {
            digest: *digest,
            source,
        };
        let mut reader = BufReader::with_capacity(256 << 10, file);
        let mut text = Vec::new();
        read_lines(&mut reader, &mut text, 1).map_err(failed)?;
        on_header(Manifest::decode(&text).map_err(wrong)?.header)?;
        // The decoder wants a header before each part.
        let header = Manifest::new(Header::new(ManifestKind::Overlay, "part", "0"), Vec::new());
        let header = header.and_then(|manifest| manifest.encode()).map_err(wrong)?;
        loop {
            text.clear();
            text.extend_from_slice(&header);
            if read_lines(&mut reader, &mut text, PART_LINES).map_err(failed)? == 0 {
                return Ok(());
            }
            for entry in Manifest::decode(&text).map_err(wrong)?.entries {
                on_entry(&entry)?;
            }
        }
    }

    /// Modification times of the wanted paths, as the manifests say; the kept digest is not made again.
    ///
    /// # Errors
    /// [`BaselineError`] when a manifest is missing or is none.
    pub fn times(
        &self,
        baseline: &Baseline,
        wanted: &dyn Fn(&TreePath) -> bool,
    ) -> Result<BTreeMap<TreePath, i64>, BaselineError> {
        let mut times = BTreeMap::new();
        for digest in baseline.layers() {
            let path = self.path(&digest);
            let file = File::open(&path).map_err(|source| BaselineError::Io { path, source })?;
            self.read_entries(
                &digest,
                file,
                |_| Ok(()),
                |entry| {
                    if wanted(&entry.path) {
                        times.insert(entry.path.clone(), entry.mtime);
                    }
                    Ok(())
                },
            )?;
        }
        Ok(times)
    }

    /// Throws away all manifests but those of this baseline.
    pub fn retain(&self, baseline: &Baseline) {
        let kept = baseline.layers().map(|digest| digest.to_string());
        let Ok(listing) = std::fs::read_dir(&self.folder) else {
            return;
        };
        for entry in listing.flatten() {
            if !kept.iter().any(|name| entry.file_name() == name.as_str()) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// Reads up to `count` lines of at most [`LINE_BYTES_MAX`] bytes behind what is in `text`.
fn read_lines(reader: &mut impl BufRead, text: &mut Vec<u8>, count: usize) -> std::io::Result<usize> {
    for read in 0..count {
        let limit = LINE_BYTES_MAX as u64 + 1;
        if reader.by_ref().take(limit).read_until(b'\n', text)? == 0 {
            return Ok(read);
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use manifest::{EntryKind, PathClass, Xattrs};
    use protocol::NodeId;

    use super::*;

    fn entries(count: usize) -> Vec<Entry> {
        let entry = |at| Entry {
            path: format!("/etc/{at:06}").parse().unwrap(),
            class: PathClass::Pinned,
            kind: EntryKind::Symlink(at_target(at)),
            mode: 0o777,
            uid: 0,
            gid: 0,
            mtime: 0,
            xattrs: Xattrs::new(),
        };
        (0..count).map(entry).collect()
    }

    fn at_target(at: usize) -> Vec<u8> {
        format!("target-{at}").into_bytes()
    }

    fn kept(store: &ManifestStore, kind: ManifestKind, count: usize) -> Digest {
        let manifest = Manifest::new(Header::new(kind, "x", "1"), entries(count)).unwrap();
        store
            .put(&manifest.digest().unwrap(), &manifest.encode().unwrap())
            .unwrap();
        manifest.digest().unwrap()
    }

    #[test]
    fn manifests_are_loaded_in_parts_and_checked_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let store = ManifestStore::new(folder.path());
        let image = kept(&store, ManifestKind::Os, 2 * PART_LINES + 1);
        let agent = kept(&store, ManifestKind::Agent, PART_LINES);
        let overlay = kept(&store, ManifestKind::Overlay, 0);
        let other = kept(&store, ManifestKind::Overlay, 1);
        let baseline = Baseline::new(NodeId::new(), image, agent, overlay);
        let expected = store.load(&baseline).unwrap();
        assert_eq!(expected.positions().count(), 2 * PART_LINES + 1);
        let last = expected.get(&"/etc/001000".parse().unwrap()).unwrap();
        assert_eq!(last.kind, EntryKind::Symlink(at_target(1000)));
        store.retain(&baseline);
        assert!(!store.path(&other).exists() && store.path(&image).exists());

        let file = store.path(&image);
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[5000] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        assert!(matches!(store.load(&baseline), Err(BaselineError::Digest { .. })));
        assert!(!file.exists(), "a damaged copy is fetched again");
    }

    /// aide/aide#122: a baseline that somebody edited or that is damaged gives an error that says so, wherever it is
    /// touched, and is fetched again; no byte of it makes the agent stumble.
    #[test]
    fn aide_122_a_damaged_baseline_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let store = ManifestStore::new(folder.path());
        let manifest = Manifest::new(Header::new(ManifestKind::Os, "x", "1"), entries(20)).unwrap();
        let (bytes, digest) = (manifest.encode().unwrap(), manifest.digest().unwrap());
        let empty = kept(&store, ManifestKind::Overlay, 0);
        let baseline = Baseline::new(NodeId::new(), digest, empty, empty);
        for at in (0..bytes.len()).step_by(7) {
            let mut edited = bytes.clone();
            edited[at] = edited[at].wrapping_add(1);
            for damaged in [edited.as_slice(), &bytes[..at], &[&bytes[..at], b"\xff\0\n"].concat()] {
                store.put(&digest, damaged).unwrap();
                let error = store.load(&baseline).unwrap_err();
                assert!(error.to_string().contains("the content has digest"), "{error}");
                assert!(!store.path(&digest).exists(), "it is not trusted again");
                // Should it come under the digest that it has, it is no manifest or another one, and never a crash.
                let own = Digest::of(damaged);
                store.put(&own, damaged).unwrap();
                let _ = store.load(&Baseline::new(baseline.node_id, own, empty, empty));
            }
        }
        store.put(&digest, &bytes).unwrap();
        assert_eq!(store.load(&baseline).unwrap().positions().count(), 20);
    }

    #[test]
    fn what_is_not_canonical_is_refused_even_under_its_digest() {
        let folder = tempfile::tempdir().unwrap();
        let store = ManifestStore::new(folder.path());
        let manifest = Manifest::new(Header::new(ManifestKind::Os, "x", "1"), entries(2)).unwrap();
        let text = String::from_utf8(manifest.encode().unwrap()).unwrap();
        let overlay = kept(&store, ManifestKind::Overlay, 0);
        for bad in [
            text.replace("\"uid\":0,\"gid\":0", "\"gid\":0,\"uid\":0"),
            text.trim_end().to_owned(),
            String::new(),
        ] {
            let digest = Digest::of(bad.as_bytes());
            store.put(&digest, bad.as_bytes()).unwrap();
            let baseline = Baseline::new(NodeId::new(), digest, overlay, overlay);
            assert!(matches!(store.load(&baseline), Err(BaselineError::Manifest { .. })));
        }
    }
}
