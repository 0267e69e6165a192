//! Where plans meet bytes: deciding slots in plan order, and reading ahead along them.
//!
//! Two layers meet here. The *logical* layer is each job's policy, asked once a slot in plan order. The
//! *bytes* are objects in the arena. What a policy evicts lets go of its object at once. A logical miss is
//! always one storage read: bytes of the same job that happen to linger (still leased, or waiting for an
//! earlier slot) are not reused for it, because then what is counted would depend on timing. Bytes that
//! another job keeps, or is reading, are shared.

use hotset_core::policy::Verdict;
use hotset_core::schedule::State as Slot;
use hotset_core::{Id, Result};

use crate::state::{Payer, State};

/// Slots decided in one hold of the lock.
const DECISIONS: usize = 4096;

impl State {
    /// Decides a job's next slot, and queues its read if `fetch`. False when there is nothing to decide, or
    /// when its read found no room: then the slot is decided all the same, and is read when it is asked for.
    pub(crate) fn decide(&mut self, serial: u64, fetch: bool) -> Result<bool> {
        let (mut loads, mut evicted) = (Vec::new(), Vec::new());
        let Some(job) = self.jobs.get_mut(&serial) else { return Ok(false) };
        let Some(step) = job.decide(&mut loads, &mut evicted) else { return Ok(false) };
        let (dataset, id) = (job.dataset, step.id);
        let waits = job.waits_for(id);
        self.reconcile(serial, &evicted);
        for package in loads {
            self.load(serial, step.epoch, package, fetch);
        }
        let present = self.object(dataset, id);
        // See the module's head: who else keeps or reads it shares it, what lingers of our own does not.
        let shared = present.is_some_and(|key| {
            let others = self.pending.get(&key).is_some_and(|pending| pending.payer.job != serial);
            self.objects[key as usize].keepers > 0 || (others && !waits)
        });
        let hit = match step.verdict {
            // An earlier slot of the same sample may be decided and not read yet.
            Verdict::Hit | Verdict::Packed => present.is_some() || waits,
            Verdict::Admitted | Verdict::Bypassed => shared,
        };
        self.reconcile(serial, &[id]);
        let mut room = true;
        if !hit && fetch {
            let payer = Payer { job: serial, epoch: Some(step.epoch), other: false };
            room = self.read(dataset, id, payer, false, None)?.is_some();
        }
        let outcome = match step.verdict {
            Verdict::Packed if hit => Slot::Packed,
            _ if hit => Slot::Hit,
            Verdict::Hit | Verdict::Packed => Slot::Refill,
            Verdict::Admitted | Verdict::Bypassed if fetch && room => Slot::Single,
            Verdict::Admitted | Verdict::Bypassed => Slot::Unread,
        };
        let size = self.datasets[dataset as usize].catalog.size(id);
        if outcome.waits() {
            self.hold(dataset, id);
        }
        if let Some(job) = self.jobs.get_mut(&serial) {
            job.window += if outcome.waits() { size } else { 0 };
            if let Some(schedule) = job.schedules.get_mut(&step.epoch) {
                schedule.decide(step.slot, outcome);
            }
        }
        Ok(room)
    }

    /// Brings over to objects whom a job's policy keeps now, of those that may have come or gone.
    pub(crate) fn reconcile(&mut self, serial: u64, ids: &[Id]) {
        for &id in ids {
            let Some(job) = self.jobs.get_mut(&serial) else { return };
            let (dataset, now) = (job.dataset, job.policy.contains(id));
            if now == job.kept.contains(id) {
                continue;
            }
            if now {
                job.kept.insert(id);
                job.residents += 1;
            } else {
                job.kept.remove(id);
                job.residents -= 1;
            }
            self.keep(dataset, id, now);
        }
    }

    /// Lets go of slots that were decided and will not be served.
    pub(crate) fn abandon(&mut self, serial: u64, epoch: u64, count: usize, decided: &[(usize, Slot)]) {
        let Some(job) = self.jobs.get_mut(&serial) else { return };
        // What a restarted server is not asked for was served by the one before.
        if !job.schedules.get(&epoch).is_some_and(|schedule| schedule.is_restored()) {
            job.counters(Some(epoch)).abandoned += count as u64;
        }
        let dataset = job.dataset;
        let Some(schedule) = job.schedules.get(&epoch) else { return };
        let ids: Vec<Id> = decided.iter().map(|&(slot, _)| schedule.id(slot)).collect();
        for id in ids {
            let size = self.datasets[dataset as usize].catalog.size(id);
            if let Some(job) = self.jobs.get_mut(&serial) {
                job.window = job.window.saturating_sub(size);
            }
            if let Some(key) = self.object(dataset, id) {
                self.let_go(key);
            }
        }
    }

    /// Reads on along a job's plans, as far as its window reaches. True if the lock should be let go of
    /// before going on. What cannot be read ahead is read when it is asked for, and said then.
    pub(crate) fn pump(&mut self, serial: u64) -> bool {
        for _ in 0..DECISIONS {
            let Some(job) = self.jobs.get_mut(&serial) else { return false };
            if !job.request.prefetch {
                return false;
            }
            let Some((_, _, id)) = job.peek() else { return false };
            let (dataset, window) = (job.dataset, job.window);
            // An earlier slot of the same sample is still to be served, and may need other bytes than this one.
            if job.waits_for(id) && !job.policy.contains(id) {
                return false;
            }
            let book = &self.datasets[dataset as usize];
            let (size, whole) = (book.catalog.size(id), book.catalog.bytes());
            let full = window + size > self.window(whole) && window > 0;
            if full || self.passing() + size > self.reserve() / 8 * 7 {
                return false;
            }
            match self.decide(serial, true) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) => {
                    tracing::warn!(%error, "cannot read ahead");
                    return false;
                }
            }
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
