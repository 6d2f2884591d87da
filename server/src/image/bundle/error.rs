//! What can go wrong with a bundle.

use std::path::PathBuf;

use manifest::ManifestError;

use super::super::exclusive::ExclusiveError;
use super::super::keys::KeyError;
use super::super::store::StoreError;

/// A bundle that was not made, or not taken in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// Reading or writing failed.
    #[error("{what}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file to be written is there already.
    #[error("{} is there already: remove it, or name another file", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// No image of the store is meant.
    #[error("{reference}: {problem}")]
    Reference {
        /// What was asked for.
        reference: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The bundle is not what it should be.
    #[error("the bundle is refused: {what}: {problem}")]
    Refused {
        /// Where.
        what: String,
        /// What is wrong there.
        problem: String,
    },
    /// The file ends before it should.
    #[error(
        "the bundle is cut short in {what}: copy it again, or let its export come to its end (FILE.part is unfinished)"
    )]
    Truncated {
        /// Where.
        what: String,
    },
    /// Signed by nobody who is trusted here.
    #[error(
        "the bundle is refused: {what} is signed by key {key}, which is not trusted here (trusted: {trusted}). If that is \
         the key of the site it comes from, add its public key to the trusted ones (plumbline key add FILE.pub) and try \
         again"
    )]
    Untrusted {
        /// What is signed.
        what: String,
        /// Id of the key, as minisign prints it.
        key: String,
        /// Ids of the keys that are trusted.
        trusted: String,
    },
    /// The store failed, or holds an image that is damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A manifest or a signature cannot be used.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The keys cannot be read.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// Somebody else is at work in the store.
    #[error(transparent)]
    Exclusive(#[from] ExclusiveError),
}

impl BundleError {
    pub(super) fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io {
            what: what.into(),
            source,
        }
    }

    #[allow(clippy::needless_pass_by_value, reason = "callers pass errors and text alike")]
    pub(super) fn refused(what: impl Into<String>, problem: impl ToString) -> Self {
        Self::Refused {
            what: what.into(),
            problem: problem.to_string(),
        }
    }
}
