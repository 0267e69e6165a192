//! Where plans meet bytes: deciding slots in plan order, and reading ahead along them.
//!
//! Two layers meet here. The *logical* layer is each job's run: its policy is asked once a slot in plan order, and what
//! that brings about comes as changes. The *bytes* are objects in the arena. What a policy evicts lets go of its object
//! at once. What the plan reads is read: bytes of the same job that happen to linger (still leased, or waiting for an
//! earlier slot) are not used for it, or what storage sees would depend on timing. Bytes that another job keeps, or is
//! reading, are shared: the read is joined. What the plan counts on and is not there is read all the same, as recovery.
//! Either way the plan's counts are those of its decisions.

use std::sync::Arc;

use hotset_core::run::{Change, Outcome};
use hotset_core::schedule::Stage;
use hotset_core::tally::Traffic;
use hotset_core::{Id, Result};

use crate::state::{Cause, Payer, State};

/// Slots decided in one hold of the lock.
const DECISIONS: usize = 4096;

/// What was done about the read of a slot.
#[derive(Debug, Clone, Copy)]
enum Read {
    /// An object was made for it.
    Made(u32),
    /// Another job has its bytes, or reads them.
    Joined,
    /// It is read when it is asked for.
    Later,
}

impl State {
    /// Decides a job's next block of slots, and queues its reads if `fetch`: how many slots, and whether all reads found
    /// room. One that did not is decided all the same, and is read when it is asked for.
    pub(crate) fn decide(&mut self, serial: u64, fetch: bool) -> (usize, bool) {
        let (mut changes, mut reads, mut decided, mut room) = (Vec::new(), Vec::new(), 0, true);
        let mut more = true;
        while more {
            let Some(job) = self.jobs.get_mut(&serial) else { break };
            more = job.run.step(&mut changes);
            for change in changes.drain(..) {
                match change {
                    Change::Evicted(id) => self.evict(serial, id),
                    Change::Loaded { epoch, package, kept } => self.load(serial, epoch, package, kept, fetch),
                    Change::Decided { epoch, slot, id, outcome, admitted } => {
                        let read = self.decided(serial, (epoch, slot, id), outcome, admitted, fetch);
                        room &= !fetch || !matches!(read, Some(Read::Later));
                        reads.extend(read.map(|read| (slot, read)));
                        decided += 1;
                    }
                    Change::Requested { epoch, slots, bytes } => {
                        self.request(serial, epoch, &slots, bytes, &reads)
                    }
                }
            }
        }
        (decided, room)
    }

    fn evict(&mut self, serial: u64, id: Id) {
        if let Some(dataset) = self.jobs.get(&serial).map(|job| job.dataset) {
            self.keep(dataset, id, false);
        }
    }

    /// A slot was decided: holds its bytes, or makes room for them. What was done about its read, where it has one.
    fn decided(
        &mut self,
        serial: u64,
        (epoch, slot, id): (u64, usize, Id),
        outcome: Outcome,
        admitted: bool,
        fetch: bool,
    ) -> Option<Read> {
        let job = self.jobs.get(&serial)?;
        let (dataset, waits) = (job.dataset, job.waits_for(id, (epoch, slot)));
        let present = self.object(dataset, id);
        // See the module's head: what another job has is shared, what lingers of our own is not.
        let shared = present.is_some_and(|key| {
            let others = self.pending.get(&key).is_some_and(|pending| pending.payer.job != serial);
            self.objects[key as usize].keepers > 0 || (others && !waits)
        });
        if admitted {
            self.keep(dataset, id, true);
        }
        let payer = |cause| Payer { job: serial, epoch: Some(epoch), cause };
        let read = match outcome {
            Outcome::Hit | Outcome::Packed => {
                // An earlier slot of the same sample may be decided and not read yet.
                if present.is_none() && !waits && fetch {
                    self.read_ahead(dataset, id, payer(Cause::Recovery));
                }
                None
            }
            Outcome::Single if shared => Some(Read::Joined),
            // A slot of the same block that waits for the same sample needs its own bytes.
            Outcome::Single if fetch && !waits => {
                let made = self.prepare(dataset, id, payer(Cause::Planned));
                Some(made.map_or(Read::Later, Read::Made))
            }
            Outcome::Single => Some(Read::Later),
        };
        if !matches!(read, Some(Read::Later)) {
            self.wait(serial, epoch, slot, id);
        }
        read
    }

    /// A decided slot holds its sample's bytes from now on.
    pub(crate) fn wait(&mut self, serial: u64, epoch: u64, slot: usize, id: Id) {
        let Some(job) = self.jobs.get_mut(&serial) else { return };
        let dataset = job.dataset;
        job.window += self.datasets[dataset as usize].catalog.size(id);
        if let Some(schedule) = job.run.schedule_mut(epoch) {
            schedule.wait(slot);
        }
        self.hold(dataset, id);
    }

    /// Queues the reads of slots that are one request, those that an object was made for.
    fn request(&mut self, serial: u64, epoch: u64, slots: &[usize], bytes: u64, reads: &[(usize, Read)]) {
        let (mut objects, mut later, mut joined) = (Vec::new(), Vec::new(), Vec::new());
        for &slot in slots {
            match reads.binary_search_by_key(&slot, |(of, _)| *of).map(|at| reads[at].1) {
                Ok(Read::Made(object)) => objects.push(object),
                Ok(Read::Joined) => joined.push(slot),
                Ok(Read::Later) | Err(_) => later.push(slot),
            }
        }
        let Some(job) = self.jobs.get_mut(&serial) else { return };
        if joined.len() == slots.len() {
            job.run.tally_mut().joined(epoch, Traffic { reads: joined.len() as u64, requests: 1, bytes });
        } else if !joined.is_empty() {
            let catalog = &self.datasets[job.dataset as usize].catalog;
            let size = |slot: &usize| job.run.schedule(epoch).map_or(0, |of| catalog.size(of.id(*slot)));
            let bytes = joined.iter().map(size).sum();
            job.run.tally_mut().joined(epoch, Traffic { reads: joined.len() as u64, requests: 0, bytes });
        }
        if slots.len() > 1 && !later.is_empty() {
            let together: Arc<[usize]> = if objects.is_empty() { later.clone().into() } else { Arc::new([]) };
            job.together.extend(later.into_iter().map(|slot| ((epoch, slot), Arc::clone(&together))));
        }
        self.enqueue_together(serial, epoch, objects, false);
    }

    /// Queues the reads of objects that are one request.
    pub(crate) fn enqueue_together(&mut self, serial: u64, epoch: u64, objects: Vec<u32>, urgent: bool) {
        match objects[..] {
            [] => {}
            [object] => self.enqueue(object, urgent),
            _ => self.load_neighbours(serial, epoch, objects, urgent),
        }
    }

    /// So many slots will not be served, these of them decided: lets go of what they hold.
    pub(crate) fn abandon(&mut self, serial: u64, epoch: u64, count: usize, decided: &[(usize, Stage)]) {
        let Some(job) = self.jobs.get_mut(&serial) else { return };
        job.run.left(epoch, count, decided);
        let restored = job.run.schedule(epoch).is_some_and(|schedule| schedule.is_restored());
        let unread = decided.iter().filter(|(_, stage)| *stage == Stage::Unread && !restored);
        for &(slot, _) in unread {
            let Some(id) = job.run.schedule(epoch).map(|schedule| schedule.id(slot)) else { break };
            let requests = u64::from(!job.together.contains_key(&(epoch, slot)));
            let bytes = self.datasets[job.dataset as usize].catalog.size(id);
            job.run.tally_mut().joined(epoch, Traffic { reads: 1, requests, bytes });
        }
        self.let_go_of(serial, epoch, decided);
    }

    /// Lets go of what decided slots hold.
    pub(crate) fn let_go_of(&mut self, serial: u64, epoch: u64, decided: &[(usize, Stage)]) {
        for &(slot, stage) in decided {
            let Some(job) = self.jobs.get_mut(&serial) else { return };
            let Some(id) = job.run.schedule(epoch).map(|schedule| schedule.id(slot)) else { return };
            job.together.remove(&(epoch, slot));
            if stage == Stage::Waiting {
                let dataset = job.dataset;
                let size = self.datasets[dataset as usize].catalog.size(id);
                job.window = job.window.saturating_sub(size);
                if let Some(key) = self.object(dataset, id) {
                    self.let_go(key);
                }
            }
        }
    }

    /// Reads on along a job's plans, as far as its window reaches. True if the lock should be let go of
    /// before going on. What cannot be read ahead is read when it is asked for, and said then.
    pub(crate) fn pump(&mut self, serial: u64) -> bool {
        let mut left = DECISIONS;
        while left > 0 {
            let Some(job) = self.jobs.get_mut(&serial) else { return false };
            if !job.request.prefetch {
                return false;
            }
            let Some((epoch, block)) = job.run.next_block() else { return false };
            let book = &self.datasets[job.dataset as usize];
            let first = block.start;
            let ids = job.run.schedule(epoch).map_or(&[][..], |schedule| &schedule.plan().ids()[block]);
            // An earlier slot of the same sample is still to be served, and may need other bytes than this one.
            if ids.iter().any(|&id| !job.run.cache().keeps(id) && job.waits_for(id, (epoch, first))) {
                return false;
            }
            let bytes: u64 = ids.iter().map(|&id| book.catalog.size(id)).sum();
            let (window, whole) = (job.window, book.catalog.bytes());
            let full = window + bytes > self.window(whole) && window > 0;
            if full || self.passing() + bytes > self.reserve() / 8 * 7 {
                return false;
            }
            let (decided, room) = self.decide(serial, true);
            if decided == 0 || !room {
                return false;
            }
            left = left.saturating_sub(decided);
        }
        true
    }

    /// How many bytes a job may read ahead of a dataset of `whole` bytes: its share of half the reserve, but
    /// no more than an eighth of the dataset, so that a window never meets its own tail.
    fn window(&self, whole: u64) -> u64 {
        let share = self.reserve() / 2 / (self.jobs.len().max(1) as u64);
        share.min((whole / 8).max(1 << 20))
    }
}

impl State {
    /// Makes an object for a read that is queued later. `None` without room; an error comes again when it is asked for,
    /// and is told then.
    fn prepare(&mut self, dataset: u32, id: Id, payer: Payer) -> Option<u32> {
        let made = self.pend(dataset, id, payer, None);
        made.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read ahead");
            None
        })
    }

    /// Queues a read that no reader waits for yet, if there is room.
    fn read_ahead(&mut self, dataset: u32, id: Id, payer: Payer) {
        if let Some(key) = self.prepare(dataset, id, payer) {
            self.enqueue(key, false);
        }
    }

    /// Brings over to objects what a job's cache keeps from now on, or no longer.
    pub(crate) fn bring_over(&mut self, dataset: u32, changes: Vec<(Id, bool)>) {
        for (id, kept) in changes {
            self.keep(dataset, id, kept);
        }
    }

    /// Reads what was left to be read when it is asked for; its object is made by `prepare`. False without room.
    pub(crate) fn read_late(
        &mut self,
        serial: u64,
        (epoch, slot, id): (u64, usize, Id),
        prepare: impl FnOnce(&mut Self, Payer) -> Result<Option<u32>>,
    ) -> Result<bool> {
        let Some(job) = self.jobs.get_mut(&serial) else { return Ok(false) };
        let together = job.together.get(&(epoch, slot)).cloned();
        // Where the others of its request went without it, its own is one more.
        let extra = together.as_ref().is_some_and(|slots| slots.is_empty());
        let cause = if extra { Cause::Extra } else { Cause::Planned };
        let payer = Payer { job: serial, epoch: Some(epoch), cause };
        let Some(object) = prepare(self, payer)? else { return Ok(false) };
        let mut objects = vec![object];
        for &other in together.iter().flat_map(|slots| slots.iter()).filter(|&&other| other != slot) {
            objects.extend(self.read_with(payer, epoch, other));
        }
        objects.sort_by_key(|&key| self.objects[key as usize].id);
        self.enqueue_together(serial, epoch, objects, true);
        if let Some(job) = self.jobs.get_mut(&serial) {
            job.together.remove(&(epoch, slot));
        }
        self.wait(serial, epoch, slot, id);
        Ok(true)
    }

    /// Makes an object for a slot that is one request with another that is read now. `None` if it is not to be read, or
    /// there is no room: then it is read when it is asked for, in one more request.
    fn read_with(&mut self, payer: Payer, epoch: u64, slot: usize) -> Option<u32> {
        let job = self.jobs.get(&payer.job)?;
        let (dataset, schedule) = (job.dataset, job.run.schedule(epoch)?);
        let (id, stage) = (schedule.id(slot), schedule.stage(slot));
        if stage != Stage::Unread {
            return None;
        }
        let object = self.prepare(dataset, id, payer);
        let job = self.jobs.get_mut(&payer.job)?;
        if object.is_some() {
            job.together.remove(&(epoch, slot));
            self.wait(payer.job, epoch, slot, id);
        } else {
            job.together.insert((epoch, slot), Arc::new([]));
        }
        object
    }
}
