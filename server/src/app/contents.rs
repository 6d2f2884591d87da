//! Contents of files: for agents that restore them, and for people who want to see what changed.

use bytes::Bytes;
use drift::{Attributes, Difference, FindingKind, is_secret};
use futures::stream::BoxStream;
use manifest::{Digest, EntryKind, Manifest};
use protocol::NodeId;
use protocol::limits::{CONTENTS_WANTED_MAX, TEXT_FILE_BYTES_MAX};
use serde::Serialize;
use similar::TextDiff;

use super::agents::baseline;
use super::{App, AppError, trust};
use crate::image::StoreError;

/// Texts kept of one node's findings: at most 128 MB.
const CONTENTS_OF_NODE_MAX: i64 = 2_000;
/// Lines of context around a change.
const CONTEXT_LINES: usize = 3;

/// A content that an agent restores.
pub enum NodeContent {
    /// Of the node's rendered configuration.
    Rendered(Vec<u8>),
    /// Of an image or agent layer, in pieces.
    Stored(BoxStream<'static, Result<Bytes, StoreError>>),
}

/// A content of the node's own baseline. Nobody reads what is rendered for another node.
///
/// # Errors
/// [`AppError::NotFound`]; [`AppError::Conflict`] when the image must not be used any more.
pub async fn of_baseline(app: &App, node: NodeId, digest: Digest) -> Result<NodeContent, AppError> {
    let baseline = baseline(app, node).await?;
    let layers = [baseline.image, baseline.agent_layer];
    if let Some(image) = app.store.image_list_unusable(&layers).await?.first() {
        // What must not be used is not put back either.
        trust::usable(image)?;
    }
    for image in [baseline.image, baseline.agent_layer] {
        if let Some(pieces) = app.images.blob(image, digest).await? {
            return Ok(NodeContent::Stored(pieces));
        }
    }
    let overlay = app.store.overlay_find(baseline.overlay).await?.unwrap_or_default();
    let is_rendered = Manifest::decode(overlay.as_bytes())?
        .entries
        .iter()
        .any(|entry| matches!(&entry.kind, EntryKind::File(Some(content)) if content.digest == digest));
    let content = match is_rendered {
        true => app.store.content_find(digest).await?,
        false => None,
    };
    content.map(NodeContent::Rendered).ok_or_else(|| AppError::NotFound {
        what: "content in this node's baseline".to_owned(),
        key: digest.to_string(),
    })
}

/// Paths of which the server would show the text and does not hold it yet.
///
/// # Errors
/// [`AppError`] when the database does not answer.
pub async fn wanted<'a>(
    app: &App,
    differences: impl IntoIterator<Item = &'a Difference>,
) -> Result<Vec<String>, AppError> {
    let candidates: Vec<(Digest, String)> = differences
        .into_iter()
        .filter_map(|difference| Some((text_digest(difference)?, difference.key.clone())))
        .take(4 * CONTENTS_WANTED_MAX)
        .collect();
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    let digests: Vec<Digest> = candidates.iter().map(|(digest, _)| *digest).collect();
    let missing = app.store.content_missing(&digests).await?;
    Ok(candidates
        .into_iter()
        .filter(|(digest, _)| missing.contains(digest))
        .map(|(_, key)| key)
        .take(CONTENTS_WANTED_MAX)
        .collect())
}

/// The digest of the actual content, where it may be shown: a small regular file that is not secret.
fn text_digest(difference: &Difference) -> Option<Digest> {
    if difference.kind != FindingKind::File || is_secret(&difference.key.parse().ok()?) {
        return None;
    }
    let actual = difference.actual.as_ref()?;
    let is_small = actual
        .get("size")
        .and_then(|size| size.parse::<usize>().ok())
        .is_none_or(|size| size <= TEXT_FILE_BYTES_MAX);
    is_small.then(|| actual.get("digest")?.parse().ok())?
}

/// Keeps a text that a finding of this node names.
///
/// # Errors
/// [`AppError::Invalid`] when it is not that content, or no text; [`AppError::Conflict`] when no finding of the node
/// names it, or enough of its texts are kept.
pub async fn keep(app: &App, node: NodeId, digest: Digest, content: &[u8]) -> Result<(), AppError> {
    let found = Digest::of(content);
    if found != digest {
        return Err(AppError::Invalid(format!("the content has digest {found}")));
    }
    if !is_text(content) {
        return Err(AppError::Invalid("expected text in UTF-8".to_owned()));
    }
    if !app.store.content_is_wanted(node, digest, CONTENTS_OF_NODE_MAX).await? {
        return Err(AppError::Conflict(format!(
            "no finding of this node names this content, or {CONTENTS_OF_NODE_MAX} of its texts are kept"
        )));
    }
    Ok(app.store.content_put(&[(digest, content)], false).await?)
}

pub(super) fn is_text(content: &[u8]) -> bool {
    content.len() <= TEXT_FILE_BYTES_MAX && !content.contains(&0) && std::str::from_utf8(content).is_ok()
}

/// What a variant changes, line by line.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct VariantDiff {
    /// Unified diff from the expected to the actual text; none where there is nothing to show, see `reason`.
    pub unified: Option<String>,
    /// Why there is no diff.
    pub reason: Option<String>,
}

impl VariantDiff {
    pub(super) fn none(reason: &str) -> Self {
        Self {
            unified: None,
            reason: Some(reason.to_owned()),
        }
    }
}

/// The diff of one variant of a finding group.
///
/// # Errors
/// [`AppError::NotFound`] when no node has it.
pub async fn diff(app: &App, group: Digest, variant: Digest) -> Result<VariantDiff, AppError> {
    let (difference, node) = app.store.finding_sample(group, variant).await?;
    if difference.kind != FindingKind::File {
        return Ok(VariantDiff::none("it is no file"));
    }
    match difference.key.parse() {
        Ok(path) if is_secret(&path) => {
            return Ok(VariantDiff::none("its content is secret and never leaves the node"));
        }
        Ok(_) => {}
        Err(_) => return Ok(VariantDiff::none("its path is not understood")),
    }
    let names_content = |side: &Option<Attributes>| side.as_ref().is_some_and(|side| side.get("digest").is_some());
    if !names_content(&difference.expected) && !names_content(&difference.actual) {
        return Ok(VariantDiff::none("its content is as it should be"));
    }
    let old = match &difference.expected {
        None => Some(String::new()),
        Some(expected) => side_text(app, node, expected).await?,
    };
    let new = match &difference.actual {
        None => Some(String::new()),
        Some(actual) => side_text(app, node, actual).await?,
    };
    Ok(match (old, new) {
        (Some(old), Some(new)) => VariantDiff {
            unified: Some(unified(&difference.key, ("expected", &old), ("actual", &new))),
            reason: None,
        },
        (None, _) => VariantDiff::none("the expected content is no text, or larger than 64 KiB"),
        (_, None) => VariantDiff::none("the node has not sent its text: no text, larger than 64 KiB, or not yet"),
    })
}

async fn side_text(app: &App, node: NodeId, side: &Attributes) -> Result<Option<String>, AppError> {
    // Something else than a file stands on this side: it has no lines.
    let Some(digest) = side.get("digest") else {
        return Ok(Some(String::new()));
    };
    let Ok(digest) = digest.parse::<Digest>() else {
        return Ok(None);
    };
    if let Some(content) = app.store.content_find(digest).await? {
        return Ok(String::from_utf8(content).ok());
    }
    let baseline = baseline(app, node).await?;
    let layers = [baseline.image, baseline.agent_layer];
    if let Some(image) = app.store.image_list_unusable(&layers).await?.first() {
        // What must not be used is not put back either.
        trust::usable(image)?;
    }
    for image in [baseline.image, baseline.agent_layer] {
        if let Some(content) = app.images.small_blob(image, digest, TEXT_FILE_BYTES_MAX).await? {
            return Ok(is_text(&content).then(|| String::from_utf8_lossy(&content).into_owned()));
        }
    }
    Ok(None)
}

/// Two texts, each with what it is, as a unified diff.
pub(super) fn unified(key: &str, (old_is, old): (&str, &str), (new_is, new): (&str, &str)) -> String {
    TextDiff::from_lines(old, new)
        .unified_diff()
        .context_radius(CONTEXT_LINES)
        .header(&format!("{key} ({old_is})"), &format!("{key} ({new_is})"))
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(key: &str, size: &str) -> Difference {
        Difference {
            kind: FindingKind::File,
            key: key.into(),
            expected: None,
            actual: Some(Attributes::from_pairs([
                ("digest", Digest::of(b"x").to_string()),
                ("size", size.to_owned()),
            ])),
        }
    }

    #[test]
    fn texts_of_secrets_and_large_files_are_not_asked_for() {
        assert_eq!(text_digest(&file("/etc/motd", "10")), Some(Digest::of(b"x")));
        assert_eq!(text_digest(&file("/etc/shadow", "10")), None);
        assert_eq!(text_digest(&file("/etc/motd", "65537")), None);
        let mut sealed = file("/etc/motd", "10");
        sealed.actual = Some(Attributes::from_pairs([("digest", "hmac-sha256:00")]));
        assert_eq!(text_digest(&sealed), None);
    }

    #[test]
    fn a_diff_shows_the_lines_around_a_change() {
        let text = unified(
            "/etc/motd",
            ("expected", "a\nb\nc\nd\ne\nf\ng\n"),
            ("actual", "a\nb\nc\nd\nE\nf\ng\n"),
        );
        assert!(
            text.starts_with("--- /etc/motd (expected)\n+++ /etc/motd (actual)\n@@ "),
            "{text}"
        );
        assert!(text.contains("-e\n+E\n") && !text.contains(" a\n"), "{text}");
        assert!(!is_text(b"\0") && !is_text(b"\xff") && is_text("grün".as_bytes()));
    }
}
