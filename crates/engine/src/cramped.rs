//! Readers that wait for memory, and whether that can help.
//!
//! A reader asks for one thing at a time, so what it leases it still leases when its wait is over. Where that alone leaves
//! no room for a batch, the reader hears so at once.

use std::collections::HashSet;

use hotset_core::Id;

use crate::allocator::GRANULE;
use crate::gather::Wanted;
use crate::state::State;

impl State {
    /// Whether a batch will find no room, whatever others let go of, because of what its own reader leases.
    pub(crate) fn cornered(&self, session: u64, wanted: &Wanted) -> bool {
        let (Some(book), Some(job)) = (self.sessions.get(&session), self.jobs.get(&wanted.job)) else {
            return false;
        };
        let leases = book.leases.iter().filter_map(|lease| self.leases.get(lease));
        let own: HashSet<u32> = leases.flat_map(|(_, objects)| objects).copied().collect();
        if own.is_empty() {
            return false;
        }
        let lasting = |key: &u32| {
            let object = self.objects.get(*key as usize)?;
            let counts = object.keepers == 0 && !self.arena.is_spill(object.block.segment);
            counts.then(|| u64::from(object.block.granules) * GRANULE)
        };
        let leased: u64 = own.iter().filter_map(lasting).sum();
        let absent = |&id: &Id| self.object(job.dataset, id).is_none();
        let missing: HashSet<Id> = wanted.samples.iter().map(|&(_, id)| id).filter(absent).collect();
        let catalog = &self.datasets[job.dataset as usize].catalog;
        let need: u64 = missing.iter().map(|&id| catalog.size(id)).sum();
        let kept = self.arena.occupied() - self.passing();
        if kept + leased + need > self.arena.limit() {
            return true;
        }
        // Who waits for memory lets go of nothing either, and without others nobody does, once no read is under way. A
        // packer lets go of what it has copied.
        let mut others = self.sessions.iter().filter(|&(other, book)| *other != session && book.reads);
        others.all(|(other, _)| self.cramped.contains(other))
            && self.reading == 0
            && self.jobs.values().all(|job| job.press.is_none())
    }
}
