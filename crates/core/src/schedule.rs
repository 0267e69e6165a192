//! One epoch's plan while it is carried out.
//!
//! Slots pass through three states: *ahead* (nobody has looked yet), *decided* (its policy has said hit or
//! read; the slot is in the prefetch window), and *done* (served, skipped by a resumed run, or abandoned).
//! Deciding goes strictly in plan order; serving follows whatever order readers ask in. A request names
//! ids: where a plan repeats some it takes the slots that serve them one after the other, and if there are none each
//! takes the earliest slot of its id that its rank has not been served. Slots of one id are chained,
//! so that both questions, which slot does this request take and when is this id due next, cost the number
//! of times the plan repeats that one id.
//!
//! A plan may have events for its policy between slots; the schedule knows which come next, and which packages
//! they speak of.

use std::sync::Arc;

use crate::Id;
use crate::packages::Packages;
use crate::policy::Begin;
use crate::sampling::{Event, Plan};

const NONE: u32 = u32::MAX;

/// What was decided of a slot, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not yet in the window.
    Ahead,
    /// In the window; its sample needs no read.
    Hit,
    /// In the window; its bytes come in a package.
    Packed,
    /// In the window; its sample is read.
    Single,
    /// In the window; the policy keeps its sample, but the bytes are lost and are read again.
    Refill,
    /// Decided; its sample is read when it is asked for, and not before.
    Unread,
    /// Decided before its rank began the epoch again; what it needs is seen when it is asked for.
    Again,
    /// A reader has asked for it and waits; no other request may take it.
    Taken,
    /// Served, skipped or abandoned.
    Done,
}

impl State {
    /// Whether a slot is in the window, holds its sample's bytes, and nobody has asked for it yet.
    pub fn waits(self) -> bool {
        matches!(self, Self::Hit | Self::Packed | Self::Single | Self::Refill)
    }
}

/// One epoch's plan and how far it has come. See the module's head.
pub struct Schedule {
    plan: Arc<Plan>,
    /// The first slot of each id that is not done; slots of one id are chained by `next`.
    first: Vec<u32>,
    /// The next slot of the same id. Empty while no id repeats.
    next: Vec<u32>,
    states: Vec<State>,
    /// One bit an id that was served. Empty while no id repeats.
    seen: Vec<u64>,
    /// The first slot not yet decided.
    frontier: usize,
    ranks: Vec<Rank>,
    restored: bool,
    generation: u64,
    /// The packages that its plan was made from, and the bytes of one.
    packages: Option<(Arc<Packages>, u64)>,
    /// The event that comes next.
    event: usize,
    /// Whether its policy was told that it begins.
    told: bool,
}

/// One rank's way through an epoch.
#[derive(Debug, Clone, Copy, Default)]
struct Rank {
    begun: bool,
    closed: bool,
    /// All positions before this are done.
    oldest: usize,
    served: usize,
}

impl Schedule {
    /// A plan that nobody has begun. `samples` is the catalog's length.
    pub fn new(plan: Arc<Plan>, samples: usize) -> Self {
        let slots = plan.ids().len();
        let mut first = vec![NONE; samples];
        let mut next = Vec::new();
        for (slot, &id) in plan.ids().iter().enumerate().rev() {
            let head = &mut first[id as usize];
            if *head != NONE && next.is_empty() {
                next = vec![NONE; slots];
            }
            if let Some(link) = next.get_mut(slot) {
                *link = *head;
            }
            *head = slot as u32;
        }
        let ranks = vec![Rank::default(); plan.world() as usize];
        Self {
            plan,
            first,
            next,
            states: vec![State::Ahead; slots],
            seen: Vec::new(),
            frontier: 0,
            ranks,
            restored: false,
            generation: 0,
            packages: None,
            event: 0,
            told: false,
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

    /// A plan that another server had begun to carry out, with the states of the slots it had decided, and how many of
    /// its events its policy was `told`, if it was told that the plan begins.
    pub fn restored(
        plan: Arc<Plan>,
        samples: usize,
        states: impl Iterator<Item = State>,
        told: Option<usize>,
    ) -> Self {
        let mut schedule = Self::new(plan, samples);
        for (slot, state) in states.enumerate().take(schedule.states.len()) {
            schedule.states[slot] = state;
            schedule.frontier = slot + 1;
            if state == State::Done {
                schedule.finish(slot);
            }
        }
        schedule.restored = true;
        (schedule.told, schedule.event) = (told.is_some(), told.unwrap_or_default());
        schedule
    }

    /// The same order carried out by another number of ranks, none of which has begun it. What was decided stays
    /// decided.
    #[must_use]
    pub fn recut(self, world: u32) -> Self {
        let plan = Arc::new(self.plan.recut(world));
        let samples = self.first.len();
        let decided = self.frontier.min(plan.len());
        let (told, generation) = (self.told(), self.generation);
        let states = self.states.into_iter().take(decided);
        Self { generation, packages: self.packages, ..Self::restored(plan, samples, states, told) }
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
        (begin, self.told)
    }

    /// Notes that its policy was told, and of its events those before `event`.
    pub fn set_told(&mut self, event: usize) {
        (self.told, self.event) = (true, event);
    }

    /// The event of that number, if it comes before `slot` is decided.
    pub fn event(&self, number: usize, slot: usize) -> Option<Event> {
        let (at, event) = self.plan.events().get(number)?;
        (*at as usize <= slot).then_some(*event)
    }

    /// How many of its events its policy was told, if it was told that it begins.
    pub fn told(&self) -> Option<usize> {
        self.told.then_some(self.event)
    }

    /// The number of the event that comes next.
    pub fn next_event(&self) -> usize {
        self.event
    }

    /// The packages that its plan was made from.
    pub fn packages(&self) -> Option<&Arc<Packages>> {
        self.packages.as_ref().map(|(packages, _)| packages)
    }

    /// Notes that whoever had begun it is gone.
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

    /// Whether another server had begun it: slots that nobody asks for here may have been served there.
    pub fn is_restored(&self) -> bool {
        self.restored
    }

    /// The plan itself.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// How many slots were decided.
    pub fn frontier(&self) -> usize {
        self.frontier
    }

    /// The state of a slot.
    pub fn state(&self, slot: usize) -> State {
        self.states[slot]
    }

    /// The id that `slot` serves.
    pub fn id(&self, slot: usize) -> Id {
        self.plan.ids()[slot]
    }

    /// The next slot to decide, skipping those that are done and those of ranks that have left.
    pub fn next_undecided(&mut self) -> Option<usize> {
        while self.frontier < self.states.len()
            && (self.states[self.frontier] == State::Done
                || self.ranks[self.frontier % self.ranks.len()].closed)
        {
            self.frontier += 1;
        }
        (self.frontier < self.states.len()).then_some(self.frontier)
    }

    /// Whether every slot was decided, or belongs to a rank that has left.
    pub fn is_decided(&self) -> bool {
        let mut rest = self.states.iter().enumerate().skip(self.frontier);
        rest.all(|(slot, state)| *state == State::Done || self.ranks[slot % self.ranks.len()].closed)
    }

    /// Notes what was decided of the slot that [`Self::next_undecided`] gave.
    pub fn decide(&mut self, slot: usize, outcome: State) {
        debug_assert!(outcome.waits() || outcome == State::Unread);
        debug_assert_eq!(slot, self.frontier);
        self.states[slot] = outcome;
        self.frontier = slot + 1;
    }

    /// Whether the plan serves an id twice.
    pub fn repeats(&self) -> bool {
        !self.next.is_empty()
    }

    /// The slot that a request of `rank` for `id` takes, decided or not.
    pub fn find(&self, rank: u32, id: Id) -> Option<usize> {
        self.find_after(rank, id, 0)
    }

    /// The same for a request that has asked for `id` so many times `before`.
    pub fn find_after(&self, rank: u32, id: Id, before: usize) -> Option<usize> {
        // A straggler of a rank that has left is nobody's slot any more.
        if self.ranks.get(rank as usize).is_none_or(|rank| rank.closed) {
            return None;
        }
        let open = |&slot: &usize| {
            slot % self.ranks.len() == rank as usize
                && !matches!(self.states[slot], State::Done | State::Taken)
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
            self.plan.ids().get(slot) == Some(&id) && !matches!(self.states[slot], State::Done | State::Taken)
        };
        let mut own = self.chain(*ids.first()?).filter(|slot| slot % world == rank).map(|slot| slot / world);
        own.find(|&from| (from..).zip(ids).all(|(position, &id)| serves(position, id)))
    }

    /// Whether a decided slot of `id` has not been served yet.
    pub fn waits_for(&self, id: Id) -> bool {
        let waits = |state: State| state.waits() || matches!(state, State::Taken | State::Unread);
        self.chain(id).any(|slot| waits(self.states[slot]))
    }

    /// How many decided slots of `id` nobody has asked for yet.
    pub fn holds(&self, id: Id) -> u32 {
        let held = |&slot: &usize| self.states[slot].waits();
        self.chain(id).filter(held).count() as u32
    }

    /// The first undecided slot of `id` beyond the slot being decided.
    pub fn due(&self, id: Id) -> Option<usize> {
        self.chain(id).find(|&slot| slot > self.frontier)
    }

    /// The first undecided slot of `id`, when no slot of this epoch is being decided.
    pub fn first_due(&self, id: Id) -> Option<usize> {
        self.chain(id).find(|&slot| slot >= self.frontier)
    }

    /// Takes a decided slot for a waiting reader; the state it had.
    pub fn take(&mut self, slot: usize) -> State {
        std::mem::replace(&mut self.states[slot], State::Taken)
    }

    /// Gives a taken slot back, because its request failed.
    pub fn untake(&mut self, slot: usize, was: State) {
        self.states[slot] = was;
    }

    /// Notes that a slot was served. True the first time its id was served in this epoch.
    pub fn serve(&mut self, slot: usize) -> bool {
        let rank = slot % self.ranks.len();
        self.ranks[rank].served += 1;
        if self.next.is_empty() {
            self.finish(slot);
            return true;
        }
        // An earlier one was served by the server before, or will be served here.
        let again = self.restored
            && self
                .chain(self.id(slot))
                .take_while(|&other| other < slot)
                .any(|other| self.states[other] != State::Done);
        self.finish(slot);
        if again {
            return false;
        }
        let id = self.id(slot) as usize;
        self.seen.resize(self.first.len().div_ceil(64), 0);
        let fresh = self.seen[id / 64] & (1 << (id % 64)) == 0;
        self.seen[id / 64] |= 1 << (id % 64);
        fresh
    }

    /// Notes that a decided slot was served by the server before, which has counted it. If it was in the window here it
    /// is appended to `left`.
    pub fn served_before(&mut self, slot: usize, left: &mut Vec<(usize, State)>) {
        let was = self.states[slot];
        if matches!(was, State::Done | State::Taken | State::Ahead) {
            return;
        }
        if was.waits() {
            left.push((slot, was));
        }
        self.serve(slot);
    }

    /// Leaves the slots behind that a request for `slot` has overtaken by more than `margin` positions of
    /// its rank. Returns how many; those that were decided are appended to `decided`.
    pub fn overtake(&mut self, slot: usize, margin: usize, decided: &mut Vec<(usize, State)>) -> usize {
        let world = self.ranks.len();
        let until = (slot / world).saturating_sub(margin);
        self.abandon_before(slot % world, until, decided)
    }

    /// Begins the epoch for `rank`, `start` of its slots having been trained before; those of them that were
    /// decided already are appended to `left`. False if it had begun.
    pub fn begin(&mut self, rank: u32, start: usize, left: &mut Vec<(usize, State)>) -> bool {
        if std::mem::replace(&mut self.ranks[rank as usize].begun, true) {
            return false;
        }
        self.abandon_before(rank as usize, start.min(self.plan.rank_len()), left);
        true
    }

    /// Whether any rank has begun this epoch.
    pub fn begun(&self) -> bool {
        self.ranks.iter().any(|rank| rank.begun)
    }

    /// Whether `rank` has begun this epoch and not closed it.
    pub fn begun_by(&self, rank: u32) -> bool {
        self.ranks.get(rank as usize).is_some_and(|rank| rank.begun && !rank.closed)
    }

    /// Begins the epoch once more for a rank that had begun it, from position `start`; slots before that were
    /// decided and not served are appended to `left`.
    ///
    /// What was decided stays decided, since a policy is asked once a slot. One visit to each of the rank's
    /// slots: only a trainer that starts an epoch over pays it.
    pub fn begin_again(&mut self, rank: u32, start: usize, left: &mut Vec<(usize, State)>) {
        let world = self.ranks.len();
        let rank = rank as usize;
        let start = start.min(self.plan.rank_len());
        for position in 0..self.plan.rank_len() {
            let slot = position * world + rank;
            match self.states[slot] {
                State::Done if position >= start => {
                    self.states[slot] = if slot < self.frontier { State::Again } else { State::Ahead };
                    let head = &mut self.first[self.plan.ids()[slot] as usize];
                    *head = (*head).min(slot as u32);
                }
                // Passed over while the rank was closed: deciding will not come back to it.
                State::Ahead if position >= start && slot < self.frontier => self.states[slot] = State::Again,
                State::Ahead | State::Again | State::Unread if position < start => self.finish(slot),
                was if position < start && was.waits() => {
                    left.push((slot, was));
                    self.finish(slot);
                }
                _ => {}
            }
        }
        self.ranks[rank] = Rank { begun: true, closed: false, oldest: start, served: 0 };
    }

    /// How many slots of `rank` were served.
    pub fn served(&self, rank: u32) -> usize {
        self.ranks[rank as usize].served
    }

    /// Closes the epoch for `rank`. Returns how many slots it left; those that were decided are appended to
    /// `decided`. The others need no visit: deciding passes over a rank that has closed.
    pub fn close(&mut self, rank: u32, decided: &mut Vec<(usize, State)>) -> usize {
        let rank = rank as usize;
        if std::mem::replace(&mut self.ranks[rank].closed, true) {
            return 0;
        }
        let world = self.ranks.len();
        let reached = self.frontier.saturating_sub(rank).div_ceil(world).min(self.plan.rank_len());
        let ahead = self.plan.rank_len() - reached.max(self.ranks[rank].oldest);
        self.abandon_before(rank, reached, decided) + ahead
    }

    /// Whether every rank has closed this epoch.
    pub fn closed(&self) -> bool {
        self.ranks.iter().all(|rank| rank.closed)
    }

    /// Leaves behind every decided slot that nobody waits for; those slots.
    pub fn abandon_outstanding(&mut self) -> Vec<(usize, State)> {
        self.abandon_from(0)
    }

    /// Leaves behind every decided slot from `slot` on that nobody waits for; those slots.
    pub fn abandon_from(&mut self, slot: usize) -> Vec<(usize, State)> {
        let held = |slot: &usize| self.states[*slot].waits();
        let slots: Vec<(usize, State)> =
            (slot..self.frontier).filter(held).map(|slot| (slot, self.states[slot])).collect();
        slots.iter().for_each(|&(slot, _)| self.finish(slot));
        slots
    }

    /// Bytes on the heap.
    pub fn memory(&self) -> usize {
        4 * (self.plan.ids().len() + self.first.len() + self.next.len())
            + self.states.len()
            + 8 * self.seen.len()
    }

    fn abandon_before(&mut self, rank: usize, until: usize, decided: &mut Vec<(usize, State)>) -> usize {
        let world = self.ranks.len();
        let mut count = 0;
        let mut waited_for = None;
        for position in self.ranks[rank].oldest..until {
            let slot = position * world + rank;
            match self.states[slot] {
                State::Done => continue,
                // A slot that a reader waits for is about to be served.
                State::Taken => {
                    waited_for.get_or_insert(position);
                    continue;
                }
                State::Ahead | State::Again | State::Unread => {}
                was @ (State::Hit | State::Packed | State::Single | State::Refill) => {
                    decided.push((slot, was))
                }
            }
            count += 1;
            self.finish(slot);
        }
        let oldest = &mut self.ranks[rank].oldest;
        *oldest = waited_for.unwrap_or(until.max(*oldest));
        count
    }

    fn finish(&mut self, slot: usize) {
        self.states[slot] = State::Done;
        let id = self.plan.ids()[slot] as usize;
        while self.first[id] != NONE && self.states[self.first[id] as usize] == State::Done {
            let done = self.first[id] as usize;
            self.first[id] = self.next.get(done).copied().unwrap_or(NONE);
        }
    }

    fn chain(&self, id: Id) -> impl Iterator<Item = usize> + '_ {
        let mut at = self.first[id as usize];
        std::iter::from_fn(move || {
            let slot = (at != NONE).then_some(at as usize)?;
            at = self.next.get(slot).copied().unwrap_or(NONE);
            Some(slot)
        })
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
