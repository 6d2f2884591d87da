//! `plumbline build …`: builds by the server.

use std::time::Duration;

use anyhow::{Context as _, bail};
use reqwest::Method;
use serde::Deserialize as _;
use serde_json::json;

use crate::cli::arguments::BuildCommand;
use crate::cli::client::{Client, is_refusal};
use crate::cli::output::{self, Output};
use crate::cli::views::{Build, BuildLogPiece};
use crate::cli::{render, text};

/// Seconds that the server waits for a line.
const WAIT_SECS: u64 = 20;
/// Pause after a failure to ask, and how many in a row end the following.
const PAUSE: Duration = Duration::from_secs(2);
const FAILURES_MAX: u32 = 60;

/// Runs the command. Exit code 1, with the reason, for a followed build that came to no image.
///
/// # Errors
/// One line.
pub async fn builds(client: &Client, output: Output, command: &BuildCommand) -> anyhow::Result<()> {
    match command {
        BuildCommand::Recipes => output.list(&client.get(&["recipes"]).await?, render::recipes),
        BuildCommand::List => output.list(&client.get(&["builds"]).await?, render::builds),
        BuildCommand::Start { recipe, follow: wait } => {
            let body = json!({ "recipe": recipe });
            let begun = client.send(Method::POST, &["builds"], Some(&body)).await?;
            if !wait {
                return output.show(&begun, render::build);
            }
            let build = Build::deserialize(&begun).context("the server's answer is not understood")?;
            if !output.json {
                eprintln!("build {} of {}", text::cell(&build.id), text::cell(&build.recipe));
            }
            follow(client, output, &build.id).await
        }
        BuildCommand::Log { build, follow: wait } => {
            let id = find(client, build.as_deref(), |_| true).await?.id;
            match wait {
                true => follow(client, output, &id).await,
                false => show_log(client, output, &id).await,
            }
        }
        BuildCommand::Cancel { build } => {
            let build = find(client, build.as_deref(), |build| build.state == "running").await?;
            let answer = client
                .send(Method::POST, &["builds", &build.id, "cancel"], None)
                .await?;
            output.show(&answer, render::build)
        }
    }
}

/// The build that somebody means: by its id or the beginning of it, or the newest that fits.
async fn find(client: &Client, start: Option<&str>, fits: impl Fn(&Build) -> bool) -> anyhow::Result<Build> {
    let builds =
        Vec::<Build>::deserialize(&client.get(&["builds"]).await?).context("the server's answer is not understood")?;
    let Some(start) = start else {
        return builds.into_iter().find(fits).context("there is no such build");
    };
    let mut found = builds.into_iter().filter(|build| build.id.starts_with(start));
    let first = found
        .next()
        .with_context(|| format!("no build begins with {start:?}"))?;
    if found.next().is_some() {
        bail!("several builds begin with {start:?}: give more of the id");
    }
    Ok(first)
}

async fn piece(client: &Client, id: &str, after: u64, wait_secs: u64) -> anyhow::Result<BuildLogPiece> {
    let query = [("after", after.to_string()), ("wait_secs", wait_secs.to_string())];
    let answer = client.get_with(&["builds", id, "log"], &query).await?;
    BuildLogPiece::deserialize(&answer).context("the server's answer is not understood")
}

/// Prints a piece; as JSON, an object with its text.
fn print(output: Output, piece: &BuildLogPiece) -> anyhow::Result<()> {
    match (piece.text.is_empty(), output.json) {
        (true, _) => Ok(()),
        (false, true) => output.json(&json!({ "log": piece.text })),
        (false, false) => output::print(&text::lines(&piece.text)),
    }
}

async fn show_log(client: &Client, output: Output, id: &str) -> anyhow::Result<()> {
    let mut after = 0;
    loop {
        let piece = piece(client, id, after, 0).await?;
        if piece.text.is_empty() {
            return Ok(());
        }
        print(output, &piece)?;
        after = piece.next;
    }
}

/// Prints what a build says until it is over; fails when it came to no image.
async fn follow(client: &Client, output: Output, id: &str) -> anyhow::Result<()> {
    let (mut after, mut failures) = (0, 0);
    loop {
        match piece(client, id, after, WAIT_SECS).await {
            Ok(piece) => {
                failures = 0;
                print(output, &piece)?;
                after = piece.next;
                if piece.is_complete {
                    break;
                }
            }
            // A server that is restarted knows what became of the build.
            Err(error) if is_refusal(&error) || failures >= FAILURES_MAX => return Err(error),
            Err(_) => {
                failures += 1;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    let answer = client.get(&["builds", id]).await?;
    let build = Build::deserialize(&answer).context("the server's answer is not understood")?;
    output.show(&answer, render::build)?;
    match build.state.as_str() {
        "done" => Ok(()),
        "cancelled" => bail!("the build was cancelled by {}", build.cancelled_by.unwrap_or_default()),
        _ => {
            let error = build.error.unwrap_or_default();
            bail!("the build failed: {}", error.lines().next().unwrap_or_default())
        }
    }
}
