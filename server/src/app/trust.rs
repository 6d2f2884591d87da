//! What signatures of images are worth: keys as people handle them, images that must not be used, what nodes are told.
//!
//! The truth is in the data folder (`image/keys.rs`) and holds at once for whatever this server does. The database's
//! columns follow it ([`refresh`]), so that lists and choices of images know it as well. A revocation is written to the
//! folder first and to the audit log then: it holds although the database does not answer.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use manifest::{Digest, KeyId, ManifestKind, PublicKey, Signature, Untrusted};
use protocol::NodeId;
use protocol::latest::{Baseline, ImageTrust, RevokedImage, RevokedKey};
use serde::Serialize;
use store::{ImageRecord, ImageUser};
use time::OffsetDateTime;

use super::auth::User;
use super::reviews::reason_check;
use super::{App, AppError, agents};
use crate::image::trust::{ImageKey, KeyState, Revocation, Trust, TrustError};
use crate::image::{KeyError, Signers, StoreError};

/// Nodes and images that are named in one answer; the rest is counted.
const NAMED_MAX: usize = 200;

impl From<KeyError> for AppError {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Refused(TrustError::Unknown(key)) => Self::NotFound {
                what: "image key".to_owned(),
                key,
            },
            KeyError::Refused(TrustError::Refused(reason)) => Self::Conflict(reason),
            KeyError::NoSigner { .. } => Self::Conflict(error.to_string()),
            other => Self::internal(other),
        }
    }
}

/// What was found of signatures in the store, by image, so that none is read twice for nothing. It is lost with the
/// process, and found again.
#[derive(Debug, Default)]
pub struct SignaturesSeen(Mutex<HashMap<Digest, Seen>>);

#[derive(Clone, Debug)]
struct Seen {
    written: SystemTime,
    /// The key that the signature names.
    signer: Option<KeyId>,
    /// What is wrong with it for good.
    problem: Option<String>,
}

impl SignaturesSeen {
    fn find(&self, image: Digest, written: SystemTime) -> Option<Seen> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(&image).filter(|seen| seen.written == written).cloned()
    }

    fn keep(&self, image: Digest, seen: Seen) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(image, seen);
    }

    fn retain(&self, there: &HashMap<Digest, SystemTime>) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.retain(|image, _| there.contains_key(image));
    }
}

fn kind_of(image: &ImageRecord) -> ManifestKind {
    match image.kind.as_str() {
        "agent" => ManifestKind::Agent,
        "deployer" => ManifestKind::Deployer,
        _ => ManifestKind::Os,
    }
}

/// Brings what is registered of images up to their signatures in the store and to what these are worth.
///
/// # Errors
/// [`AppError`] when the store or the database does not answer.
pub async fn refresh(app: &App) -> Result<(), AppError> {
    let written: HashMap<Digest, SystemTime> = app.images.list_signed().await?.into_iter().collect();
    let signers = app.keys.signers();
    for image in app.store.image_list().await? {
        let (signer, problem) = match written.get(&image.digest) {
            Some(written) => {
                let seen = look(app, &signers, &image, *written).await?;
                (seen.signer, seen.problem)
            }
            // A folder that is not there, or a store that is put back, says nothing against its images: whoever fetches one
            // without a signature refuses it.
            None => (image.signer.as_deref().and_then(|id| id.parse().ok()), None),
        };
        let against = signer.and_then(|signer| signers.against(image.digest, kind_of(&image), signer));
        // What a person decided comes before what was found.
        let unusable = signers.trust.against(image.digest).or(problem).or(against);
        let signer = signer.map(|id| id.to_string());
        if signer == image.signer && unusable == image.unusable {
            continue;
        }
        let is_news = app
            .store
            .image_set_trust(image.digest, signer.as_deref(), unusable.as_deref())
            .await?;
        if is_news && unusable != image.unusable {
            match &unusable {
                Some(reason) => {
                    tracing::warn!(image.digest = %image.digest, image.name, reason, "an image must not be used")
                }
                None => tracing::info!(image.digest = %image.digest, image.name, "an image may be used again"),
            }
        }
    }
    app.signatures.retain(&written);
    Ok(())
}

/// What is to be said of an image's signature. One whose signer is known, or that no key could make good, is not read in
/// full.
async fn look(app: &App, signers: &Signers, image: &ImageRecord, written: SystemTime) -> Result<Seen, AppError> {
    if let Some(seen) = app.signatures.find(image.digest, written) {
        return Ok(seen);
    }
    let signature = app.images.signature(image.digest).await?;
    let signer = signature.key_id();
    let seen = |problem: Option<String>| Seen {
        written,
        signer,
        problem,
    };
    let known = image.signer.as_deref().and_then(|id| id.parse::<KeyId>().ok());
    if known.is_some() && signer == known {
        app.signatures.keep(image.digest, seen(None));
        return Ok(seen(None));
    }
    let Some((_, keys)) = signers.for_kind(kind_of(image)) else {
        return Ok(seen(None));
    };
    if signer.is_some_and(|signer| keys.check_id(signer).is_err()) {
        // Not kept: the key may be added, and then the signature is to be checked.
        return Ok(seen(None));
    }
    let found = match app.images.manifest_bytes(image.digest).await {
        Ok(bytes) => seen(keys.check(&bytes, &signature).err().as_ref().map(Untrusted::to_string)),
        Err(StoreError::Manifest(error)) => seen(Some(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    app.signatures.keep(image.digest, found.clone());
    Ok(found)
}

/// Refuses what must not be used.
///
/// # Errors
/// [`AppError::Conflict`] with the reason.
pub fn usable(image: &ImageRecord) -> Result<(), AppError> {
    match &image.unusable {
        Some(reason) => Err(AppError::Conflict(format!(
            "{} must not be used: {reason}",
            image.title()
        ))),
        None => Ok(()),
    }
}

/// Refuses an image that a person has revoked, asked of the data folder: for what is served to machines.
///
/// # Errors
/// [`AppError::Conflict`] with the reason.
pub fn not_revoked(app: &App, image: Digest) -> Result<(), AppError> {
    match app.keys.signers().trust.against(image) {
        Some(reason) => Err(AppError::Conflict(format!(
            "image {} must not be used: {reason}",
            image.short()
        ))),
        None => Ok(()),
    }
}

fn trust_of(trust: &Trust, revoked_image: Option<RevokedImage>) -> ImageTrust {
    let mut answer = ImageTrust {
        revoked_image,
        ..ImageTrust::default()
    };
    for key in trust.keys() {
        match &key.revocation {
            Some(revocation) => answer.revoked_keys.push(RevokedKey {
                id: key.id.to_string(),
                reason: revocation.text(),
            }),
            None => answer.image_keys.push(key.public.as_str().to_owned()),
        }
    }
    answer
}

/// What a deployer is told: the keys, and whether one of its images was revoked. It checks the signatures itself.
#[must_use]
pub fn of_deployment(app: &App, images: [Digest; 2]) -> ImageTrust {
    let signers = app.keys.signers();
    let revoked = images.into_iter().find_map(|image| {
        let reason = signers.trust.against(image)?;
        Some(RevokedImage { image, reason })
    });
    trust_of(&signers.trust, revoked)
}

/// What a node's agent is told. It keeps no signature of the manifests it holds, so it is also told when those are not
/// worth anything any more.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn of_baseline(app: &App, baseline: &Baseline) -> Result<ImageTrust, AppError> {
    let signers = app.keys.signers();
    let layers = [baseline.image, baseline.agent_layer];
    let unusable = app.store.image_list_unusable(&layers).await?;
    let revoked = unusable.into_iter().next().and_then(|image| {
        let reason = image.unusable?;
        Some(RevokedImage {
            image: image.digest,
            reason,
        })
    });
    Ok(trust_of(&signers.trust, revoked))
}

/// The same for a node.
///
/// # Errors
/// [`AppError::NotFound`] for a node that was never installed.
pub async fn of_node(app: &App, node: NodeId) -> Result<ImageTrust, AppError> {
    of_baseline(app, &agents::baseline(app, node).await?).await
}

/// The name of what a node is told: another one when anything in it is other.
///
/// # Errors
/// [`AppError::Internal`]; it can always be written.
pub fn name_of(trust: &ImageTrust) -> Result<Digest, AppError> {
    Ok(Digest::of(&serde_json::to_vec(trust).map_err(AppError::internal)?))
}

/// A key that signs images, as people see it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct KeyView {
    /// minisign's key id, 16 hexadecimal digits.
    pub id: String,
    /// The public half, as minisign writes it.
    pub public_key: String,
    /// What its signatures are worth.
    pub state: KeyState,
    /// Its secret half is on this server, and signs what is built here.
    pub signs_here: bool,
    /// When it was made, or added.
    #[serde(with = "time::serde::rfc3339")]
    pub made_at: OffsetDateTime,
    /// When it was retired.
    #[serde(with = "time::serde::rfc3339::option")]
    pub retired_at: Option<OffsetDateTime>,
    /// When it was revoked.
    #[serde(with = "time::serde::rfc3339::option")]
    pub revoked_at: Option<OffsetDateTime>,
    /// When, by whom and why it was revoked, for people.
    pub revoked: Option<String>,
    /// Registered images that bear its signature.
    pub images: usize,
}

fn view(key: &ImageKey, signs_here: Option<KeyId>, images: &BTreeMap<String, Vec<String>>) -> KeyView {
    let id = key.id.to_string();
    KeyView {
        images: images.get(&id).map_or(0, Vec::len),
        id,
        public_key: key.public.as_str().to_owned(),
        state: key.state,
        signs_here: signs_here == Some(key.id),
        made_at: key.made_at,
        retired_at: key.retired_at,
        revoked_at: key.revocation.as_ref().map(|revocation| revocation.at),
        revoked: key.revocation.as_ref().map(Revocation::text),
    }
}

/// Titles of registered images by the key that signed them.
async fn images_by_signer(app: &App) -> Result<BTreeMap<String, Vec<String>>, AppError> {
    let mut images: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for image in app.store.image_list().await? {
        let title = image.title();
        images.entry(image.signer.unwrap_or_default()).or_default().push(title);
    }
    Ok(images)
}

async fn key_view(app: &App, id: KeyId) -> Result<KeyView, AppError> {
    let text = id.to_string();
    let found = key_list(app).await?.into_iter().find(|key| key.id == text);
    found.ok_or_else(|| AppError::NotFound {
        what: "image key".to_owned(),
        key: text,
    })
}

/// All keys that sign images, or ever did.
///
/// # Errors
/// [`AppError`] when the folder or the database cannot be read.
pub async fn key_list(app: &App) -> Result<Vec<KeyView>, AppError> {
    let images = images_by_signer(app).await?;
    let keys = app.keys.clone();
    let signs_here = match tokio::task::spawn_blocking(move || keys.image_signer()).await {
        Ok(Ok(key)) => key.and_then(|key| key.public().id().ok()),
        // One that may not sign does not sign here.
        Ok(Err(KeyError::NoSigner { .. })) => None,
        Ok(Err(error)) => return Err(error.into()),
        Err(error) => return Err(AppError::internal(error)),
    };
    let signers = app.keys.signers();
    Ok(signers
        .trust
        .keys()
        .iter()
        .map(|key| view(key, signs_here, &images))
        .collect())
}

/// Changes the folder, off the runtime's threads.
async fn change<T: Send + 'static>(
    app: &App,
    change: impl FnOnce(&mut Trust) -> Result<T, TrustError> + Send + 'static,
) -> Result<T, AppError> {
    let keys = app.keys.clone();
    let changed = tokio::task::spawn_blocking(move || keys.change(change)).await;
    Ok(changed.map_err(AppError::internal)??)
}

/// Takes a public key (minisign's line, or a whole `.pub` file) into the set.
///
/// # Errors
/// [`AppError::Invalid`] when it is none, [`AppError::Conflict`] when it is there, or was revoked.
pub async fn key_add(app: &App, text: &str, user: &User) -> Result<KeyView, AppError> {
    let public = PublicKey::parse(text).map_err(|error| {
        AppError::Invalid(format!(
            "public_key: {error}; expected the text of a minisign .pub file"
        ))
    })?;
    let now = OffsetDateTime::now_utc();
    let id = change(app, move |trust| trust.add(public, now)).await?;
    tracing::info!(key.id = %id, user.name, "an image key was added");
    let object = id.to_string();
    app.store
        .audit_add(
            &user.name,
            "image_key_added",
            &object,
            "its signatures count from now on",
        )
        .await?;
    refresh(app).await?;
    key_view(app, id).await
}

/// Lets a key sign no more; what it has signed goes on to count.
///
/// # Errors
/// [`AppError::NotFound`], [`AppError::Conflict`].
pub async fn key_retire(app: &App, key: &str, user: &User) -> Result<KeyView, AppError> {
    let (key, now) = (key.to_owned(), OffsetDateTime::now_utc());
    let id = change(app, move |trust| {
        let id = trust.find(&key)?;
        trust.retire(id, now).map(|()| id)
    })
    .await?;
    tracing::info!(key.id = %id, user.name, "an image key was retired");
    let detail = "it signs no more; what it signed counts";
    app.store
        .audit_add(&user.name, "image_key_retired", &id.to_string(), detail)
        .await?;
    key_view(app, id).await
}

/// What a revocation takes away.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct KeyRevoked {
    /// The key.
    pub key: KeyView,
    /// Images that cannot be used any more, at most 200.
    pub images: Vec<String>,
    /// How many there are.
    pub images_count: usize,
    /// Nodes that run one of them, wait for one, or were to get one, at most 200.
    pub users: Vec<ImageUser>,
    /// How many there are.
    pub users_count: usize,
    /// A key is left that signs.
    pub can_sign: bool,
}

/// Takes all worth from what a key has signed, for good.
///
/// # Errors
/// [`AppError::Invalid`] for the reason; [`AppError::NotFound`]; [`AppError::Conflict`] when it was revoked before.
pub async fn key_revoke(app: &App, key: &str, reason: &str, user: &User) -> Result<KeyRevoked, AppError> {
    let revocation = revocation(reason, user)?;
    let (key, text) = (key.to_owned(), revocation.reason.clone());
    let id = change(app, move |trust| {
        let id = trust.find(&key)?;
        trust.revoke(id, revocation).map(|()| id)
    })
    .await?;
    tracing::warn!(key.id = %id, user.name, reason = text, "an image key was revoked");
    app.store
        .audit_add(&user.name, "image_key_revoked", &id.to_string(), &text)
        .await?;
    refresh(app).await?;
    let signer = Some(id.to_string());
    let (mut images, mut users) = (Vec::new(), Vec::new());
    for image in app
        .store
        .image_list()
        .await?
        .iter()
        .filter(|image| image.signer == signer)
    {
        users.extend(app.store.image_users(image.digest).await?);
        images.push(image.title());
    }
    Ok(KeyRevoked {
        key: key_view(app, id).await?,
        images_count: images.len(),
        users_count: users.len(),
        images: images.into_iter().take(NAMED_MAX).collect(),
        users: users.into_iter().take(NAMED_MAX).collect(),
        can_sign: app.keys.signers().trust.newest_active().is_some(),
    })
}

/// What came of a rotation.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct KeyRotated {
    /// The key that signs from now on.
    pub key: KeyView,
    /// The one before it, which is retired (or revoked).
    pub before: Option<String>,
    /// Images that the new key has signed in the place of another one, at most 200.
    pub resigned: Vec<String>,
    /// How many there are.
    pub resigned_count: usize,
    /// Images that only other keys have signed: they live as long as those are not revoked. At most 200.
    pub left: Vec<String>,
    /// How many there are.
    pub left_count: usize,
}

/// Makes a new key here that signs from now on, and retires the one before. With `resign` it signs the images that may
/// be used and were signed by others, too.
///
/// # Errors
/// [`AppError::Conflict`] where the key that signs is on another machine.
pub async fn key_rotate(app: &App, resign: bool, user: &User) -> Result<KeyRotated, AppError> {
    let keys = app.keys.clone();
    let rotated = tokio::task::spawn_blocking(move || keys.rotate(OffsetDateTime::now_utc())).await;
    let (id, before) = rotated.map_err(AppError::internal)??;
    tracing::info!(key.id = %id, user.name, resign, "the image key was rotated");
    let before = before.map(|id| id.to_string());
    let detail = format!(
        "in the place of {}{}",
        before.as_deref().unwrap_or("none"),
        if resign { ", and signs its images" } else { "" }
    );
    app.store
        .audit_add(&user.name, "image_key_rotated", &id.to_string(), &detail)
        .await?;
    let (mut resigned, mut left) = (Vec::new(), Vec::new());
    for image in app.store.image_list().await? {
        if kind_of(&image) == ManifestKind::Agent {
            continue;
        }
        match resign && sign_again(app, &image).await? {
            true => resigned.push(image.title()),
            false => left.push(image.title()),
        }
    }
    refresh(app).await?;
    Ok(KeyRotated {
        key: key_view(app, id).await?,
        before,
        resigned_count: resigned.len(),
        left_count: left.len(),
        resigned: resigned.into_iter().take(NAMED_MAX).collect(),
        left: left.into_iter().take(NAMED_MAX).collect(),
    })
}

/// Signs an image by the key that is here, if its signature counts now: what nobody trusts gets no better by this.
async fn sign_again(app: &App, image: &ImageRecord) -> Result<bool, AppError> {
    let found = async {
        let bytes = app.images.manifest_bytes(image.digest).await?;
        Ok::<_, StoreError>((bytes, app.images.signature(image.digest).await?))
    };
    let (bytes, signature) = match found.await {
        Ok(found) => found,
        Err(StoreError::NotFound { .. } | StoreError::Manifest(_)) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let (keys, kind) = (app.keys.clone(), kind_of(image));
    let comment = format!("plumbline {} {} {}", image.kind, image.name, image.version);
    let signed = tokio::task::spawn_blocking(move || -> Result<Option<Signature>, AppError> {
        if keys.signers().check(kind, &bytes, &signature).is_err() {
            return Ok(None);
        }
        let Some(key) = keys.image_signer()? else {
            return Ok(None);
        };
        Ok(Some(key.sign(&bytes, &comment)?))
    });
    match signed.await.map_err(AppError::internal)?? {
        Some(signature) => {
            app.images.put_signature(image.digest, &signature).await?;
            Ok(true)
        }
        None => Ok(false),
    }
}

/// An image that was revoked, and who has to do with it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ImageRevoked {
    /// Manifest digest.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// The image; none: a digest that is not registered here.
    pub image: Option<ImageRecord>,
    /// When, by whom and why.
    pub reason: String,
    /// Nodes that run it, wait for it, or were to get it, at most 200.
    pub users: Vec<ImageUser>,
    /// How many there are.
    pub users_count: usize,
}

/// Bars an image version for good: by reference, or by its whole digest also when it is not here (yet).
///
/// # Errors
/// [`AppError::Invalid`] for the reason; [`AppError::NotFound`]; [`AppError::Conflict`] when it was revoked before.
pub async fn image_revoke(app: &App, reference: &str, reason: &str, user: &User) -> Result<ImageRevoked, AppError> {
    let revocation = revocation(reason, user)?;
    let image = match app.store.image_find(reference).await {
        Ok(image) => Some(image),
        Err(store::StoreError::NotFound { .. }) if reference.parse::<Digest>().is_ok() => None,
        Err(error) => return Err(error.into()),
    };
    let digest = match &image {
        Some(image) => image.digest,
        None => reference.parse()?,
    };
    let text = revocation.text();
    change(app, move |trust| trust.revoke_image(digest, revocation)).await?;
    tracing::warn!(image.digest = %digest, user.name, reason = text, "an image was revoked");
    let title = image
        .as_ref()
        .map_or_else(String::new, |image| format!("{}: ", image.title()));
    app.store
        .audit_add(
            &user.name,
            "image_revoked",
            &digest.to_string(),
            &format!("{title}{reason}"),
        )
        .await?;
    refresh(app).await?;
    let users = app.store.image_users(digest).await?;
    Ok(ImageRevoked {
        digest,
        image: match image {
            Some(_) => Some(app.store.image_find(&digest.to_string()).await?),
            None => None,
        },
        reason: text,
        users_count: users.len(),
        users: users.into_iter().take(NAMED_MAX).collect(),
    })
}

fn revocation(reason: &str, user: &User) -> Result<Revocation, AppError> {
    reason_check(reason)?;
    Ok(Revocation {
        at: OffsetDateTime::now_utc(),
        by: user.name.clone(),
        reason: reason.trim().to_owned(),
    })
}
