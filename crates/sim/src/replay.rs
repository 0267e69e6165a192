//! One run: a strategy and a policy over all epochs of a trace.
//!
//! Plans, decisions and counts are those of [`hotset_core::run::Run`], which the server goes by too. Here the
//! losses come from the trace, and every request is timed. Reports of a batch reach the run when deciding is
//! as far ahead of training as the trainer reads ahead; only policies that take scores at once can tell.
//!
//! For a policy that needs the future the run is made twice: first with `minio`, for its plans.

use std::sync::Arc;

use hotset_core::packages::Origin;
use hotset_core::run::{Batch, Config, Inputs, Outcome as Cost, Run};
use hotset_core::sampling::{Plan, Reevaluation, RunChoice};
use hotset_core::{Error, Result, policy, sampling};

use crate::arrivals::Arrivals;
use crate::other_reads::OtherReads;
use crate::outcome::{Epoch, Outcome};
pub use crate::scenario::{Job, Scenario};
use crate::timeline::{StorageClock, Timeline};

/// Replays one run.
pub fn run(scenario: &Scenario, job: &Job) -> Result<Outcome> {
    let capacity = job.amount.of(scenario.bytes);
    let offline = policy::find(&job.policy.name)?.offline;
    let packages = scenario.packages.filter(|_| !offline);
    let config = job.config(scenario, capacity, packages)?;
    let (epochs, mut notes) = if offline {
        let blind =
            Config { policy: policy::find("minio")?, policy_values: Default::default(), ..config.clone() };
        let mut plans = Vec::new();
        Replay::new(scenario, Run::new(blind)?).epochs(|plan| {
            plans.push(Arc::clone(plan));
            Ok(())
        })?;
        let mut run = Run::new(config)?;
        run.foresee(&plans);
        let mut foreseen = plans.iter();
        let mut replay = Replay::new(scenario, run);
        let epochs = replay.epochs(|plan| match foreseen.next() {
            Some(other) if other == plan => Ok(()),
            _ => Err(Error::invalid(format!(
                "policy `{}` must know every plan beforehand, but `{}` plans by what is resident: run it with \
                 another policy",
                job.policy, job.strategy
            ))),
        })?;
        (epochs, replay.notes(job))
    } else {
        let mut replay = Replay::new(scenario, Run::new(config)?);
        let epochs = replay.epochs(|_| Ok(()))?;
        (epochs, replay.notes(job))
    };
    if epochs.iter().any(|epoch| epoch.counters.plan.planned == 0) {
        notes.push(format!(
            "some epochs serve nothing: `ranks` is {} for few samples",
            scenario.compute.ranks
        ));
    }
    Ok(Outcome { notes, ..job.outcome(scenario, capacity, epochs) })
}

/// A run on its way.
struct Replay<'a> {
    scenario: &'a Scenario,
    run: Run,
    timeline: Timeline,
    storage: StorageClock,
    /// Whether losses were re-evaluated that the trace does not have.
    without_reevaluated: bool,
    /// Epochs after the first that were a full pass over a cache that stands still.
    still: usize,
}

impl<'a> Replay<'a> {
    fn new(scenario: &'a Scenario, run: Run) -> Self {
        Self {
            scenario,
            run,
            timeline: Timeline::new(scenario.compute, 0.0),
            storage: StorageClock::new(scenario.storage),
            without_reevaluated: false,
            still: 0,
        }
    }

    /// All epochs; `planned` sees each plan before it is decided.
    fn epochs(&mut self, mut planned: impl FnMut(&Arc<Plan>) -> Result<()>) -> Result<Vec<Epoch>> {
        let mut epochs = Vec::with_capacity(self.scenario.epochs());
        for epoch in 0..self.scenario.epochs() as u64 {
            if let Some(before) = epoch.checked_sub(1) {
                self.run.close(before);
            }
            let reevaluation = self.run.reevaluation(epoch);
            self.timeline.begin_epoch(reevaluation == Reevaluation::Nothing);
            let reevaluated = self.scenario.reevaluate(epoch, &reevaluation, self.run.table());
            let inputs = Inputs {
                reevaluated: reevaluated.as_deref(),
                accuracy: None,
                rates: Some(self.scenario.rates()),
                order: None,
            };
            let plan = self.run.begin(epoch, &inputs);
            self.without_reevaluated |= reevaluated.is_some() && self.scenario.reevaluated.is_none();
            let stands = self.run.strategy().notes().contains(&("still", 1.0));
            self.still += usize::from(epoch > 0 && stands);
            planned(&plan)?;
            epochs.push(self.epoch(&plan, reevaluated.map_or(0, |losses| losses.len())));
        }
        Ok(epochs)
    }

    /// What could not be done as asked, once the run is over.
    fn notes(&self, job: &Job) -> Vec<String> {
        let mut notes = Vec::new();
        let by_runs = sampling::asks_for_runs(job.strategy.texts());
        if by_runs && !self.run.packs() {
            let capacity = job.amount.of(self.scenario.bytes);
            if let Ok(Some(RunChoice::Exact(why))) =
                job.run_choice(self.scenario, capacity, self.scenario.packages)
            {
                notes.push(format!("`{}` at {}: {why}", job.strategy, job.cache));
            }
        } else if self.scenario.packages.is_some() && !self.run.packs() {
            let reason = if policy::find(&job.policy.name).is_ok_and(|policy| policy.offline)
                || !self.run.policy().takes_packages()
            {
                format!("policy `{}` has no region for them", job.policy.name)
            } else if !self.run.strategy().looks_at_residents(true) {
                format!("plans of `{}` do not use them", job.strategy)
            } else {
                format!("a cache of {} is too small for them", job.cache)
            };
            notes.push(format!("`packages` do nothing for `{}`+`{}`: {reason}", job.strategy, job.policy));
        }
        if self.without_reevaluated {
            notes.push(format!(
                "the trace has no losses under the current model (`reevaluated`): `{}` re-evaluates to the last \
                 loss known before each plan",
                job.strategy
            ));
        }
        if self.still > 0 {
            notes.push(format!(
                "`{}` at {} is `uniform` over a static cache in {} of {} epochs: storage can deliver all that such \
                 a cache leaves to be read; `fresh` asks for less",
                job.strategy,
                job.cache,
                self.still + 1,
                self.scenario.epochs()
            ));
        }
        notes.extend(
            self.run.strategy().remarks().into_iter().filter(|remark| remark.warns).map(|remark| remark.text),
        );
        notes
    }

    fn epoch(&mut self, plan: &Plan, evaluated: usize) -> Epoch {
        let mut other_reads = OtherReads::new(self.run.counters(), self.run.packing(), plan.len());
        if evaluated > 0 {
            self.timeline.evaluate(&mut self.storage, other_reads.evaluation(), evaluated);
        }
        let mut arrivals = Arrivals::new();
        let (batch, world) = (self.scenario.compute.batch, plan.world() as usize);
        let mut trained = 0;
        while let Some(decided) = self.run.decide() {
            let (storage, earliest) = (&mut self.storage, self.timeline.earliest());
            let mut request = |bytes| storage.request(bytes, earliest);
            let packages = self.run.packages();
            for &package in &decided.packages {
                arrivals.come(package, request(packages.map_or(0, |packages| packages.extent(package))));
            }
            other_reads.work(decided.slot).for_each(|bytes| {
                request(bytes);
            });
            let ready = match decided.outcome {
                // A run that is alone decides all its slots itself.
                Cost::Hit | Cost::Elsewhere => 0,
                Cost::Single => request(self.scenario.sizes.size(decided.id)),
                Cost::Packed => arrivals.ready(decided.id, packages),
            };
            self.timeline.serve(ready, plan.weight(decided.slot) > 0.0);
            if (decided.slot + 1) % (batch * world) == 0 {
                let decided = (decided.slot + 1) / (batch * world);
                while trained + self.scenario.compute.prefetch < decided {
                    self.report(plan, trained);
                    trained += 1;
                }
            }
        }
        while trained * batch < plan.rank_len() {
            self.report(plan, trained);
            trained += 1;
        }
        let time = self.timeline.end_epoch();
        let mut counters = self.run.counters().clone();
        (counters.clock.late, counters.waits) = (time.late, time.waits.clone());
        // What is not a number in a trace was not trained, and what has weight 0 is not: neither was reported.
        counters.clock.rejected_scores = 0;
        Epoch { counters, time }
    }

    /// Reports the batch `step` of every rank.
    fn report(&mut self, plan: &Plan, step: usize) {
        for rank in 0..plan.world() {
            let Batch { position, ids, losses } = self.scenario.losses(plan, rank, step);
            self.run.report(plan.epoch(), plan.rank_len(), position, &ids, &losses);
        }
    }
}

impl Job {
    pub(crate) fn config(&self, scenario: &Scenario, capacity: u64, package: Option<u64>) -> Result<Config> {
        let (strategy, policy) = (sampling::find(&self.strategy.name)?, policy::find(&self.policy.name)?);
        let values = strategy.values(self.strategy.texts())?;
        let packages = match self.run_choice(scenario, capacity, package)? {
            Some(RunChoice::Runs(runs)) => Some(Origin::Given(runs)),
            Some(RunChoice::Exact(_)) => None,
            None => package.map(Origin::Made),
        };
        Ok(Config {
            strategy,
            strategy_values: values,
            policy,
            policy_values: policy.values(self.policy.texts())?,
            sizes: Arc::clone(&scenario.sizes),
            capacity,
            seed: self.seed,
            epochs: Some(scenario.epochs() as u64),
            world: scenario.compute.ranks,
            pad: scenario.pad,
            packages,
        })
    }

    /// The runs that its plans are made of, where it asks for plans by runs.
    fn run_choice(
        &self,
        scenario: &Scenario,
        capacity: u64,
        package: Option<u64>,
    ) -> Result<Option<RunChoice>> {
        let values = sampling::find(&self.strategy.name)?.values(self.strategy.texts())?;
        if sampling::asks_for_runs(values.iter()) && !scenario.sizes.has_neighbours() {
            return Err(Error::invalid(format!(
                "`{}` plans by runs of shards: say how large shards are with `shards`, like `64MiB`",
                self.strategy
            )));
        }
        let bytes = (capacity.min(scenario.bytes), package.unwrap_or(0));
        RunChoice::of(&values, &scenario.sizes, bytes, self.seed)
    }

    /// What came of it, with nothing to note.
    pub(crate) fn outcome(&self, scenario: &Scenario, capacity: u64, epochs: Vec<Epoch>) -> Outcome {
        Outcome {
            strategy: self.strategy.to_string(),
            policy: self.policy.to_string(),
            cache: self.cache.clone(),
            capacity,
            seed: self.seed,
            samples: scenario.samples(),
            bytes: scenario.bytes,
            epochs,
            notes: Vec::new(),
        }
    }
}
