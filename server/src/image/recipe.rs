//! Recipes: what an image is made of, as people write it in `images/<name>/image.yaml`.
//!
//! A recipe names everything by hand that could differ between two builds or two nodes: packages, units, classes,
//! sysctls, modules. Unknown keys are refused, so that a misspelt one is an error and not a default.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use manifest::{ClassRules, FilesystemKind, ManifestKind, PathPattern, Root, TreePath};
use serde::Deserialize;

use super::class_lists;
use super::yaml::{self, YamlError};

/// The recipe's file name in its folder.
pub const RECIPE_FILE: &str = "image.yaml";
/// The folder beside it whose content is copied into the image.
pub const FILES_FOLDER: &str = "files";

/// A recipe that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecipeError {
    /// The YAML cannot be read.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// A value has the right type and makes no sense.
    #[error("{}: {field}: {problem}", path.display())]
    Value {
        /// The recipe's file.
        path: PathBuf,
        /// The field.
        field: &'static str,
        /// What was found and what was expected.
        problem: String,
    },
}

/// A recipe of either kind.
#[derive(Clone, Debug)]
pub enum Recipe {
    /// An operating system root.
    Os(OsRecipe),
    /// The ramdisk that commissions and installs.
    Deployer(DeployerRecipe),
}

/// Where packages come from. The mirrors are those of the build machine for this suite, so that no recipe names one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distribution {
    /// Release code name (`bookworm`).
    pub suite: String,
    /// Archive components (`main`).
    pub components: Vec<String>,
    /// mmdebstrap's variant; `minbase` unless said otherwise.
    #[serde(default)]
    pub variant: Option<String>,
}

/// Owner and permissions of a path, beyond what git keeps.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModeRule {
    /// The path; it must exist when the files are in place.
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

/// Permission bits, written as octal digits in quotes (`"0600"`), since YAML reads a bare 0600 as it likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct OctalMode(pub u32);

impl TryFrom<String> for OctalMode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let mode = u32::from_str_radix(&text, 8)
            .ok()
            .filter(|mode| text.len() == 4 && *mode <= 0o7777);
        mode.map(Self)
            .ok_or_else(|| format!("mode {text:?}: expected four octal digits in quotes, as \"0644\""))
    }
}

/// Package and command line of a kernel.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelRecipe {
    /// Package that brings the kernel.
    pub package: String,
    /// Command line of the image, without what is per node or per boot.
    #[serde(default)]
    pub command_line: String,
}

/// What to do with unit files.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnitsRecipe {
    /// Units to enable.
    #[serde(default)]
    pub enable: Vec<String>,
    /// Units to disable.
    #[serde(default)]
    pub disable: Vec<String>,
    /// Units to mask.
    #[serde(default)]
    pub mask: Vec<String>,
}

/// Recipe of an operating system root.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OsRecipe {
    /// Always `os`.
    #[serde(rename = "kind")]
    _kind: OsKind,
    /// Image name.
    pub name: String,
    /// Where packages come from.
    pub distribution: Distribution,
    /// The kernel.
    pub kernel: KernelRecipe,
    /// Packages beside the kernel and the variant's own. Recommended packages are not taken.
    pub packages: Vec<String>,
    /// Units to enable, disable and mask.
    #[serde(default)]
    pub units: UnitsRecipe,
    /// Owner and mode of paths, applied after the files are copied.
    #[serde(default)]
    pub modes: Vec<ModeRule>,
    /// Paths removed from the tree: whatever a pattern covers, and all below it.
    #[serde(default)]
    pub remove: Vec<PathPattern>,
    /// Names of class lists that come with Plumbline (`systemd`); their rules stand before the recipe's own.
    #[serde(default)]
    pub class_lists: Vec<String>,
    /// Class rules; the last one that covers a path decides. After [`Recipe::load`] those of the lists are among them.
    pub classes: ClassRules,
    /// Sysctls that must hold; written to `/etc/sysctl.d/60-plumbline.conf`.
    #[serde(default)]
    pub sysctls: BTreeMap<String, String>,
    /// Kernel modules that must be loaded.
    #[serde(default)]
    pub modules_required: Vec<String>,
    /// Kernel modules that must not be loaded.
    #[serde(default)]
    pub modules_forbidden: Vec<String>,
    /// Filesystems of an installed node; `/` on ext4 and `/boot/efi` on vfat unless said otherwise.
    #[serde(default = "roots_default")]
    pub roots: Vec<Root>,
}

/// Recipe of the deployer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeployerRecipe {
    /// Always `deployer`.
    #[serde(rename = "kind")]
    _kind: DeployerKind,
    /// Image name.
    pub name: String,
    /// Where packages come from.
    pub distribution: Distribution,
    /// The kernel.
    pub kernel: KernelRecipe,
    /// Packages that programs are drawn from.
    pub packages: Vec<String>,
    /// Programs and data copied from the packages; a program brings the libraries it is linked with.
    pub programs: Vec<TreePath>,
    /// Kernel modules by group, each with what it depends on.
    pub modules: BTreeMap<String, Vec<String>>,
    /// Owner and mode of paths, applied after the files are copied.
    #[serde(default)]
    pub modes: Vec<ModeRule>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum OsKind {
    #[serde(rename = "os")]
    Os,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum DeployerKind {
    #[serde(rename = "deployer")]
    Deployer,
}

/// Only the field that says which kind of recipe follows.
#[derive(Deserialize)]
struct KindOnly {
    kind: ManifestKind,
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

impl Recipe {
    /// Reads and checks the recipe in this folder.
    ///
    /// # Errors
    /// [`RecipeError`], with the file and the line or field.
    pub fn load(folder: &Path) -> Result<Self, RecipeError> {
        let path = folder.join(RECIPE_FILE);
        Self::parse(&path, &yaml::read_text(&path)?)
    }

    /// Parses and checks a recipe; `path` only names it in errors.
    ///
    /// # Errors
    /// As [`Recipe::load`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, RecipeError> {
        let kind: KindOnly = yaml::parse(path, text)?;
        let wrong = |(field, problem)| RecipeError::Value {
            path: path.to_owned(),
            field,
            problem,
        };
        match kind.kind {
            ManifestKind::Os => {
                let mut recipe: OsRecipe = yaml::parse(path, text)?;
                recipe.check().map_err(wrong)?;
                recipe.take_class_lists()?.map_err(wrong)?;
                Ok(Self::Os(recipe))
            }
            ManifestKind::Deployer => {
                let recipe: DeployerRecipe = yaml::parse(path, text)?;
                recipe.check().map_err(wrong)?;
                Ok(Self::Deployer(recipe))
            }
            other => Err(wrong((
                "kind",
                format!("{:?} has no recipe, expected os or deployer", other.as_str()),
            ))),
        }
    }

    /// The image's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Os(recipe) => &recipe.name,
            Self::Deployer(recipe) => &recipe.name,
        }
    }
}

/// A field and what is wrong with it.
type Problem = (&'static str, String);

impl OsRecipe {
    fn take_class_lists(&mut self) -> Result<Result<(), Problem>, YamlError> {
        let mut rules = Vec::new();
        for name in &self.class_lists {
            match class_lists::named(name)? {
                Some(list) => rules.extend(list.0),
                None => {
                    let problem = format!("{name:?}: expected one of {}", class_lists::names());
                    return Ok(Err(("class_lists", problem)));
                }
            }
        }
        self.classes.0.splice(0..0, rules);
        Ok(Ok(()))
    }

    fn check(&self) -> Result<(), Problem> {
        check_name(&self.name)?;
        check_packages(&self.distribution, &self.kernel, &self.packages)?;
        let units = [&self.units.enable, &self.units.disable, &self.units.mask];
        for unit in units.into_iter().flatten() {
            let known = ["service", "socket", "timer", "target", "mount", "path", "slice"];
            let suffix = unit.rsplit_once('.').map_or("", |(_, suffix)| suffix);
            if unit.starts_with('-') || unit.contains('/') || !known.contains(&suffix) {
                return Err(("units", format!("{unit:?}: expected a unit name with its suffix")));
            }
        }
        for (key, value) in &self.sysctls {
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-/*".contains(c);
            if key.is_empty() || !key.chars().all(plain) || value.is_empty() || value.contains(['\n', '\r', '#', ';']) {
                return Err((
                    "sysctls",
                    format!("{key:?}: {value:?}: expected a dotted key and a plain value"),
                ));
            }
        }
        for module in self.modules_required.iter().chain(&self.modules_forbidden) {
            check_word("modules_required", module)?;
        }
        match self.roots.first() {
            Some(first) if first.mount.is_root() => Ok(()),
            _ => Err(("roots", "expected / first".to_owned())),
        }
    }
}

impl DeployerRecipe {
    fn check(&self) -> Result<(), Problem> {
        check_name(&self.name)?;
        check_packages(&self.distribution, &self.kernel, &self.packages)?;
        for module in self.modules.values().flatten() {
            check_word("modules", module)?;
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), Problem> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    if starts && name.len() <= 64 && name.chars().all(plain) {
        return Ok(());
    }
    let problem = format!("{name:?}: expected at most 64 of a-z, 0-9, '.' and '-', starting with a letter or digit");
    Err(("name", problem))
}

/// Names that end up as arguments of package tools hold nothing that such a tool could read as an option or a list.
fn check_word(field: &'static str, word: &str) -> Result<(), Problem> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "+._-:".contains(c);
    if word.starts_with(|c: char| c.is_ascii_alphanumeric()) && word.len() <= 128 && word.chars().all(plain) {
        return Ok(());
    }
    Err((
        field,
        format!("{word:?}: expected letters, digits and '+', '.', '_', '-', ':'"),
    ))
}

fn check_packages(distribution: &Distribution, kernel: &KernelRecipe, packages: &[String]) -> Result<(), Problem> {
    check_word("distribution.suite", &distribution.suite)?;
    if distribution.components.is_empty() {
        return Err(("distribution.components", "expected at least one, as main".to_owned()));
    }
    for component in &distribution.components {
        check_word("distribution.components", component)?;
    }
    if let Some(variant) = &distribution.variant {
        check_word("distribution.variant", variant)?;
    }
    check_word("kernel.package", &kernel.package)?;
    if kernel.command_line.contains(['\n', '\r', '\0']) {
        return Err(("kernel.command_line", "expected one line".to_owned()));
    }
    packages.iter().try_for_each(|package| check_word("packages", package))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = "kind: os\nname: x\ndistribution: {suite: bookworm, components: [main]}\n\
        kernel: {package: linux-image-amd64}\npackages: [systemd]\nclasses: []\n";

    fn error_of(text: &str) -> String {
        Recipe::parse(Path::new("image.yaml"), text).unwrap_err().to_string()
    }

    #[test]
    fn every_recipe_in_the_repository_loads() {
        let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../images");
        let mut names = Vec::new();
        for folder in std::fs::read_dir(images).unwrap() {
            let folder = folder.unwrap();
            if folder.path().join(RECIPE_FILE).exists() {
                let recipe = Recipe::load(&folder.path()).unwrap();
                assert_eq!(
                    folder.file_name().to_str().unwrap(),
                    recipe.name(),
                    "the folder is named as the image"
                );
                names.push(recipe.name().to_owned());
            }
        }
        names.sort();
        assert_eq!(names, ["debian-12-lab", "deployer"]);
    }

    #[test]
    fn a_recipe_without_roots_has_the_usual_two() {
        let Recipe::Os(recipe) = Recipe::parse(Path::new("image.yaml"), MINIMAL).unwrap() else {
            panic!("expected an os recipe");
        };
        let mounts: Vec<_> = recipe.roots.iter().map(|root| root.mount.to_string()).collect();
        assert_eq!(mounts, ["/", "/boot/efi"]);
    }

    #[test]
    fn rules_of_a_recipe_win_over_those_of_a_list() {
        let text = MINIMAL.replace(
            "classes: []",
            "class_lists: [systemd]\nclasses: [{path: /etc/resolv.conf, class: rendered}]",
        );
        let Recipe::Os(recipe) = Recipe::parse(Path::new("image.yaml"), &text).unwrap() else {
            panic!("expected an os recipe");
        };
        let rule = |path: &str| recipe.classes.rule_of(&path.parse().unwrap()).unwrap().clone();
        let resolv_conf = rule("/etc/resolv.conf");
        assert_eq!(
            (resolv_conf.class, resolv_conf.or_file),
            (manifest::PathClass::Rendered, false)
        );
        assert_eq!(rule("/var/log/wtmp").class, manifest::PathClass::Volatile);
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for (change, expected) in [
            (MINIMAL.replace("packages:", "package:"), "image.yaml:5:1: "),
            (format!("{MINIMAL}modes: [{{path: /etc/x, mode: 600}}]\n"), "octal"),
            (format!("{MINIMAL}remove: [var/log]\n"), "absolute"),
            (MINIMAL.replace("name: x", "name: X"), "name: \"X\": expected"),
            (MINIMAL.replace("[systemd]", "['--hook=x']"), "packages: \"--hook=x\""),
            (MINIMAL.replace("kind: os", "kind: overlay"), "expected os or deployer"),
            (MINIMAL.replace("kind: os", "kind: image"), "image.yaml:1:7: "),
            (format!("{MINIMAL}units: {{mask: [apt-daily]}}\n"), "suffix"),
            (
                format!("{MINIMAL}class_lists: [sysv]\n"),
                "class_lists: \"sysv\": expected one of systemd",
            ),
            (format!("{MINIMAL}sysctls: {{kernel.x: \"1\\n2\"}}\n"), "sysctls"),
        ] {
            let error = error_of(&change);
            assert!(error.contains(expected), "{error} should say {expected}");
        }
    }
}
