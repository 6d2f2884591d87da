//! `plumbline image check|update|schema`: work on recipes, on this machine, without a server.

use std::path::Path;

use serde_json::json;

use super::build::{Lines, folders};
use crate::cli::arguments::PlaceArguments;
use crate::cli::output::Output;
use crate::image::lock::Lock;
use crate::image::recipe::recipe_schema;
use crate::image::{self, BuildRequest, Recipe};

/// Checks a recipe without building it.
///
/// # Errors
/// What is wrong with it, with its place.
pub fn image_check(output: Output, dir: &Path) -> anyhow::Result<()> {
    let recipe = Recipe::load(dir)?;
    let lock = Lock::load(dir)?;
    let (kind, layers, packages) = match &recipe {
        Recipe::Os(recipe) => ("os", recipe.folders.len(), recipe.base.packages().len()),
        Recipe::Deployer(_, base) => ("deployer", 1, base.packages.len()),
    };
    if output.json {
        return output.json(&json!({
            "ok": true,
            "name": recipe.name(),
            "kind": kind,
            "recipes": layers,
            "packages": packages,
            "is_locked": lock.is_some(),
        }));
    }
    let on_top = match layers {
        1 => String::new(),
        2 => " with one recipe under it".to_owned(),
        layers => format!(" with {} recipes under it", layers - 1),
    };
    let locked = if lock.is_some() { "locked" } else { "no lock" };
    output.say(&format!(
        "{}: a good recipe of kind {kind}{on_top}, {packages} packages named, {locked}",
        recipe.name()
    ))
}

/// Writes the lock of a recipe.
///
/// # Errors
/// What went wrong, and what to do.
pub async fn image_update(output: Output, dir: &Path, place: &PlaceArguments) -> anyhow::Result<()> {
    let (data_dir, loaders_dir) = folders(place)?;
    let request = BuildRequest {
        recipe_dir: dir.to_owned(),
        data_dir,
        loaders_dir,
        agent_binary: None,
    };
    let progress = Lines::new();
    let update = image::lock_update(request, &progress).await;
    progress.end();
    let update = update?;
    if output.json {
        let changes = update
            .changes
            .iter()
            .map(|change| json!({ "package": change.package, "before": change.before, "now": change.now }));
        return output.json(&json!({
            "path": update.path,
            "is_new": update.is_new,
            "packages": update.packages,
            "changes": changes.collect::<Vec<_>>(),
        }));
    }
    let path = update.path.display();
    if update.is_new {
        return output.say(&format!("{path}: written, {} packages", update.packages));
    }
    if update.changes.is_empty() {
        return output.say(&format!("{path}: nothing changed, {} packages", update.packages));
    }
    for change in &update.changes {
        let version = |version: &Option<String>| version.clone().unwrap_or_else(|| "–".to_owned());
        output.say(&format!(
            "{}  {} → {}",
            change.package,
            version(&change.before),
            version(&change.now)
        ))?;
    }
    output.say(&format!(
        "{path}: {} of {} packages changed",
        update.changes.len(),
        update.packages
    ))
}

/// Prints the JSON Schema of recipes.
///
/// # Errors
/// When it cannot be written.
pub fn image_schema(output: Output) -> anyhow::Result<()> {
    output.json(&serde_json::to_value(recipe_schema())?)
}
