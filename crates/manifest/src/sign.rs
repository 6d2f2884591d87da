//! Signatures in minisign's format, so that people can check an image with a tool they have.

use std::io::Cursor;

use crate::{Digest, ManifestError};

/// A signing key without a password, as the appliance keeps it (mode 0600 in its data folder).
#[must_use]
pub struct KeyPair {
    inner: minisign::KeyPair,
}

impl KeyPair {
    /// Makes a new key from the system's randomness.
    ///
    /// # Errors
    /// [`ManifestError::Key`] when no randomness is to be had.
    pub fn generate() -> Result<Self, ManifestError> {
        let inner = minisign::KeyPair::generate_unencrypted_keypair().map_err(|e| ManifestError::Key(e.to_string()))?;
        Ok(Self { inner })
    }

    /// The secret key's text, to be kept in a file of mode 0600.
    ///
    /// # Errors
    /// [`ManifestError::Key`] when the key cannot be written.
    pub fn to_secret_text(&self, comment: &str) -> Result<String, ManifestError> {
        let text = self
            .inner
            .sk
            .to_box(Some(comment))
            .map_err(|e| ManifestError::Key(e.to_string()))?;
        Ok(text.into_string())
    }

    /// Reads a secret key's text.
    ///
    /// # Errors
    /// [`ManifestError::Key`] when the text is no unencrypted minisign secret key.
    pub fn from_secret_text(text: &str) -> Result<Self, ManifestError> {
        let wrong = |e: minisign::PError| ManifestError::Key(e.to_string());
        let secret = minisign::SecretKeyBox::from_string(text).map_err(wrong)?;
        let sk = secret.into_unencrypted_secret_key().map_err(wrong)?;
        let pk = minisign::PublicKey::from_secret_key(&sk).map_err(wrong)?;
        Ok(Self {
            inner: minisign::KeyPair { pk, sk },
        })
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.inner.pk.to_base64())
    }

    /// Signs bytes. `comment` is covered by the signature and shown by `minisign -V`.
    ///
    /// # Errors
    /// [`ManifestError::Signature`] when signing fails.
    pub fn sign(&self, bytes: &[u8], comment: &str) -> Result<Signature, ManifestError> {
        let signature = minisign::sign(
            Some(&self.inner.pk),
            &self.inner.sk,
            Cursor::new(bytes),
            Some(comment),
            None,
        )
        .map_err(|e| ManifestError::Signature(e.to_string()))?;
        Ok(Signature(signature.into_string()))
    }
}

impl std::fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyPair({})", self.public().as_str())
    }
}

/// A public key: minisign's base64 line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(String);

impl PublicKey {
    /// Takes minisign's base64 line, or a whole `.pub` file.
    ///
    /// # Errors
    /// [`ManifestError::Key`] when the text is no minisign public key.
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        let line = text
            .lines()
            .map(str::trim)
            .rfind(|line| !line.is_empty() && !line.starts_with("untrusted"));
        let line =
            line.ok_or_else(|| ManifestError::Key("expected a minisign public key, found nothing".to_owned()))?;
        minisign_verify::PublicKey::from_base64(line).map_err(|e| ManifestError::Key(e.to_string()))?;
        Ok(Self(line.to_owned()))
    }

    /// The base64 line.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Checks a signature over these bytes.
    ///
    /// # Errors
    /// [`ManifestError::Signature`] when it was made by another key or over other bytes.
    pub fn verify(&self, bytes: &[u8], signature: &Signature) -> Result<(), ManifestError> {
        let key = minisign_verify::PublicKey::from_base64(&self.0).map_err(|e| ManifestError::Key(e.to_string()))?;
        let parsed = minisign_verify::Signature::decode(&signature.0)
            .map_err(|e| ManifestError::Signature(format!("not a minisign signature: {e}")))?;
        key.verify(bytes, &parsed, false).map_err(|e| {
            ManifestError::Signature(format!(
                "does not match key {} over sha256 {}: {e}",
                self.0,
                Digest::of(bytes)
            ))
        })
    }
}

/// A detached signature: the text of a `.minisig` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature(String);

impl Signature {
    /// Takes the text of a `.minisig` file; it is only understood when verified.
    #[must_use]
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_holds_for_its_bytes_and_key_only() {
        let key = KeyPair::generate().unwrap();
        let signature = key.sign(b"manifest", "image x").unwrap();
        key.public().verify(b"manifest", &signature).unwrap();
        assert!(key.public().verify(b"manifesT", &signature).is_err());
        assert!(
            KeyPair::generate()
                .unwrap()
                .public()
                .verify(b"manifest", &signature)
                .is_err()
        );
        assert!(
            key.public()
                .verify(b"manifest", &Signature::from_text("hello"))
                .is_err()
        );
        let forged = Signature::from_text(signature.as_str().replace("image x", "image y"));
        assert!(
            key.public().verify(b"manifest", &forged).is_err(),
            "the comment is covered"
        );
    }

    #[test]
    fn keys_survive_their_text() {
        let key = KeyPair::generate().unwrap();
        let again = KeyPair::from_secret_text(&key.to_secret_text("image key").unwrap()).unwrap();
        assert_eq!(again.public(), key.public());
        assert_eq!(PublicKey::parse(key.public().as_str()).unwrap(), key.public());
        assert!(PublicKey::parse("hello").is_err());
        assert!(KeyPair::from_secret_text("hello").is_err());
    }
}
