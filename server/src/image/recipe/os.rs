//! The recipe of an operating system root, as it is written, and as it stands when what it extends is under it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use manifest::{ClassRules, FilesystemKind, PathPattern, Root, TreePath};
use schemars::JsonSchema;
use serde::Deserialize;

use super::base::{Base, BaseFile, ImportedBase, PackagesBase};
use super::hardening::{Hardening, HardeningFile, HardeningWanted};
use super::parts::{AptSource, Distribution, KernelRecipe, ModeRule};
use super::words::{
    AccountName, BesideName, HookSecs, ImageName, Line, OctalMode, SysctlKey, SysctlValue, UnitName, Word,
};
use super::{FILES_FOLDER, Problem, schema};

/// How long each hook may take where no recipe says otherwise, in seconds.
const HOOK_SECS_DEFAULT: u32 = 600;

/// What to do with unit files.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnitsRecipe {
    /// Units to enable.
    #[serde(default)]
    pub enable: Vec<UnitName>,
    /// Units to disable.
    #[serde(default)]
    pub disable: Vec<UnitName>,
    /// Units to mask.
    #[serde(default)]
    pub mask: Vec<UnitName>,
}

/// A group of the image.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupRecipe {
    /// Its name.
    pub name: AccountName,
    /// Its number, the same on every node.
    pub gid: u32,
}

/// An account of the image. It has no password; who may log in has a key.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserRecipe {
    /// Login name.
    pub name: AccountName,
    /// Its number, the same on every node.
    pub uid: u32,
    /// Its own group, made with it; the user's number unless said otherwise.
    #[serde(default)]
    pub gid: Option<u32>,
    /// Groups it is in beside its own.
    #[serde(default)]
    pub groups: Vec<AccountName>,
    /// Home folder; `/home/NAME` unless said otherwise.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub home: Option<TreePath>,
    /// Login shell; `/bin/bash` unless said otherwise.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub shell: Option<TreePath>,
    /// Public keys that log it in, one line each.
    #[serde(default)]
    pub authorized_keys: Vec<Line>,
}

/// A file with its content in the recipe.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileRecipe {
    /// Where it lies.
    #[schemars(with = "String")]
    pub path: TreePath,
    /// Its content.
    pub content: String,
    /// Four octal digits; `"0644"` unless said otherwise.
    #[serde(default)]
    pub mode: Option<OctalMode>,
    /// Numeric owner.
    #[serde(default)]
    pub uid: u32,
    /// Numeric group.
    #[serde(default)]
    pub gid: u32,
}

/// A recipe of kind `os`, as it is written.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OsFile {
    /// Always `os`.
    #[serde(rename = "kind")]
    #[schemars(rename = "kind")]
    _kind: OsKind,
    /// Image name, which is its folder's.
    pub name: ImageName,
    /// The recipe under this one: the name of a folder beside this one's. What is written here comes on top: single
    /// values replace, lists grow, maps take the newer value for a key, files are laid over.
    #[serde(default)]
    pub extends: Option<ImageName>,
    /// A root from elsewhere, in the place of a distribution's packages.
    #[serde(default)]
    base: Option<BaseFile>,
    /// Where packages come from.
    #[serde(default)]
    distribution: Option<Distribution>,
    /// Package sources beside the distribution's.
    #[serde(default)]
    apt_sources: Vec<AptSource>,
    /// The kernel.
    #[serde(default)]
    kernel: Option<KernelRecipe>,
    /// Packages beside the kernel and the variant's own. Recommended packages are not taken.
    #[serde(default)]
    packages: Vec<Word>,
    /// Packages of the recipe under this one that are not wanted.
    #[serde(default)]
    packages_without: Vec<Word>,
    /// Groups that no package makes.
    #[serde(default)]
    groups: Vec<GroupRecipe>,
    /// Accounts that no package makes.
    #[serde(default)]
    users: Vec<UserRecipe>,
    /// Units to enable, disable and mask.
    #[serde(default)]
    units: UnitsRecipe,
    /// Files with their content here; laid over those of the folder `files`.
    #[serde(default)]
    files: Vec<FileRecipe>,
    /// Owner and mode of paths, applied after everything that writes.
    #[serde(default)]
    modes: Vec<ModeRule>,
    /// A profile of hardening rules, and what of it is waived.
    #[serde(default)]
    hardening: Option<HardeningFile>,
    /// Scripts run in the tree, in their order, when files and units are in place: the last resort. They have no network.
    #[serde(default)]
    hooks: Vec<BesideName>,
    /// How long each of them may take, in seconds; 600 unless said otherwise. What takes longer is ended, and the build
    /// fails.
    #[serde(default)]
    hook_secs_max: Option<HookSecs>,
    /// Paths removed from the tree: whatever a pattern covers, and all below it.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    remove: Vec<PathPattern>,
    /// Names of class lists that come with Plumbline (`systemd`); their rules stand before the recipe's own.
    #[serde(default)]
    class_lists: Vec<Word>,
    /// Class rules; the last one that covers a path decides.
    #[serde(default)]
    #[schemars(with = "Vec<schema::ClassRule>")]
    classes: ClassRules,
    /// Sysctls that must hold; written to `/etc/sysctl.d/60-plumbline.conf`.
    #[serde(default)]
    sysctls: BTreeMap<SysctlKey, SysctlValue>,
    /// Kernel modules that must be loaded.
    #[serde(default)]
    modules_required: Vec<Word>,
    /// Kernel modules that must not be loaded.
    #[serde(default)]
    modules_forbidden: Vec<Word>,
    /// Filesystems of an installed node, `/` first; `/` on ext4 and `/boot/efi` on vfat unless said otherwise.
    #[serde(default)]
    #[schemars(with = "Option<Vec<schema::Root>>")]
    roots: Option<Vec<Root>>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
enum OsKind {
    #[serde(rename = "os")]
    Os,
}

/// A file beside a recipe, with the recipe's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    /// The folder of the recipe that names it.
    pub folder: PathBuf,
    /// Its name there.
    pub name: BesideName,
}

impl Beside {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.join(self.name.as_str())
    }
}

/// A recipe of kind `os` with all that it extends.
#[derive(Clone, Debug)]
pub struct OsRecipe {
    /// Image name.
    pub name: ImageName,
    /// The folders of the recipes, the lowest first, this one's last.
    pub folders: Vec<PathBuf>,
    /// What the tree is made from.
    pub base: Base,
    /// Kernel command line, without what is per node or per boot.
    pub command_line: Option<Line>,
    /// Groups that no package makes.
    pub groups: Vec<GroupRecipe>,
    /// Accounts that no package makes.
    pub users: Vec<UserRecipe>,
    /// Units to enable, disable and mask.
    pub units: UnitsRecipe,
    /// Files with their content.
    pub files: Vec<FileRecipe>,
    /// Owner and mode of paths.
    pub modes: Vec<ModeRule>,
    /// Hardening, where a recipe asks for it.
    pub hardening: Option<Hardening>,
    /// Scripts run in the tree.
    pub hooks: Vec<Beside>,
    /// How long each of them may take, in seconds.
    pub hook_secs_max: u32,
    /// Paths removed from the tree.
    pub remove: Vec<PathPattern>,
    /// Names of class lists. After [`super::Recipe::load`] their rules are among `classes`.
    pub class_lists: Vec<Word>,
    /// Class rules; the last one that covers a path decides.
    pub classes: ClassRules,
    /// Sysctls that must hold.
    pub sysctls: BTreeMap<SysctlKey, SysctlValue>,
    /// Kernel modules that must be loaded.
    pub modules_required: Vec<Word>,
    /// Kernel modules that must not be loaded.
    pub modules_forbidden: Vec<Word>,
    /// Filesystems of an installed node, `/` first.
    pub roots: Vec<Root>,
}

impl OsRecipe {
    /// Stacks recipes, the lowest first, each with its folder. What they ask of hardening is read by whoever asked.
    pub(super) fn stack(layers: Vec<(PathBuf, OsFile)>) -> Result<(Self, HardeningWanted), Problem> {
        let mut stack = Stack::default();
        let mut name = None;
        for (folder, file) in layers {
            name = Some(file.name.clone());
            stack.lay(&folder, file)?;
        }
        let (base, command_line) = stack.base()?;
        let roots = stack.roots.unwrap_or_else(roots_default);
        if !roots.first().is_some_and(|root| root.mount.is_root()) {
            return Err(("roots", "expected / first".to_owned()));
        }
        let recipe = Self {
            name: name.ok_or(missing("name"))?,
            base,
            command_line,
            roots,
            folders: stack.folders,
            groups: stack.groups,
            users: stack.users,
            units: stack.units,
            files: stack.files,
            modes: stack.modes,
            hardening: None,
            hooks: stack.hooks,
            hook_secs_max: stack.hook_secs_max.map_or(HOOK_SECS_DEFAULT, |secs| secs.0),
            remove: stack.remove,
            class_lists: stack.class_lists,
            classes: stack.classes,
            sysctls: stack.sysctls,
            modules_required: stack.modules_required,
            modules_forbidden: stack.modules_forbidden,
        };
        Ok((recipe, stack.hardening))
    }

    /// The folders whose content is laid over the tree, in their order. One may be missing.
    pub fn files_folders(&self) -> impl Iterator<Item = PathBuf> {
        self.folders.iter().map(|folder| folder.join(FILES_FOLDER))
    }

    /// Every file beside the recipes that the build will read.
    pub fn besides(&self) -> impl Iterator<Item = (&'static str, &Beside)> {
        let base = self.base.besides().into_iter();
        base.chain(self.hooks.iter().map(|beside| ("hooks", beside)))
    }
}

/// What the recipes laid so far come to.
#[derive(Default)]
struct Stack {
    folders: Vec<PathBuf>,
    imported: Option<ImportedBase>,
    distribution: Option<(Distribution, Option<Beside>)>,
    apt_sources: Vec<(AptSource, Beside)>,
    kernel_package: Option<Word>,
    command_line: Option<Line>,
    packages: Vec<Word>,
    groups: Vec<GroupRecipe>,
    users: Vec<UserRecipe>,
    units: UnitsRecipe,
    files: Vec<FileRecipe>,
    modes: Vec<ModeRule>,
    hardening: HardeningWanted,
    hooks: Vec<Beside>,
    hook_secs_max: Option<HookSecs>,
    remove: Vec<PathPattern>,
    class_lists: Vec<Word>,
    classes: ClassRules,
    sysctls: BTreeMap<SysctlKey, SysctlValue>,
    modules_required: Vec<Word>,
    modules_forbidden: Vec<Word>,
    roots: Option<Vec<Root>>,
}

impl Stack {
    fn lay(&mut self, folder: &Path, file: OsFile) -> Result<(), Problem> {
        let beside = |name: BesideName| Beside {
            folder: folder.to_owned(),
            name,
        };
        for package in &file.packages_without {
            let before = self.packages.len();
            self.packages.retain(|known| known != package);
            if self.packages.len() == before {
                let problem = format!("{:?}: no recipe under this one names that package", package.as_str());
                return Err(("packages_without", problem));
            }
        }
        if let Some(base) = file.base {
            self.imported = Some(base.resolved(folder)?);
        }
        if let Some(distribution) = file.distribution {
            distribution.check()?;
            let keyring = distribution.keyring.clone().map(beside);
            self.distribution = Some((distribution, keyring));
        }
        for source in file.apt_sources {
            let keyring = beside(source.keyring.clone());
            self.apt_sources.retain(|(known, _)| known.name != source.name);
            self.apt_sources.push((source, keyring));
        }
        if let Some(kernel) = file.kernel {
            // A recipe that only exchanges one of both keeps the other.
            self.kernel_package = kernel.package.or(self.kernel_package.take());
            self.command_line = kernel.command_line.or(self.command_line.take());
        }
        for group in file.groups {
            self.groups.retain(|known| known.name != group.name);
            self.groups.push(group);
        }
        for user in file.users {
            self.users.retain(|known| known.name != user.name);
            self.users.push(user);
        }
        // The newer recipe's word on a unit is the only one.
        let said: Vec<&UnitName> = file
            .units
            .enable
            .iter()
            .chain(&file.units.disable)
            .chain(&file.units.mask)
            .collect();
        for units in [&mut self.units.enable, &mut self.units.disable, &mut self.units.mask] {
            units.retain(|unit| !said.contains(&unit));
        }
        self.units.enable.extend(file.units.enable.iter().cloned());
        self.units.disable.extend(file.units.disable.iter().cloned());
        self.units.mask.extend(file.units.mask.iter().cloned());
        self.packages.extend(file.packages);
        self.files.extend(file.files);
        self.modes.extend(file.modes);
        self.hardening.lay(folder, file.hardening.unwrap_or_default());
        self.hooks.extend(file.hooks.into_iter().map(beside));
        self.hook_secs_max = file.hook_secs_max.or(self.hook_secs_max);
        self.remove.extend(file.remove);
        for list in file.class_lists {
            if !self.class_lists.contains(&list) {
                self.class_lists.push(list);
            }
        }
        self.classes.0.extend(file.classes.0);
        self.sysctls.extend(file.sysctls);
        self.modules_required.extend(file.modules_required);
        self.modules_forbidden.extend(file.modules_forbidden);
        self.roots = file.roots.or(self.roots.take());
        self.folders.push(folder.to_owned());
        Ok(())
    }

    /// What the tree is made from, and the command line of its kernel.
    fn base(&mut self) -> Result<(Base, Option<Line>), Problem> {
        let command_line = self.command_line.take();
        let base = match (self.imported.take(), self.distribution.take()) {
            (Some(_), Some(_)) => return Err(("base", "expected base or distribution, one of them".to_owned())),
            (Some(imported), None) => {
                let brought = [
                    ("packages", self.packages.is_empty()),
                    ("apt_sources", self.apt_sources.is_empty()),
                    ("kernel.package", self.kernel_package.is_none()),
                ];
                if let Some((field, _)) = brought.into_iter().find(|(_, is_empty)| !is_empty) {
                    let problem = "a root from elsewhere is taken as it is: install it there, before it is brought";
                    return Err((field, problem.to_owned()));
                }
                Base::Imported(imported)
            }
            (None, distribution) => {
                let (distribution, keyring) = distribution.ok_or(missing("distribution"))?;
                Base::Packages(PackagesBase {
                    distribution,
                    keyring,
                    apt_sources: std::mem::take(&mut self.apt_sources),
                    kernel: self.kernel_package.take().ok_or(missing("kernel.package"))?,
                    packages: std::mem::take(&mut self.packages),
                })
            }
        };
        Ok((base, command_line))
    }
}

fn missing(field: &'static str) -> Problem {
    (field, "expected here or in a recipe that this one extends".to_owned())
}

fn roots_default() -> Vec<Root> {
    let root = |path: &[u8], filesystem| TreePath::from_bytes(path).ok().map(|mount| Root { mount, filesystem });
    [
        root(b"/", FilesystemKind::Ext4),
        root(b"/boot/efi", FilesystemKind::Vfat),
    ]
    .into_iter()
    .flatten()
    .collect()
}
