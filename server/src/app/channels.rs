//! Channels as people handle them: moved forward and back, shown with the nodes that are behind.
//!
//! A channel belongs to an image name and is written `NAME/CHANNEL`. Whatever takes an image takes a channel, and it means
//! the version that the channel names at that moment: a deployment keeps the digest. Moving a channel therefore changes
//! no node; it makes nodes that follow it count as behind.

use manifest::ManifestKind;
use serde::Serialize;
use store::{ChannelMove, ChannelNode, ChannelRecord, ImageRecord};

use super::{App, AppError, nodes, reviews};

/// Most bytes of a channel's own name.
const NAME_BYTES_MAX: usize = 64;

/// A channel with the nodes that follow it.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ChannelView {
    /// The channel.
    #[serde(flatten)]
    pub record: ChannelRecord,
    /// Whether this request moved it, which may have stood there already; none when it was only shown.
    pub moved: Option<bool>,
    /// The nodes that follow it, those that are behind first.
    pub followers: Vec<ChannelNode>,
}

/// A channel's name, from its two parts.
///
/// # Errors
/// [`AppError::Invalid`] when one of them cannot be one.
pub fn name_of(image: &str, channel: &str) -> Result<String, AppError> {
    part_check("image name", image)?;
    part_check("channel", channel)?;
    Ok(format!("{image}/{channel}"))
}

fn part_check(what: &str, part: &str) -> Result<(), AppError> {
    let is_alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let fits = |b: u8| is_alphanumeric(b) || matches!(b, b'.' | b'-');
    let begins = part.bytes().next().is_some_and(is_alphanumeric);
    if begins && part.len() <= NAME_BYTES_MAX && part.bytes().all(fits) {
        return Ok(());
    }
    let shown: String = part.chars().take(80).collect();
    Err(AppError::Invalid(format!(
        "{what} {shown:?}: expected 1 to {NAME_BYTES_MAX} of a-z, 0-9, '.' and '-', the first a letter or digit"
    )))
}

/// One channel.
///
/// # Errors
/// [`AppError::NotFound`].
pub async fn get(app: &App, name: &str) -> Result<ChannelView, AppError> {
    view(app, name, None).await
}

async fn view(app: &App, name: &str, moved: Option<bool>) -> Result<ChannelView, AppError> {
    Ok(ChannelView {
        record: app.store.channel_get(name).await?,
        moved,
        followers: app.store.channel_nodes(name).await?,
    })
}

/// Has a channel name an image version; the channel is made when there is none.
///
/// # Errors
/// [`AppError::NotFound`] for the image; [`AppError::Invalid`] when it is of another name or no operating system, or
/// the reason is none.
pub async fn set(app: &App, name: &str, image: &str, reason: &str, by: &str) -> Result<ChannelView, AppError> {
    reviews::reason_check(reason)?;
    let image = app.store.image_find(image).await?;
    image_check(name, &image)?;
    let moved = app.store.channel_set(name, image.digest, reason.trim(), by).await?;
    if moved {
        tracing::info!(channel.name = name, image.digest = %image.digest, image.version, user.name = by, "a channel was moved");
    }
    view(app, name, Some(moved)).await
}

/// Refuses what no channel of this name may name.
fn image_check(name: &str, image: &ImageRecord) -> Result<(), AppError> {
    let expected = name.split_once('/').map_or(name, |(image, _)| image);
    if image.kind != ManifestKind::Os.as_str() {
        return Err(AppError::Invalid(format!(
            "image {}@{} is of kind {}, expected os: the newest deployer and agent layer are always taken",
            image.name, image.version, image.kind
        )));
    }
    if image.name != expected {
        return Err(AppError::Invalid(format!(
            "image {}@{}: channel {name} names versions of {expected} only",
            image.name, image.version
        )));
    }
    Ok(())
}

/// Has a channel name again what it named before.
///
/// # Errors
/// [`AppError::NotFound`]; [`AppError::Conflict`] when there is nothing before.
pub async fn back(app: &App, name: &str, reason: &str, by: &str) -> Result<ChannelView, AppError> {
    reviews::reason_check(reason)?;
    app.store.channel_back(name, reason.trim(), by).await?;
    tracing::info!(channel.name = name, user.name = by, "a channel was moved back");
    view(app, name, Some(true)).await
}

/// Forgets a channel.
///
/// # Errors
/// [`AppError::NotFound`].
pub async fn remove(app: &App, name: &str, reason: &str, by: &str) -> Result<(), AppError> {
    reviews::reason_check(reason)?;
    app.store.channel_remove(name, reason.trim(), by).await?;
    tracing::info!(channel.name = name, user.name = by, "a channel was removed");
    Ok(())
}

/// The moves of a channel, newest first.
///
/// # Errors
/// [`AppError::NotFound`].
pub async fn history(app: &App, name: &str) -> Result<Vec<ChannelMove>, AppError> {
    Ok(app.store.channel_history(name).await?)
}

/// Says what nodes of a group are to have, or (`None`) that nothing is said. No node is changed by it.
///
/// # Errors
/// [`AppError::NotFound`] when there is no such image or channel; [`AppError::Invalid`].
pub async fn group_image_set(app: &App, group: &str, image: Option<&str>, by: &str) -> Result<(), AppError> {
    nodes::label_check("group", group)?;
    if let Some(reference) = image {
        let image = app.store.image_find(reference).await?;
        if image.kind != ManifestKind::Os.as_str() {
            return Err(AppError::Invalid(format!(
                "image {}@{} is of kind {}, expected os",
                image.name, image.version, image.kind
            )));
        }
    }
    Ok(app.store.group_image_set(group, image, by).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_two_plain_names() {
        assert_eq!(name_of("debian-12-gpu", "stable").unwrap(), "debian-12-gpu/stable");
        for (image, channel) in [
            ("", "stable"),
            ("debian", ""),
            ("debian", "Stable"),
            ("debian", ".."),
            ("a/b", "stable"),
            ("debian", "a b"),
            ("debian@1", "stable"),
        ] {
            assert!(name_of(image, channel).is_err(), "{image:?} {channel:?}");
        }
    }
}
