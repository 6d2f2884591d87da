//! Whose signatures count: a set of keys, and those that were revoked.
//!
//! A signature names the key that made it by minisign's key id, eight bytes that nothing protects: the id only chooses
//! which key is tried, and with what words a signature is refused. A signature holds when a key of the set verifies it.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::{ManifestError, PublicKey, Signature};

/// Most keys in one set, trusted and revoked ones each.
pub const TRUSTED_KEYS_MAX: usize = 32;

/// minisign's id of a key, shown as minisign shows it: 16 upper-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(u64);

impl KeyId {
    /// The id in the eight bytes behind the algorithm, of a key or a signature in base64.
    fn of_base64(line: &str) -> Option<Self> {
        let bytes = STANDARD.decode(line.trim()).ok()?;
        let id = bytes.get(2..10)?.try_into().ok()?;
        // As minisign prints it: the bytes are a little-endian number.
        Some(Self(u64::from_le_bytes(id)))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}", self.0)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

impl FromStr for KeyId {
    type Err = ManifestError;

    /// Takes 16 hexadecimal digits of either case.
    fn from_str(text: &str) -> Result<Self, ManifestError> {
        let is_id = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match u64::from_str_radix(text, 16) {
            Ok(id) if is_id => Ok(Self(id)),
            _ => {
                let start: String = text.chars().take(40).collect();
                Err(ManifestError::Key(format!(
                    "key id {start:?}: expected 16 hexadecimal digits"
                )))
            }
        }
    }
}

impl PublicKey {
    /// The key's id.
    ///
    /// # Errors
    /// Never for a key that was parsed; [`ManifestError::Key`] says so otherwise.
    pub fn id(&self) -> Result<KeyId, ManifestError> {
        KeyId::of_base64(self.as_str()).ok_or_else(|| ManifestError::Key("a public key without an id".to_owned()))
    }
}

impl Signature {
    /// The id of the key that made it, by its own word. `None` when the text is no minisign signature.
    #[must_use]
    pub fn key_id(&self) -> Option<KeyId> {
        KeyId::of_base64(self.as_str().lines().nth(1)?)
    }
}

/// Why a signature does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// There is none.
    #[error("it is not signed")]
    Unsigned,
    /// What stands in its place is none.
    #[error("its signature is no minisign signature")]
    Malformed,
    /// By a key that was revoked.
    #[error("it is signed by key {key}, which was revoked: {reason}")]
    Revoked {
        /// The key.
        key: KeyId,
        /// Why it was revoked.
        reason: String,
    },
    /// By a key that is not in the set.
    #[error("it is signed by key {key}, which is not trusted here; trusted: {}", list(.trusted))]
    Unknown {
        /// The key that the signature names.
        key: KeyId,
        /// The keys of the set.
        trusted: Vec<KeyId>,
    },
    /// Other bytes than those that were signed, or a forged signature.
    #[error(
        "the signature by key {key} does not hold for it: it was changed after it was signed, or the signature is forged"
    )]
    Changed {
        /// The key that the signature names.
        key: KeyId,
    },
}

fn list(keys: &[KeyId]) -> String {
    match keys.is_empty() {
        true => "none".to_owned(),
        false => keys.iter().map(KeyId::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// The keys whose signatures count, and the ones that were revoked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedKeys {
    trusted: Vec<(KeyId, PublicKey)>,
    revoked: Vec<(KeyId, String)>,
}

impl TrustedKeys {
    /// A set of one key.
    ///
    /// # Errors
    /// As [`TrustedKeys::new`].
    pub fn of(key: PublicKey) -> Result<Self, ManifestError> {
        Self::new([key], [])
    }

    /// A set. A key that is also among the revoked ones (id and reason) is revoked.
    ///
    /// # Errors
    /// [`ManifestError::Limit`] beyond [`TRUSTED_KEYS_MAX`].
    pub fn new(
        trusted: impl IntoIterator<Item = PublicKey>,
        revoked: impl IntoIterator<Item = (KeyId, String)>,
    ) -> Result<Self, ManifestError> {
        let bounded = |what, found: usize| match found > TRUSTED_KEYS_MAX {
            true => Err(ManifestError::Limit {
                what,
                found: found as u64,
                limit: TRUSTED_KEYS_MAX as u64,
            }),
            false => Ok(()),
        };
        let revoked: Vec<_> = revoked.into_iter().take(TRUSTED_KEYS_MAX + 1).collect();
        bounded("revoked keys", revoked.len())?;
        let mut set = Vec::new();
        for key in trusted.into_iter().take(TRUSTED_KEYS_MAX + 1) {
            set.push((key.id()?, key));
        }
        bounded("trusted keys", set.len())?;
        set.retain(|(id, _)| revoked.iter().all(|(revoked, _)| revoked != id));
        Ok(Self { trusted: set, revoked })
    }

    /// The keys that count.
    pub fn trusted(&self) -> impl Iterator<Item = &PublicKey> {
        self.trusted.iter().map(|(_, key)| key)
    }

    /// The keys that were revoked, and why.
    #[must_use]
    pub fn revoked(&self) -> &[(KeyId, String)] {
        &self.revoked
    }

    /// Whether a key of this id counts, going by the id alone.
    ///
    /// # Errors
    /// [`Untrusted::Revoked`], [`Untrusted::Unknown`].
    pub fn check_id(&self, key: KeyId) -> Result<&PublicKey, Untrusted> {
        if let Some((_, reason)) = self.revoked.iter().find(|(revoked, _)| *revoked == key) {
            let reason = reason.clone();
            return Err(Untrusted::Revoked { key, reason });
        }
        let found = self.trusted.iter().find(|(id, _)| *id == key);
        found.map(|(_, key)| key).ok_or_else(|| Untrusted::Unknown {
            key,
            trusted: self.trusted.iter().map(|(id, _)| *id).collect(),
        })
    }

    /// The key that signed these bytes, when it counts.
    ///
    /// # Errors
    /// [`Untrusted`].
    pub fn check(&self, bytes: &[u8], signature: &Signature) -> Result<KeyId, Untrusted> {
        if signature.as_str().trim().is_empty() {
            return Err(Untrusted::Unsigned);
        }
        let key = signature.key_id().ok_or(Untrusted::Malformed)?;
        let found = self.check_id(key)?;
        found.verify(bytes, signature).map_err(|_| Untrusted::Changed { key })?;
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyPair;

    #[test]
    fn a_signature_counts_by_a_key_of_the_set_alone() {
        let [current, older, stolen, foreign] = [(); 4].map(|()| KeyPair::generate().unwrap());
        let id = |key: &KeyPair| key.public().id().unwrap();
        let keys = TrustedKeys::new(
            // A key that is in both lists is revoked.
            [current.public(), older.public(), stolen.public()],
            [(id(&stolen), "the laptop was stolen".to_owned())],
        )
        .unwrap();
        let by = |key: &KeyPair| key.sign(b"manifest", "x").unwrap();
        assert_eq!(keys.check(b"manifest", &by(&current)), Ok(id(&current)));
        assert_eq!(keys.check(b"manifest", &by(&older)), Ok(id(&older)));
        assert_eq!(keys.trusted().count(), 2);

        // Somebody else's signature under the id of a trusted key: the id is in no way protected.
        let (own, other) = (by(&current), by(&foreign));
        let line = |signature: &Signature| STANDARD.decode(signature.as_str().lines().nth(1).unwrap()).unwrap();
        let mut forged = line(&other);
        forged[2..10].copy_from_slice(&line(&own)[2..10]);
        let forged = other
            .as_str()
            .replace(other.as_str().lines().nth(1).unwrap(), &STANDARD.encode(forged));

        for (bytes, signature, words) in [
            (b"manifest", Signature::from_text(" \n"), "not signed"),
            (
                b"manifest",
                Signature::from_text("a\nb\nc\nd\n"),
                "no minisign signature",
            ),
            (b"manifesT", by(&current), "changed after it was signed"),
            (b"manifest", Signature::from_text(forged), "does not hold"),
            (b"manifest", by(&stolen), "revoked: the laptop was stolen"),
            (b"manifest", by(&foreign), "not trusted here; trusted: "),
        ] {
            let error = keys.check(bytes, &signature).unwrap_err().to_string();
            assert!(error.contains(words), "{error} should say {words}");
        }
        let error = keys.check(b"manifest", &by(&foreign)).unwrap_err().to_string();
        for named in [&foreign, &current, &older] {
            assert!(error.contains(&id(named).to_string()), "{error}");
        }
    }

    #[test]
    fn ids_are_written_as_minisign_writes_them() {
        // The key of minisign's own releases, whose comment gives the id.
        let text = "untrusted comment: minisign public key E7620F1842B4E81F\n\
                    RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3\n";
        let id = PublicKey::parse(text).unwrap().id().unwrap();
        assert_eq!(id.to_string(), "E7620F1842B4E81F");
        assert_eq!("e7620f1842b4e81f".parse::<KeyId>().unwrap(), id);
        for wrong in ["", "E7620F1842B4E81", "+7620F1842B4E81F", "hello hello hell"] {
            assert!(wrong.parse::<KeyId>().is_err(), "{wrong}");
        }
        let key = KeyPair::generate().unwrap();
        assert_eq!(key.sign(b"x", "x").unwrap().key_id(), Some(key.public().id().unwrap()));
    }

    #[test]
    fn sets_are_bounded() {
        let key = KeyPair::generate().unwrap().public();
        assert!(TrustedKeys::new(vec![key.clone(); TRUSTED_KEYS_MAX], []).is_ok());
        assert!(TrustedKeys::new(vec![key; TRUSTED_KEYS_MAX + 1], []).is_err());
    }
}
