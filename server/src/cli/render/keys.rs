//! Keys that sign images, and what was revoked.

use crate::cli::table::{pairs, table};
use crate::cli::text::{Context, cell};
use crate::cli::views::{ImageRevoked, ImageUser, Key, KeyRevoked, KeyRotated};

/// Names that are written out in a sentence.
const NAMED_MAX: usize = 20;

/// All keys, a line each.
#[must_use]
pub fn keys(keys: &[Key], context: &Context) -> String {
    let heading = ["KEY", "STATE", "SECRET", "IMAGES", "MADE", "SINCE", "REASON"];
    let rows = keys.iter().map(|key| {
        [
            key.id.clone(),
            key.state.clone(),
            if key.signs_here { "here" } else { "-" }.to_owned(),
            key.images.to_string(),
            context.age(key.made_at),
            match key.revoked_at.or(key.retired_at) {
                Some(at) => context.age(at),
                None => "-".to_owned(),
            },
            key.revoked.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    });
    table(context, heading, rows)
}

/// One key.
#[must_use]
pub fn key(key: &Key, context: &Context) -> String {
    let mut rows = vec![
        ("key", key.id.clone()),
        ("public key", key.public_key.clone()),
        ("state", key.state.clone()),
        (
            "secret half",
            if key.signs_here { "here" } else { "elsewhere" }.to_owned(),
        ),
        ("images", key.images.to_string()),
        ("made", context.age_and_local(key.made_at)),
    ];
    if let Some(at) = key.retired_at {
        rows.push(("retired", context.age_and_local(at)));
    }
    if let Some(text) = &key.revoked {
        rows.push(("revoked", text.clone()));
    }
    pairs(context, rows)
}

/// What a rotation did.
#[must_use]
pub fn key_rotated(rotated: &KeyRotated, _: &Context) -> String {
    let mut text = format!("key {} signs from now on", cell(&rotated.key.id));
    if let Some(before) = &rotated.before {
        text.push_str(&format!(", and {} no more", cell(before)));
    }
    text.push('\n');
    if rotated.resigned_count > 0 {
        let named = names(&rotated.resigned, rotated.resigned_count);
        text.push_str(&format!("it has signed {} images: {named}\n", rotated.resigned_count));
    }
    if rotated.left_count > 0 {
        let named = names(&rotated.left, rotated.left_count);
        text.push_str(&format!(
            "{} images are signed by other keys alone: {named}\n  they go on to count until those are revoked; --resign signs \
             them, too\n",
            rotated.left_count
        ));
    }
    text
}

/// What the revocation of a key took away.
#[must_use]
pub fn key_revoked(revoked: &KeyRevoked, _: &Context) -> String {
    let mut text = format!("key {} is revoked, for good\n", cell(&revoked.key.id));
    match revoked.images_count {
        0 => text.push_str("no image was signed by it\n"),
        count => {
            let named = names(&revoked.images, count);
            text.push_str(&format!("{count} images must not be used any more: {named}\n"));
        }
    }
    text.push_str(&users(&revoked.users, revoked.users_count));
    if !revoked.can_sign {
        text.push_str("no key is left that signs: `plumbline key rotate` makes one, `plumbline key add` takes one\n");
    }
    text
}

/// What the revocation of an image means.
#[must_use]
pub fn image_revoked(revoked: &ImageRevoked, _: &Context) -> String {
    let name = match &revoked.image {
        Some(image) => format!("{}@{}", image.name, image.version),
        None => format!("image {} (not registered here)", revoked.digest),
    };
    format!(
        "{} is revoked, for good: {}\n{}",
        cell(&name),
        cell(&revoked.reason),
        users(&revoked.users, revoked.users_count)
    )
}

fn users(users: &[ImageUser], count: usize) -> String {
    let mut text = String::new();
    for (how, words) in [
        ("runs", "run it: install them again from another image"),
        ("waits", "wait for it, and will refuse it"),
        ("proposed", "were to get it by their discovery rule"),
    ] {
        let nodes: Vec<String> = users
            .iter()
            .filter(|user| user.how == how)
            .map(|user| user.node.clone())
            .collect();
        if !nodes.is_empty() {
            text.push_str(&format!(
                "{} nodes {words}: {}\n",
                nodes.len(),
                names(&nodes, nodes.len())
            ));
        }
    }
    if count > users.len() {
        text.push_str(&format!("and {} more\n", count - users.len()));
    }
    text
}

fn names(names: &[String], count: usize) -> String {
    let mut text = names
        .iter()
        .take(NAMED_MAX)
        .map(|name| cell(name))
        .collect::<Vec<_>>()
        .join(", ");
    if count > names.len().min(NAMED_MAX) {
        text.push_str(&format!(" and {} more", count - names.len().min(NAMED_MAX)));
    }
    text
}
