//! When a job is measured, and what it is taken to gain.
//!
//! The first [probe](Probe) comes as soon as there is another job to compete with, and stays below 2 % of the batches that the run
//! is to have; a run too short for that is not measured. It is repeated when the set of jobs has changed, while all probes
//! together stay below 1 % of those batches; and otherwise when they are below 0.5 % of the batches that it has had: half
//! of them are read again, by each of the jobs.
//!
//! What was measured is noisy. A benefit that is within a quarter of the one before changes nothing, so that neither
//! eligibility nor memory goes to and fro.

use std::time::Duration;

use super::probe::{Length, Probe, Progress};

/// The share of a run's batches that may be of its first probe.
const SHARE: f64 = 0.02;
/// The same of all probes, where the set of jobs has changed.
const CHANGED_SHARE: f64 = 0.01;
/// The same of those that it has had, where the set of jobs is as it was.
const UNCHANGED_SHARE: f64 = 0.005;
/// How far a benefit must be from the one before to replace it.
const NOTABLE: f64 = 0.25;
/// Epochs that a run is taken to have whose length is not known.
const EPOCHS: u64 = 10;

/// Where a job is when a probe could begin.
#[derive(Debug, Clone, Copy)]
pub struct Ahead {
    /// The epoch whose plan is being decided, its next slot, and how many slots it has.
    pub epoch: u64,
    /// The next slot that is decided.
    pub slot: usize,
    /// The slots of the plan.
    pub slots: usize,
    /// The slots of a batch.
    pub batch: usize,
    /// Readers of all ranks.
    pub readers: usize,
    /// Ranks.
    pub world: u32,
    /// Epochs of the run, if that is known.
    pub epochs: Option<u64>,
}

/// What a job gains, and the probe that measures it.
#[derive(Debug, Default)]
pub struct Gauge {
    benefit: Option<f64>,
    /// The epoch in which that was measured last.
    measured: Option<u64>,
    probe: Option<Probe>,
    /// Whether the set of jobs has changed since the last probe began.
    changed: bool,
    /// Whether a client has told a time.
    timed: bool,
    /// Batches that were asked for so far, and those of them that probes have taken or will.
    batches: u64,
    probed: u64,
}

impl Gauge {
    /// What the job is taken to gain, once it was measured.
    pub fn benefit(&self) -> Option<f64> {
        self.benefit
    }

    /// The epoch in which it was measured last.
    pub fn measured(&self) -> Option<u64> {
        self.measured
    }

    /// The probe under way.
    pub fn probe(&self) -> Option<&Probe> {
        self.probe.as_ref()
    }

    /// The probe under way, to be cut.
    pub fn probe_mut(&mut self) -> Option<&mut Probe> {
        self.probe.as_mut()
    }

    /// Another job has come or gone.
    pub fn changed(&mut self) {
        self.changed = true;
    }

    /// Begins a probe where the job is, if it is time for one. True if it did.
    pub fn begin(&mut self, ahead: &Ahead) -> bool {
        if self.probe.is_some() || !self.timed {
            return false;
        }
        let batch = ahead.batch.max(1);
        let most = if self.changed {
            // What was, the rest of this epoch, and the epochs after it.
            let rest = (ahead.slots.saturating_sub(ahead.slot) / batch) as u64;
            let epochs = ahead.epochs.unwrap_or(EPOCHS).saturating_sub(ahead.epoch).saturating_sub(1);
            let later = ((ahead.slots / batch) as u64).saturating_mul(epochs);
            let share = if self.probed == 0 { SHARE } else { CHANGED_SHARE };
            share * later.saturating_add(rest + self.batches) as f64
        } else {
            UNCHANGED_SHARE * self.batches as f64
        };
        let most = below(most).saturating_sub(self.probed);
        // The last batches of the second run are over when others behind them are asked for.
        let left = ahead.slots.saturating_sub(ahead.slot) / batch;
        let left = left.saturating_sub(Length::in_flight(ahead.readers));
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(left);
        let Some(length) = Length::within(most, ahead.readers, ahead.world as usize) else { return false };
        // There is time for a long one.
        if !self.changed && !length.is_longest(ahead.world as usize) {
            return false;
        }
        self.probe = Some(Probe::new(ahead.epoch, ahead.slot, batch, length));
        (self.changed, self.probed) = (false, self.probed + length.batches() as u64);
        true
    }

    /// A reader asks for a batch, whose first and last slot lie `at`, so long after its last one. What the job gains from now
    /// on, if a probe has ended that changes it; whether one has ended.
    pub fn asked(
        &mut self,
        reader: u64,
        took: Option<Duration>,
        at: Option<(u64, usize, usize)>,
    ) -> (Option<f64>, bool) {
        self.batches += u64::from(at.is_some());
        self.timed |= took.is_some();
        let Some(probe) = &mut self.probe else { return (None, false) };
        probe.asked(reader, took, at);
        let (progress, epoch) = (probe.progress(), probe.epoch());
        if progress == Progress::UnderWay {
            return (None, false);
        }
        self.probe = None;
        let Progress::Measured(benefit) = progress else { return (None, true) };
        self.measured = Some(epoch);
        let notable = |before: f64| (benefit / before - 1.0).abs() > NOTABLE;
        if self.benefit.is_some_and(|before| !notable(before)) {
            return (None, true);
        }
        self.benefit = Some(benefit);
        (self.benefit, true)
    }

    /// Gives the probe up that is under way: its plan is not carried out any further. True if there was one.
    pub fn give_up(&mut self) -> bool {
        self.probe.take().is_some()
    }
}

/// The largest whole number below a positive one.
fn below(number: f64) -> u64 {
    (number.ceil() as u64).saturating_sub(1)
}

#[cfg(test)]
#[path = "gauge_tests.rs"]
mod tests;
