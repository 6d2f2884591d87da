//! Boot tokens: `<id>.<proof>`, the proof derived from the id by a key of the appliance.
//!
//! Nothing that would open a deployment is stored: a copy of the database is no copy of the tokens. The same id gives
//! the same token, so a script fetched twice carries the same one.

use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use uuid::Uuid;

use crate::secret_file::{self, FileError};

/// Derives and checks tokens.
#[derive(Clone)]
pub struct TokenKey(Hmac<Sha256>);

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKey")
    }
}

impl TokenKey {
    /// Reads the key from this folder, or makes it.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn load_or_create(dir: &Path) -> Result<Self, FileError> {
        let path = dir.join("token.key");
        let text = secret_file::load_or_create(&path, || {
            Ok::<_, std::convert::Infallible>(hex::encode(rand::random::<[u8; 32]>()))
        })?;
        let wrong = |problem: String| FileError::Make {
            path: path.clone(),
            problem,
        };
        let bytes = hex::decode(text.trim()).map_err(|error| wrong(error.to_string()))?;
        Hmac::new_from_slice(&bytes)
            .map(Self)
            .map_err(|error| wrong(error.to_string()))
    }

    /// The token of this id.
    #[must_use]
    pub fn token(&self, id: Uuid) -> String {
        format!("{}.{}", id.simple(), hex::encode(self.mac(id).finalize().into_bytes()))
    }

    /// The id, if the token is one of ours.
    #[must_use]
    pub fn check(&self, token: &str) -> Option<Uuid> {
        let (id, proof) = token.split_once('.')?;
        let id = Uuid::parse_str(id).ok()?;
        let proof = hex::decode(proof).ok()?;
        self.mac(id).verify_slice(&proof).ok()?;
        Some(id)
    }

    fn mac(&self, id: Uuid) -> Hmac<Sha256> {
        let mut mac = self.0.clone();
        mac.update(b"plumbline-boot-token-v1\0");
        mac.update(id.as_bytes());
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_tokens_are_taken() {
        let dir = tempfile::tempdir().unwrap();
        let key = TokenKey::load_or_create(dir.path()).unwrap();
        let id = Uuid::new_v4();
        let token = key.token(id);
        assert_eq!(
            TokenKey::load_or_create(dir.path()).unwrap().check(&token),
            Some(id),
            "a restart keeps the key"
        );
        assert_eq!(key.check(&token.replace(&token[..2], "zz")), None);
        let mut forged = token.clone();
        let last = if forged.pop() == Some('0') { '1' } else { '0' };
        forged.push(last);
        assert_eq!(key.check(&forged), None);
        for bad in ["", ".", "x.y", &id.simple().to_string()] {
            assert_eq!(key.check(bad), None, "{bad}");
        }
    }
}
