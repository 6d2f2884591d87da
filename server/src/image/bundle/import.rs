//! Taking a bundle in.
//!
//! First the whole file is read: the index and its signature, then every member against the index, the manifests'
//! signatures, and the packs go into the store. Packs alone are no image, so a run that was broken off leaves nothing that
//! looks like one, and the next one finds its packs there. Then, from the store, every file of every image is checked, and
//! only when all of that holds the documents follow, each image's signature last.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{BufReader, Read, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use manifest::packs::PackIndex;
use manifest::{Digest, Hasher, Manifest, ManifestKind, Signature};
use tokio::runtime::Handle;

use super::super::build::Progress;
use super::super::exclusive::Exclusive;
use super::super::keys::{Keys, Signers};
use super::super::store::{ArtifactName, Document, ImageStore, artifact_path, document_path, pack_path};
use super::{
    BLOCK, BundleError, DOCUMENT_BYTES_MAX, INDEX, INDEX_BYTES_MAX, INDEX_SIGNATURE, Index, Member, Pace, Part, padded,
    trust,
};

/// Largest signature, in bytes.
const SIGNATURE_BYTES_MAX: u64 = 4_096;

/// What was taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The images, in the bundle's order.
    pub images: Vec<ImportedImage>,
    /// Packs that came from the bundle.
    pub packs_new: u64,
    /// Packs that were in the store already, and were right.
    pub packs_there: u64,
    /// Bytes of the bundle.
    pub bytes: u64,
}

/// An image that is in the store now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedImage {
    /// Its digest.
    pub digest: Digest,
    /// Its kind.
    pub kind: ManifestKind,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// It was there before.
    pub was_there: bool,
}

/// Takes the images of a bundle into the store in this data folder, all of them or none.
///
/// # Errors
/// [`BundleError`]: the bundle is refused or cut short, somebody else is at work in the store, or the store fails.
pub fn import(
    data_dir: &Path,
    file: &Path,
    runtime: &Handle,
    progress: &dyn Progress,
) -> Result<Imported, BundleError> {
    let opened = File::open(file).map_err(|source| BundleError::io(format!("opening {}", file.display()), source))?;
    let _lock = Exclusive::claim(data_dir)?;
    let keys = Keys::load_or_create(&data_dir.join("keys"))?;
    let importing = Importing {
        store: ImageStore::open(data_dir)?,
        trusted: keys.signers(),
        runtime,
        progress,
    };
    importing.run(Reader::new(opened))
}

struct Importing<'a> {
    store: ImageStore,
    trusted: Arc<Signers>,
    runtime: &'a Handle,
    progress: &'a dyn Progress,
}

/// What is kept of an image between its two readings.
struct Waiting {
    manifest: (u64, Member),
    signature: Signature,
    packs: Bytes,
    artifacts: Vec<(ArtifactName, u64, Member)>,
    others: Vec<(Document, Bytes)>,
}

impl Importing<'_> {
    fn run(&self, mut reader: Reader) -> Result<Imported, BundleError> {
        self.progress.report("index", "checking who signed it");
        let index = self.index(&mut reader)?;
        let total: u64 = index.members.iter().map(|member| member.size).sum();
        let mut images: BTreeMap<Digest, Waiting> = BTreeMap::new();
        let mut pace = Pace::default();
        let (mut packs_new, mut packs_there) = (0, 0);
        let mut manifest: Option<(Digest, u64, Member, Bytes)> = None;
        for member in &index.members {
            pace.report(self.progress, "read", reader.at, total);
            let at = reader.at;
            // The index was checked to name nothing else.
            let part =
                Part::parse(&member.path).ok_or_else(|| BundleError::refused(&member.path, "no part of a store"))?;
            match part {
                Part::Pack(pack) => match self.is_there(pack, member.size)? {
                    true => {
                        reader.check(member)?;
                        packs_there += 1;
                    }
                    false => {
                        let bytes = reader.take(member)?;
                        self.runtime.block_on(self.store.put_pack(pack, bytes))?;
                        packs_new += 1;
                    }
                },
                Part::Artifact(image, name) => {
                    reader.check(member)?;
                    let waiting = images.get_mut(&image).ok_or_else(|| out_of_order(member))?;
                    waiting.artifacts.push((name, at, member.clone()));
                }
                Part::Document(image, Document::Manifest) => {
                    manifest = Some((image, at, member.clone(), reader.take(member)?));
                }
                Part::Document(image, Document::Signature) => {
                    let bytes = reader.take(member)?;
                    let (_, at, manifest_member, text) = manifest
                        .take()
                        .filter(|(of, ..)| *of == image)
                        .ok_or_else(|| out_of_order(member))?;
                    let signature = Signature::from_text(String::from_utf8_lossy(&bytes).into_owned());
                    self.check_manifest(&index, image, &text, &signature)?;
                    let waiting = Waiting {
                        manifest: (at, manifest_member),
                        signature,
                        packs: Bytes::new(),
                        artifacts: Vec::new(),
                        others: Vec::new(),
                    };
                    images.insert(image, waiting);
                }
                Part::Document(image, document) => {
                    let bytes = reader.take(member)?;
                    let waiting = images.get_mut(&image).ok_or_else(|| out_of_order(member))?;
                    match document {
                        Document::PackIndex => waiting.packs = bytes,
                        other => waiting.others.push((other, bytes)),
                    }
                }
            }
        }
        reader.end()?;
        let bytes = reader.at;

        for (image, waiting) in &images {
            self.progress
                .report("check", &format!("every file of image {}", image.short()));
            self.check_contents(&mut reader, *image, waiting)?;
        }
        let mut imported = Vec::new();
        for bundled in index.images {
            let was_there = self.runtime.block_on(self.store.holds(bundled.digest))?;
            if let Some(waiting) = images.remove(&bundled.digest) {
                self.put(&mut reader, bundled.digest, waiting)?;
            }
            imported.push(ImportedImage {
                digest: bundled.digest,
                kind: bundled.kind,
                name: bundled.name,
                version: bundled.version,
                was_there,
            });
        }
        Ok(Imported {
            images: imported,
            packs_new,
            packs_there,
            bytes,
        })
    }

    /// The index, when it is signed by who is trusted.
    fn index(&self, reader: &mut Reader) -> Result<Index, BundleError> {
        let text = reader.take_unlisted(INDEX, INDEX_BYTES_MAX)?;
        let signature = reader.take_unlisted(INDEX_SIGNATURE, SIGNATURE_BYTES_MAX)?;
        let signature = Signature::from_text(String::from_utf8_lossy(&signature).into_owned());
        trust::check(&self.trusted, None, INDEX, &text, &signature)?;
        Index::decode(&text)
    }

    fn check_manifest(
        &self,
        index: &Index,
        image: Digest,
        text: &[u8],
        signature: &Signature,
    ) -> Result<(), BundleError> {
        let what = format!("image {image}");
        let manifest = Manifest::decode(text).map_err(|error| BundleError::refused(&what, error))?;
        let header = &manifest.header;
        let is_as_listed = index.images.iter().any(|one| {
            one.digest == image && one.kind == header.kind && one.name == header.name && one.version == header.version
        });
        if !is_as_listed {
            return Err(BundleError::refused(
                what,
                "its manifest says another kind, name or version than the index",
            ));
        }
        trust::check(&self.trusted, Some(header.kind), &what, text, signature)
    }

    /// Whether a pack lies in the store and is right. One that is not is written again.
    fn is_there(&self, pack: Digest, size: u64) -> Result<bool, BundleError> {
        let read = async {
            if self.store.size(&pack_path(pack)).await? != Some(size) {
                return Ok(false);
            }
            let bytes = self.store.get_pack(pack, None).await?.bytes().await?;
            let is_right = Digest::of(&bytes) == pack;
            if !is_right {
                self.store.delete(&pack_path(pack)).await?;
            }
            Ok::<bool, BundleError>(is_right)
        };
        self.runtime.block_on(read)
    }

    /// Checks that the packs in the store and the artifacts hold every file of an image.
    fn check_contents(&self, reader: &mut Reader, image: Digest, waiting: &Waiting) -> Result<(), BundleError> {
        let what = format!("image {image}");
        let refused = |problem: String| BundleError::refused(&what, problem);
        let manifest = self.manifest(reader, waiting)?;
        let packs = PackIndex::decode(&waiting.packs).map_err(|error| refused(error.to_string()))?;
        let mut artifacts = HashSet::new();
        for (_, _, member) in &waiting.artifacts {
            artifacts.insert(member.sha256);
        }
        let report = self
            .runtime
            .block_on(self.store.check_contents(&manifest, packs, artifacts))?;
        if let Some(pack) = report.packs_damaged.first() {
            return Err(refused(format!("pack {pack} is missing or damaged")));
        }
        if let Some(path) = report.damaged.first() {
            let count = report.damaged_count;
            return Err(refused(format!(
                "{count} files have no content in the bundle, the first is {path}"
            )));
        }
        Ok(())
    }

    fn manifest(&self, reader: &mut Reader, waiting: &Waiting) -> Result<Manifest, BundleError> {
        let (at, member) = &waiting.manifest;
        Ok(Manifest::decode(&reader.take_at(*at, member)?)?)
    }

    /// Writes an image's documents, the signature last.
    fn put(&self, reader: &mut Reader, image: Digest, waiting: Waiting) -> Result<(), BundleError> {
        let put = |path, bytes| self.runtime.block_on(self.store.put(&path, bytes));
        for (name, at, member) in &waiting.artifacts {
            put(artifact_path(image, *name), reader.take_at(*at, member)?)?;
        }
        for (document, bytes) in waiting.others {
            put(document_path(image, document.name()), bytes)?;
        }
        let squeezed = |document, text: &[u8]| self.runtime.block_on(self.store.put_squeezed(image, document, text));
        squeezed(Document::PackIndexSqueezed, &waiting.packs)?;
        put(document_path(image, Document::PackIndex.name()), waiting.packs)?;
        let (at, member) = &waiting.manifest;
        let manifest = reader.take_at(*at, member)?;
        squeezed(Document::ManifestSqueezed, &manifest)?;
        put(document_path(image, Document::Manifest.name()), manifest)?;
        let signature = waiting.signature.as_str().to_owned().into();
        put(document_path(image, Document::Signature.name()), signature)?;
        Ok(())
    }
}

fn out_of_order(member: &Member) -> BundleError {
    BundleError::refused(&member.path, "expected after its image's manifest and signature")
}

/// A bundle's file, member after member.
struct Reader {
    file: BufReader<File>,
    at: u64,
}

impl Reader {
    fn new(file: File) -> Self {
        Self {
            file: BufReader::with_capacity(1 << 20, file),
            at: 0,
        }
    }

    /// Reads the header of the next member, which must be this one. Gives its size.
    fn begin(&mut self, path: &str) -> Result<u64, BundleError> {
        let mut block = [0; BLOCK as usize];
        self.fill(&mut block, path)?;
        let refused = |problem: &str| BundleError::refused(path, problem);
        let header = tar::Header::from_byte_slice(&block);
        if block.iter().all(|byte| *byte == 0) {
            return Err(BundleError::Truncated { what: path.to_owned() });
        }
        let mut unsigned = header.clone();
        unsigned.set_cksum();
        if header.cksum().ok() != unsigned.cksum().ok() {
            let problem = match path {
                INDEX => "this is no bundle: expected a tar file that begins with it",
                _ => "damaged: its tar header has another checksum",
            };
            return Err(refused(problem));
        }
        if header.path_bytes() != path.as_bytes() {
            let found = String::from_utf8_lossy(&header.path_bytes())
                .chars()
                .take(200)
                .collect::<String>();
            return Err(refused(&format!("expected here, found {found:?}")));
        }
        if !header.entry_type().is_file() {
            return Err(refused("expected a regular file"));
        }
        let size = header.entry_size().map_err(|error| refused(&error.to_string()))?;
        self.at += BLOCK;
        Ok(size)
    }

    /// Reads a member that no index lists, of at most so many bytes.
    fn take_unlisted(&mut self, path: &str, bytes_max: u64) -> Result<Bytes, BundleError> {
        let size = self.begin(path)?;
        if size > bytes_max {
            let problem = format!("{size} bytes, expected at most {bytes_max}");
            return Err(BundleError::refused(path, problem));
        }
        self.content(path, size)
    }

    fn begin_listed(&mut self, member: &Member) -> Result<(), BundleError> {
        let size = self.begin(&member.path)?;
        if size != member.size {
            let problem = format!("{size} bytes, the index says {}", member.size);
            return Err(BundleError::refused(&member.path, problem));
        }
        Ok(())
    }

    /// Reads a member and checks it.
    fn take(&mut self, member: &Member) -> Result<Bytes, BundleError> {
        debug_assert!(member.size <= DOCUMENT_BYTES_MAX, "the index was checked");
        self.begin_listed(member)?;
        let bytes = self.content(&member.path, member.size)?;
        check(member, Digest::of(&bytes))?;
        Ok(bytes)
    }

    /// Checks a member without keeping it.
    fn check(&mut self, member: &Member) -> Result<(), BundleError> {
        self.begin_listed(member)?;
        let mut hasher = Hasher::new();
        let mut buffer = vec![0; 1 << 18];
        let mut left = member.size;
        while left > 0 {
            let take = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.fill(&mut buffer[..take], &member.path)?;
            hasher.update(&buffer[..take]);
            left -= take as u64;
        }
        self.at += member.size;
        self.pad(member.size, &member.path)?;
        check(member, hasher.finish())
    }

    /// Reads a member again, whose header lies there.
    fn take_at(&mut self, at: u64, member: &Member) -> Result<Bytes, BundleError> {
        let failed = |source| BundleError::io(format!("going back to {}", member.path), source);
        self.file.seek(SeekFrom::Start(at)).map_err(failed)?;
        self.at = at;
        self.take(member)
    }

    fn content(&mut self, path: &str, size: u64) -> Result<Bytes, BundleError> {
        // Grown as it comes: a size is a claim until then.
        let mut bytes = Vec::new();
        let read = self.file.by_ref().take(size).read_to_end(&mut bytes);
        let read = read.map_err(|source| BundleError::io(format!("reading {path}"), source))?;
        if read as u64 != size {
            return Err(BundleError::Truncated { what: path.to_owned() });
        }
        self.at += size;
        self.pad(size, path)?;
        Ok(bytes.into())
    }

    fn pad(&mut self, size: u64, path: &str) -> Result<(), BundleError> {
        let mut padding = [0; BLOCK as usize];
        let length = padded(size) - size;
        let padding = &mut padding[..usize::try_from(length).unwrap_or(0)];
        self.fill(padding, path)?;
        self.at += length;
        Ok(())
    }

    fn fill(&mut self, buffer: &mut [u8], path: &str) -> Result<(), BundleError> {
        self.file.read_exact(buffer).map_err(|source| match source.kind() {
            std::io::ErrorKind::UnexpectedEof => BundleError::Truncated { what: path.to_owned() },
            _ => BundleError::io(format!("reading {path}"), source),
        })
    }

    /// Checks that nothing but the end follows.
    fn end(&mut self) -> Result<(), BundleError> {
        let mut end = Vec::new();
        let read = self.file.by_ref().take(2 * BLOCK).read_to_end(&mut end);
        read.map_err(|source| BundleError::io("reading the end", source))?;
        if end.iter().any(|byte| *byte != 0) {
            return Err(BundleError::refused("its end", "more members than the index lists"));
        }
        if end.len() as u64 != 2 * BLOCK {
            return Err(BundleError::Truncated {
                what: "its end".to_owned(),
            });
        }
        self.at += 2 * BLOCK;
        Ok(())
    }
}

fn check(member: &Member, found: Digest) -> Result<(), BundleError> {
    if found == member.sha256 {
        return Ok(());
    }
    let problem = format!("damaged: its SHA-256 is {found}, the index says {}", member.sha256);
    Err(BundleError::refused(&member.path, problem))
}
