//! Recipes that people may have built by the server: the folders below `images.recipes_dir`.
//!
//! People name a recipe and never a path, so what can be built is what somebody put into that folder.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{App, AppError};
use crate::http::error::chain;
use crate::image::Recipe;
use crate::image::lock::Lock;
use crate::image::recipe::{ImageName, RECIPE_FILE};

/// Recipes told; a folder with more is no folder of recipes.
const RECIPES_MAX: usize = 500;

/// A recipe, checked as it stands now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct RecipeView {
    /// Name of its folder.
    pub name: String,
    /// `os` or `deployer`; none when it cannot be used.
    pub kind: Option<String>,
    /// What is wrong with it, with file, line and the line itself where these are known; none when it can be built.
    pub error: Option<String>,
    /// Recipes that it lies on.
    pub extends: usize,
    /// Packages that it and those name.
    pub packages: usize,
    /// Its versions of packages are written down: it gives the same image each time.
    pub is_locked: bool,
}

/// All recipes, by name. None when no folder is configured.
///
/// # Errors
/// [`AppError::Conflict`] when the configured folder cannot be read.
pub async fn recipe_list(app: &App) -> Result<Vec<RecipeView>, AppError> {
    let Some(dir) = app.config.images.recipes_dir.clone() else {
        return Ok(Vec::new());
    };
    tokio::task::spawn_blocking(move || list(&dir))
        .await
        .map_err(AppError::internal)?
}

/// The folder of a recipe that can be built.
///
/// # Errors
/// [`AppError::Conflict`] when no folder is configured, [`AppError::Invalid`] for a name that is none and for a recipe
/// with a mistake, [`AppError::NotFound`].
pub async fn recipe_folder(app: &App, name: &str) -> Result<PathBuf, AppError> {
    let Some(dir) = app.config.images.recipes_dir.clone() else {
        return Err(AppError::Conflict(
            "this server builds no images: its configuration names no images.recipes_dir".to_owned(),
        ));
    };
    let name = ImageName::try_from(name.chars().take(200).collect::<String>())
        .map_err(|problem| AppError::Invalid(format!("recipe {problem}")))?;
    let check = move || {
        let folder = dir.join(name.as_str());
        if !folder.join(RECIPE_FILE).is_file() {
            return Err(AppError::NotFound {
                what: format!("recipe in {}:", dir.display()),
                key: name.to_string(),
            });
        }
        match view(name.as_str(), &folder).error {
            None => Ok(folder),
            Some(error) => Err(AppError::Invalid(error)),
        }
    };
    tokio::task::spawn_blocking(check).await.map_err(AppError::internal)?
}

fn list(dir: &Path) -> Result<Vec<RecipeView>, AppError> {
    let failed = |error: std::io::Error| AppError::Conflict(format!("images.recipes_dir {}: {error}", dir.display()));
    let mut names = Vec::new();
    for item in std::fs::read_dir(dir).map_err(failed)? {
        let name = item.map_err(failed)?.file_name();
        // Whatever has another name, or no recipe in it, is something else that lies there.
        let name = name.to_str().and_then(|name| ImageName::try_from(name.to_owned()).ok());
        names.extend(name.filter(|name| dir.join(name.as_str()).join(RECIPE_FILE).is_file()));
        if names.len() > RECIPES_MAX {
            return Err(AppError::Conflict(format!(
                "images.recipes_dir {}: more than {RECIPES_MAX} recipes",
                dir.display()
            )));
        }
    }
    names.sort();
    Ok(names
        .iter()
        .map(|name| view(name.as_str(), &dir.join(name.as_str())))
        .collect())
}

fn view(name: &str, folder: &Path) -> RecipeView {
    let mut view = RecipeView {
        name: name.to_owned(),
        kind: None,
        error: None,
        extends: 0,
        packages: 0,
        is_locked: false,
    };
    match Recipe::load(folder) {
        Ok(Recipe::Os(recipe)) => {
            view.kind = Some("os".to_owned());
            view.extends = recipe.folders.len().saturating_sub(1);
            view.packages = recipe.base.packages().len();
        }
        Ok(Recipe::Deployer(_, base)) => {
            view.kind = Some("deployer".to_owned());
            view.packages = base.packages.len();
        }
        Err(error) => view.error = Some(chain(&error)),
    }
    if view.error.is_none() {
        match Lock::load(folder) {
            Ok(lock) => view.is_locked = lock.is_some(),
            Err(error) => view.error = Some(chain(&error)),
        }
    }
    view
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = "kind: os\nname: lab\ndistribution: {suite: bookworm, components: [main]}\n\
        kernel: {package: linux-image-amd64}\npackages: [systemd, udev]\n";

    #[test]
    fn recipes_are_checked_one_by_one_and_other_things_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let add = |name: &str, text: &str| {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            std::fs::write(dir.path().join(name).join(RECIPE_FILE), text).unwrap();
        };
        add("lab", SOUND);
        add("broken", &SOUND.replace("packages:", "package:"));
        add("Not a name", SOUND);
        std::fs::create_dir(dir.path().join("profiles")).unwrap();
        std::fs::write(dir.path().join("README"), "").unwrap();
        let recipes = list(dir.path()).unwrap();
        let names: Vec<&str> = recipes.iter().map(|recipe| recipe.name.as_str()).collect();
        assert_eq!(names, ["broken", "lab"]);
        let error = recipes[0].error.as_deref().unwrap();
        assert!(
            error.contains("image.yaml:5:1: ") && error.contains("5 | package: [systemd"),
            "with its line: {error}"
        );
        assert_eq!(
            recipes[1],
            RecipeView {
                name: "lab".to_owned(),
                kind: Some("os".to_owned()),
                error: None,
                extends: 0,
                packages: 2,
                is_locked: false,
            }
        );
        std::fs::write(dir.path().join("lab/image.lock"), "as_of: yesterday\npackages: {}\n").unwrap();
        let error = list(dir.path()).unwrap().remove(1).error.unwrap();
        assert!(error.contains("as_of"), "a lock is part of it: {error}");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = list(Path::new("/nowhere/recipes")).unwrap_err().to_string();
        assert!(error.contains("images.recipes_dir /nowhere/recipes"), "{error}");
    }
}
