//! Tables and lines for people, as wide as their terminal.

use std::io::Write;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};

/// Where the width is not known: a pipe, a file.
const WIDTH: usize = 100;
/// Blanks after each column.
const GAP: u16 = 1;

/// A column: its title, then one cell for each row.
pub(crate) struct Column {
    title: &'static str,
    cells: Vec<String>,
}

impl Column {
    pub(crate) fn new(title: &'static str, cells: Vec<String>) -> Self {
        Self { title, cells }
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(String::as_str).chain(self.title.lines());
        cells.map(|text| text.chars().count()).max().unwrap_or(0) + usize::from(GAP)
    }
}

/// How many columns of text there is room for: as `$COLUMNS` says, else as the terminal does.
pub(crate) fn width() -> usize {
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let seen = || Table::new().width().map(usize::from);
    told.filter(|&columns| columns > 0).or_else(seen).unwrap_or(WIDTH)
}

/// Rows without a head, in as much width as the terminal has.
pub(crate) fn plain(rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    rows.for_each(|row| {
        table.add_row(row);
    });
    table.to_string()
}

/// Columns of figures. Those that find no room beside the others follow in another table below, with `name` in
/// front again; columns of one group stay together where they can.
pub(crate) fn folded(name: &Column, groups: Vec<Vec<Column>>, width: usize) -> String {
    let room = width.saturating_sub(name.width());
    let needs = |columns: &[Column]| columns.iter().map(Column::width).sum::<usize>();
    let mut tables: Vec<Vec<Column>> = vec![Vec::new()];
    for group in groups {
        let splits = needs(&group) > room;
        let pieces: Vec<Vec<Column>> =
            if splits { group.into_iter().map(|column| vec![column]).collect() } else { vec![group] };
        for piece in pieces {
            match tables.last_mut() {
                Some(last) if last.is_empty() || needs(last) + needs(&piece) <= room => last.extend(piece),
                _ => tables.push(piece),
            }
        }
    }
    let texts: Vec<String> = tables.iter().map(|columns| aligned(name, columns)).collect();
    texts.join("\n")
}

fn aligned(name: &Column, columns: &[Column]) -> String {
    let all = || std::iter::once(name).chain(columns);
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(all().map(|column| column.title));
    for row in 0..name.cells.len() {
        table.add_row(all().map(|column| column.cells.get(row).map_or("", String::as_str)));
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
        column.set_padding((0, GAP));
    }
    table.trim_fmt()
}

/// `text` in lines of at most `width` where its words allow it; those after the first begin with `indent`.
pub(crate) fn wrapped(text: &str, indent: &str, width: usize) -> String {
    let words = text.trim_start_matches(' ');
    let mut lines = text[..text.len() - words.len()].to_owned();
    let mut used = lines.len();
    for (number, word) in words.split(' ').enumerate() {
        let length = word.chars().count();
        if number > 0 && used + 1 + length > width {
            lines.push('\n');
            lines.push_str(indent);
            used = indent.len();
        } else if number > 0 {
            lines.push(' ');
            used += 1;
        }
        lines.push_str(word);
        used += length;
    }
    lines
}

/// Writes to standard output. A reader that closed the pipe has seen enough.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(title: &'static str, cell: &str) -> Column {
        Column::new(title, vec![cell.into()])
    }

    #[test]
    fn groups_stay_together_and_follow_below_where_there_is_no_room() {
        let name = column("epoch", "12");
        let groups = || vec![vec![column("a", "111"), column("b", "222")], vec![column("c", "333")]];
        assert_eq!(folded(&name, groups(), 18), "epoch   a   b   c\n   12 111 222 333");
        assert_eq!(folded(&name, groups(), 17), "epoch   a   b\n   12 111 222\nepoch   c\n   12 333");
        let one_by_one = folded(&name, groups(), 10);
        assert_eq!(one_by_one.lines().count(), 6, "{one_by_one}");
        assert_eq!(
            folded(&name, groups(), 0).lines().count(),
            6,
            "too narrow for anything, and nothing is lost"
        );
    }

    #[test]
    fn long_lines_are_wrapped_between_words() {
        assert_eq!(wrapped("one two three", "  ", 7), "one two\n  three");
        assert_eq!(wrapped("  one two", "    ", 80), "  one two", "blanks in front stay");
        assert_eq!(wrapped("/a/very/long/path x", "  ", 4), "/a/very/long/path\n  x", "no word is cut");
    }
}
