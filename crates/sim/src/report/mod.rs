//! Reports of runs: a table for people, CSV and JSON for programs, and one HTML page with plots.

mod axis;
mod chart;
mod csv;
mod html;
mod table;

pub use chart::{Bars, Lines, Series};
pub use csv::csv;
pub use html::{Page, compare};
pub use table::{WIDTH, table, text_table, wrap};

use serde::Serialize;

use crate::outcome::{Outcome, Row, rows};

/// The runs as JSON: settings, the means of every pair and cache size, and every epoch.
pub fn json(settings: &[(String, String)], outcomes: &[Outcome], first: usize) -> String {
    #[derive(Serialize)]
    struct Epoch {
        epoch: usize,
        #[serde(flatten)]
        columns: serde_json::Map<String, serde_json::Value>,
    }
    #[derive(Serialize)]
    struct Run<'a> {
        strategy: &'a str,
        policy: &'a str,
        cache: &'a str,
        capacity: u64,
        seed: u64,
        notes: &'a [String],
        epochs: Vec<Epoch>,
    }
    #[derive(Serialize)]
    struct All<'a> {
        settings: std::collections::BTreeMap<&'a str, &'a str>,
        first_epoch_of_means: usize,
        means: Vec<Row>,
        runs: Vec<Run<'a>>,
    }
    let runs = outcomes.iter().map(|outcome| Run {
        strategy: &outcome.strategy,
        policy: &outcome.policy,
        cache: &outcome.cache,
        capacity: outcome.capacity,
        seed: outcome.seed,
        notes: &outcome.notes,
        epochs: (0..outcome.epochs.len())
            .map(|epoch| {
                let values = csv::values(outcome, epoch).into_iter();
                let columns =
                    csv::COLUMNS.iter().zip(values).map(|(&name, value)| (name.to_owned(), value.into()));
                Epoch { epoch, columns: columns.collect() }
            })
            .collect(),
    });
    let all = All {
        settings: settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
        first_epoch_of_means: first,
        means: rows(outcomes, first),
        runs: runs.collect(),
    };
    // Only maps with keys that are no text, and numbers that are not finite, cannot be written; neither occurs.
    serde_json::to_string(&all).unwrap_or_default()
}
