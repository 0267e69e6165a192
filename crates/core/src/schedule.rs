//! One epoch's plan while it is carried out.
//!
//! Slots pass through three states: *ahead* (nobody has looked yet), *decided* (its policy has said hit or
//! read; the slot is in the prefetch window), and *done* (served, skipped by a resumed run, or abandoned).
//! Deciding goes strictly in plan order; serving follows whatever order readers ask in. A request names an
//! id: it takes the earliest slot of that id that its rank has not been served. Slots of one id are chained,
//! so that both questions, which slot does this request take and when is this id due next, cost the number
//! of times the plan repeats that one id.

use std::sync::Arc;

use crate::Id;
use crate::sampling::Plan;

const NONE: u32 = u32::MAX;

/// What was decided of a slot, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Not yet in the window.
    Ahead,
    /// In the window; its sample needs no read.
    Hit,
    /// In the window; its sample is read.
    Single,
    /// Decided before its rank began the epoch again; what it needs is seen when it is asked for.
    Again,
    /// A reader has asked for it and waits; no other request may take it.
    Taken,
    /// Served, skipped or abandoned.
    Done,
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
        Self { plan, first, next, states: vec![State::Ahead; slots], seen: Vec::new(), frontier: 0, ranks }
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

    /// Notes what was decided of the slot that [`Self::next_undecided`] gave.
    pub fn decide(&mut self, slot: usize, hit: bool) {
        debug_assert_eq!(slot, self.frontier);
        self.states[slot] = if hit { State::Hit } else { State::Single };
        self.frontier = slot + 1;
    }

    /// The slot that a request of `rank` for `id` takes, decided or not.
    pub fn find(&self, rank: u32, id: Id) -> Option<usize> {
        self.chain(id).find(|&slot| {
            slot % self.ranks.len() == rank as usize
                && !matches!(self.states[slot], State::Done | State::Taken)
        })
    }

    /// Whether a decided slot of `id` has not been served yet.
    pub fn waits_for(&self, id: Id) -> bool {
        self.chain(id).any(|slot| matches!(self.states[slot], State::Hit | State::Single | State::Taken))
    }

    /// How many decided slots of `id` nobody has asked for yet.
    pub fn holds(&self, id: Id) -> u32 {
        let held = |&slot: &usize| matches!(self.states[slot], State::Hit | State::Single);
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
        self.finish(slot);
        if self.next.is_empty() {
            return true;
        }
        let id = self.id(slot) as usize;
        self.seen.resize(self.first.len().div_ceil(64), 0);
        let fresh = self.seen[id / 64] & (1 << (id % 64)) == 0;
        self.seen[id / 64] |= 1 << (id % 64);
        fresh
    }

    /// Leaves the slots behind that a request for `slot` has overtaken by more than `margin` positions of
    /// its rank. Returns how many; those that were decided are appended to `decided`.
    pub fn overtake(&mut self, slot: usize, margin: usize, decided: &mut Vec<(usize, State)>) -> usize {
        let world = self.ranks.len();
        let until = (slot / world).saturating_sub(margin);
        self.abandon_before(slot % world, until, decided)
    }

    /// Begins the epoch for `rank`, `start` of its slots having been trained before. False if it had begun.
    pub fn begin(&mut self, rank: u32, start: usize) -> bool {
        let world = self.ranks.len();
        let rank = rank as usize;
        if std::mem::replace(&mut self.ranks[rank].begun, true) {
            return false;
        }
        let start = start.min(self.plan.rank_len());
        for position in 0..start {
            let slot = position * world + rank;
            if self.states[slot] == State::Ahead {
                self.finish(slot);
            }
        }
        self.ranks[rank].oldest = self.ranks[rank].oldest.max(start);
        true
    }

    /// Whether any rank has begun this epoch.
    pub fn begun(&self) -> bool {
        self.ranks.iter().any(|rank| rank.begun)
    }

    /// Begins the epoch once more for a rank that had begun it, from position `start`.
    ///
    /// What was decided stays decided, since a policy is asked once a slot. One visit to each of the rank's
    /// slots: only a trainer that starts an epoch over pays it.
    pub fn begin_again(&mut self, rank: u32, start: usize) {
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
                State::Ahead | State::Again if position < start => self.finish(slot),
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
        let held = |&slot: &usize| matches!(self.states[slot], State::Hit | State::Single);
        let slots: Vec<usize> = (0..self.frontier).filter(held).collect();
        let states = slots.iter().map(|&slot| (slot, self.states[slot])).collect();
        for slot in slots {
            self.finish(slot);
        }
        states
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
                State::Ahead | State::Again => {}
                was @ (State::Hit | State::Single) => decided.push((slot, was)),
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
mod tests {
    use super::*;

    fn schedule(world: u32, ids: &[Id]) -> Schedule {
        let samples = ids.iter().max().map_or(0, |&id| id as usize + 1);
        Schedule::new(Arc::new(Plan::cut(0, world, false, ids.to_vec())), samples)
    }

    fn decide_all(schedule: &mut Schedule) {
        while let Some(slot) = schedule.next_undecided() {
            schedule.decide(slot, false);
        }
    }

    #[test]
    fn a_request_takes_the_earliest_slot_of_its_id_and_rank() {
        let mut schedule = schedule(2, &[5, 5, 3, 5, 5, 3]);
        assert_eq!(schedule.find(1, 5), Some(1));
        assert_eq!(schedule.find(0, 5), Some(0));
        decide_all(&mut schedule);
        schedule.take(0);
        assert_eq!(schedule.find(0, 5), Some(4), "a slot that is waited for is not given twice");
        assert!(schedule.serve(0));
        assert!(!schedule.serve(4), "the same id again is not a new one");
        assert_eq!(schedule.find(0, 5), None);
    }

    #[test]
    fn due_looks_beyond_the_slot_being_decided() {
        let mut schedule = schedule(1, &[1, 2, 1, 3]);
        assert_eq!(schedule.next_undecided(), Some(0));
        assert_eq!(schedule.due(1), Some(2));
        assert_eq!(schedule.due(3), Some(3));
        schedule.decide(0, false);
        schedule.next_undecided();
        schedule.decide(1, false);
        assert_eq!(schedule.due(2), None);
        assert!(schedule.waits_for(2) && !schedule.waits_for(3));
    }

    #[test]
    fn overtaken_slots_are_left_behind_except_those_that_are_waited_for() {
        let mut schedule = schedule(1, &[0, 1, 2, 3, 4, 5, 6, 7]);
        for _ in 0..6 {
            let slot = schedule.next_undecided().unwrap();
            schedule.decide(slot, slot.is_multiple_of(2));
        }
        schedule.take(1);
        let mut decided = Vec::new();
        assert_eq!(schedule.overtake(7, 2, &mut decided), 4);
        assert_eq!(decided, [(0, State::Hit), (2, State::Hit), (3, State::Single), (4, State::Hit)]);
        assert_eq!(schedule.find(0, 3), None);
        assert_eq!(schedule.state(1), State::Taken);
        assert_eq!(schedule.overtake(7, 2, &mut decided), 0);
    }

    #[test]
    fn a_rank_that_leaves_early_leaves_its_slots_and_no_others() {
        let ids: Vec<Id> = (0..12).collect();
        let mut schedule = schedule(3, &ids);
        for _ in 0..7 {
            let slot = schedule.next_undecided().unwrap();
            schedule.decide(slot, false);
        }
        schedule.take(1);
        schedule.serve(1);
        let mut decided = Vec::new();
        assert_eq!(schedule.close(1, &mut decided), 3);
        assert_eq!(decided, [(4, State::Single)]);
        assert!(!schedule.closed());
        let mut rest = Vec::new();
        while let Some(slot) = schedule.next_undecided() {
            rest.push(slot);
            schedule.decide(slot, false);
        }
        assert_eq!(rest, [8, 9, 11], "slots of the rank that left are passed over");
    }

    #[test]
    fn a_resumed_rank_skips_what_it_has_trained() {
        let ids: Vec<Id> = (0..6).collect();
        let mut schedule = schedule(2, &ids);
        assert!(schedule.begin(0, 2));
        assert!(!schedule.begin(0, 0), "beginning again changes nothing");
        assert!(schedule.begin(1, 0));
        let mut order = Vec::new();
        while let Some(slot) = schedule.next_undecided() {
            order.push(slot);
            schedule.decide(slot, false);
        }
        assert_eq!(order, [1, 3, 4, 5]);
    }

    #[test]
    fn an_epoch_begun_again_serves_all_of_it_again() {
        let ids: Vec<Id> = (0..4).collect();
        let mut schedule = schedule(1, &ids);
        schedule.begin(0, 0);
        for _ in 0..3 {
            let slot = schedule.next_undecided().unwrap();
            schedule.decide(slot, false);
        }
        schedule.take(0);
        schedule.serve(0);
        assert_eq!(schedule.find(0, 0), None);
        schedule.begin_again(0, 0);
        assert_eq!(schedule.find(0, 0), Some(0));
        assert_eq!(schedule.state(0), State::Again);
        assert_eq!(schedule.state(1), State::Single);
        assert_eq!(schedule.next_undecided(), Some(3), "nothing is decided twice");
    }
}
