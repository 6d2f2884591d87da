//! Texts that a server shows beside a finding.
//!
//! A server asks by path and gets only what it could ask for: the content that was reported, of a regular file that is
//! text, short and no secret. Everything else is left out without a word, so that asking tells nothing.

use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use drift::{Difference, Expected, FindingKind, is_secret};
use manifest::{Digest, TreePath};
use protocol::limits::{CONTENTS_WANTED_MAX, TEXT_FILE_BYTES_MAX};
use rustix::fs::{Mode, OFlags};

use crate::node::NodeParts;
use crate::scan::{Stat, open_parent, open_root};

/// The wanted contents that may be sent.
pub(super) async fn contents(
    parts: &NodeParts,
    expected: &Arc<Expected>,
    differences: &[Difference],
    wanted: &[String],
) -> Vec<(Digest, Vec<u8>)> {
    let reported: Vec<(TreePath, Digest)> = wanted
        .iter()
        .take(CONTENTS_WANTED_MAX)
        .filter_map(|path| reported(differences, path))
        .collect();
    if reported.is_empty() {
        return Vec::new();
    }
    let (parts, expected) = (parts.clone(), expected.clone());
    let read = tokio::task::spawn_blocking(move || {
        let text = |(path, digest): (TreePath, Digest)| {
            let text = read_text(&parts, &expected, &path, digest);
            if text.is_none() {
                tracing::debug!(%path, "its content is not sent");
            }
            text.map(|bytes| (digest, bytes))
        };
        reported.into_iter().filter_map(text).collect()
    });
    read.await.unwrap_or_default()
}

/// The path and the digest that was reported of it; a secret has none that is a digest, and is refused by name as well.
fn reported(differences: &[Difference], path: &str) -> Option<(TreePath, Digest)> {
    let difference = differences
        .iter()
        .find(|d| d.kind == FindingKind::File && d.key == path)?;
    let digest = difference.actual.as_ref()?.get("digest")?.parse().ok()?;
    let path: TreePath = path.parse().ok()?;
    (!is_secret(&path)).then_some((path, digest))
}

fn read_text(parts: &NodeParts, expected: &Expected, path: &TreePath, digest: Digest) -> Option<Vec<u8>> {
    let root = expected.root_of(path)?;
    let top = open_root(&parts.base, root, parts.roots_are_folders).ok()?;
    let folder = open_parent(&top, root, path).ok()?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    // Never opened before it was seen to be a regular file: opening a device may do something.
    let name = std::ffi::OsStr::from_bytes(path.name());
    let seen = Stat::at(std::os::fd::AsFd::as_fd(&folder), name).ok()?;
    if seen.kind != rustix::fs::FileType::RegularFile || seen.key.size > TEXT_FILE_BYTES_MAX as u64 {
        return None;
    }
    let file = rustix::fs::openat(&folder, name, flags, Mode::empty()).ok()?;
    if !Stat::of(&file).ok()?.is_same_file(&seen) {
        return None;
    }
    let mut bytes = Vec::new();
    let limit = TEXT_FILE_BYTES_MAX as u64 + 1;
    std::fs::File::from(file).take(limit).read_to_end(&mut bytes).ok()?;
    let is_text = bytes.len() <= TEXT_FILE_BYTES_MAX && !bytes.contains(&0) && str::from_utf8(&bytes).is_ok();
    (is_text && Digest::of(&bytes) == digest).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use drift::Attributes;
    use manifest::{Header, Manifest, ManifestKind};

    use super::*;

    fn difference(path: &str, content: &[u8]) -> Difference {
        Difference {
            kind: FindingKind::File,
            key: path.to_owned(),
            expected: None,
            actual: Some(Attributes::from_pairs([("digest", Digest::of(content).to_string())])),
        }
    }

    #[tokio::test]
    async fn only_short_text_that_was_reported_and_is_no_secret_is_sent() {
        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(base.path().join("etc/ssl")).unwrap();
        let long = vec![b'a'; TEXT_FILE_BYTES_MAX + 1];
        let files: [(&str, &[u8]); 7] = [
            ("/etc/motd", b"hello\n"),
            ("/etc/shadow", b"root:hash"),
            ("/etc/ssl/x.key", b"private"),
            ("/etc/binary", b"a\0b"),
            ("/etc/latin", b"V\xEDctor"),
            ("/etc/long", &long),
            ("/etc/changed", b"since"),
        ];
        for (path, content) in files {
            std::fs::write(base.path().join(&path[1..]), content).unwrap();
        }
        std::os::unix::fs::symlink("motd", base.path().join("etc/link")).unwrap();
        let mut differences: Vec<Difference> = files.iter().map(|(path, content)| difference(path, content)).collect();
        differences[6] = difference("/etc/changed", b"before");
        differences.push(difference("/etc/link", b"hello\n"));
        let header = Header::new(ManifestKind::Os, "x", "1");
        let expected = Arc::new(Expected::from_manifests([&Manifest::new(header, Vec::new()).unwrap()]).unwrap());
        let mut wanted: Vec<String> = differences.iter().map(|difference| difference.key.clone()).collect();
        wanted.extend(["/etc/never-reported", "no path", "/etc/../etc/motd"].map(str::to_owned));
        let parts = NodeParts::of_folder(base.path());
        let sent = contents(&parts, &expected, &differences, &wanted).await;
        assert_eq!(sent, [(Digest::of(b"hello\n"), b"hello\n".to_vec())]);
    }
}
