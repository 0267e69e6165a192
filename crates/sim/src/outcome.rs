//! What came of a run, epoch by epoch, and its mean over the epochs that count.

use hotset_core::counters::Counters;
use serde::Serialize;

use crate::timeline::EpochTime;

/// One epoch of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Epoch {
    /// What was counted.
    pub counters: Counters,
    /// What the models say it took.
    pub time: EpochTime,
}

/// One run of a strategy and a policy at one cache size from one seed.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The strategy and its settings.
    pub strategy: String,
    /// The policy and its settings.
    pub policy: String,
    /// The cache as it was asked for.
    pub cache: String,
    /// The cache in bytes.
    pub capacity: u64,
    /// The seed of all draws.
    pub seed: u64,
    /// Samples of the dataset.
    pub samples: usize,
    /// Bytes of the dataset.
    pub bytes: u64,
    /// Every epoch, the first one first.
    pub epochs: Vec<Epoch>,
    /// What this run could not do as asked, for people.
    pub notes: Vec<String>,
}

/// The means of an epoch over some epochs, and over seeds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Mean {
    /// Servings.
    pub served: f64,
    /// Servings without a storage read.
    pub hit: f64,
    /// Servings whose bytes came in a package.
    pub packed: f64,
    /// Servings with a read of their own.
    pub single: f64,
    /// Slots in which another id than the selected one is served.
    pub substituted: f64,
    /// Distinct ids served, as a share of the dataset.
    pub coverage: f64,
    /// Samples fetched from storage.
    pub storage_reads: f64,
    /// Requests made to storage.
    pub storage_requests: f64,
    /// Bytes from storage.
    pub storage_bytes: f64,
    /// The share of the bytes of packages that were read and not served.
    pub package_waste: f64,
    /// Modelled seconds.
    pub seconds: f64,
    /// Modelled seconds without data to compute on.
    pub wait: f64,
    /// Servings not there when they were asked for.
    pub late: f64,
}

impl Mean {
    /// Of the epochs from `first` on; of the last one where there are fewer.
    pub fn of(outcome: &Outcome, first: usize) -> Self {
        let first = first.min(outcome.epochs.len().saturating_sub(1));
        Self::of_epochs(outcome, &outcome.epochs[first..])
    }

    /// Of these epochs of `outcome`.
    pub fn of_epochs(outcome: &Outcome, epochs: &[Epoch]) -> Self {
        let samples = outcome.samples.max(1) as f64;
        let each = epochs.iter().map(|Epoch { counters, time }| Self {
            served: counters.served() as f64,
            hit: counters.plan.hit as f64,
            packed: counters.plan.packed as f64,
            single: counters.plan.single as f64,
            substituted: counters.plan.substituted as f64,
            coverage: counters.plan.distinct as f64 / samples,
            storage_reads: counters.plan.storage_reads as f64,
            storage_requests: counters.plan.storage_requests as f64,
            storage_bytes: counters.plan.storage_bytes as f64,
            package_waste: counters.package_waste(),
            seconds: time.seconds,
            wait: time.wait,
            late: time.late as f64,
        });
        Self::over(each)
    }

    /// The mean of several.
    pub fn over(all: impl IntoIterator<Item = Self>) -> Self {
        let (mut sum, mut count) = (Self::default(), 0.0);
        for one in all {
            count += 1.0;
            sum.each(one, |sum, value| sum + value);
        }
        sum.each(Self::default(), |sum, _| sum / f64::max(count, 1.0));
        sum
    }

    fn each(&mut self, other: Self, with: impl Fn(f64, f64) -> f64) {
        for (field, value) in [
            (&mut self.served, other.served),
            (&mut self.hit, other.hit),
            (&mut self.packed, other.packed),
            (&mut self.single, other.single),
            (&mut self.substituted, other.substituted),
            (&mut self.coverage, other.coverage),
            (&mut self.storage_reads, other.storage_reads),
            (&mut self.storage_requests, other.storage_requests),
            (&mut self.storage_bytes, other.storage_bytes),
            (&mut self.package_waste, other.package_waste),
            (&mut self.seconds, other.seconds),
            (&mut self.wait, other.wait),
            (&mut self.late, other.late),
        ] {
            *field = with(*field, value);
        }
    }

    /// The share of servings that hit.
    pub fn hit_ratio(&self) -> f64 {
        if self.served > 0.0 { self.hit / self.served } else { 0.0 }
    }

    /// The papers' hit ratio, which counts what came in packages too.
    pub fn papers_hit_ratio(&self) -> f64 {
        if self.served > 0.0 { (self.hit + self.packed) / self.served } else { 0.0 }
    }
}

/// A strategy and a policy at one cache size: the mean over its seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The strategy and its settings.
    pub strategy: String,
    /// The policy and its settings.
    pub policy: String,
    /// The cache as it was asked for.
    pub cache: String,
    /// The cache in bytes.
    pub capacity: u64,
    /// How many seeds there were.
    pub seeds: usize,
    /// The mean.
    pub mean: Mean,
    /// The fewest and the most reads an epoch that a seed had.
    pub reads_range: (f64, f64),
}

impl Row {
    /// The pair's name.
    pub fn pair(&self) -> String {
        format!("{}+{}", self.strategy, self.policy)
    }
}

/// One row for each pair and cache size, in the order of the runs; means from epoch `first` on.
pub fn rows(outcomes: &[Outcome], first: usize) -> Vec<Row> {
    let mut rows: Vec<(Row, Vec<Mean>)> = Vec::new();
    for outcome in outcomes {
        let mean = Mean::of(outcome, first);
        let same = |row: &Row| {
            row.strategy == outcome.strategy && row.policy == outcome.policy && row.cache == outcome.cache
        };
        match rows.iter_mut().find(|(row, _)| same(row)) {
            Some((_, means)) => means.push(mean),
            None => rows.push((
                Row {
                    strategy: outcome.strategy.clone(),
                    policy: outcome.policy.clone(),
                    cache: outcome.cache.clone(),
                    capacity: outcome.capacity,
                    seeds: 0,
                    mean,
                    reads_range: (0.0, 0.0),
                },
                vec![mean],
            )),
        }
    }
    rows.into_iter()
        .map(|(mut row, means)| {
            let reads = || means.iter().map(|mean| mean.storage_reads);
            row.seeds = means.len();
            row.reads_range = (reads().fold(f64::INFINITY, f64::min), reads().fold(0.0, f64::max));
            row.mean = Mean::over(means);
            row
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use hotset_core::counters::PlanCounters;

    use super::*;

    fn outcome(seed: u64, hits: &[u64]) -> Outcome {
        let epoch = |&hit: &u64| Epoch {
            counters: Counters {
                plan: PlanCounters {
                    hit,
                    packed: 10,
                    single: 90 - hit,
                    storage_reads: 90 - hit,
                    ..PlanCounters::default()
                },
                ..Counters::default()
            },
            time: EpochTime { seconds: 2.0, ..EpochTime::default() },
        };
        Outcome {
            strategy: "iis".into(),
            policy: "lru".into(),
            cache: "20%".into(),
            capacity: 20,
            seed,
            samples: 100,
            bytes: 100,
            epochs: hits.iter().map(epoch).collect(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn means_are_of_the_epochs_that_count_and_of_all_seeds() {
        let rows = rows(&[outcome(0, &[0, 20, 40]), outcome(1, &[0, 10, 30])], 1);
        assert_eq!(rows.len(), 1);
        let row = &rows[0];
        assert_eq!((row.seeds, row.mean.hit, row.reads_range), (2, 25.0, (60.0, 70.0)));
        assert!((row.mean.hit_ratio() - 0.25).abs() < 1e-12);
        assert!((row.mean.papers_hit_ratio() - 0.35).abs() < 1e-12);
        assert!((row.mean.seconds - 2.0).abs() < 1e-12);
    }

    #[test]
    fn a_run_shorter_than_asked_counts_its_last_epoch() {
        assert!((Mean::of(&outcome(0, &[0, 20]), 9).hit - 20.0).abs() < 1e-12);
        assert_eq!(Mean::of(&Outcome { epochs: Vec::new(), ..outcome(0, &[]) }, 3), Mean::default());
    }
}
