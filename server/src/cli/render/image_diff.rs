//! What is different between two image versions.

use std::fmt::Write as _;

use crate::cli::sizes::size_text;
use crate::cli::text::{Context, cell};
use crate::cli::views::{Image, ImageDiff, ImagePath, ImagePathDifference};

/// Paths shown unless all are asked for.
pub const DIFF_PATHS: usize = 50;

/// Facts by area, then paths: `+` new, `-` gone, `~` different.
#[must_use]
pub fn image_diff(diff: &ImageDiff, _: &Context, paths_max: usize) -> String {
    let name = |image: &Image| cell(&format!("{}@{}", image.name, image.version));
    let mut text = format!("{} → {}\n", name(&diff.before), name(&diff.now));
    let mut area = "";
    for fact in &diff.facts {
        if fact.area != area {
            area = &fact.area;
            let _ = writeln!(text, "\n{}", cell(area));
        }
        let what = cell(&fact.name);
        let line = match (&fact.before, &fact.now) {
            (Some(before), Some(now)) => format!("  ~ {what}  {} → {}", cell(before), cell(now)),
            (Some(before), None) => format!("  - {what}  {}", cell(before)),
            (None, now) => format!("  + {what}  {}", cell(now.as_deref().unwrap_or_default())),
        };
        text.push_str(&line);
        text.push('\n');
    }
    if !diff.paths.is_empty() {
        text.push_str("\npaths\n");
    }
    for path in diff.paths.iter().take(paths_max) {
        let _ = writeln!(text, "  {}", path_line(path));
    }
    let all = diff.paths_added + diff.paths_removed + diff.paths_changed;
    let shown = diff.paths.len().min(paths_max) as u64;
    if all > shown {
        let _ = writeln!(text, "  and {} more: --all shows them", all - shown);
    }
    if all == 0 && diff.facts.is_empty() {
        text.push_str("\nno difference beside times\n");
        return text;
    }
    let _ = writeln!(
        text,
        "\npaths: {} new, {} gone, {} different; {} of content to fetch",
        diff.paths_added,
        diff.paths_removed,
        diff.paths_changed,
        size_text(diff.bytes_new)
    );
    text
}

fn path_line(path: &ImagePathDifference) -> String {
    let what = cell(&path.path);
    match (&path.before, &path.now) {
        (Some(before), Some(now)) => {
            let fields: Vec<String> = path.fields.iter().map(|field| field_text(field, before, now)).collect();
            format!("~ {what}  {}", fields.join(", "))
        }
        (Some(_), None) => format!("- {what}"),
        (None, _) => format!("+ {what}"),
    }
}

fn field_text(field: &str, before: &ImagePath, now: &ImagePath) -> String {
    let size = |path: &ImagePath| size_text(path.size.unwrap_or(0));
    let target = |path: &ImagePath| cell(path.target.as_deref().unwrap_or_default());
    match field {
        "type" => format!("{} → {}", cell(&before.kind), cell(&now.kind)),
        "content" if before.size == now.size => format!("content ({})", size(now)),
        "content" => format!("content ({} → {})", size(before), size(now)),
        "link" => format!("{} → {}", target(before), target(now)),
        "mode" => format!("mode {} → {}", cell(&before.mode), cell(&now.mode)),
        "owner" => format!("owner {}:{} → {}:{}", before.uid, before.gid, now.uid, now.gid),
        "class" => format!("class {} → {}", cell(&before.class), cell(&now.class)),
        other => cell(other),
    }
}
