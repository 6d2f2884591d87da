//! What can go wrong in a build.

use std::path::PathBuf;

use manifest::{ManifestError, TreePath};
use yaml::YamlError;

use hardening::ApplyError;
use imports::ImportError;

use super::super::exclusive::ExclusiveError;
use super::super::keys::KeyError;
use super::super::module_key::ModuleKeyError;
use super::super::recipe::RecipeError;
use super::super::store::StoreError;

/// A build that did not come to an image. Nothing of it is in the store then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The recipe cannot be used.
    #[error(transparent)]
    Recipe(#[from] RecipeError),
    /// The recipe's lock cannot be used.
    #[error(transparent)]
    Lock(#[from] YamlError),
    /// The packages are not those of the lock.
    #[error(
        "the packages differ from {}: {changes}; plumbline image update takes the new ones",
        path.display()
    )]
    LockDiffers {
        /// The lock.
        path: PathBuf,
        /// What differs.
        changes: String,
    },
    /// Rules of the hardening profile fail in the finished tree.
    #[error(
        "the image is not as the hardening profile {profile} asks; mend it, or waive a rule in the recipe (hardening.waivers):{rules}"
    )]
    Hardening {
        /// The profile.
        profile: String,
        /// The rules and what was found.
        rules: String,
    },
    /// Rules could not be written into the tree.
    #[error("bringing hardening rules about")]
    HardeningApply(#[source] ApplyError),
    /// A waiver of the recipe is over.
    #[error(
        "the waiver of {rule} by {approver} was over after {until}: take it out of the recipe, or have it given again"
    )]
    WaiverOver {
        /// The rule.
        rule: String,
        /// Who answered for it.
        approver: String,
        /// Its last day.
        until: String,
    },
    /// The recipe names a package that its profile does not want.
    #[error(
        "package {package} is not wanted by the hardening profile {profile}: take one of them out, or waive the rule"
    )]
    PackageUnwanted {
        /// The package.
        package: String,
        /// The profile.
        profile: String,
    },
    /// The key for kernel modules cannot be used.
    #[error(transparent)]
    ModuleKey(#[from] ModuleKeyError),
    /// A signing key cannot be read or made.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The manifest or a pack failed.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Builds own files as the image will and mount `/proc` inside the tree.
    #[error("building an image needs root: it sets owners and runs the image's own tools inside its tree")]
    NotRoot,
    /// Another build, an import or a removal works in the same data folder.
    #[error("another build, import or removal is at work (it holds {})", path.display())]
    Busy {
        /// The lock file.
        path: PathBuf,
    },
    /// A program that builds need is not installed.
    #[error("{program} is not installed (Debian package {package})")]
    ProgramMissing {
        /// The program.
        program: &'static str,
        /// The package that brings it.
        package: &'static str,
    },
    /// A program failed.
    #[error("{program} failed ({status}); it said last:\n{output}")]
    Program {
        /// The program and what it was to do.
        program: String,
        /// How it ended.
        status: String,
        /// Its last lines.
        output: String,
    },
    /// A program took too long.
    #[error("{program} took longer than {secs} s ({setting}) and was ended; it said last:\n{output}")]
    TimedOut {
        /// The program and what it was to do.
        program: String,
        /// How long it might take.
        secs: u64,
        /// What sets that.
        setting: &'static str,
        /// Its last lines.
        output: String,
    },
    /// Nobody listens to the build any more.
    #[error("the build was stopped")]
    Stopped,
    /// Reading or writing failed.
    #[error("{what}")]
    Io {
        /// What was being read or written.
        what: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The build machine has no package source for this suite.
    #[error("no package source for {suite} {components}: expected one in /etc/apt/sources.list or sources.list.d")]
    NoSource {
        /// The suite.
        suite: String,
        /// Its components.
        components: String,
    },
    /// The tree holds what makes one node that node.
    #[error("the image would hold an identity: {path}: {problem}")]
    Identity {
        /// The path.
        path: TreePath,
        /// What was found there.
        problem: &'static str,
    },
    /// A root from elsewhere could not be brought.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// The rpm database of a root from elsewhere cannot be read.
    #[error(transparent)]
    Rpm(#[from] imports::rpm::RpmError),
    /// A root from elsewhere cannot boot, or holds what belongs to one machine.
    #[error("the root cannot become an image of a node; what to change:{0}")]
    NotBootable(
        /// Each thing with what to do, two lines each.
        String,
    ),
    /// The tree is not what an image can be made of.
    #[error("{path}: {problem}")]
    Tree {
        /// The path.
        path: TreePath,
        /// What was found and what was expected.
        problem: String,
    },
    /// A file that lists packages, users, groups or modules cannot be read.
    #[error("{file} line {line}: {problem}")]
    Facts {
        /// The file.
        file: &'static str,
        /// The line, counted from 1.
        line: usize,
        /// What was found and what was expected.
        problem: String,
    },
    /// A kernel module of the recipe is in no module folder and not built in.
    #[error("kernel module {module} (group {group}): the kernel {release} has no module of that name")]
    ModuleUnknown {
        /// The module.
        module: String,
        /// The recipe's group it stands in.
        group: String,
        /// The kernel.
        release: String,
    },
    /// A bound was passed.
    #[error("{what}: {found} bytes, expected at most {limit}")]
    Size {
        /// What is bounded.
        what: &'static str,
        /// What was found.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// Something that the build was to be given is missing.
    #[error("{what}: expected {}", path.display())]
    InputMissing {
        /// What it is and what it is for.
        what: &'static str,
        /// Where it was looked for.
        path: PathBuf,
    },
}

impl From<ExclusiveError> for BuildError {
    fn from(error: ExclusiveError) -> Self {
        match error {
            ExclusiveError::Busy { path } => Self::Busy { path },
            ExclusiveError::Io { path, source } => Self::Io {
                what: format!("preparing {}", path.display()),
                source,
            },
        }
    }
}

impl BuildError {
    /// For `map_err`: says what was being done.
    pub(super) fn io<W: Into<String>>(what: W) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io {
            what: what.into(),
            source,
        }
    }
}
