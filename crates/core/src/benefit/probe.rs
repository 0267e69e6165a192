//! One measurement of what a job gains: mini-batches read from storage, then mini-batches whose bytes are there.
//!
//! A probe is two runs of slots of one plan, the second right behind the first. What the first serves is read from storage
//! whatever the cache keeps, ahead as misses are; what the second serves is in memory before the first of it is answered.
//! Each begins with as many batches as a loader has in flight, which are not measured. A client says with each request how
//! long ago its last one was: that is how long the batch before took, with decoding, training and waiting for the loader's
//! queue. Readers work beside each other, and as many in both runs, so that the mean over all of them will do; a pause, such as
//! for a checkpoint, is no part of it.
//!
//! Differs from the papers: both runs are laid out in the plan beforehand, so that the first is read ahead and the second
//! finds its bytes even if the cache is empty.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

/// The most mini-batches that are measured of each rank in each run.
const MOST: usize = 20;
/// The least: one late read must not be all that is seen.
const LEAST: usize = 4;
/// Batches that each reader has in flight: PyTorch's prefetch factor.
const IN_FLIGHT: usize = 2;
/// A time of so many times the median is a pause.
const PAUSE: u32 = 8;
/// What can be believed of a measurement. Times are a client's word.
const BELIEVED: std::ops::RangeInclusive<f64> = 0.1..=100.0;

/// How many batches a run of a probe has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Length {
    /// Those that are passed over first.
    pub discarded: usize,
    /// Those that are measured then.
    pub measured: usize,
}

impl Length {
    /// The longest for so many readers and ranks where both runs together have at most `most` batches; `None` if that is too
    /// few to measure anything.
    pub fn within(most: usize, readers: usize, world: usize) -> Option<Self> {
        let discarded = Self::in_flight(readers);
        let measured = (most / 2).checked_sub(discarded)?.min(MOST * world);
        (measured >= LEAST * world).then_some(Self { discarded, measured })
    }

    /// Batches that so many readers have in flight.
    pub(super) fn in_flight(readers: usize) -> usize {
        IN_FLIGHT * readers.max(1)
    }

    /// Whether more would not be measured of so many ranks.
    pub(super) fn is_longest(self, world: usize) -> bool {
        self.measured == MOST * world
    }

    /// The batches of both runs.
    pub fn batches(self) -> usize {
        2 * (self.discarded + self.measured)
    }
}

/// One of the two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// What is served is read from storage.
    Misses,
    /// What is served is in memory before.
    Hits,
}

/// How far a probe has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Progress {
    /// Batches of it are yet to be asked for.
    UnderWay,
    /// It is over: the time of a miss over that of a hit.
    Measured(f64),
    /// It is over, and too few times were told.
    Unmeasured,
}

/// The times of one run.
#[derive(Debug)]
struct Times {
    discard: usize,
    left: usize,
    taken: Vec<Duration>,
}

impl Times {
    fn new(length: Length) -> Self {
        Self { discard: length.discarded, left: length.measured, taken: Vec::new() }
    }

    fn take(&mut self, took: Duration) {
        if self.discard > 0 {
            self.discard -= 1;
        } else if self.left > 0 {
            self.left -= 1;
            self.taken.push(took);
        }
    }

    /// The mean of those that are no pauses, of enough to tell.
    fn mean(&self) -> Option<f64> {
        let mut taken = self.taken.clone();
        taken.sort_unstable();
        let median = *taken.get(taken.len() / 2).filter(|_| taken.len() >= LEAST)?;
        taken.retain(|&took| took <= median.saturating_mul(PAUSE));
        let sum = taken.iter().fold(Duration::ZERO, |sum, &took| sum.saturating_add(took));
        (!sum.is_zero()).then(|| sum.as_secs_f64() / taken.len() as f64)
    }
}

/// A measurement that is under way.
#[derive(Debug)]
pub struct Probe {
    epoch: u64,
    /// The slots of the two runs.
    misses: Range<usize>,
    hits: Range<usize>,
    times: [Times; 2],
    /// The run that the last batch of each reader was of.
    last: HashMap<u64, Option<Phase>>,
    /// Batches behind the second run that were asked for, and how many end the probe.
    behind: usize,
    end: usize,
}

impl Probe {
    /// One along the plan of `epoch`, from the slot `from` on, of batches of so many slots.
    pub fn new(epoch: u64, from: usize, batch: usize, length: Length) -> Self {
        let slots = length.batches() / 2 * batch;
        let (middle, to) = (from + slots, from + 2 * slots);
        Self {
            epoch,
            misses: from..middle,
            hits: middle..to,
            times: [Times::new(length), Times::new(length)],
            last: HashMap::new(),
            behind: 0,
            end: length.discarded,
        }
    }

    /// The plan's epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The slots of the second run.
    pub fn hits(&self) -> Range<usize> {
        self.hits.clone()
    }

    /// The run that a slot is of.
    pub fn phase(&self, epoch: u64, slot: usize) -> Option<Phase> {
        if epoch != self.epoch {
            None
        } else if self.misses.contains(&slot) {
            Some(Phase::Misses)
        } else {
            self.hits.contains(&slot).then_some(Phase::Hits)
        }
    }

    /// There is no memory for what the second run serves from slot `at` on: it ends there.
    pub fn cut(&mut self, at: usize) {
        self.hits.end = at.clamp(self.hits.start, self.hits.end);
    }

    /// A reader asks for a batch, whose first and last slot lie `at`, so long after its last one.
    pub fn asked(&mut self, reader: u64, took: Option<Duration>, at: Option<(u64, usize, usize)>) {
        let phase = at.and_then(|(epoch, first, last)| {
            let phase = self.phase(epoch, first)?;
            (self.phase(epoch, last) == Some(phase)).then_some(phase)
        });
        let before = self.last.insert(reader, phase).flatten();
        if let Some((before, took)) = before.zip(took) {
            self.times[before as usize].take(took);
        }
        let behind = |(epoch, first, _): (u64, usize, usize)| {
            epoch > self.epoch || epoch == self.epoch && first >= self.hits.end
        };
        self.behind += usize::from(at.is_some_and(behind));
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        let [misses, hits] = &self.times;
        if hits.left > 0 && self.behind < self.end {
            return Progress::UnderWay;
        }
        match misses.mean().zip(hits.mean()) {
            Some((miss, hit)) => Progress::Measured((miss / hit).clamp(*BELIEVED.start(), *BELIEVED.end())),
            None => Progress::Unmeasured,
        }
    }
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
