//! Recipes and builds.

use crate::cli::sizes::size_text;
use crate::cli::table::{pairs, table};
use crate::cli::text::{Context, cell, count};
use crate::cli::views::{Build, BuildCount, Recipe};

/// The recipes that the server may build, a line each; what is wrong with one stands below it.
#[must_use]
pub fn recipes(recipes: &[Recipe], context: &Context) -> String {
    if recipes.is_empty() {
        return "no recipes: the server builds those in its images.recipes_dir\n".to_owned();
    }
    let rows = recipes.iter().map(|recipe| {
        [
            recipe.name.clone(),
            recipe.kind.clone().unwrap_or_else(|| "-".to_owned()),
            match recipe.error {
                None => recipe.packages.to_string(),
                Some(_) => "-".to_owned(),
            },
            if recipe.is_locked { "locked" } else { "-" }.to_owned(),
            if recipe.error.is_some() { "MISTAKE" } else { "good" }.to_owned(),
        ]
    });
    let mut text = table(context, ["RECIPE", "KIND", "PACKAGES", "LOCK", "CHECK"], rows);
    for recipe in recipes {
        if let Some(error) = &recipe.error {
            text.push('\n');
            for line in error.lines() {
                text.push_str(&format!("{}\n", cell(line)));
            }
        }
    }
    text
}

/// Builds, a line each.
#[must_use]
pub fn builds(builds: &[Build], context: &Context) -> String {
    if builds.is_empty() {
        return "no builds: `plumbline build start RECIPE` begins one\n".to_owned();
    }
    let rows = builds.iter().map(|build| {
        [
            build.id.clone(),
            build.recipe.clone(),
            build.state.clone(),
            build.requested_by.clone(),
            context.age(build.requested_at),
            standing(build),
        ]
    });
    table(
        context,
        ["BUILD", "RECIPE", "STATE", "BY", "ASKED FOR", "WHERE IT STANDS"],
        rows,
    )
}

/// Where a build stands, in a line.
fn standing(build: &Build) -> String {
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    match build.state.as_str() {
        "done" => build
            .image
            .as_deref()
            .map(|image| image.chars().take(12).collect())
            .unwrap_or_default(),
        "failed" => build.error.as_deref().map(first).unwrap_or_default(),
        "cancelled" => format!("by {}", build.cancelled_by.as_deref().unwrap_or("-")),
        "running" => {
            let ending = match &build.cancelled_by {
                Some(by) => format!("is being ended by {by}; "),
                None => String::new(),
            };
            let far = build
                .count
                .as_ref()
                .map(|count| format!(" ({})", far(count)))
                .unwrap_or_default();
            format!("{ending}{}{far}: {}", build.stage, build.detail)
        }
        _ if build.detail.is_empty() => "-".to_owned(),
        _ => build.detail.clone(),
    }
}

fn far(far: &BuildCount) -> String {
    let amount = |number: u64| match far.unit.as_str() {
        "bytes" => size_text(number),
        _ => number.to_string(),
    };
    let unit = if far.unit == "bytes" { "" } else { far.unit.as_str() };
    match far.total {
        Some(total) => format!("{} of {} {unit}", amount(far.done), amount(total))
            .trim_end()
            .to_owned(),
        None if unit.is_empty() => amount(far.done),
        None => count(far.done, unit.trim_end_matches('s')),
    }
}

/// One build, in full.
#[must_use]
pub fn build(build: &Build, context: &Context) -> String {
    let mut rows = vec![
        ("build", build.id.clone()),
        ("recipe", build.recipe.clone()),
        ("state", build.state.clone()),
        (
            "asked for",
            format!(
                "{} by {}",
                context.age_and_local(build.requested_at),
                build.requested_by
            ),
        ),
    ];
    match build.state.as_str() {
        "queued" | "running" | "cancelled" => rows.push(("stands", standing(build))),
        "done" => rows.push(("image", build.image.clone().unwrap_or_default())),
        _ => {}
    }
    let mut text = pairs(context, rows);
    if let Some(error) = &build.error {
        for line in error.lines() {
            text.push_str(&format!("  {}\n", cell(line)));
        }
    }
    text
}
