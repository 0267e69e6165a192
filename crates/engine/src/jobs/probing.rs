//! A job's probe of what it gains from a cache, and what is read for it.

use std::collections::HashMap;
use std::ops::Range;

use hotset_core::benefit::{Ahead, Gauge, Phase, Probe};

/// When a job is measured, and what is read for the probe under way.
#[derive(Debug, Default)]
pub(crate) struct Probing {
    pub(crate) gauge: Gauge,
    /// The plan that the probe goes along.
    generation: u64,
    /// What was read of its first run though it is kept, by slot; `None` once that was asked for.
    copies: HashMap<usize, Option<u32>>,
    /// The slot of its second run before which all that is served was in memory.
    staged: usize,
    /// The most samples of a plan that were asked for at once.
    batch: usize,
}

impl Probing {
    /// Begins a probe along the plan of a generation, if it is time for one.
    pub(crate) fn begin(&mut self, ahead: &Ahead, generation: u64) {
        if self.gauge.begin(ahead) {
            (self.generation, self.staged) = (generation, 0);
        }
    }

    /// So many samples of a plan are asked for at once.
    pub(crate) fn note_batch(&mut self, samples: usize) {
        self.batch = self.batch.max(samples);
    }

    /// The most samples of a plan that were asked for at once.
    pub(crate) fn batch(&self) -> usize {
        self.batch.max(1)
    }

    /// The epoch and the generation of the plan that the probe goes along.
    pub(crate) fn plan(&self) -> Option<(u64, u64)> {
        self.gauge.probe().map(|probe| (probe.epoch(), self.generation))
    }

    /// The probe under way, if it is not known that all which its second run serves is in memory.
    pub(crate) fn unstaged(&self) -> Option<&Probe> {
        self.gauge.probe().filter(|probe| self.staged < probe.hits().end)
    }

    /// At most so many slots of the second run that are to be looked at next.
    pub(crate) fn unstaged_slots(&self, most: usize) -> Range<usize> {
        let hits = self.unstaged().map_or(0..0, Probe::hits);
        let from = self.staged.max(hits.start);
        from..hits.end.min(from + most)
    }

    /// All that the second run serves before that slot is in memory.
    pub(crate) fn set_staged(&mut self, until: usize) {
        self.staged = until;
    }

    /// Whether what a slot serves is to be read though it is kept, and was not.
    pub(crate) fn wants_copy(&self, epoch: u64, slot: usize) -> bool {
        let phase = self.gauge.probe().and_then(|probe| probe.phase(epoch, slot));
        phase == Some(Phase::Misses) && !self.copies.contains_key(&slot)
    }

    /// What a slot serves is read into an object of its own.
    pub(crate) fn copied(&mut self, slot: usize, object: Option<u32>) {
        self.copies.insert(slot, object);
    }

    /// The object that was read for a slot, which is asked for.
    pub(crate) fn take_copy(&mut self, epoch: u64, slot: usize) -> Option<u32> {
        self.gauge.probe().filter(|probe| probe.epoch() == epoch)?;
        self.copies.get_mut(&slot)?.take()
    }

    /// An object could not be read. True if it was for a slot that was not asked for.
    pub(crate) fn lose_copy(&mut self, object: u32) -> bool {
        let lost = self.copies.values_mut().find(|copy| **copy == Some(object));
        lost.is_some_and(|copy| copy.take().is_some())
    }

    /// The probe is over, or given up: the objects that no slot was asked for of.
    pub(crate) fn end(&mut self) -> Vec<u32> {
        self.gauge.give_up();
        self.copies.drain().filter_map(|(_, object)| object).collect()
    }
}
