//! The appliance's signing keys: one for images, one for agent releases, one for jobs.
//!
//! Three keys and not one, because they are worth different things: whoever signs an image decides what nodes become,
//! whoever signs an agent runs code on nodes that are up, whoever signs a job changes one node. They are minisign keys
//! without a password, mode 0600 in a folder of mode 0700, so that `minisign -V` checks what they signed.

use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use manifest::{KeyPair, ManifestKind, PublicKey};

/// The signing keys.
#[derive(Debug)]
pub struct Keys {
    /// Signs manifests of the kinds `os` and `deployer`.
    pub image: KeyPair,
    /// Signs manifests of the kind `agent`.
    pub agent_release: KeyPair,
    /// Signs remediation jobs.
    pub job: KeyPair,
}

/// The public keys that an image may be signed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedKeys {
    /// For the kinds `os` and `deployer`.
    pub image: PublicKey,
    /// For the kind `agent`.
    pub agent_release: PublicKey,
}

impl TrustedKeys {
    /// The one key that may sign a manifest of this kind, and its name. `None` for overlays, which travel over mTLS
    /// and are not signed.
    #[must_use]
    pub const fn for_kind(&self, kind: ManifestKind) -> Option<(&'static str, &PublicKey)> {
        match kind {
            ManifestKind::Os | ManifestKind::Deployer => Some(("image", &self.image)),
            ManifestKind::Agent => Some(("agent-release", &self.agent_release)),
            ManifestKind::Overlay => None,
        }
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
    /// Reads `image.key`, `agent-release.key` and `job.key` from this folder; makes what is missing, the folder too.
    ///
    /// Two processes that start at once end with the same keys: a key appears under its name complete or not at all,
    /// and the first one stays.
    ///
    /// # Errors
    /// [`KeyError`], which names the file.
    pub fn load_or_create(dir: &Path) -> Result<Self, KeyError> {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(io_error(dir))?;
        Ok(Self {
            image: key_load_or_create(dir, "image")?,
            agent_release: key_load_or_create(dir, "agent-release")?,
            job: key_load_or_create(dir, "job")?,
        })
    }

    /// The public halves that images are checked with.
    #[must_use]
    pub fn trusted(&self) -> TrustedKeys {
        TrustedKeys {
            image: self.image.public(),
            agent_release: self.agent_release.public(),
        }
    }
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
    let mode = std::fs::metadata(&secret_path)
        .map_err(io_error(&secret_path))?
        .permissions()
        .mode()
        & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Mode {
            path: secret_path,
            mode,
        });
    }
    let text = std::fs::read_to_string(&secret_path).map_err(io_error(&secret_path))?;
    let key = KeyPair::from_secret_text(&text).map_err(content_error(&secret_path))?;

    let public_path = dir.join(format!("{name}.pub"));
    let text = format!(
        "untrusted comment: plumbline {name} public key\n{}\n",
        key.public().as_str()
    );
    file_create(dir, &public_path, &text, 0o644)?;
    let found = std::fs::read_to_string(&public_path).map_err(io_error(&public_path))?;
    if PublicKey::parse(&found).map_err(content_error(&public_path))? != key.public() {
        return Err(KeyError::Pair { path: public_path });
    }
    Ok(key)
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
mod tests {
    use super::*;

    #[test]
    fn keys_are_made_once_private_and_distinct() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("keys");
        let first = Keys::load_or_create(&dir).unwrap();
        let second = Keys::load_or_create(&dir).unwrap();
        assert_eq!(first.trusted(), second.trusted());
        assert_eq!(first.job.public(), second.job.public());
        assert_ne!(first.image.public(), first.agent_release.public());
        assert_ne!(first.image.public(), first.job.public());
        for name in ["image", "agent-release", "job"] {
            let mode = std::fs::metadata(dir.join(format!("{name}.key")))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o7777, 0o600);
            let public = std::fs::read_to_string(dir.join(format!("{name}.pub"))).unwrap();
            PublicKey::parse(&public).unwrap();
        }
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 6, "nothing temporary is left");
    }

    #[test]
    fn a_key_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        Keys::load_or_create(dir).unwrap();
        std::fs::set_permissions(dir.join("job.key"), std::fs::Permissions::from_mode(0o644)).unwrap();
        let error = Keys::load_or_create(dir).unwrap_err().to_string();
        assert!(error.contains("job.key") && error.contains("0600"), "{error}");
    }

    #[test]
    fn an_exchanged_public_key_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        Keys::load_or_create(dir).unwrap();
        std::fs::copy(dir.join("job.pub"), dir.join("image.pub")).unwrap();
        assert!(matches!(Keys::load_or_create(dir), Err(KeyError::Pair { .. })));
    }
}
