//! One job's run, pure: from reports to plans to decisions to counters.
//!
//! Server and simulator count the same because both go this way, in this order, for each epoch:
//!
//! 1. [`Planner::close`] the epoch before: all its reports are in.
//! 2. [`Planner::reevaluation`] tells whose losses under the current model the next plan needs, if any.
//! 3. [`Planner::plan`] makes the plan, [`JobRun::planned`] puts it in. Where a strategy looks at residents, the epoch
//!    before must be decided to its last slot.
//! 4. [`JobRun::step`] decides slot after slot, in plan order, and counts what the plan asks for.
//! 5. [`Planner::report`] takes losses as they come, by mini-batch.
//!
//! A server keeps the two apart, because a plan takes as long as its dataset is large; [`Run`] is both for a simulator.
//! Every decided slot is exactly one of hit, packed and single. A package read counts as one request, all its
//! samples as reads, and all its bytes, head included. What the packer reads and writes is counted in the epoch in
//! which it packs.

mod epochs;
mod job_run;
mod package_planner;
mod planner;
mod replay;
mod state;

use std::collections::VecDeque;
use std::sync::Arc;

pub use self::job_run::{Change, JobRun, Schedules, TOGETHER};
pub use self::package_planner::{PendingPackage, SavedPacking};
pub use self::planner::{CacheView, LastPlan, PlannedEpoch, Planner, Saved, reports, valid_scores};
pub use self::replay::{Batch, Replay, Trainer};
pub use self::state::{RunState, SavedSchedule};
pub use crate::packages::Packing;
pub use crate::schedule::Outcome;

use crate::cache::Cache;
use crate::counters::Counters;
use crate::importance::{SLICE, Score, Table};
use crate::packages::{Origin, Packages};
use crate::policy::{self, Policy, Sizes};
use crate::sampling::{self, Plan, Rates, Reevaluation, Residents, Strategy};
use crate::schedule::Schedule;
use crate::settings::Values;
use crate::{Error, Id, Result};

/// What a run is made from.
#[derive(Clone)]
pub struct Config {
    /// The strategy's registered name.
    pub strategy: &'static sampling::Entry,
    /// Its settings.
    pub strategy_values: Values,
    /// The policy.
    pub policy: &'static policy::Entry,
    /// Its settings.
    pub policy_values: Values,
    /// The size of every sample.
    pub sizes: Arc<dyn Sizes>,
    /// The bytes of the cache.
    pub capacity: u64,
    /// The seed of all draws.
    pub seed: u64,
    /// The number of epochs, if it is known.
    pub epochs: Option<u64>,
    /// The number of ranks.
    pub world: u32,
    /// Whether plans are padded instead of leaving a remainder out.
    pub pad: bool,
    /// Where packages come from, if there are any.
    pub packages: Option<Origin>,
}

/// What a trainer tells between epochs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inputs<'a> {
    /// Losses under the current model, of those that [`Run::reevaluation`] asked for.
    pub reevaluated: Option<&'a [(Id, f32)]>,
    /// The accuracy after the epoch before.
    pub accuracy: Option<f64>,
    /// How fast the epoch before was.
    pub rates: Option<Rates>,
    /// The order of the epoch, where the strategy [takes one](Strategy::takes_order).
    pub order: Option<&'a [Id]>,
}

/// A slot that was decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// The slot in its plan.
    pub slot: usize,
    /// What it serves.
    pub id: Id,
    /// What it costs.
    pub outcome: Outcome,
    /// The packages that were read right before it.
    pub packages: Vec<u32>,
    /// The bytes that storage delivers for it, packages too; for neighbours that are read together the first has all.
    pub bytes: u64,
}

impl Config {
    /// The policy, empty.
    pub fn policy(&self) -> Box<dyn Policy> {
        (self.policy.build)(policy::Setup {
            capacity: self.capacity,
            sizes: Arc::clone(&self.sizes),
            seed: self.seed,
            values: self.policy_values.clone(),
        })
    }
}

/// What a planner may know of a cache that no other job shares.
pub fn cache_view(policy: &dyn Policy, samples: usize, looks_at_residents: bool) -> CacheView {
    CacheView {
        residents: looks_at_residents.then(|| Residents::of(policy, samples)),
        others_at: None,
        low: policy.low(),
    }
}

/// A planner and the run that its plans drive, as the simulator has them.
pub struct Run {
    config: Config,
    planner: Planner,
    cache: Cache,
    run: JobRun,
    epoch: u64,
    packing: Packing,
    /// Slots of the block being decided that were not handed out.
    decided: VecDeque<Decided>,
    /// What is counted of an epoch that has not begun.
    none: Counters,
}

impl Run {
    /// A run before its first epoch.
    pub fn new(config: Config) -> Result<Self> {
        if config.world == 0 {
            return Err(Error::invalid("`world` is 0: there is at least one rank"));
        }
        let policy = config.policy();
        let planner = Planner::new(config.clone(), policy.takes_packages());
        let mut cache = Cache::new(policy, config.sizes.len());
        let mut run = JobRun::new(Arc::clone(&config.sizes));
        run.join(&mut cache);
        Ok(Self {
            planner,
            cache,
            run,
            config,
            epoch: 0,
            packing: Packing::default(),
            decided: VecDeque::new(),
            none: Counters::default(),
        })
    }

    /// Lets an offline policy see these plans, which must be those this run will make.
    pub fn foresee(&mut self, plans: &[Arc<Plan>]) {
        self.run.foresee(plans);
    }

    /// Whether packages are made; see [`Planner::packs`].
    pub fn packs(&self) -> bool {
        self.planner.packs()
    }

    /// The policy.
    pub fn policy(&self) -> &dyn Policy {
        self.cache.policy()
    }

    /// The strategy.
    pub fn strategy(&self) -> &dyn Strategy {
        self.planner.strategy()
    }

    /// What was reported.
    pub fn table(&self) -> &Table {
        self.planner.table()
    }

    /// The packages that the plan being decided was made from.
    pub fn packages(&self) -> Option<&Packages> {
        self.run.packages(self.epoch).map(|packages| &**packages)
    }

    /// What is packed while the plan being decided is carried out.
    pub fn packing(&self) -> &Packing {
        &self.packing
    }

    /// The counters of the epoch being decided.
    pub fn counters(&self) -> &Counters {
        self.run.tally().epochs().get(&self.epoch).unwrap_or(&self.none)
    }

    /// `epoch` is over: all its reports are in.
    pub fn close(&mut self, epoch: u64) {
        self.planner.close(epoch);
    }

    /// Whose losses under the current model the plan of `epoch` needs.
    pub fn reevaluation(&self, epoch: u64) -> Reevaluation {
        self.planner.reevaluation(epoch)
    }

    /// Makes the plan of `epoch` and begins to decide it.
    pub fn begin(&mut self, epoch: u64, inputs: &Inputs<'_>) -> Arc<Plan> {
        self.reevaluate(epoch);
        let samples = self.config.sizes.len();
        let view = cache_view(self.policy(), samples, self.planner.looks_at_residents());
        let made = self.planner.plan(epoch, self.config.world, inputs, &view);
        made.packing.packages.iter().for_each(|(number, _)| self.planner.written(*number));
        self.run.remove(self.epoch);
        self.decided.clear();
        self.epoch = epoch;
        let schedule = Schedule::new(Arc::clone(&made.plan), samples).with_packages(made.packages);
        self.run.planned(schedule, &made.packing);
        self.run.tally_mut().begun(epoch, made.plan.len());
        self.packing = made.packing;
        made.plan
    }

    /// Reads what must be re-evaluated and is not resident.
    fn reevaluate(&mut self, epoch: u64) {
        match self.planner.reevaluation(epoch) {
            Reevaluation::Nothing => {}
            Reevaluation::All => {
                let ids: Vec<Id> = (0..self.config.sizes.len() as Id).collect();
                let missing = self.cache.look_up_missing(self.run.member(), epoch, &ids);
                missing.into_iter().for_each(|id| self.run.tally_mut().reads_beside(epoch, id));
            }
            Reevaluation::Set(ids) => {
                for slice in residents_first(self.policy(), &ids).chunks(SLICE) {
                    let mut read = Vec::new();
                    self.cache.pin(self.run.member(), epoch, slice, &mut read);
                    read.into_iter().for_each(|id| self.run.tally_mut().reads_beside(epoch, id));
                }
            }
        }
    }

    /// Decides the next slot; nothing when the plan is decided to its end.
    pub fn decide(&mut self) -> Option<Decided> {
        if self.decided.is_empty() {
            let mut changes = Vec::new();
            while self.run.step(&mut self.cache, &mut changes) {}
            let (mut packages, mut extents) = (Vec::new(), 0);
            for change in changes {
                match change {
                    Change::Evicted(_) => {}
                    Change::Loaded { package, .. } => {
                        packages.push(package);
                        extents += self.packages().map_or(0, |all| all.extent(package));
                    }
                    Change::Decided { slot, id, outcome, .. } => {
                        let (packages, bytes) = (std::mem::take(&mut packages), std::mem::take(&mut extents));
                        self.decided.push_back(Decided { slot, id, outcome, packages, bytes });
                    }
                    Change::Requested { slots, bytes, .. } => {
                        let first = slots.into_iter().min();
                        let decided = self.decided.iter_mut().find(|decided| Some(decided.slot) == first);
                        decided.into_iter().for_each(|decided| decided.bytes += bytes);
                    }
                }
            }
        }
        let decided = self.decided.pop_front()?;
        self.run.serve(self.epoch, [decided.slot]);
        Some(decided)
    }

    /// Takes the losses of one mini-batch of `rank`: the slots `position..` of that rank in `epoch`.
    pub fn report(&mut self, epoch: u64, rank_len: usize, position: usize, ids: &[Id], losses: &[f32]) {
        let scores = self.planner.score().of(losses);
        let reports = reports((epoch, rank_len, position), ids, losses, &scores);
        let before = self.planner.table().rejected();
        let mut done = 0;
        while done < reports.len() {
            done += self.planner.report(&reports[done..]);
        }
        let rejected = self.planner.table().rejected() - before;
        self.run.tally_mut().reported(epoch, reports.len() as u64 - rejected, rejected);
        let Some(kind) = self.policy().takes() else { return };
        let own = (kind != self.planner.score()).then(|| Score::of(kind, losses));
        let member = self.run.member();
        valid_scores(ids, own.as_deref().unwrap_or(&scores), |slice| self.cache.scored(member, slice));
    }
}

/// `ids` with those first that are resident, so that none of them leaves for another and must be read again.
pub fn residents_first(policy: &dyn Policy, ids: &[Id]) -> Vec<Id> {
    let (mut ordered, missing): (Vec<Id>, Vec<Id>) = ids.iter().partition(|id| policy.contains(**id));
    ordered.extend(missing);
    ordered
}

#[cfg(test)]
mod draw_stream_tests;
#[cfg(test)]
mod nodes_tests;
#[cfg(test)]
mod sharing_tests;
#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
