//! Writing one layer: folders, then everything without content, then contents as the packs bring them.
//!
//! Idea: packs are read once, front to back, and of them only the parts that hold what is missing. A blob is hashed while
//! it is written to the first path that needs it, and copied to the others once its digest is right. Damage (a frame that
//! does not decode, a pack cut short, a blob with another digest) sends the writer back to the first part that can be at
//! fault, twice; then the installation fails and names the pack and a file.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use manifest::packs::{PackIndex, PackInfo, Part, Piece, unpack};
use manifest::{Digest, Entry, EntryKind, FileContent, Hasher, Manifest, ManifestError, PathClass, TreePath};

use super::in_place::Found;
use super::progress::Tracker;
use super::tree::{Tree, TreeError};

/// How often a part of a pack is fetched again after damage.
const REPEATS_MAX: u32 = 2;
const COPY_BYTES: usize = 1 << 20;
/// Most requests for the parts of one layer, where only parts are needed; a layer has at most twice as many packs.
const PARTS_MAX: usize = 1_000;

/// Where packs come from.
pub trait PackSource {
    /// The bytes of a part of a pack from its beginning. `again` counts how often it had to be fetched anew because of
    /// damage. An error of the reader means that the pack is not to be had; data that end early are damage.
    fn open(&self, part: &Part<'_>, again: u32) -> Box<dyn Read + Send>;
}

/// A layer that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The disk or the manifest.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// Content could not be written to the disk.
    #[error("{path}: {action}")]
    Content {
        /// Which file.
        path: TreePath,
        /// What was being done.
        action: &'static str,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The server does not give a pack.
    #[error("pack {pack} cannot be fetched")]
    Fetch {
        /// Which pack.
        pack: Digest,
        /// The reader's error.
        #[source]
        source: std::io::Error,
    },
    /// A pack stays damaged.
    #[error("pack {pack} is damaged, also after {repeats} more fetches: {problem}; first file: {path}")]
    Damaged {
        /// Which pack.
        pack: Digest,
        /// How often it was fetched again.
        repeats: u32,
        /// What was wrong the last time.
        problem: String,
        /// The first file that needs what is damaged.
        path: String,
    },
}

/// Writes all paths of a manifest into an empty tree. Folders get their metadata later, with [`Tree::finish_folder`];
/// files made on the node (class `seeded`, without content) are left to the caller. Blocks.
///
/// # Errors
/// [`WriteError`]; the tree is then incomplete.
pub fn write_layer(
    tree: &Tree,
    manifest: &Manifest,
    index: &PackIndex,
    source: &dyn PackSource,
    tracker: &Tracker,
) -> Result<(), WriteError> {
    write_layer_over(tree, manifest, index, source, tracker, None)
}

/// As [`write_layer`], into a tree of which `found` says what is right already and what may be used again.
///
/// # Errors
/// As there.
pub fn write_layer_over(
    tree: &Tree,
    manifest: &Manifest,
    index: &PackIndex,
    source: &dyn PackSource,
    tracker: &Tracker,
    mut found: Option<&mut Found<'_>>,
) -> Result<(), WriteError> {
    let mut files: HashMap<Digest, Vec<&Entry>> = HashMap::new();
    for entry in &manifest.entries {
        if found.as_ref().is_some_and(|found| found.is_settled(&entry.path)) {
            if let EntryKind::File(Some(content)) = entry.kind {
                tracker.add_done(1, content.size);
            }
            continue;
        }
        match &entry.kind {
            EntryKind::Directory => tree.make_folder(&entry.path)?,
            EntryKind::File(Some(content)) if content.size > 0 => files.entry(content.digest).or_default().push(entry),
            EntryKind::File(Some(_)) => {
                tree.finish_file(&tree.make_file(&entry.path)?, entry)?;
                tracker.add_done(1, 0);
            }
            EntryKind::File(None) if entry.class == PathClass::Volatile => {
                tree.finish_file(&tree.make_file(&entry.path)?, entry)?;
            }
            EntryKind::File(None) => {}
            _ => tree.make_special(entry)?,
        }
    }
    let mut writer = Writer {
        tree,
        tracker,
        files,
        done: HashSet::new(),
        open: None,
    };
    if let Some(found) = found.as_deref_mut() {
        writer.use_again(found)?;
    }
    let parts = match found {
        None => index.whole_parts(),
        Some(_) => index.parts(|blob| writer.files.contains_key(blob), PARTS_MAX),
    };
    writer.write(&parts, source)
}

struct Writer<'a> {
    tree: &'a Tree,
    tracker: &'a Tracker,
    files: HashMap<Digest, Vec<&'a Entry>>,
    done: HashSet<Digest>,
    open: Option<OpenBlob<'a>>,
}

/// A blob of which pieces are still to come.
struct OpenBlob<'a> {
    content: FileContent,
    entry: &'a Entry,
    file: File,
    state: BlobState,
}

#[derive(Clone)]
struct BlobState {
    written: u64,
    hasher: Hasher,
    /// Number of the part its first piece came from.
    began: usize,
}

/// The blob open at the beginning of a part, to come back to.
struct Checkpoint<'a> {
    content: FileContent,
    entry: &'a Entry,
    state: BlobState,
}

enum Trouble {
    /// The data are wrong; fetching again from this part on may help.
    Damage { from: usize, problem: String, path: String },
    /// Nothing helps.
    Fatal(WriteError),
}

impl From<ManifestError> for Trouble {
    fn from(error: ManifestError) -> Self {
        let problem = match error {
            ManifestError::Pack { problem, .. } => problem,
            other => other.to_string(),
        };
        // Completed by the caller, which knows the part and the place in it.
        Self::Damage {
            from: usize::MAX,
            problem,
            path: String::new(),
        }
    }
}

impl From<WriteError> for Trouble {
    fn from(error: WriteError) -> Self {
        Self::Fatal(error)
    }
}

impl From<TreeError> for Trouble {
    fn from(error: TreeError) -> Self {
        Self::Fatal(error.into())
    }
}

impl<'a> Writer<'a> {
    /// Contents that the old tree had at other paths.
    fn use_again(&mut self, found: &mut Found<'_>) -> Result<(), WriteError> {
        let blobs: Vec<Digest> = self.files.keys().copied().filter(|blob| found.holds(blob)).collect();
        for blob in blobs {
            let Some(entries) = self.files.remove(&blob) else {
                continue;
            };
            let Some((first, EntryKind::File(Some(content)))) = entries.first().map(|first| (*first, &first.kind))
            else {
                continue;
            };
            let file = found.place(self.tree, *content, first)?;
            self.copies(&file, *content, &entries)?;
            let files = entries.len() as u64;
            found.count_used(files, files.saturating_mul(content.size));
            self.tracker.add_done(files, files.saturating_mul(content.size));
        }
        Ok(())
    }

    fn write(mut self, parts: &[Part<'_>], source: &dyn PackSource) -> Result<(), WriteError> {
        let mut repeats = vec![0_u32; parts.len()];
        let mut checkpoints: Vec<Option<Checkpoint<'a>>> = Vec::new();
        let mut at = 0;
        while let Some(part) = parts.get(at) {
            checkpoints.truncate(at);
            checkpoints.push(self.open.as_ref().map(OpenBlob::checkpoint));
            let (from, problem, path) = match self.part(at, part, repeats[at], source) {
                Ok(()) => {
                    at += 1;
                    continue;
                }
                Err(Trouble::Fatal(error)) => return Err(error),
                Err(Trouble::Damage { from, problem, path }) => (from, problem, path),
            };
            let damaged = parts[from].info.digest;
            if repeats[from] >= REPEATS_MAX {
                return Err(WriteError::Damaged {
                    pack: damaged,
                    repeats: repeats[from],
                    problem,
                    path,
                });
            }
            repeats[from] += 1;
            tracing::warn!(pack = %damaged, problem, path, "pack is damaged");
            self.tracker.say(format!(
                "pack {} is damaged ({problem}); fetching it again",
                damaged.short()
            ));
            self.open = match checkpoints.get(from).and_then(Option::as_ref) {
                None => None,
                Some(checkpoint) => Some(checkpoint.reopen(self.tree)?),
            };
            at = from;
        }
        match self.open {
            // The index was checked to hold every blob whole.
            Some(open) => Err(WriteError::Damaged {
                pack: open.content.digest,
                repeats: 0,
                problem: "the packs end within a file".to_owned(),
                path: open.entry.path.to_string(),
            }),
            None => Ok(()),
        }
    }

    fn part(&mut self, number: usize, part: &Part<'_>, again: u32, source: &dyn PackSource) -> Result<(), Trouble> {
        let pack = part.info.as_ref();
        let mut input = Watched {
            inner: source.open(part, again),
            failed: None,
        };
        let mut taken = 0_u64;
        let result = unpack(pack, &mut input, |piece| {
            taken += piece.bytes.len() as u64;
            self.piece(number, &piece)
        });
        if let Some(source) = input.failed {
            return Err(Trouble::Fatal(WriteError::Fetch {
                pack: pack.digest,
                source,
            }));
        }
        match result {
            Err(Trouble::Damage {
                from: usize::MAX,
                problem,
                ..
            }) => Err(Trouble::Damage {
                from: number,
                problem,
                path: self.first_needing(pack, taken),
            }),
            other => other,
        }
    }

    /// The first file that needs what comes after `taken` bytes of content of a pack.
    fn first_needing(&self, pack: &PackInfo, taken: u64) -> String {
        let mut end = 0_u64;
        for extent in &pack.extents {
            end = end.saturating_add(extent.size);
            if end > taken
                && let Some(entry) = self.files.get(&extent.blob).and_then(|entries| entries.first())
            {
                return entry.path.to_string();
            }
        }
        "none of this layer".to_owned()
    }

    fn piece(&mut self, number: usize, piece: &Piece<'_>) -> Result<(), Trouble> {
        let Some(entries) = self.files.get(&piece.blob) else {
            return Ok(());
        };
        let entry = entries[0];
        let mut open = match self.open.take() {
            Some(open) if open.content.digest == piece.blob => open,
            Some(open) => return Err(open.damage("another file begins within it")),
            None => match entry.kind {
                EntryKind::File(Some(content)) => OpenBlob::new(self.tree, entry, content, number)?,
                _ => return Ok(()),
            },
        };
        let end = open.state.written.saturating_add(piece.bytes.len() as u64);
        if piece.blob_offset != open.state.written || end > open.content.size {
            return Err(open.damage("its pieces do not fit its size"));
        }
        open.state.hasher.update(piece.bytes);
        open.file
            .write_all_at(piece.bytes, open.state.written)
            .map_err(content_error(&entry.path, "writing"))?;
        open.state.written = end;
        if end < open.content.size {
            self.open = Some(open);
            return Ok(());
        }
        let found = open.state.hasher.clone().finish();
        if found != open.content.digest {
            let problem = format!("its content has the digest {found}, expected {}", open.content.digest);
            return Err(open.damage(&problem));
        }
        self.finish(&open)
    }

    /// The blob is right: metadata, and copies for all other paths.
    fn finish(&mut self, open: &OpenBlob<'a>) -> Result<(), Trouble> {
        let entries = self.files.get(&open.content.digest).cloned().unwrap_or_default();
        self.copies(&open.file, open.content, &entries)?;
        self.tree.finish_file(&open.file, open.entry)?;
        // A part that is written a second time counts once.
        if self.done.insert(open.content.digest) {
            let files = entries.len() as u64;
            self.tracker.add_done(files, files.saturating_mul(open.content.size));
        }
        Ok(())
    }

    /// Gives all paths but the first the content that the first has.
    fn copies(&self, from: &File, content: FileContent, entries: &[&Entry]) -> Result<(), WriteError> {
        for entry in entries.iter().skip(1) {
            let copy = self.tree.make_file(&entry.path)?;
            copy_content(from, &copy, content).map_err(|source| WriteError::Content {
                path: entry.path.clone(),
                action: "copying its content",
                source,
            })?;
            self.tree.finish_file(&copy, entry)?;
        }
        Ok(())
    }
}

impl<'a> OpenBlob<'a> {
    fn new(tree: &Tree, entry: &'a Entry, content: FileContent, began: usize) -> Result<Self, Trouble> {
        Ok(Self {
            content,
            entry,
            file: tree.make_file(&entry.path)?,
            state: BlobState {
                written: 0,
                hasher: Hasher::new(),
                began,
            },
        })
    }

    fn checkpoint(&self) -> Checkpoint<'a> {
        Checkpoint {
            content: self.content,
            entry: self.entry,
            state: self.state.clone(),
        }
    }

    fn damage(&self, problem: &str) -> Trouble {
        Trouble::Damage {
            from: self.state.began,
            problem: problem.to_owned(),
            path: self.entry.path.to_string(),
        }
    }
}

impl<'a> Checkpoint<'a> {
    fn reopen(&self, tree: &Tree) -> Result<OpenBlob<'a>, WriteError> {
        let file = tree.reopen_file(&self.entry.path)?;
        Ok(OpenBlob {
            content: self.content,
            entry: self.entry,
            file,
            state: self.state.clone(),
        })
    }
}

fn content_error(path: &TreePath, action: &'static str) -> impl FnOnce(std::io::Error) -> Trouble {
    let path = path.clone();
    move |source| Trouble::Fatal(WriteError::Content { path, action, source })
}

/// Copies within the disk, hashing what is read back.
pub(super) fn copy_content(from: &File, to: &File, content: FileContent) -> std::io::Result<()> {
    let mut hasher = Hasher::new();
    let mut buffer = vec![0_u8; COPY_BYTES];
    let mut at = 0;
    while at < content.size {
        let wanted = usize::try_from(content.size - at).unwrap_or(COPY_BYTES).min(COPY_BYTES);
        let read = from.read_at(&mut buffer[..wanted], at)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        hasher.update(&buffer[..read]);
        to.write_all_at(&buffer[..read], at)?;
        at += read as u64;
    }
    if hasher.finish() == content.digest {
        Ok(())
    } else {
        Err(std::io::Error::other(
            "the disk gives back other bytes than were written",
        ))
    }
}

/// Remembers that the source itself failed, which damage is not.
struct Watched {
    inner: Box<dyn Read + Send>,
    failed: Option<std::io::Error>,
}

impl Read for Watched {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.inner.read(buffer).map_err(|error| {
            let kind = error.kind();
            if kind != std::io::ErrorKind::Interrupted {
                self.failed = Some(error);
            }
            kind.into()
        })
    }
}
