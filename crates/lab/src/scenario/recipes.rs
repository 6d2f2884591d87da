//! Recipes that only a run needs, beside those of the workspace so that they can lie on top of them.

use crate::environment::LabEnvironment;
use anyhow::{Context as _, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// Writes a recipe with these files, each a name and its content; gives its folder. The workspace's recipes stand beside
/// it as links.
pub(super) fn write(environment: &LabEnvironment, name: &str, files: &[(&str, &str)]) -> Result<PathBuf> {
    let recipes = environment.work_folder().join("recipes");
    fs::create_dir_all(&recipes)?;
    for item in fs::read_dir(environment.root.join("images"))? {
        let item = item?;
        let link = recipes.join(item.file_name());
        if item.file_type()?.is_dir() && !link.exists() {
            symlink(item.path(), &link).with_context(|| format!("linking {}", link.display()))?;
        }
    }
    let folder = recipes.join(name);
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    for (file, content) in files {
        let path = folder.join(file);
        fs::create_dir_all(path.parent().context("a folder")?)?;
        fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(folder)
}
