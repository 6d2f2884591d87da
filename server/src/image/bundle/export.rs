//! Writing a bundle, and going on with one that was broken off.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use manifest::{Digest, Hasher, Header, ManifestKind, Signature};
use tokio::runtime::Handle;

use super::super::build::Progress;
use super::super::keys::Keys;
use super::super::store::{ArtifactName, Document, ImageStore, StoreError};
use super::{
    BLOCK, BundleError, BundledImage, FORMAT, INDEX, INDEX_SIGNATURE, Index, Member, Pace, Part, header, padded, trust,
};

/// A bundle that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The file.
    pub file: PathBuf,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes of it that an earlier run had written already.
    pub bytes_kept: u64,
    /// Images in it, as `name@version`.
    pub images: Vec<String>,
}

/// Writes images of the store in this data folder to a file, which appears when it is complete; until then it is
/// `FILE.part`, and a run that finds one of the same images goes on with it.
///
/// `references` are digests or their beginnings of at least 8 digits, `name` (its highest version) or `name@version`.
///
/// # Errors
/// [`BundleError`].
pub fn export(
    data_dir: &Path,
    references: &[String],
    file: &Path,
    runtime: &Handle,
    progress: &dyn Progress,
) -> Result<Exported, BundleError> {
    if file
        .try_exists()
        .map_err(|source| BundleError::io(format!("looking for {}", file.display()), source))?
    {
        return Err(BundleError::Exists { path: file.to_owned() });
    }
    let keys = Keys::load_or_create(&data_dir.join("keys"))?;
    let source = Source {
        store: ImageStore::open(data_dir)?,
        runtime,
    };
    progress.report("index", "reading manifests");
    let images = source.resolve(references)?;
    let index = source.index(images)?;
    let text = index.encode()?;
    let part = part_path(file);
    let mut out = Output::open(&part)?;
    let signature = match out.kept_index(&text, &keys)? {
        Some(signature) => signature,
        None => {
            out.restart()?;
            trust::sign(&keys, &text)?
        }
    };
    let signature = signature.as_str().as_bytes();
    for (path, bytes) in [(INDEX, text.as_slice()), (INDEX_SIGNATURE, signature)] {
        out.put(path, bytes.len() as u64, Digest::of(bytes), || {
            Ok(Bytes::copy_from_slice(bytes))
        })?;
    }
    let total: u64 = index.members.iter().map(|member| member.size).sum();
    let mut pace = Pace::default();
    for member in &index.members {
        pace.report(progress, "write", out.at, total);
        let part = Part::parse(&member.path);
        out.put(&member.path, member.size, member.sha256, || match part {
            Some(part) => source.read(part),
            None => Err(BundleError::refused(&member.path, "no part of an image store")),
        })?;
    }
    let (bytes, bytes_kept) = out.finish(file)?;
    Ok(Exported {
        file: file.to_owned(),
        bytes,
        bytes_kept,
        images: index
            .images
            .iter()
            .map(|image| format!("{}@{}", image.name, image.version))
            .collect(),
    })
}

fn part_path(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

/// The store, for a thread that may wait.
struct Source<'a> {
    store: ImageStore,
    runtime: &'a Handle,
}

impl Source<'_> {
    fn read(&self, part: Part) -> Result<Bytes, BundleError> {
        let read = async {
            let download = match part {
                Part::Document(image, document) => self.store.get_document(image, document, None).await?,
                Part::Artifact(image, name) => self.store.artifact(image, name, None).await?,
                Part::Pack(pack) => self.store.get_pack(pack, None).await?,
            };
            download.bytes().await
        };
        Ok(self.runtime.block_on(read)?)
    }

    fn header(&self, image: Digest) -> Result<Header, BundleError> {
        let bytes = self.runtime.block_on(self.store.manifest_bytes(image))?;
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        serde_json::from_slice(line)
            .map_err(|error| BundleError::refused(format!("the manifest of image {image}"), error))
    }

    /// The images that are meant, each once, in the order they were named.
    fn resolve(&self, references: &[String]) -> Result<Vec<(Digest, Header)>, BundleError> {
        let mut all = Vec::new();
        for image in self.runtime.block_on(self.store.list())? {
            all.push((image, self.header(image)?));
        }
        let mut seen = HashSet::new();
        let mut found = Vec::new();
        for reference in references {
            let image = find(&all, reference)?;
            if seen.insert(image.0) {
                found.push(image.clone());
            }
        }
        Ok(found)
    }

    fn index(&self, images: Vec<(Digest, Header)>) -> Result<Index, BundleError> {
        let (mut members, mut packs, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        let mut bundled = Vec::new();
        for (image, header) in images {
            for document in Document::BUNDLED {
                match self.read(Part::Document(image, document)) {
                    Ok(bytes) => members.push(member(Part::Document(image, document), &bytes)),
                    // Bills of materials are newer than images are.
                    Err(BundleError::Store(StoreError::NotFound { .. })) if document.is_optional() => {}
                    Err(error) => return Err(error),
                }
            }
            if header.kind == ManifestKind::Deployer {
                for name in ArtifactName::ALL {
                    let bytes = self.read(Part::Artifact(image, name))?;
                    members.push(member(Part::Artifact(image, name), &bytes));
                }
            }
            for pack in self.runtime.block_on(self.store.pack_index(image))?.packs {
                if seen.insert(pack.digest) {
                    packs.push(Member {
                        path: Part::Pack(pack.digest).path(),
                        size: pack.size,
                        sha256: pack.digest,
                    });
                }
            }
            bundled.push(BundledImage {
                digest: image,
                kind: header.kind,
                name: header.name,
                version: header.version,
            });
        }
        members.extend(packs);
        let index = Index {
            format: FORMAT,
            images: bundled,
            members,
        };
        // What nobody could read is not written.
        Index::decode(&index.encode()?)
    }
}

fn member(part: Part, bytes: &[u8]) -> Member {
    Member {
        path: part.path(),
        size: bytes.len() as u64,
        sha256: Digest::of(bytes),
    }
}

/// The image that is meant.
fn find<'a>(all: &'a [(Digest, Header)], reference: &str) -> Result<&'a (Digest, Header), BundleError> {
    let wrong = |problem: &str| BundleError::Reference {
        reference: reference.to_owned(),
        problem: problem.to_owned(),
    };
    if reference.contains('/') {
        return Err(wrong(
            "channels are known to the server only: name a version (plumbline channel show)",
        ));
    }
    let (name, version) = reference
        .split_once('@')
        .map_or((reference, None), |(name, version)| (name, Some(version)));
    let by_name = all
        .iter()
        .filter(|(_, header)| header.name == name && version.is_none_or(|version| header.version == version))
        .max_by(|a, b| a.1.version.cmp(&b.1.version));
    if let Some(image) = by_name {
        return Ok(image);
    }
    let lower = reference.to_ascii_lowercase();
    let is_digest = lower.len() >= 8 && lower.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut by_digest = all
        .iter()
        .filter(|(image, _)| is_digest && image.to_string().starts_with(&lower));
    match (by_digest.next(), by_digest.next()) {
        (Some(image), None) => Ok(image),
        (Some(_), Some(_)) => Err(wrong("several images begin like this")),
        (None, _) => Err(wrong("no such image in the store")),
    }
}

/// The unfinished file. What it holds already is read and compared; at the first difference it is cut.
struct Output {
    path: PathBuf,
    file: BufReader<File>,
    at: u64,
    kept: u64,
    /// Whether what lies at `at` may still be right.
    is_old: bool,
}

impl Output {
    fn open(path: &Path) -> Result<Self, BundleError> {
        let failed = |source| BundleError::io(format!("opening {}", path.display()), source);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(failed)?;
        if rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(BundleError::refused(
                path.display().to_string(),
                "another export writes it",
            ));
        }
        Ok(Self {
            path: path.to_owned(),
            file: BufReader::with_capacity(1 << 20, file),
            at: 0,
            kept: 0,
            is_old: true,
        })
    }

    fn failed(&self) -> impl Fn(std::io::Error) -> BundleError + use<> {
        let what = format!("writing {}", self.path.display());
        move |source| BundleError::io(what.clone(), source)
    }

    /// The signature of the index, when the file begins with this index and a signature of it by this site.
    fn kept_index(&mut self, text: &[u8], keys: &Keys) -> Result<Option<Signature>, BundleError> {
        let signature = self.read_index(text).map_err(self.failed())?;
        self.file.seek(SeekFrom::Start(0)).map_err(self.failed())?;
        Ok(signature.filter(|signature| trust::is_own(keys, text, signature)))
    }

    fn read_index(&mut self, text: &[u8]) -> std::io::Result<Option<Signature>> {
        let mut begin = vec![0; BLOCK as usize];
        if !read_all(&mut self.file, &mut begin)? {
            return Ok(None);
        }
        let mut found = vec![0; usize::try_from(padded(text.len() as u64)).unwrap_or(0)];
        if !read_all(&mut self.file, &mut found)? || !found.starts_with(text) || !read_all(&mut self.file, &mut begin)?
        {
            return Ok(None);
        }
        let size = tar::Header::from_byte_slice(&begin).entry_size().unwrap_or(u64::MAX);
        // A signature of minisign is four short lines.
        let mut signature = vec![0; usize::try_from(size).unwrap_or(usize::MAX).min(4_096)];
        let is_whole = read_all(&mut self.file, &mut signature)?;
        let text = String::from_utf8(signature).ok().filter(|_| is_whole);
        Ok(text.map(Signature::from_text))
    }

    fn restart(&mut self) -> Result<(), BundleError> {
        self.is_old = false;
        self.cut()
    }

    /// Cuts the file where it is right no more.
    fn cut(&mut self) -> Result<(), BundleError> {
        let failed = self.failed();
        self.file.get_ref().set_len(self.at).map_err(&failed)?;
        self.file.seek(SeekFrom::Start(self.at)).map_err(&failed)?;
        Ok(())
    }

    /// Puts a member, unless it stands there already.
    fn put(
        &mut self,
        path: &str,
        size: u64,
        digest: Digest,
        read: impl FnOnce() -> Result<Bytes, BundleError>,
    ) -> Result<(), BundleError> {
        let header = header(path, size)?;
        let length = BLOCK + padded(size);
        if self.is_old {
            if self.is_there(&header, size, digest).map_err(self.failed())? {
                self.at += length;
                self.kept = self.at;
                return Ok(());
            }
            self.is_old = false;
            self.cut()?;
        }
        let bytes = read()?;
        if bytes.len() as u64 != size || Digest::of(&bytes) != digest {
            return Err(BundleError::refused(
                path,
                "the store's file is damaged (plumbline image verify)",
            ));
        }
        let failed = self.failed();
        let file = self.file.get_mut();
        let padding = [0; BLOCK as usize];
        let padding = &padding[..usize::try_from(padded(size) - size).unwrap_or(0)];
        for piece in [&header[..], &bytes, padding] {
            file.write_all(piece).map_err(&failed)?;
        }
        self.at += length;
        Ok(())
    }

    fn is_there(&mut self, header: &[u8], size: u64, digest: Digest) -> std::io::Result<bool> {
        let mut begin = vec![0; BLOCK as usize];
        if !read_all(&mut self.file, &mut begin)? || begin != header {
            return Ok(false);
        }
        let mut hasher = Hasher::new();
        let mut left = size;
        let mut buffer = vec![0; 1 << 18];
        while left > 0 {
            let take = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if !read_all(&mut self.file, &mut buffer[..take])? {
                return Ok(false);
            }
            hasher.update(&buffer[..take]);
            left -= take as u64;
        }
        let padding = usize::try_from(padded(size) - size).unwrap_or(0);
        Ok(read_all(&mut self.file, &mut buffer[..padding])? && hasher.finish() == digest)
    }

    /// Ends the file and gives it its name. Gives its bytes, and how many of them were there before.
    fn finish(mut self, file: &Path) -> Result<(u64, u64), BundleError> {
        self.cut()?;
        let failed = self.failed();
        let out = self.file.get_mut();
        // Two empty blocks end a tar file.
        out.write_all(&[0; 2 * BLOCK as usize]).map_err(&failed)?;
        out.sync_all().map_err(&failed)?;
        std::fs::rename(&self.path, file).map_err(&failed)?;
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
        folder.map_err(&failed)?;
        Ok((self.at + 2 * BLOCK, self.kept))
    }
}

/// Fills the buffer; `false` when the file ends before.
fn read_all(mut from: impl Read, buffer: &mut [u8]) -> std::io::Result<bool> {
    match from.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
