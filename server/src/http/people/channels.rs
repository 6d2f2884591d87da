//! Channels, and what groups of nodes are to have.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use store::{ChannelMove, ChannelRecord, GroupImage};

use super::extract::{Asked, Body, Named};
use super::identity::{Admin, Viewer};
use crate::app::channels::{self, ChannelView};
use crate::app::{App, AppError};
use crate::http::error::ErrorBody;

/// Where a channel is to lead.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChannelTarget {
    /// Image: `name` (its newest version), `name@version`, a digest's beginning, or another channel.
    image: String,
    /// Why.
    reason: String,
}

/// Why something is done to a channel.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChannelReason {
    /// Why.
    reason: String,
}

/// Why something is done to a channel, in the query.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ChannelWhy {
    /// Why.
    reason: String,
}

/// What a group is to have.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupTarget {
    /// Image: a channel (`name/stable`), `name`, `name@version`, or a digest's beginning; null: nothing is said.
    image: Option<String>,
}

/// Lists all channels, with how many nodes follow each and how many of them are behind.
#[utoipa::path(get, path = "/channels", tag = "channels",
    responses((status = 200, body = Vec<ChannelRecord>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn channel_list(
    _viewer: Viewer,
    State(app): State<App>,
) -> Result<Json<Vec<ChannelRecord>>, AppError> {
    Ok(Json(app.store.channel_list(None).await?))
}

/// Shows one channel with the nodes that follow it, at most 20,000, those that are behind first.
#[utoipa::path(get, path = "/channels/{image}/{channel}", tag = "channels",
    params(("image" = String, Path, description = "The image's name."),
        ("channel" = String, Path, description = "The channel's name.")),
    responses((status = 200, body = ChannelView), (status = "4XX", body = ErrorBody)))]
pub(super) async fn channel_get(
    _viewer: Viewer,
    State(app): State<App>,
    Named((image, channel)): Named<(String, String)>,
) -> Result<Json<ChannelView>, AppError> {
    let name = channels::name_of(&image, &channel)?;
    Ok(Json(channels::get(&app, &name).await?))
}

/// Moves a channel to an image version of its name, and makes it when there is none. No node is changed by it.
#[utoipa::path(put, path = "/channels/{image}/{channel}", tag = "channels", request_body = ChannelTarget,
    params(("image" = String, Path, description = "The image's name."),
        ("channel" = String, Path, description = "The channel's name.")),
    responses((status = 200, body = ChannelView), (status = "4XX", body = ErrorBody)))]
pub(super) async fn channel_set(
    Admin(user): Admin,
    State(app): State<App>,
    Named((image, channel)): Named<(String, String)>,
    Body(target): Body<ChannelTarget>,
) -> Result<Json<ChannelView>, AppError> {
    let name = channels::name_of(&image, &channel)?;
    let moved = channels::set(&app, &name, &target.image, &target.reason, &user.name).await?;
    Ok(Json(moved))
}

/// Forgets a channel; its history stays.
#[utoipa::path(delete, path = "/channels/{image}/{channel}", tag = "channels",
    params(("image" = String, Path, description = "The image's name."),
        ("channel" = String, Path, description = "The channel's name."), ChannelWhy),
    responses((status = 204), (status = "4XX", body = ErrorBody)))]
pub(super) async fn channel_remove(
    Admin(user): Admin,
    State(app): State<App>,
    Named((image, channel)): Named<(String, String)>,
    Asked(why): Asked<ChannelWhy>,
) -> Result<StatusCode, AppError> {
    let name = channels::name_of(&image, &channel)?;
    channels::remove(&app, &name, &why.reason, &user.name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Moves a channel back to what it named before. No node is changed by it.
#[utoipa::path(post, path = "/channels/{image}/{channel}/back", tag = "channels", request_body = ChannelReason,
    params(("image" = String, Path, description = "The image's name."),
        ("channel" = String, Path, description = "The channel's name.")),
    responses((status = 200, body = ChannelView), (status = "4XX", body = ErrorBody)))]
pub(super) async fn channel_back(
    Admin(user): Admin,
    State(app): State<App>,
    Named((image, channel)): Named<(String, String)>,
    Body(why): Body<ChannelReason>,
) -> Result<Json<ChannelView>, AppError> {
    let name = channels::name_of(&image, &channel)?;
    Ok(Json(channels::back(&app, &name, &why.reason, &user.name).await?))
}

/// Shows the moves of a channel, newest first, at most 1,000; also of one that is removed.
#[utoipa::path(get, path = "/channels/{image}/{channel}/history", tag = "channels",
    params(("image" = String, Path, description = "The image's name."),
        ("channel" = String, Path, description = "The channel's name.")),
    responses((status = 200, body = Vec<ChannelMove>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn channel_history(
    _viewer: Viewer,
    State(app): State<App>,
    Named((image, channel)): Named<(String, String)>,
) -> Result<Json<Vec<ChannelMove>>, AppError> {
    let name = channels::name_of(&image, &channel)?;
    Ok(Json(channels::history(&app, &name).await?))
}

/// Lists what groups of nodes are to have.
#[utoipa::path(get, path = "/group-images", tag = "channels",
    responses((status = 200, body = Vec<GroupImage>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn group_image_list(
    _viewer: Viewer,
    State(app): State<App>,
) -> Result<Json<Vec<GroupImage>>, AppError> {
    Ok(Json(app.store.group_image_list().await?))
}

/// Says what nodes of a group are to have: what an approval or deployment without an image takes. No node is changed by it.
#[utoipa::path(put, path = "/group-images/{group}", tag = "channels", request_body = GroupTarget,
    params(("group" = String, Path, description = "The group's name.")),
    responses((status = 204), (status = "4XX", body = ErrorBody)))]
pub(super) async fn group_image_set(
    Admin(user): Admin,
    State(app): State<App>,
    Named(group): Named<String>,
    Body(target): Body<GroupTarget>,
) -> Result<StatusCode, AppError> {
    channels::group_image_set(&app, &group, target.image.as_deref(), &user.name).await?;
    Ok(StatusCode::NO_CONTENT)
}
