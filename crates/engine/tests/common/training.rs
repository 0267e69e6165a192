//! Trainings that tell how long their batches take, so that what they gain is measured and nothing hangs on the clock.

use std::ops::Range;
use std::time::Duration;

use hotset_core::benefit::Phase;
use hotset_engine::{Engine, JobRequest, JobStats};
use hotset_store::Opened;

use super::{Held, Reader, epoch_indices_of, within};

/// A training whose batches take so many times as long when they are read from storage.
pub struct Training<'a> {
    pub reader: Reader<'a>,
    pub gains: u32,
    pub batch: usize,
    /// The phase of the probe that its last batch was of.
    pub last: Option<Phase>,
    /// Where it is: the epoch, its plan and the next slot.
    at: Option<(u64, Vec<u64>, usize)>,
}

impl<'a> Training<'a> {
    pub fn open(
        engine: &'a Engine,
        opened: &Opened,
        request: JobRequest,
        (gains, batch): (u32, usize),
    ) -> Self {
        let reader = Reader::of_job(engine, opened, request.job.clone().leak());
        engine.open_job(reader.session, request, None).unwrap();
        Self { reader, gains, batch, last: None, at: None }
    }

    /// Gets a batch, and tells how long the one before took.
    pub fn get(&mut self, epoch: u64, slot: usize, batch: &[u64]) -> Held {
        self.tell();
        let held = self.reader.get(batch).unwrap();
        self.last = self.reader.engine.probed(self.reader.job, epoch, slot);
        held
    }

    /// Tells with the next request how long the last batch took.
    pub fn tell(&mut self) {
        let times = if self.last == Some(Phase::Misses) { self.gains } else { 1 };
        self.reader.since = Some(Duration::from_millis(10) * times);
    }

    pub fn plan(&self, epoch: u64) -> Vec<u64> {
        epoch_indices_of(self.reader.engine, self.reader.job, epoch)
    }

    /// Trains these slots of an epoch that was begun.
    pub fn walk(&mut self, epoch: u64, plan: &[u64], slots: Range<usize>) {
        for slot in slots.step_by(self.batch) {
            let held = self.get(epoch, slot, &plan[slot..(slot + self.batch).min(plan.len())]);
            self.reader.release(held);
        }
    }

    pub fn train(&mut self, epoch: u64) {
        let plan = self.plan(epoch);
        self.walk(epoch, &plan, 0..plan.len());
    }

    /// Trains until it is being measured in that phase; the next slot.
    pub fn until(&mut self, phase: Phase, epoch: u64, plan: &[u64]) -> usize {
        let mut slot = 0;
        while self.last != Some(phase) {
            self.walk(epoch, plan, slot..slot + self.batch);
            slot += self.batch;
        }
        slot
    }

    /// Trains one batch more, of the epoch that it is in or of the next. False if it has trained so many epochs.
    pub fn step(&mut self, epochs: u64) -> bool {
        let next = match self.at.take() {
            Some((epoch, plan, slot)) if slot < plan.len() => Some((epoch, plan, slot)),
            Some((epoch, ..)) if epoch + 1 == epochs => None,
            before => {
                let epoch = before.map_or(0, |(epoch, ..)| epoch + 1);
                Some((epoch, self.plan(epoch), 0))
            }
        };
        let Some((epoch, plan, slot)) = next else { return false };
        self.walk(epoch, &plan, slot..slot + 1);
        self.at = Some((epoch, plan, slot + self.batch));
        true
    }

    pub fn stats(&self) -> JobStats {
        self.reader.engine.job_stats(Some(self.reader.job)).remove(0)
    }
}

/// Waits until something is so that other threads bring about.
pub fn settles(what: &str, mut is: impl FnMut() -> bool) {
    if is() {
        return;
    }
    within(what, || {
        while !is() {
            std::thread::sleep(Duration::from_millis(1))
        }
    });
}
