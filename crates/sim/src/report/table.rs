//! The table of a comparison, and those of figures.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width};
use hotset_core::bytes::human;

use crate::outcome::{Mean, Row};

/// The widest a figure's table gets where its words allow it, and a paragraph.
pub const WIDTH: u16 = 100;

/// One line for each pair and cache size, in at most `width` columns: what finds no room beside the rest follows in
/// another table below. Names are broken only after `+` and `,`.
pub fn table(rows: &[Row], width: usize) -> String {
    let column = |title: &str, of: &dyn Fn(&Row) -> String| Column {
        title: title.to_owned(),
        cells: rows.iter().map(of).collect(),
    };
    let share = |title: &str, of: &dyn Fn(&Mean) -> f64| column(title, &|row| percent(of(&row.mean)));
    let part = |title: &str, of: &dyn Fn(&Mean) -> f64| {
        share(title, &|mean| if mean.served > 0.0 { of(mean) / mean.served } else { 0.0 })
    };
    let count =
        |title: &str, of: &dyn Fn(&Mean) -> f64| column(title, &|row| format!("{:.0}", of(&row.mean)));
    let groups = vec![
        vec![
            column("cache", &|row| row.cache.clone()),
            part("hit", &|mean| mean.hit),
            part("packed", &|mean| mean.packed),
            part("single", &|mean| mean.single),
            share("paper's", &Mean::papers_hit_ratio),
            share("cover", &|mean| mean.coverage),
        ],
        vec![
            count("reads", &|mean| mean.storage_reads),
            count("requests", &|mean| mean.storage_requests),
            column("read", &|row| human(row.mean.storage_bytes as u64)),
            share("waste", &|mean| mean.package_waste),
        ],
        vec![
            column("epoch", &|row| seconds(row.mean.seconds)),
            column("wait", &|row| seconds(row.mean.wait)),
        ],
    ];
    let widest = groups.iter().map(|group| needs(group)).max().unwrap_or_default();
    let room = width.saturating_sub(widest);
    let names: Vec<Vec<String>> = rows.iter().map(|row| broken(&row.pair(), room)).collect();
    let name_width =
        names.iter().flatten().map(|line| line.chars().count()).chain([HEAD.len()]).max().unwrap_or_default();
    let mut blocks: Vec<Vec<Column>> = Vec::new();
    for group in groups {
        match blocks.last_mut() {
            Some(block) if name_width + needs(block) + needs(&group) <= width => block.extend(group),
            _ => blocks.push(group),
        }
    }
    let blocks: Vec<String> = blocks.iter().map(|block| aligned(&names, name_width, block)).collect();
    blocks.join("\n\n")
}

/// The title of the names.
const HEAD: &str = "strategy+policy";
/// Blanks before each column.
const GAP: usize = 2;

/// A column of figures.
struct Column {
    title: String,
    cells: Vec<String>,
}

impl Column {
    fn width(&self) -> usize {
        let cells = self.cells.iter().chain([&self.title]);
        cells.map(|text| text.chars().count()).max().unwrap_or_default()
    }
}

fn needs(columns: &[Column]) -> usize {
    columns.iter().map(|column| column.width() + GAP).sum()
}

/// A name in lines of at most `room` where it can be broken, which is after `+` and `,`.
fn broken(name: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for piece in name.split_inclusive(['+', ',']) {
        let (line, count) = (lines.len() - 1, piece.chars().count());
        if !lines[line].is_empty() && lines[line].chars().count() + count > room {
            lines.push(format!("  {piece}"));
        } else {
            lines[line].push_str(piece);
        }
    }
    lines
}

/// One table: names left, figures right, each beside the first line of its name.
fn aligned(names: &[Vec<String>], name_width: usize, columns: &[Column]) -> String {
    let line = |name: &str, cell: &dyn Fn(&Column) -> String| {
        let mut text = format!("{name:<name_width$}");
        for column in columns {
            text.push_str(&format!("{:>width$}", cell(column), width = column.width() + GAP));
        }
        text.trim_end().to_owned()
    };
    let mut lines = vec![line(HEAD, &|column| column.title.clone())];
    for (row, name) in names.iter().enumerate() {
        for (number, part) in name.iter().enumerate() {
            let cell = |column: &Column| if number == 0 { column.cells[row].clone() } else { String::new() };
            lines.push(line(part, &cell));
        }
    }
    lines.join("\n")
}

/// Any table, its first column left and the others right.
pub fn text_table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table.set_header(head.iter());
    let mut words = vec![0; head.len()];
    let longest = |text: &str| text.split_whitespace().map(|word| word.chars().count()).max().unwrap_or(0);
    let mut measure = |cells: &mut dyn Iterator<Item = &str>| {
        cells.zip(&mut words).for_each(|(cell, word)| *word = longest(cell).max(*word));
    };
    measure(&mut head.iter().copied());
    for row in rows {
        measure(&mut row.iter().map(String::as_str));
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    // No word is broken: a column is as wide as its longest, and the table wider if it must be.
    for (number, longest) in words.into_iter().enumerate() {
        if let Some(column) = table.column_mut(number) {
            let width = u16::try_from(longest).unwrap_or(u16::MAX).saturating_add(column.padding_width());
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width)));
        }
    }
    let text = table.to_string();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// Breaks a paragraph into lines of at most [`WIDTH`], all but the first after `indent`.
pub fn wrap(text: &str, indent: &str) -> String {
    let (mut lines, mut line) = (Vec::new(), String::new());
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > usize::from(WIDTH) {
            lines.push(std::mem::replace(&mut line, indent.to_owned()));
        }
        if !line.is_empty() && line != indent {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.join("\n")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn seconds(seconds: f64) -> String {
    match seconds {
        long if long >= 1000.0 => format!("{long:.0} s"),
        some if some >= 10.0 => format!("{some:.1} s"),
        short => format!("{short:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Mean;

    #[test]
    fn paragraphs_break_between_words() {
        let text = wrap(&"word ".repeat(60), "  ");
        assert_eq!(text.split_whitespace().count(), 60);
        assert!(text.lines().count() == 4 && text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("  word")));
    }

    fn a_row(strategy: &str, policy: &str) -> Row {
        let mean = Mean {
            served: 1e8,
            hit: 2e7,
            packed: 7e7,
            single: 1e7,
            storage_reads: 1e8,
            storage_requests: 1e8,
            storage_bytes: 1e15,
            package_waste: 0.125,
            seconds: 1e5,
            wait: 1e5,
            ..Mean::default()
        };
        Row {
            strategy: strategy.into(),
            policy: policy.into(),
            cache: "123456789B".into(),
            capacity: u64::MAX,
            seeds: 5,
            mean,
            reads_range: (0.0, 1.0),
        }
    }

    #[test]
    fn a_table_keeps_within_its_width_and_breaks_no_word() {
        let long = a_row("hybrid[s_share=0.5,warmup_max=30]", "impact[split=paper,strict=true]");
        let rows = [long, a_row("iis", "lru")];
        for width in [80, 100, 120, 200] {
            let text = table(&rows, width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            for whole in
                ["hybrid[s_share=0.5,", "warmup_max=30]+", "impact[split=paper,", "strict=true]", "iis+lru"]
            {
                assert!(text.contains(whole), "{whole} is broken:\n{text}");
            }
            for figure in
                ["100000000", "20.0 %", "70.0 %", "10.0 %", "90.0 %", "12.5 %", "waste", "packed", "single"]
            {
                assert!(text.contains(figure), "{figure} is not in:\n{text}");
            }
        }
        assert_eq!(table(&rows, 200).lines().count(), 3, "one table where there is room");
    }

    #[test]
    fn a_figures_table_breaks_between_words_alone() {
        let row = |label: &str| [vec![label.to_owned()], vec!["12345678901234567890".to_owned(); 5]].concat();
        let text = text_table(&["system", "a", "b", "c", "d", "e"], [row("SHADE (pads[repeat=3]+app)")]);
        assert!(text.contains("(pads[repeat=3]+app)") && text.contains("12345678901234567890"), "{text}");
    }
}
