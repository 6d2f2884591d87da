//! What can be brought, and bringing it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::archive::Reader;
use crate::compression::{self, Format};
use crate::image::{Blobs, Image};
use crate::imported::{ImageDescription, Imported, Origin, OriginKind};
use crate::notes::Notes;
use crate::progress::{Meter, Stage, Tell};
use crate::staging::Staging;
use crate::tree::Tree;
use crate::unpack::{Part, Unpacker};
use crate::{ImportError, Limits, folder};

/// A root filesystem somewhere on this machine. One in a registry becomes a [`Source::Layout`] by
/// [`crate::registry::pull`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A folder in the OCI image layout, as `skopeo copy … oci:FOLDER` and `podman save --format oci-dir` write it.
    Layout {
        /// The folder.
        path: PathBuf,
        /// Tag or digest of the image; `None` where there is only one.
        name: Option<String>,
    },
    /// An archive of `docker save` or `podman save`, in the older form or as an OCI layout; perhaps compressed.
    ImageArchive {
        /// The archive.
        path: PathBuf,
        /// Tag of the image; `None` where there is only one.
        name: Option<String>,
    },
    /// A tar archive of a root: plain, gzip, zstd or xz.
    Tarball {
        /// The archive.
        path: PathBuf,
    },
    /// A folder that holds a root.
    Folder {
        /// The folder.
        path: PathBuf,
    },
}

impl Source {
    /// Tells by looking what `path` is: a layout if it holds `oci-layout`, otherwise a root; an image if an archive
    /// starts with files of one, otherwise a root.
    ///
    /// # Errors
    /// [`ImportError::Source`] when it is neither folder nor archive, and what reading it says.
    pub fn detect(path: &Path, limits: &Limits) -> Result<Self, ImportError> {
        let text = path.display().to_string();
        let path = path.to_owned();
        let metadata = std::fs::metadata(&path).map_err(ImportError::io("look at", text.clone()))?;
        if metadata.is_dir() {
            return Ok(if path.join("oci-layout").is_file() {
                Self::Layout { path, name: None }
            } else {
                Self::Folder { path }
            });
        }
        if !metadata.is_file() {
            return Err(ImportError::Source {
                path,
                problem: "neither a folder nor a regular file".to_owned(),
            });
        }
        // An image's archive has a dozen entries at its top; a root may hold a file of such a name, but not blobs too.
        let file = File::open(&path).map_err(ImportError::io("open", text.clone()))?;
        let (format, stream) = compression::decoder(Box::new(file), &text)?;
        let mut reader = Reader::new(stream, text, format.name(), limits);
        for _ in 0..4 {
            let Some(entry) = reader.next()? else { break };
            let name = entry.name.strip_prefix(b"./").unwrap_or(&entry.name);
            let hexadecimal = name.iter().take(64).filter(|byte| byte.is_ascii_hexdigit()).count() == 64;
            if hexadecimal
                || name.starts_with(b"blobs/")
                || matches!(name, b"oci-layout" | b"manifest.json" | b"index.json")
            {
                return Ok(Self::ImageArchive { path, name: None });
            }
        }
        Ok(Self::Tarball { path })
    }

    fn origin(&self, name: Option<&str>) -> Origin {
        let (kind, path) = match self {
            Self::Layout { path, .. } => (OriginKind::OciLayout, path),
            Self::ImageArchive { path, .. } => (OriginKind::ImageArchive, path),
            Self::Tarball { path } => (OriginKind::Tarball, path),
            Self::Folder { path } => (OriginKind::Folder, path),
        };
        Origin {
            kind,
            location: path.display().to_string(),
            name: name.map(str::to_owned),
        }
    }
}

/// A source that has been opened: it is what it should be, and its documents have been checked.
pub struct Import {
    source: Source,
    opened: Opened,
    limits: Limits,
}

enum Opened {
    Image(Box<Image>),
    Tarball(File),
    Folder(PathBuf),
}

impl Import {
    /// Opens a source. Of an image, all documents are read and checked here, its layers are not.
    ///
    /// A compressed image archive is unpacked into a nameless file in the system's folder for temporary files first.
    ///
    /// # Errors
    /// Any of [`ImportError`] that concerns documents and files of the source.
    pub fn open(source: Source, limits: &Limits) -> Result<Self, ImportError> {
        let opened = match &source {
            Source::Layout { path, name } => {
                let image = Image::open(Blobs::folder(path)?, name.as_deref(), limits)?;
                Opened::Image(Box::new(image))
            }
            Source::ImageArchive { path, name } => {
                let blobs = Blobs::archive(path, &std::env::temp_dir(), limits)?;
                Opened::Image(Box::new(Image::open(blobs, name.as_deref(), limits)?))
            }
            Source::Tarball { path } => {
                let file = File::open(path).map_err(ImportError::io("open", path.display().to_string()))?;
                Opened::Tarball(file)
            }
            Source::Folder { path } => {
                let metadata =
                    std::fs::metadata(path).map_err(ImportError::io("look at", path.display().to_string()))?;
                if !metadata.is_dir() {
                    return Err(ImportError::Source {
                        path: path.clone(),
                        problem: "expected a folder".to_owned(),
                    });
                }
                Opened::Folder(path.clone())
            }
        };
        Ok(Self {
            source,
            opened,
            limits: limits.clone(),
        })
    }

    /// What the image says of itself; `None` for tarballs and folders.
    #[must_use]
    pub fn image(&self) -> Option<&ImageDescription> {
        match &self.opened {
            Opened::Image(image) => Some(image.description()),
            _ => None,
        }
    }

    /// Unpacks the root into `target`, which must not exist and whose parent must. It appears when it is complete;
    /// after an error nothing is there. `tell` is called now and then, and stops the import by breaking.
    ///
    /// # Errors
    /// Any of [`ImportError`].
    pub fn unpack_into<'a>(&self, target: &Path, tell: &'a mut Tell<'a>) -> Result<Imported, ImportError> {
        if !rustix::process::geteuid().is_root() {
            return Err(ImportError::NotRoot);
        }
        let mut meter = Meter::new(tell);
        let staging = Staging::begin(target)?;
        let mut imported = Imported {
            origin: self.source.origin(None),
            image: self.image().cloned(),
            tarball_digest: None,
            entries: 0,
            content_bytes: 0,
            notes: Vec::new(),
            notes_left_out: 0,
        };
        match &self.opened {
            Opened::Folder(path) => {
                meter.stage(Stage::Copy, None)?;
                let copied = folder::copy(path, &staging, &self.limits, &mut meter)?;
                (imported.entries, imported.content_bytes) = (copied.entries, copied.content_bytes);
                keep(copied.notes, &mut imported);
            }
            Opened::Image(image) => {
                imported.origin = self.source.origin(image.name());
                meter.stage(Stage::Verify, Some(image.bytes()))?;
                image.verify(&mut meter)?;
                self.unpack(&staging, &mut meter, &mut imported, |unpacker| {
                    layers(image, unpacker, &self.limits)
                })?;
            }
            Opened::Tarball(file) => {
                let digest = self.unpack(&staging, &mut meter, &mut imported, |unpacker| {
                    tarball(file, &self.source, unpacker, &self.limits)
                })?;
                imported.tarball_digest = Some(digest);
            }
        }
        meter.stage(Stage::Finish, None)?;
        staging.finish()?;
        Ok(imported)
    }

    fn unpack<'m, T>(
        &self,
        staging: &Staging,
        meter: &mut Meter<'m>,
        imported: &mut Imported,
        archives: impl FnOnce(&mut Unpacker<'_, 'm>) -> Result<T, ImportError>,
    ) -> Result<T, ImportError> {
        let tree = Tree::open(&staging.root(), self.limits.depth_max)?;
        meter.stage(Stage::Unpack, None)?;
        let mut unpacker = Unpacker::new(tree, &self.limits, meter);
        let result = archives(&mut unpacker)?;
        unpacker.finish()?;
        (imported.entries, imported.content_bytes) = (unpacker.entries, unpacker.content_bytes);
        keep(unpacker.notes, imported);
        Ok(result)
    }
}

fn keep(notes: Notes, imported: &mut Imported) {
    imported.notes = notes.kept;
    imported.notes_left_out = notes.left_out;
}

fn layers(image: &Image, unpacker: &mut Unpacker<'_, '_>, limits: &Limits) -> Result<(), ImportError> {
    for index in 0..image.layer_count() {
        let (title, format, stream) = image.layer(index)?;
        let mut hashing = Hashing::new(stream);
        let mut reader = Reader::new(&mut hashing, title.clone(), format.name(), limits).ending_with_stream();
        let part = if index == 0 { Part::LowestLayer } else { Part::Layer };
        unpacker.apply(&mut reader, part)?;
        let found = hashing.digest();
        if found != image.diff_id(index) {
            return Err(ImportError::Digest {
                blob: format!("{title}, uncompressed"),
                expected: image.diff_id(index).to_owned(),
                found,
            });
        }
    }
    Ok(())
}

/// Unpacks a tarball and gives the digest of the file.
fn tarball(
    file: &File,
    source: &Source,
    unpacker: &mut Unpacker<'_, '_>,
    limits: &Limits,
) -> Result<String, ImportError> {
    let text = source.origin(None).location;
    let file = file.try_clone().map_err(ImportError::io("read", &*text))?;
    std::io::Seek::rewind(&mut &file).map_err(ImportError::io("read", &*text))?;
    let mut hashing = Hashing::new(file);
    let (format, stream) = compression::decoder(Box::new(&mut hashing), &text)?;
    let mut reader = Reader::new(stream, &*text, format.name(), limits);
    unpacker.apply(&mut reader, Part::Root)?;
    drop(reader);
    if format != Format::Plain {
        // A decoder may leave bytes behind the compressed stream.
        std::io::copy(&mut hashing, &mut std::io::sink()).map_err(ImportError::io("read", &*text))?;
    }
    Ok(hashing.digest().trim_start_matches("sha256:").to_owned())
}

/// Hashes what passes through.
struct Hashing<R> {
    stream: R,
    hasher: Sha256,
}

impl<R: Read> Hashing<R> {
    fn new(stream: R) -> Self {
        Self {
            stream,
            hasher: Sha256::new(),
        }
    }

    fn digest(&mut self) -> String {
        format!("sha256:{}", hex::encode(self.hasher.clone().finalize()))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let got = self.stream.read(buffer)?;
        self.hasher.update(&buffer[..got]);
        Ok(got)
    }
}
