//! `plumbline image build`, `plumbline image publish-agent`: work on this machine, in the server's data folder.
//!
//! The server finds a new image in the folder by itself; nothing is told to it.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::sign;
use crate::cli::arguments::PlaceArguments;
use crate::cli::output::Output;
use crate::cli::sizes::size_text;
use crate::cli::text::cell;
use crate::config::Config;
use crate::image::{self, BuildRequest, BuiltImage, Progress};

/// Where packages put the boot loaders.
const LOADERS_DEFAULT: &str = "/usr/lib/plumbline/loaders";

/// Builds the image of a recipe.
///
/// # Errors
/// What went wrong, and what to do.
pub async fn image_build(
    output: Output,
    dir: &Path,
    place: &PlaceArguments,
    loaders: Option<&Path>,
    agent: Option<&Path>,
) -> anyhow::Result<()> {
    let (data_dir, loaders_dir) = folders(place)?;
    let request = BuildRequest {
        recipe_dir: dir.to_owned(),
        data_dir,
        loaders_dir: loaders.map_or(loaders_dir, Path::to_owned),
        agent_binary: agent.map(Path::to_owned),
    };
    let progress = Lines::new();
    let built = image::build(request, &progress).await;
    progress.end();
    show(output, &built?)
}

/// Publishes an agent binary.
///
/// # Errors
/// What went wrong.
pub async fn agent_publish(output: Output, binary: &Path, place: &PlaceArguments) -> anyhow::Result<()> {
    let (data_dir, _) = folders(place)?;
    let progress = Lines::new();
    let built = image::build_agent_layer(binary, &data_dir, &progress).await;
    progress.end();
    show(output, &built?)
}

/// The data folder, and the folder of the boot loaders. With `--data-dir` and no configuration named, none is read.
pub(super) fn folders(place: &PlaceArguments) -> anyhow::Result<(PathBuf, PathBuf)> {
    if let (Some(data_dir), None) = (&place.data_dir, &place.config.config) {
        return Ok((data_dir.clone(), LOADERS_DEFAULT.into()));
    }
    let config = Config::load(place.config.config.as_deref())?;
    let loaders = config
        .boot
        .map_or_else(|| LOADERS_DEFAULT.into(), |boot| boot.loaders_dir);
    Ok((place.data_dir.clone().unwrap_or(config.data_dir), loaders))
}

fn show(output: Output, built: &BuiltImage) -> anyhow::Result<()> {
    if output.json {
        return output.json(&json!({
            "digest": built.digest,
            "kind": built.kind.as_str(),
            "name": built.name,
            "version": built.version,
            "paths": built.paths,
            "files": built.files,
            "pinned_share": built.pinned_share,
            "content_bytes": built.content_bytes,
            "stored_bytes": built.stored_bytes,
            "to_sign": built.to_sign.as_ref().map(|to_sign| json!({
                "manifest": to_sign.manifest,
                "comment": to_sign.comment,
                "key": to_sign.key.map(|key| key.to_string()),
            })),
        }));
    }
    output.say(&format!(
        "{}@{}: {} files, {} in {}, digest {}",
        built.name,
        built.version,
        built.files,
        size_text(built.content_bytes),
        size_text(built.stored_bytes),
        built.digest
    ))?;
    match &built.to_sign {
        Some(to_sign) => sign::say_how(built.digest, to_sign),
        None => Ok(()),
    }
}

/// What a build says: on a terminal one line that moves, below the stages that are done; elsewhere a line each.
pub(super) struct Lines {
    bar: Option<ProgressBar>,
}

impl Lines {
    pub(super) fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>4}  {prefix:<10} {wide_msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Self { bar }
    }

    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Lines {
    fn report(&self, stage: &str, detail: &str) {
        let (stage, detail) = (cell(stage), cell(detail));
        let Some(bar) = &self.bar else {
            eprintln!("{stage:<10} {detail}");
            return;
        };
        if bar.prefix() != stage && !bar.prefix().is_empty() {
            bar.println(format!("         {:<10} {}", bar.prefix(), bar.message()));
        }
        bar.set_prefix(stage);
        bar.set_message(detail);
    }
}
