//! A job's run: its plans under way, and its tally.
//!
//! A run is driven by events. [`JobRun::step`] decides the next slot in plan order in the [cache](Cache) that the job has
//! joined, and says what that brought about, as [`Change`]s, in order: what left, which packages are read, what the slot
//! costs, which requests are made. The simulator only counts them; a server moves bytes accordingly and tells the tally
//! what became of it. Both construct this object, so that what is simulated is what runs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::Packing;
use crate::Id;
use crate::cache::{Cache, Moved};
use crate::log::{Event, JobLog, MemberId, Step};
use crate::packages::Packages;
use crate::policy::{Future, Sizes};
use crate::sampling::Plan;
use crate::schedule::{Outcome, Schedule};
use crate::tally::{Tally, Traffic};

/// The most bytes that are read in one request because samples lie side by side.
pub const TOGETHER: u64 = 1 << 20;

/// What deciding a slot brought about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A resident was evicted.
    Evicted(Id),
    /// A package is read; of its members these are kept from now on.
    Loaded {
        /// The plan's epoch.
        epoch: u64,
        /// The package.
        package: u32,
        /// Those that are kept.
        kept: Vec<Id>,
    },
    /// A slot was decided.
    Decided {
        /// The plan's epoch.
        epoch: u64,
        /// The slot.
        slot: usize,
        /// What it serves.
        id: Id,
        /// What it costs.
        outcome: Outcome,
        /// Whether it is kept from now on, and was not before.
        admitted: bool,
    },
    /// The reads of these slots are one request, of so many bytes.
    Requested {
        /// The plan's epoch.
        epoch: u64,
        /// The slots, by what they serve.
        slots: Vec<usize>,
        /// The bytes, with what lies between them.
        bytes: u64,
    },
}

/// The plans under way, by epoch.
pub type Schedules = BTreeMap<u64, Schedule>;

/// Plans under way and tally of one job.
pub struct JobRun {
    pub(super) sizes: Arc<dyn Sizes>,
    /// Its number in its cache.
    member: MemberId,
    pub(super) schedules: Schedules,
    /// Whether its cache knows which plans are under way.
    pub(super) told: bool,
    /// The epoch and the slot that was served last.
    pub(super) served: Option<(u64, usize)>,
    pub(super) tally: Tally,
    pub(super) log: JobLog,
    /// What an offline policy sees.
    future: Option<Future>,
    /// Whether samples lie side by side, so that slots are decided by blocks.
    blocks: bool,
    /// What the block being decided reads.
    reads: Vec<(Id, usize)>,
    moved: Moved,
}

impl JobRun {
    /// One without plans, which has to [join](Self::join) a cache.
    pub fn new(sizes: Arc<dyn Sizes>) -> Self {
        Self {
            member: 0,
            schedules: Schedules::new(),
            told: false,
            served: None,
            tally: Tally::new(Arc::clone(&sizes)),
            log: JobLog::default(),
            future: None,
            blocks: sizes.has_neighbours(),
            sizes,
            reads: Vec::new(),
            moved: Moved::default(),
        }
    }

    /// Lets an offline policy see these plans, which must be those that are put in.
    pub fn foresee(&mut self, plans: &[Arc<Plan>]) {
        self.future = Some(Future::new(self.sizes.len(), plans.iter().map(|plan| &**plan)));
    }

    /// Its number in its cache.
    pub fn member(&self) -> MemberId {
        self.member
    }

    /// Joins the cache that its slots are decided in.
    pub fn join(&mut self, cache: &mut Cache) {
        (self.member, self.told) = (cache.join(), false);
        self.log.join(self.member, cache.log());
    }

    /// What is noted of it in the log of its cache, where one is kept.
    pub fn log(&self) -> &JobLog {
        &self.log
    }

    /// The tally.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The tally, to be told what became of a plan.
    pub fn tally_mut(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// The plans under way.
    pub fn schedules(&self) -> &Schedules {
        &self.schedules
    }

    /// The plan of an epoch.
    pub fn schedule(&self, epoch: u64) -> Option<&Schedule> {
        self.schedules.get(&epoch)
    }

    /// The plan of an epoch, to be carried out.
    pub fn schedule_mut(&mut self, epoch: u64) -> Option<&mut Schedule> {
        self.schedules.get_mut(&epoch)
    }

    /// Gives each plan a number of its own, which tells it from others of its epoch.
    pub fn number_plans(&mut self, mut next: impl FnMut() -> u64) {
        self.schedules.values_mut().for_each(|schedule| schedule.set_generation(next()));
    }

    /// A plan was made, and while it is trained this is packed.
    pub fn planned(&mut self, schedule: Schedule, packing: &Packing) {
        let epoch = schedule.plan().epoch();
        self.log.step(epoch, || Step::Ready);
        self.tally.packs(epoch, packing, schedule.packages().map(|packages| &**packages));
        self.put(schedule);
    }

    /// Takes a plan out.
    pub fn remove(&mut self, epoch: u64) -> Option<Schedule> {
        self.log.step(epoch, || Step::Removed);
        self.told = false;
        self.schedules.remove(&epoch)
    }

    /// Takes out the plans of which all slots are decided, which a replay serves as they are decided.
    pub(crate) fn drop_done(&mut self) {
        self.told = false;
        self.schedules.retain(|_, schedule| schedule.next_undecided().is_some());
    }

    /// Puts a plan in that was there before, or comes from another server.
    pub fn put(&mut self, schedule: Schedule) {
        self.told = false;
        self.schedules.insert(schedule.plan().epoch(), schedule);
    }

    /// The slots of the block that is decided next, and their epoch. Some of them may be done.
    pub fn next_block(&mut self) -> Option<(u64, Range<usize>)> {
        let mut passed = false;
        let next = |(&epoch, schedule): (&u64, &mut Schedule)| {
            let (before, next) = (schedule.frontier(), schedule.next_undecided());
            passed |= schedule.frontier() > before;
            Some((epoch, next?))
        };
        let next = self.schedules.iter_mut().find_map(next);
        if passed {
            self.log.note(Event::Passed);
        }
        let (epoch, slot) = next?;
        let end =
            if self.blocks { self.schedules.get_mut(&epoch)?.block_end(&*self.sizes) } else { slot + 1 };
        Some((epoch, slot..end))
    }

    /// Decides the next slot and says what that brought about. False when its block is over, or there is nothing to
    /// decide; a block is decided to its end before anything else happens.
    pub fn step(&mut self, cache: &mut Cache, changes: &mut Vec<Change>) -> bool {
        let next = self.next_block();
        next.is_some_and(|next| self.step_at(next, cache, changes).is_some())
    }

    /// The same where it is known which [block](Self::next_block) comes next: what is left of it, if something is.
    pub fn step_at(
        &mut self,
        (epoch, block): (u64, Range<usize>),
        cache: &mut Cache,
        changes: &mut Vec<Change>,
    ) -> Option<(u64, Range<usize>)> {
        if !self.told {
            let plans = self.schedules.iter();
            let plans = plans.map(|(&of, plan)| (of, (Arc::clone(plan.positions()), plan.plan().len())));
            cache.set_plans(self.member, plans);
            self.told = true;
        }
        let schedule = self.schedules.get_mut(&epoch)?;
        let (slot, id) = (block.start, schedule.id(block.start));
        let (outcome, event) =
            cache.decide(self.member, schedule, slot, self.future.as_mut(), &mut self.moved);
        schedule.set_told(event);
        for id in self.moved.evicted.drain(..) {
            if !cache.policy().contains(id) && cache.settle(id).is_some() {
                changes.push(Change::Evicted(id));
            }
        }
        if let Some(packages) = schedule.packages() {
            // A package that a plan was made from and that is another now holds nothing for it.
            for package in self.moved.loads.drain(..).filter(|&package| packages.packed(package) > 0) {
                self.tally.loads(epoch, packages, package);
                let kept = packages.members(package).iter().copied();
                let kept = kept.filter(|&id| cache.settle(id) == Some(true)).collect();
                changes.push(Change::Loaded { epoch, package, kept });
            }
        }
        let admitted = cache.settle(id) == Some(true);
        if admitted {
            cache.brought(self.member, id);
        } else if outcome == Outcome::Hit && cache.is_of_another(self.member, id) {
            self.tally.hits_shared(epoch);
        }
        schedule.decide(slot, outcome);
        changes.push(Change::Decided { epoch, slot, id, outcome, admitted });
        if outcome == Outcome::Single {
            self.reads.push((id, slot));
        }
        let next = if block.len() > 1 { self.next_block() } else { None };
        let next = next.filter(|(of, next)| *of == epoch && next.start < block.end);
        if next.is_none() {
            self.request(epoch, changes);
        }
        next
    }

    /// Makes requests of what a block reads: neighbours are read together.
    fn request(&mut self, epoch: u64, changes: &mut Vec<Change>) {
        if self.reads.is_empty() {
            return;
        }
        if let [(id, slot)] = self.reads[..] {
            self.reads.clear();
            let bytes = self.sizes.size(id);
            self.tally.reads(epoch, Traffic { reads: 1, requests: 1, bytes });
            changes.push(Change::Requested { epoch, slots: vec![slot], bytes });
            return;
        }
        self.reads.sort_unstable();
        let mut requests: Vec<(Vec<usize>, u64)> = Vec::new();
        let mut last: Option<Id> = None;
        for (id, slot) in self.reads.drain(..) {
            let size = self.sizes.size(id);
            let gap = last
                .filter(|&last| last.checked_add(1) == Some(id))
                .and_then(|last| self.sizes.gap_after(last));
            match (requests.last_mut(), gap) {
                (Some((slots, bytes)), Some(gap)) if *bytes + gap + size <= TOGETHER => {
                    slots.push(slot);
                    *bytes += gap + size;
                }
                _ => requests.push((vec![slot], size)),
            }
            last = Some(id);
        }
        requests.sort_by_key(|(slots, _)| slots.iter().min().copied());
        for (slots, bytes) in requests {
            self.tally.reads(epoch, Traffic { reads: slots.len() as u64, requests: 1, bytes });
            changes.push(Change::Requested { epoch, slots, bytes });
        }
    }

    /// The sample that was served last, and how many slots of its epoch come after it; nothing between epochs.
    pub fn place(&self) -> Option<(usize, Id)> {
        let (epoch, slot) = self.served?;
        let schedule = self.schedules.get(&epoch)?;
        // A plan that was cut anew may be shorter.
        let left = schedule.plan().len().checked_sub(slot + 1)?;
        (left > 0).then(|| (left, schedule.id(slot)))
    }

    /// The same of the sample that is decided next.
    pub fn next_place(&self) -> Option<(usize, Id)> {
        self.schedules.values().find_map(|schedule| {
            let left = schedule.plan().len().checked_sub(schedule.frontier())?;
            (left > 0).then(|| (left, schedule.id(schedule.frontier())))
        })
    }

    /// The packages that the plan of an epoch was made from.
    pub fn packages(&self, epoch: u64) -> Option<&Arc<Packages>> {
        self.schedules.get(&epoch)?.packages()
    }
}
