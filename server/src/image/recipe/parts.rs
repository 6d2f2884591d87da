//! The parts of a recipe that both kinds have.

use manifest::TreePath;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Problem;
use super::words::{BesideName, Line, MirrorUrl, OctalMode, SuiteName, Word};

/// Where packages come from. Unless it names a mirror, those of the build machine for this suite are used.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Distribution {
    /// Release code name (`bookworm`).
    pub suite: Word,
    /// Archive components (`main`), at least one.
    pub components: Components,
    /// mmdebstrap's variant; `minbase` unless said otherwise.
    #[serde(default)]
    pub variant: Option<Word>,
    /// Mirror of the suite and of its updates.
    #[serde(default)]
    pub mirror: Option<MirrorUrl>,
    /// Mirror of the suite's security fixes; none are taken where only `mirror` is named.
    #[serde(default)]
    pub security_mirror: Option<MirrorUrl>,
    /// Keyring that signs those mirrors, beside the recipe; else the build machine's own.
    #[serde(default)]
    pub keyring: Option<BesideName>,
    /// HTTP proxy for packages; else the build machine's.
    #[serde(default)]
    pub proxy: Option<MirrorUrl>,
}

impl Distribution {
    /// What belongs to a mirror stands beside one: else it would be passed over.
    pub(super) fn check(&self) -> Result<(), Problem> {
        if self.mirror.is_none() && (self.security_mirror.is_some() || self.keyring.is_some()) {
            let problem = "security_mirror and keyring belong to a mirror: expected mirror, too";
            return Err(("distribution", problem.to_owned()));
        }
        Ok(())
    }
}

/// Archive components.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "Vec<Word>")]
#[schemars(with = "Vec<Word>")]
pub struct Components(pub Vec<Word>);

impl TryFrom<Vec<Word>> for Components {
    type Error = String;

    fn try_from(words: Vec<Word>) -> Result<Self, Self::Error> {
        if words.is_empty() {
            return Err("expected at least one component, as main".to_owned());
        }
        Ok(Self(words))
    }
}

/// A package source beside the distribution's own.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AptSource {
    /// Its name: of its file in `/etc/apt/sources.list.d`, and of its keyring.
    pub name: Word,
    /// Where it is.
    pub uri: MirrorUrl,
    /// Its suite; a path that ends in `/` for a flat repository.
    pub suite: SuiteName,
    /// Its components; none for a flat repository.
    #[serde(default)]
    pub components: Vec<Word>,
    /// The keyring that signs it, beside the recipe (`keys/vendor.asc` or `.gpg`). Packages that nobody signed are not
    /// taken.
    pub keyring: BesideName,
    /// Whether nodes know this source, too. They need it for nothing: an image is complete.
    #[serde(default)]
    pub keep: bool,
}

/// Owner and permissions of a path, beyond what git keeps.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModeRule {
    /// The path; it must exist when the files are in place.
    #[schemars(with = "String")]
    pub path: TreePath,
    /// Four octal digits.
    pub mode: OctalMode,
    /// Numeric owner.
    #[serde(default)]
    pub uid: u32,
    /// Numeric group.
    #[serde(default)]
    pub gid: u32,
}

/// Package and command line of a kernel.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KernelRecipe {
    /// Package that brings the kernel. A root from elsewhere brings it without.
    #[serde(default)]
    pub package: Option<Word>,
    /// Command line of the image, without what is per node or per boot.
    #[serde(default)]
    pub command_line: Option<Line>,
}
