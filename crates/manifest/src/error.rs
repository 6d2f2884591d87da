//! What can be wrong with a manifest, a signature or a pack.

use crate::TreePath;

/// An error from reading, checking or writing image data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// A line is not what the canonical form would hold there.
    #[error("manifest line {line}: {problem}")]
    Line {
        /// Line number, counted from 1; line 1 is the header.
        line: usize,
        /// What was found and what was expected.
        problem: String,
    },
    /// Entries must be strictly ascending in byte order of their paths.
    #[error("manifest line {line}: {path} does not sort after the path before it")]
    Order {
        /// Line number, counted from 1.
        line: usize,
        /// The path out of order.
        path: TreePath,
    },
    /// A path is not an absolute, normalised tree path.
    #[error("path {path:?}: {problem}")]
    Path {
        /// The path, escaped.
        path: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Text that should be 64 lower-case hexadecimal digits.
    #[error("digest {text:?}: expected 64 lower-case hexadecimal digits")]
    Digest {
        /// The text, cut to 80 characters.
        text: String,
    },
    /// A bound was passed.
    #[error("{what}: {found} is over the limit of {limit}")]
    Limit {
        /// What is bounded.
        what: &'static str,
        /// What was found.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// The signature does not belong to these bytes and this key.
    #[error("signature: {0}")]
    Signature(String),
    /// A key file cannot be read.
    #[error("key: {0}")]
    Key(String),
    /// Pack data do not match their index.
    #[error("pack {pack}: {problem}")]
    Pack {
        /// Digest of the pack.
        pack: crate::Digest,
        /// What was found and what was expected.
        problem: String,
    },
    /// Reading or writing failed.
    #[error("{what}")]
    Io {
        /// What was being read or written.
        what: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

impl ManifestError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
