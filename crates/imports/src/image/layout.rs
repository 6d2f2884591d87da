//! Choosing an image of an OCI image layout (OCI image specification, "Image Layout").

use super::documents::{Config, Manifest};
use super::{Blobs, Descriptor, Image, Index, MediaKind, assemble, parse};
use crate::{ImportError, Limits};

/// Indexes in indexes; builders nest one.
const NESTED_MAX: usize = 3;
const NAME: &str = "org.opencontainers.image.ref.name";
/// What containerd and newer `docker save` write beside it: the whole reference.
const LONG_NAME: &str = "io.containerd.image.name";

pub(super) fn open(blobs: Blobs, name: Option<&str>, limits: &Limits) -> Result<Image, ImportError> {
    let index: Index = parse(
        &format!("index.json in {}", blobs.place()),
        &blobs.document("index.json", limits)?,
    )?;
    let named: Vec<&Descriptor> = match name {
        None => index.manifests.iter().collect(),
        Some(name) => index
            .manifests
            .iter()
            .filter(|descriptor| names(descriptor).any(|found| found == name) || descriptor.digest == name)
            .collect(),
    };
    if let (Some(name), true) = (name, named.is_empty()) {
        return Err(ImportError::NoSuchImage {
            place: blobs.place(),
            name: name.to_owned(),
            found: index.manifests.iter().map(title).collect(),
        });
    }
    let mut wanted = choose(named.into_iter(), &blobs.place())?.clone();
    let found_name = name
        .map(str::to_owned)
        .or_else(|| names(&wanted).next().map(str::to_owned));
    for _ in 0..NESTED_MAX {
        if MediaKind::of(&wanted.media_type) != MediaKind::Index {
            break;
        }
        let nested: Index = parse(
            &format!("index {}", wanted.digest),
            &blobs.checked_document(&wanted, limits)?,
        )?;
        wanted = choose(
            nested.manifests.iter(),
            &format!("{} (index {})", blobs.place(), wanted.digest),
        )?
        .clone();
    }
    let kind = MediaKind::of(&wanted.media_type);
    if kind != MediaKind::Manifest {
        return Err(ImportError::MediaType {
            blob: wanted.digest,
            media_type: wanted.media_type,
            expected: match kind {
                MediaKind::OldManifest => "a manifest of schema 2; push the image again with a current tool",
                _ => "an image manifest",
            },
        });
    }
    let manifest: Manifest = parse(
        &format!("manifest {}", wanted.digest),
        &blobs.checked_document(&wanted, limits)?,
    )?;
    manifest.check(&wanted.digest)?;
    let config: Config = parse(
        &format!("configuration {}", manifest.config.digest),
        &blobs.checked_document(&manifest.config, limits)?,
    )?;
    let files = manifest
        .layers
        .into_iter()
        .map(|layer| (layer.file(), Some(layer)))
        .collect();
    assemble(
        blobs,
        found_name,
        wanted.digest,
        manifest.config.digest,
        config,
        files,
        limits,
    )
}

/// The one manifest or index for linux/amd64. Entries without a platform may be for it: their configuration says.
pub(crate) fn choose<'a>(
    manifests: impl Iterator<Item = &'a Descriptor>,
    place: &str,
) -> Result<&'a Descriptor, ImportError> {
    let manifests: Vec<&Descriptor> = manifests
        // Attestations, signatures and other things that lie beside images.
        .filter(|descriptor| {
            matches!(
                MediaKind::of(&descriptor.media_type),
                MediaKind::Index | MediaKind::Manifest | MediaKind::OldManifest
            )
        })
        .filter(|descriptor| {
            descriptor
                .platform
                .as_ref()
                .is_none_or(|platform| platform.os != "unknown")
        })
        .collect();
    let certain: Vec<&Descriptor> = manifests
        .iter()
        .copied()
        .filter(|descriptor| descriptor.platform.as_ref().is_some_and(super::Platform::fits))
        .collect();
    let possible: Vec<&Descriptor> = if certain.is_empty() {
        manifests
            .iter()
            .copied()
            .filter(|descriptor| descriptor.platform.is_none())
            .collect()
    } else {
        certain
    };
    match possible.as_slice() {
        [] => Err(ImportError::Platform {
            place: place.to_owned(),
            found: manifests
                .iter()
                .filter_map(|descriptor| descriptor.platform.as_ref())
                .map(super::Platform::text)
                .collect(),
        }),
        [one, rest @ ..] if rest.iter().all(|other| other.digest == one.digest) => Ok(one),
        several => Err(ImportError::Ambiguous {
            place: place.to_owned(),
            found: several.iter().map(|descriptor| title(descriptor)).collect(),
        }),
    }
}

fn names(descriptor: &Descriptor) -> impl Iterator<Item = &str> {
    [LONG_NAME, NAME]
        .into_iter()
        .filter_map(|key| descriptor.annotations.get(key).map(String::as_str))
}

fn title(descriptor: &Descriptor) -> String {
    names(descriptor)
        .next()
        .map_or_else(|| descriptor.digest.clone(), str::to_owned)
}
