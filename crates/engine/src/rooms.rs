//! Caches, residency, fetching and sessions, and what passes between them.
//!
//! An object that left before it was read is forgotten by fetching; a segment that has gone is told to clients; bytes that
//! arrive wake the batches that wait for them. Each room knows only itself: these functions are the doors. They act on
//! what jobs decide and know nothing of jobs.

use std::sync::Arc;

use hotset_core::cache::Cache;
use hotset_core::contents::Hash;
use hotset_core::{Error, Id, Result};

use crate::caches::Caches;
use crate::dataset::Dataset;
use crate::fetching::{Begun, Cause, Fetch, Fetching, Payer};
use crate::residency::{ContentKey, Residency, View};
use crate::sessions::{Item, NewSegment, Sessions};

/// What is kept, memory, reads and clients.
#[derive(Default)]
pub(crate) struct Rooms {
    caches: Caches,
    residency: Residency,
    fetching: Fetching,
    sessions: Sessions,
    most_left: u64,
}

impl Rooms {
    pub(crate) fn caches(&self) -> &Caches {
        &self.caches
    }

    pub(crate) fn caches_mut(&mut self) -> &mut Caches {
        &mut self.caches
    }

    /// The cache of a job.
    pub(crate) fn cache(&self, job: u64) -> Result<&Cache> {
        self.caches.of(job)
    }

    /// The cache of a job, to be asked.
    pub(crate) fn cache_mut(&mut self, job: u64) -> Result<&mut Cache> {
        self.caches.of_mut(job)
    }

    pub(crate) fn residency(&self) -> &Residency {
        &self.residency
    }

    pub(crate) fn fetching(&self) -> &Fetching {
        &self.fetching
    }

    pub(crate) fn fetching_mut(&mut self) -> &mut Fetching {
        &mut self.fetching
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    pub(crate) fn sessions_mut(&mut self) -> &mut Sessions {
        &mut self.sessions
    }

    /// Tells the other rooms what has gone from memory.
    fn sweep(&mut self) {
        self.residency.take_unread().into_iter().for_each(|object| self.fetching.forget(object));
        self.residency.take_dropped().into_iter().for_each(|segment| self.sessions.drop_segment(segment));
    }

    /// Makes an object for the read of a sample, which is to be queued; its bytes of before are let go of. `None` when
    /// the arena, or the segment `spill`, has no room.
    pub(crate) fn expect(
        &mut self,
        dataset: &Arc<Dataset>,
        id: Id,
        payer: Payer,
        spill: Option<u32>,
    ) -> Result<Option<u32>> {
        // The object before may leave unread, and the new one get its key.
        self.residency.detach(dataset.key, id);
        self.sweep();
        let mut made = self.residency.create(dataset, id, spill)?;
        if made.is_none() && self.press() {
            made = self.residency.create(dataset, id, spill)?;
        }
        if let Some(object) = made {
            self.fetching.expect(object, dataset, payer);
        }
        Ok(made)
    }

    /// The same for a read that no reader waits for. An error comes again when the sample is asked for, and is told then.
    pub(crate) fn expect_ahead(&mut self, dataset: &Arc<Dataset>, id: Id, payer: Payer) -> Option<u32> {
        self.expect(dataset, id, payer, None).unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read ahead");
            None
        })
    }

    /// Makes an object for a read of a sample that no table names, so that bytes of the sample which are there stay as they
    /// are. Whoever asks holds it. `None` when the arena, or the segment `spill`, has no room.
    pub(crate) fn expect_apart(
        &mut self,
        dataset: &Arc<Dataset>,
        id: Id,
        payer: Payer,
        spill: Option<u32>,
    ) -> Result<Option<u32>> {
        let mut made = self.residency.create_apart(dataset, id, spill)?;
        if made.is_none() && self.press() {
            made = self.residency.create_apart(dataset, id, spill)?;
        }
        made.into_iter().for_each(|object| self.fetching.expect(object, dataset, payer));
        Ok(made)
    }

    /// A segment for the rest of a client's batch, for which the arena has no room.
    pub(crate) fn spill(&mut self, client: u64, sizes: impl Iterator<Item = u64>) -> Result<u32> {
        let segment = self.residency.spill(sizes)?;
        self.sessions.spilled(client, segment);
        Ok(segment)
    }

    /// Moves the capacities of caches towards their parts of `budget`; what leaves them lets go of its bytes. True if there
    /// is more to do.
    pub(crate) fn fit_caches(&mut self, budget: u64) -> bool {
        let (changes, more) = self.caches.settle(budget);
        for (dataset, changes) in changes {
            self.most_left = self.most_left.max(changes.len() as u64);
            changes.into_iter().for_each(|(id, keeps)| self.keep(&dataset, id, keeps));
        }
        more
    }

    /// The most residents that left a cache in one hold of the lock because it got smaller or went.
    pub(crate) fn most_left(&self) -> u64 {
        self.most_left
    }

    /// A cache keeps a sample from now on, or no longer.
    pub(crate) fn keep(&mut self, dataset: &Dataset, id: Id, keeps: bool) {
        if keeps {
            self.residency.keep(dataset, id);
        } else {
            self.residency.unkeep(dataset, id);
            self.sweep();
        }
    }

    /// A decided slot waits for a sample from now on, or no longer.
    pub(crate) fn claim(&mut self, dataset: &Dataset, id: Id, waits: bool) {
        if waits {
            self.residency.claim(dataset, id);
        } else {
            self.residency.unclaim(dataset, id);
            self.sweep();
        }
    }

    /// A reader waits for an object from now on, or no longer.
    pub(crate) fn hold(&mut self, object: u32, waits: bool) {
        if waits {
            self.residency.hold(object);
        } else {
            self.residency.let_go(object);
            self.sweep();
        }
    }

    /// A reader lets go of what it holds for one sample.
    pub(crate) fn let_go(&mut self, item: &Item) {
        self.hold(item.object, false);
        item.original.into_iter().for_each(|object| self.hold(object, false));
    }

    /// A client leases objects that it has waited for: segments that it must map first, and those that have gone.
    pub(crate) fn lease(
        &mut self,
        client: u64,
        lease: u64,
        objects: Vec<u32>,
    ) -> Result<(Vec<NewSegment>, Vec<u32>)> {
        let handed = self.sessions.lease(client, lease, &objects, &self.residency)?;
        objects.into_iter().for_each(|object| self.residency.lease(object));
        Ok(handed)
    }

    /// Leases an object that is whole, to be looked at.
    pub(crate) fn lend(&mut self, object: u32) -> Option<View> {
        self.residency.lend(object)
    }

    /// The bytes of an object were looked at.
    pub(crate) fn end_lending(&mut self, object: u32) {
        self.residency.end_lending(object);
        self.sweep();
    }

    /// Leases on objects have ended.
    pub(crate) fn end_leases(&mut self, objects: Vec<u32>) {
        objects.into_iter().for_each(|object| self.residency.end_lease(object));
        self.sweep();
    }

    /// Ends the leases whose ends were not told. True if there were any.
    pub(crate) fn hear(&mut self) -> bool {
        let objects = self.sessions.hear();
        let any = !objects.is_empty();
        self.end_leases(objects);
        any
    }

    /// Memory is short: ends of leases are wanted at once from now on, and those that were not told are heard. True if
    /// there were any.
    pub(crate) fn press(&mut self) -> bool {
        self.sessions.set_urgent(true);
        self.hear()
    }

    /// Whether memory is short for what was asked for already.
    pub(crate) fn is_pressed(&self) -> bool {
        self.sessions.any_waits_for_memory() || self.residency.has_spills()
    }

    /// Takes the next request off the queues.
    pub(crate) fn begin_fetch(&mut self, is_written: impl Fn(u64, u32) -> bool) -> Option<Begun> {
        self.fetching.begin(&mut self.residency, is_written)
    }

    /// Takes the next request to another node off its queue.
    pub(crate) fn begin_asking(&mut self) -> Option<Fetch> {
        self.fetching.begin_asking(&mut self.residency)
    }

    /// The bytes of an object that is about to arrive are in memory: it has them in common with others.
    pub(crate) fn adopt(&mut self, object: u32, content: ContentKey) {
        self.residency.adopt(object, content);
    }

    /// The bytes of an object that is about to arrive have this hash.
    pub(crate) fn prove(&mut self, object: u32, hash: Hash) {
        self.residency.prove(object, hash);
    }

    /// An object's bytes have come, or will not: wakes the batches that wait for it.
    pub(crate) fn arrive(&mut self, object: u32, failed: Option<&Error>) {
        let waiters = self.fetching.arrived(object);
        self.sessions.arrived(&waiters, failed);
        match failed {
            None => self.residency.end_read(object),
            Some(_) => self.residency.fail_read(object),
        }
        self.sweep();
    }

    /// Reads a sample alone that its package or its neighbours did not bring. One that no slot and no reader waits for is
    /// let go of, and read when it is due.
    pub(crate) fn read_alone(&mut self, object: u32, cause: Cause) -> Result<()> {
        if self.residency.read_again(object) {
            self.fetching.enqueue_alone(object, cause)?;
        }
        self.sweep();
        Ok(())
    }

    /// Forgets a dataset that has no bytes in memory.
    pub(crate) fn forget_dataset(&mut self, dataset: u32) {
        self.residency.forget(dataset);
    }

    /// Sets how many bytes of memory there may be.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.residency.set_limit(limit);
        if self.residency.total() > limit {
            self.hear();
        }
        self.sweep();
    }
}

#[cfg(feature = "shuttle")]
impl Rooms {
    /// Checks that the rooms agree with each other.
    pub(crate) fn check(&self) {
        self.residency.check();
        self.fetching.check(&self.residency);
        self.sessions.check(&self.residency, &self.fetching);
    }
}
