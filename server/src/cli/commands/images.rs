//! `plumbline image …`, as far as the server does it

use anyhow::bail;
use reqwest::Method;
use serde_json::json;

use super::{build, recipe, sign, upkeep};
use crate::cli::arguments::ImageCommand;
use crate::cli::client::Client;
use crate::cli::output::Output;
use crate::cli::{login, render};

/// Runs the command.
///
/// # Errors
/// One line.
pub async fn image(server: Option<&str>, output: Output, command: &ImageCommand) -> anyhow::Result<()> {
    let client = || -> anyhow::Result<Client> { login::client(server) };
    match command {
        ImageCommand::List => output.list(&client()?.get(&["images"]).await?, render::images),
        ImageCommand::Show { image } => output.show(&client()?.get(&["images", image]).await?, render::image),
        ImageCommand::Verify { image } => {
            let answer = client()?.post_long(&["images", image, "verify"]).await?;
            output.show(&answer, render::image_check)?;
            if answer["revoked"].is_string() && answer["signed_by"].is_string() {
                bail!("the image was revoked: nodes refuse it");
            }
            if answer["ok"] != true {
                bail!("the image is damaged: build or copy it again, nodes refuse it");
            }
            Ok(())
        }
        ImageCommand::Diff {
            before,
            now,
            text: Some(path),
            ..
        } => {
            let asked = [("path", path.clone())];
            let answer = client()?
                .get_with(&["images", before, "diff", now, "text"], &asked)
                .await?;
            output.show(&answer, render::diff)
        }
        ImageCommand::Diff { before, now, all, .. } => {
            let answer = client()?.get(&["images", before, "diff", now]).await?;
            let paths = if *all { usize::MAX } else { render::DIFF_PATHS };
            output.show(&answer, |diff, context| render::image_diff(diff, context, paths))
        }
        ImageCommand::Remove { image } => {
            client()?.send(Method::DELETE, &["images", image], None).await?;
            output.say(&format!("{image} is removed"))
        }
        ImageCommand::Revoke { image, reason } => {
            let body = json!({ "reason": reason });
            let path = ["images", image.as_str(), "revoke"];
            let answer = client()?.send(Method::POST, &path, Some(&body)).await?;
            output.show(&answer, render::image_revoked)
        }
        ImageCommand::Sign {
            digest,
            signature,
            place,
        } => sign::image_sign(output, digest, signature, place).await,
        ImageCommand::Build {
            dir,
            place,
            loaders,
            agent,
            json_progress,
        } => {
            let files = build::BuildFiles {
                dir,
                loaders: loaders.as_deref(),
                agent: agent.as_deref(),
            };
            match json_progress {
                true => build::image_build_for_program(&files, place).await,
                false => build::image_build(output, &files, place).await,
            }
        }
        ImageCommand::Check { dir } => recipe::image_check(output, dir),
        ImageCommand::Update { dir, place } => recipe::image_update(output, dir, place).await,
        ImageCommand::Upkeep(command) => upkeep::upkeep(server, output, command).await,
        ImageCommand::Schema => recipe::image_schema(output),
        ImageCommand::PublishAgent { binary, place } => build::agent_publish(output, binary, place).await,
    }
}
