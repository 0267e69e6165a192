//! Several datasets on one server: Quiver figure 6.
//!
//! The samples of the trace are shared out between three datasets in proportion to those of the paper, and stand for their
//! bytes; four jobs train each. What jobs gain is found as a probe finds it, from a run without a cache and one with everything
//! in it, and memory is divided by that as a server divides it. Beside it one `lru` has all three datasets.

use std::sync::Arc;

use hotset_core::bytes::Amount;
use hotset_core::cache::{Ask, Wish, divide};
use hotset_core::policy::{self, Sizes};
use hotset_core::run::{Change, Outcome};
use hotset_core::sampling::Equal;
use hotset_core::{Error, Result};

use super::{Drawn, Figure, FigureInputs, percent, row};
use crate::Trace;
use crate::grid;
use crate::report::Bars;
use crate::scenario::{Job, Scenario};
use crate::trainings::{Dataset, Stop, Training, pooled, run_datasets};

pub(super) const QUIVER_6: Figure = Figure {
    name: "quiver-6",
    source: "Quiver, figure 6",
    shows: "three datasets: memory by gain, one lru over all",
    draw,
};

/// What the jobs of a dataset are.
struct Workload {
    model: &'static str,
    gigabytes: u64,
    /// How fast it trains beside the others.
    speed: f64,
}

const WORKLOADS: [Workload; 3] = [
    Workload { model: "ResNet50", gigabytes: 154, speed: super::jobs::GAINS[0].1 },
    Workload { model: "Inception", gigabytes: 531, speed: super::jobs::GAINS[1].1 },
    Workload { model: "DeepSpeech2", gigabytes: 90, speed: super::jobs::GAINS[2].1 },
];

/// Jobs of each.
const JOBS: u64 = 4;
/// GPUs of a job.
const GPUS: u32 = 4;
/// Epochs that every job has at least: a cold one, and those that count.
const EPOCHS: usize = 3;
const GIGABYTE: u64 = 1_000_000_000;

/// The cache in gigabytes and of the datasets, and what the paper has with `lru` and with Quiver.
const CACHES: [(u64, &str, &str, &str); 3] =
    [(100, "13 %", "-", "1.6 x"), (200, "26 %", "-", "1.6 to 2.3 x"), (700, "90 %", "2.2 x", "2.32 x")];

/// How memory is had.
#[derive(Clone, Copy, PartialEq)]
enum Memory {
    /// None is.
    None,
    /// All is there.
    All,
    /// So many gigabytes, as one `lru` of all datasets.
    Lru(u64),
    /// So many, divided between the datasets in proportion to what they ask for.
    Proportion(u64),
    /// So many, divided by what jobs gain.
    Gain(u64),
}

impl Memory {
    fn pair(self) -> &'static str {
        match self {
            Self::None | Self::Lru(_) => "uniform+lru",
            Self::All => "uniform+minio",
            Self::Proportion(_) | Self::Gain(_) => "quiver+quiver",
        }
    }
}

/// A run: of each dataset the bytes of its cache, the batches a second of a job, and the reads of a serving.
struct Ran {
    parts: Vec<u64>,
    rates: Vec<f64>,
    reads: f64,
}

fn draw(inputs: &FigureInputs<'_>) -> Result<Drawn> {
    let scenarios = scenarios(inputs.scenario)?;
    let all = 2 + 3 * CACHES.len();
    let bounds = [Memory::None, Memory::All];
    let run = |memory: &Memory| ran(&scenarios, *memory, &[1.0; WORKLOADS.len()]);
    let bounds = grid::each(&bounds, inputs.threads, run, |done| (inputs.progress)(done, all))?;
    let gains: Vec<f64> =
        bounds[1].rates.iter().zip(&bounds[0].rates).map(|(hit, miss)| hit / miss.max(1e-9)).collect();
    let arms: Vec<Memory> = CACHES
        .iter()
        .flat_map(|&(size, ..)| [Memory::Lru(size), Memory::Proportion(size), Memory::Gain(size)])
        .collect();
    let run = |memory: &Memory| ran(&scenarios, *memory, &gains);
    let runs = grid::each(&arms, inputs.threads, run, |done| (inputs.progress)(2 + done, all))?;

    let labels = ["one `lru` over all", "`quiver`, in proportion", "`quiver`, by gain"];
    let (mut rows, mut bars) = (Vec::new(), Vec::new());
    rows.push(line("none", "no cache", "1", &bounds[0], &bounds[0], false));
    for ((size, share, lru, quiver), runs) in CACHES.iter().zip(runs.chunks(labels.len())) {
        for ((label, paper), one) in labels.iter().zip([*lru, "-", *quiver]).zip(runs) {
            let cache = format!("{size} GB, {share}");
            rows.push(line(&cache, label, paper, one, &bounds[0], *label != labels[0]));
            bars.push((format!("{share}, {}", label.replace('`', "")), vec![total(one, &bounds[0])]));
        }
    }
    rows.push(line("all", "everything is a hit", "-", &bounds[1], &bounds[0], false));
    let plot = Bars {
        title: "Throughput of twelve jobs over that without a cache".into(),
        x: "times".into(),
        parts: vec!["mean of all jobs".into()],
        bars,
    };
    let told = |(workload, gain): (&Workload, &f64)| format!("{} {gain:.1}", workload.model);
    let gained: Vec<String> = WORKLOADS.iter().zip(&gains).map(told).collect();
    let mut head = row(["cache", "how", "all, paper", "all"]);
    head.extend(WORKLOADS.iter().map(|workload| workload.model.to_owned()));
    head.extend(row(["memory, GB", "read"]));
    Ok(Drawn {
        head,
        rows,
        reasons: vec![
            "A job's throughput is its batches a second over those without a cache, once every job has had its first epoch; \
             `all` is the mean of the twelve jobs, as in the paper. `read` is of what is served."
                .into(),
            format!(
                "Jobs gain from a cache, all at once: {}. Trainers are as fast beside each other as in table 3, the \
                 first with the batch time of the command line; the paper's storage is unknown.",
                gained.join(", ")
            ),
            "Two chunks are enough for four jobs to read once what each would read: here while they read ahead less than is passing \
             through, an eighth of them; nearly in the paper, whose jobs draw what they fetch at random. Memory beyond two chunks stands still and is hit in every epoch, so a dataset may \
             have a part of it; the paper's has all, two chunks or nothing."
                .into(),
            "`lru` is one for all datasets, as in the paper. Four jobs in orders of their own bring what the others hit, if it is \
             still there when they come to it."
                .into(),
        ],
        plots: vec![(plot.title.clone(), plot.svg())],
        ..Drawn::default()
    })
}

/// The datasets: parts of the trace, which stand for so many bytes.
fn scenarios(scenario: &Scenario) -> Result<Vec<Scenario>> {
    let whole: u64 = WORKLOADS.iter().map(|workload| workload.gigabytes).sum();
    let mut upto = 0;
    let mut first = 0;
    let mut all = Vec::new();
    for workload in &WORKLOADS {
        upto += workload.gigabytes;
        let last = (scenario.samples() as u64 * upto / whole) as usize;
        let samples = last - first;
        if samples == 0 {
            return Err(Error::invalid(format!(
                "the trace has {} samples: three datasets need more",
                scenario.samples()
            )));
        }
        let rows = 0..EPOCHS.min(scenario.epochs());
        let losses = rows.flat_map(|epoch| scenario.trace.row(epoch)[first..last].iter().copied());
        let size = workload.gigabytes * GIGABYTE / samples as u64;
        let sizes = Arc::new(Equal { samples, size });
        let mut one = Scenario::new(workload.model, Trace::new(samples, losses.collect())?, None, sizes)?;
        (one.storage, one.compute) = (scenario.storage, scenario.compute);
        one.compute.seconds_a_batch *= WORKLOADS[0].speed / workload.speed;
        all.push(one);
        first = last;
    }
    Ok(all)
}

/// What each dataset has of the memory.
fn parts(scenarios: &[Scenario], memory: Memory, gains: &[f64]) -> Vec<u64> {
    let ask = |(scenario, &gain): (&Scenario, &f64)| {
        let benefit = matches!(memory, Memory::Gain(_)).then_some(gain);
        Ask::of(
            "quiver",
            scenario.bytes,
            (0..JOBS).map(|_| Wish { bytes: scenario.bytes, benefit, gpus: GPUS }),
        )
    };
    let asks: Vec<Ask> = scenarios.iter().zip(gains).map(ask).collect();
    match memory {
        Memory::None => vec![0; scenarios.len()],
        Memory::All => scenarios.iter().map(|scenario| scenario.bytes).collect(),
        Memory::Lru(size) => vec![size * GIGABYTE; scenarios.len()],
        Memory::Proportion(size) | Memory::Gain(size) => divide(size * GIGABYTE, &asks),
    }
}

fn ran(scenarios: &[Scenario], memory: Memory, gains: &[f64]) -> Result<Ran> {
    let parts = parts(scenarios, memory, gains);
    let training = |(scenario, part, gain): (&Scenario, u64, f64), seed: u64| {
        let job = Job::new(&memory.pair().parse()?, format!("{part}B"), Amount::Bytes(part), seed)?;
        // An `lru` knows nothing of what jobs gain.
        let benefit = if memory.pair() == "quiver+quiver" { gain } else { f64::from(u16::MAX) };
        let (name, scenario) = (scenario.name.clone(), scenario.clone());
        Ok(Training { name, scenario, job, start: 0.0, benefit: Some(benefit) })
    };
    let mut trainings: Vec<Vec<Training>> = Vec::new();
    for ((scenario, &part), &gain) in scenarios.iter().zip(&parts).zip(gains) {
        let seeds = 0..JOBS;
        trainings.push(seeds.map(|seed| training((scenario, part, gain), seed)).collect::<Result<_>>()?);
    }
    let mut datasets: Vec<Dataset<'_>> =
        trainings.iter().map(|trainings| Dataset::new(trainings)).collect::<Result<_>>()?;
    if let Memory::Lru(size) = memory {
        let sizes: Vec<Arc<dyn Sizes>> = scenarios.iter().map(|one| Arc::clone(&one.sizes)).collect();
        let pool = pooled(policy::find("lru")?, size * GIGABYTE, &sizes);
        datasets = datasets.into_iter().zip(pool).map(|(dataset, part)| dataset.with_policy(part)).collect();
    }
    let mut progress: Vec<Vec<Progress>> =
        trainings.iter().map(|all| all.iter().map(|_| Progress::default()).collect()).collect();
    run_datasets(datasets, Stop::Together, &mut |step| {
        let (dataset, training) = step.training;
        progress[dataset][training].heard(step.trained, step.changes);
    })?;
    let epoch = |scenario: &Scenario| scenario.samples().div_ceil(scenario.compute.batch.max(1));
    let after = |epochs: usize| {
        let each = progress.iter().zip(scenarios);
        let each =
            each.flat_map(|(jobs, scenario)| jobs.iter().map(move |job| job.after(epochs * epoch(scenario))));
        each.fold(0.0, f64::max)
    };
    let (from, until) = (after(1), after(EPOCHS.min(scenarios[0].epochs())));
    let counted: Vec<(f64, f64)> = progress
        .iter()
        .map(|jobs| {
            let sums = jobs.iter().map(|job| job.between(from, until));
            sums.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
        })
        .collect();
    let served: f64 = counted.iter().map(|(batches, _)| batches).sum::<f64>();
    let reads: f64 = counted.iter().map(|(_, reads)| reads).sum();
    let batch = scenarios[0].compute.batch.max(1) as f64;
    let rate = |&(batches, _): &(f64, f64)| batches / JOBS as f64 / (until - from).max(1e-9);
    Ok(Ran { parts, rates: counted.iter().map(rate).collect(), reads: reads / (served * batch).max(1.0) })
}

/// How a job came along: when each of its batches was trained, and the reads until then.
#[derive(Default)]
struct Progress {
    batches: Vec<(f64, u64)>,
    reads: u64,
}

impl Progress {
    fn heard(&mut self, trained: f64, changes: &[Change]) {
        let read =
            |change: &&Change| matches!(change, Change::Decided { outcome, .. } if *outcome != Outcome::Hit);
        self.reads += changes.iter().filter(read).count() as u64;
        if self.batches.last().map_or(trained > 0.0, |(last, _)| *last < trained) {
            self.batches.push((trained, self.reads));
        }
    }

    /// When so many batches were trained.
    fn after(&self, batches: usize) -> f64 {
        self.batches.get(batches.saturating_sub(1)).or(self.batches.last()).map_or(0.0, |(at, _)| *at)
    }

    /// The batches that were trained between two times, and the reads.
    fn between(&self, from: f64, until: f64) -> (f64, f64) {
        let first = self.batches.partition_point(|(at, _)| *at <= from);
        let last = self.batches.partition_point(|(at, _)| *at <= until);
        let reads = |upto: usize| upto.checked_sub(1).map_or(0, |at| self.batches[at].1);
        ((last - first) as f64, (reads(last) - reads(first)) as f64)
    }
}

/// The throughput of all jobs over that without a cache.
fn total(ran: &Ran, none: &Ran) -> f64 {
    ratios(ran, none).sum::<f64>() / ran.rates.len() as f64
}

fn ratios<'a>(ran: &'a Ran, none: &'a Ran) -> impl Iterator<Item = f64> + 'a {
    ran.rates.iter().zip(&none.rates).map(|(rate, without)| rate / without.max(1e-9))
}

fn line(cache: &str, how: &str, paper: &str, ran: &Ran, none: &Ran, divided: bool) -> Vec<String> {
    let factor = |ratio: f64| format!("{ratio:.2} x");
    let mut cells = row([cache, how, paper]);
    cells.push(factor(total(ran, none)));
    cells.extend(ratios(ran, none).map(factor));
    let part = |part: &u64| format!("{:.0}", *part as f64 / GIGABYTE as f64);
    let parts: Vec<String> = ran.parts.iter().map(part).collect();
    cells.push(if divided { parts.join(" + ") } else { "-".into() });
    cells.push(percent(ran.reads));
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_by_gain_beats_one_lru_over_all_at_every_size() {
        let sizes = Arc::new(Equal { samples: 15_500, size: 1000 });
        let trace = Trace::synthetic(15_500, 3, 3).unwrap();
        let mut scenario = Scenario::new("made", trace, None, sizes).unwrap();
        (scenario.compute.batch, scenario.compute.seconds_a_batch) = (8, 0.001);
        scenario.compute.prefetch = 6;
        let drawn = QUIVER_6.draw(&scenario, 2, &|_, _| ()).unwrap();
        let number = |row: usize| -> f64 { drawn.rows[row][3].trim_end_matches(" x").parse().unwrap() };
        assert_eq!(drawn.rows.len(), 11);
        for size in 0..3 {
            let [lru, proportion, gain] = [1, 2, 3].map(|arm| number(3 * size + arm));
            assert!(gain > 1.05 * lru && gain >= proportion, "{}", drawn.text());
        }
        let memory = |row: usize| drawn.rows[row][7].clone();
        assert!(memory(6).starts_with("152 + 30 + 18"), "{}", drawn.text());
    }
}
