//! Each rank's way through an epoch: begun, overtaken, begun over, closed; and an epoch that another number of ranks goes on with.
//!
//! A rank passes its own slots, every `world`-th of the plan. What it leaves behind is not served any more; slots of it
//! that were decided are handed to the caller, who lets go of what they claim. A slot that a reader waits for is about to
//! be served, and is never left.

use std::sync::Arc;

use super::{Schedule, Stage};

/// One rank's way through an epoch.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rank {
    begun: bool,
    pub(super) closed: bool,
    /// All positions before this are done.
    pub(super) oldest: usize,
    pub(super) served: usize,
    /// Whether it is on another node.
    away: bool,
}

impl Schedule {
    /// Leaves the slots behind that a request for `slot` has overtaken by more than `margin` positions of
    /// its rank. Returns how many; those that were decided are appended to `decided`.
    pub fn overtake(&mut self, slot: usize, margin: usize, decided: &mut Vec<(usize, Stage)>) -> usize {
        let world = self.ranks.len();
        let until = (slot / world).saturating_sub(margin);
        self.abandon_before(slot % world, until, decided)
    }

    /// Leaves slots behind that are not to be served any more. Returns how many were open; those that were decided are
    /// appended to `decided`.
    pub fn leave(&mut self, slots: &[usize], decided: &mut Vec<(usize, Stage)>) -> usize {
        let mut count = 0;
        for &slot in slots {
            match self.stages[slot] {
                Stage::Served | Stage::Left | Stage::Taken => continue,
                Stage::Ahead => {}
                was @ (Stage::Waiting | Stage::Unread | Stage::Again) => decided.push((slot, was)),
            }
            count += usize::from(self.owns(slot));
            self.finish(slot, Stage::Left);
            self.pass_done(slot % self.ranks.len());
        }
        count
    }

    /// No slot of a rank waits for its bytes any more: those that did are seen to when they are asked for.
    pub fn stop_waiting(&mut self, rank: u32) -> Vec<usize> {
        let (world, rank) = (self.ranks.len(), rank as usize);
        let slots = (self.ranks[rank].oldest * world + rank..self.frontier()).step_by(world);
        let waits: Vec<usize> = slots.filter(|&slot| self.stages[slot] == Stage::Waiting).collect();
        waits.iter().for_each(|&slot| self.stages[slot] = Stage::Again);
        waits
    }

    /// The same order carried out by another number of ranks, none of which has begun it. What was decided stays
    /// decided, and by the same owners; on which nodes the ranks are is to be [said](Self::set_layout).
    #[must_use]
    pub fn recut(self, world: u32) -> Self {
        let plan = Arc::new(self.plan.recut(world));
        let samples = self.positions.samples();
        let decided = self.frontier().min(plan.len());
        let (told, generation, restored) = (self.told(), self.generation, self.restored);
        let (packages, share) = (self.packages, self.share);
        let states = self.stages.into_iter().zip(self.outcomes).take(decided);
        let cut = Self::restored(plan, samples, states, told);
        let mut cut = Self { generation, packages, restored, recut: true, ..cut };
        cut.take_share(share);
        cut
    }

    /// Whether another number of ranks had begun it, here or elsewhere.
    pub fn is_recut(&self) -> bool {
        self.recut
    }

    /// Begins the epoch for `rank`, `start` of its slots having been trained before; those of them that were
    /// decided already are appended to `left`. False if it had begun.
    pub fn begin(&mut self, rank: u32, start: usize, left: &mut Vec<(usize, Stage)>) -> bool {
        if std::mem::replace(&mut self.ranks[rank as usize].begun, true) {
            return false;
        }
        self.abandon_before(rank as usize, start.min(self.plan.rank_len()), left);
        true
    }

    /// A rank is on another node from now on, or on this one.
    pub fn set_away(&mut self, rank: u32, away: bool) {
        self.ranks.get_mut(rank as usize).into_iter().for_each(|rank| rank.away = away);
    }

    /// Whether a rank is on another node.
    pub fn is_away(&self, rank: u32) -> bool {
        self.ranks.get(rank as usize).is_some_and(|rank| rank.away)
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
    /// decided and not served are appended to `left`, slots from there on that were served to `back`.
    ///
    /// What was given to another node stays served until that node asks for it again: it may have asked before this one hears
    /// that the rank begins over, and may have some of it still. What was decided stays decided, since a policy is asked once a
    /// slot. One visit to each of the rank's
    /// slots: only a trainer that starts an epoch over pays it.
    pub fn begin_again(
        &mut self,
        rank: u32,
        start: usize,
        left: &mut Vec<(usize, Stage)>,
        back: &mut Vec<usize>,
    ) {
        let world = self.ranks.len();
        let rank = rank as usize;
        let start = start.min(self.plan.rank_len());
        let Rank { away, served, .. } = self.ranks[rank];
        for position in 0..self.plan.rank_len() {
            let slot = position * world + rank;
            match self.stages[slot] {
                Stage::Served if away => {}
                was @ (Stage::Served | Stage::Left) if position >= start => {
                    if was == Stage::Served {
                        back.push(slot);
                    }
                    self.stages[slot] = if slot < self.frontier() { Stage::Again } else { Stage::Ahead };
                    self.positions.reopen(self.plan.ids()[slot], slot);
                }
                // Passed over while the rank was closed: deciding will not come back to it.
                Stage::Ahead if position >= start && slot < self.frontier() => {
                    self.stages[slot] = Stage::Again
                }
                Stage::Ahead if position < start => self.finish(slot, Stage::Left),
                was @ (Stage::Again | Stage::Unread | Stage::Waiting) if position < start => {
                    left.push((slot, was));
                    self.finish(slot, Stage::Left);
                }
                _ => {}
            }
        }
        let served = if away { served } else { 0 };
        self.ranks[rank] = Rank { begun: true, closed: false, oldest: start, served, away };
        self.pass_done(rank);
    }

    /// How many slots of `rank` were served.
    pub fn served(&self, rank: u32) -> usize {
        self.ranks[rank as usize].served
    }

    /// Closes the epoch for `rank`. Returns how many slots of this node it left; those that were decided are appended to
    /// `decided`. Where a node is alone the others need no visit: deciding passes over a rank that has closed.
    pub fn close(&mut self, rank: u32, decided: &mut Vec<(usize, Stage)>) -> usize {
        let rank = rank as usize;
        if std::mem::replace(&mut self.ranks[rank].closed, true) {
            return 0;
        }
        let world = self.ranks.len();
        let reached = self.frontier().saturating_sub(rank).div_ceil(world).min(self.plan.rank_len());
        let undecided = reached.max(self.ranks[rank].oldest)..self.plan.rank_len();
        let ahead = match self.share.ownership() {
            None => undecided.len(),
            Some(_) => undecided.filter(|position| self.owns(position * world + rank)).count(),
        };
        self.abandon_before(rank, reached, decided) + ahead
    }

    /// Whether every rank has closed this epoch.
    pub fn closed(&self) -> bool {
        self.ranks.iter().all(|rank| rank.closed)
    }

    /// Leaves behind every decided slot from `slot` on that no reader waits for; those slots.
    pub fn abandon_from(&mut self, slot: usize) -> Vec<(usize, Stage)> {
        let open = |slot: &usize| matches!(self.stages[*slot], Stage::Waiting | Stage::Unread | Stage::Again);
        let done = self.ranks.iter().map(|rank| rank.oldest).min().unwrap_or_default() * self.ranks.len();
        let slots: Vec<(usize, Stage)> =
            (slot.max(done)..self.frontier()).filter(open).map(|slot| (slot, self.stages[slot])).collect();
        slots.iter().for_each(|&(slot, _)| self.finish(slot, Stage::Left));
        slots
    }

    /// Passes over what a rank is done with, so that nobody looks there again.
    pub(super) fn pass_done(&mut self, rank: usize) {
        let (world, all) = (self.ranks.len(), self.plan.rank_len());
        let mut oldest = self.ranks[rank].oldest;
        while oldest < all && self.stages[oldest * world + rank].is_done() {
            oldest += 1;
        }
        self.ranks[rank].oldest = oldest;
    }

    fn abandon_before(&mut self, rank: usize, until: usize, decided: &mut Vec<(usize, Stage)>) -> usize {
        let world = self.ranks.len();
        let mut count = 0;
        let mut waited_for = None;
        for position in self.ranks[rank].oldest..until {
            let slot = position * world + rank;
            match self.stages[slot] {
                Stage::Served | Stage::Left => continue,
                // A slot that a reader waits for is about to be served.
                Stage::Taken => {
                    waited_for.get_or_insert(position);
                    continue;
                }
                Stage::Ahead => {}
                was @ (Stage::Waiting | Stage::Unread | Stage::Again) => decided.push((slot, was)),
            }
            // One that another node decides is counted there.
            count += usize::from(self.owns(slot));
            self.finish(slot, Stage::Left);
        }
        let oldest = &mut self.ranks[rank].oldest;
        *oldest = waited_for.unwrap_or(until.max(*oldest));
        count
    }
}
