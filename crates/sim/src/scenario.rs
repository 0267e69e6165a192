//! What a replay happens in: the losses, the sizes, the storage and the trainer; and what is to be run.

use std::sync::Arc;

use hotset_core::bytes::{Amount, human};
use hotset_core::importance::Table;
use hotset_core::policy::{self, Sizes};
use hotset_core::run::Batch;
use hotset_core::sampling::{self, Plan, Rates, Reevaluation};
use hotset_core::{Error, Id, Result};

use crate::spec::{Named, Pair};
use crate::timeline::{Compute, Storage};
use crate::{Trace, sizes};

/// What all runs share.
#[derive(Clone)]
pub struct Scenario {
    /// The trace's name, for reports.
    pub name: String,
    /// The losses at which samples are trained.
    pub trace: Arc<Trace>,
    /// The losses under the model at the end of each epoch, if they are known.
    pub reevaluated: Option<Arc<Trace>>,
    /// The loss of each sample that no model gets rid of, which `hybrid` subtracts, if it is known: one row.
    pub irreducible: Option<Arc<Trace>>,
    /// The size of every sample.
    pub sizes: Arc<dyn Sizes>,
    /// The bytes of all samples together.
    pub bytes: u64,
    /// The storage.
    pub storage: Storage,
    /// The trainer.
    pub compute: Compute,
    /// Whether plans repeat samples rather than leave a remainder out.
    pub pad: bool,
    /// The least bytes of a package, 0 where they follow the cache; `None`: there are none.
    pub packages: Option<u64>,
}

impl Scenario {
    /// Losses and sizes that belong together, with a storage of 5 ms and 16 requests in flight and a trainer
    /// of 30 ms a batch of 256.
    pub fn new(
        name: impl Into<String>,
        trace: Trace,
        reevaluated: Option<Trace>,
        sizes: Arc<dyn Sizes>,
    ) -> Result<Self> {
        if sizes.len() != trace.samples() {
            return Err(Error::invalid(format!(
                "the trace has {} samples, but there are {} sizes: give the sizes of the dataset that was trained",
                trace.samples(),
                sizes.len()
            )));
        }
        if let Some(other) = &reevaluated
            && (other.samples(), other.epochs()) != (trace.samples(), trace.epochs())
        {
            return Err(Error::invalid(format!(
                "the losses are of {} epochs and {} samples, the re-evaluated ones of {} and {}: name arrays of one run",
                trace.epochs(),
                trace.samples(),
                other.epochs(),
                other.samples()
            )));
        }
        Ok(Self {
            name: name.into(),
            bytes: sizes::total(&*sizes),
            trace: Arc::new(trace),
            reevaluated: reevaluated.map(Arc::new),
            irreducible: None,
            sizes,
            storage: Storage { latency: 0.005, bandwidth: None, concurrency: 16 },
            compute: Compute { seconds_a_batch: 0.030, batch: 256, prefetch: 12, ranks: 1 },
            pad: false,
            packages: None,
        })
    }

    /// The same, with the loss of each sample that no model gets rid of.
    pub fn with_irreducible(mut self, irreducible: Option<Trace>) -> Result<Self> {
        if let Some(given) = &irreducible
            && (given.epochs(), given.samples()) != (1, self.trace.samples())
        {
            return Err(Error::invalid(format!(
                "the irreducible losses are an array of [{}, {}]: give one row of [1, {}], a loss for each sample",
                given.epochs(),
                given.samples(),
                self.trace.samples()
            )));
        }
        self.irreducible = irreducible.map(Arc::new);
        Ok(self)
    }

    /// How many samples there are.
    pub fn samples(&self) -> usize {
        self.trace.samples()
    }

    /// How many epochs are replayed.
    pub fn epochs(&self) -> usize {
        self.trace.epochs()
    }

    /// The same with the first `epochs` alone.
    pub(crate) fn shortened(&self, epochs: usize) -> Result<Self> {
        let first = |trace: &Arc<Trace>| {
            let rows = (0..epochs.min(trace.epochs())).flat_map(|epoch| trace.row(epoch).iter().copied());
            Trace::new(trace.samples(), rows.collect()).map(Arc::new)
        };
        let reevaluated = self.reevaluated.as_ref().map(first).transpose()?;
        Ok(Self { trace: first(&self.trace)?, reevaluated, ..self.clone() })
    }

    /// The losses of the `step`th batch of a rank: not a number where a slot is not trained.
    pub(crate) fn losses(&self, plan: &Plan, rank: u32, step: usize) -> Batch {
        let row = self.trace.row(plan.epoch() as usize);
        let batch = self.compute.batch.max(1);
        let position = step * batch;
        let slots = (position..(position + batch).min(plan.rank_len())).map(|at| plan.slot(rank, at));
        let told = |slot: usize| {
            let id = plan.ids()[slot];
            (id, if plan.weight(slot) > 0.0 { row[id as usize] } else { f32::NAN })
        };
        let (ids, losses) = slots.map(told).unzip();
        Batch { position, ids, losses }
    }

    /// The losses of those asked for under the model at the end of the epoch before: the trace's re-evaluated
    /// ones, or where there are none the last that were reported. Never those at which they are about to be trained,
    /// which no trainer knows yet.
    pub(crate) fn reevaluate(
        &self,
        epoch: u64,
        reevaluation: &Reevaluation,
        reported: &Table,
    ) -> Option<Vec<(Id, f32)>> {
        if *reevaluation == Reevaluation::Nothing {
            return None;
        }
        let known;
        let row = match &self.reevaluated {
            Some(trace) => trace.row(epoch.saturating_sub(1) as usize),
            None => {
                known = reported.newest();
                &known[..]
            }
        };
        let of = |id: Id| Some((id, row[id as usize])).filter(|(_, loss)| !loss.is_nan());
        // What is left of a loss once the part that no model learns is taken off says what is worth training.
        let irreducible = self.irreducible.as_ref().map(|trace| trace.row(0));
        let reduced = |(id, loss): (Id, f32)| (id, loss - irreducible.map_or(0.0, |row| row[id as usize]));
        match reevaluation {
            Reevaluation::Nothing => None,
            Reevaluation::Set(ids) => Some(ids.iter().copied().filter_map(of).map(reduced).collect()),
            Reevaluation::All => Some((0..row.len() as Id).filter_map(of).collect()),
        }
    }

    /// How fast the storage and the trainer are at best, in samples a second.
    pub fn rates(&self) -> Rates {
        let mean = self.bytes as f64 / self.samples() as f64;
        let requests = self.storage.concurrency as f64 / self.storage.latency.max(1e-9);
        let bytes = self.storage.bandwidth.map_or(f64::INFINITY, |bandwidth| bandwidth / mean.max(1.0));
        let batch = self.compute.batch as f64 * f64::from(self.compute.ranks);
        Rates { storage: requests.min(bytes), training: batch / self.compute.seconds_a_batch.max(1e-9) }
    }

    /// Everything that shapes the results, for reports.
    pub fn describe(&self) -> Vec<(String, String)> {
        let Storage { latency, bandwidth, concurrency } = self.storage;
        let Compute { seconds_a_batch, batch, prefetch, ranks } = self.compute;
        let smallest = (0..self.samples()).map(|id| self.sizes.size(id as Id)).min().unwrap_or(0);
        let largest = (0..self.samples()).map(|id| self.sizes.size(id as Id)).max().unwrap_or(0);
        let size = if smallest == largest {
            format!("{smallest} B each")
        } else {
            format!("{} to {} each", human(smallest), human(largest))
        };
        let rows = [
            ("trace", self.name.clone()),
            ("epochs", self.epochs().to_string()),
            ("samples", format!("{}, {size}, {} in all", self.samples(), human(self.bytes))),
            ("latency", format!("{} ms", latency * 1e3)),
            ("bandwidth", bandwidth.map_or("unlimited".into(), |rate| format!("{}/s", human(rate as u64)))),
            ("requests in flight", concurrency.to_string()),
            ("batch", format!("{batch} x {ranks}, {} ms", seconds_a_batch * 1e3)),
            ("read ahead", format!("{prefetch} batches")),
            (
                "packages",
                match self.packages {
                    None => "none".into(),
                    Some(0) => "of 1 MiB, or an eighth of the cache".into(),
                    Some(bytes) => format!("of {}", human(bytes)),
                },
            ),
        ];
        rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// One run to make.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The strategy and its settings.
    pub strategy: Named,
    /// The policy and its settings.
    pub policy: Named,
    /// The cache, as it was typed.
    pub cache: String,
    /// The cache: bytes, or a share of the dataset.
    pub amount: Amount,
    /// The seed of all draws.
    pub seed: u64,
}

impl Job {
    /// A run of `pair`, whose names and settings must exist.
    pub fn new(pair: &Pair, cache: impl Into<String>, amount: Amount, seed: u64) -> Result<Self> {
        let strategy = sampling::find(&pair.strategy.name)?;
        strategy.values(pair.strategy.texts())?;
        if strategy.takes_order() {
            return Err(Error::invalid(format!(
                "strategy `{}` has the order of a trainer's own sampler, which the simulator does not have: choose another \
                 (`hotset strategies` lists them)",
                strategy.name
            )));
        }
        let policy = match &pair.policy {
            Some(policy) => policy.clone(),
            None => {
                Named { name: strategy.policy_for(pair.strategy.texts()).to_owned(), settings: Vec::new() }
            }
        };
        policy::find(&policy.name)?.values(policy.texts())?;
        strategy.check_policy(pair.strategy.texts(), &policy.name)?;
        Ok(Self { strategy: pair.strategy.clone(), policy, cache: cache.into(), amount, seed })
    }
}
