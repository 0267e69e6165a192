//! The verdict: what a training waits for, which way to take, and the sentences that say so.

use hotset_core::Result;
use serde::Serialize;

use super::candidates::{self, Candidate, WORTH};
use super::loader::{self, Way};
use super::{Measured, words};

/// What limits a training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bottleneck {
    /// Storage answers no more requests a second.
    Requests,
    /// Storage gives no more bytes a second.
    Bytes,
    /// Storage has more to give than the loader asks for.
    Waiting,
    /// Decoding and transforms.
    Preparing,
    /// Training itself.
    Computing,
    /// Storage, of a dataset so small that any memory holds it.
    Tiny,
}

impl Bottleneck {
    /// Whether reading otherwise can help.
    pub fn is_storage(self) -> bool {
        matches!(self, Self::Requests | Self::Bytes | Self::Waiting | Self::Tiny)
    }
}

/// Samples a second of each stage alone, as DS-Analyzer compares them, and the epochs they make.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rates {
    /// Fetched from storage by the readers there are.
    pub fetching: f64,
    /// Fetched by as many readers as are of use.
    pub fetching_at_most: Option<f64>,
    /// Fetched and prepared, as the loader does.
    pub fetching_and_preparing: f64,
    /// Prepared from memory; `None`: not measured.
    pub preparing: Option<f64>,
    /// Trained from memory; `None`: not known.
    pub computing: Option<f64>,
    /// Seconds of an epoch as it is.
    pub epoch: f64,
    /// Seconds of one whose samples are all in memory.
    pub epoch_from_memory: f64,
    /// Seconds of one whose batches are all ready.
    pub epoch_of_training: f64,
}

/// What each stage costs, as shares of an epoch as it is; together they are 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Shares {
    /// Storage.
    pub storage: f64,
    /// Decoding and transforms.
    pub preparing: f64,
    /// Workers that start and end.
    pub starting: f64,
    /// Training.
    pub computing: f64,
}

/// A verdict with its reasons.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diagnosis {
    /// What was measured.
    pub measured: Measured,
    /// What limits the training.
    pub bottleneck: Bottleneck,
    /// The verdict in a sentence or two.
    pub verdict: String,
    /// Rates of each stage.
    pub rates: Rates,
    /// What each costs.
    pub shares: Shares,
    /// Whether that holds only for a training that takes more than `rates` says: its own rate is not known.
    pub conditional: bool,
    /// Why, in sentences.
    pub reasons: Vec<String>,
    /// Ways of reading and what they save, those that change nothing first.
    pub candidates: Vec<Candidate>,
    /// Which of them to take.
    pub best: Option<usize>,
    /// The lines of Python for it.
    pub paste: Option<String>,
}

impl Diagnosis {
    /// Whether storage costs enough that reading otherwise is worth a look, even where preparing costs more.
    pub fn storage_matters(&self) -> bool {
        self.bottleneck.is_storage() || self.shares.storage >= WORTH
    }
}

/// A dataset of no more bytes is tiny, if it is also read within [`SOON`] seconds.
const TINY: f64 = (64 << 20) as f64;
const SOON: f64 = 60.0;
/// Storage gives a loader so much less than it could that asking for more at a time is the cure.
const UNASKED: f64 = 0.7;

/// What was measured, judged.
pub fn diagnose(measured: &Measured) -> Result<Diagnosis> {
    measured.check()?;
    let rates = rates(measured);
    let shares = shares(&rates, measured.starting);
    let bottleneck = bottleneck(measured, &rates, &shares);
    let candidates = candidates::all(measured, &rates)?;
    let best = match bottleneck {
        Bottleneck::Tiny => candidates::whole(&candidates),
        _ => candidates::best(&candidates).filter(|_| bottleneck.is_storage() || shares.storage >= WORTH),
    };
    let mut diagnosis = Diagnosis {
        measured: measured.clone(),
        bottleneck,
        verdict: String::new(),
        rates,
        shares,
        conditional: measured.computing.is_none(),
        reasons: Vec::new(),
        candidates,
        best,
        paste: None,
    };
    diagnosis.verdict = words::verdict(&diagnosis);
    diagnosis.reasons = words::reasons(&diagnosis);
    diagnosis.paste = words::paste(&diagnosis);
    Ok(diagnosis)
}

fn rates(measured: &Measured) -> Rates {
    let workers = measured.loader.workers;
    let computing = measured.computing.unwrap_or(0.0);
    let epoch = |fetches, computing| loader::epoch(measured, Way { workers, fetches }, computing);
    let readers = f64::from(workers.max(1));
    let preparing = Some(measured.prepared_in(workers)).filter(|seconds| *seconds > 0.0);
    Rates {
        fetching: measured.fetched_by(readers),
        fetching_at_most: Some(measured.most()).filter(|rate| rate.is_finite()),
        fetching_and_preparing: measured
            .loaded
            .unwrap_or(measured.samples as f64 / epoch(true, 0.0).max(1e-9)),
        preparing: preparing.map(|seconds| readers / seconds),
        computing: measured.computing.filter(|seconds| *seconds > 0.0).map(|seconds| 1.0 / seconds),
        epoch: epoch(true, computing),
        epoch_from_memory: epoch(false, computing),
        epoch_of_training: measured.samples as f64 * computing,
    }
}

fn shares(rates: &Rates, starting: f64) -> Shares {
    let Rates { epoch, epoch_from_memory, epoch_of_training, .. } = *rates;
    let all = epoch.max(1e-9);
    Shares {
        storage: ((epoch - epoch_from_memory) / all).max(0.0),
        preparing: ((epoch_from_memory - epoch_of_training - starting) / all).max(0.0),
        starting: starting / all,
        computing: (epoch_of_training / all).min(1.0),
    }
}

fn bottleneck(measured: &Measured, rates: &Rates, shares: &Shares) -> Bottleneck {
    if shares.storage < WORTH || shares.storage < shares.preparing {
        // The first batches of an epoch are prepared before any is trained: a little is always lost to that.
        return if shares.preparing < WORTH && measured.computing.is_some() {
            Bottleneck::Computing
        } else {
            Bottleneck::Preparing
        };
    }
    let once = measured.samples as f64 / measured.most().min(measured.fetched_by(measured.reads as f64));
    if measured.complete && measured.bytes().is_some_and(|bytes| bytes <= TINY) && once <= SOON {
        return Bottleneck::Tiny;
    }
    if rates.fetching < UNASKED * measured.most().min(measured.fetched_by(measured.storage.at_a_time)) {
        return Bottleneck::Waiting;
    }
    let requests = measured.storage.requests.unwrap_or(f64::INFINITY);
    if measured.by_bytes() < requests { Bottleneck::Bytes } else { Bottleneck::Requests }
}
