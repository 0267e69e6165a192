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
//! samples as reads, and all its bytes. What the packer reads and writes is counted in the epoch in which it
//! packs; its packages are complete when the next plan is made.

mod counting;
mod packing;

use std::sync::Arc;

use crate::counters::Counters;
use crate::importance::{Report, SLICE, Score, Table, cut};
use crate::packages::{Packages, Packer};
use crate::policy::{self, Begin, Due, Future, Policy, Sizes, Verdict};
use crate::sampling::{self, Draw, Event, Plan, Rates, Reevaluation, Residents, Strategy};
use crate::schedule::{Schedule, State};
use crate::settings::Values;
use crate::{Error, Id, Result};

use self::counting::Tally;
use self::packing::Work;

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
    /// The least bytes of a package, where there is a place for packages.
    pub package: Option<u64>,
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

/// See the module's head.
pub struct Run {
    config: Config,
    strategy: Box<dyn Strategy>,
    policy: Box<dyn Policy>,
    table: Table,
    schedule: Option<Schedule>,
    /// The event of the plan that comes next.
    event: usize,
    left_out: Option<Vec<Id>>,
    packages: Option<Packages>,
    packer: Option<Packer>,
    work: Work,
    tally: Tally,
    future: Option<Future>,
    evicted: Vec<Id>,
}

impl Run {
    /// A run before its first epoch.
    pub fn new(config: Config) -> Result<Self> {
        if config.world == 0 {
            return Err(Error::invalid("`world` is 0: there is at least one rank"));
        }
        let samples = config.sizes.len();
        let strategy = (config.strategy.build)(sampling::Setup {
            samples,
            seed: config.seed,
            sizes: Arc::clone(&config.sizes),
            capacity: config.capacity,
            epochs: config.epochs,
            values: config.strategy_values.clone(),
        });
        let policy = (config.policy.build)(policy::Setup {
            capacity: config.capacity,
            sizes: Arc::clone(&config.sizes),
            seed: config.seed,
            values: config.policy_values.clone(),
        });
        let packer = config
            .package
            .filter(|_| policy.takes_packages() && strategy.needs_losses())
            .and_then(|bytes| Packer::new(bytes, config.capacity, config.seed));
        Ok(Self {
            packages: packer.as_ref().map(|_| Packages::new(samples)),
            table: Table::new(samples),
            tally: Tally::new(Arc::clone(&config.sizes)),
            config,
            strategy,
            policy,
            schedule: None,
            event: 0,
            left_out: None,
            packer,
            work: Work::default(),
            future: None,
            evicted: Vec::new(),
        })
    }

    /// Lets an offline policy see these plans, which must be those this run will make.
    pub fn foresee(&mut self, plans: &[Arc<Plan>]) {
        self.future = Some(Future::new(self.config.sizes.len(), plans.iter().map(|plan| &**plan)));
    }

    /// Whether packages are made. They are not without a place for them, with a policy that has no region
    /// for them, and where two of them are more than a quarter of the cache.
    pub fn packs(&self) -> bool {
        self.packer.is_some()
    }

    /// The policy.
    pub fn policy(&self) -> &dyn Policy {
        &*self.policy
    }

    /// The strategy.
    pub fn strategy(&self) -> &dyn Strategy {
        &*self.strategy
    }

    /// What was reported.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The packages that are complete.
    pub fn packages(&self) -> Option<&Packages> {
        self.packages.as_ref()
    }

    /// The counters of the epoch being decided.
    pub fn counters(&self) -> &Counters {
        self.tally.counters()
    }

    /// `epoch` is over: all its reports are in, and what was packed in it is complete.
    pub fn close(&mut self, epoch: u64) {
        self.strategy.close(epoch, &self.table);
        if let Some(packages) = &mut self.packages {
            self.work.complete(packages, &*self.config.sizes);
        }
    }

    /// Whose losses under the current model the plan of `epoch` needs.
    pub fn reevaluation(&self, epoch: u64) -> Reevaluation {
        self.strategy.reevaluates(epoch)
    }

    /// Makes the plan of `epoch` and begins to decide it.
    pub fn begin(&mut self, epoch: u64, inputs: &Inputs<'_>) -> Arc<Plan> {
        self.tally.begin();
        self.reevaluate(epoch);
        let plan = Arc::new(self.plan(epoch, inputs));
        // The plan is made: what came late in the epoch before counts from now on.
        self.table.planned(u32::try_from(epoch).unwrap_or(u32::MAX));
        while self.table.settle() {}
        self.policy.begin(&Begin {
            epoch,
            keys: plan.keys(),
            package: self
                .packages
                .as_ref()
                .and(self.packer.as_ref())
                .map(|packer| self.package_bytes(packer)),
            selected: (plan.selected_high(), plan.len() as u64),
        });
        self.tally.plan(&plan);
        self.pack(epoch, &plan);
        self.schedule = Some(Schedule::new(Arc::clone(&plan), self.config.sizes.len()));
        self.event = 0;
        plan
    }

    /// The bytes of the largest package there is, or will be.
    fn package_bytes(&self, packer: &Packer) -> u64 {
        self.packages.as_ref().map_or(0, Packages::largest).max(packer.package_bytes())
    }

    fn plan(&mut self, epoch: u64, inputs: &Inputs<'_>) -> Plan {
        let residents = self
            .strategy
            .looks_at_residents(self.packages.is_some())
            .then(|| Residents::of(&*self.policy, self.config.sizes.len()));
        let pad = self.config.pad || self.strategy.pads();
        let region = self.policy.regions().iter().find(|region| region.name == "l").map_or(0, |l| l.capacity);
        let buffer = self.packer.as_ref().map_or(0, |packer| region.max(2 * self.package_bytes(packer)));
        let carried = if pad { Some(&[][..]) } else { self.left_out.as_deref() };
        let drawn = self.strategy.draw(&Draw {
            epoch,
            world: self.config.world,
            carried,
            importance: Some(&self.table),
            reevaluated: inputs.reevaluated,
            accuracy: inputs.accuracy,
            rates: inputs.rates,
            residents: residents.as_ref(),
            packages: self.packages.as_ref().map(|packages| (packages, buffer)),
        });
        let plan = Plan::cut(epoch, self.config.world, pad, drawn);
        self.left_out = Some(plan.left_out().to_vec());
        if self.strategy.pads() { plan.with_silent_padding() } else { plan }
    }

    /// Reads whoever must be re-evaluated and is not resident.
    fn reevaluate(&mut self, epoch: u64) {
        match self.strategy.reevaluates(epoch) {
            Reevaluation::Nothing => {}
            Reevaluation::All => {
                for id in 0..self.config.sizes.len() as Id {
                    if !self.policy.contains(id) {
                        self.tally.other_read(id);
                    }
                }
            }
            Reevaluation::Set(ids) => {
                // Residents first, so that none of them leaves for another and must be read again.
                let (mut ordered, missing): (Vec<Id>, Vec<Id>) =
                    ids.iter().partition(|id| self.policy.contains(**id));
                ordered.extend(missing);
                for slice in ordered.chunks(SLICE) {
                    let mut read = Vec::new();
                    self.policy.pin(slice, &mut read, &mut self.evicted);
                    read.into_iter().for_each(|id| self.tally.other_read(id));
                    self.evicted.clear();
                }
            }
        }
    }

    fn pack(&mut self, epoch: u64, plan: &Plan) {
        let (Some(packer), Some(packages), Some(keys)) = (&self.packer, &self.packages, plan.keys()) else {
            return;
        };
        if self.table.reported() == 0 {
            return;
        }
        let sizes = &*self.config.sizes;
        let packing = packer.choose(epoch, packages, keys, sizes, self.tally.substituted());
        self.work.begin(packing, plan, &*self.policy, sizes, self.tally.counters_mut());
    }

    /// Decides the next slot; nothing when the plan is decided to its end.
    pub fn decide(&mut self) -> Option<Decided> {
        let schedule = self.schedule.as_mut()?;
        let slot = schedule.next_undecided()?;
        let id = schedule.id(slot);
        let plan = Arc::clone(schedule.plan());
        let (mut packages, mut bytes) = (0, 0);
        while let Some(&(at, event)) = plan.events().get(self.event)
            && at as usize <= slot
        {
            self.event += 1;
            match event {
                Event::Leave(id) => self.policy.leave(id, &mut self.evicted),
                Event::Load(package) => {
                    let Some(all) = &self.packages else { continue };
                    self.policy.load(all.members(package), &Upcoming(schedule), &mut self.evicted);
                    packages += 1;
                    bytes += all.bytes(package);
                    self.tally.package(all, package);
                }
            }
        }
        let verdict = match &mut self.future {
            Some(future) => {
                let verdict = self.policy.access(id, future, &mut self.evicted);
                future.pass(id);
                verdict
            }
            None => self.policy.access(id, &Upcoming(schedule), &mut self.evicted),
        };
        self.evicted.clear();
        let outcome = match verdict {
            Verdict::Hit => Outcome::Hit,
            Verdict::Packed => Outcome::Packed,
            Verdict::Admitted | Verdict::Bypassed => Outcome::Single,
        };
        schedule.decide(slot, if verdict == Verdict::Hit { State::Hit } else { State::Single });
        let fresh = schedule.serve(slot) && !plan.is_silent(slot);
        bytes += self.tally.serve(id, outcome, fresh, plan.is_substituted(slot));
        Some(Decided { slot, id, outcome, packages, bytes })
    }

    /// Takes the losses of one mini-batch of `rank`: the slots `position..` of that rank in `epoch`.
    pub fn report(&mut self, epoch: u64, rank_len: usize, position: usize, ids: &[Id], losses: &[f32]) {
        let scores = self.strategy.score().of(losses);
        let late = cut(rank_len);
        let reports: Vec<Report> = (position..)
            .zip(ids.iter().zip(&scores))
            .map(|(position, (&id, &value))| Report {
                id,
                value,
                epoch: u32::try_from(epoch).unwrap_or(u32::MAX),
                step: u32::try_from(position).unwrap_or(u32::MAX),
                late: position >= late,
            })
            .collect();
        let before = self.table.rejected();
        let mut done = 0;
        while done < reports.len() {
            done += self.table.apply(&reports[done..]);
        }
        let rejected = self.table.rejected() - before;
        self.tally.reported(reports.len() as u64 - rejected, rejected);
        self.score(ids, losses, &scores);
    }

    /// Hands scores to a policy that takes them at once.
    fn score(&mut self, ids: &[Id], losses: &[f32], scores: &[f32]) {
        let Some(kind) = self.policy.takes() else { return };
        let own = (kind != self.strategy.score()).then(|| Score::of(kind, losses));
        let scores = own.as_deref().unwrap_or(scores);
        let valid: Vec<(Id, f32)> =
            ids.iter().copied().zip(scores.iter().copied()).filter(|(_, score)| !score.is_nan()).collect();
        valid.chunks(SLICE).for_each(|slice| self.policy.scored(slice));
    }
}

/// What is due in the plan being decided.
struct Upcoming<'a>(&'a Schedule);

impl Due for Upcoming<'_> {
    fn next_due(&self, id: Id) -> Option<u64> {
        self.0.due(id).map(|slot| (slot - self.0.frontier()) as u64)
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
