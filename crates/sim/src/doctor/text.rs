//! A diagnosis as plain text for a terminal of any width: the verdict first, then why, then what to do.

use super::words::{percent, rate, removes, seconds};
use super::{Candidate, Diagnosis, accuracy};

/// A cache that takes no less than so much of the time of a smaller one is not shown.
const FASTER: f64 = 0.99;

/// The whole report, in lines of at most `width` where its words allow it.
pub fn text(diagnosis: &Diagnosis, width: usize) -> String {
    let lines = Lines { width: width.clamp(24, 100), text: String::new() };
    let mut lines = lines.paragraph("", &diagnosis.verdict).heading("Why");
    for reason in &diagnosis.reasons {
        lines = lines.paragraph("- ", reason);
    }
    lines = lines.heading("Samples a second");
    let rates = rates(diagnosis)
        .into_iter()
        .map(|(name, value, lowest)| (name, if lowest { format!("{value}  <- the lowest") } else { value }));
    lines = lines.pairs(&rates.collect::<Vec<_>>());
    let mut epochs = vec![
        ("as it is".to_owned(), seconds(diagnosis.rates.epoch)),
        ("all in memory".to_owned(), seconds(diagnosis.rates.epoch_from_memory)),
    ];
    if !diagnosis.conditional {
        epochs.push(("training alone".to_owned(), seconds(diagnosis.rates.epoch_of_training)));
    }
    lines = lines.heading("An epoch").pairs(&epochs);
    if diagnosis.storage_matters() {
        let rows: Vec<(String, String)> =
            same(diagnosis).into_iter().map(|one| (one.name.clone(), epoch(one))).collect();
        lines = lines.heading("What trains the same").pairs(&rows);
        let other = other(diagnosis);
        if !other.is_empty() {
            lines = lines.heading("What changes what is trained: accuracy on your data unknown");
        }
        for one in other {
            lines = lines.pairs(&[(one.name.clone(), epoch(one))]).paragraph("    ", &one.does);
            lines = lines.paragraph("    ", &format!("measured elsewhere: {}", accuracy::shown(&one.costs)));
        }
    }
    if let Some(paste) = &diagnosis.paste {
        lines = lines.heading("To paste");
        paste.lines().for_each(|line| lines.raw(&format!("  {line}")));
    }
    lines.text
}

/// The ways that train the same: of caches those that are faster than each smaller one.
pub(super) fn same(diagnosis: &Diagnosis) -> Vec<&Candidate> {
    let mut fastest = f64::INFINITY;
    let faster = |one: &&Candidate| {
        let shown = one.share == 0.0 || one.epoch < fastest * FASTER;
        fastest = if shown { fastest.min(one.epoch) } else { fastest };
        shown
    };
    diagnosis.candidates.iter().filter(|one| one.lossless).filter(faster).collect()
}

/// The ways that change what is trained; none where storage costs nothing without them.
pub(super) fn other(diagnosis: &Diagnosis) -> Vec<&Candidate> {
    let needed = diagnosis.best.is_none_or(|best| !removes(diagnosis, &diagnosis.candidates[best]));
    diagnosis.candidates.iter().filter(|one| !one.lossless && needed).collect()
}

/// What each stage gives, and whether it is the lowest of those that were measured.
pub(super) fn rates(diagnosis: &Diagnosis) -> Vec<(String, String, bool)> {
    let all = &diagnosis.rates;
    let workers = diagnosis.measured.loader.workers;
    let stages = [
        (format!("fetched, by {} at a time", workers.max(1)), Some(all.fetching)),
        ("prepared, from memory".to_owned(), all.preparing),
        ("trained, from memory".to_owned(), all.computing),
    ];
    let lowest = stages.iter().filter_map(|(_, rate)| *rate).fold(f64::INFINITY, f64::min);
    let mut rows: Vec<(String, String, bool)> = stages
        .into_iter()
        .map(|(name, value)| {
            let shown = value.map_or_else(|| "not measured".to_owned(), rate);
            (name, shown, value == Some(lowest))
        })
        .collect();
    rows.insert(1, ("fetched and prepared".to_owned(), rate(all.fetching_and_preparing), false));
    if let Some(most) = all.fetching_at_most.filter(|most| *most > all.fetching * 1.05) {
        rows.insert(1, ("fetched, by any number".to_owned(), rate(most), false));
    }
    rows
}

/// What an epoch takes so.
pub(super) fn epoch(one: &Candidate) -> String {
    let first = if one.first_epoch > one.epoch * 1.05 {
        format!(" (the first {})", seconds(one.first_epoch))
    } else {
        String::new()
    };
    let saves = match one.saves {
        more if more >= 0.005 => format!("saves {}", percent(more)),
        less if less <= -0.005 => format!("takes {} longer", percent(-less)),
        _ => "saves nothing".to_owned(),
    };
    format!("{}{first}, {saves}", seconds(one.epoch))
}

/// Text that grows.
struct Lines {
    width: usize,
    text: String,
}

impl Lines {
    fn heading(mut self, text: &str) -> Self {
        self.text.push('\n');
        self.paragraph("", text)
    }

    /// Words from `mark` on, with the lines after the first under them.
    fn paragraph(mut self, mark: &str, text: &str) -> Self {
        let mut line = mark.to_owned();
        let mut empty = true;
        for word in text.split_whitespace() {
            let wide = line.chars().count() + usize::from(!empty) + word.chars().count();
            if !empty && wide > self.width {
                self.raw(&line);
                line = " ".repeat(mark.chars().count());
                empty = true;
            }
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
            empty = false;
        }
        self.raw(&line);
        self
    }

    /// Names and what is to be said of each: side by side where there is room for all of them, else one below the other.
    fn pairs(mut self, rows: &[(String, String)]) -> Self {
        let widest = |of: &dyn Fn(&(String, String)) -> usize| rows.iter().map(of).max().unwrap_or(0);
        let names = widest(&|row| row.0.chars().count());
        let beside = 2 + names + 2 + widest(&|row| row.1.chars().count()) <= self.width;
        for (name, value) in rows {
            if beside {
                self.raw(&format!("  {name:names$}  {value}"));
            } else {
                self = self.paragraph("  ", name).paragraph("      ", value);
            }
        }
        self
    }

    fn raw(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }
}
