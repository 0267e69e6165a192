//! The table of a comparison, a hundred columns wide at most.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use hotset_core::bytes::human;

use crate::outcome::Row;

/// The widest a table gets.
pub const WIDTH: u16 = 100;

/// One line for each pair and cache size.
pub fn table(rows: &[Row]) -> String {
    let head =
        ["strategy+policy", "cache", "hit", "paper's", "cover", "reads", "requests", "read", "epoch", "wait"];
    let lines = rows.iter().map(|row| {
        let mean = &row.mean;
        vec![
            row.pair(),
            row.cache.clone(),
            percent(mean.hit_ratio()),
            percent(mean.papers_hit_ratio()),
            percent(mean.coverage),
            format!("{:.0}", mean.storage_reads),
            format!("{:.0}", mean.storage_requests),
            human(mean.storage_bytes as u64),
            seconds(mean.seconds),
            seconds(mean.wait),
        ]
    });
    text_table(&head, lines)
}

/// Any table, its first column left and the others right.
pub fn text_table(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table.set_header(head.iter());
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
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

    #[test]
    fn a_table_is_at_most_a_hundred_columns_wide() {
        let row = Row {
            strategy: "hybrid[s_share=0.5,warmup_max=30]".into(),
            policy: "impact[split=paper,strict=true]".into(),
            cache: "123456789".into(),
            capacity: u64::MAX,
            seeds: 5,
            mean: Mean {
                served: 1e8,
                storage_reads: 1e8,
                storage_requests: 1e8,
                storage_bytes: 1e15,
                seconds: 1e5,
                wait: 1e5,
                ..Mean::default()
            },
            reads_range: (0.0, 1.0),
        };
        let text = table(&[row.clone(), Row { strategy: "iis".into(), policy: "lru".into(), ..row }]);
        assert!(text.lines().all(|line| line.chars().count() <= usize::from(WIDTH)), "{text}");
        assert!(text.contains("iis+lru") && text.contains("100000000"), "{text}");
    }
}
