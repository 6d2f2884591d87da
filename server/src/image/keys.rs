//! The appliance's signing keys: for images, for agent releases, for jobs.
//!
//! Three kinds and not one, because they are worth different things: whoever signs an image decides what nodes become,
//! whoever signs an agent runs code on nodes that are up, whoever signs a job changes one node. They are minisign keys
//! without a password, mode 0600 in a folder of mode 0700, so that `minisign -V` checks what they signed.
//!
//! ```text
//! image.key               signs images; absent where that key is kept on another machine
//! image.pub               the key that signs images now, a copy for people
//! image-keys/<key id>.pub each key whose signatures of images were ever trusted
//! trust.toml              what each of them is worth, and which images were revoked
//! agent-release.key, .pub
//! job.key, .pub
//! ```
//!
//! The folder is the truth: it is read again whenever `trust.toml` has changed, so that a revocation holds for a running
//! server, whoever wrote it there.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use manifest::{Digest, KeyId, KeyPair, ManifestKind, PublicKey, Signature, TrustedKeys, Untrusted};
use time::OffsetDateTime;

use super::trust::{KeyState, Trust, TrustError};

const IMAGE_KEY: &str = "image.key";
const IMAGE_PUB: &str = "image.pub";
const TRUST_FILE: &str = "trust.toml";
const PUBLIC_KEYS: &str = "image-keys";
/// Largest `trust.toml` that is read, in bytes.
const TRUST_BYTES_MAX: u64 = 16 << 20;

/// The signing keys, and what signatures are worth.
#[derive(Debug)]
pub struct Keys {
    /// Signs manifests of the kind `agent`.
    pub agent_release: KeyPair,
    /// Signs remediation jobs.
    pub job: KeyPair,
    dir: PathBuf,
    /// What was read last, and of which file.
    held: Mutex<(Stamp, Arc<Signers>)>,
}

/// Tells one version of a file from the next.
type Stamp = (i64, i64, u64, u64);

/// Whose signatures count.
#[derive(Clone, Debug)]
pub struct Signers {
    /// Keys and revoked images, with all that is known of them.
    pub trust: Trust,
    /// For the kinds `os` and `deployer`.
    pub image: TrustedKeys,
    /// For the kind `agent`.
    pub agent_release: TrustedKeys,
}

impl Signers {
    /// The keys that may sign a manifest of this kind, and their name. `None` for overlays, which travel over mTLS and
    /// are not signed.
    #[must_use]
    pub const fn for_kind(&self, kind: ManifestKind) -> Option<(&'static str, &TrustedKeys)> {
        match kind {
            ManifestKind::Os | ManifestKind::Deployer => Some(("image", &self.image)),
            ManifestKind::Agent => Some(("agent-release", &self.agent_release)),
            ManifestKind::Overlay => None,
        }
    }

    /// The key that signed an image, when its signature counts and the image was not revoked.
    ///
    /// # Errors
    /// Why it must not be used, in a sentence.
    pub fn check(&self, kind: ManifestKind, manifest: &[u8], signature: &Signature) -> Result<KeyId, String> {
        let (_, keys) = self
            .for_kind(kind)
            .ok_or_else(|| format!("images of kind {} are never signed", kind.as_str()))?;
        let key = keys.check(manifest, signature).map_err(|error| error.to_string())?;
        match self.trust.against(Digest::of(manifest)) {
            Some(reason) => Err(reason),
            None => Ok(key),
        }
    }

    /// Why an image with a signature by this key must not be used; `None`: it may be. The signature itself was checked
    /// before.
    #[must_use]
    pub fn against(&self, image: Digest, kind: ManifestKind, signer: KeyId) -> Option<String> {
        if let Some(reason) = self.trust.against(image) {
            return Some(reason);
        }
        let (_, keys) = self.for_kind(kind)?;
        keys.check_id(signer).err().as_ref().map(Untrusted::to_string)
    }
}

/// A key that could not be read or made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Reading or writing failed.
    #[error("key file {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// Others may read the secret key.
    #[error("key file {}: mode {mode:04o} lets others read it, expected 0600", path.display())]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The `.pub` file beside a key belongs to another key.
    #[error("{} does not belong to the secret key beside it", path.display())]
    Pair {
        /// The public key's file.
        path: PathBuf,
    },
    /// The secret key that is here may not sign.
    #[error("{} is key {id}, {problem}", path.display())]
    NoSigner {
        /// The secret key's file.
        path: PathBuf,
        /// The key.
        id: KeyId,
        /// Why it does not sign, and what to do.
        problem: String,
    },
    /// `trust.toml`, or a key it names, is not as it should be.
    #[error("{}: {problem}", path.display())]
    Trust {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A change that is not made.
    #[error(transparent)]
    Refused(#[from] TrustError),
    /// The text is no key.
    #[error("key file {}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: manifest::ManifestError,
    },
}

impl Keys {
    /// Reads the keys from this folder; makes what is missing, the folder too. An image key is made only where there is
    /// neither a secret nor a public one: a folder with `image.pub` alone belongs to a server whose key is elsewhere.
    ///
    /// Two processes that start at once end with the same keys: a key appears under its name complete or not at all,
    /// and the first one stays.
    ///
    /// # Errors
    /// [`KeyError`], which names the file.
    pub fn load_or_create(dir: &Path) -> Result<Self, KeyError> {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(io_error(dir))?;
        image_keys_begin(dir)?;
        let agent_release = key_load_or_create(dir, "agent-release")?;
        let stamp = stamp(dir)?;
        let signers = signers_load(dir, agent_release.public())?;
        Ok(Self {
            job: key_load_or_create(dir, "job")?,
            agent_release,
            dir: dir.to_owned(),
            held: Mutex::new((stamp, Arc::new(signers))),
        })
    }

    /// Whose signatures count now. A `trust.toml` that was damaged since it was read last is named in the log, and what
    /// it said before goes on to hold.
    #[must_use]
    pub fn signers(&self) -> Arc<Signers> {
        let mut held = self.lock();
        if let Err(error) = self.refresh(&mut held) {
            tracing::error!(error = %crate::http::error::chain(&error), "what signatures are worth cannot be read; the last state holds");
        }
        Arc::clone(&held.1)
    }

    /// The key that signs images here, which may; `None`: it is kept on another machine.
    ///
    /// # Errors
    /// [`KeyError::NoSigner`] when the key that is here may not sign; [`KeyError`].
    pub fn image_signer(&self) -> Result<Option<KeyPair>, KeyError> {
        let path = self.dir.join(IMAGE_KEY);
        let Some(key) = secret_find(&path)? else {
            return Ok(None);
        };
        let id = key.public().id().map_err(content_error(&path))?;
        let problem = match self.signers().trust.key(id).map(|key| key.state) {
            Some(KeyState::Active) => return Ok(Some(key)),
            Some(KeyState::Retired) => "which is retired and signs no more: `plumbline key rotate` makes another one",
            Some(KeyState::Revoked) => "which was revoked: `plumbline key rotate` makes another one",
            None => "which trust.toml does not name: `plumbline key add` takes its public half",
        };
        Err(KeyError::NoSigner {
            path,
            id,
            problem: problem.to_owned(),
        })
    }

    /// Changes what signatures are worth, on the disk first. Nobody else changes it meanwhile.
    ///
    /// # Errors
    /// [`KeyError::Refused`], what `change` says; [`KeyError`].
    pub fn change<T>(&self, change: impl FnOnce(&mut Trust) -> Result<T, TrustError>) -> Result<T, KeyError> {
        let mut held = self.lock();
        let _lock = self.lock_folder()?;
        self.refresh(&mut held)?;
        let mut trust = held.1.trust.clone();
        let result = change(&mut trust)?;
        self.write(&mut held, &trust)?;
        Ok(result)
    }

    /// Makes a new image key here, which signs from now on; the one before is retired, and its secret half is gone.
    ///
    /// # Errors
    /// [`KeyError::Refused`] where the key that signs is kept on another machine; [`KeyError`].
    pub fn rotate(&self, now: OffsetDateTime) -> Result<(KeyId, Option<KeyId>), KeyError> {
        let mut held = self.lock();
        let _lock = self.lock_folder()?;
        self.refresh(&mut held)?;
        let path = self.dir.join(IMAGE_KEY);
        let before = secret_find(&path)?;
        let mut trust = held.1.trust.clone();
        if before.is_none() && trust.newest_active().is_some() {
            let text = "the key that signs images is kept on another machine: make the next one there (minisign -G), \
                        then `plumbline key add NEW.pub` and `plumbline key retire OLD`";
            return Err(TrustError::Refused(text.to_owned()).into());
        }
        let before = before.map(|key| key.public().id()).transpose();
        let before = before.map_err(content_error(&path))?;
        let key = KeyPair::generate().map_err(content_error(&path))?;
        let text = key
            .to_secret_text("plumbline image secret key")
            .map_err(content_error(&path))?;
        let id = trust.rotate(before, key.public(), now)?;
        // Should this end between the two, builds say that nobody lists the key that is there, and this is done again.
        file_write(&self.dir, &path, &text, 0o600)?;
        self.write(&mut held, &trust)?;
        Ok((id, before))
    }

    /// Where the public key of this id is kept.
    #[must_use]
    pub fn public_path(&self, id: KeyId) -> PathBuf {
        public_path(&self.dir, id)
    }

    fn lock(&self) -> MutexGuard<'_, (Stamp, Arc<Signers>)> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps other processes from changing the folder until it is dropped.
    fn lock_folder(&self) -> Result<std::fs::File, KeyError> {
        let folder = std::fs::File::open(&self.dir).map_err(io_error(&self.dir))?;
        rustix::fs::flock(&folder, rustix::fs::FlockOperation::LockExclusive)
            .map_err(|error| io_error(&self.dir)(error.into()))?;
        Ok(folder)
    }

    /// Reads the folder again when its file is another one.
    fn refresh(&self, held: &mut (Stamp, Arc<Signers>)) -> Result<(), KeyError> {
        let now = stamp(&self.dir)?;
        if now != held.0 {
            *held = (now, Arc::new(signers_load(&self.dir, self.agent_release.public())?));
        }
        Ok(())
    }

    fn write(&self, held: &mut (Stamp, Arc<Signers>), trust: &Trust) -> Result<(), KeyError> {
        trust_write(&self.dir, trust)?;
        // A secret key that may not sign any more is of no use to anybody but a thief.
        let path = self.dir.join(IMAGE_KEY);
        if let Some(key) = secret_find(&path)? {
            let id = key.public().id().map_err(content_error(&path))?;
            if trust.key(id).is_some_and(|key| key.state != KeyState::Active) {
                std::fs::remove_file(&path).map_err(io_error(&path))?;
            }
        }
        self.image_pub_write(trust)?;
        *held = (
            stamp(&self.dir)?,
            Arc::new(signers_load(&self.dir, self.agent_release.public())?),
        );
        Ok(())
    }

    /// Keeps `image.pub` the public half of the key that signs.
    fn image_pub_write(&self, trust: &Trust) -> Result<(), KeyError> {
        let secret = secret_find(&self.dir.join(IMAGE_KEY))?.map(|key| key.public());
        let public = secret.or_else(|| trust.newest_active().map(|key| key.public.clone()));
        match public {
            Some(public) => file_write(
                &self.dir,
                &self.dir.join(IMAGE_PUB),
                &public_text("image", &public),
                0o644,
            ),
            None => Ok(()),
        }
    }
}

/// Puts an image key and `trust.toml` into a folder that has none yet.
fn image_keys_begin(dir: &Path) -> Result<(), KeyError> {
    let trust_path = dir.join(TRUST_FILE);
    if trust_path.try_exists().map_err(io_error(&trust_path))? {
        return Ok(());
    }
    let public_path = dir.join(IMAGE_PUB);
    let is_offline = !dir.join(IMAGE_KEY).exists() && public_path.exists();
    let public = match is_offline {
        true => public_read(&public_path)?,
        false => key_load_or_create(dir, "image")?.public(),
    };
    let made = std::fs::metadata(&public_path).and_then(|meta| meta.modified());
    let mut trust = Trust::default();
    let id = trust.add(public, OffsetDateTime::from(made.map_err(io_error(&public_path))?))?;
    tracing::info!(key.id = %id, key.offline = is_offline, "images are signed by this key");
    trust_write(dir, &trust)
}

fn trust_write(dir: &Path, trust: &Trust) -> Result<(), KeyError> {
    let folder = dir.join(PUBLIC_KEYS);
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(io_error(&folder))?;
    for key in trust.keys() {
        let name = format!("image key {}", key.id);
        file_create(
            &folder,
            &public_path(dir, key.id),
            &public_text(&name, &key.public),
            0o644,
        )?;
    }
    let path = dir.join(TRUST_FILE);
    let text = trust.text().map_err(|error| KeyError::Trust {
        path: path.clone(),
        problem: error.to_string(),
    })?;
    file_write(dir, &path, &text, 0o600)
}

fn signers_load(dir: &Path, agent_release: PublicKey) -> Result<Signers, KeyError> {
    let path = dir.join(TRUST_FILE);
    let wrong = |problem: String| KeyError::Trust {
        path: path.clone(),
        problem,
    };
    let size = std::fs::metadata(&path).map_err(io_error(&path))?.len();
    if size > TRUST_BYTES_MAX {
        return Err(wrong(format!("{size} bytes, expected at most {TRUST_BYTES_MAX}")));
    }
    let text = std::fs::read_to_string(&path).map_err(io_error(&path))?;
    let public = |id: KeyId| {
        let path = public_path(dir, id);
        let key = public_read(&path).map_err(|error| crate::http::error::chain(&error))?;
        match key.id() {
            Ok(found) if found == id => Ok(key),
            Ok(found) => Err(format!("{} holds key {found}", path.display())),
            Err(error) => Err(error.to_string()),
        }
    };
    let trust = Trust::parse(&text, public).map_err(wrong)?;
    Ok(Signers {
        image: trust.trusted().map_err(content_error(&path))?,
        agent_release: TrustedKeys::of(agent_release).map_err(content_error(&path))?,
        trust,
    })
}

fn stamp(dir: &Path) -> Result<Stamp, KeyError> {
    let path = dir.join(TRUST_FILE);
    let meta = std::fs::metadata(&path).map_err(io_error(&path))?;
    Ok((meta.mtime(), meta.mtime_nsec(), meta.size(), meta.ino()))
}

fn public_path(dir: &Path, id: KeyId) -> PathBuf {
    dir.join(PUBLIC_KEYS).join(format!("{id}.pub"))
}

fn public_read(path: &Path) -> Result<PublicKey, KeyError> {
    let text = std::fs::read_to_string(path).map_err(io_error(path))?;
    PublicKey::parse(&text).map_err(content_error(path))
}

fn public_text(name: &str, key: &PublicKey) -> String {
    format!("untrusted comment: plumbline {name} public key\n{}\n", key.as_str())
}

/// The secret key in this file; `None` when there is none.
fn secret_find(path: &Path) -> Result<Option<KeyPair>, KeyError> {
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io_error(path)(error)),
    };
    let mode = meta.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Mode {
            path: path.to_owned(),
            mode,
        });
    }
    let text = std::fs::read_to_string(path).map_err(io_error(path))?;
    KeyPair::from_secret_text(&text).map(Some).map_err(content_error(path))
}

fn io_error(path: &Path) -> impl Fn(std::io::Error) -> KeyError + '_ {
    |source| KeyError::Io {
        path: path.to_owned(),
        source,
    }
}

fn content_error(path: &Path) -> impl Fn(manifest::ManifestError) -> KeyError + '_ {
    |source| KeyError::Content {
        path: path.to_owned(),
        source,
    }
}

fn key_load_or_create(dir: &Path, name: &str) -> Result<KeyPair, KeyError> {
    let secret_path = dir.join(format!("{name}.key"));
    if !secret_path.try_exists().map_err(io_error(&secret_path))? {
        let key = KeyPair::generate().map_err(content_error(&secret_path))?;
        let text = key.to_secret_text(&format!("plumbline {name} secret key"));
        file_create(dir, &secret_path, &text.map_err(content_error(&secret_path))?, 0o600)?;
        tracing::info!(key.name = name, key.path = %secret_path.display(), "made a signing key");
    }
    let key = secret_find(&secret_path)?.ok_or_else(|| io_error(&secret_path)(std::io::ErrorKind::NotFound.into()))?;
    let public_path = dir.join(format!("{name}.pub"));
    file_create(dir, &public_path, &public_text(name, &key.public()), 0o644)?;
    if public_read(&public_path)? != key.public() {
        return Err(KeyError::Pair { path: public_path });
    }
    Ok(key)
}

/// Writes a file that takes the place of one that is there, complete or not at all.
fn file_write(dir: &Path, path: &Path, text: &str, mode: u32) -> Result<(), KeyError> {
    let failed = io_error(path);
    let mut file = tempfile::Builder::new()
        .permissions(std::fs::Permissions::from_mode(mode))
        .tempfile_in(dir)
        .map_err(&failed)?;
    file.write_all(text.as_bytes()).map_err(&failed)?;
    file.as_file().sync_all().map_err(&failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    std::fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(&failed)
}

/// Writes a file that appears complete or not at all; one that is there already is left alone.
fn file_create(dir: &Path, path: &Path, text: &str, mode: u32) -> Result<(), KeyError> {
    let failed = io_error(path);
    let mut file = tempfile::Builder::new()
        .permissions(std::fs::Permissions::from_mode(mode))
        .tempfile_in(dir)
        .map_err(&failed)?;
    file.write_all(text.as_bytes()).map_err(&failed)?;
    file.as_file().sync_all().map_err(&failed)?;
    match file.persist_noclobber(path) {
        Ok(_) => std::fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(&failed),
        Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(failed(error.error)),
    }
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
