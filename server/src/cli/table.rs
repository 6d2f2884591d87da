//! Tables without borders: aligned on a terminal and folded to its width, one row a line everywhere else.

use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};

use super::text::{Context, cell};

/// Between two columns.
const GAP: u16 = 2;
/// Room for the last column, below which all columns are folded and not only it: what names something should stay in one
/// piece, to be copied.
const LAST_WIDTH_MIN: u16 = 10;

/// A table with a heading. Each cell is made safe here.
#[must_use]
pub fn table<const N: usize>(
    context: &Context,
    heading: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = bare(context);
    table.set_header(heading);
    for row in rows {
        table.add_row(row.map(|text| cell(&text)));
    }
    print(&mut table)
}

/// Names and values, one pair a line.
#[must_use]
pub fn pairs(context: &Context, rows: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let mut table = bare(context);
    for (name, value) in rows {
        table.add_row([name.to_owned(), cell(&value)]);
    }
    print(&mut table)
}

fn bare(context: &Context) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if let Some(width) = context.width {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(width);
    }
    table
}

fn print(table: &mut Table) -> String {
    let widths = table.column_max_content_widths();
    let fixed: u16 = widths.iter().rev().skip(1).map(|width| width.saturating_add(GAP)).sum();
    let fits = table
        .width()
        .is_some_and(|width| fixed.saturating_add(LAST_WIDTH_MIN) <= width);
    let last = widths.len().saturating_sub(1);
    for (at, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if at == last { 0 } else { GAP }));
        if fits && at != last {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    let mut text = table.trim_fmt();
    text.push('\n');
    text
}
