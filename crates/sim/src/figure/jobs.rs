//! Several jobs on one cache: Quiver figure 3 and table 3.

use std::ops::Range;

use hotset_core::Result;
use hotset_core::bytes::Amount;

use super::{Drawn, Figure, FigureInputs, percent, row, times};
use crate::grid;
use crate::report::Bars;
use crate::scenario::{Job, Scenario};
use crate::shared::{self, Trained, Training};

pub(super) const QUIVER_3: Figure = Figure {
    name: "quiver-3",
    source: "Quiver, figure 3 and table 3",
    shows: "seven jobs: misses, co-operative, hits",
    draw: sweep,
};

/// Jobs of a sweep, as many as the paper has.
const JOBS: u64 = 7;
/// Epochs of each: a cold one, and two of what comes after it.
const EPOCHS: usize = 3;

/// A label, the pair, the cache, and which epochs count.
const ARMS: [(&str, &str, &str, Range<usize>); 5] = [
    ("cache miss", "uniform+lru", "0B", 0..EPOCHS),
    ("co-operative, cold, 10 %", "quiver+quiver", "10%", 0..1),
    ("co-operative, 10 %", "quiver+quiver", "10%", 0..EPOCHS),
    ("co-operative, 20 %", "quiver+quiver", "20%", 0..EPOCHS),
    ("cache hit", "uniform+minio", "100%", 1..EPOCHS),
];

fn sweep(inputs: &FigureInputs<'_>) -> Result<Drawn> {
    let scenario = inputs.scenario.shortened(EPOCHS)?;
    let run = |(_, pair, cache, _): &(&str, &str, &str, _)| shared::run(&trainings(&scenario, pair, cache)?);
    let all = ARMS.len();
    let trained = grid::each(&ARMS, inputs.threads, run, |done| (inputs.progress)(done, all))?;
    let rates: Vec<f64> = trained
        .iter()
        .zip(&ARMS)
        .map(|(trained, (.., epochs))| batches_a_second(trained, &scenario, epochs.clone()))
        .collect();
    let reads = |trained: &[Trained], epochs: Range<usize>| {
        let counted =
            trained.iter().flat_map(|one| one.outcome.epochs.get(epochs.clone()).unwrap_or_default());
        counted.map(|epoch| epoch.counters.plan.storage_reads).sum::<u64>() as f64
    };
    let rows = trained.iter().zip(&ARMS).zip(&rates).map(|((trained, (label, pair, _, epochs)), rate)| {
        let served = JOBS as f64 * scenario.samples() as f64 * epochs.len().min(scenario.epochs()) as f64;
        vec![
            (*label).to_owned(),
            (*pair).to_owned(),
            format!("{rate:.1}"),
            times(rate / rates[0]),
            percent(reads(trained, epochs.clone()) / served.max(1.0)),
        ]
    });
    let plot = Bars {
        title: "Batches a second of all jobs".into(),
        x: "batches a second".into(),
        parts: vec!["seven jobs".into()],
        bars: ARMS.iter().zip(&rates).map(|((label, ..), &rate)| ((*label).to_owned(), vec![rate])).collect(),
    };
    Ok(Drawn {
        head: row(["arm", "strategy+policy", "batches a second", "speedup", "read, of what is served"]),
        rows: rows.collect(),
        reasons: vec![
            "The paper draws the same order on three workloads: hits fastest, co-operative misses between them and plain \
             misses, close to hits where computing takes longer than one job's reads."
                .into(),
            "Seven jobs read a chunk once between them, so that a storage that is the limit serves seven times as many \
             batches, up to the speed of the trainers. Batch time and storage are those of the command line."
                .into(),
        ],
        plots: vec![(plot.title.clone(), plot.svg())],
        ..Drawn::default()
    })
}

fn trainings(scenario: &Scenario, pair: &str, cache: &str) -> Result<Vec<Training>> {
    let amount: Amount = cache.parse()?;
    let training = |seed: u64| {
        let job = Job::new(&pair.parse()?, cache, amount, seed)?;
        let scenario = scenario.clone();
        Ok(Training {
            name: format!("job {}", seed + 1),
            scenario,
            job,
            start: 0.0,
            benefit: Some(f64::from(u16::MAX)),
        })
    };
    (0..JOBS).map(training).collect()
}

/// Batches of these epochs of all jobs, by the time in which the slowest trained them.
fn batches_a_second(trained: &[Trained], scenario: &Scenario, epochs: Range<usize>) -> f64 {
    let seconds = |one: &Trained| {
        one.outcome
            .epochs
            .get(epochs.clone())
            .unwrap_or_default()
            .iter()
            .map(|epoch| epoch.time.seconds)
            .sum::<f64>()
    };
    let slowest = trained.iter().map(seconds).fold(0.0, f64::max);
    let batches =
        scenario.samples().div_ceil(scenario.compute.batch.max(1)) * epochs.len().min(scenario.epochs());
    (batches * trained.len()) as f64 / slowest.max(1e-9)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hotset_core::sampling::Equal;

    use super::*;
    use crate::Trace;

    #[test]
    fn hits_are_fastest_and_co_operative_misses_read_a_seventh_at_most() {
        let trace = Trace::synthetic(20_000, 4, 3).unwrap();
        let sizes = Arc::new(Equal { samples: 20_000, size: 1000 });
        let mut scenario = Scenario::new("made", trace, None, sizes).unwrap();
        (scenario.compute.batch, scenario.compute.prefetch) = (50, 4);
        let drawn = QUIVER_3.draw(&scenario, 2, &|_, _| ()).unwrap();
        let number = |row: usize, column: usize| -> f64 {
            drawn.rows[row][column].split(' ').next().unwrap().parse().unwrap()
        };
        let rates: Vec<f64> = (0..5).map(|row| number(row, 2)).collect();
        assert!(
            rates[0] < rates[1] && rates[1] <= 1.01 * rates[4] && rates[3] <= 1.01 * rates[4],
            "{rates:?}"
        );
        assert_eq!((number(0, 4), number(4, 4)), (100.0, 0.0));
        assert!(number(1, 4) <= 1.05 * 100.0 / 7.0, "{}", drawn.text());
        assert!(number(3, 4) < number(2, 4));
    }
}
