//! `belady`, the offline optimum (Belady 1966), with bypass: a bound to compare with.
//!
//! It knows every plan of the run. Whoever is due farthest in the future leaves; a sample that is due farther
//! than all residents, or never, is not admitted. For equal sizes nothing hits more; for unequal ones it only
//! bounds what a policy could do that thinks of one sample at a time.
//!
//! A resident's next use is known when it is asked for and does not change until it is asked for again, so
//! it is looked up once a slot. That holds only where all plans are known beforehand: a simulator's [`Due`]
//! is a [`Future`](super::Future).

use std::cmp::Reverse;
use std::sync::Arc;

use super::heap::Heap;
use super::{Due, Entry, Policy, Setup, Sizes, Verdict};
use crate::Id;

pub(super) const ENTRY: Entry = Entry {
    name: "belady",
    summary: "evicts the sample due farthest in the future, knowing all plans: a bound to compare with",
    bounded: true,
    offline: true,
    parameters: &[],
    build: |setup| Box::new(Belady::new(setup)),
};

const ABSENT: u32 = u32::MAX;
const NEVER: u64 = u64::MAX;

struct Belady {
    capacity: u64,
    used: u64,
    sizes: Arc<dyn Sizes>,
    /// By the slot in which each is due next, the farthest on top.
    heap: Heap<Reverse<u64>>,
    places: Vec<u32>,
    clock: u64,
}

impl Belady {
    fn new(setup: Setup) -> Self {
        let places = vec![ABSENT; setup.sizes.len()];
        Self { capacity: setup.capacity, used: 0, sizes: setup.sizes, heap: Heap::new(), places, clock: 0 }
    }

    fn evict(&mut self) -> Option<(Reverse<u64>, Id)> {
        let (due, id) = self.heap.pop(&mut self.places)?;
        self.places[id as usize] = ABSENT;
        self.used -= self.sizes.size(id);
        Some((due, id))
    }

    fn admit(&mut self, due: Reverse<u64>, id: Id) {
        self.heap.push(due, id, &mut self.places);
        self.used += self.sizes.size(id);
    }
}

impl Policy for Belady {
    fn access(&mut self, id: Id, due: &dyn Due, evicted: &mut Vec<Id>) -> Verdict {
        self.clock += 1;
        let next = Reverse(due.next_due(id).map_or(NEVER, |slots| self.clock.saturating_add(slots)));
        if self.contains(id) {
            self.heap.update(next, id, &mut self.places);
            return Verdict::Hit;
        }
        let size = self.sizes.size(id);
        let Some(others) = self.capacity.checked_sub(size) else { return Verdict::Bypassed };
        let mut left = Vec::new();
        while self.used > others {
            match self.heap.first() {
                // Farther in the future than the incoming one is smaller as a key.
                Some((farthest, _)) if farthest < next => left.extend(self.evict()),
                _ => {
                    left.into_iter().for_each(|(due, id)| self.admit(due, id));
                    return Verdict::Bypassed;
                }
            }
        }
        evicted.extend(left.into_iter().map(|(_, id)| id));
        self.admit(next, id);
        Verdict::Admitted
    }

    fn contains(&self, id: Id) -> bool {
        self.places.get(id as usize).is_some_and(|&place| place != ABSENT)
    }

    fn used(&self) -> u64 {
        self.used
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn resize(&mut self, capacity: u64, evicted: &mut Vec<Id>) {
        self.capacity = capacity;
        while self.used > capacity
            && let Some((_, id)) = self.evict()
        {
            evicted.push(id);
        }
    }

    fn residents(&self, each: &mut dyn FnMut(Id)) {
        self.heap.iter().for_each(|(_, id)| each(id));
    }
}
