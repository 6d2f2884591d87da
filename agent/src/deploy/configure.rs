//! The node's own layer: rendered by the server, with keys made here.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use manifest::{Digest, Entry, EntryKind, Manifest, ManifestKind, PathClass, TreePath};
use protocol::latest::{DeploySpec, Disk, RenderReply, RenderRequest, RenderedFile, paths};

use super::keys::{CertificateKey, HostKey};
use super::progress::Tracker;
use super::tree::{Tree, TreeError};
use super::verify::Layers;
use super::{Context, chain};
use crate::ramdisk::Backoff;

/// Bytes of all rendered files together.
const CONTENT_BYTES_MAX: u64 = 64 << 20;
/// How long a server that does not answer is asked again.
const RENDER_LIMIT: Duration = Duration::from_secs(120);

/// The overlay cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// Not an overlay.
    #[error("the server rendered a manifest of the kind {0}, expected overlay")]
    Kind(&'static str),
    /// Content is missing or not what the manifest says.
    #[error("rendered file {path}: {problem}")]
    Content {
        /// Which file.
        path: TreePath,
        /// What is wrong.
        problem: String,
    },
    /// A file that is to be made on the node, and that this deployer does not know.
    #[error("{0} has no content, and this deployer does not know how to make it")]
    Unknown(TreePath),
    /// Too much.
    #[error("rendered files hold more than {CONTENT_BYTES_MAX} bytes")]
    TooLarge,
}

/// Files made on this machine, by their paths.
pub type Made = BTreeMap<&'static str, Vec<u8>>;

/// Makes the keys, has the layer rendered, and writes it. The server is told of the disk, and of the root filesystem that
/// was on it before.
///
/// # Errors
/// The server's refusal, [`OverlayError`], or [`TreeError`].
pub async fn run(
    spec: &DeploySpec,
    context: &Context,
    (disk, root_uuid): (Disk, Option<uuid::Uuid>),
    layers: &Arc<Layers>,
    tree: &Arc<Tree>,
    tracker: &Tracker,
) -> anyhow::Result<Manifest> {
    let host_key = HostKey::generate(&format!("root@{}", spec.node_name))?;
    let agent_key = CertificateKey::generate()?;
    let request = RenderRequest {
        boot_mac: context.boot_mac.clone(),
        ssh_host_keys: vec![host_key.public.clone()],
        agent_certificate_request: agent_key.request.clone(),
        disk,
        root_uuid,
    };
    let reply = render(spec, context, &request, tracker).await?;
    let overlay = Manifest::decode(reply.overlay_manifest.as_bytes()).context("the rendered manifest")?;
    let made = Made::from([
        ("/etc/ssh/ssh_host_ed25519_key", host_key.private.into_bytes()),
        (
            "/etc/ssh/ssh_host_ed25519_key.pub",
            format!("{}\n", host_key.public).into_bytes(),
        ),
        ("/var/lib/plumbline/identity/key.pem", agent_key.key.into_bytes()),
        (
            "/var/lib/plumbline/identity/certificate.pem",
            reply.agent_certificate.into_bytes(),
        ),
    ]);
    let contents = contents(&overlay, &reply.files, &made)?;
    // The layers below may leave files to the node as well; what the overlay does not bring must be known here.
    let left = left_to_the_node(&[&layers.image.manifest, &layers.agent.manifest], &overlay, &made)?;

    let bytes = contents
        .values()
        .chain(left.values())
        .map(|content| content.len() as u64)
        .sum();
    tracker.add_totals((contents.len() + left.len()) as u64, bytes);
    let (tree, layers) = (Arc::clone(tree), Arc::clone(layers));
    let overlay = super::blocking(move || {
        write(&tree, &overlay.entries, &contents)?;
        for manifest in [&layers.image.manifest, &layers.agent.manifest] {
            let entries: Vec<Entry> = left.keys().filter_map(|path| manifest.get(path)).cloned().collect();
            write(&tree, &entries, &left)?;
        }
        Ok(overlay)
    })
    .await?;
    let files = overlay
        .entries
        .iter()
        .filter(|entry| matches!(entry.kind, EntryKind::File(_)))
        .count();
    tracker.add_done(files as u64, bytes);
    tracker.say(format!("{files} files of this node's own configuration"));
    Ok(overlay)
}

async fn render(
    spec: &DeploySpec,
    context: &Context,
    request: &RenderRequest,
    tracker: &Tracker,
) -> anyhow::Result<RenderReply> {
    let path = format!("{}/{}/render", paths::DEPLOYMENTS, spec.deployment_id);
    let end = Instant::now() + RENDER_LIMIT;
    let mut backoff = Backoff::default();
    loop {
        let error = match context.api.post(&path, request).await {
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        let pause = backoff.pause();
        if !error.is_temporary() || Instant::now() + pause > end {
            return Err(error).context("rendering the node's configuration");
        }
        tracker.say(format!("{}; trying again", chain(&error)));
        tokio::time::sleep(pause).await;
    }
}

/// The content of each file of the overlay: from the reply, checked, or made here.
///
/// # Errors
/// [`OverlayError`] with the first file that has no right content.
pub fn contents(
    overlay: &Manifest,
    files: &BTreeMap<Digest, RenderedFile>,
    made: &Made,
) -> Result<BTreeMap<TreePath, Vec<u8>>, OverlayError> {
    if overlay.header.kind != ManifestKind::Overlay {
        return Err(OverlayError::Kind(overlay.header.kind.as_str()));
    }
    let mut contents = BTreeMap::new();
    let mut total = 0_u64;
    for entry in &overlay.entries {
        let EntryKind::File(expected) = entry.kind else {
            continue;
        };
        let wrong = |problem: String| OverlayError::Content {
            path: entry.path.clone(),
            problem,
        };
        let bytes = match expected {
            None => made_here(&entry.path, made)?,
            Some(content) if content.size == 0 => Vec::new(),
            Some(content) => {
                let file = files
                    .get(&content.digest)
                    .ok_or_else(|| wrong("its content did not come".to_owned()))?;
                let bytes = STANDARD
                    .decode(&file.base64)
                    .map_err(|error| wrong(error.to_string()))?;
                let found = Digest::of(&bytes);
                if found != content.digest || bytes.len() as u64 != content.size {
                    return Err(wrong(format!(
                        "{} bytes with the digest {found}, expected {} with {}",
                        bytes.len(),
                        content.size,
                        content.digest
                    )));
                }
                bytes
            }
        };
        total = total.saturating_add(bytes.len() as u64);
        if total > CONTENT_BYTES_MAX {
            return Err(OverlayError::TooLarge);
        }
        contents.insert(entry.path.clone(), bytes);
    }
    Ok(contents)
}

fn made_here(path: &TreePath, made: &Made) -> Result<Vec<u8>, OverlayError> {
    let content = made.get(path.to_string().as_str());
    content.cloned().ok_or_else(|| OverlayError::Unknown(path.clone()))
}

/// Files that the layers below leave to the node and the overlay does not bring.
fn left_to_the_node(
    layers: &[&Manifest],
    overlay: &Manifest,
    made: &Made,
) -> Result<BTreeMap<TreePath, Vec<u8>>, OverlayError> {
    let mut left = BTreeMap::new();
    for entry in layers.iter().flat_map(|layer| &layer.entries) {
        let is_left = matches!(entry.kind, EntryKind::File(None)) && entry.class == PathClass::Seeded;
        if is_left && overlay.get(&entry.path).is_none() {
            left.insert(entry.path.clone(), made_here(&entry.path, made)?);
        }
    }
    Ok(left)
}

/// Writes entries whose contents are at hand. Folders get their metadata later.
fn write(tree: &Tree, entries: &[Entry], contents: &BTreeMap<TreePath, Vec<u8>>) -> Result<(), TreeError> {
    for entry in entries {
        match &entry.kind {
            EntryKind::Directory => tree.make_folder(&entry.path)?,
            EntryKind::File(_) => {
                let mut file = tree.make_file(&entry.path)?;
                let content = contents.get(&entry.path).map(Vec::as_slice).unwrap_or_default();
                file.write_all(content).map_err(|source| TreeError {
                    path: entry.path.clone(),
                    action: "writing",
                    source,
                })?;
                tree.finish_file(&file, entry)?;
            }
            _ => tree.make_special(entry)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use manifest::{FileContent, Header, Xattrs};

    use super::*;

    fn file(path: &str, class: PathClass, content: Option<&[u8]>) -> Entry {
        let content = content.map(|bytes| FileContent {
            size: bytes.len() as u64,
            digest: Digest::of(bytes),
        });
        Entry {
            path: path.parse().unwrap(),
            class,
            kind: EntryKind::File(content),
            mode: 0o644,
            uid: 0,
            gid: 0,
            mtime: 0,
            xattrs: Xattrs::new(),
        }
    }

    fn overlay(entries: Vec<Entry>) -> Manifest {
        Manifest::new(Header::new(ManifestKind::Overlay, "n1", "1"), entries).unwrap()
    }

    fn rendered(contents: &[&[u8]]) -> BTreeMap<Digest, RenderedFile> {
        let file = |bytes: &&[u8]| {
            let base64 = STANDARD.encode(bytes);
            (Digest::of(bytes), RenderedFile { base64 })
        };
        contents.iter().map(file).collect()
    }

    const KEY: &str = "/etc/ssh/ssh_host_ed25519_key";

    #[test]
    fn rendered_files_come_from_the_reply_and_keys_from_here() {
        let overlay = overlay(vec![
            file("/etc/hostname", PathClass::Rendered, Some(b"n1\n")),
            file("/etc/empty", PathClass::Rendered, Some(b"")),
            file(KEY, PathClass::Seeded, None),
        ]);
        let made = Made::from([(KEY, b"private".to_vec())]);
        let contents = contents(&overlay, &rendered(&[b"n1\n"]), &made).unwrap();
        let texts: Vec<&[u8]> = contents.values().map(Vec::as_slice).collect();
        assert_eq!(texts, [b"".as_slice(), b"n1\n", b"private"]);
    }

    #[test]
    fn what_has_no_right_content_is_refused_by_name() {
        let hostname = || file("/etc/hostname", PathClass::Rendered, Some(b"n1\n"));
        let other = BTreeMap::from([(Digest::of(b"n1\n"), rendered(&[b"n2\n"]).into_values().next().unwrap())]);
        let garbage = BTreeMap::from([(Digest::of(b"n1\n"), RenderedFile { base64: "?".to_owned() })]);
        let cases = [
            (
                vec![hostname()],
                BTreeMap::new(),
                "/etc/hostname: its content did not come",
            ),
            (vec![hostname()], other, "expected 3 with"),
            (vec![hostname()], garbage, "/etc/hostname"),
            (
                vec![file("/etc/secret", PathClass::Seeded, None)],
                BTreeMap::new(),
                "/etc/secret has no content",
            ),
        ];
        for (entries, files, expected) in cases {
            let error = contents(&overlay(entries), &files, &Made::new())
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error} should say {expected}");
        }
        let image = Manifest::new(Header::new(ManifestKind::Os, "n1", "1"), vec![]).unwrap();
        assert!(matches!(
            contents(&image, &BTreeMap::new(), &Made::new()),
            Err(OverlayError::Kind("os"))
        ));
    }

    #[test]
    fn files_an_image_leaves_to_the_node_must_be_known() {
        let image = Manifest::new(
            Header::new(ManifestKind::Os, "i", "1"),
            vec![
                file(KEY, PathClass::Seeded, None),
                file("/etc/machine-key", PathClass::Seeded, None),
            ],
        )
        .unwrap();
        let made = Made::from([(KEY, b"private".to_vec())]);
        let error = left_to_the_node(&[&image], &overlay(vec![]), &made)
            .unwrap_err()
            .to_string();
        assert!(error.contains("/etc/machine-key"), "{error}");
        let brought = overlay(vec![file("/etc/machine-key", PathClass::Rendered, Some(b"x"))]);
        let left = left_to_the_node(&[&image], &brought, &made).unwrap();
        assert_eq!(left.into_keys().map(|path| path.to_string()).collect::<Vec<_>>(), [KEY]);
    }
}
