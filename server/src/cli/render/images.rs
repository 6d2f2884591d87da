//! Image versions.

use crate::cli::sizes::size_text;
use crate::cli::table::{pairs, table};
use crate::cli::text::{Context, cell, count};
use crate::cli::views::{Collection, Image, ImageCheck};

fn short(digest: &str) -> String {
    digest.chars().take(12).collect()
}

/// All image versions, a line each.
#[must_use]
pub fn images(images: &[Image], context: &Context) -> String {
    if images.is_empty() {
        return "no images: `plumbline image build DIR` makes one\n".to_owned();
    }
    let heading = [
        "NAME",
        "VERSION",
        "KIND",
        "DIGEST",
        "FILES",
        "SIZE",
        "STORED",
        "REGISTERED",
    ];
    let rows = images.iter().map(|image| {
        [
            image.name.clone(),
            image.version.clone(),
            image.kind.clone(),
            short(&image.digest),
            image.files.to_string(),
            size_text(image.content_bytes),
            size_text(image.stored_bytes),
            match &image.unusable {
                Some(_) => "NOT TO BE USED".to_owned(),
                None => context.age(image.registered_at),
            },
        ]
    });
    table(context, heading, rows)
}

/// One image version, in full.
#[must_use]
pub fn image(image: &Image, context: &Context) -> String {
    let classes: Vec<String> = image
        .files_by_class
        .iter()
        .map(|(class, files)| format!("{files} {class}"))
        .collect();
    let mut rows = vec![
        ("name", image.name.clone()),
        ("version", image.version.clone()),
        ("kind", image.kind.clone()),
        ("digest", image.digest.clone()),
        (
            "description",
            image.description.clone().unwrap_or_else(|| "-".to_owned()),
        ),
        ("architecture", image.architecture.clone()),
        ("files", format!("{} ({})", image.files, classes.join(", "))),
        ("size", size_text(image.content_bytes)),
        ("stored", size_text(image.stored_bytes)),
        ("registered", context.age_and_local(image.registered_at)),
    ];
    if let Some(signer) = &image.signer {
        rows.push(("signed by", format!("key {signer}")));
    }
    if let Some(reason) = &image.unusable {
        rows.push(("must not be used", reason.clone()));
    }
    pairs(context, rows)
}

/// What checking an image found.
#[must_use]
pub fn image_check(check: &ImageCheck, _: &Context) -> String {
    let image = &check.image;
    let name = cell(&format!("{}@{} ({})", image.name, image.version, short(&image.digest)));
    let read = format!(
        "{} contents in {} packs, {} read",
        check.blobs,
        check.packs,
        size_text(check.pack_bytes)
    );
    let revoked = check
        .revoked
        .as_ref()
        .map(|reason| format!(", REVOKED: {}", cell(reason)));
    let revoked = revoked.unwrap_or_default();
    let signature = match (&check.signed_by, &check.signature_problem) {
        (Some(key), None) => format!("signed by the {} key", cell(key)),
        (_, Some(problem)) => format!("SIGNATURE: {}", cell(problem)),
        (None, None) => "not signed".to_owned(),
    };
    if check.ok {
        return format!("{name} is sound: {signature}, {read}\n");
    }
    let state = match &check.revoked {
        Some(_) if check.signed_by.is_some() && check.packs_damaged.is_empty() && check.damaged_count == 0 => "sound",
        _ => "DAMAGED",
    };
    let mut text = format!("{name} is {state}: {signature}{revoked}, {read}\n");
    for pack in &check.packs_damaged {
        text.push_str(&format!("  pack {} is missing or damaged\n", cell(pack)));
    }
    for path in &check.damaged {
        text.push_str(&format!("  {} has no sound content\n", cell(path)));
    }
    let left_out = check
        .damaged_count
        .saturating_sub(u64::try_from(check.damaged.len()).unwrap_or(0));
    if left_out > 0 {
        text.push_str(&format!("  and {left_out} more paths\n"));
    }
    text
}

/// What tidying the store did, or would do.
#[must_use]
pub fn collection(done: &Collection, context: &Context) -> String {
    let mut text = String::new();
    if !done.images.is_empty() {
        let rows = done.images.iter().map(|image| {
            let (what, why) = match (image.removed, done.dry_run) {
                (false, _) => ("kept", image.reasons.join(", ")),
                (true, false) => ("removed", format!("frees {}", size_text(image.bytes_freed))),
                (true, true) => ("would go", format!("frees {}", size_text(image.bytes_freed))),
            };
            [
                image.name.clone(),
                image.version.clone(),
                short(&image.digest),
                what.to_owned(),
                why,
            ]
        });
        text.push_str(&table(context, ["NAME", "VERSION", "DIGEST", "", "WHY"], rows));
        text.push('\n');
    }
    for pack in &done.repacked {
        let sizes = (size_text(pack.size), size_text(pack.new_size));
        text.push_str(&match done.dry_run {
            true => format!(
                "pack {} would shrink from {} to about {}\n",
                short(&pack.pack),
                sizes.0,
                sizes.1
            ),
            false => format!("pack {} was repacked, {} to {}\n", short(&pack.pack), sizes.0, sizes.1),
        });
    }
    for pack in &done.damaged {
        text.push_str(&format!("pack {} is DAMAGED and was left alone\n", cell(pack)));
    }
    if done.unsigned > 0 {
        text.push_str(&format!(
            "kept, waiting for a signature: {}\n",
            count(done.unsigned, "image")
        ));
    }
    let images = done.images.iter().filter(|image| image.removed).count() as u64;
    let verb = if done.dry_run { "would go" } else { "removed" };
    text.push_str(&format!(
        "{verb}: {}, {}, {}, {} in all; kept for the grace time: {}\n",
        count(images, "image"),
        count(done.unfinished, "unfinished image"),
        count(done.packs_removed, "pack"),
        size_text(done.bytes_freed),
        count(done.packs_waiting, "pack")
    ));
    text
}
