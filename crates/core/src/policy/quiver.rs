//! `quiver`, the chunks of Quiver (Kumar and Sivathanu, FAST 2020, 4.3), for one job.
//!
//! Samples are admitted as their chunk is walked, and those of the chunk that came first leave once there is no
//! room; but nobody leaves who is still due in this epoch. With the strategy `quiver` an epoch begins on the
//! chunks that are resident, so a job alone reads what does not fit, as it would with `minio`.
//!
//! Differs from the paper: residents leave one by one, in the order they came, so that chunks stay while the
//! allocation has room. Sharing between jobs is not part of it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Due, Entry, Policy, Setup, Sizes, Verdict};
use crate::Id;
use crate::bits::Bits;

pub(super) const ENTRY: Entry = Entry {
    name: "quiver",
    summary: "keeps chunks in the order they came, until they were used (Quiver)",
    bounded: true,
    offline: false,
    parameters: &[],
    build: |setup| Box::new(Quiver::new(setup)),
};

struct Quiver {
    capacity: u64,
    used: u64,
    sizes: Arc<dyn Sizes>,
    queue: VecDeque<Id>,
    resident: Bits,
}

impl Quiver {
    fn new(setup: Setup) -> Self {
        let resident = Bits::new(setup.sizes.len());
        Self { capacity: setup.capacity, used: 0, sizes: setup.sizes, queue: VecDeque::new(), resident }
    }

    fn pop(&mut self, evicted: &mut Vec<Id>) {
        if let Some(id) = self.queue.pop_front() {
            self.resident.remove(id);
            self.used -= self.sizes.size(id);
            evicted.push(id);
        }
    }
}

impl Policy for Quiver {
    fn access(&mut self, id: Id, due: &dyn Due, evicted: &mut Vec<Id>) -> Verdict {
        if self.contains(id) {
            return Verdict::Hit;
        }
        let size = self.sizes.size(id);
        let Some(others) = self.capacity.checked_sub(size) else { return Verdict::Bypassed };
        // Who must go, and whether all of them are done with this epoch.
        let (mut left, mut going) = (self.used, 0);
        while left > others {
            match self.queue.get(going) {
                Some(&oldest) if !due.due_in_epoch(oldest) => left -= self.sizes.size(oldest),
                _ => return Verdict::Bypassed,
            }
            going += 1;
        }
        (0..going).for_each(|_| self.pop(evicted));
        self.queue.push_back(id);
        self.resident.insert(id);
        self.used += size;
        Verdict::Admitted
    }

    fn contains(&self, id: Id) -> bool {
        self.resident.contains(id)
    }

    fn used(&self) -> u64 {
        self.used
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn resize(&mut self, capacity: u64, evicted: &mut Vec<Id>) {
        self.capacity = capacity;
        while self.used > capacity {
            self.pop(evicted);
        }
    }

    fn residents(&self, each: &mut dyn FnMut(Id)) {
        self.queue.iter().copied().for_each(each);
    }
}
