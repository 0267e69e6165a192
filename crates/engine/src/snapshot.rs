//! A job's logical side, taken out of one engine and put into another.
//!
//! A snapshot holds what cannot be worked out again: who the policy keeps, the scores, the plans under way and
//! how far each was decided. Deciding is the same for the same plan and policy, so an engine that starts from a
//! snapshot and is asked for a later slot decides what lies between and stands where the first one stood. Bytes
//! are not part of it: they are read again when they are due, and counted as `refill`.

use std::collections::BTreeMap;
use std::sync::Arc;

use hotset_core::policy::{NoDue, Policy, Verdict};
use hotset_core::sampling::Plan;
use hotset_core::schedule::{Schedule, State as Slot};
use hotset_core::{Error, Id, Result};

use crate::config::JobRequest;
use crate::engine::Engine;
use crate::job::Job;

/// See the module's head.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// How the job was asked for.
    pub request: JobRequest,
    /// Samples of its dataset.
    pub samples: u64,
    /// What its policy keeps, in an order in which asking for it again restores the policy.
    pub residents: Vec<Id>,
    /// The last score of each sample; empty when none was reported.
    pub scores: Vec<f32>,
    /// The plans under way.
    pub schedules: Vec<ScheduleSnapshot>,
    /// The newest epoch each rank has begun.
    pub begun: BTreeMap<u32, u64>,
    /// The last plan's epoch, world and left-out ids.
    pub last: Option<(u64, u32, Vec<Id>)>,
}

/// One plan, and what was decided of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleSnapshot {
    /// Its epoch.
    pub epoch: u64,
    /// The ranks it is cut over.
    pub world: u32,
    /// Its ids, in plan order.
    pub ids: Vec<Id>,
    /// One byte for each slot that was decided.
    pub states: Vec<u8>,
}

impl Engine {
    /// Whether a job is open.
    pub fn has_job(&self, job: &str) -> bool {
        self.shared.lock().names.contains_key(job)
    }

    /// Takes a snapshot of a job; `None` if it has no plans.
    ///
    /// One visit to each resident and to each decided slot under the lock, once an epoch.
    pub fn snapshot(&self, job: &str) -> Result<Option<Snapshot>> {
        let planner = {
            let state = self.shared.lock();
            state.jobs[&state.job(job)?].planner.clone()
        };
        let Some(planner) = planner else { return Ok(None) };
        // Before the engine's lock: whoever makes a plan holds the planner for as long as that takes.
        let last = planner.lock().unwrap_or_else(std::sync::PoisonError::into_inner).last();
        let state = self.shared.lock();
        let job = &state.jobs[&state.job(job)?];
        let mut residents = Vec::with_capacity(job.residents as usize);
        job.policy.residents(&mut |id| residents.push(id));
        Ok(Some(Snapshot {
            request: job.request.clone(),
            samples: state.datasets[job.dataset as usize].catalog.len() as u64,
            residents,
            scores: job.scores.clone(),
            schedules: job.schedules.iter().map(|(&epoch, schedule)| taken(epoch, schedule)).collect(),
            begun: job.begun.clone(),
            last,
        }))
    }
}

fn taken(epoch: u64, schedule: &Schedule) -> ScheduleSnapshot {
    let state = |slot| match schedule.state(slot) {
        Slot::Ahead => 0,
        Slot::Hit => 1,
        // Whoever waits for it will ask again.
        Slot::Single | Slot::Taken => 2,
        Slot::Again => 3,
        Slot::Done => 4,
        Slot::Refill => 5,
    };
    let plan = schedule.plan();
    ScheduleSnapshot {
        epoch,
        world: plan.world(),
        ids: plan.ids().to_vec(),
        states: (0..schedule.frontier()).map(state).collect(),
    }
}

impl Snapshot {
    /// Whether it fits the job that is being opened, and can be put into it.
    pub fn fits(&self, request: &JobRequest, samples: usize) -> Result<()> {
        if self.request != *request {
            return Err(Error::invalid("the state was written with other settings"));
        }
        let inside = |ids: &[Id]| ids.iter().all(|&id| (id as usize) < samples);
        let scores = self.scores.is_empty() || self.scores.len() == samples;
        let plans = self.schedules.iter().all(|schedule| {
            let states =
                schedule.states.len() <= schedule.ids.len() && schedule.states.iter().all(|&s| s <= 5);
            let whole = schedule.world > 0 && schedule.ids.len().is_multiple_of(schedule.world as usize);
            states && whole && inside(&schedule.ids)
        });
        let last = self.last.as_ref().is_none_or(|(_, world, left_out)| *world > 0 && inside(left_out));
        if self.samples != samples as u64 || !scores || !plans || !last || !inside(&self.residents) {
            return Err(Error::invalid("the state does not fit the dataset"));
        }
        Ok(())
    }

    /// Fills a policy that keeps nothing; how many it keeps then.
    pub(crate) fn fill(&self, policy: &mut dyn Policy) -> u64 {
        let mut evicted = Vec::new();
        let admitted =
            self.residents.iter().filter(|&&id| policy.access(id, &NoDue, &mut evicted) == Verdict::Admitted);
        let admitted = admitted.count();
        (admitted - evicted.len()) as u64
    }

    /// The plans under way, as far as they were decided.
    pub(crate) fn schedules(&self, samples: usize) -> BTreeMap<u64, Schedule> {
        let restored = self.schedules.iter().map(|saved| {
            let plan = Plan::cut(saved.epoch, saved.world, false, saved.ids.clone());
            let states = saved.states.iter().map(|&state| match state {
                1 => Slot::Hit,
                2 => Slot::Single,
                3 => Slot::Again,
                4 => Slot::Done,
                5 => Slot::Refill,
                _ => Slot::Ahead,
            });
            let mut schedule = Schedule::restored(Arc::new(plan), samples, states);
            for (&rank, _) in self.begun.iter().filter(|&(_, &epoch)| epoch >= saved.epoch) {
                if rank < saved.world {
                    schedule.begin(rank, 0, &mut Vec::new());
                }
            }
            (saved.epoch, schedule)
        });
        restored.collect()
    }
}

impl Job {
    /// The bytes of decided slots that nobody has asked for, after schedules were put in.
    pub(crate) fn restore_window(&mut self, size: impl Fn(Id) -> u64) {
        self.window = self.waiting().into_iter().map(size).sum();
    }

    /// The sample of each decided slot that nobody has asked for.
    pub(crate) fn waiting(&self) -> Vec<Id> {
        self.schedules
            .values()
            .flat_map(|schedule| {
                let held = |&slot: &usize| schedule.state(slot).waits();
                (0..schedule.frontier()).filter(held).map(|slot| schedule.id(slot))
            })
            .collect()
    }
}
