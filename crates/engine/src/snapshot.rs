//! A job's logical side, taken out of one engine and put into another.
//!
//! A snapshot holds what cannot be worked out again: what the policy knows, what was reported, what the strategy
//! knows, the plans under way and how far each was decided. Deciding is the same for the same plan and policy, so
//! an engine that starts from a snapshot and is asked for a later slot decides what lies between and stands where
//! the first one stood, and counts the same. Which slots were trained since is said by the reports that are replayed: those
//! are decided and done. Bytes are not part of it: they are read again when they are due, and counted as recovery.

use std::collections::BTreeMap;
use std::sync::Arc;

use hotset_core::cache::Cache;
use hotset_core::cluster::Layout;
use hotset_core::packages::Packages;
use hotset_core::run::{Planner, RunState, Saved, SavedPacking, SavedSchedule};
use hotset_core::sampling::Plan;
use hotset_core::schedule::{Outcome, Schedule, Stage};
use hotset_core::{Error, Id, Result, tally};
use hotset_store::Catalog;

use crate::cluster::Placed;
use crate::config::JobRequest;
use crate::engine::Engine;
use crate::jobs::{Cut, Job};
use crate::state::State;

/// A job's state, without bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// How the job was asked for.
    pub request: JobRequest,
    /// Samples of its dataset.
    pub samples: u64,
    /// What its policy knows.
    pub policy: Vec<u8>,
    /// What its plans are made from.
    pub planner: Saved,
    /// The plans under way.
    pub schedules: Vec<SavedSchedule>,
    /// How the last plans were cut.
    pub cuts: BTreeMap<u64, Cut>,
    /// The newest epoch each rank has begun.
    pub begun: BTreeMap<u32, u64>,
    /// What was counted.
    pub counted: tally::Saved,
}

impl Engine {
    /// Whether a job is open.
    pub fn has_job(&self, job: &str) -> bool {
        self.shared.lock().jobs.contains(job)
    }

    /// Takes a snapshot of a job; `None` if it has no plans.
    ///
    /// One visit to each resident and to each slot under the lock, once an epoch.
    pub fn snapshot(&self, job: &str) -> Result<Option<Snapshot>> {
        let Some(handle) = self.shared.lock().jobs.named(job)?.planner.clone() else { return Ok(None) };
        // Before the engine's lock: a thread that makes a plan holds the planner for as long as that takes.
        let planner = handle.planner();
        let (saved, known) = (planner.save(), planner.table().snapshot());
        let mut state = self.shared.lock();
        let State { jobs, rooms, .. } = &mut *state;
        let job = jobs.named(job)?;
        let samples = job.dataset.samples();
        let schedules: Vec<Taken> = job.run.schedules().values().map(taken).collect();
        let cache = rooms.cache_mut(job.serial)?;
        let policy = cache.policy().save();
        cache.saved(job.run.member());
        let counted = job.run.tally().save();
        let (request, cuts, begun) =
            (job.opened.request.clone(), job.ranks.cuts().clone(), job.ranks.begun().clone());
        drop(state);
        drop(planner);
        let policy = policy.seal();
        let schedules = schedules
            .into_iter()
            .map(|taken| SavedSchedule {
                plan: taken.plan.save(samples, &known),
                package: taken.package,
                packages: taken.packages.map(|packages| packages.living().collect()).unwrap_or_default(),
                states: taken.states,
                told: taken.told,
                layout: taken.layout.map(|layout| layout.save()).unwrap_or_default(),
            })
            .collect();
        Ok(Some(Snapshot {
            request,
            samples: samples as u64,
            policy,
            planner: saved,
            schedules,
            cuts,
            begun,
            counted,
        }))
    }
}

/// What is taken of a schedule under the lock.
struct Taken {
    plan: Arc<Plan>,
    package: Option<u64>,
    packages: Option<Arc<Packages>>,
    states: Vec<u8>,
    told: Option<u64>,
    layout: Option<Arc<Layout>>,
}

fn taken(schedule: &Schedule) -> Taken {
    let state = |slot| {
        let stage = match schedule.stage(slot) {
            Stage::Ahead => 0,
            // A reader that waits for it will ask again.
            Stage::Waiting | Stage::Taken => 1,
            Stage::Unread => 2,
            Stage::Again => 3,
            Stage::Served => 4,
            Stage::Left => 5,
        };
        let outcome = match schedule.outcome(slot) {
            None => 0,
            Some(Outcome::Hit) => 1,
            Some(Outcome::Packed) => 2,
            Some(Outcome::Single) => 3,
            Some(Outcome::Elsewhere) => 4,
        };
        stage | outcome << 4
    };
    let (begin, _) = schedule.begins();
    Taken {
        plan: Arc::clone(schedule.plan()),
        package: begin.package,
        packages: schedule.packages().cloned(),
        states: (0..schedule.frontier()).map(state).collect(),
        told: schedule.told().map(|events| events as u64),
        layout: schedule.layout().cloned(),
    }
}

/// Settings that a training keeps when it goes on with another number of ranks: slots are counted for each.
fn lasting(settings: &BTreeMap<String, String>) -> BTreeMap<&str, &str> {
    let all = settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    all.filter(|(name, _)| *name != "epoch_length").collect()
}

/// What does not fit is the state's fault, which the kind says.
fn misfit() -> Error {
    Error::changed("the state does not fit the dataset")
}

impl Snapshot {
    /// Whether it is of the job that is being opened; what else does not fit is found when it is put in.
    pub(crate) fn check(&self, request: &JobRequest, samples: usize) -> Result<()> {
        if self.request != *request {
            return Err(Error::changed("the state was written with other settings"));
        }
        if self.samples != samples as u64 || self.cuts.values().any(|cut| cut.world == 0) {
            return Err(misfit());
        }
        Ok(())
    }

    /// Makes it a state of the job that is asked for, if that trains the same: the same dataset, strategy, settings
    /// and seed. Another policy or cache begins empty, and packages are made anew in another place.
    pub fn adapt_to(&mut self, request: &JobRequest) -> Result<()> {
        let own = &self.request;
        if own.dataset != request.dataset {
            return Err(Error::invalid(format!(
                "the checkpoint is of dataset `{}`, this job trains dataset `{}`: open the dataset it was saved with, \
                 or start afresh",
                own.dataset, request.dataset
            )));
        }
        let differs = [
            ("strategy", own.strategy != request.strategy),
            ("seed", own.seed != request.seed),
            ("settings", lasting(&own.strategy_settings) != lasting(&request.strategy_settings)),
        ];
        if let Some((name, _)) = differs.iter().find(|(_, differs)| *differs) {
            return Err(Error::invalid(format!(
                "the checkpoint was saved with another `{name}`: use the same, or start afresh"
            )));
        }
        let same_packages = own.packages == request.packages && own.package_bytes == request.package_bytes;
        let same_cache = own.policy == request.policy
            && own.policy_settings == request.policy_settings
            && own.cache == request.cache
            && same_packages;
        if !same_cache {
            self.policy = Vec::new();
        }
        if !same_packages {
            // Their numbers mean others in another place, and runs of another length are others.
            for saved in &mut self.schedules {
                saved.packages.clear();
                let layout = Layout::restore(&saved.layout, "").filter(|layout| layout.made().is_some());
                if let Some(layout) = layout {
                    saved.layout = layout.without_packages().save();
                }
            }
            self.planner.packing = SavedPacking::default();
        }
        self.request = request.clone();
        Ok(())
    }

    /// Its plans, as they lie over nodes, on the node `own`; `known` is what was reported.
    pub(crate) fn placed(&self, known: &[f32], own: &str) -> Result<Vec<Placed>> {
        let samples = self.samples as usize;
        let placed = self.schedules.iter().map(|saved| {
            let plan = Arc::new(Plan::restore(samples, &saved.plan, known).ok_or_else(misfit)?);
            let layout = Arc::new(Layout::restore(&saved.layout, own).ok_or_else(misfit)?);
            Ok(Placed { plan, layout })
        });
        placed.collect()
    }

    /// Puts it into a job that was just made, its cache unless it joins one that others are in, and its planner, which
    /// knows the packages that were `found` complete; what its run goes on from. `node` is this node's name in a cluster. An
    /// error of the kind `Changed` says that it does not fit the job.
    pub(crate) fn put_into(
        &self,
        job: &mut Job,
        cache: Option<&mut Cache>,
        planner: &mut Planner,
        catalog: &Catalog,
        (found, node): (&[(u32, Vec<Id>)], &str),
    ) -> Result<RunState> {
        self.check(&job.opened.request, catalog.len())?;
        let state = RunState {
            policy: self.policy.clone(),
            planner: self.planner.clone(),
            schedules: self.schedules.clone(),
            begun: self.begun.clone(),
            counted: self.counted.clone(),
        };
        let cache = cache.map(|cache| (cache, job.opened.grant.granted));
        state.put_into((&mut job.run, planner), cache, catalog, found, node)?;
        job.ranks.restore(self.cuts.clone(), self.begun.clone());
        Ok(state)
    }
}

impl Job {
    /// The sample of each decided slot that was not asked for.
    pub(crate) fn waiting(&self) -> Vec<Id> {
        self.run
            .schedules()
            .values()
            .flat_map(|schedule| {
                let held = |&slot: &usize| schedule.stage(slot) == Stage::Waiting;
                (0..schedule.frontier()).filter(held).map(|slot| schedule.id(slot))
            })
            .collect()
    }
}
