//! What becomes of a job's plans: ranks begin, leave and begin over, slots are taken, served and left.
//!
//! All that changes what is decided next, or what is counted, goes through here and is noted in the log of the job's cache,
//! where one is kept. Where bytes lie is not of this: a slot that waits for its bytes and one that does not are the same.

use std::sync::Arc;

use super::JobRun;
use crate::log::{Before, Event, Slots, Step};
use crate::sampling::Plan;
use crate::schedule::{Outcome, Schedule, Stage};
use crate::tally::Traffic;

impl JobRun {
    /// A rank begins an epoch, `start` of its slots having been trained before: see [`Schedule::begin`].
    pub fn begin(&mut self, epoch: u64, rank: u32, start: usize, left: &mut Vec<(usize, Stage)>) -> bool {
        let Some(schedule) = self.schedules.get_mut(&epoch) else { return false };
        self.log.step(epoch, || Step::Begun { rank, start });
        schedule.begin(rank, start, left)
    }

    /// A rank begins an epoch over from `start`. Slots before that were decided and not served are appended to `left`.
    pub fn begin_again(&mut self, epoch: u64, rank: u32, start: usize, left: &mut Vec<(usize, Stage)>) {
        let Some(schedule) = self.schedules.get_mut(&epoch) else { return };
        self.log.step(epoch, || Step::BegunAgain { rank, start });
        let mut back = Vec::new();
        schedule.begin_again(rank, start, left, &mut back);
        for serving in back.into_iter().filter_map(|slot| schedule.serving(slot)) {
            self.tally.taken_back(epoch, serving);
        }
    }

    /// A rank is in an epoch: its slots count as planned.
    pub fn enter(&mut self, epoch: u64) {
        let Some(schedule) = self.schedules.get(&epoch) else { return };
        self.log.step(epoch, || Step::Entered);
        self.tally.begun(epoch, schedule.owned());
    }

    /// Counts an epoch anew; what was counted of it stays in the sum.
    pub fn count_anew(&mut self, epoch: u64) {
        self.log.step(epoch, || Step::Forgotten);
        self.tally.forget(epoch);
    }

    /// A rank leaves an epoch: see [`Schedule::close`].
    pub fn close(&mut self, epoch: u64, rank: u32, decided: &mut Vec<(usize, Stage)>) -> usize {
        let Some(schedule) = self.schedules.get_mut(&epoch) else { return 0 };
        self.log.step(epoch, || Step::Closed { rank });
        schedule.close(rank, decided)
    }

    /// Leaves behind every decided slot of an epoch from `slot` on that no reader waits for; those slots.
    pub fn abandon_from(&mut self, epoch: u64, slot: usize) -> Vec<(usize, Stage)> {
        let Some(schedule) = self.schedules.get_mut(&epoch) else { return Vec::new() };
        self.log.step(epoch, || Step::Abandoned { from: slot });
        schedule.abandon_from(slot)
    }

    /// Leaves the slots behind that a request for `slot` has overtaken: see [`Schedule::overtake`].
    pub fn overtake(
        &mut self,
        epoch: u64,
        slot: usize,
        margin: usize,
        decided: &mut Vec<(usize, Stage)>,
    ) -> usize {
        let Some(schedule) = self.schedules.get_mut(&epoch) else { return 0 };
        let count = schedule.overtake(slot, margin, decided);
        if count > 0 {
            self.log.step(epoch, || Step::Overtaken { slot, margin });
        }
        count
    }

    /// Leaves slots behind that another node has asked for and was not given: see [`Schedule::leave`]. No log is kept of the
    /// cache of a job over several nodes.
    pub fn leave(&mut self, epoch: u64, slots: &[usize], decided: &mut Vec<(usize, Stage)>) -> usize {
        self.schedules.get_mut(&epoch).map_or(0, |schedule| schedule.leave(slots, decided))
    }

    /// So many slots were left behind, these of them decided. Those of a plan that another server had begun were served
    /// there.
    pub fn left(&mut self, epoch: u64, count: usize, decided: &[(usize, Stage)]) {
        let Some(schedule) = self.schedules.get_mut(&epoch) else { return };
        if !schedule.is_restored() {
            self.tally.abandoned(epoch, count as u64);
            return;
        }
        decided.iter().for_each(|&(slot, _)| self.were_served(epoch, slot));
    }

    /// A slot that was left had been served.
    pub(crate) fn were_served(&mut self, epoch: u64, slot: usize) {
        let Some(schedule) = self.schedules.get_mut(&epoch) else { return };
        self.log.step(epoch, || Step::WereServed(Slots::one(slot)));
        schedule.was_served(slot);
        self.tally.served(Some(epoch), schedule.serving(slot));
    }

    /// The order of an epoch is carried out by another number of ranks; how it is cut now.
    pub fn recut(&mut self, epoch: u64, world: u32) -> Option<Arc<Plan>> {
        let schedule = self.schedules.remove(&epoch)?.recut(world);
        self.log.step(epoch, || Step::Recut { world });
        let plan = Arc::clone(schedule.plan());
        self.put(schedule);
        Some(plan)
    }

    /// The ranks that had begun its plans are gone, and may come back as more or fewer.
    pub fn lose_ranks(&mut self) {
        self.log.note(Event::RanksGone);
        self.schedules.values_mut().for_each(Schedule::set_restored);
    }

    /// Passes a decided slot that is neither this node's nor of one of its ranks.
    pub fn pass(&mut self, epoch: u64, slot: usize) {
        self.schedules.get_mut(&epoch).into_iter().for_each(|schedule| schedule.pass(slot));
    }

    /// A reader takes a slot.
    pub fn take(&mut self, epoch: u64, slot: usize) {
        let Some(schedule) = self.schedules.get_mut(&epoch) else { return };
        self.log.step(epoch, || Step::Taken(Slots::one(slot)));
        schedule.take(slot);
    }

    /// A reader gives a slot back, which stood as `was` before.
    pub fn give_back(&mut self, epoch: u64, slot: usize, was: Stage) {
        let Some(schedule) = self.schedules.get_mut(&epoch) else { return };
        let before = match was {
            Stage::Ahead => Before::Ahead,
            Stage::Again => Before::Again,
            _ => Before::Decided,
        };
        self.log.step(epoch, || Step::GivenBack(Slots::one(slot), before));
        schedule.untake(slot, was);
    }

    /// What a slot that was passed over costs, now that it is asked for and its bytes are there or not.
    pub fn settle(&mut self, epoch: u64, slot: usize, hit: bool) {
        let Some(schedule) = self.schedules.get_mut(&epoch) else { return };
        if schedule.outcome(slot).is_some() {
            return;
        }
        if !schedule.owns(slot) {
            schedule.settle(slot, Outcome::Elsewhere);
            return;
        }
        self.log.step(epoch, || Step::Settled { slot, hit });
        schedule.settle(slot, if hit { Outcome::Hit } else { Outcome::Single });
        if !hit {
            let bytes = self.sizes.size(schedule.id(slot));
            self.tally.reads(epoch, Traffic { reads: 1, requests: 1, bytes });
        }
    }

    /// Slots were served, in this order.
    pub fn serve(&mut self, epoch: u64, slots: impl IntoIterator<Item = usize>) {
        let Some(schedule) = self.schedules.get_mut(&epoch) else { return };
        let serve = |slot| {
            self.log.step(epoch, || Step::Served(Slots::one(slot)));
            self.served = Some((epoch, slot));
            schedule.serve(slot);
            schedule.serving(slot)
        };
        self.tally.served(Some(epoch), slots.into_iter().filter_map(serve));
    }

    /// Slots were given to another node, in this order.
    pub fn give(&mut self, epoch: u64, slots: impl IntoIterator<Item = usize>) {
        let Some(schedule) = self.schedules.get_mut(&epoch) else { return };
        let give = |slot| {
            self.served = Some((epoch, slot));
            schedule.serve(slot);
            schedule.note_given(slot, true);
            schedule.serving(slot)
        };
        self.tally.served(Some(epoch), slots.into_iter().filter_map(give));
    }

    /// A slot that was served is asked for again by another node, whose rank has begun the epoch over: it counts when it is
    /// given.
    pub fn take_back(&mut self, epoch: u64, slot: usize) {
        let Some(schedule) = self.schedules.get_mut(&epoch) else { return };
        schedule.serving(slot).into_iter().for_each(|serving| self.tally.taken_back(epoch, serving));
        schedule.reopen(slot);
    }

    /// These slots were served by the server before, if they were not here: how those stood that were not.
    pub fn served_before(&mut self, epoch: u64, slots: &[usize]) -> Vec<(usize, Stage)> {
        let Some(schedule) = self.schedules.get_mut(&epoch) else { return Vec::new() };
        let open = |&slot: &usize| {
            let stage = schedule.stage(slot);
            matches!(stage, Stage::Waiting | Stage::Unread | Stage::Again).then_some((slot, stage))
        };
        let decided: Vec<(usize, Stage)> = slots.iter().filter_map(open).collect();
        self.serve(epoch, decided.iter().map(|&(slot, _)| slot));
        decided
    }

    /// Notes what was counted of its epochs from `first` on, so that a log can be compared with it.
    pub fn note_counts(&self, first: u64) {
        self.log.note(|member| {
            let epochs = self.tally.epochs().range(first..);
            Event::Counted(member, epochs.map(|(&epoch, counters)| (epoch, counters.plan.clone())).collect())
        });
    }
}
