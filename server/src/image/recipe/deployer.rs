//! The recipe of the deployer, as it is written.

use std::collections::BTreeMap;
use std::path::Path;

use manifest::TreePath;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Problem;
use super::base::PackagesBase;
use super::os::Beside;
use super::parts::{Distribution, KernelRecipe, ModeRule};
use super::words::{ImageName, Word};

/// Recipe of the deployer.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeployerRecipe {
    /// Always `deployer`.
    #[serde(rename = "kind")]
    #[schemars(rename = "kind")]
    _kind: DeployerKind,
    /// Image name, which is its folder's.
    pub name: ImageName,
    /// Where packages come from.
    pub distribution: Distribution,
    /// The kernel.
    pub kernel: KernelRecipe,
    /// Packages that programs are drawn from.
    pub packages: Vec<Word>,
    /// Programs and data copied from the packages; a program brings the libraries it is linked with.
    #[schemars(with = "Vec<String>")]
    pub programs: Vec<TreePath>,
    /// Kernel modules by group, each with what it depends on.
    pub modules: BTreeMap<String, Vec<Word>>,
    /// Owner and mode of paths, applied after the files are copied.
    #[serde(default)]
    pub modes: Vec<ModeRule>,
}

impl DeployerRecipe {
    /// What its programs are drawn from; `folder` is the recipe's own.
    pub(super) fn base(&self, folder: &Path) -> Result<PackagesBase, Problem> {
        self.distribution.check()?;
        let kernel = self.kernel.package.clone();
        Ok(PackagesBase {
            distribution: self.distribution.clone(),
            keyring: self.distribution.keyring.clone().map(|name| Beside {
                folder: folder.to_owned(),
                name,
            }),
            apt_sources: Vec::new(),
            kernel: kernel.ok_or(("kernel", "expected package".to_owned()))?,
            packages: self.packages.clone(),
        })
    }
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
enum DeployerKind {
    #[serde(rename = "deployer")]
    Deployer,
}
