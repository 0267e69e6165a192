//! Modelled time: a storage that answers so fast, and a trainer that takes so long a batch.
//!
//! Requests enter in plan order and pass through a limit of requests in flight, each waiting `latency` and
//! then sharing one pipe of `bandwidth` with the others, as the throttled store does. Completions come in
//! the order of requests, so a ring of the last `concurrency` completions is all there is to keep. A request
//! may not start before the trainer has begun the step that lies `prefetch` batches before its own. A step
//! begins when the step before has ended and its samples are there; what lies between is *wait*.
//!
//! Left out: decoding, the network's own variance, a sample that is asked for again while it is being read
//! (it counts as there), and the cost of a hit.

use std::collections::VecDeque;

use hotset_core::counters::Waits;

/// A storage, as far as time goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Storage {
    /// Seconds from a request to its first byte.
    pub latency: f64,
    /// Bytes a second for all requests together; `None`: no limit.
    pub bandwidth: Option<f64>,
    /// Requests in flight at a time, at least 1.
    pub concurrency: usize,
}

/// A trainer, as far as time goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compute {
    /// Seconds of computing for a full batch on each rank.
    pub seconds_a_batch: f64,
    /// Samples in a batch of one rank, at least 1.
    pub batch: usize,
    /// Batches read ahead of the one being computed.
    pub prefetch: usize,
    /// Ranks, which compute in step; at least 1.
    pub ranks: u32,
}

/// An inference costs this share of a training step: the forward pass of forward and backward.
const INFERENCE: f64 = 1.0 / 3.0;

const NANOSECONDS: f64 = 1e9;

/// What became of an epoch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EpochTime {
    /// Seconds from the end of the epoch before to the end of this one.
    pub seconds: f64,
    /// Seconds in which no rank could compute for lack of data, evaluation before the epoch included.
    pub wait: f64,
    /// Servings that were not there when their batch was asked for.
    pub late: u64,
    /// How long each rank's batches waited.
    pub waits: Vec<Waits>,
}

/// The clock of a storage. Times are nanoseconds.
pub(crate) struct StorageClock {
    storage: Storage,
    /// When each of the last `concurrency` requests was done.
    in_flight: VecDeque<u64>,
    /// When the pipe has passed all that was asked for.
    pipe: u64,
}

impl StorageClock {
    pub(crate) fn new(storage: Storage) -> Self {
        Self { storage, in_flight: VecDeque::with_capacity(storage.concurrency.clamp(1, 1 << 16)), pipe: 0 }
    }

    /// Asks for `bytes` in one request, which may not start before a time; when they are there.
    pub(crate) fn request(&mut self, bytes: u64, not_before: u64) -> u64 {
        let limit = self.storage.concurrency.max(1);
        let lane = if self.in_flight.len() >= limit { self.in_flight.pop_front() } else { None };
        let starts = lane.unwrap_or(0).max(not_before);
        let arrives = starts.saturating_add(nanoseconds(self.storage.latency));
        let done = match self.storage.bandwidth {
            Some(bandwidth) if bandwidth > 0.0 => {
                self.pipe = self.pipe.max(arrives).saturating_add(nanoseconds(bytes as f64 / bandwidth));
                self.pipe
            }
            _ => arrives,
        };
        self.in_flight.push_back(done);
        done
    }
}

/// The clock of one trainer. Times inside are nanoseconds.
pub(crate) struct Timeline {
    compute: Compute,
    /// When each of the last `prefetch` steps began.
    begun: VecDeque<u64>,
    /// When the last step ended.
    ended: u64,
    /// No request of this epoch may start before.
    edge: u64,
    epoch_began: u64,
    epoch: EpochTime,
    slots: usize,
    trained: usize,
    ready: Vec<u64>,
}

impl Timeline {
    /// One that starts at a time.
    pub(crate) fn new(compute: Compute, start: f64) -> Self {
        let (ranks, start) = (compute.ranks.max(1) as usize, nanoseconds(start));
        Self {
            compute,
            begun: VecDeque::with_capacity(compute.prefetch.min(1 << 16)),
            ended: start,
            edge: start,
            epoch_began: start,
            epoch: EpochTime::default(),
            slots: 0,
            trained: 0,
            ready: vec![0; ranks],
        }
    }

    /// Begins an epoch. Where plans are not ready before the last one ends, nothing is read ahead of it.
    pub(crate) fn begin_epoch(&mut self, reads_across_the_edge: bool) {
        self.epoch_began = self.ended;
        self.epoch = EpochTime { waits: vec![Waits::default(); self.ready.len()], ..EpochTime::default() };
        if !reads_across_the_edge {
            self.edge = self.ended;
        }
    }

    /// When the request for the next slot may start.
    pub(crate) fn earliest(&self) -> u64 {
        let window = match self.compute.prefetch {
            0 => self.ended,
            ahead if self.begun.len() < ahead => 0,
            _ => self.begun.front().copied().unwrap_or(0),
        };
        window.max(self.edge)
    }

    /// When the last step ended, in seconds.
    pub(crate) fn ended(&self) -> f64 {
        seconds(self.ended)
    }

    /// Serves the next slot of the plan, whose sample is there at `ready`. One that is not `trained` costs no
    /// computing.
    pub(crate) fn serve(&mut self, ready: u64, trained: bool) {
        let rank = self.slots % self.ready.len();
        self.ready[rank] = self.ready[rank].max(ready);
        self.epoch.late += u64::from(ready > self.ended);
        self.slots += 1;
        self.trained += usize::from(trained);
        if self.slots == self.compute.batch.max(1) * self.ready.len() {
            self.step();
        }
    }

    /// Reads all of `sizes` and runs the model over them, before the first batch of this epoch.
    pub(crate) fn evaluate(
        &mut self,
        storage: &mut StorageClock,
        sizes: impl Iterator<Item = u64>,
        samples: usize,
    ) {
        self.edge = self.edge.max(self.ended);
        let earliest = self.earliest();
        let read = sizes.map(|bytes| storage.request(bytes, earliest)).last().unwrap_or(self.ended);
        let computed = self.ended.saturating_add(self.computing(samples as f64 * INFERENCE));
        let done = read.max(computed);
        self.epoch.wait += (done - self.ended) as f64 / NANOSECONDS;
        self.ended = done;
        self.edge = done;
    }

    /// Ends the epoch with a batch that may be short.
    pub(crate) fn end_epoch(&mut self) -> EpochTime {
        if self.slots > 0 {
            self.step();
        }
        self.epoch.seconds = (self.ended - self.epoch_began) as f64 / NANOSECONDS;
        std::mem::take(&mut self.epoch)
    }

    fn step(&mut self) {
        let mut begins = self.ended;
        for (rank, ready) in self.ready.iter_mut().enumerate() {
            let ready = std::mem::take(ready);
            self.epoch.waits[rank].add(ready.saturating_sub(self.ended) as f64 / NANOSECONDS);
            begins = begins.max(ready);
        }
        self.epoch.wait += (begins - self.ended) as f64 / NANOSECONDS;
        if self.compute.prefetch > 0 {
            if self.begun.len() == self.compute.prefetch {
                self.begun.pop_front();
            }
            self.begun.push_back(begins);
        }
        self.ended = begins.saturating_add(self.computing(self.trained as f64));
        (self.slots, self.trained) = (0, 0);
    }

    /// Nanoseconds in which all ranks together train `samples`.
    fn computing(&self, samples: f64) -> u64 {
        let share = samples / (self.compute.batch.max(1) * self.ready.len()) as f64;
        nanoseconds(share * self.compute.seconds_a_batch)
    }
}

/// Nanoseconds as seconds.
pub(crate) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / NANOSECONDS
}

/// Saturates: a time beyond centuries is as good as any other.
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * NANOSECONDS).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storage(concurrency: usize) -> Storage {
        Storage { latency: 0.010, bandwidth: Some(1e6), concurrency }
    }

    fn compute(prefetch: usize) -> Compute {
        Compute { seconds_a_batch: 0.1, batch: 10, prefetch, ranks: 1 }
    }

    /// A trainer and its storage.
    fn clocks(storage: Storage, compute: Compute) -> (Timeline, StorageClock) {
        (Timeline::new(compute, 0.0), StorageClock::new(storage))
    }

    fn epoch((timeline, storage): &mut (Timeline, StorageClock), slots: usize, hits: bool) -> EpochTime {
        timeline.begin_epoch(true);
        for _ in 0..slots {
            let ready = if hits { 0 } else { storage.request(1000, timeline.earliest()) };
            timeline.serve(ready, true);
        }
        timeline.end_epoch()
    }

    #[test]
    fn without_reads_an_epoch_takes_its_computing() {
        let time = epoch(&mut clocks(storage(4), compute(2)), 95, true);
        assert!((time.seconds - 0.95).abs() < 1e-9 && time.wait == 0.0 && time.late == 0);
    }

    #[test]
    fn one_request_at_a_time_pays_every_latency_and_every_byte() {
        let time = epoch(&mut clocks(storage(1), compute(1000)), 100, false);
        // 100 x (10 ms + 1 ms), and the last batch's computing after that.
        assert!((time.seconds - 1.2).abs() < 1e-9, "{time:?}");
        assert_eq!(time.waits[0].batches(), 10);
    }

    #[test]
    fn many_at_a_time_pay_for_the_bytes_alone() {
        let mut clocks = clocks(Storage { bandwidth: Some(5e3), ..storage(64) }, compute(1000));
        let time = epoch(&mut clocks, 100, false);
        assert!((time.seconds - (20.0 + 0.010 + 0.1)).abs() < 1e-6, "{time:?}");
    }

    #[test]
    fn nothing_is_read_before_its_place_in_the_window() {
        // Each batch: 10 ms + 10 ms of bytes, after the batch before has ended; then 100 ms of computing.
        let time = epoch(&mut clocks(storage(64), compute(0)), 50, false);
        assert!((time.seconds - 5.0 * 0.120).abs() < 1e-6, "{time:?}");
        // One ahead: only the first batch waits.
        let time = epoch(&mut clocks(storage(64), compute(1)), 50, false);
        assert!((time.seconds - (0.5 + 0.020)).abs() < 1e-6, "{time:?}");
        assert_eq!(time.late, 10);
    }

    #[test]
    fn the_next_epoch_is_read_ahead_only_where_its_plan_is_known() {
        for (across, waits) in [(true, 0.0), (false, 0.020)] {
            let mut clocks = clocks(storage(64), compute(2));
            epoch(&mut clocks, 50, false);
            let (mut timeline, mut storage) = clocks;
            timeline.begin_epoch(across);
            for _ in 0..50 {
                let ready = storage.request(1000, timeline.earliest());
                timeline.serve(ready, true);
            }
            assert!((timeline.end_epoch().wait - waits).abs() < 1e-6);
        }
    }

    #[test]
    fn an_evaluation_before_the_epoch_is_waited_for() {
        let (mut timeline, mut storage) = clocks(storage(1), compute(2));
        timeline.begin_epoch(false);
        timeline.evaluate(&mut storage, [1000u64; 30].into_iter(), 30);
        let time = timeline.end_epoch();
        assert!((time.wait - 0.330).abs() < 1e-9 && time.seconds == time.wait, "{time:?}");
    }

    #[test]
    fn ranks_share_the_storage_and_keep_in_step() {
        let mut clocks = clocks(storage(1), Compute { ranks: 2, ..compute(1000) });
        let time = epoch(&mut clocks, 40, false);
        assert!((time.seconds - (40.0 * 0.011 + 0.1)).abs() < 1e-9, "{time:?}");
        assert_eq!((time.waits.len(), time.waits[1].batches()), (2, 2));
    }
}
