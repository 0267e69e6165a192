//! Everything under the engine's lock.
//!
//! Jobs decide; the [rooms](Rooms) hold bytes, reads and clients and know nothing of jobs. What needs both takes the job
//! and the rooms.

use hotset_core::Result;

use crate::config::{Config, reserve};
use crate::dataset::Datasets;
use crate::jobs::Jobs;
use crate::rooms::Rooms;
use crate::serving::{Batch, Budget};

/// The engine's bookkeeping, under its lock.
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) datasets: Datasets,
    pub(crate) jobs: Jobs,
    pub(crate) rooms: Rooms,
    /// The bytes that all caches may keep together, as they were when a job was last opened.
    pub(crate) budget: u64,
    last_serial: u64,
    /// The most reported values that were applied in one hold of a lock.
    most_applied: u64,
    stopping: bool,
}

impl State {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            datasets: Datasets::default(),
            jobs: Jobs::default(),
            rooms: Rooms::default(),
            budget: 0,
            last_serial: 0,
            most_applied: 0,
            stopping: false,
        }
    }

    /// A number that was never given before.
    pub(crate) fn next_serial(&mut self) -> u64 {
        self.last_serial += 1;
        self.last_serial
    }

    /// So many reported values were applied in one hold of a lock.
    pub(crate) fn note_applied(&mut self, values: usize) {
        self.most_applied = self.most_applied.max(values as u64);
    }

    pub(crate) fn most_applied(&self) -> u64 {
        self.most_applied
    }

    /// The engine stops: what waits is woken and told.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
        self.rooms.sessions().wake_all();
        self.jobs.iter().filter_map(|job| job.packages.queue()).for_each(|queue| queue.look_around());
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Bytes of memory for what no cache keeps.
    pub(crate) fn reserve(&self) -> u64 {
        reserve(self.rooms.caches().capacity())
    }

    /// Fits caches to their parts of the budget, and memory to the caches. True if there is more to do.
    pub(crate) fn fit_memory(&mut self) -> bool {
        let more = self.rooms.fit_caches(self.budget);
        let kept = self.rooms.caches().held();
        let limit = if self.jobs.len() == 0 { 0 } else { kept + self.reserve() };
        self.rooms.set_limit(limit);
        more
    }

    /// Forgets datasets that no client and no job uses and no bytes are left of.
    pub(crate) fn forget_datasets(&mut self) {
        let (trained, rooms) = (self.jobs.datasets(), &self.rooms);
        let is_used = |key: u32| rooms.residency().has_bytes(key) || rooms.caches().leaving(key) > 0;
        let gone = self.datasets.forget_unused(|key| trained.contains(&key) || is_used(key));
        gone.into_iter().for_each(|key| self.rooms.forget_dataset(key));
    }

    /// Reads on along a job's plans, as far as its window reaches: its share of half the reserve, but no more than an
    /// eighth of the dataset, so that a window never meets its own tail. True if the lock should be let go of before
    /// going on.
    pub(crate) fn read_ahead(&mut self, serial: u64) -> Result<bool> {
        let (reserve, jobs) = (self.reserve(), self.jobs.len().max(1) as u64);
        let Some(job) = self.jobs.get_mut(serial) else { return Ok(false) };
        let most = (job.dataset.catalog.bytes() / 8).max(1 << 20);
        let budget = Budget { window: (reserve / 2 / jobs).min(most), transient: reserve / 8 * 7 };
        job.read_ahead(&mut self.rooms, budget)
    }

    /// Whether waiting for memory is of no use to a batch: what its own reader leases leaves no room, or all other readers
    /// wait for memory too, and nothing else is under way that would let go of some.
    pub(crate) fn waits_in_vain(&self, serial: u64, batch: &Batch) -> bool {
        let Some(job) = self.jobs.get(serial) else { return false };
        if self.rooms.sessions().leases_of(batch.client) == 0 {
            return false;
        }
        job.is_cornered(&self.rooms, batch)
            || (self.rooms.sessions().others_wait_for_memory(batch.client)
                && self.rooms.fetching().in_flight() == 0
                // A packer lets go of what it has copied.
                && self.jobs.iter().all(|job| job.packages.queue().is_none()))
    }
}

#[cfg(feature = "shuttle")]
impl State {
    /// Checks what holds whenever the lock is free.
    pub(crate) fn check(&self) {
        self.rooms.check();
        for job in self.jobs.iter() {
            let dataset = job.dataset.key;
            for id in 0..job.dataset.samples() as u32 {
                let (keepers, mut slots) = (self.rooms.caches().keepers(dataset, id), 0);
                for job in self.jobs.iter().filter(|job| job.dataset.key == dataset) {
                    slots += job.run.schedules().values().map(|schedule| schedule.holds(id)).sum::<u32>();
                }
                let claims = self.rooms.residency().claims(dataset, id);
                assert_eq!((keepers, slots), claims, "claims on sample {id}");
            }
        }
    }
}
