//! One epoch's plan while it is carried out.
//!
//! Slots pass through three stages: *ahead* (not looked at yet), *decided* (the policy has said what it costs; the
//! slot may be in the prefetch window), and *done* (served or left). Deciding goes strictly in plan order; serving
//! follows whatever order readers ask in. A request names ids: where a plan repeats some it takes the slots that serve
//! them one after the other, and if there are none each takes the earliest slot of its id that its rank has not been
//! served. Slots of one id are chained, so that both questions, which slot does this request take and when is this id
//! due next, cost the number of times the plan repeats that one id.
//!
//! A plan may have events for its policy between slots; the schedule knows which come next, and which packages
//! they speak of. Where samples lie side by side in one object, slots are decided a *block* at a time, and the block's
//! reads that are neighbours are one request. Blocks follow from plan and sizes, so requests do too.
//!
//! On a node of a cluster a schedule has the [`Ownership`](crate::cluster::Ownership) that its plan was made with. Every
//! node holds the whole plan and passes all its slots in plan order; its policy is asked only about those whose samples the
//! node owns, in whatever rank they lie, and the others are [`Outcome::Elsewhere`]. So each slot is decided by one node,
//! and all of them together decide what one would. The simulator serves a slot on the node that decides it. A server does
//! so when the slot's reader, or the node where it reads, asks for it; where its own ranks read a slot that is decided
//! elsewhere it asks that node, and counts nothing. Slots that are neither its own nor of its ranks it passes. Which ranks
//! are *away*, on other nodes, the plan's [`Layout`](crate::cluster::Layout) says, and they themselves when they begin.
//!
//! How ranks begin, overtake and leave an epoch is in `ranks.rs`, what a node owns of it in `owners.rs`.

mod owners;
mod ranks;

use std::sync::Arc;

use crate::Id;
use crate::bits::Bits;
use crate::packages::Packages;
use crate::policy::{Begin, Sizes};
use crate::positions::Positions;
use crate::sampling::{Event, Plan};
use crate::tally::Serving;

use owners::Share;
use ranks::Rank;

/// The most slots and the most bytes of a block: reads within one may become one request.
const BLOCK_SLOTS: usize = 256;
const BLOCK_BYTES: u64 = 1 << 20;

/// What a slot costs, as its policy decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// No read.
    Hit,
    /// Its bytes come in a package.
    Packed,
    /// A read of its own.
    Single,
    /// Another node owns its sample: it decides what the slot costs, and counts it.
    Elsewhere,
}

/// How far a slot has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Not decided.
    Ahead,
    /// Decided; its bytes are held, or are on their way.
    Waiting,
    /// Decided; its read is made when it is asked for, and not before.
    Unread,
    /// Its rank begins the epoch again; what it needs is seen when it is asked for.
    Again,
    /// A reader has asked for it and waits; no other request may take it.
    Taken,
    /// Served.
    Served,
    /// Skipped or abandoned.
    Left,
}

impl Stage {
    /// Whether nothing more happens to a slot.
    pub fn is_done(self) -> bool {
        matches!(self, Self::Served | Self::Left)
    }
}

/// One epoch's plan and how far it has come.
pub struct Schedule {
    plan: Arc<Plan>,
    /// Where each id is served, and the first slot not yet decided.
    positions: Arc<Positions>,
    stages: Vec<Stage>,
    /// What was decided of each slot.
    outcomes: Vec<Option<Outcome>>,
    /// Slots that serve an id which an earlier slot serves. Empty while no id repeats.
    repeated: Bits,
    /// Where the block ends that the frontier lies in.
    block_end: usize,
    ranks: Vec<Rank>,
    restored: bool,
    recut: bool,
    generation: u64,
    /// The packages that its plan was made from, and the bytes of one.
    packages: Option<(Arc<Packages>, u64)>,
    /// What of it is this node's.
    share: Share,
    told: Told,
}

/// What a policy was told of a schedule.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    /// Whether it was told that it begins.
    begun: bool,
    /// The event that comes next.
    event: usize,
}

impl Schedule {
    /// A plan that no rank has begun. `samples` is the catalog's length.
    pub fn new(plan: Arc<Plan>, samples: usize) -> Self {
        let slots = plan.ids().len();
        let positions = Positions::new(&plan, samples);
        let mut repeated = Bits::default();
        if positions.repeats() {
            repeated = Bits::new(slots);
            let mut seen = Bits::new(samples);
            for (slot, &id) in plan.ids().iter().enumerate().filter(|(slot, _)| !plan.is_silent(*slot)) {
                if !seen.insert(id) {
                    repeated.insert(slot as Id);
                }
            }
        }
        let ranks = vec![Rank::default(); plan.world() as usize];
        Self {
            plan,
            positions: Arc::new(positions),
            stages: vec![Stage::Ahead; slots],
            outcomes: vec![None; slots],
            repeated,
            block_end: 0,
            ranks,
            restored: false,
            recut: false,
            generation: 0,
            packages: None,
            share: Share::default(),
            told: Told::default(),
        }
    }

    /// The same, with the packages that its plan was made from and the bytes of one.
    #[must_use]
    pub fn with_packages(mut self, packages: Option<(Arc<Packages>, u64)>) -> Self {
        self.packages = packages;
        self
    }

    /// Sets the packages that its plan was made from and the bytes of one.
    pub fn set_packages(&mut self, packages: Option<(Arc<Packages>, u64)>) {
        self.packages = packages;
    }

    /// A plan that another server had begun to carry out, with the slots it had decided, and how many of its events its
    /// policy was `told`, if it was told that the plan begins.
    pub fn restored(
        plan: Arc<Plan>,
        samples: usize,
        decided: impl Iterator<Item = (Stage, Option<Outcome>)>,
        told: Option<usize>,
    ) -> Self {
        let mut schedule = Self::new(plan, samples);
        for (slot, (stage, outcome)) in decided.enumerate().take(schedule.stages.len()) {
            (schedule.stages[slot], schedule.outcomes[slot]) = (stage, outcome);
            schedule.positions.set_frontier(slot + 1);
            if stage.is_done() {
                schedule.finish(slot, stage);
            }
        }
        schedule.restored = true;
        schedule.told = Told { begun: told.is_some(), event: told.unwrap_or_default() };
        schedule
    }

    /// What its policy is told of it before its first slot, and whether it was told.
    pub fn begins(&self) -> (Begin<'_>, bool) {
        let begin = Begin {
            epoch: self.plan.epoch(),
            keys: self.plan.keys(),
            package: self.packages.as_ref().map(|(_, bytes)| *bytes),
            selected: (self.plan.selected_high(), self.plan.len() as u64),
            still: self.plan.is_still(),
        };
        (begin, self.told.begun)
    }

    /// Notes that its policy was told, and of its events those before `event`.
    pub fn set_told(&mut self, event: usize) {
        self.told = Told { begun: true, event };
    }

    /// The event of that number, if it comes before `slot` is decided.
    pub fn event(&self, number: usize, slot: usize) -> Option<Event> {
        let (at, event) = self.plan.events().get(number)?;
        (*at as usize <= slot).then_some(*event)
    }

    /// How many of its events its policy was told, if it was told that it begins.
    pub fn told(&self) -> Option<usize> {
        self.told.begun.then_some(self.told.event)
    }

    /// The number of the event that comes next.
    pub fn next_event(&self) -> usize {
        self.told.event
    }

    /// The packages that its plan was made from.
    pub fn packages(&self) -> Option<&Arc<Packages>> {
        self.packages.as_ref().map(|(packages, _)| packages)
    }

    /// Notes that the ranks that had begun it are gone.
    pub fn set_restored(&mut self) {
        self.restored = true;
    }

    /// A number that tells it from another schedule of the same epoch.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Sets that number.
    pub fn set_generation(&mut self, generation: u64) {
        self.generation = generation;
    }

    /// Whether another server had begun it: slots that are not asked for here may have been served there.
    pub fn is_restored(&self) -> bool {
        self.restored
    }

    /// The plan itself.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// How many slots were decided.
    pub fn frontier(&self) -> usize {
        self.positions.frontier()
    }

    /// Where its plan serves each id, for the cache that decides it.
    pub fn positions(&self) -> &Arc<Positions> {
        &self.positions
    }

    /// How far a slot has come.
    pub fn stage(&self, slot: usize) -> Stage {
        self.stages[slot]
    }

    /// What was decided of a slot; `None` for one that was passed over.
    pub fn outcome(&self, slot: usize) -> Option<Outcome> {
        self.outcomes[slot]
    }

    /// The id that `slot` serves.
    pub fn id(&self, slot: usize) -> Id {
        self.plan.ids()[slot]
    }

    /// The next slot to decide, skipping those that are done and those of ranks that have left.
    pub fn next_undecided(&mut self) -> Option<usize> {
        let mut slot = self.frontier();
        while slot < self.stages.len()
            && (self.stages[slot].is_done() || self.ranks[slot % self.ranks.len()].closed)
        {
            slot += 1;
        }
        self.positions.set_frontier(slot);
        (slot < self.stages.len()).then_some(slot)
    }

    /// Where the block of the next slot to decide ends.
    pub fn block_end(&mut self, sizes: &dyn Sizes) -> usize {
        while self.block_end <= self.frontier() && self.block_end < self.stages.len() {
            let mut bytes = 0;
            let ids = self.plan.ids()[self.block_end..].iter().take(BLOCK_SLOTS);
            let fits = |&&id: &&Id| {
                bytes += sizes.size(id);
                bytes <= BLOCK_BYTES
            };
            self.block_end += ids.take_while(fits).count().max(1);
        }
        self.block_end
    }

    /// Whether every slot was decided, or belongs to a rank that has left.
    pub fn is_decided(&self) -> bool {
        self.has_decided(|_| true)
    }

    /// Whether no slot is left to decide of those whose samples this node owns.
    pub fn has_decided_own(&self) -> bool {
        self.has_decided(|slot| self.owns(slot))
    }

    fn has_decided(&self, is_meant: impl Fn(usize) -> bool) -> bool {
        let mut rest = self.stages.iter().enumerate().skip(self.frontier());
        rest.all(|(slot, stage)| {
            stage.is_done() || self.ranks[slot % self.ranks.len()].closed || !is_meant(slot)
        })
    }

    /// Notes what was decided of the slot that [`Self::next_undecided`] gave. When its bytes are there, that is said by
    /// [`Self::wait`].
    pub fn decide(&mut self, slot: usize, outcome: Outcome) {
        debug_assert_eq!(slot, self.frontier());
        (self.stages[slot], self.outcomes[slot]) = (Stage::Unread, Some(outcome));
        self.positions.set_frontier(slot + 1);
    }

    /// Notes that the bytes of a decided slot are held, or are on their way.
    pub fn wait(&mut self, slot: usize) {
        debug_assert_eq!(self.stages[slot], Stage::Unread);
        self.stages[slot] = Stage::Waiting;
    }

    /// Whether the plan serves an id twice.
    pub fn repeats(&self) -> bool {
        self.positions.repeats()
    }

    /// The slot that a request of `rank` for `id` takes, decided or not.
    pub fn find(&self, rank: u32, id: Id) -> Option<usize> {
        self.find_after(rank, id, 0)
    }

    /// The same for a request that has asked for `id` so many times `before`.
    pub fn find_after(&self, rank: u32, id: Id, before: usize) -> Option<usize> {
        // A straggler of a rank that has left has no slot any more.
        if self.ranks.get(rank as usize).is_none_or(|rank| rank.closed) {
            return None;
        }
        let open = |&slot: &usize| {
            slot % self.ranks.len() == rank as usize
                && !self.stages[slot].is_done()
                && self.stages[slot] != Stage::Taken
        };
        self.chain(id).filter(open).nth(before)
    }

    /// The position of `rank` from which on its slots serve `ids`, one after the other, and none of them was asked for.
    pub fn run(&self, rank: u32, ids: &[Id]) -> Option<usize> {
        let (world, rank) = (self.ranks.len(), rank as usize);
        if self.ranks.get(rank).is_none_or(|rank| rank.closed) {
            return None;
        }
        let serves = |position: usize, id: Id| {
            let slot = position * world + rank;
            self.plan.ids().get(slot) == Some(&id)
                && !self.stages[slot].is_done()
                && self.stages[slot] != Stage::Taken
        };
        let mut own = self.chain(*ids.first()?).filter(|slot| slot % world == rank).map(|slot| slot / world);
        own.find(|&from| (from..).zip(ids).all(|(position, &id)| serves(position, id)))
    }

    /// Whether a slot of `id` before `slot` that was decided here has not been served yet.
    pub fn waits_before(&self, id: Id, slot: usize) -> bool {
        let stage = |at: usize| matches!(self.stages[at], Stage::Waiting | Stage::Taken | Stage::Unread);
        let waits = |at| stage(at) && !self.is_elsewhere(at);
        self.chain(id).take_while(|&at| at < slot).any(waits)
    }

    /// Whether a decided slot of `id` whose bytes are on their way has not been served yet.
    pub fn awaits(&self, id: Id) -> bool {
        self.chain(id).any(|at| matches!(self.stages[at], Stage::Waiting | Stage::Taken))
    }

    /// A slot of `id` that was decided here and whose read was not made.
    pub fn unread(&self, id: Id) -> Option<usize> {
        self.chain(id).find(|&slot| self.stages[slot] == Stage::Unread && !self.is_elsewhere(slot))
    }

    /// How many decided slots of `id` were not asked for yet.
    pub fn holds(&self, id: Id) -> u32 {
        self.chain(id).filter(|&slot| self.stages[slot] == Stage::Waiting).count() as u32
    }

    /// Takes a decided slot for a waiting reader; the state it had.
    pub fn take(&mut self, slot: usize) -> Stage {
        std::mem::replace(&mut self.stages[slot], Stage::Taken)
    }

    /// Gives a taken slot back, because its request failed.
    pub fn untake(&mut self, slot: usize, was: Stage) {
        self.stages[slot] = was;
    }

    /// Notes what a slot that was passed over costs, now that it is asked for.
    pub fn settle(&mut self, slot: usize, outcome: Outcome) {
        self.outcomes[slot].get_or_insert(outcome);
    }

    /// What serving a decided slot counts as.
    pub fn serving(&self, slot: usize) -> Option<Serving> {
        let silent = self.plan.is_silent(slot);
        Some(Serving {
            id: self.id(slot),
            outcome: self.outcomes[slot]?,
            first: !silent && !self.repeated.contains(slot as Id),
            substituted: self.plan.is_substituted(slot),
            local: !self.share.is_given(slot),
        })
    }

    /// Notes that a slot was served, on the node where its rank is.
    pub fn serve(&mut self, slot: usize) {
        let rank = slot % self.ranks.len();
        self.note_given(slot, self.is_away(rank as u32));
        self.ranks[rank].served += 1;
        self.finish(slot, Stage::Served);
        self.pass_done(rank);
    }

    /// Notes that a slot that was left had been served, by the server before this one.
    pub fn was_served(&mut self, slot: usize) {
        self.note_given(slot, self.is_away((slot % self.ranks.len()) as u32));
        self.stages[slot] = Stage::Served;
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        4 * self.plan.ids().len()
            + self.positions.memory()
            + 2 * self.stages.len()
            + self.repeated.memory()
            + self.share.memory()
    }

    fn finish(&mut self, slot: usize, stage: Stage) {
        self.stages[slot] = stage;
        self.positions.pass(self.plan.ids()[slot], |slot| self.stages[slot].is_done());
    }

    fn chain(&self, id: Id) -> impl Iterator<Item = usize> + '_ {
        self.positions.slots(id)
    }
}

#[cfg(test)]
mod tests;
