//! One job's run, pure: from reports to plans to decisions to counters.
//!
//! Server and simulator count the same because both go this way, in this order, for each epoch:
//!
//! 1. [`Run::close`] the epoch before: all its reports are in.
//! 2. [`Run::reevaluation`] tells whose losses under the current model the next plan needs, if any.
//! 3. [`Run::begin`] makes the plan and tells the policy its keys. A run whose strategy looks at residents
//!    begins an epoch only once [`Run::decide`] has decided the one before to its last slot.
//! 4. [`Run::decide`] decides slot after slot, in plan order, and counts.
//! 5. [`Run::report`] takes losses as they come, by mini-batch.
//!
//! Every decided slot is exactly one of hit, packed and single. A package read counts as one request, all its
//! samples as reads, and all its bytes, head included. What the packer reads and writes is counted in the epoch in
//! which it packs.

mod counting;
mod decide;
mod packing;
mod planner;

use std::sync::Arc;

pub use self::decide::{Schedules, Step, decide, peek};
pub use self::planner::{Last, Made, Making, Packing, Planner, Saved, Sight, reports, valid_scores};

use crate::counters::Counters;
use crate::importance::{SLICE, Score, Table};
use crate::packages::{Origin, Packages};
use crate::policy::{self, Future, Policy, Sizes, Verdict};
use crate::sampling::{self, Plan, Rates, Reevaluation, Residents, Strategy};
use crate::schedule::{Schedule, State};
use crate::settings::Values;
use crate::{Error, Id, Result};

use self::counting::Tally;

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
}

/// What a slot costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// No read.
    Hit,
    /// Its bytes came in a package.
    Packed,
    /// A read of its own.
    Single,
}

/// A slot that was decided.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decided {
    /// The slot in its plan.
    pub slot: usize,
    /// What it serves.
    pub id: Id,
    /// What it costs.
    pub outcome: Outcome,
    /// Packages that were read right before it.
    pub packages: u32,
    /// The bytes that storage delivered for it, packages too.
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

/// What a planner may know of `policy`.
pub fn sight(policy: &dyn Policy, samples: usize, looks_at_residents: bool) -> Sight {
    Sight { residents: looks_at_residents.then(|| Residents::of(policy, samples)), low: policy.low() }
}

/// See the module's head.
pub struct Run {
    config: Config,
    planner: Planner,
    policy: Box<dyn Policy>,
    schedules: Schedules,
    packing: Packing,
    tally: Tally,
    future: Option<Future>,
    loads: Vec<u32>,
    evicted: Vec<Id>,
}

impl Run {
    /// A run before its first epoch.
    pub fn new(config: Config) -> Result<Self> {
        if config.world == 0 {
            return Err(Error::invalid("`world` is 0: there is at least one rank"));
        }
        let policy = config.policy();
        Ok(Self {
            planner: Planner::new(config.clone(), policy.takes_packages()),
            tally: Tally::new(Arc::clone(&config.sizes)),
            config,
            policy,
            schedules: Schedules::new(),
            packing: Packing::default(),
            future: None,
            loads: Vec::new(),
            evicted: Vec::new(),
        })
    }

    /// Lets an offline policy see these plans, which must be those this run will make.
    pub fn foresee(&mut self, plans: &[Arc<Plan>]) {
        self.future = Some(Future::new(self.config.sizes.len(), plans.iter().map(|plan| &**plan)));
    }

    /// Whether packages are made; see [`Planner::packs`].
    pub fn packs(&self) -> bool {
        self.planner.packs()
    }

    /// The policy.
    pub fn policy(&self) -> &dyn Policy {
        &*self.policy
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
        self.planner.packages().map(|packages| &**packages)
    }

    /// What is packed while the plan being decided is carried out.
    pub fn packing(&self) -> &Packing {
        &self.packing
    }

    /// The counters of the epoch being decided.
    pub fn counters(&self) -> &Counters {
        self.tally.counters()
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
        self.tally.begin();
        self.reevaluate(epoch);
        let samples = self.config.sizes.len();
        let sight = sight(&*self.policy, samples, self.planner.looks_at_residents());
        let made = self.planner.plan(epoch, self.config.world, inputs, &sight);
        self.tally.plan(&made.plan);
        let packages = made.packages.as_ref().map(|(packages, _)| &**packages);
        made.packing.count(packages, &*self.config.sizes, self.tally.counters_mut());
        made.packing.packages.iter().for_each(|(number, _)| self.planner.written(*number));
        self.packing = made.packing;
        let schedule = Schedule::new(Arc::clone(&made.plan), samples).with_packages(made.packages);
        self.schedules.clear();
        self.schedules.insert(epoch, schedule);
        made.plan
    }

    /// Reads whoever must be re-evaluated and is not resident.
    fn reevaluate(&mut self, epoch: u64) {
        match self.planner.reevaluation(epoch) {
            Reevaluation::Nothing => {}
            Reevaluation::All => {
                for id in 0..self.config.sizes.len() as Id {
                    if !self.policy.contains(id) {
                        self.tally.other_read(id);
                    }
                }
            }
            Reevaluation::Set(ids) => {
                for slice in residents_first(&*self.policy, &ids).chunks(SLICE) {
                    let mut read = Vec::new();
                    self.policy.pin(slice, &mut read, &mut self.evicted);
                    read.into_iter().for_each(|id| self.tally.other_read(id));
                    self.evicted.clear();
                }
            }
        }
    }

    /// Decides the next slot; nothing when the plan is decided to its end.
    pub fn decide(&mut self) -> Option<Decided> {
        let step = decide(
            &mut *self.policy,
            &mut self.schedules,
            self.future.as_mut(),
            &mut self.loads,
            &mut self.evicted,
        )?;
        self.evicted.clear();
        let Step { epoch, slot, id, verdict } = step;
        let schedule = self.schedules.get_mut(&epoch)?;
        let packages = self.loads.len() as u32;
        let mut bytes = 0;
        for package in self.loads.drain(..) {
            if let Some(all) = schedule.packages() {
                bytes += all.extent(package);
                self.tally.package(all, package);
            }
        }
        let outcome = match verdict {
            Verdict::Hit => Outcome::Hit,
            Verdict::Packed => Outcome::Packed,
            Verdict::Admitted | Verdict::Bypassed => Outcome::Single,
        };
        schedule.decide(slot, if verdict == Verdict::Hit { State::Hit } else { State::Single });
        let plan = Arc::clone(schedule.plan());
        let fresh = schedule.serve(slot) && !plan.is_silent(slot);
        bytes += self.tally.serve(id, outcome, fresh, plan.is_substituted(slot));
        Some(Decided { slot, id, outcome, packages, bytes })
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
        self.tally.reported(reports.len() as u64 - rejected, rejected);
        let Some(kind) = self.policy.takes() else { return };
        let own = (kind != self.planner.score()).then(|| Score::of(kind, losses));
        valid_scores(ids, own.as_deref().unwrap_or(&scores), |slice| self.policy.scored(slice));
    }
}

/// `ids` with those first that are resident, so that none of them leaves for another and must be read again.
pub fn residents_first(policy: &dyn Policy, ids: &[Id]) -> Vec<Id> {
    let (mut ordered, missing): (Vec<Id>, Vec<Id>) = ids.iter().partition(|id| policy.contains(**id));
    ordered.extend(missing);
    ordered
}

#[cfg(test)]
mod rolling_tests;
#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
