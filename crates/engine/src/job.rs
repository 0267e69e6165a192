//! One training run: its plans, its policy, and what was counted of it.
//!
//! A job's logical side is here and is pure: [`Job::decide`] asks the policy about the next slot in plan
//! order, as the simulator does, and tells what became of it. What that means for bytes is the state's affair.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Instant;

use hotset_core::bits::Bits;
use hotset_core::counters::Counters;
use hotset_core::importance::cut;
use hotset_core::policy::{NoDue, Policy, Verdict};
use hotset_core::run::{self, Schedules, Step};
use hotset_core::schedule::Schedule;
use hotset_core::{Id, Remark, Result};

use crate::beside::Beside;
use crate::config::{JobGrant, JobRequest};
use crate::loader::Source;
use crate::mind::Mind;
use crate::order::Order;
use crate::pace::{Pace, Span};
use crate::press::Press;

/// Epochs whose counters are kept.
const HISTORY: usize = 256;
/// Epochs whose plans' lengths are remembered, for reports that come late.
const LENGTHS: usize = 4;

/// How a plan was cut: the slots of each rank, and the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Slots of each rank.
    pub rank_len: u64,
    /// Ranks.
    pub world: u32,
}

/// Who is being waited for before an epoch can be planned.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gathering {
    pub(crate) epoch: u64,
    /// When the first rank asked what to re-evaluate, or began.
    pub(crate) asked: Option<Instant>,
    /// When the first rank began.
    pub(crate) since: Option<Instant>,
    /// Ranks that re-evaluate samples for it, and those of them that are done.
    pub(crate) evaluating: BTreeSet<u32>,
    pub(crate) evaluated: BTreeSet<u32>,
    /// Whether the samples to re-evaluate were pinned.
    pub(crate) pinned: bool,
}

/// See the module's head.
pub(crate) struct Job {
    pub(crate) request: JobRequest,
    pub(crate) grant: JobGrant,
    pub(crate) dataset: u32,
    pub(crate) policy: Box<dyn Policy>,
    /// Whom the policy keeps, as far as objects know. What a policy says is brought over after each step.
    pub(crate) kept: Bits,
    /// How many those are.
    pub(crate) residents: u64,
    /// What makes its plans; `None` for a dataset without a sampler.
    pub(crate) mind: Option<Arc<Mind>>,
    /// Where its packages are read from, where it uses some.
    pub(crate) source: Option<Source>,
    /// What makes its packages, where there is a place for them.
    pub(crate) press: Option<Arc<Press>>,
    /// Packages that held somebody or were to be read when the last plan was made.
    pub(crate) packages_held: BTreeSet<u32>,
    /// The epochs under way, and the one after if its plan is ready.
    pub(crate) schedules: Schedules,
    /// How the last plans were cut.
    pub(crate) cuts: BTreeMap<u64, Cut>,
    /// The newest epoch each rank has begun.
    pub(crate) begun: BTreeMap<u32, u64>,
    /// The newest epoch each rank has asked for, planned or not.
    pub(crate) arrived: BTreeMap<u32, u64>,
    /// How many of its slots each rank has reported, and of which epoch.
    pub(crate) reported: BTreeMap<u32, (u64, u64)>,
    /// Ranks that a plan was made without, and that were not heard of since: the next plans do not wait for them.
    pub(crate) absent: BTreeSet<u32>,
    /// Ranks that have not followed one that went back, and the epoch that it went back to.
    pub(crate) following: BTreeMap<u32, u64>,
    /// The epoch whose plan is being made.
    pub(crate) planning: Option<u64>,
    pub(crate) gathering: Gathering,
    /// What its strategy says of its last plan.
    pub(crate) notes: Vec<(&'static str, f64)>,
    pub(crate) plan_remarks: Vec<Remark>,
    /// Names of the warnings that were told.
    pub(crate) told: BTreeSet<&'static str>,
    pub(crate) counters: BTreeMap<u64, Counters>,
    pub(crate) paces: BTreeMap<u64, Pace>,
    /// How long the epochs took whose paces are no longer kept.
    pub(crate) spans: BTreeMap<u64, Span>,
    /// The same of epochs whose counters are no longer kept, together.
    pub(crate) past_span: Span,
    /// The samples that were served, and how many those are.
    pub(crate) seen: Bits,
    pub(crate) distinct: u64,
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
    /// What goes past its plans.
    pub(crate) beside: Beside,
    /// The order in which it is asked for, where it has no plans.
    pub(crate) order: Order,
}

impl Job {
    /// One that nobody has asked anything of.
    pub(crate) fn new(
        request: JobRequest,
        grant: JobGrant,
        dataset: u32,
        samples: usize,
        policy: Box<dyn Policy>,
    ) -> Self {
        Self {
            request,
            grant,
            dataset,
            policy,
            kept: Bits::new(samples),
            residents: 0,
            mind: None,
            source: None,
            press: None,
            packages_held: BTreeSet::new(),
            schedules: Schedules::new(),
            cuts: BTreeMap::new(),
            begun: BTreeMap::new(),
            arrived: BTreeMap::new(),
            reported: BTreeMap::new(),
            absent: BTreeSet::new(),
            following: BTreeMap::new(),
            planning: None,
            gathering: Gathering::default(),
            notes: Vec::new(),
            plan_remarks: Vec::new(),
            told: BTreeSet::new(),
            counters: BTreeMap::new(),
            paces: BTreeMap::new(),
            spans: BTreeMap::new(),
            past_span: Span::default(),
            seen: Bits::new(samples),
            distinct: 0,
            unplanned: Counters::default(),
            past: Counters::default(),
            window: 0,
            largest_batch: 0,
            sessions: HashSet::new(),
            left: None,
            over: false,
            beside: Beside::default(),
            order: Order::default(),
        }
    }

    /// The next slot to decide, over all epochs under way.
    pub(crate) fn peek(&mut self) -> Option<(u64, usize, Id)> {
        run::peek(&mut self.schedules)
    }

    /// Asks the policy about the next slot in plan order. The caller notes the outcome in the schedule, and brings
    /// over whom the policy keeps now.
    pub(crate) fn decide(&mut self, loads: &mut Vec<u32>, evicted: &mut Vec<Id>) -> Option<Step> {
        run::decide(&mut *self.policy, &mut self.schedules, None, loads, evicted)
    }

    /// Asks the policy about a sample that no plan serves.
    pub(crate) fn access(&mut self, id: Id, evicted: &mut Vec<Id>) -> Verdict {
        self.policy.access(id, &NoDue, evicted)
    }

    /// Puts in a plan that was made.
    pub(crate) fn insert(&mut self, epoch: u64, schedule: Schedule) {
        let plan = schedule.plan();
        self.cuts.insert(epoch, Cut { rank_len: plan.rank_len() as u64, world: plan.world() });
        while self.cuts.len() > LENGTHS {
            self.cuts.pop_first();
        }
        self.schedules.insert(epoch, schedule);
    }

    /// Whether every rank of the epoch before `epoch` has left it.
    pub(crate) fn has_everybody(&self, epoch: u64) -> bool {
        let Some(before) = epoch.checked_sub(1) else { return true };
        let Some(over) = self.cuts.get(&before) else { return true };
        (0..over.world).all(|rank| self.has_left(before, rank))
    }

    /// Whether a rank has gone on to a later epoch, or will not train this one. One that has not begun it yet may only be
    /// slower than the others: it is waited for.
    fn has_left(&self, epoch: u64, rank: u32) -> bool {
        self.arrived.get(&rank).is_some_and(|&arrived| arrived > epoch)
            || self.absent.contains(&rank)
            || !self.schedules.contains_key(&epoch)
    }

    /// Whether a rank has reported all that the plan of the epoch after is made from.
    fn has_reported(&self, epoch: u64, rank: u32, slots: u64) -> bool {
        let needed = cut(slots as usize) as u64;
        let passed = |&(of, upto): &(u64, u64)| of > epoch || (of == epoch && upto >= needed);
        self.reported.get(&rank).is_some_and(passed)
    }

    /// Whether every rank of the epoch before `epoch` has reported what its plan needs, or has come to `epoch`.
    pub(crate) fn is_gathered(&self, epoch: u64, ahead: bool) -> bool {
        let Some(mind) = &self.mind else { return true };
        let Some(before) = epoch.checked_sub(1) else { return true };
        let Some(over) = self.cuts.get(&before) else { return true };
        if mind.waits_for_trainer {
            let evaluated = self.gathering.epoch != epoch
                || self.gathering.evaluating.is_subset(&self.gathering.evaluated);
            return !ahead && evaluated && self.has_everybody(epoch);
        }
        let decided = || self.schedules.get(&before).is_none_or(Schedule::is_decided);
        if ahead && mind.looks_back && !decided() {
            return false;
        }
        let gathered = |rank| self.has_reported(before, rank, over.rank_len) || self.has_left(before, rank);
        !mind.needs_losses || (0..over.world).all(gathered)
    }

    /// Goes on without the ranks that the plan of `epoch` has waited for.
    pub(crate) fn give_up(&mut self, epoch: u64) {
        let Some(before) = epoch.checked_sub(1) else { return };
        let Some(&over) = self.cuts.get(&before) else { return };
        let trainer = self.mind.as_ref().is_some_and(|mind| mind.waits_for_trainer);
        let gathered = |rank: &u32| {
            self.has_left(before, *rank) || (!trainer && self.has_reported(before, *rank, over.rank_len))
        };
        let missing: Vec<u32> = (0..over.world).filter(|rank| !gathered(rank)).collect();
        self.absent.extend(missing);
    }

    /// The schedule of an epoch, if it is still the one of that generation.
    pub(crate) fn schedule(&mut self, epoch: u64, generation: u64) -> Option<&mut Schedule> {
        self.schedules.get_mut(&epoch).filter(|schedule| schedule.generation() == generation)
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
                    if let Some((epoch, old)) = self.counters.pop_first() {
                        self.past.add(&old);
                        self.past_span.add(self.spans.remove(&epoch).unwrap_or_default());
                    }
                }
                self.counters.entry(epoch).or_default()
            }
        }
    }

    /// How fast an epoch is.
    pub(crate) fn pace(&mut self, epoch: u64) -> &mut Pace {
        while self.paces.len() > 2 && !self.paces.contains_key(&epoch) {
            if let Some((old, pace)) = self.paces.pop_first() {
                self.spans.extend(pace.span().map(|span| (old, span)));
            }
        }
        self.paces.entry(epoch).or_default()
    }

    /// How long each epoch took, or has taken so far.
    pub(crate) fn spans(&self) -> BTreeMap<u64, Span> {
        let recent = self.paces.iter().filter_map(|(&epoch, pace)| Some((epoch, pace.span()?)));
        self.spans.iter().map(|(&epoch, &span)| (epoch, span)).chain(recent).collect()
    }

    /// How long all epochs together took.
    pub(crate) fn total_span(&self) -> Span {
        let mut total = self.past_span;
        self.spans().into_values().for_each(|span| total.add(span));
        total
    }

    /// Counts an epoch anew; what was counted of it stays in the sum.
    pub(crate) fn forget(&mut self, epoch: u64) {
        if let Some(old) = self.counters.remove(&epoch) {
            self.past.add(&old);
        }
        let pace = self.paces.remove(&epoch).and_then(|pace| pace.span());
        self.past_span.add(pace.or(self.spans.remove(&epoch)).unwrap_or_default());
    }

    /// The sum of everything counted so far.
    pub(crate) fn total(&self) -> Counters {
        let mut total = self.past.clone();
        self.counters.values().chain([&self.unplanned]).for_each(|counters| total.add(counters));
        // A sample that was served in every epoch is one.
        total.distinct = self.distinct;
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
            ("settings", own.strategy_settings != other.strategy_settings),
            ("policy_settings", own.policy_settings != other.policy_settings),
            ("epochs", own.epochs != other.epochs),
            ("packages", own.packages != other.packages),
            ("package_bytes", own.package_bytes != other.package_bytes),
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
