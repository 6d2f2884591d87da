//! Discovery rules.

use crate::cli::table::table;
use crate::cli::text::{Context, cell};
use crate::cli::views::Rules;

/// Rules in order, and what each has placed.
#[must_use]
pub fn rules(rules: &Rules, context: &Context) -> String {
    let (version, by) = (rules.version, cell(&rules.applied_by));
    let heading = format!("version {version}, applied by {by} {}\n", context.age(rules.applied_at));
    if rules.rules.is_empty() {
        return format!("{heading}no rules: machines keep the names that people give them\n");
    }
    let rows = rules.rules.iter().map(|rule| {
        let full = if rule.placed >= rule.maximum { "full" } else { "" };
        [
            rule.name.clone(),
            format!("{} of {}", rule.placed, rule.maximum),
            full.to_owned(),
        ]
    });
    heading + &table(context, ["RULE", "PLACED", ""], rows)
}
