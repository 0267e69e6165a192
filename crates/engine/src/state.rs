//! Everything under the engine's lock.
//!
//! Jobs decide; the [rooms](Rooms) hold bytes, reads and clients and know nothing of jobs. What needs both takes the job
//! and the rooms.

use std::sync::Arc;
use std::time::Duration;

use hotset_core::Result;

use crate::cluster::Cluster;
use crate::config::{Concurrency, Config, reserve};
use crate::dataset::Datasets;
use crate::jobs::Jobs;
use crate::planning::PlanQueue;
use crate::rooms::Rooms;
use crate::serving::{Batch, Budget};

/// The engine's bookkeeping, under its lock.
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) datasets: Datasets,
    pub(crate) jobs: Jobs,
    pub(crate) rooms: Rooms,
    /// The other nodes, and how long one of them is waited for.
    pub(crate) cluster: Option<(Arc<dyn Cluster>, Duration)>,
    /// What is planned next.
    pub(crate) plans: PlanQueue,
    /// The bytes that all caches may keep together, as they were when a job was last opened.
    pub(crate) budget: u64,
    last_serial: u64,
    /// The most reported values that were applied in one hold of a lock.
    most_applied: u64,
    /// Questions of other nodes that are being answered.
    pub(crate) giving: usize,
    stopping: bool,
}

impl State {
    pub(crate) fn new(config: Config) -> Self {
        let mut rooms = Rooms::default();
        if config.concurrency == Concurrency::Auto {
            rooms.fetching_mut().find_limits();
        }
        Self {
            config,
            datasets: Datasets::default(),
            jobs: Jobs::default(),
            rooms,
            cluster: None,
            plans: PlanQueue::default(),
            budget: 0,
            last_serial: 0,
            most_applied: 0,
            giving: 0,
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
    /// eighth of the dataset, so that a window never meets its own tail. What comes free while one of its readers waits for
    /// memory is that reader's. True if the lock should be let go of before going on.
    pub(crate) fn read_ahead(&mut self, serial: u64) -> Result<bool> {
        let (reserve, jobs) = (self.reserve(), self.jobs.len().max(1) as u64);
        if self.rooms.sessions().waits_for_memory(serial) {
            return Ok(false);
        }
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
                && self.rooms.fetching().asked_in_flight() + self.giving == 0
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
            for ((epoch, slot), object) in job.nodes.visitors.all() {
                let Some(schedule) = job.run.schedule(epoch) else {
                    panic!("bytes visit an epoch that is over")
                };
                assert!(!schedule.owns(slot) && !schedule.stage(slot).is_done(), "slot {slot} has a visitor");
                assert_eq!(
                    self.rooms.residency().get(object).id(),
                    schedule.id(slot),
                    "another sample visits"
                );
            }
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
