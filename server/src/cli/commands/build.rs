//! `plumbline image build`, `plumbline image publish-agent`: work on this machine, in the server's data folder.
//!
//! The server finds a new image in the folder by itself; nothing is told to it.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::sign;
use crate::cli::arguments::PlaceArguments;
use crate::cli::output::Output;
use crate::cli::sizes::size_text;
use crate::cli::text::cell;
use crate::config::{Config, LOADERS_DEFAULT};
use crate::image::{self, BuildError, BuildEvent, BuildRequest, BuiltImage, Count, Progress};

/// What a build is made from.
pub(super) struct BuildFiles<'a> {
    /// Folder of the recipe.
    pub dir: &'a Path,
    /// Folder of the boot loaders, instead of the configuration's.
    pub loaders: Option<&'a Path>,
    /// The agent.
    pub agent: Option<&'a Path>,
}

impl BuildFiles<'_> {
    fn request(&self, place: &PlaceArguments) -> anyhow::Result<BuildRequest> {
        let (data_dir, loaders_dir) = folders(place)?;
        Ok(BuildRequest {
            recipe_dir: self.dir.to_owned(),
            data_dir,
            loaders_dir: self.loaders.map_or(loaders_dir, Path::to_owned),
            agent_binary: self.agent.map(Path::to_owned),
        })
    }
}

/// Builds the image of a recipe.
///
/// # Errors
/// What went wrong, and what to do.
pub(super) async fn image_build(output: Output, files: &BuildFiles<'_>, place: &PlaceArguments) -> anyhow::Result<()> {
    let request = files.request(place)?;
    let progress = Lines::new();
    let built = image::build(request, &progress).await;
    progress.end();
    show(output, &built?)
}

/// The same for a program, which takes [`BuildEvent`]s, and ends the build by closing standard input: so the build ends
/// with that program, however that ends.
///
/// # Errors
/// What went wrong, which was said as an event as well.
pub(super) async fn image_build_for_program(files: &BuildFiles<'_>, place: &PlaceArguments) -> anyhow::Result<()> {
    let build = async {
        // Dropping the build stops it at its next sign of life; the process ends when it has cleaned up.
        tokio::select! {
            built = image::build(files.request(place)?, &Events) => Ok(built?),
            () = input_closed() => Err(BuildError::Stopped.into()),
        }
    };
    let built: anyhow::Result<BuiltImage> = build.await;
    let event = match &built {
        Ok(built) => BuildEvent::built(built),
        Err(error) => BuildEvent::Failed {
            error: format!("{error:#}"),
        },
    };
    say(&event);
    built.map(|_| ())
}

async fn input_closed() {
    let (sender, closed) = tokio::sync::oneshot::channel();
    // A thread that nobody waits for: a read of standard input cannot be taken back.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = sender.send(());
    });
    if closed.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// What a build says, as events on standard output.
struct Events;

/// A line that nobody takes is lost; the closed standard input ends the build then.
fn say(event: &BuildEvent) {
    if let Ok(mut line) = serde_json::to_vec(event) {
        line.push(b'\n');
        let mut stdout = std::io::stdout().lock();
        let _ = stdout.write_all(&line).and_then(|()| stdout.flush());
    }
}

impl Progress for Events {
    fn report(&self, stage: &str, detail: &str) {
        say(&BuildEvent::Report {
            stage: stage.to_owned(),
            detail: detail.to_owned(),
        });
    }

    fn count(&self, stage: &str, count: Count) {
        say(&BuildEvent::count(stage, count));
    }

    fn output(&self, stage: &str, line: &str) {
        say(&BuildEvent::Output {
            stage: stage.to_owned(),
            line: line.to_owned(),
        });
    }
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
    let loaders = config.image_loaders_dir().to_owned();
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
