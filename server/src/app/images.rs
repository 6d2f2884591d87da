//! Image versions as people handle them: checked, removed.

use bytes::Bytes;
use serde::Serialize;
use store::ImageRecord;

use super::{App, AppError};
use crate::image::sbom::BILL_BYTES_MAX;
use crate::image::{Exclusive, SbomFormat, StoreError, VerifyReport};

/// What checking an image found.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ImageCheck {
    /// The image version.
    pub image: ImageRecord,
    /// Nothing was found: the signature holds and every byte is there.
    pub ok: bool,
    /// The key that signed it (`image`, `agent-release`), when the signature holds.
    pub signed_by: Option<String>,
    /// What is wrong with the signature.
    pub signature_problem: Option<String>,
    /// When, by whom and why it was revoked.
    pub revoked: Option<String>,
    /// Packs read.
    pub packs: u64,
    /// Bytes of packs read.
    pub pack_bytes: u64,
    /// Packs that are missing or damaged, by digest.
    pub packs_damaged: Vec<String>,
    /// Distinct contents of the manifest.
    pub blobs: u64,
    /// Paths whose content is missing or damaged, at most 100.
    pub damaged: Vec<String>,
    /// How many such paths there are in all.
    pub damaged_count: u64,
}

impl ImageCheck {
    fn new(image: ImageRecord, report: VerifyReport) -> Self {
        Self {
            image,
            ok: report.is_ok(),
            signed_by: report.signed_by.map(str::to_owned),
            signature_problem: report.signature_problem,
            revoked: report.revoked,
            packs: report.packs,
            pack_bytes: report.pack_bytes,
            packs_damaged: report.packs_damaged.iter().map(ToString::to_string).collect(),
            blobs: report.blobs,
            damaged: report.damaged.iter().map(ToString::to_string).collect(),
            damaged_count: report.damaged_count,
        }
    }
}

/// Reads an image version from end to end: minutes for a large one.
///
/// # Errors
/// [`AppError::NotFound`] when it is not registered or its data are gone.
pub async fn image_verify(app: &App, reference: &str) -> Result<ImageCheck, AppError> {
    let image = app.store.image_find(reference).await?;
    let report = app.images.verify(image.digest, &app.keys.signers()).await?;
    if !report.is_ok() {
        tracing::error!(
            image.digest = %image.digest,
            image.name,
            damaged_count = report.damaged_count,
            packs_damaged = report.packs_damaged.len(),
            signature_problem = report.signature_problem,
            revoked = report.revoked,
            "an image is damaged or revoked"
        );
    }
    Ok(ImageCheck::new(image, report))
}

/// An image version's bill of materials, as it was made when the image was built.
///
/// # Errors
/// [`AppError::NotFound`] for the image, or when it has none: agent layers and images built by older versions.
pub async fn image_sbom(app: &App, reference: &str, format: SbomFormat) -> Result<Bytes, AppError> {
    let image = app.store.image_find(reference).await?;
    let missing = || AppError::NotFound {
        what: "bill of materials of".to_owned(),
        key: format!(
            "{}@{} (agent layers and images that older versions built have none)",
            image.name, image.version
        ),
    };
    let download = match app.images.get_document(image.digest, format.document(), None).await {
        Err(StoreError::NotFound { .. }) => return Err(missing()),
        found => found?,
    };
    if download.size > BILL_BYTES_MAX {
        return Err(AppError::Conflict(format!(
            "the bill of materials of {}@{} has {} bytes, expected at most {BILL_BYTES_MAX}",
            image.name, image.version, download.size
        )));
    }
    Ok(download.bytes().await?)
}

/// Removes an image version that nothing needs: the registration first, then the data. When the second fails, the image
/// is found in the store and registered again, and can be removed again.
///
/// # Errors
/// [`AppError::Conflict`] when something needs it, or a build or import is at work.
pub async fn image_remove(app: &App, reference: &str, removed_by: &str) -> Result<(), AppError> {
    let _lock = Exclusive::claim(&app.config.data_dir)?;
    let image = app.store.image_find(reference).await?;
    app.store.image_delete(image.digest, "asked for", removed_by).await?;
    let packs = match app.images.remove(image.digest).await {
        Ok(packs) => packs,
        Err(StoreError::NotFound { .. }) => 0,
        Err(error) => return Err(error.into()),
    };
    // The task that registers images may have looked at it before its signature went.
    app.store.image_unregister(image.digest).await?;
    tracing::info!(image.digest = %image.digest, image.name, packs, user.name = removed_by, "an image was removed");
    Ok(())
}
