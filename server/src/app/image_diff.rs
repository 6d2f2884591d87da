//! What is different between two image versions, for people who are to trust the newer one.

use std::collections::HashSet;

use drift::is_secret;
use manifest::diff::{PathChange, fact_changes, path_changes};
use manifest::{Digest, Entry, EntryKind, Manifest, TreePath};
use protocol::limits::TEXT_FILE_BYTES_MAX;
use serde::Serialize;
use store::ImageRecord;

use super::contents::{VariantDiff, is_text, unified};
use super::{App, AppError};

/// Paths told in one answer; the rest is counted.
const PATHS_MAX: usize = 10_000;

/// A path in one image.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct PathState {
    /// `file`, `directory`, `symlink`, ….
    #[serde(rename = "type")]
    pub kind: String,
    /// Permission bits, four octal digits.
    pub mode: String,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Its class.
    pub class: String,
    /// A file's size in bytes.
    pub size: Option<u64>,
    /// A file's SHA-256; not of one that is secret, whose content could be guessed by it.
    pub digest: Option<String>,
    /// A link's target.
    pub target: Option<String>,
    /// Names of its extended attributes.
    pub xattrs: Vec<String>,
}

impl PathState {
    fn new(entry: &Entry) -> Self {
        let content = match entry.kind {
            EntryKind::File(content) => content,
            _ => None,
        };
        let target = match &entry.kind {
            EntryKind::Symlink(target) => Some(manifest::escape_bytes(target)),
            _ => None,
        };
        Self {
            kind: entry.kind.type_name().to_owned(),
            mode: format!("{:04o}", entry.mode),
            uid: entry.uid,
            gid: entry.gid,
            class: entry.class.as_str().to_owned(),
            size: content.map(|content| content.size),
            digest: content
                .filter(|_| !is_secret(&entry.path))
                .map(|content| content.digest.to_string()),
            target,
            xattrs: entry.xattrs.keys().cloned().collect(),
        }
    }
}

/// A path that is different.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct PathDifference {
    /// The path, escaped.
    pub path: String,
    /// What is different of a path that both have: `type`, `content`, `link`, `device`, `mode`, `owner`, `xattrs`,
    /// `class`.
    pub fields: Vec<String>,
    /// It before; none when it is new.
    pub before: Option<PathState>,
    /// It now; none when it is gone.
    pub now: Option<PathState>,
}

impl PathDifference {
    fn new(change: &PathChange<'_>) -> Self {
        Self {
            path: change.path().to_string(),
            fields: change.fields.iter().map(|field| field.as_str().to_owned()).collect(),
            before: change.before.map(PathState::new),
            now: change.now.map(PathState::new),
        }
    }
}

/// Something beside the files that is different.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct FactDifference {
    /// `kernel`, `package`, `unit`, `sysctl`, `module`, `user`, `group`, `filesystem`.
    pub area: String,
    /// Its name there.
    pub name: String,
    /// It before; none when it is new.
    pub before: Option<String>,
    /// It now; none when it is gone.
    pub now: Option<String>,
}

/// What is different between two image versions.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ImageDiff {
    /// The one.
    pub before: ImageRecord,
    /// The other.
    pub now: ImageRecord,
    /// Kernel, packages, units and so on, by area and name.
    pub facts: Vec<FactDifference>,
    /// Paths in their order, at most 10,000.
    pub paths: Vec<PathDifference>,
    /// How many paths are new.
    pub paths_added: usize,
    /// How many paths are gone.
    pub paths_removed: usize,
    /// How many paths both have and are different.
    pub paths_changed: usize,
    /// Bytes of contents that only the other has: what a node of the one lacks, uncompressed.
    pub bytes_new: u64,
}

/// Compares two image versions of one kind.
///
/// # Errors
/// [`AppError::NotFound`]; [`AppError::Invalid`] when they are of different kinds.
pub async fn image_diff(app: &App, before: &str, now: &str) -> Result<ImageDiff, AppError> {
    let (before, now) = (app.store.image_find(before).await?, app.store.image_find(now).await?);
    if before.kind != now.kind {
        return Err(AppError::Invalid(format!(
            "{}@{} is of kind {}, {}@{} of kind {}: expected two of one kind",
            before.name, before.version, before.kind, now.name, now.version, now.kind
        )));
    }
    let old = app.images.manifest(before.digest).await?;
    let new = app.images.manifest(now.digest).await?;
    let compare = move || compare(before, now, &old, &new);
    tokio::task::spawn_blocking(compare).await.map_err(AppError::internal)
}

fn compare(before: ImageRecord, now: ImageRecord, old: &Manifest, new: &Manifest) -> ImageDiff {
    let changes = path_changes(old, new);
    let facts = fact_changes(&old.header, &new.header).into_iter();
    let count = |is: fn(&PathChange<'_>) -> bool| changes.iter().filter(|change| is(change)).count();
    ImageDiff {
        facts: facts
            .map(|change| FactDifference {
                area: change.area.as_str().to_owned(),
                name: change.name,
                before: change.before,
                now: change.now,
            })
            .collect(),
        paths: changes.iter().take(PATHS_MAX).map(PathDifference::new).collect(),
        paths_added: count(|change| change.before.is_none()),
        paths_removed: count(|change| change.now.is_none()),
        paths_changed: count(|change| change.before.is_some() && change.now.is_some()),
        bytes_new: bytes_new(old, new),
        before,
        now,
    }
}

/// Bytes of distinct contents of `new` that `old` does not have.
fn bytes_new(old: &Manifest, new: &Manifest) -> u64 {
    let content = |entry: &Entry| match entry.kind {
        EntryKind::File(Some(content)) => Some((content.digest, content.size)),
        _ => None,
    };
    let mut known: HashSet<Digest> = old
        .entries
        .iter()
        .filter_map(content)
        .map(|(digest, _)| digest)
        .collect();
    let new = new.entries.iter().filter_map(content);
    new.filter(|(digest, _)| known.insert(*digest))
        .map(|(_, size)| size)
        .sum()
}

/// What is different in the text of one file.
///
/// # Errors
/// [`AppError::NotFound`]; [`AppError::Invalid`] when the path is none.
pub async fn image_diff_text(app: &App, before: &str, now: &str, path: &str) -> Result<VariantDiff, AppError> {
    let parsed: TreePath = path
        .parse()
        .map_err(|error| AppError::Invalid(format!("{path:?}: {error}")))?;
    if is_secret(&parsed) {
        return Ok(VariantDiff::none("its content is secret"));
    }
    let mut texts = Vec::new();
    let mut is_anywhere = false;
    for reference in [before, now] {
        let image = app.store.image_find(reference).await?;
        let manifest = app.images.manifest(image.digest).await?;
        let Some(entry) = manifest.get(&parsed) else {
            texts.push(String::new());
            continue;
        };
        is_anywhere = true;
        let EntryKind::File(Some(content)) = entry.kind else {
            return Ok(VariantDiff::none("it is no file whose content the images hold"));
        };
        if content.size == 0 {
            texts.push(String::new());
            continue;
        }
        let blob = app
            .images
            .small_blob(image.digest, content.digest, TEXT_FILE_BYTES_MAX)
            .await?;
        match blob.filter(|blob| is_text(blob)).map(String::from_utf8) {
            Some(Ok(text)) => texts.push(text),
            _ => return Ok(VariantDiff::none("its content is no text, or larger than 64 KiB")),
        }
    }
    if !is_anywhere {
        return Err(AppError::NotFound {
            what: "path in either image".to_owned(),
            key: path.to_owned(),
        });
    }
    let [old, new] = texts.as_slice() else {
        return Ok(VariantDiff::none("its content cannot be read"));
    };
    if old == new {
        return Ok(VariantDiff::none("both have the same content"));
    }
    Ok(VariantDiff {
        unified: Some(unified(path, ("before", old), ("now", new))),
        reason: None,
    })
}
