//! The papers' figures that a trace can give: their numbers beside ours, and why they differ.
//!
//! Hits and reads are counts of the replay. Times are modelled with the storage and the trainer described on
//! the command line, so that only their ratios compare. Means are over all epochs, as the papers take them.

mod arms;
mod chunks;
mod datasets;
mod jobs;
mod nodes;
mod observations;
mod parts;
mod shade;
mod sweeps;
mod systems;

use hotset_core::{Error, Result};

use crate::report::{Page, text_table, wrap};
use crate::scenario::Scenario;

pub(crate) use arms::{Arm, Arms};

/// A figure of a paper.
pub struct Figure {
    /// Its name on the command line.
    pub name: &'static str,
    /// Where it stands.
    pub source: &'static str,
    /// What it shows.
    pub shows: &'static str,
    draw: fn(&FigureInputs<'_>) -> Result<Drawn>,
}

/// Every figure that a trace can give.
pub static FIGURES: &[Figure] = &[
    systems::ICACHE_8A,
    systems::ICACHE_9,
    parts::ICACHE_10,
    parts::ICACHE_11,
    nodes::ICACHE_13,
    sweeps::ICACHE_15,
    sweeps::ICACHE_16,
    observations::IMPACT_5A,
    observations::IMPACT_8,
    systems::IMPACT_12,
    systems::IMPACT_13,
    parts::IMPACT_14,
    observations::IMPACT_15,
    observations::IMPACT_OBSERVATIONS,
    sweeps::IMPACT_20,
    sweeps::IMPACT_21,
    sweeps::IMPACT_22,
    shade::SHADE_5,
    shade::SHADE_7,
    shade::SHADE_12,
    jobs::QUIVER_3,
    datasets::QUIVER_6,
    chunks::QUIVER_7,
    jobs::QUIVER_TABLE3,
];

/// Figures that take more than a trace, and what they take.
pub static ABSENT: &[(&str, &str)] = &[
    ("icache-table1, icache-table3, impact-table1, impact-16", "accuracy: takes training"),
    ("icache-14", "the traces of two models: `hotset simulate --jobs FILE`"),
    ("icache-table2, icache-8b", "ImageNet: a trace of a training on it"),
];

/// What a figure is drawn with.
pub(crate) struct FigureInputs<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) threads: usize,
    pub(crate) progress: &'a (dyn Fn(usize, usize) + Sync),
}

/// A figure that was drawn.
#[derive(Debug, Clone, Default)]
pub struct Drawn {
    /// Its title.
    pub title: String,
    /// The columns of its table.
    pub head: Vec<String>,
    /// The rows of its table.
    pub rows: Vec<Vec<String>>,
    /// Why its numbers differ from the paper's, and what to know.
    pub reasons: Vec<String>,
    /// Titles and plots.
    pub plots: Vec<(String, String)>,
    /// What the replay was made with.
    pub settings: Vec<(String, String)>,
}

impl Figure {
    /// Replays what it takes; `progress` hears how many runs are done, of how many.
    pub fn draw(
        &self,
        scenario: &Scenario,
        threads: usize,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<Drawn> {
        let mut drawn = (self.draw)(&FigureInputs { scenario, threads, progress })?;
        drawn.title = format!("{} ({}): {}", self.name, self.source, self.shows);
        // Which runs have packages, and which another storage, the rows say.
        drawn.settings = scenario.describe().into_iter().filter(|(name, _)| name != "packages").collect();
        Ok(drawn)
    }
}

impl Drawn {
    /// The figure as text of at most a hundred columns.
    pub fn text(&self) -> String {
        let head: Vec<&str> = self.head.iter().map(String::as_str).collect();
        let mut text = format!("{}\n\n{}\n", wrap(&self.title, ""), text_table(&head, self.rows.clone()));
        for reason in &self.reasons {
            text.push_str(&format!("\n{}", wrap(&format!("- {reason}"), "  ")));
        }
        let settings: Vec<String> =
            self.settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
        text.push_str(&format!("\n\n{}", wrap(&settings.join(", "), "")));
        text
    }

    /// The figure as a page.
    pub fn page(&self) -> String {
        let mut page = Page::new(&self.title);
        page.settings(&self.settings);
        let head: Vec<&str> = self.head.iter().map(String::as_str).collect();
        page.heading("The paper's numbers and ours").table(&head, &self.rows);
        page.heading("Why they differ, and what to know");
        self.reasons.iter().for_each(|reason| {
            page.paragraph(reason);
        });
        self.plots.iter().for_each(|(title, svg)| {
            page.plot(title, svg);
        });
        page.finish()
    }
}

/// The figure of that name, or an error that points to the list.
pub fn find(name: &str) -> Result<&'static Figure> {
    FIGURES.iter().find(|figure| figure.name == name).ok_or_else(|| {
        let absent = ABSENT.iter().find(|(names, _)| names.split(", ").any(|other| other == name));
        Error::invalid(match absent {
            Some((_, takes)) => format!("figure `{name}` takes more than a trace: {takes}"),
            None => format!("figure `{name}` is unknown; `--figure list` shows all"),
        })
    })
}

/// All figures, for people.
pub fn list() -> String {
    let line = |figure: &Figure| format!("{:<21}{:<30}{}", figure.name, figure.source, figure.shows);
    let mut text = FIGURES.iter().map(line).collect::<Vec<_>>().join("\n");
    text.push_str("\n\nNot from a trace:");
    for (names, takes) in ABSENT {
        text.push_str(&format!("\n  {names}: {takes}"));
    }
    text
}

/// A row of texts.
pub(crate) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.iter().map(|&cell| cell.to_owned()).collect()
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

pub(crate) fn times(ratio: f64) -> String {
    if ratio.is_finite() { format!("{ratio:.1} x") } else { "-".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_its_own_name_and_every_other_is_answered_with_what_it_takes() {
        for figure in FIGURES {
            assert_eq!(find(figure.name).unwrap().source, figure.source);
        }
        assert!(find("icache-14").err().unwrap().message.contains("two models"));
        assert!(find("icache-99").err().unwrap().message.contains("--figure list"));
        assert!(list().lines().all(|line| line.chars().count() <= 100), "{}", list());
    }
}
