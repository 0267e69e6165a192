//! One training: its run, and everything around it that the run need not know.
//!
//! The run is [pure](JobRun), and the simulator's too: plans under way, cache and tally. Here are its ranks, what they
//! have begun and reported, and what a plan waits for. What a decision means for bytes is the state's affair.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use hotset_core::bits::Bits;
use hotset_core::importance::cut;
use hotset_core::run::JobRun;
use hotset_core::schedule::Schedule;
use hotset_core::tally::HISTORY;
use hotset_core::{Id, Remark, Result};

use crate::beside::Beside;
use crate::config::{JobGrant, JobRequest};
use crate::loader::Source;
use crate::mind::Mind;
use crate::order::Order;
use crate::pace::{Pace, Span};
use crate::press::Press;

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
    /// Whether the samples to re-evaluate were pinned, and those of them whose read was not made yet.
    pub(crate) pinned: bool,
    pub(crate) unread: Bits,
}

/// See the module's head.
pub(crate) struct Job {
    pub(crate) request: JobRequest,
    pub(crate) grant: JobGrant,
    pub(crate) dataset: u32,
    /// Its plans, its cache and its tally.
    pub(crate) run: JobRun,
    /// Slots whose reads are one request that was not made: all of its slots, or none where the others were read
    /// without this one.
    pub(crate) together: HashMap<(u64, usize), Arc<[usize]>>,
    /// What makes its plans; `None` for a dataset without a sampler.
    pub(crate) mind: Option<Arc<Mind>>,
    /// Where its packages are read from, where it uses some.
    pub(crate) source: Option<Source>,
    /// What makes its packages, where there is a place for them.
    pub(crate) press: Option<Arc<Press>>,
    /// Packages that held somebody or were to be read when the last plan was made.
    pub(crate) packages_held: BTreeSet<u32>,
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
    pub(crate) paces: BTreeMap<u64, Pace>,
    /// How long the epochs took whose paces are no longer kept.
    pub(crate) spans: BTreeMap<u64, Span>,
    /// The same of epochs before those, together.
    pub(crate) past_span: Span,
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
    pub(crate) fn new(request: JobRequest, grant: JobGrant, dataset: u32, run: JobRun) -> Self {
        Self {
            request,
            grant,
            dataset,
            run,
            together: HashMap::new(),
            mind: None,
            source: None,
            press: None,
            packages_held: BTreeSet::new(),
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
            paces: BTreeMap::new(),
            spans: BTreeMap::new(),
            past_span: Span::default(),
            window: 0,
            largest_batch: 0,
            sessions: HashSet::new(),
            left: None,
            over: false,
            beside: Beside::default(),
            order: Order::default(),
        }
    }

    /// Remembers how a plan is cut.
    pub(crate) fn note_cut(&mut self, schedule: &Schedule) {
        let plan = schedule.plan();
        self.cuts.insert(plan.epoch(), Cut { rank_len: plan.rank_len() as u64, world: plan.world() });
        while self.cuts.len() > LENGTHS {
            self.cuts.pop_first();
        }
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
            || self.run.schedule(epoch).is_none()
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
        let decided = || self.run.schedule(before).is_none_or(Schedule::is_decided);
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
        self.run.schedule_mut(epoch).filter(|schedule| schedule.generation() == generation)
    }

    /// Whether a decided slot of `id` other than this one waits to be served.
    pub(crate) fn waits_for(&self, id: Id, (epoch, slot): (u64, usize)) -> bool {
        let until = |of: u64| if of == epoch { slot } else { usize::MAX };
        self.run.schedules().iter().any(|(&of, schedule)| schedule.waits_before(id, until(of)))
    }

    /// A sample is to be read before `epoch`, to be re-evaluated.
    pub(crate) fn ask_beside(&mut self, epoch: u64, id: Id) {
        self.gathering.unread.insert(id);
        self.run.tally_mut().reads_beside(epoch, id);
    }

    /// A decided slot of `id` whose read was not made, and its epoch.
    pub(crate) fn unread(&self, id: Id) -> Option<(u64, usize)> {
        self.run.schedules().iter().find_map(|(&epoch, schedule)| Some((epoch, schedule.unread(id)?)))
    }

    /// How many decided slots of `id` nobody has asked for yet.
    pub(crate) fn holds(&self, id: Id) -> u32 {
        self.run.schedules().values().map(|schedule| schedule.holds(id)).sum()
    }

    /// How fast an epoch is.
    pub(crate) fn pace(&mut self, epoch: u64) -> &mut Pace {
        while self.paces.len() > 2 && !self.paces.contains_key(&epoch) {
            if let Some((old, pace)) = self.paces.pop_first() {
                self.spans.extend(pace.span().map(|span| (old, span)));
            }
        }
        while self.spans.len() > HISTORY {
            self.past_span.add(self.spans.pop_first().map_or_else(Span::default, |(_, span)| span));
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
        self.run.tally_mut().forget(epoch);
        let pace = self.paces.remove(&epoch).and_then(|pace| pace.span());
        self.past_span.add(pace.or(self.spans.remove(&epoch)).unwrap_or_default());
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
