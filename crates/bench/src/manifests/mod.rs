//! Manifests: how long the work with a large one takes, and what an installation of a large tree costs.
//!
//! Idea: the figures of the manifest are of this code alone, on one processor. The tree is written by the real agent, a
//! process of its own, from this project's boot listener, another, over loopback; what counts are its requests and its
//! memory, which do not hang on the machine.

pub mod report;
mod sample;
mod tree;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use manifest::{Digest, KeyPair, Manifest, PublicKey};

pub use report::Run;
pub use tree::{Tree, write};

/// Files of the manifest that is measured, and of the tree.
pub const FILES: usize = 100_000;
pub const TREE_FILES: usize = 400_000;
/// Bytes of the tree, in MB.
pub const TREE_MB: u64 = 16_000;

/// Seconds of each step, by round, and bytes.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// From entries in any order to a manifest.
    pub build_secs: Vec<f64>,
    /// To the canonical text.
    pub encode_secs: Vec<f64>,
    /// From text and signature to a manifest that may be believed: digest, signature, every line.
    pub verify_secs: Vec<f64>,
    /// With another version that differs in every fiftieth file.
    pub compare_secs: Vec<f64>,
    /// The text.
    pub text_bytes: u64,
    /// As it travels.
    pub squeezed_bytes: u64,
}

/// Measures a manifest of `files` files.
///
/// # Errors
/// When a step fails or finds something else than it should.
pub fn measure(files: usize, rounds: usize) -> Result<Figures> {
    let key = KeyPair::generate()?;
    let mut figures = Figures::default();
    let mut other = sample::entries(files);
    let differing = sample::change(&mut other, 50);
    let other = Manifest::new(sample::header("2"), other)?;
    for _ in 0..rounds {
        let mut entries = sample::entries(files);
        sample::shuffle(&mut entries);
        let begun = Instant::now();
        let built = Manifest::new(sample::header("1"), entries)?;
        figures.build_secs.push(begun.elapsed().as_secs_f64());

        let begun = Instant::now();
        let text = built.encode()?;
        figures.encode_secs.push(begun.elapsed().as_secs_f64());

        let signature = key.sign(&text, "benchmark")?;
        let (public, digest) = (key.public(), Digest::of(&text));
        let begun = Instant::now();
        let verified = verify(&text, &signature, &public, digest)?;
        figures.verify_secs.push(begun.elapsed().as_secs_f64());
        ensure!(verified == built, "another manifest came out than went in");

        let begun = Instant::now();
        let changes = manifest::diff::path_changes(&verified, &other).len();
        figures.compare_secs.push(begun.elapsed().as_secs_f64());
        ensure!(
            changes == differing,
            "{changes} differences were found, there are {differing}"
        );

        figures.text_bytes = text.len() as u64;
        figures.squeezed_bytes = manifest::squeeze(&text)?.len() as u64;
    }
    Ok(figures)
}

fn verify(text: &[u8], signature: &manifest::Signature, key: &PublicKey, expected: Digest) -> Result<Manifest> {
    ensure!(Digest::of(text) == expected, "another digest");
    key.verify(text, signature)?;
    Ok(Manifest::decode(text)?)
}

/// Free bytes where a folder lies.
///
/// # Errors
/// When it cannot be asked.
pub fn free_bytes(folder: &Path) -> Result<u64> {
    let found = rustix::fs::statvfs(folder).with_context(|| folder.display().to_string())?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_manifest_is_measured_in_every_step() {
        let figures = measure(500, 2).unwrap();
        for secs in [
            &figures.build_secs,
            &figures.encode_secs,
            &figures.verify_secs,
            &figures.compare_secs,
        ] {
            assert_eq!(secs.len(), 2);
        }
        assert!(figures.squeezed_bytes < figures.text_bytes);
    }
}
