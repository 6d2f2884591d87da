//! Tables without borders: aligned on a terminal and folded to its width, one row a line everywhere else.

use comfy_table::{ContentArrangement, Table, presets};

use super::text::{Context, cell};

/// A table with a heading. Each cell is made safe here.
#[must_use]
pub fn table<const N: usize>(context: &Context, heading: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
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
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = table.trim_fmt();
    text.push('\n');
    text
}
