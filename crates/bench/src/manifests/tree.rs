//! A large tree: made in an image store, and written by the agent from a server.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use manifest::packs::{PackWriter, StoredPack};
use manifest::{Digest, FileContent, KeyPair, Manifest, ManifestError};
use serde::Deserialize;

use super::sample;
use crate::process::Running;

const CONNECT_LIMIT: Duration = Duration::from_millis(200);
/// Between two words on how far it is.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// What an installation took, as the agent says.
#[derive(Debug, Clone, Deserialize)]
pub struct Tree {
    /// Regular files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// HTTP requests.
    pub requests: u64,
    /// Bytes that travelled.
    pub bytes_fetched: u64,
    /// Seconds for manifest and index.
    pub manifest_secs: f64,
    /// Seconds for everything, the data being on the disk.
    pub secs: f64,
    /// The most memory the agent held.
    pub memory_peak_bytes: u64,
}

/// Makes a tree of `files` files with `bytes_total` bytes in `folder`, serves it, and has the agent write it.
///
/// # Errors
/// When there is no room, or the agent or the server fails.
pub fn write(agent: &Path, own: &Path, folder: &Path, files: usize, bytes_total: u64) -> Result<Tree> {
    let room = super::free_bytes(folder)?;
    // Packs, and blocks of 4 KiB.
    let needed = bytes_total / 4 * 5 + files as u64 * 4_096 + (1 << 30);
    ensure!(
        room > needed,
        "{} has {} MB free, and {} MB are needed: give another folder or a smaller tree",
        folder.display(),
        room / 1_000_000,
        needed / 1_000_000
    );
    let data = folder.join("data");
    let (digest, key) = make(&data.join("images"), files, bytes_total)?;
    let listen = free_address()?;
    let server = Running::start(
        own,
        &[
            "serve-http".to_owned(),
            "--listen".to_owned(),
            listen.to_string(),
            "--folder".to_owned(),
            data.display().to_string(),
        ],
        || Ok(TcpStream::connect_timeout(&listen, CONNECT_LIMIT).is_ok()),
    )?;
    eprintln!("the agent writes {files} files");
    let root = folder.join("root");
    fs::create_dir(&root)?;
    let output = Command::new(agent)
        .args(["write-image", "--from", &format!("http://{listen}"), "--image"])
        .arg(digest.to_string())
        .args(["--key", &key])
        .arg(&root)
        .output()
        .with_context(|| format!("cannot start {}", agent.display()))?;
    ensure!(
        output.status.success(),
        "the agent: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    server.stop()?;
    let tree: Tree = serde_json::from_slice(&output.stdout).context("what the agent says")?;
    ensure!(
        tree.files == files as u64,
        "{} files were written of {files}",
        tree.files
    );
    Ok(tree)
}

/// An address of loopback that nobody listens on.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// Packs, manifest and signature; the image's digest and the public key.
fn make(images: &Path, files: usize, bytes_total: u64) -> Result<(Digest, String)> {
    let packs = images.join("packs");
    fs::create_dir_all(&packs)?;
    let mut writer = PackWriter::new(|pack: StoredPack<'_>| {
        let failed = |source| ManifestError::Pack {
            pack: pack.digest,
            problem: std::io::Error::to_string(&source),
        };
        fs::write(packs.join(pack.digest.to_string()), pack.bytes).map_err(failed)
    });
    let mut entries = sample::folders(files);
    let (mut done, mut said) = (0, Instant::now());
    for number in 0..files {
        let content = sample::content(number, sample::size(number, files, bytes_total));
        let (digest, size) = (Digest::of(&content), content.len() as u64);
        writer.add(digest, size, content.as_slice())?;
        entries.push(sample::file(number, FileContent { size, digest }));
        done += size;
        if said.elapsed() > SAY_EVERY {
            said = Instant::now();
            eprintln!("packed {} of {} MB", done / 1_000_000, bytes_total / 1_000_000);
        }
    }
    let index = writer.finish()?.encode()?;
    let text = Manifest::new(sample::header("1"), entries)?.encode()?;
    let (digest, key) = (Digest::of(&text), KeyPair::generate()?);
    let signature = key.sign(&text, "benchmark")?;
    let at = images.join("manifests").join(digest.to_string());
    fs::create_dir_all(&at)?;
    fs::write(at.join("packs.json.zst"), manifest::squeeze(&index)?)?;
    fs::write(at.join("manifest.ndjson.zst"), manifest::squeeze(&text)?)?;
    fs::write(at.join("packs.json"), index)?;
    fs::write(at.join("manifest.ndjson"), text)?;
    fs::write(at.join("manifest.ndjson.minisig"), signature.as_str())?;
    Ok((digest, key.public().as_str().to_owned()))
}
