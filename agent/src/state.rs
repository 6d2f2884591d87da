//! What the agent remembers between two starts.
//!
//! All of it can be made anew: a file that is missing or damaged costs a full report, never a wrong one. The folder
//! lies under `/var/lib/plumbline`, which images class as volatile, so that remembering is no drift.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use drift::{Difference, SecretKey};
use manifest::Digest;
use protocol::latest::{Baseline, ImageTrust, SecretDigestKey};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The state that the server has confirmed last; deltas build on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {
    /// Baseline it was compared with.
    pub baseline: Digest,
    /// Digest over the differences.
    pub state: Digest,
    /// The differences.
    pub differences: Vec<Difference>,
}

const SECRET_KEY: &str = "secret-digest-key";

/// The folder that keeps it.
#[derive(Clone, Debug)]
pub struct StateFolder {
    folder: PathBuf,
}

impl StateFolder {
    /// Keeps state in `folder`, which is made if need be.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn open(folder: &Path) -> std::io::Result<Self> {
        std::fs::create_dir_all(folder.join("manifests"))?;
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    /// The folder itself, for the digests of files.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Where manifests are kept.
    #[must_use]
    pub fn manifests(&self) -> PathBuf {
        self.folder.join("manifests")
    }

    /// Where the file lists of packages are kept.
    #[must_use]
    pub fn package_lists(&self) -> PathBuf {
        self.folder.join("package-files")
    }

    /// The baseline held last.
    #[must_use]
    pub fn baseline(&self) -> Option<Baseline> {
        let baseline: Baseline = self.read("baseline.json")?;
        let again = Baseline::new(baseline.node_id, baseline.image, baseline.agent_layer, baseline.overlay);
        (again == baseline).then_some(baseline)
    }

    /// Remembers the baseline.
    pub fn keep_baseline(&self, baseline: &Baseline) {
        self.write("baseline.json", baseline);
    }

    /// The state acknowledged last.
    #[must_use]
    pub fn acknowledged(&self) -> Option<Acknowledged> {
        let acknowledged: Acknowledged = self.read("acknowledged.json")?;
        (drift::state_digest(&acknowledged.differences) == acknowledged.state).then_some(acknowledged)
    }

    /// Remembers what the server has acknowledged.
    pub fn keep_acknowledged(&self, acknowledged: &Acknowledged) {
        self.write("acknowledged.json", acknowledged);
    }

    /// The key of the keyed digests of secret files.
    #[must_use]
    pub fn secret_key(&self) -> Option<SecretKey> {
        SecretKey::parse(&std::fs::read_to_string(self.folder.join(SECRET_KEY)).ok()?)
    }

    /// Remembers that key, readable by root only.
    pub fn keep_secret_key(&self, key: &SecretDigestKey) {
        if let Err(error) = write_file(&self.folder.join(SECRET_KEY), key.key.as_bytes()) {
            tracing::warn!(file = SECRET_KEY, %error, "state is not kept");
        }
    }

    /// What the server said last of signatures, and the name it gave that.
    #[must_use]
    pub fn trust(&self) -> Option<(Digest, ImageTrust)> {
        self.read("trust.json")
    }

    /// Remembers it, so that what was revoked stays so while the server is away.
    pub fn keep_trust(&self, name: Digest, trust: &ImageTrust) {
        self.write("trust.json", &(name, trust));
    }

    /// The restart into the network that was carried out last.
    #[must_use]
    pub fn restart_done(&self) -> Option<Uuid> {
        self.read("restart-done.json")
    }

    /// Remembers a restart, before it is carried out.
    ///
    /// # Errors
    /// When it is not on the disk: then the machine must not be restarted for it, or it might be again and again.
    pub fn keep_restart_done(&self, id: Uuid) -> std::io::Result<()> {
        let bytes = serde_json::to_vec(&id).map_err(std::io::Error::other)?;
        write_file(&self.folder.join("restart-done.json"), &bytes)
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let bytes = std::fs::read(self.folder.join(name)).ok()?;
        match serde_json::from_slice(&bytes) {
            Ok(value) => Some(value),
            Err(error) => {
                tracing::warn!(file = name, %error, "kept state is damaged and left aside");
                None
            }
        }
    }

    fn write<T: Serialize>(&self, name: &str, value: &T) {
        let written = serde_json::to_vec(value)
            .map_err(std::io::Error::other)
            .and_then(|bytes| write_file(&self.folder.join(name), &bytes));
        if let Err(error) = written {
            tracing::warn!(file = name, %error, "state is not kept");
        }
    }
}

/// Writes a file whole or not at all, readable by root only.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let next = path.with_added_extension("new");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&next)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    std::fs::rename(&next, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use protocol::NodeId;

    use super::*;

    #[test]
    fn the_key_of_secrets_is_for_root_alone() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::open(folder.path()).unwrap();
        assert_eq!(state.secret_key(), None);
        let key = "0b".repeat(32);
        state.keep_secret_key(&SecretDigestKey { key });
        assert_eq!(state.secret_key(), Some(SecretKey::new([0x0b; 32])));
        let mode = std::fs::metadata(folder.path().join(SECRET_KEY))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    /// aide/aide#122: what somebody edited is forgotten and made anew.
    #[test]
    fn aide_122_state_survives_a_restart_and_damage_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::open(folder.path()).unwrap();
        assert_eq!(state.acknowledged(), None);
        let digest = Digest::of(b"x");
        let acknowledged = Acknowledged {
            baseline: digest,
            state: drift::state_digest([]),
            differences: Vec::new(),
        };
        state.keep_acknowledged(&acknowledged);
        let baseline = Baseline::new(NodeId::new(), digest, digest, digest);
        state.keep_baseline(&baseline);
        let again = StateFolder::open(folder.path()).unwrap();
        assert_eq!(again.acknowledged(), Some(acknowledged.clone()));
        assert_eq!(again.baseline(), Some(baseline.clone()));

        state.keep_acknowledged(&Acknowledged {
            state: digest,
            ..acknowledged
        });
        assert_eq!(state.acknowledged(), None, "its digest is not that of its differences");
        state.keep_baseline(&Baseline {
            overlay: Digest::of(b"y"),
            ..baseline
        });
        assert_eq!(state.baseline(), None);
        std::fs::write(folder.path().join("baseline.json"), "{").unwrap();
        assert_eq!(state.baseline(), None);
    }
}
