//! `plumbline channel …`

use anyhow::bail;
use reqwest::Method;
use serde_json::json;

use crate::cli::arguments::ChannelCommand;
use crate::cli::client::Client;
use crate::cli::output::Output;
use crate::cli::render;

/// Runs the command.
///
/// # Errors
/// One line.
pub async fn channel(client: &Client, output: Output, command: &ChannelCommand) -> anyhow::Result<()> {
    match command {
        ChannelCommand::List => output.list(&client.get(&["channels"]).await?, render::channels),
        ChannelCommand::Show { channel } => {
            let (image, name) = parts(channel)?;
            output.show(&client.get(&["channels", image, name]).await?, render::channel)
        }
        ChannelCommand::Set {
            channel,
            image: to,
            reason,
        } => {
            let (image, name) = parts(channel)?;
            let body = json!({ "image": to, "reason": reason });
            let answer = client
                .send(Method::PUT, &["channels", image, name], Some(&body))
                .await?;
            output.show(&answer, render::channel)
        }
        ChannelCommand::Back { channel, reason } => {
            let (image, name) = parts(channel)?;
            let body = json!({ "reason": reason });
            let answer = client
                .send(Method::POST, &["channels", image, name, "back"], Some(&body))
                .await?;
            output.show(&answer, render::channel)
        }
        ChannelCommand::History { channel } => {
            let (image, name) = parts(channel)?;
            let answer = client.get(&["channels", image, name, "history"]).await?;
            output.list(&answer, render::channel_moves)
        }
        ChannelCommand::Remove { channel, reason } => {
            let (image, name) = parts(channel)?;
            let why = [("reason", reason.clone())];
            client.delete_with(&["channels", image, name], &why).await?;
            output.say(&format!("{channel} is removed; its history stays"))
        }
        ChannelCommand::Group { group: None, .. } => {
            output.list(&client.get(&["group-images"]).await?, render::group_images)
        }
        ChannelCommand::Group {
            group: Some(group),
            target,
        } => {
            let body = json!({ "image": target.image });
            client.send(Method::PUT, &["group-images", group], Some(&body)).await?;
            output.say(&match &target.image {
                Some(image) => format!("nodes of group {group} are to have {image}; none was changed"),
                None => format!("nothing is said of what nodes of group {group} are to have"),
            })
        }
    }
}

/// The image's name and the channel's.
fn parts(channel: &str) -> anyhow::Result<(&str, &str)> {
    match channel.split_once('/') {
        Some((image, name)) if !image.is_empty() && !name.is_empty() && !name.contains('/') => Ok((image, name)),
        _ => bail!("channel {channel:?}: expected NAME/CHANNEL, such as debian-12-gpu/stable"),
    }
}
