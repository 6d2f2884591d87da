//! The older form of `docker save`: `manifest.json` names files of the archive.
//!
//! No digest of a layer's file is written there. What stands for it is `rootfs.diff_ids` of the configuration, whose
//! own digest is the image's id and the name of its file.

use super::documents::{Config, Saved};
use super::{Blobs, Image, assemble, digest_of, parse};
use crate::{ImportError, Limits};

pub(super) fn open(blobs: Blobs, name: Option<&str>, limits: &Limits) -> Result<Image, ImportError> {
    let bytes = blobs.document("manifest.json", limits).map_err(|error| match error {
        ImportError::Absent { .. } => ImportError::Source {
            path: blobs.place().into(),
            problem: "neither oci-layout and index.json nor manifest.json is in it; expected an image".to_owned(),
        },
        other => other,
    })?;
    let images: Vec<Saved> = parse(&format!("manifest.json in {}", blobs.place()), &bytes)?;
    let tags = |image: &Saved| image.repo_tags.clone().unwrap_or_default();
    let titles = || -> Vec<String> {
        let title = |image: &Saved| tags(image).into_iter().next().unwrap_or_else(|| image.config.clone());
        images.iter().map(title).collect()
    };
    let image = match (name, images.as_slice()) {
        (None, [image]) => image,
        (None, _) => {
            return Err(ImportError::Ambiguous {
                place: blobs.place(),
                found: titles(),
            });
        }
        (Some(name), images) => images
            .iter()
            .find(|image| tags(image).iter().any(|tag| tag == name))
            .ok_or_else(|| ImportError::NoSuchImage {
                place: blobs.place(),
                name: name.to_owned(),
                found: titles(),
            })?,
    };
    let bytes = blobs.document(&image.config, limits)?;
    let digest = digest_of(&bytes);
    let stem = image.config.rsplit('/').next().unwrap_or(&image.config);
    let expected = format!("sha256:{}", stem.trim_end_matches(".json"));
    if super::is_digest(&expected) && expected != digest {
        return Err(ImportError::Digest {
            blob: image.config.clone(),
            expected,
            found: digest,
        });
    }
    let config: Config = parse(&format!("configuration {}", image.config), &bytes)?;
    let files = image.layers.iter().map(|file| (file.clone(), None)).collect();
    let name = name.map(str::to_owned).or_else(|| tags(image).into_iter().next());
    assemble(blobs, name, digest.clone(), digest, config, files, limits)
}
