//! How fast a store is: how long one request takes, how many at a time are of use, and how many bytes a second it gives.
//!
//! Three stages, within one budget of time and bytes. First requests are made one at a time, for the distribution of
//! latency. Then more and more at a time, until more bring no more answers a second: each lane asks again as soon as
//! it was answered, and what is under way at the end of a stage is waited for and counted, with its time. In both a request is for no more than [`SMALL`] bytes, so that what is found is the limit of
//! requests. In the third, whole samples are read with as many at a time as were of use: where that makes fewer requests a
//! second than small ones did, bytes are the limit.
//!
//! Samples are drawn at random and none is read twice before all were, so that what the system keeps in memory is found as
//! seldom as in an epoch. Reads are made by threads of their own which nothing waits for after the budget's end: a store
//! that never answers holds up nothing.
//!
//! Differs from what the engine does: no read is made again. A store that asks for fewer requests is taken at its word.

mod lanes;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hotset_core::{Error, Id, Result};

use crate::catalog::Catalog;
use crate::open::Opened;
use lanes::{Lanes, Reads, Request};

/// The bytes of a request whose size is to cost next to nothing.
pub const SMALL: u64 = 4 << 10;
/// The most that is read of one sample: of a larger one the rate of bytes is known by then.
const LARGEST: u64 = 16 << 20;
/// Requests one at a time: enough for a median and a tail.
const ONE_BY_ONE: usize = 64;
/// Small requests of a stage at most: enough for a rate where each takes microseconds.
const ENOUGH: usize = 4_000;
/// The share of the bytes that small requests may have, in all their stages.
const FOR_SMALL: f64 = 0.25;
/// A step up is of use if it brings so many times the answers a second.
const OF_USE: f64 = 1.15;
/// Twice as many at a time where a request is short, else four times: each step takes several requests.
const LONG: f64 = 0.25;
/// Above this share of refusals a store is asked for no more at a time.
const REFUSED: f64 = 0.05;
/// The rounds of all lanes in a stage where time is short.
const FEW_ROUNDS: f64 = 2.5;
/// Rounds of all lanes in a stage, and its bounds in seconds.
const ROUNDS: f64 = 16.0;
const STAGE: (f64, f64) = (0.5, 6.0);
/// Bytes of whole samples that are kept for the caller.
const KEPT: usize = 64 << 20;

/// What measuring may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Seconds; one request more where it is under way.
    pub time: Duration,
    /// Bytes from storage.
    pub bytes: u64,
    /// Requests at a time.
    pub most: usize,
    /// Whole samples to keep.
    pub keep: usize,
}

/// What one number of requests at a time came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// Requests at a time.
    pub at_a_time: usize,
    /// Answers a second.
    pub rate: f64,
    /// Bytes a second.
    pub bandwidth: f64,
    /// Answers that were waited for.
    pub answers: u64,
    /// The share of requests that the store refused to take for now.
    pub refused: f64,
}

/// What was measured of a store.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measured {
    /// Seconds of each request made one at a time, in ascending order.
    pub latencies: Vec<f64>,
    /// Small requests, more and more at a time.
    pub levels: Vec<Level>,
    /// Whole samples at the last.
    pub whole: Option<Level>,
    /// The bytes that were read.
    pub bytes: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Requests that the store refused to take for now, and those that failed.
    pub refused: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Why the first of them did.
    pub failure: Option<String>,
    /// Whether all samples were read, so that some came twice.
    pub repeated: bool,
    /// Whether more at a time than the last level might have brought more.
    pub still_growing: bool,
    /// Some whole samples.
    pub kept: Vec<(Id, Vec<u8>)>,
}

impl Measured {
    /// The mean of one request's seconds.
    pub fn latency(&self) -> f64 {
        self.latencies.iter().sum::<f64>() / self.latencies.len().max(1) as f64
    }

    /// The seconds that `share` of the requests did not pass.
    pub fn percentile(&self, share: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((share * last as f64).round() as usize).copied().unwrap_or(0.0)
    }

    /// The fewest at a time that give nearly all the answers a second there are.
    pub fn useful(&self) -> Option<&Level> {
        let best = self.best();
        self.taken().find(|level| level.rate * OF_USE >= best)
    }

    /// The most answers a second to small requests.
    pub fn best(&self) -> f64 {
        self.taken().map(|level| level.rate).fold(0.0, f64::max)
    }

    /// The levels that the store took, or all of them where it took none: what it refuses in part is more than it wants.
    fn taken(&self) -> impl Iterator<Item = &Level> {
        let any = self.levels.iter().any(|level| level.refused <= REFUSED);
        self.levels.iter().filter(move |level| !any || level.refused <= REFUSED)
    }
}

/// Measures the store of a dataset. `progress` hears what is done and how much of the time is gone; its error ends it.
pub fn measure(
    opened: &Opened,
    budget: Budget,
    progress: &mut dyn FnMut(&str, f64) -> Result<()>,
) -> Result<Measured> {
    let sizes: Vec<u64> = (0..opened.catalog.len() as Id).map(|id| opened.catalog.size(id)).collect();
    if sizes.iter().all(|size| *size == 0) {
        return Err(Error::invalid(format!(
            "all samples of `{}` are empty: there is nothing to read",
            opened.place
        )));
    }
    let reads = Arc::new(Reads::new(Arc::clone(&opened.catalog), Arc::clone(&opened.store)));
    let mut work = Work { reads, budget, began: Instant::now(), found: Measured::default(), progress };
    work.one_by_one()?;
    work.more_and_more()?;
    work.whole_samples(&opened.catalog)?;
    let mut found = work.found;
    found.seconds = work.began.elapsed().as_secs_f64();
    found.repeated = work.reads.repeated();
    Ok(found)
}

struct Work<'a> {
    reads: Arc<Reads>,
    budget: Budget,
    began: Instant,
    found: Measured,
    progress: &'a mut dyn FnMut(&str, f64) -> Result<()>,
}

impl Work<'_> {
    /// Seconds until `share` of the time is gone.
    fn left(&self, share: f64) -> f64 {
        self.budget.time.as_secs_f64() * share - self.began.elapsed().as_secs_f64()
    }

    fn stage(&mut self, what: &str, request: Request, at_a_time: usize, seconds: f64) -> Result<Lanes> {
        let end = Duration::from_secs_f64(self.left(1.0).max(0.0));
        let share = if request.bytes <= SMALL { FOR_SMALL } else { 1.0 };
        let bytes = ((self.budget.bytes as f64 * share) as u64).saturating_sub(self.found.bytes);
        let mut lanes = Lanes::new(&self.reads, request, at_a_time, bytes);
        let (began, whole) = (self.began, self.budget.time.as_secs_f64());
        let progress = &mut self.progress;
        lanes.run(Duration::from_secs_f64(seconds.max(0.0)), end, &mut || {
            progress(what, (began.elapsed().as_secs_f64() / whole).min(1.0))
        })?;
        self.found.bytes += lanes.bytes;
        self.found.refused += lanes.refused;
        self.found.failed += lanes.failed;
        if self.found.failure.is_none() {
            self.found.failure = lanes.failure.take().map(|failure| failure.message);
        }
        Ok(lanes)
    }

    fn one_by_one(&mut self) -> Result<()> {
        let request = Request { bytes: SMALL, keep: 0, most: ONE_BY_ONE };
        let lanes = self.stage("one request at a time", request, 1, self.left(0.25))?;
        if lanes.answers() == 0 {
            // Nothing came in a quarter of the time: the answer under way is waited for until its end.
            let waited = self.budget.time.as_secs_f64();
            return Err(match (lanes.error, lanes.refused) {
                (Some(error), _) => error,
                (None, 0) => Error::unavailable(format!(
                    "the store gave no answer in {waited:.0} s; give it longer with `seconds`"
                )),
                (None, _) => Error::unavailable(
                    "the store refuses every request for now, even one at a time: try again later",
                ),
            });
        }
        self.found.levels.push(lanes.level(1));
        self.found.latencies = lanes.seconds;
        self.found.latencies.sort_unstable_by(f64::total_cmp);
        Ok(())
    }

    fn more_and_more(&mut self) -> Result<()> {
        let latency = self.found.latency();
        let step = if latency > LONG { 4 } else { 2 };
        let (mut at_a_time, mut idle) = (1, 0);
        self.found.still_growing = true;
        let bytes = (self.budget.bytes as f64 * FOR_SMALL) as u64;
        while at_a_time < self.budget.most && self.left(0.7) > latency && self.found.bytes < bytes {
            at_a_time = (at_a_time * step).min(self.budget.most);
            // Where time is short, a few rounds must do, so that there is some for the steps to come.
            let steps = (self.budget.most as f64 / at_a_time as f64).log(step as f64).ceil() + 1.0;
            let fair = (self.left(0.7) / steps).max(FEW_ROUNDS * latency);
            let seconds = (ROUNDS * latency).clamp(STAGE.0, STAGE.1).min(fair).min(self.left(0.7));
            let request = Request { bytes: SMALL, keep: 0, most: ENOUGH };
            let lanes =
                self.stage(&format!("{at_a_time} requests at a time"), request, at_a_time, seconds)?;
            if lanes.answers() + lanes.refused == 0 {
                break;
            }
            let level = lanes.level(at_a_time);
            let best = self.found.best();
            idle = if level.rate >= best * OF_USE { 0 } else { idle + 1 };
            self.found.levels.push(level);
            if level.refused > REFUSED || idle == 2 {
                self.found.still_growing = false;
                break;
            }
        }
        self.found.still_growing &= idle == 0;
        Ok(())
    }

    fn whole_samples(&mut self, catalog: &Catalog) -> Result<()> {
        let at_a_time = self.found.useful().map_or(1, |level| level.at_a_time);
        // A thread for each of many large samples would hold more memory than there may be.
        let mean = (catalog.bytes() / catalog.len().max(1) as u64).clamp(1, LARGEST);
        let at_a_time = at_a_time.min(usize::try_from(self.budget.bytes / 4 / mean).unwrap_or(1)).max(1);
        let request = Request { bytes: LARGEST, keep: self.budget.keep, most: usize::MAX };
        let seconds = self.left(1.0).min(STAGE.1);
        if seconds <= 0.0 || self.found.bytes >= self.budget.bytes {
            return Ok(());
        }
        let mut lanes = self.stage("whole samples", request, at_a_time, seconds)?;
        if lanes.answers() > 0 {
            self.found.whole = Some(lanes.level(at_a_time));
        }
        let mut room = KEPT;
        lanes.kept.retain(|sample| {
            let fits = sample.1.len() <= room;
            room -= if fits { sample.1.len() } else { 0 };
            fits
        });
        self.found.kept = lanes.kept;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
