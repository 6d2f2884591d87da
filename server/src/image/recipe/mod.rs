//! Recipes: what an image is made of, as people write it in `images/<name>/image.yaml`.
//!
//! A recipe names everything by hand that could differ between two builds or two nodes: packages, units, classes,
//! sysctls, modules. Unknown keys are refused, so that a misspelt one is an error and not a default. What a recipe
//! extends is laid under it when it is read; nothing after that knows of it.

mod base;
mod deployer;
mod hardening;
mod os;
mod parts;
mod schema;
mod words;

use std::path::{Path, PathBuf};

use manifest::ManifestKind;
use serde::Deserialize;

use super::class_lists;
use ::hardening::ProfileError;
use yaml::YamlError;

pub use base::{Base, ImportedBase, PackagesBase};
pub use deployer::DeployerRecipe;
pub use hardening::Hardening;
pub use os::{Beside, FileRecipe, GroupRecipe, OsRecipe, UnitsRecipe, UserRecipe};
pub use parts::{AptSource, Components, Distribution, KernelRecipe, ModeRule};
pub use schema::recipe_schema;
pub use words::{
    AccountName, BesideName, HookSecs, ImageName, Line, MirrorUrl, OctalMode, SuiteName, SysctlKey, SysctlValue,
    UnitName, Word,
};

use os::OsFile;

/// The recipe's file name in its folder.
pub const RECIPE_FILE: &str = "image.yaml";
/// The folder beside it whose content is copied into the image.
pub const FILES_FOLDER: &str = "files";
/// Recipes on top of each other.
const LAYERS_MAX: usize = 8;

/// A recipe that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecipeError {
    /// The YAML cannot be read.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// The hardening profile cannot be used.
    #[error(transparent)]
    Profile(#[from] ProfileError),
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
    Os(Box<OsRecipe>),
    /// The ramdisk that commissions and installs, and what its programs are drawn from.
    Deployer(Box<DeployerRecipe>, Box<PackagesBase>),
}

/// Only the field that says which kind of recipe follows.
#[derive(Deserialize)]
struct KindOnly {
    kind: ManifestKind,
}

/// A field and what is wrong with it.
type Problem = (&'static str, String);

impl Recipe {
    /// Reads the recipe in this folder, with those it extends, and checks that every file they name is there.
    ///
    /// # Errors
    /// [`RecipeError`], with the file and the line or field.
    pub fn load(folder: &Path) -> Result<Self, RecipeError> {
        let path = folder.join(RECIPE_FILE);
        let wrong = |(field, problem)| RecipeError::Value {
            path: path.clone(),
            field,
            problem,
        };
        let text = yaml::read_text(&path)?;
        match yaml::parse::<KindOnly>(&path, &text)?.kind {
            ManifestKind::Os => {
                let (mut recipe, hardening) = OsRecipe::stack(layers(folder)?).map_err(wrong)?;
                recipe.hardening = hardening.load()?.map_err(wrong)?;
                take_class_lists(&mut recipe)?.map_err(wrong)?;
                check_besides(recipe.besides()).map_err(wrong)?;
                Ok(Self::Os(Box::new(recipe)))
            }
            ManifestKind::Deployer => {
                let recipe: DeployerRecipe = yaml::parse(&path, &text)?;
                let base = recipe.base(folder).map_err(wrong)?;
                check_besides(base.besides()).map_err(wrong)?;
                Ok(Self::Deployer(Box::new(recipe), Box::new(base)))
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
            Self::Os(recipe) => recipe.name.as_str(),
            Self::Deployer(recipe, _) => recipe.name.as_str(),
        }
    }
}

/// The recipe in this folder and those it extends, the lowest first.
fn layers(folder: &Path) -> Result<Vec<(PathBuf, OsFile)>, RecipeError> {
    let mut layers: Vec<(PathBuf, OsFile)> = Vec::new();
    let mut next = Some(folder.to_owned());
    while let Some(folder) = next {
        let path = folder.join(RECIPE_FILE);
        let file: OsFile = yaml::read(&path)?;
        let wrong = |problem| RecipeError::Value {
            path: path.clone(),
            field: "extends",
            problem,
        };
        if layers.iter().any(|(known, _)| *known == folder) {
            return Err(wrong("a recipe cannot be under itself".to_owned()));
        }
        if layers.len() >= LAYERS_MAX {
            return Err(wrong(format!("more than {LAYERS_MAX} recipes on top of each other")));
        }
        next = match &file.extends {
            None => None,
            Some(name) => {
                let under = folder.parent().unwrap_or(Path::new(".")).join(name.as_str());
                if !under.join(RECIPE_FILE).is_file() {
                    let expected = under.join(RECIPE_FILE);
                    return Err(wrong(format!("\"{name}\": expected {}", expected.display())));
                }
                Some(under)
            }
        };
        layers.push((folder, file));
    }
    layers.reverse();
    Ok(layers)
}

fn take_class_lists(recipe: &mut OsRecipe) -> Result<Result<(), Problem>, YamlError> {
    let mut rules = Vec::new();
    for name in &recipe.class_lists {
        match class_lists::named(name.as_str())? {
            Some(list) => rules.extend(list.0),
            None => {
                let problem = format!("\"{name}\": expected one of {}", class_lists::names());
                return Ok(Err(("class_lists", problem)));
            }
        }
    }
    recipe.classes.0.splice(0..0, rules);
    Ok(Ok(()))
}

fn check_besides<'a>(besides: impl IntoIterator<Item = (&'static str, &'a Beside)>) -> Result<(), Problem> {
    for (field, beside) in besides {
        let path = beside.path();
        if !path.is_file() {
            return Err((field, format!("expected a file at {}", path.display())));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "recipe_tests.rs"]
mod tests;
