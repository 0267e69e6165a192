//! What was measured of a training: the input of a verdict, as JSON brings it from Python too.

use hotset_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// What was measured. Times are seconds, rates samples a second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// What it is of, for people.
    pub name: String,
    /// How many samples there are; where the listing did not end, how many were seen.
    pub samples: u64,
    /// Whether that is all of them.
    pub complete: bool,
    /// The mean bytes of a sample; `None`: not known, so that caches are shares of the dataset whatever memory there is.
    pub mean_bytes: Option<f64>,
    /// How fast storage is.
    pub storage: Storage,
    /// What one core takes to decode and transform a sample; `None`: not measured.
    pub preparing: Option<f64>,
    /// Whether that is decoding alone, without the transforms of a training.
    #[serde(default)]
    pub decoding_only: bool,
    /// What training on a sample takes, its share of a batch's step; `None`: not known.
    pub computing: Option<f64>,
    /// Samples a second that the loader gave when nothing was trained; `None`: it was not run.
    #[serde(default)]
    pub loaded: Option<f64>,
    /// What the loader takes for an epoch besides its batches: workers that start and end.
    #[serde(default)]
    pub starting: f64,
    /// How samples are loaded now.
    pub loader: Loader,
    /// The bytes of memory that a cache may take.
    pub memory: u64,
    /// The bytes that are free on a local disk; `None`: not looked at.
    #[serde(default)]
    pub disk: Option<u64>,
    /// How many reads Hotset's server makes at a time.
    pub reads: usize,
    /// How many epochs are trained, over which strategies that learn from losses are compared.
    pub epochs: u32,
    /// The dataset in Python, without its closing bracket: `hotset.ImageFolder("/data/train"`.
    pub opening: Option<String>,
    /// Whether samples are the loader's own Hotset dataset already.
    #[serde(default)]
    pub hotset: bool,
    /// What is to be known of these figures.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// How fast storage is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// From a request to its first byte, on average.
    pub latency: f64,
    /// Requests a second, however many are made at a time; `None`: no limit was met.
    pub requests: Option<f64>,
    /// Bytes a second; `None`: no limit was met.
    pub bandwidth: Option<f64>,
    /// As many at a time as were tried or were of use.
    pub at_a_time: f64,
}

/// How samples are loaded now.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loader {
    /// Samples in a batch.
    pub batch: u64,
    /// Worker processes; 0: the training process loads.
    pub workers: u32,
    /// Cores for them.
    pub cores: u32,
}

/// More workers than that are a slip.
pub const MOST_WORKERS: u32 = 4_096;

impl Measured {
    /// Refuses figures that no measurement gives, naming the field.
    pub fn check(&self) -> Result<()> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let not_negative = |value: f64| value.is_finite() && value >= 0.0;
        let fine = [
            ("samples", self.samples > 0),
            ("mean_bytes", self.mean_bytes.map_or(self.storage.bandwidth.is_none(), positive)),
            ("storage.latency", not_negative(self.storage.latency)),
            ("storage.requests", self.storage.requests.is_none_or(positive)),
            ("storage.bandwidth", self.storage.bandwidth.is_none_or(positive)),
            ("storage.at_a_time", self.storage.at_a_time.is_finite() && self.storage.at_a_time >= 1.0),
            ("preparing", self.preparing.is_none_or(not_negative)),
            ("computing", self.computing.is_none_or(not_negative)),
            ("loaded", self.loaded.is_none_or(positive)),
            ("starting", not_negative(self.starting)),
            ("loader.batch", self.loader.batch > 0),
            ("loader.workers", self.loader.workers <= MOST_WORKERS),
            ("loader.cores", self.loader.cores > 0),
            ("reads", self.reads > 0),
            ("epochs", self.epochs > 0),
        ];
        match fine.into_iter().find(|(_, fine)| !fine) {
            None => Ok(()),
            Some((name, _)) => {
                Err(Error::invalid(format!("`{name}` of what was measured is out of its range")))
            }
        }
    }

    /// The bytes of all samples, if those of one are known.
    pub fn bytes(&self) -> Option<f64> {
        self.mean_bytes.map(|mean| self.samples as f64 * mean)
    }

    /// Samples a second that the bandwidth allows.
    pub(super) fn by_bytes(&self) -> f64 {
        let rate = self.storage.bandwidth.zip(self.mean_bytes).map(|(bandwidth, mean)| bandwidth / mean);
        rate.unwrap_or(f64::INFINITY)
    }

    /// What one reader waits for a sample when there is no other.
    pub(super) fn fetching(&self) -> f64 {
        self.storage.latency + 1.0 / self.by_bytes()
    }

    /// Samples a second that storage gives to any number of readers.
    pub(super) fn most(&self) -> f64 {
        self.storage.requests.unwrap_or(f64::INFINITY).min(self.by_bytes())
    }

    /// Samples a second that so many readers get.
    pub(super) fn fetched_by(&self, readers: f64) -> f64 {
        (readers.max(1.0) / self.fetching().max(1e-9)).min(self.most())
    }

    /// What a worker takes to prepare a sample beside the others, or the trainer without any: cores are shared.
    pub(super) fn prepared_in(&self, workers: u32) -> f64 {
        self.crowded(workers) * self.pace()
    }

    /// What a worker takes for a sample, fetched and prepared, as a model of it has it.
    pub(super) fn made_in(&self, workers: u32) -> f64 {
        (self.fetching() + self.crowded(workers)).max(f64::from(workers.max(1)) / self.most())
    }

    fn crowded(&self, workers: u32) -> f64 {
        let crowd = f64::from(workers) / f64::from(self.loader.cores);
        self.preparing.unwrap_or(0.0) * crowd.max(1.0)
    }

    /// How many times as long as the model says the loader took: other work on the machine, and what no model knows.
    /// It is taken for the same in fetching and in preparing.
    pub(super) fn pace(&self) -> f64 {
        let workers = self.loader.workers;
        let made = self.made_in(workers);
        let seen = self.loaded.map(|rate| f64::from(workers.max(1)) / rate);
        seen.filter(|_| made > 0.0).map_or(1.0, |seen| seen / made)
    }
}
