//! Whose signatures of images count, as the server says it over mTLS.

use manifest::{Digest, KeyId, ManifestError, PublicKey, TrustedKeys};
use serde::{Deserialize, Serialize};

/// What signatures of images, and one image in particular, are worth now. It comes over mTLS alone, and what it takes
/// away holds at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageTrust {
    /// Public keys whose signatures of images count, minisign's base64 lines; at most
    /// [`manifest::TRUSTED_KEYS_MAX`].
    pub image_keys: Vec<String>,
    /// Keys that were revoked; at most as many.
    #[serde(default)]
    pub revoked_keys: Vec<RevokedKey>,
    /// The image it is about, when that must not be used any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_image: Option<RevokedImage>,
}

/// A key that verifies nothing any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokedKey {
    /// minisign's key id, 16 hexadecimal digits.
    pub id: String,
    /// Why, for people.
    pub reason: String,
}

/// An image version that must not be used any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokedImage {
    /// Manifest digest.
    pub image: Digest,
    /// Why, for people, in a sentence that follows "image X:".
    pub reason: String,
}

impl ImageTrust {
    /// The set of keys.
    ///
    /// # Errors
    /// [`ManifestError::Key`] for a line that is no key or id, [`ManifestError::Limit`].
    pub fn keys(&self) -> Result<TrustedKeys, ManifestError> {
        let mut revoked = Vec::new();
        for key in &self.revoked_keys {
            revoked.push((key.id.parse::<KeyId>()?, key.reason.clone()));
        }
        let keys: Result<Vec<_>, _> = self.image_keys.iter().map(|line| PublicKey::parse(line)).collect();
        TrustedKeys::new(keys?, revoked)
    }

    /// Why this image must not be used, if that is so.
    #[must_use]
    pub fn against(&self, image: Digest) -> Option<&str> {
        let revoked = self.revoked_image.as_ref().filter(|revoked| revoked.image == image);
        revoked.map(|revoked| revoked.reason.as_str())
    }
}
