//! Channels.

use crate::cli::table::{pairs, table};
use crate::cli::text::{Context, cell};
use crate::cli::views::{Channel, ChannelMove, GroupImage};

fn short(digest: &str) -> String {
    digest.chars().take(12).collect()
}

/// All channels, a line each.
#[must_use]
pub fn channels(channels: &[Channel], context: &Context) -> String {
    if channels.is_empty() {
        return "no channels: `plumbline channel set NAME/CHANNEL IMAGE --reason TEXT` makes one\n".to_owned();
    }
    let heading = [
        "CHANNEL", "VERSION", "DIGEST", "BEFORE", "NODES", "BEHIND", "MOVED", "BY",
    ];
    let rows = channels.iter().map(|channel| {
        [
            channel.name.clone(),
            channel.version.clone(),
            short(&channel.image),
            channel.previous_version.clone().unwrap_or_else(|| "-".to_owned()),
            channel.nodes.to_string(),
            channel.behind.to_string(),
            context.age(channel.moved_at),
            channel.moved_by.clone(),
        ]
    });
    table(context, heading, rows)
}

/// One channel, and the nodes that follow it.
#[must_use]
pub fn channel(channel: &Channel, context: &Context) -> String {
    let named = |version: &str, digest: &str| format!("{version} ({})", short(digest));
    let before = channel.previous_version.as_ref().zip(channel.previous.as_ref());
    let rows = [
        ("channel", channel.name.clone()),
        ("names", named(&channel.version, &channel.image)),
        (
            "before",
            before.map_or_else(|| "-".to_owned(), |(version, digest)| named(version, digest)),
        ),
        (
            "moved",
            format!("{} by {}", context.age_and_local(channel.moved_at), channel.moved_by),
        ),
        ("reason", channel.reason.clone()),
        ("nodes", format!("{}, {} behind", channel.nodes, channel.behind)),
    ];
    let mut text = match channel.moved {
        Some(false) => format!("{} stood there already\n", cell(&channel.name)),
        _ => String::new(),
    };
    text.push_str(&pairs(context, rows));
    if channel.followers.is_empty() {
        return text;
    }
    let rows = channel.followers.iter().map(|node| {
        [
            node.name.clone(),
            node.group.clone(),
            node.version.clone(),
            if node.behind { "behind" } else { "" }.to_owned(),
        ]
    });
    text.push('\n');
    text + &table(context, ["NODE", "GROUP", "VERSION", ""], rows)
}

/// Who moved a channel, newest first.
#[must_use]
pub fn channel_moves(moves: &[ChannelMove], context: &Context) -> String {
    let dash = |version: &Option<String>| version.clone().unwrap_or_else(|| "-".to_owned());
    let rows = moves.iter().map(|one| {
        [
            context.age(one.moved_at),
            one.kind.clone(),
            dash(&one.from_version),
            dash(&one.to_version),
            one.moved_by.clone(),
            one.reason.clone(),
        ]
    });
    table(context, ["WHEN", "MOVE", "FROM", "TO", "BY", "WHY"], rows)
}

/// What groups of nodes are to have.
#[must_use]
pub fn group_images(groups: &[GroupImage], context: &Context) -> String {
    if groups.is_empty() {
        return "nothing is said: `plumbline channel group GROUP --image NAME/CHANNEL` says it\n".to_owned();
    }
    let rows = groups.iter().map(|group| {
        [
            group.group.clone(),
            group.image.clone(),
            context.age(group.set_at),
            group.set_by.clone(),
        ]
    });
    table(context, ["GROUP", "IMAGE", "SAID", "BY"], rows)
}
