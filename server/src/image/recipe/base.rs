//! What the tree of an operating system is made from: packages of a distribution, or a root from elsewhere.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use super::Problem;
use super::os::Beside;
use super::parts::{AptSource, Distribution};
use super::words::{BesideName, Line, Word};

/// A root from elsewhere, as it is written: `path` or `registry`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BaseFile {
    /// An OCI layout, an archive of `docker save`, a tarball of a root, or a folder that holds one; absolute, or below the
    /// recipe's folder. Which of them it is, is seen by looking.
    #[serde(default)]
    path: Option<Line>,
    /// The image of a layout or archive that holds several, by its tag.
    #[serde(default)]
    tag: Option<Line>,
    /// An image in a registry: `registry.example/team/image:tag`, or better `…@sha256:…`, which can mean one image only.
    #[serde(default)]
    registry: Option<Line>,
    /// The registry speaks plain HTTP.
    #[serde(default)]
    plain_http: bool,
    /// Certificate authority (PEM) of the registry, a file beside the recipe.
    #[serde(default)]
    authority: Option<BesideName>,
    /// A file with one line `USER:PASSWORD` for the registry; absolute, since it belongs beside no recipe.
    #[serde(default)]
    credentials: Option<Line>,
}

/// What a tree is made from.
#[derive(Clone, Debug)]
pub enum Base {
    /// Packages of a distribution.
    Packages(PackagesBase),
    /// A root from elsewhere, which brings its kernel.
    Imported(ImportedBase),
}

/// Packages, and where they come from.
#[derive(Clone, Debug)]
pub struct PackagesBase {
    /// The distribution.
    pub distribution: Distribution,
    /// The keyring of its mirror, where it has one of its own.
    pub keyring: Option<Beside>,
    /// Package sources beside the distribution's, each with its keyring.
    pub apt_sources: Vec<(AptSource, Beside)>,
    /// Package that brings the kernel.
    pub kernel: Word,
    /// Packages beside the kernel and the variant's own.
    pub packages: Vec<Word>,
}

/// A root from elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportedBase {
    /// On this machine.
    Path {
        /// Where.
        path: PathBuf,
        /// Which of several images.
        tag: Option<String>,
    },
    /// In a registry.
    Registry {
        /// Registry, repository, and tag or digest.
        reference: String,
        /// Whether to speak plain HTTP.
        plain_http: bool,
        /// Its certificate authority.
        authority: Option<Beside>,
        /// File with the account.
        credentials: Option<PathBuf>,
    },
}

impl BaseFile {
    /// What it names, for a recipe in this folder.
    pub(super) fn resolved(self, folder: &Path) -> Result<ImportedBase, Problem> {
        let wrong = |problem: &str| ("base", problem.to_owned());
        let of_registry = self.plain_http || self.authority.is_some() || self.credentials.is_some();
        match (self.path, self.registry) {
            (Some(_), None) if of_registry => Err(wrong("plain_http, authority and credentials belong to registry")),
            (Some(path), None) => Ok(ImportedBase::Path {
                path: folder.join(path.as_str()),
                tag: self.tag.map(|tag| tag.to_string()),
            }),
            (None, Some(_)) if self.tag.is_some() => Err(wrong("the tag belongs into the registry's reference")),
            (None, Some(reference)) => {
                let credentials = self.credentials.map(|path| PathBuf::from(path.as_str()));
                if credentials.as_ref().is_some_and(|path| !path.is_absolute()) {
                    return Err(wrong("credentials: expected an absolute path"));
                }
                Ok(ImportedBase::Registry {
                    reference: reference.to_string(),
                    plain_http: self.plain_http,
                    authority: self.authority.map(|name| Beside {
                        folder: folder.to_owned(),
                        name,
                    }),
                    credentials,
                })
            }
            _ => Err(wrong("expected path or registry, one of them")),
        }
    }
}

impl Base {
    /// Packages that the recipe names; none for a root that brings its own.
    #[must_use]
    pub fn packages(&self) -> &[Word] {
        match self {
            Self::Packages(base) => &base.packages,
            Self::Imported(_) => &[],
        }
    }

    /// Files beside the recipes that the build will read, each with the key that names it.
    pub(super) fn besides(&self) -> Vec<(&'static str, &Beside)> {
        match self {
            Self::Packages(base) => base.besides(),
            Self::Imported(ImportedBase::Registry { authority, .. }) => {
                authority.iter().map(|beside| ("base.authority", beside)).collect()
            }
            Self::Imported(ImportedBase::Path { .. }) => Vec::new(),
        }
    }
}

impl PackagesBase {
    /// See [`Base::besides`].
    pub(super) fn besides(&self) -> Vec<(&'static str, &Beside)> {
        let keyring = self.keyring.iter().map(|beside| ("distribution.keyring", beside));
        let sources = self.apt_sources.iter();
        keyring
            .chain(sources.map(|(_, beside)| ("apt_sources.keyring", beside)))
            .collect()
    }
}
