//! One training run: its plans, its policy, and what was counted of it.
//!
//! A job's logical side is here and is pure: [`Job::decide`] asks the policy about the next slot in plan
//! order and tells what became of it. What that means for bytes is the state's affair.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use hotset_core::counters::Counters;
use hotset_core::policy::{Due, NoDue, Policy, Verdict};
use hotset_core::sampling::{Draw, Plan, Strategy};
use hotset_core::schedule::Schedule;
use hotset_core::{Id, Result};

use crate::config::{JobGrant, JobRequest};

/// Epochs whose counters are kept.
const HISTORY: usize = 256;

/// Makes a job's plans, one after the other, outside the engine's lock.
pub(crate) struct Planner {
    strategy: Box<dyn Strategy>,
    pad: bool,
    /// The last plan's epoch, world and left-out ids.
    last: Option<(u64, u32, Vec<Id>)>,
}

impl Planner {
    pub(crate) fn new(strategy: Box<dyn Strategy>, pad: bool) -> Self {
        Self { strategy, pad, last: None }
    }

    /// The last plan's epoch, world and left-out ids.
    pub(crate) fn last(&self) -> Option<(u64, u32, Vec<Id>)> {
        self.last.clone()
    }

    /// Goes on after a plan that another server made.
    pub(crate) fn go_on(&mut self, last: Option<(u64, u32, Vec<Id>)>) {
        self.last = last;
    }

    fn plan(&mut self, epoch: u64, world: u32) -> Plan {
        let carried = match &self.last {
            // A padded plan leaves nobody out.
            _ if self.pad => Some(&[][..]),
            Some((last, over, left_out)) if *last + 1 == epoch && *over == world => Some(left_out.as_slice()),
            _ => None,
        };
        let drawn = self.strategy.draw(&Draw { epoch, world, carried, ..Draw::default() });
        let plan = Plan::cut(epoch, world, self.pad, drawn);
        self.last = Some((epoch, world, plan.left_out().to_vec()));
        plan
    }
}

/// Makes the schedule of an epoch; takes as long as the dataset is large, so never under the engine's lock.
pub(crate) fn prepare(planner: &Mutex<Planner>, epoch: u64, world: u32, samples: usize) -> Schedule {
    let plan = planner.lock().unwrap_or_else(PoisonError::into_inner).plan(epoch, world);
    Schedule::new(Arc::new(plan), samples)
}

/// A slot that was just decided.
pub(crate) struct Decided {
    pub(crate) epoch: u64,
    pub(crate) slot: usize,
    pub(crate) id: Id,
    pub(crate) verdict: Verdict,
}

/// See the module's head.
pub(crate) struct Job {
    pub(crate) request: JobRequest,
    pub(crate) grant: JobGrant,
    pub(crate) dataset: u32,
    pub(crate) policy: Box<dyn Policy>,
    /// How many samples the policy has admitted and not evicted.
    pub(crate) residents: u64,
    pub(crate) planner: Option<Arc<Mutex<Planner>>>,
    /// The epochs under way, and the one after if its plan is ready.
    pub(crate) schedules: BTreeMap<u64, Schedule>,
    /// The newest epoch each rank has begun.
    pub(crate) begun: BTreeMap<u32, u64>,
    pub(crate) counters: BTreeMap<u64, Counters>,
    pub(crate) unplanned: Counters,
    /// The sum of epochs whose counters are no longer kept.
    pub(crate) past: Counters,
    /// Bytes of decided slots that were not served yet.
    pub(crate) window: u64,
    /// The most samples asked for at once.
    pub(crate) largest_batch: usize,
    /// Who has opened it.
    pub(crate) sessions: HashSet<u64>,
    /// When the last of them went.
    pub(crate) left: Option<Instant>,
    /// Whether one of them has said that the run is over, so that nothing is kept for its return.
    pub(crate) over: bool,
    /// The last score reported of each sample; not a number where none was. Empty until the first report.
    pub(crate) scores: Vec<f32>,
}

impl Job {
    /// The next slot to decide, over all epochs under way.
    pub(crate) fn peek(&mut self) -> Option<(u64, usize, Id)> {
        self.schedules.iter_mut().find_map(|(&epoch, schedule)| {
            schedule.next_undecided().map(|slot| (epoch, slot, schedule.id(slot)))
        })
    }

    /// Asks the policy about the next slot in plan order. The caller notes the outcome in the schedule.
    pub(crate) fn decide(&mut self, evicted: &mut Vec<Id>) -> Option<Decided> {
        let (epoch, slot, id) = self.peek()?;
        let upcoming = Upcoming { schedules: &self.schedules, epoch };
        let verdict = self.policy.access(id, &upcoming, evicted);
        self.residents += u64::from(verdict == Verdict::Admitted);
        self.residents -= evicted.len() as u64;
        Some(Decided { epoch, slot, id, verdict })
    }

    /// The schedule of an epoch, if it is still the one of that generation.
    pub(crate) fn schedule(&mut self, epoch: u64, generation: u64) -> Option<&mut Schedule> {
        self.schedules.get_mut(&epoch).filter(|schedule| schedule.generation() == generation)
    }

    /// Asks the policy about a sample that no plan serves.
    pub(crate) fn access(&mut self, id: Id, evicted: &mut Vec<Id>) -> Verdict {
        let verdict = self.policy.access(id, &NoDue, evicted);
        self.residents += u64::from(verdict == Verdict::Admitted);
        self.residents -= evicted.len() as u64;
        verdict
    }

    /// Whether a decided slot of `id` waits to be served.
    pub(crate) fn waits_for(&self, id: Id) -> bool {
        self.schedules.values().any(|schedule| schedule.waits_for(id))
    }

    /// How many decided slots of `id` nobody has asked for yet.
    pub(crate) fn holds(&self, id: Id) -> u32 {
        self.schedules.values().map(|schedule| schedule.holds(id)).sum()
    }

    /// The counters of an epoch.
    pub(crate) fn counters(&mut self, epoch: Option<u64>) -> &mut Counters {
        match epoch {
            None => &mut self.unplanned,
            Some(epoch) => {
                while self.counters.len() > HISTORY && !self.counters.contains_key(&epoch) {
                    if let Some((_, old)) = self.counters.pop_first() {
                        self.past.add(&old);
                    }
                }
                self.counters.entry(epoch).or_default()
            }
        }
    }

    /// Counts an epoch anew; what was counted of it stays in the sum.
    pub(crate) fn forget(&mut self, epoch: u64) {
        if let Some(old) = self.counters.remove(&epoch) {
            self.past.add(&old);
        }
    }

    /// The sum of everything counted so far.
    pub(crate) fn total(&self) -> Counters {
        let mut total = self.past.clone();
        self.counters.values().chain([&self.unplanned]).for_each(|counters| total.add(counters));
        total
    }

    /// Whether another request for this job asks for the same thing; the setting that differs if not.
    pub(crate) fn same_as(&self, other: &JobRequest) -> Result<()> {
        let own = &self.request;
        let differs = [
            ("dataset", own.dataset != other.dataset),
            ("cache", own.cache != other.cache),
            ("strategy", own.strategy != other.strategy),
            ("policy", own.policy != other.policy),
            ("seed", own.seed != other.seed),
            ("prefetch", own.prefetch != other.prefetch),
            ("pad", own.pad != other.pad),
        ];
        match differs.iter().find(|(_, differs)| *differs) {
            None => Ok(()),
            Some((name, _)) => Err(hotset_core::Error::invalid(format!(
                "job `{}` is already open with another `{name}`: use the same settings in every process, or \
                 give this run a `job` name of its own",
                own.job
            ))),
        }
    }
}

/// What is due in the epochs under way.
struct Upcoming<'a> {
    schedules: &'a BTreeMap<u64, Schedule>,
    epoch: u64,
}

impl Due for Upcoming<'_> {
    fn next_due(&self, id: Id) -> Option<u64> {
        let mut before = 0;
        for (&epoch, schedule) in self.schedules.range(self.epoch..) {
            let frontier = if epoch == self.epoch { schedule.frontier() } else { 0 };
            let due = if epoch == self.epoch { schedule.due(id) } else { schedule.first_due(id) };
            if let Some(slot) = due {
                return Some(before + (slot - frontier) as u64);
            }
            before += (schedule.plan().len() - frontier) as u64;
        }
        None
    }

    fn due_in_epoch(&self, id: Id) -> bool {
        self.schedules.get(&self.epoch).is_some_and(|schedule| schedule.due(id).is_some())
    }
}
