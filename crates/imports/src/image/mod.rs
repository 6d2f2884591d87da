//! OCI images: from a layout or archive to the list of its layers, each checked.
//!
//! Nothing of a blob is used before its size and digest are what the document above it says; the one document that
//! nothing vouches for is `index.json` (or `manifest.json` of `docker save`), which names the image.

mod blobs;
mod docker;
mod documents;
mod layout;

use std::io::Read;

use crate::compression;
use crate::imported::{ImageDescription, LayerDescription};
use crate::progress::Meter;
use crate::{ImportError, Limits};

pub(crate) use blobs::{Blobs, digest_of, hash};
pub(crate) use documents::{ARCHITECTURE, Descriptor, Index, Manifest, MediaKind, OS, Platform, is_digest, parse};
pub(crate) use layout::choose;

/// One layer that is to be unpacked.
pub(crate) struct Layer {
    /// Name of the file in the source.
    file: String,
    /// What the manifest says; the older form of `docker save` says nothing.
    descriptor: Option<Descriptor>,
    /// Digest of the uncompressed archive.
    diff_id: String,
}

/// An image of a source, chosen and read, with its layers not looked at yet.
pub(crate) struct Image {
    blobs: Blobs,
    name: Option<String>,
    description: ImageDescription,
    layers: Vec<Layer>,
}

impl Image {
    /// Chooses the image `name`, or the only one, from an OCI layout or an archive of `docker save`.
    pub(crate) fn open(blobs: Blobs, name: Option<&str>, limits: &Limits) -> Result<Self, ImportError> {
        if blobs.has("oci-layout") && blobs.has("index.json") {
            layout::open(blobs, name, limits)
        } else {
            docker::open(blobs, name, limits)
        }
    }

    /// The name that the source gives it.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(crate) fn description(&self) -> &ImageDescription {
        &self.description
    }

    /// Bytes of all layers as they lie in the source.
    pub(crate) fn bytes(&self) -> u64 {
        self.description.layers.iter().map(|layer| layer.bytes).sum()
    }

    /// Checks size and digest of every layer that has one.
    pub(crate) fn verify(&self, meter: &mut Meter<'_>) -> Result<(), ImportError> {
        for layer in &self.layers {
            if let Some(descriptor) = &layer.descriptor {
                self.blobs.verify(&layer.file, descriptor, Some(&mut *meter))?;
            }
        }
        Ok(())
    }

    pub(crate) fn layer_count(&self) -> usize {
        self.layers.len()
    }

    /// A name for errors, the format, and the uncompressed archive of one layer.
    pub(crate) fn layer(&self, index: usize) -> Result<(String, compression::Format, Box<dyn Read + '_>), ImportError> {
        let layer = &self.layers[index];
        let digest = layer
            .descriptor
            .as_ref()
            .map_or(&layer.diff_id, |descriptor| &descriptor.digest);
        let title = format!("layer {} of {} ({digest})", index + 1, self.layers.len());
        let (stream, _) = self.blobs.open(&layer.file)?;
        let (format, stream) = compression::decoder(stream, &title)?;
        Ok((title, format, stream))
    }

    /// What the uncompressed archive of a layer must hash to.
    pub(crate) fn diff_id(&self, index: usize) -> &str {
        &self.layers[index].diff_id
    }
}

/// Puts manifest and configuration together.
fn assemble(
    blobs: Blobs,
    name: Option<String>,
    digest: String,
    config_digest: String,
    config: documents::Config,
    files: Vec<(String, Option<Descriptor>)>,
    limits: &Limits,
) -> Result<Image, ImportError> {
    let place = blobs.place();
    if config.os != OS || config.architecture != ARCHITECTURE {
        return Err(ImportError::Platform {
            place,
            found: vec![format!("{}/{}", config.os, config.architecture)],
        });
    }
    if files.len() > limits.layers_max {
        return Err(ImportError::Limit {
            what: "layers",
            place,
            found: files.len() as u64,
            limit: limits.layers_max as u64,
        });
    }
    let wrong = |problem: String| ImportError::Document {
        document: format!("configuration {config_digest}"),
        problem,
    };
    if files.is_empty() {
        return Err(wrong("the image has no layers".to_owned()));
    }
    let diff_ids = config.rootfs.diff_ids;
    if diff_ids.len() != files.len() {
        return Err(wrong(format!(
            "rootfs.diff_ids has {} entries; the image has {} layers",
            diff_ids.len(),
            files.len()
        )));
    }
    if let Some(bad) = diff_ids.iter().find(|digest| !is_digest(digest)) {
        return Err(wrong(format!(
            "rootfs.diff_ids holds {bad:?}; expected sha256:<64 hexadecimal digits>"
        )));
    }
    let mut layers = Vec::new();
    let mut described = Vec::new();
    for ((file, descriptor), diff_id) in files.into_iter().zip(diff_ids) {
        let bytes = match &descriptor {
            Some(descriptor) => descriptor.size,
            None => blobs.open(&file)?.1,
        };
        described.push(LayerDescription {
            digest: descriptor.as_ref().map(|descriptor| descriptor.digest.clone()),
            diff_id: diff_id.clone(),
            media_type: descriptor.as_ref().map(|descriptor| descriptor.media_type.clone()),
            bytes,
        });
        layers.push(Layer {
            file,
            descriptor,
            diff_id,
        });
    }
    let container = config.config.unwrap_or_default();
    let description = ImageDescription {
        digest,
        config_digest,
        os: config.os,
        architecture: config.architecture,
        created: config.created,
        labels: container.labels.unwrap_or_default(),
        env: container.env.unwrap_or_default(),
        entrypoint: container.entrypoint.unwrap_or_default(),
        cmd: container.cmd.unwrap_or_default(),
        layers: described,
    };
    Ok(Image {
        blobs,
        name,
        description,
        layers,
    })
}
