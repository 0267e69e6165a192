//! Ways of reading that are compared: each replayed by the objects that servers run, at a size that does not matter.
//!
//! A replay has at most [`SAMPLES`] samples, all of the mean size, and its time is scaled up. Beside it stand what preparing
//! a sample takes in the loader's workers, which a replay leaves out, and that the last batch of an epoch is prepared after
//! it was read. Losses are made up: how a strategy that learns from them behaves depends on those of the training.

use std::sync::Arc;

use hotset_core::Result;
use hotset_core::bytes::{Amount, human};
use hotset_core::sampling::Equal;
use serde::Serialize;

use super::accuracy::{self, Cost};
use super::loader::{self, Way};
use super::{Measured, Rates};
use crate::outcome::Mean;
use crate::replay::{self, Job, Scenario};
use crate::spec::Pair;
use crate::timeline::{Compute, Storage};
use crate::{Trace, grid};

/// The most samples of a replay.
const SAMPLES: u64 = 20_000;
/// The epochs of a replay whose epochs are alike after the first.
const STEADY: usize = 4;
/// The shares of a dataset that a cache is tried with.
const SHARES: [f64; 5] = [10.0, 25.0, 50.0, 75.0, 100.0];
/// Of the memory that is free a cache takes no more: training needs the rest.
const OF_MEMORY: f64 = 0.7;
/// Workers are added up to so many.
const WORKERS: u32 = 32;
/// As much time apart two ways take as long as each other.
pub(super) const ALIKE: f64 = 0.05;
/// Below this share of an epoch neither storage nor preparing costs anything that is worth a change, and no gain is proposed.
pub(super) const WORTH: f64 = 0.10;

/// A way that changes what is trained.
pub(super) struct Lossy {
    pub(super) name: &'static str,
    /// Whether it reads packages.
    packages: bool,
    /// What it does, in a few words.
    does: &'static str,
}

/// Those that are proposed.
pub(super) const LOSSY: [Lossy; 4] = [
    Lossy {
        name: "carousel[fresh=0.25]+carousel",
        packages: false,
        does: "serves a window of samples in rounds, a quarter of them new",
    },
    Lossy {
        name: "carousel[fresh=0.5]+carousel",
        packages: false,
        does: "serves a window of samples in rounds, half of them new",
    },
    Lossy { name: "iis+icache", packages: true, does: "reads easy samples more seldom, and in packages" },
    Lossy { name: "infobatch+minio", packages: false, does: "skips easy samples at random" },
];

/// One way of reading, and what an epoch of it takes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// What to call it.
    pub name: String,
    /// The strategy and the policy; none for PyTorch's loader.
    pub pair: Option<String>,
    /// The cache as it is written in Python.
    pub cache: Option<String>,
    /// The hundredths of the dataset that it holds.
    pub share: f64,
    /// Its bytes, where those of a sample are known.
    pub cache_bytes: Option<u64>,
    /// The workers of the loader.
    pub workers: u32,
    /// Whether samples that are small are packed together.
    pub packages: bool,
    /// Seconds of the first epoch, in which nothing was kept before.
    pub first_epoch: f64,
    /// Seconds of an epoch after that.
    pub epoch: f64,
    /// The share of an epoch as it is now that this saves; negative where it takes longer.
    pub saves: f64,
    /// Whether it trains the same samples in an order as random as before.
    pub lossless: bool,
    /// What it does to training, if it is not.
    pub does: String,
    /// What that cost where it was measured.
    pub costs: Vec<Cost>,
    /// What could not be done as asked.
    pub notes: Vec<String>,
}

/// All of them: those that change nothing first, from the least to the most memory.
pub(super) fn all(measured: &Measured, rates: &Rates) -> Result<Vec<Candidate>> {
    let mut candidates = more_workers(measured, rates);
    let mut wanted = vec![Wanted::lossless(0.0, Some("0B".into()))];
    wanted.extend(caches(measured).into_iter().map(|(share, text)| Wanted::lossless(share, Some(text))));
    // Accuracy was measured with a fifth of the dataset.
    let fifth = 20.0f64.min(largest(measured) * 100.0);
    let text = if fifth < 20.0 { memory_text(measured) } else { "20%".into() };
    wanted.extend(LOSSY.iter().map(|lossy| Wanted {
        pair: lossy.name,
        share: fifth,
        cache: Some(text.clone()),
        // How many samples a package holds depends on their bytes.
        packages: lossy.packages && measured.mean_bytes.is_some(),
        epochs: measured.epochs as usize,
        lossy: Some(lossy),
    }));
    let replayed = grid::each(&wanted, grid::cores(), |wanted| wanted.replay(measured, rates), |_| ())?;
    candidates.extend(replayed);
    Ok(candidates)
}

/// The share of the dataset that there is memory for.
pub(super) fn largest(measured: &Measured) -> f64 {
    measured.bytes().map_or(1.0, |bytes| (measured.memory as f64 * OF_MEMORY / bytes).min(1.0))
}

fn memory_text(measured: &Measured) -> String {
    let bytes = (measured.memory as f64 * OF_MEMORY) as u64;
    // In whole units, so that nothing is promised that is not there.
    let unit = if bytes >= 4 << 30 { 1 << 30 } else { 1 << 20 };
    human(bytes / unit * unit).replace(' ', "")
}

/// Caches that fit: shares of the dataset, and the most there is memory for.
fn caches(measured: &Measured) -> Vec<(f64, String)> {
    let largest = largest(measured);
    let mut caches: Vec<(f64, String)> = SHARES
        .into_iter()
        .filter(|share| *share <= largest * 100.0)
        .map(|share| (share, format!("{share}%")))
        .collect();
    if largest < 1.0 {
        caches.push((largest * 100.0, memory_text(measured)));
    }
    caches
}

/// PyTorch's own loader with more workers, where storage has more to give than those there are ask for.
fn more_workers(measured: &Measured, rates: &Rates) -> Vec<Candidate> {
    let now = measured.loader.workers;
    let of_use = (measured.storage.at_a_time.ceil() as u32).max(measured.loader.cores).min(WORKERS);
    if of_use <= now.max(1) {
        return Vec::new();
    }
    let way = Way { workers: of_use, fetches: true };
    let epoch = loader::epoch(measured, way, measured.computing.unwrap_or(0.0));
    vec![Candidate {
        name: format!("PyTorch's loader with {of_use} workers"),
        pair: None,
        cache: None,
        share: 0.0,
        cache_bytes: None,
        workers: of_use,
        packages: false,
        first_epoch: epoch,
        epoch,
        saves: 1.0 - epoch / rates.epoch,
        lossless: true,
        does: String::new(),
        costs: Vec::new(),
        notes: Vec::new(),
    }]
}

/// A replay to make.
struct Wanted {
    pair: &'static str,
    /// The cache, in hundredths of the dataset.
    share: f64,
    cache: Option<String>,
    packages: bool,
    epochs: usize,
    lossy: Option<&'static Lossy>,
}

impl Wanted {
    fn lossless(share: f64, cache: Option<String>) -> Self {
        Self { pair: "uniform+minio", share, cache, packages: false, epochs: STEADY, lossy: None }
    }

    fn name(&self) -> String {
        match (&self.cache, self.lossy) {
            (_, None) if self.share == 0.0 => "reading ahead alone".into(),
            (Some(cache), None) => format!("`uniform`, {cache} in memory"),
            (Some(cache), Some(lossy)) => format!("`{}`, {cache} in memory", lossy.name),
            (None, _) => self.pair.into(),
        }
    }

    fn replay(&self, measured: &Measured, rates: &Rates) -> Result<Candidate> {
        let samples = measured.samples.min(SAMPLES) as usize;
        // Where bytes are no limit, their number makes no difference.
        let size = measured.mean_bytes.map_or(1 << 10, |mean| (mean.round() as u64).max(1));
        let sizes = Arc::new(Equal { samples, size });
        let trace = Trace::synthetic(samples, self.epochs, 0)?;
        let Measured { storage, loader, .. } = measured;
        // As many at a time as it takes to meet the limit of requests, where there is one.
        let lanes = storage.requests.map_or(storage.at_a_time, |requests| requests * storage.latency);
        let lanes = (lanes.round() as usize).clamp(1, measured.reads);
        let training = measured.computing.unwrap_or(0.0);
        let preparing = measured.prepared_in(loader.workers) / f64::from(loader.workers.max(1));
        let each = if loader.workers == 0 { training + preparing } else { training.max(preparing) };
        let batch = loader.batch.min(samples as u64) as usize;
        let mut scenario = Scenario::new("doctor", trace, None, sizes)?;
        scenario.storage = Storage {
            // A limit of requests that fewer than one at a time meet is a longer latency.
            latency: storage
                .requests
                .map_or(storage.latency, |requests| storage.latency.max(lanes as f64 / requests)),
            bandwidth: storage.bandwidth,
            concurrency: lanes,
        };
        scenario.compute = Compute { seconds_a_batch: each * batch as f64, batch, ..scenario.compute };
        scenario.packages = self.packages.then_some(0);
        let amount = if self.share == 0.0 { Amount::Bytes(0) } else { Amount::Share(self.share.min(100.0)) };
        let job = Job::new(&self.pair.parse::<Pair>()?, self.cache.clone().unwrap_or_default(), amount, 0)?;
        let outcome = replay::run(&scenario, &job)?;

        let scale = measured.samples as f64 / samples as f64;
        let drained = measured.loader.batch.min(measured.samples) as f64
            * if loader.workers == 0 { 0.0 } else { measured.prepared_in(loader.workers) };
        // What a loader takes whose samples are all in memory, by the share that is trained.
        let trained = |mean: &Mean| mean.served / samples as f64;
        let seconds =
            |mean: &Mean| (mean.seconds * scale + drained).max(rates.epoch_from_memory * trained(mean));
        let first = Mean::of_epochs(&outcome, &outcome.epochs[..1]);
        let rest = if self.lossy.is_some() { 1 } else { self.epochs / 2 };
        let steady = Mean::of(&outcome, rest);
        let epoch = seconds(&steady);
        Ok(Candidate {
            name: self.name(),
            pair: Some(self.pair.into()),
            cache: self.cache.clone(),
            share: self.share,
            cache_bytes: measured.bytes().map(|bytes| (bytes * self.share / 100.0) as u64),
            workers: loader.workers,
            packages: self.packages,
            first_epoch: seconds(&first),
            epoch,
            saves: 1.0 - epoch / rates.epoch,
            lossless: self.lossy.is_none(),
            does: self.lossy.map(|lossy| lossy.does.to_owned()).unwrap_or_default(),
            costs: self
                .lossy
                .map(|lossy| accuracy::of(lossy.name, self.cache.as_deref().unwrap_or("20%")))
                .unwrap_or_default(),
            notes: outcome.notes,
        })
    }
}

/// The way to take of those that change nothing: of those that take as long as the fastest, the one with the least
/// memory, and none if none saves anything.
pub(super) fn best(candidates: &[Candidate]) -> Option<usize> {
    let lossless = || candidates.iter().enumerate().filter(|(_, one)| one.lossless);
    let fastest = lossless().map(|(_, one)| one.epoch).fold(f64::INFINITY, f64::min);
    let near = |one: &Candidate| one.epoch <= fastest * (1.0 + ALIKE) && one.saves >= WORTH;
    lossless()
        .filter(|(_, one)| near(one))
        .min_by(|(_, one), (_, other)| one.share.total_cmp(&other.share))
        .map(|(at, _)| at)
}

/// The one that keeps all samples.
pub(super) fn whole(candidates: &[Candidate]) -> Option<usize> {
    candidates.iter().position(|one| one.lossless && one.cache.as_deref() == Some("100%"))
}
