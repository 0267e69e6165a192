//! Measuring what a job gains from a cache, with its own readers.
//!
//! Slots are decided and counted as ever. Along the first run of a [probe](hotset_core::benefit::Probe) what needs no read is
//! read all the same, ahead, into memory of its own, which no table names: nothing is evicted and no other job sees it.
//! Along the second run what is served is read before the first of it is answered, as far as there is memory that nobody
//! else reads ahead into.

use hotset_core::benefit::Ahead;
use hotset_core::schedule::Stage;
use hotset_core::{Id, Result};

use super::decide::{Budget, Buffers, DECISIONS};
use super::gather::{Batch, Place};
use crate::fetching::Cause;
use crate::jobs::Job;
use crate::rooms::Rooms;

/// What is yet to be done before a batch may be answered.
pub(crate) enum Staging {
    /// Nothing.
    Done,
    /// Slots are to be decided or looked at, in another hold of the lock.
    More,
    /// These objects are to be waited for.
    Awaits(Vec<u32>),
}

impl Job {
    /// Begins to measure what the job gains, if it is time.
    pub(crate) fn begin_probe(&mut self) {
        if !self.opened.request.prefetch || !self.nodes.role().is_alone() {
            return;
        }
        let Some((epoch, block)) = self.run.next_block() else { return };
        let Some(schedule) = self.run.schedule(epoch) else { return };
        let plan = schedule.plan();
        let ahead = Ahead {
            epoch,
            slot: block.start,
            slots: plan.len(),
            batch: self.probing.batch(),
            readers: self.notices.pacing.readers(),
            world: plan.world(),
            epochs: self.opened.request.epochs,
        };
        let generation = schedule.generation();
        self.probing.begin(&ahead, generation);
    }

    /// A reader asks for a batch that lies there: what the job gains from now on, if a probe has ended that changes it.
    pub(crate) fn time_batch(&mut self, rooms: &mut Rooms, batch: &Batch, at: Option<Place>) -> Option<f64> {
        let plan = self.probing.plan();
        if plan.is_some_and(|(epoch, generation)| self.same_schedule(epoch, generation).is_none()) {
            self.end_probe(rooms);
        }
        if at.is_some() {
            self.probing.note_batch(batch.samples.len());
        }
        let at = at.map(|at| (at.epoch, at.first, at.last));
        let (benefit, ended) = self.probing.gauge.asked(batch.client, batch.since, at);
        if ended {
            self.end_probe(rooms);
        }
        benefit
    }

    /// Ends the probe under way, if there is one: what was read for it alone is let go of.
    pub(crate) fn end_probe(&mut self, rooms: &mut Rooms) {
        self.probing.end().into_iter().for_each(|object| rooms.hold(object, false));
    }

    /// A slot was decided that needs no read: it has one all the same where misses are measured.
    pub(super) fn copy_ahead(&mut self, rooms: &mut Rooms, at: (u64, usize, Id)) {
        if let Some(object) = self.copy(rooms, at, false) {
            self.probing.copied(at.1, Some(object));
        }
    }

    /// What a slot takes that needs no read and has one all the same: an object that is held.
    pub(super) fn take_copy(&mut self, rooms: &mut Rooms, at: (u64, usize, Id)) -> Option<u32> {
        self.probing.take_copy(at.0, at.1).or_else(|| {
            let object = self.copy(rooms, at, true)?;
            self.probing.copied(at.1, None);
            Some(object)
        })
    }

    /// Reads what a slot serves into an object of its own, which is held. Without room there is none.
    fn copy(&mut self, rooms: &mut Rooms, (epoch, slot, id): (u64, usize, Id), urgent: bool) -> Option<u32> {
        if !self.probing.wants_copy(epoch, slot) {
            return None;
        }
        let payer = self.payer(epoch, Cause::Probe);
        let made = rooms.expect_apart(&self.dataset, id, payer, None).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot measure how long a read takes");
            None
        });
        let object = made?;
        rooms.hold(object, true);
        rooms.fetching_mut().enqueue(vec![object], urgent);
        Some(object)
    }

    /// An object that was read for a probe could not be.
    pub(crate) fn lose_copy(&mut self, rooms: &mut Rooms, object: u32) {
        if self.probing.lose_copy(object) {
            rooms.hold(object, false);
        }
    }

    /// Reads all that hits are measured with, if a batch asks for the first of it. Where memory ends, so does the measurement.
    pub(crate) fn stage(&mut self, rooms: &mut Rooms, at: Option<Place>, budget: Budget) -> Result<Staging> {
        let Some(probe) = self.probing.unstaged() else { return Ok(Staging::Done) };
        let (epoch, hits) = (probe.epoch(), probe.hits());
        if !at.is_some_and(|at| at.epoch == epoch && at.last >= hits.start) {
            return Ok(Staging::Done);
        }
        let (mut left, mut buffers) = (DECISIONS, Buffers::default());
        while let Some((of, block)) = self.run.next_block()
            && of == epoch
            && block.start < hits.end
        {
            if left == 0 {
                return Ok(Staging::More);
            }
            let first = block.start;
            let (decided, room) = self.read_block(rooms, (epoch, block), budget, &mut buffers)?;
            left = left.saturating_sub(decided);
            if !room {
                self.probing.gauge.probe_mut().into_iter().for_each(|probe| probe.cut(first));
                break;
            }
        }
        let (slots, key) = (self.probing.unstaged_slots(DECISIONS), self.dataset.key);
        let Some(schedule) = self.run.schedule(epoch) else { return Ok(Staging::Done) };
        let waiting = slots.clone().filter(|&slot| schedule.stage(slot) == Stage::Waiting);
        let objects = waiting.filter_map(|slot| rooms.residency().object(key, schedule.id(slot)));
        let mut objects: Vec<u32> = objects.collect();
        objects.retain(|&object| !rooms.residency().get(object).is_ready());
        objects.sort_unstable();
        objects.dedup();
        objects.iter().for_each(|&object| rooms.fetching_mut().hurry(object));
        if !objects.is_empty() {
            return Ok(Staging::Awaits(objects));
        }
        self.probing.set_staged(slots.end);
        Ok(if self.probing.unstaged().is_some() { Staging::More } else { Staging::Done })
    }
}
