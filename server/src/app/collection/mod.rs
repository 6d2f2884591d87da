//! Tidying the image store: what nothing needs goes, packs that are needed in part only become small.
//!
//! What is needed is asked of the database, under the lock that keeps builds and imports out. An image goes in this
//! order: its registration, which is refused when something has come to need it; its signature; its documents; at last
//! packs that no image names. Broken off in between, what is listed is whole: an image that lost its registration only is
//! found in the store and registered again.

mod judge;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use manifest::Digest;
use serde::{Deserialize, Serialize};
use store::{ImageRecord, StoreError};
use time::OffsetDateTime;

use super::{App, AppError};
use crate::image::{Exclusive, ExclusiveError, Sweeping};
pub use judge::{Judged, Keeping, judge};

/// Most versions of a name that can be asked to stay.
const VERSIONS_MAX: u32 = 1_000;
/// Longest grace time: a year.
const GRACE_HOURS_MAX: u32 = 8_760;
/// Packs named in an answer; the rest is counted.
const NAMED_MAX: usize = 1_000;

/// What is to be tidied, and what is kept.
#[derive(Clone, Copy, Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CollectionOrder {
    /// Only say what would be done.
    pub dry_run: bool,
    /// So many versions of each name are kept in any case, 1 to 1,000.
    pub keep: u32,
    /// For so many hours everything is kept that is new, and packs that were repacked; at most 8,760.
    pub grace_hours: u32,
}

/// What was done, or would be.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Collection {
    /// Nothing was changed.
    pub dry_run: bool,
    /// All image versions.
    pub images: Vec<CollectedImage>,
    /// Unfinished images that were removed: what a killed build left.
    pub unfinished: u64,
    /// Images in the store that wait for a signature; they stay, with their packs.
    pub unsigned: u64,
    /// Packs that were removed.
    pub packs_removed: u64,
    /// Packs that no image names and that stay until the grace time is over.
    pub packs_waiting: u64,
    /// Packs that were repacked, at most 1,000; the old ones stay until the grace time is over.
    pub repacked: Vec<CollectedPack>,
    /// Packs that are damaged and were left alone, by digest: `image verify` names what is in them.
    pub damaged: Vec<String>,
    /// Bytes that are free now.
    pub bytes_freed: u64,
}

/// One image version, kept or removed.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct CollectedImage {
    /// Digest.
    #[schema(value_type = String)]
    pub digest: Digest,
    /// `os`, `deployer` or `agent`.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// It was removed, or would be.
    pub removed: bool,
    /// Why it stays.
    pub reasons: Vec<String>,
    /// Bytes of what only it uses, when it is removed.
    pub bytes_freed: u64,
}

/// A pack of which less than half was needed.
#[derive(Clone, Copy, Debug, Serialize, utoipa::ToSchema)]
pub struct CollectedPack {
    /// Digest of the old pack.
    #[schema(value_type = String)]
    pub pack: Digest,
    /// Its bytes.
    pub size: u64,
    /// Bytes of the new one; in a dry run what they would be about.
    pub new_size: u64,
}

impl CollectedImage {
    fn new(image: ImageRecord, reasons: Vec<String>, bytes_freed: u64) -> Self {
        Self {
            digest: image.digest,
            kind: image.kind,
            name: image.name,
            version: image.version,
            removed: reasons.is_empty(),
            reasons,
            bytes_freed,
        }
    }
}

impl From<ExclusiveError> for AppError {
    fn from(error: ExclusiveError) -> Self {
        match error {
            ExclusiveError::Busy { .. } => Self::Conflict(error.to_string()),
            error => Self::internal(error),
        }
    }
}

/// Tidies the store, or says what that would do.
///
/// # Errors
/// [`AppError::Invalid`] for an order out of bounds; [`AppError::Conflict`] while a build or import is at work.
pub async fn collect(app: &App, order: CollectionOrder, by: &str) -> Result<Collection, AppError> {
    let keeping = keeping(order)?;
    let _lock = match order.dry_run {
        true => None,
        false => Some(Exclusive::claim(&app.config.data_dir)?),
    };
    let (images, uses) = (app.store.image_list().await?, uses(app).await?);
    let judged = judge(images, uses, keeping, OffsetDateTime::now_utc());
    // Oldest first: what the answer says each of them frees is what its own removal freed.
    let mut going: Vec<&Judged> = judged.iter().filter(|one| one.kept.is_empty()).collect();
    going.sort_by_key(|one| one.image.registered_at);
    let digests: Vec<Digest> = going.iter().map(|one| one.image.digest).collect();
    let freed = app.images.bytes_freed_by(&digests).await?;
    let freed: HashMap<Digest, (u64, u64)> = digests.iter().copied().zip(freed).collect();

    let mut refused = HashMap::new();
    if !order.dry_run {
        for &image in &digests {
            match remove(app, image, "garbage collection", by).await {
                // Something came to need it just now.
                Err(AppError::Conflict(reason)) => {
                    refused.insert(image, reason);
                }
                done => done?,
            }
        }
    }
    let without: HashSet<Digest> = match order.dry_run {
        true => digests.into_iter().collect(),
        false => HashSet::new(),
    };
    let sweeping = Sweeping {
        dry_run: order.dry_run,
        grace: Duration::from_secs(u64::from(order.grace_hours) * 3_600),
        without: &without,
    };
    let swept = app.images.sweep(sweeping).await?;
    for (image, bytes) in &swept.rewritten {
        let bytes = i64::try_from(*bytes).unwrap_or(i64::MAX);
        app.store.image_set_stored_bytes(*image, bytes).await?;
    }
    let mut artifact_bytes = 0;
    let images = judged.into_iter().map(|one| {
        let mut reasons = one.kept;
        reasons.extend(refused.remove(&one.image.digest));
        let (packs, artifacts) = match reasons.is_empty() {
            true => freed.get(&one.image.digest).copied().unwrap_or_default(),
            false => (0, 0),
        };
        artifact_bytes += artifacts;
        CollectedImage::new(one.image, reasons, packs + artifacts)
    });
    let images = images.collect();
    let collection = Collection {
        dry_run: order.dry_run,
        images,
        unfinished: swept.unfinished,
        unsigned: swept.unsigned,
        packs_removed: swept.packs_removed.len() as u64,
        packs_waiting: swept.packs_waiting.len() as u64,
        repacked: swept
            .repacked
            .iter()
            .take(NAMED_MAX)
            .map(|one| CollectedPack {
                pack: one.pack,
                size: one.size,
                new_size: one.new_size,
            })
            .collect(),
        damaged: swept.damaged.iter().take(NAMED_MAX).map(ToString::to_string).collect(),
        // The sweep frees the packs.
        bytes_freed: swept.bytes_freed + artifact_bytes,
    };
    if !order.dry_run {
        note(app, &collection, order, by).await?;
    }
    Ok(collection)
}

/// Why which image versions are needed.
async fn uses(app: &App) -> Result<Vec<(Digest, String)>, AppError> {
    let used = app.store.image_uses(None).await?;
    let mut uses: Vec<_> = used.into_iter().map(|one| (one.image, one.to_string())).collect();
    for (why, reference) in app.store.image_references().await? {
        match app.store.image_find(&reference).await {
            Ok(image) => uses.push((image.digest, why)),
            // What nobody can find needs nothing.
            Err(StoreError::NotFound { .. } | StoreError::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(uses)
}

fn keeping(order: CollectionOrder) -> Result<Keeping, AppError> {
    if !(1..=VERSIONS_MAX).contains(&order.keep) {
        let problem = format!("keep: {}, expected 1 to {VERSIONS_MAX} versions", order.keep);
        return Err(AppError::Invalid(problem));
    }
    if order.grace_hours > GRACE_HOURS_MAX {
        let problem = format!("grace_hours: {}, expected at most {GRACE_HOURS_MAX}", order.grace_hours);
        return Err(AppError::Invalid(problem));
    }
    Ok(Keeping {
        versions: usize::try_from(order.keep).unwrap_or(usize::MAX),
        grace: time::Duration::hours(i64::from(order.grace_hours)),
    })
}

/// Takes an image out of the database and the store; packs stay. The caller holds the lock.
async fn remove(app: &App, image: Digest, why: &str, by: &str) -> Result<(), AppError> {
    app.store.image_delete(image, why, by).await?;
    app.images.remove_documents(image).await?;
    // The task that registers images may have looked at it before its signature went.
    app.store.image_unregister(image).await?;
    Ok(())
}

async fn note(app: &App, collection: &Collection, order: CollectionOrder, by: &str) -> Result<(), AppError> {
    let removed = collection.images.iter().filter(|image| image.removed).count();
    let detail = format!(
        "{removed} images, {} unfinished images and {} packs removed, {} packs repacked, {} bytes freed; kept {} versions \
         of each name, grace time {} h",
        collection.unfinished,
        collection.packs_removed,
        collection.repacked.len(),
        collection.bytes_freed,
        order.keep,
        order.grace_hours
    );
    app.store
        .audit_add(by, "images_collected", "image store", &detail)
        .await?;
    tracing::info!(
        images = removed,
        packs = collection.packs_removed,
        repacked = collection.repacked.len(),
        bytes = collection.bytes_freed,
        user.name = by,
        "the image store was tidied"
    );
    Ok(())
}
