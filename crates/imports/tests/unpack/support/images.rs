//! OCI layouts and archives of `docker save`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use imports::Source;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{File, Tar, file};

pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Files of a layout: blobs and what names them.
#[derive(Clone, Default)]
pub struct Images {
    pub blobs: BTreeMap<String, Vec<u8>>,
    pub manifests: Vec<Value>,
}

impl Images {
    /// One image for linux/amd64 of these uncompressed layers.
    pub fn of(layers: &[Vec<u8>]) -> Self {
        let mut images = Self::default();
        let layers: Vec<_> = layers
            .iter()
            .map(|layer| (LAYER, layer.clone(), layer.clone()))
            .collect();
        let manifest = images.image("linux", "amd64", &layers);
        images.manifests.push(manifest);
        images
    }

    /// A layout with one image: media type, blob and uncompressed archive of each layer.
    pub fn of_blobs(layers: &[(&str, Vec<u8>, Vec<u8>)]) -> Self {
        let mut images = Self::default();
        let manifest = images.image("linux", "amd64", layers);
        images.manifests.push(manifest);
        images
    }

    pub fn blob(&mut self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = sha256(bytes);
        self.blobs.insert(digest.clone(), bytes.to_vec());
        json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len()})
    }

    pub fn image(&mut self, os: &str, architecture: &str, layers: &[(&str, Vec<u8>, Vec<u8>)]) -> Value {
        let diff_ids: Vec<String> = layers
            .iter()
            .map(|(_, _, plain)| format!("sha256:{}", sha256(plain)))
            .collect();
        let config = json!({
            "os": os, "architecture": architecture, "created": "2026-01-02T03:04:05Z",
            "config": {
                "Env": ["PATH=/usr/bin"], "Entrypoint": ["/sbin/init"],
                "Labels": {"org.opencontainers.image.title": "a root"},
            },
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = self.blob(
            "application/vnd.oci.image.config.v1+json",
            config.to_string().as_bytes(),
        );
        let layers: Vec<Value> = layers.iter().map(|(kind, blob, _)| self.blob(kind, blob)).collect();
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers});
        self.blob(MANIFEST, manifest.to_string().as_bytes())
    }

    /// An index of descriptors as a blob.
    pub fn index(&mut self, manifests: &[Value]) -> Value {
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
        self.blob(INDEX, index.to_string().as_bytes())
    }

    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        let index = json!({"schemaVersion": 2, "manifests": self.manifests}).to_string();
        let mut files = vec![
            ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
            ("index.json".to_owned(), index.into_bytes()),
        ];
        let blobs = self.blobs.iter();
        files.extend(blobs.map(|(digest, blob)| (format!("blobs/sha256/{digest}"), blob.clone())));
        files
    }

    pub fn write(&self, folder: &Path) {
        for (name, content) in self.files() {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
    }

    /// A layout in a folder.
    pub fn layout(&self) -> Layout {
        let folder = tempfile::tempdir().unwrap();
        self.write(folder.path());
        Layout(folder)
    }

    /// The same in one archive.
    pub fn archive(&self) -> File {
        let mut tar = Tar::new();
        for (name, content) in self.files() {
            tar = tar.entry(tar::EntryType::Regular, name.as_bytes(), &content, |_| {});
        }
        file("image.tar", &tar.finish())
    }
}

pub struct Layout(tempfile::TempDir);

impl Layout {
    pub fn source(&self) -> Source {
        self.named(None)
    }

    pub fn named(&self, name: Option<&str>) -> Source {
        Source::Layout {
            path: self.0.path().to_owned(),
            name: name.map(str::to_owned),
        }
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}
