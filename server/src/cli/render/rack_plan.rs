//! What an import of the rack plan did.

use crate::cli::table::table;
use crate::cli::text::Context;
use crate::cli::views::{Imported, ImportedLine};

/// What an import did, or would do: a line for each that is news.
#[must_use]
pub fn imported(imported: &Imported, context: &Context) -> String {
    let news = imported.lines.iter().filter(|line| line.action != "unchanged");
    let rows: Vec<_> = news
        .map(|line| {
            [
                line.line.to_string(),
                line.action.clone(),
                line.label.clone(),
                changes(line),
            ]
        })
        .collect();
    let mut text = String::new();
    if !rows.is_empty() {
        text = table(context, ["LINE", "WHAT", "NODE", "CHANGES"], rows) + "\n";
    }
    let (would, tail) = match imported.dry_run {
        true => ("would be ", "; nothing was changed"),
        false => ("", ""),
    };
    text.push_str(&format!(
        "{} {would}added, {} {would}changed, {} the same already; {} of the plan not in this file, which stay{tail}\n",
        imported.added, imported.changed, imported.unchanged, imported.not_in_file
    ));
    text
}

fn changes(line: &ImportedLine) -> String {
    let parts: Vec<String> = line
        .changes
        .iter()
        .map(|change| match (&change.from, &change.to) {
            (None, Some(to)) => format!("{} {to}", change.column),
            (Some(from), Some(to)) => format!("{} {from} -> {to}", change.column),
            (Some(from), None) => format!("{} {from} -> unknown", change.column),
            (None, None) => change.column.clone(),
        })
        .collect();
    parts.join(", ")
}
