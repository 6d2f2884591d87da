//! The JSON documents of an image, as far as an import needs them (OCI image specification 1.1; Docker's image
//! manifest version 2, schema 2, has the same shape).

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ImportError;

/// The platform of nodes.
pub(crate) const OS: &str = "linux";
pub(crate) const ARCHITECTURE: &str = "amd64";

/// A reference to a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: String,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Platform {
    #[serde(default)]
    pub(crate) os: String,
    #[serde(default)]
    pub(crate) architecture: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) variant: Option<String>,
}

impl Platform {
    pub(crate) fn fits(&self) -> bool {
        self.os == OS && self.architecture == ARCHITECTURE
    }

    pub(crate) fn text(&self) -> String {
        match &self.variant {
            Some(variant) => format!("{}/{}/{variant}", self.os, self.architecture),
            None => format!("{}/{}", self.os, self.architecture),
        }
    }
}

/// `index.json`, an image index, or Docker's manifest list.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    #[serde(default)]
    pub(crate) schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) media_type: Option<String>,
    pub(crate) manifests: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Config {
    #[serde(default)]
    pub(crate) os: String,
    #[serde(default)]
    pub(crate) architecture: String,
    #[serde(default)]
    pub(crate) created: Option<String>,
    #[serde(default)]
    pub(crate) config: Option<ContainerConfig>,
    pub(crate) rootfs: RootFilesystem,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct ContainerConfig {
    pub(crate) labels: Option<BTreeMap<String, String>>,
    pub(crate) env: Option<Vec<String>>,
    pub(crate) entrypoint: Option<Vec<String>>,
    pub(crate) cmd: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RootFilesystem {
    #[serde(default)]
    pub(crate) diff_ids: Vec<String>,
}

/// One image of `manifest.json`, as `docker save` writes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Saved {
    pub(crate) config: String,
    #[serde(default)]
    pub(crate) repo_tags: Option<Vec<String>>,
    pub(crate) layers: Vec<String>,
}

/// What a media type names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MediaKind {
    Index,
    Manifest,
    Config,
    Layer,
    EncryptedLayer,
    /// Docker's first schema, which has no configuration and no checked layers.
    OldManifest,
    Other,
}

impl MediaKind {
    /// Media types with their parameters cut off.
    pub(crate) fn of(media_type: &str) -> Self {
        let name = media_type.split(';').next().unwrap_or("").trim();
        match name {
            "application/vnd.oci.image.index.v1+json" | "application/vnd.docker.distribution.manifest.list.v2+json" => {
                Self::Index
            }
            "application/vnd.oci.image.manifest.v1+json" | "application/vnd.docker.distribution.manifest.v2+json" => {
                Self::Manifest
            }
            "application/vnd.oci.image.config.v1+json" | "application/vnd.docker.container.image.v1+json" => {
                Self::Config
            }
            "application/vnd.oci.image.layer.v1.tar"
            | "application/vnd.oci.image.layer.v1.tar+gzip"
            | "application/vnd.oci.image.layer.v1.tar+zstd"
            | "application/vnd.oci.image.layer.nondistributable.v1.tar"
            | "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"
            | "application/vnd.oci.image.layer.nondistributable.v1.tar+zstd"
            | "application/vnd.docker.image.rootfs.diff.tar"
            | "application/vnd.docker.image.rootfs.diff.tar.gzip"
            | "application/vnd.docker.image.rootfs.diff.tar.zstd"
            | "application/vnd.docker.image.rootfs.foreign.diff.tar"
            | "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip" => Self::Layer,
            "application/vnd.docker.distribution.manifest.v1+json"
            | "application/vnd.docker.distribution.manifest.v1+prettyjws" => Self::OldManifest,
            _ if name.ends_with("+encrypted") => Self::EncryptedLayer,
            _ => Self::Other,
        }
    }
}

/// Whether this is `sha256:` and 64 lower-case hexadecimal digits. A digest becomes part of a path: nothing else passes.
pub(crate) fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|digits| {
        digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Parses one document.
pub(crate) fn parse<T: DeserializeOwned>(document: &str, bytes: &[u8]) -> Result<T, ImportError> {
    serde_json::from_slice(bytes).map_err(|error| ImportError::Document {
        document: document.to_owned(),
        problem: error.to_string(),
    })
}

impl Manifest {
    /// Checks what kind of blobs a manifest names, before any of them is fetched or opened.
    pub(crate) fn check(&self, digest: &str) -> Result<(), ImportError> {
        if MediaKind::of(&self.config.media_type) != MediaKind::Config {
            return Err(ImportError::MediaType {
                blob: format!("configuration of manifest {digest}"),
                media_type: self.config.media_type.clone(),
                expected: "an image's configuration; this is no image of a root filesystem",
            });
        }
        for descriptor in self.layers.iter().chain([&self.config]) {
            descriptor.check()?;
        }
        for layer in &self.layers {
            let blob = layer.digest.clone();
            let media_type = layer.media_type.clone();
            match MediaKind::of(&layer.media_type) {
                MediaKind::Layer => {}
                MediaKind::EncryptedLayer => return Err(ImportError::Encrypted { blob, media_type }),
                _ => {
                    return Err(ImportError::MediaType {
                        blob: format!("layer {blob}"),
                        media_type,
                        expected: "a tar archive, plain or with gzip or zstd",
                    });
                }
            }
        }
        Ok(())
    }
}

impl Descriptor {
    pub(crate) fn check(&self) -> Result<(), ImportError> {
        if is_digest(&self.digest) {
            return Ok(());
        }
        Err(ImportError::Document {
            document: "descriptor".to_owned(),
            problem: format!("digest {:?}; expected sha256:<64 hexadecimal digits>", self.digest),
        })
    }

    /// Name of the blob's file in a layout. Call after [`Descriptor::check`].
    pub(crate) fn file(&self) -> String {
        format!("blobs/{}", self.digest.replacen(':', "/", 1))
    }
}
