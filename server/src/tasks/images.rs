//! Registers what stands in the image store: built here by the command line, or copied in.

use std::collections::{BTreeMap, HashSet};

use manifest::Digest;
use store::NewImage;

use crate::app::{App, AppError, trust};
use crate::image::ArtifactName;

/// Registers every image that is not yet, and looks whether those that are may still be used; one whose signature does
/// not hold is left alone and named in the log.
///
/// # Errors
/// [`AppError`] when the store or the database does not answer.
pub async fn register_images(app: App) -> Result<(), AppError> {
    let known: HashSet<Digest> = app
        .store
        .image_list()
        .await?
        .into_iter()
        .map(|image| image.digest)
        .collect();
    for digest in app.images.list().await? {
        if known.contains(&digest) {
            continue;
        }
        match describe(&app, digest).await {
            Ok(image) => {
                let is_new = app.store.image_register(&image).await?;
                if !app.images.holds(digest).await? {
                    // Somebody removed it while it was looked at.
                    app.store.image_unregister(digest).await?;
                } else if is_new {
                    tracing::info!(image.digest = %digest, image.name = image.name, image.version = image.version, "image registered");
                }
            }
            Err(error) => {
                tracing::warn!(image.digest = %digest, error = %crate::http::error::chain(&error), "image not registered");
            }
        }
    }
    trust::refresh(&app).await
}

async fn describe(app: &App, digest: Digest) -> Result<NewImage, AppError> {
    let bytes = app.images.manifest_bytes(digest).await?;
    let signature = app.images.signature(digest).await?;
    let manifest = manifest::Manifest::decode(&bytes)?;
    let signer = app.keys.signers().check(manifest.header.kind, &bytes, &signature);
    let signer = signer.map_err(AppError::Conflict)?;
    let mut stored = app.images.pack_index(digest).await?.size();
    if manifest.header.kind == manifest::ManifestKind::Deployer {
        for name in [ArtifactName::Kernel, ArtifactName::Initramfs] {
            stored += app.images.artifact(digest, name, None).await?.size;
        }
    }
    let by_class = manifest.files_by_class();
    let to_i64 = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    Ok(NewImage {
        digest,
        kind: manifest.header.kind.as_str().to_owned(),
        name: manifest.header.name.clone(),
        version: manifest.header.version.clone(),
        description: manifest.header.description.clone(),
        architecture: manifest.header.architecture.clone(),
        files: to_i64(manifest.entries.len() as u64),
        content_bytes: to_i64(manifest.content_bytes()),
        stored_bytes: to_i64(stored),
        signer: Some(signer.to_string()),
        files_by_class: by_class
            .into_iter()
            .map(|(class, count)| (class.as_str().to_owned(), count))
            .collect::<BTreeMap<_, _>>(),
    })
}
