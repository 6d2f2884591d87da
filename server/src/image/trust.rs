//! What signatures of images are worth: the keys with their states, and the images that were revoked. Pure.
//!
//! It is kept as `trust.toml`, a file that people can read, beside the public keys in minisign's own form. A key is
//! `active` (it signs and verifies), `retired` (it verifies what it has signed, and signs no more) or `revoked` (nothing
//! it has ever signed counts). States only ever go in that direction, and nothing takes a revocation back: what was
//! revoked by mistake is signed again by another key, or built again.

use manifest::{Digest, KeyId, ManifestError, PublicKey, TRUSTED_KEYS_MAX, TrustedKeys};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// Most keys, in any state.
pub const KEYS_MAX: usize = TRUSTED_KEYS_MAX;
/// Most revoked images.
pub const REVOKED_IMAGES_MAX: usize = 10_000;
/// Shortest beginning of an id that names a key.
const ID_DIGITS_MIN: usize = 4;

/// What a key's signatures are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// It signs, and what it signed counts.
    Active,
    /// What it signed counts; it signs no more.
    Retired,
    /// Nothing that it signed counts.
    Revoked,
}

impl KeyState {
    /// The name used everywhere outside this code.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Retired => "retired",
            Self::Revoked => "revoked",
        }
    }
}

/// A key of the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageKey {
    /// minisign's id.
    pub id: KeyId,
    /// The public half.
    pub public: PublicKey,
    /// What its signatures are worth.
    pub state: KeyState,
    /// When it was made here, or added.
    pub made_at: OffsetDateTime,
    /// When it was retired.
    pub retired_at: Option<OffsetDateTime>,
    /// When, by whom and why it was revoked.
    pub revocation: Option<Revocation>,
}

/// When, by whom and why something was revoked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// When.
    pub at: OffsetDateTime,
    /// Who.
    pub by: String,
    /// Why.
    pub reason: String,
}

impl Revocation {
    /// `2026-12-01, by admin: the laptop was stolen`
    #[must_use]
    pub fn text(&self) -> String {
        format!("on {}, by {}: {}", self.at.date(), self.by, self.reason)
    }
}

/// A change that is not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// No key is meant by this, or several are.
    #[error("no single image key {0}: `plumbline key list` names them")]
    Unknown(String),
    /// It contradicts what is there.
    #[error("{0}")]
    Refused(String),
}

/// The keys and the revoked images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    keys: Vec<ImageKey>,
    revoked_images: Vec<(Digest, Revocation)>,
}

fn refused<T>(text: impl Into<String>) -> Result<T, TrustError> {
    Err(TrustError::Refused(text.into()))
}

impl Trust {
    /// All keys, in the order in which they came.
    #[must_use]
    pub fn keys(&self) -> &[ImageKey] {
        &self.keys
    }

    /// The key of this id.
    #[must_use]
    pub fn key(&self, id: KeyId) -> Option<&ImageKey> {
        self.keys.iter().find(|key| key.id == id)
    }

    /// The key that somebody means: an id, or four digits or more of its beginning.
    ///
    /// # Errors
    /// [`TrustError::Unknown`].
    pub fn find(&self, text: &str) -> Result<KeyId, TrustError> {
        let wanted = text.trim().to_uppercase();
        let mut found = self
            .keys
            .iter()
            .filter(|key| wanted.len() >= ID_DIGITS_MIN && key.id.to_string().starts_with(&wanted));
        match (found.next(), found.next()) {
            (Some(key), None) => Ok(key.id),
            _ => Err(TrustError::Unknown(text.chars().take(40).collect())),
        }
    }

    /// The newest key that signs.
    #[must_use]
    pub fn newest_active(&self) -> Option<&ImageKey> {
        self.keys.iter().rev().find(|key| key.state == KeyState::Active)
    }

    /// Whose signatures count.
    ///
    /// # Errors
    /// [`ManifestError::Limit`]; the bounds of this set are the same, so never for one that was read or changed here.
    pub fn trusted(&self) -> Result<TrustedKeys, ManifestError> {
        let revoked = self.keys.iter().filter_map(|key| {
            let revocation = key.revocation.as_ref()?;
            Some((key.id, revocation.text()))
        });
        let trusted = self.keys.iter().filter(|key| key.state != KeyState::Revoked);
        TrustedKeys::new(trusted.map(|key| key.public.clone()), revoked)
    }

    /// Why this image was revoked, in a sentence; `None`: it was not.
    #[must_use]
    pub fn against(&self, image: Digest) -> Option<String> {
        let (_, revocation) = self.revoked_images.iter().find(|(revoked, _)| *revoked == image)?;
        Some(format!("it was revoked {}", revocation.text()))
    }

    /// Takes a key into the set, as active.
    ///
    /// # Errors
    /// [`TrustError::Refused`] when it is there already, in whatever state, or there are [`KEYS_MAX`].
    pub fn add(&mut self, public: PublicKey, now: OffsetDateTime) -> Result<KeyId, TrustError> {
        let id = public.id().map_err(|error| TrustError::Refused(error.to_string()))?;
        if let Some(known) = self.key(id) {
            return refused(match known.state {
                KeyState::Revoked => format!("key {id} was revoked and stays so: make another one"),
                state => format!("key {id} is there already, and is {}", state.as_str()),
            });
        }
        if self.keys.len() >= KEYS_MAX {
            return refused(format!(
                "there are {KEYS_MAX} image keys, the most there can be: take those out of trust.toml that signed nothing \
                 any node or image needs"
            ));
        }
        self.keys.push(ImageKey {
            id,
            public,
            state: KeyState::Active,
            made_at: now,
            retired_at: None,
            revocation: None,
        });
        Ok(id)
    }

    /// Lets a key sign no more.
    ///
    /// # Errors
    /// [`TrustError::Refused`] when it does not sign anyway, or no other one would be left to sign.
    pub fn retire(&mut self, id: KeyId, now: OffsetDateTime) -> Result<(), TrustError> {
        let others = self
            .keys
            .iter()
            .filter(|key| key.id != id && key.state == KeyState::Active);
        let is_last = others.count() == 0;
        let key = self.key_mut(id)?;
        match key.state {
            KeyState::Active if is_last => refused(format!(
                "key {id} is the only one that signs: `plumbline key rotate` makes another one, `plumbline key add` takes one"
            )),
            KeyState::Active => {
                key.state = KeyState::Retired;
                key.retired_at = Some(now);
                Ok(())
            }
            state => refused(format!("key {id} is {}: it signs no more", state.as_str())),
        }
    }

    /// Takes all worth from a key's signatures, for good. The only key that signs, too: it may be in other hands.
    ///
    /// # Errors
    /// [`TrustError::Refused`] when it was revoked before.
    pub fn revoke(&mut self, id: KeyId, revocation: Revocation) -> Result<(), TrustError> {
        let key = self.key_mut(id)?;
        if let Some(before) = &key.revocation {
            return refused(format!("key {id} was revoked {}", before.text()));
        }
        key.state = KeyState::Revoked;
        key.revocation = Some(revocation);
        Ok(())
    }

    /// Takes a new key in the place of another one that signed until now; that one may be revoked already.
    ///
    /// # Errors
    /// As [`Trust::add`].
    pub fn rotate(&mut self, old: Option<KeyId>, new: PublicKey, now: OffsetDateTime) -> Result<KeyId, TrustError> {
        let id = self.add(new, now)?;
        if let Some(old) = old.and_then(|old| self.keys.iter_mut().find(|key| key.id == old))
            && old.state == KeyState::Active
        {
            old.state = KeyState::Retired;
            old.retired_at = Some(now);
        }
        Ok(id)
    }

    /// Bars one image version, for good.
    ///
    /// # Errors
    /// [`TrustError::Refused`] when it was revoked before, or [`REVOKED_IMAGES_MAX`] are.
    pub fn revoke_image(&mut self, image: Digest, revocation: Revocation) -> Result<(), TrustError> {
        if let Some(reason) = self.against(image) {
            return refused(format!("image {}: {reason}", image.short()));
        }
        if self.revoked_images.len() >= REVOKED_IMAGES_MAX {
            return refused(format!(
                "{REVOKED_IMAGES_MAX} images are revoked, the most there can be"
            ));
        }
        self.revoked_images.push((image, revocation));
        Ok(())
    }

    fn key_mut(&mut self, id: KeyId) -> Result<&mut ImageKey, TrustError> {
        let found = self.keys.iter_mut().find(|key| key.id == id);
        found.ok_or_else(|| TrustError::Unknown(id.to_string()))
    }

    /// The file's text.
    ///
    /// # Errors
    /// When a time cannot be written; none from this server's clock.
    pub fn text(&self) -> Result<String, toml::ser::Error> {
        let key = |key: &ImageKey| KeyText {
            id: key.id.to_string(),
            state: key.state,
            made_at: key.made_at,
            retired_at: key.retired_at,
            revocation: key.revocation.as_ref().map(RevocationText::of),
        };
        let file = FileText {
            key: self.keys.iter().map(key).collect(),
            revoked_image: self
                .revoked_images
                .iter()
                .map(|(image, revocation)| ImageText {
                    digest: *image,
                    revocation: RevocationText::of(revocation),
                })
                .collect(),
        };
        Ok(format!("{HEADING}\n{}", toml::to_string(&file)?))
    }

    /// Reads the file's text; `public` gives the public key of an id.
    ///
    /// # Errors
    /// What is wrong, with its line where it has one.
    pub fn parse(text: &str, public: impl Fn(KeyId) -> Result<PublicKey, String>) -> Result<Self, String> {
        let file: FileText = toml::from_str(text).map_err(|error| error.to_string().trim().to_owned())?;
        if file.key.len() > KEYS_MAX || file.revoked_image.len() > REVOKED_IMAGES_MAX {
            return Err(format!(
                "{} keys and {} revoked images, expected at most {KEYS_MAX} and {REVOKED_IMAGES_MAX}",
                file.key.len(),
                file.revoked_image.len()
            ));
        }
        let mut trust = Self::default();
        for key in file.key {
            let id: KeyId = key.id.parse().map_err(|error: ManifestError| error.to_string())?;
            if trust.key(id).is_some() {
                return Err(format!("key {id} stands there twice"));
            }
            if (key.state == KeyState::Revoked) != key.revocation.is_some() {
                return Err(format!(
                    "key {id} is {}: expected [key.revocation] with the state revoked and only then",
                    key.state.as_str()
                ));
            }
            trust.keys.push(ImageKey {
                id,
                public: public(id)?,
                state: key.state,
                made_at: key.made_at,
                retired_at: key.retired_at,
                revocation: key.revocation.map(RevocationText::take),
            });
        }
        for image in file.revoked_image {
            trust.revoked_images.push((image.digest, image.revocation.take()));
        }
        Ok(trust)
    }
}

const HEADING: &str = "# What signatures of images are worth. The keys themselves are in image-keys/, by their ids.\n\
                       # `plumbline key` and `plumbline image revoke` change this file; docs/operations.md tells how.\n";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    #[serde(default)]
    key: Vec<KeyText>,
    #[serde(default)]
    revoked_image: Vec<ImageText>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyText {
    id: String,
    state: KeyState,
    #[serde(with = "time::serde::rfc3339")]
    made_at: OffsetDateTime,
    #[serde(
        with = "time::serde::rfc3339::option",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    retired_at: Option<OffsetDateTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revocation: Option<RevocationText>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ImageText {
    digest: Digest,
    revocation: RevocationText,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RevocationText {
    #[serde(with = "time::serde::rfc3339")]
    at: OffsetDateTime,
    by: String,
    reason: String,
}

impl RevocationText {
    fn of(revocation: &Revocation) -> Self {
        Self {
            at: revocation.at,
            by: revocation.by.clone(),
            reason: revocation.reason.clone(),
        }
    }

    fn take(self) -> Revocation {
        Revocation {
            at: self.at,
            by: self.by,
            reason: self.reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use manifest::KeyPair;

    use super::*;

    const NOW: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn revocation(reason: &str) -> Revocation {
        Revocation {
            at: NOW,
            by: "admin".to_owned(),
            reason: reason.to_owned(),
        }
    }

    fn with(count: usize) -> (Trust, Vec<KeyPair>) {
        let keys: Vec<KeyPair> = (0..count).map(|_| KeyPair::generate().unwrap()).collect();
        let mut trust = Trust::default();
        for key in &keys {
            trust.add(key.public(), NOW).unwrap();
        }
        (trust, keys)
    }

    fn counts(trust: &Trust, key: &KeyPair) -> bool {
        let signature = key.sign(b"x", "x").unwrap();
        trust.trusted().unwrap().check(b"x", &signature).is_ok()
    }

    #[test]
    fn a_retired_key_still_verifies_and_a_revoked_one_never_again() {
        let (mut trust, keys) = with(2);
        let ids: Vec<KeyId> = trust.keys().iter().map(|key| key.id).collect();
        trust.retire(ids[0], NOW).unwrap();
        assert!(counts(&trust, &keys[0]) && counts(&trust, &keys[1]));
        assert_eq!(trust.newest_active().unwrap().id, ids[1]);

        trust.revoke(ids[0], revocation("stolen")).unwrap();
        assert!(!counts(&trust, &keys[0]) && counts(&trust, &keys[1]));
        let text = |result: Result<(), TrustError>| result.unwrap_err().to_string();
        assert!(text(trust.revoke(ids[0], revocation("again"))).contains("on 1970-01-01, by admin: stolen"));
        assert!(text(trust.retire(ids[0], NOW)).contains("is revoked"));
        let back = trust.add(keys[0].public(), NOW).unwrap_err().to_string();
        assert!(back.contains("was revoked and stays so"), "{back}");
    }

    #[test]
    fn the_last_key_that_signs_can_be_revoked_but_not_retired() {
        let (mut trust, _) = with(1);
        let id = trust.keys()[0].id;
        assert!(trust.retire(id, NOW).unwrap_err().to_string().contains("key rotate"));
        trust.revoke(id, revocation("stolen")).unwrap();
        assert!(trust.newest_active().is_none());
        // The next one takes its place, and it stays revoked.
        let next = KeyPair::generate().unwrap();
        trust.rotate(Some(id), next.public(), NOW).unwrap();
        assert_eq!(trust.key(id).unwrap().state, KeyState::Revoked);
        assert!(counts(&trust, &next));
    }

    #[test]
    fn rotation_retires_the_key_before() {
        let (mut trust, keys) = with(1);
        let (old, next) = (trust.keys()[0].id, KeyPair::generate().unwrap());
        let id = trust.rotate(Some(old), next.public(), NOW).unwrap();
        assert_eq!(trust.key(old).unwrap().state, KeyState::Retired);
        assert_eq!(trust.newest_active().unwrap().id, id);
        assert!(counts(&trust, &keys[0]) && counts(&trust, &next));
    }

    #[test]
    fn a_revoked_image_stays_revoked() {
        let (mut trust, _) = with(1);
        let image = Digest::of(b"image");
        assert_eq!(trust.against(image), None);
        trust.revoke_image(image, revocation("a hole in its kernel")).unwrap();
        let text = "it was revoked on 1970-01-01, by admin: a hole in its kernel";
        assert_eq!(trust.against(image).as_deref(), Some(text));
        let again = trust.revoke_image(image, revocation("x")).unwrap_err().to_string();
        assert!(again.contains("a hole in its kernel"), "{again}");
    }

    #[test]
    fn the_file_says_all_of_it_and_is_read_back() {
        let (mut trust, _) = with(3);
        let ids: Vec<KeyId> = trust.keys().iter().map(|key| key.id).collect();
        trust.retire(ids[0], NOW).unwrap();
        trust.revoke(ids[1], revocation("a \"quoted\" reason")).unwrap();
        trust.revoke_image(Digest::of(b"image"), revocation("bad")).unwrap();
        let text = trust.text().unwrap();
        assert!(
            text.contains("state = \"retired\"") && text.contains("[[revoked_image]]"),
            "{text}"
        );
        let known = trust.clone();
        let public = |id| Ok(known.key(id).unwrap().public.clone());
        assert_eq!(Trust::parse(&text, public).unwrap(), trust);

        let missing = |_| Err("no file".to_owned());
        for (bad, words) in [
            (text.replace("retired\"", "rettired\""), "rettired"),
            (
                text.replace("state = \"revoked\"", "state = \"active\""),
                "expected [key.revocation]",
            ),
            (text.replace(&ids[0].to_string(), &ids[1].to_string()), "twice"),
            (format!("{text}\n[more]\n"), "more"),
        ] {
            let error = Trust::parse(&bad, public).unwrap_err();
            assert!(error.contains(words), "{error} should say {words}");
        }
        assert_eq!(Trust::parse(&text, missing).unwrap_err(), "no file");
    }

    #[test]
    fn a_key_is_meant_by_four_digits_of_its_id() {
        let (mut trust, _) = with(1);
        let id = trust.keys()[0].id;
        let text = id.to_string();
        assert_eq!(trust.find(&text.to_lowercase()), Ok(id));
        assert_eq!(trust.find(&text[..4]), Ok(id));
        for wrong in ["", &text[..3], "zzzz", &format!("{text}0")] {
            assert!(trust.find(wrong).is_err(), "{wrong}");
        }
        for _ in 1..KEYS_MAX {
            trust.add(KeyPair::generate().unwrap().public(), NOW).unwrap();
        }
        assert!(trust.add(KeyPair::generate().unwrap().public(), NOW).is_err());
    }
}
