//! `plumbline image gc`, `export`, `import` and `sbom`.
//!
//! Bundles are work on this machine, in the server's data folder, as builds are: the server finds what was taken in by
//! itself.

use std::path::Path;

use anyhow::Context as _;
use serde_json::json;
use tokio::runtime::Handle;

use super::build::{Lines, folders};
use crate::cli::arguments::{PlaceArguments, UpkeepCommand};
use crate::cli::output::{self, Output};
use crate::cli::sizes::size_text;
use crate::cli::{login, render, text};
use crate::image::bundle;

/// Runs the command.
///
/// # Errors
/// One line.
pub async fn upkeep(server: Option<&str>, output: Output, command: &UpkeepCommand) -> anyhow::Result<()> {
    match command {
        UpkeepCommand::Gc {
            dry_run,
            keep,
            grace_hours,
        } => {
            let body = json!({ "dry_run": dry_run, "keep": keep, "grace_hours": grace_hours });
            let client = login::client(server)?;
            let answer = client.post_long_with(&["image-collections"], &body).await?;
            output.show(&answer, render::collection)
        }
        UpkeepCommand::Export { images, file, place } => export(output, images, file, place).await,
        UpkeepCommand::Import { file, place } => import(output, file, place).await,
        UpkeepCommand::Sbom { image, format } => {
            let asked = [("format", format.as_str().to_owned())];
            let path = ["images", image.as_str(), "sbom"];
            let bill = login::client(server)?.get_file_with(&path, &asked).await?;
            // As it lies in the store, so that its digest is the same wherever it is asked for.
            output::print(&text::json(&String::from_utf8_lossy(&bill)))
        }
    }
}

async fn export(output: Output, images: &[String], file: &Path, place: &PlaceArguments) -> anyhow::Result<()> {
    let (data_dir, _) = folders(place)?;
    let (images, file, runtime) = (images.to_vec(), file.to_owned(), Handle::current());
    let work = move || {
        let progress = Lines::new();
        let done = bundle::export(&data_dir, &images, &file, &runtime, &progress);
        progress.end();
        done
    };
    let done = tokio::task::spawn_blocking(work)
        .await
        .context("the export's thread ended")??;
    if output.json {
        return output.json(&json!({
            "file": done.file,
            "bytes": done.bytes,
            "bytes_kept": done.bytes_kept,
            "images": done.images,
        }));
    }
    let kept = match done.bytes_kept {
        0 => String::new(),
        bytes => format!(", {} of it from an earlier run", size_text(bytes)),
    };
    output.say(&format!(
        "{} in {}: {}{kept}",
        done.images.join(", "),
        done.file.display(),
        size_text(done.bytes)
    ))
}

async fn import(output: Output, file: &Path, place: &PlaceArguments) -> anyhow::Result<()> {
    let (data_dir, _) = folders(place)?;
    let (file, runtime) = (file.to_owned(), Handle::current());
    let work = move || {
        let progress = Lines::new();
        let done = bundle::import(&data_dir, &file, &runtime, &progress);
        progress.end();
        done
    };
    let done = tokio::task::spawn_blocking(work)
        .await
        .context("the import's thread ended")??;
    if output.json {
        let images = done.images.iter().map(|image| {
            json!({
                "digest": image.digest,
                "kind": image.kind.as_str(),
                "name": image.name,
                "version": image.version,
                "was_there": image.was_there,
            })
        });
        return output.json(&json!({
            "images": images.collect::<Vec<_>>(),
            "packs_new": done.packs_new,
            "packs_there": done.packs_there,
            "bytes": done.bytes,
        }));
    }
    let images = done.images.iter().map(|image| {
        let there = if image.was_there { ", which was there" } else { "" };
        format!("{}@{} ({}){there}", image.name, image.version, image.digest.short())
    });
    output.say(&format!(
        "{}: {} new, {} were there",
        images.collect::<Vec<_>>().join(", "),
        text::count(done.packs_new, "pack"),
        done.packs_there
    ))
}
