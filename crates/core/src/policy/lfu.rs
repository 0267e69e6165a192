//! `lfu`, least frequently used.
//!
//! A sample's count is 1 when it is admitted, grows with each hit, and is forgotten when it leaves. The lowest
//! count leaves first, among equals the one asked for longest ago; whoever is asked for is always admitted. In
//! uniform epochs over equal sizes those that were hit once stay, so its hits grow from epoch to epoch: at a
//! fifth 10 % in the tenth, 14 % in the twentieth, 18 % in the ninetieth. iCache's iLFU is `iis` with it,
//! ImPACT's is `hybrid` with it.
//!
//! Differs from the textbook: capacity is bytes, not items; a sample larger than the capacity is bypassed.

use std::sync::Arc;

use super::heap::Heap;
use super::{Due, Entry, Policy, Setup, Sizes, Verdict};
use crate::Id;

pub(super) const ENTRY: Entry = Entry {
    name: "lfu",
    summary: "evicts the sample asked for least often since it came",
    bounded: true,
    offline: false,
    parameters: &[],
    build: |setup| Box::new(Lfu::new(setup)),
};

const ABSENT: u32 = u32::MAX;

struct Lfu {
    capacity: u64,
    used: u64,
    sizes: Arc<dyn Sizes>,
    /// By count, then by when each was asked for last.
    heap: Heap<(u32, u64)>,
    places: Vec<u32>,
    clock: u64,
}

impl Lfu {
    fn new(setup: Setup) -> Self {
        let places = vec![ABSENT; setup.sizes.len()];
        Self { capacity: setup.capacity, used: 0, sizes: setup.sizes, heap: Heap::new(), places, clock: 0 }
    }

    fn shrink_to(&mut self, bytes: u64, evicted: &mut Vec<Id>) {
        while self.used > bytes
            && let Some((_, id)) = self.heap.pop(&mut self.places)
        {
            self.places[id as usize] = ABSENT;
            self.used -= self.sizes.size(id);
            evicted.push(id);
        }
    }
}

impl Policy for Lfu {
    fn access(&mut self, id: Id, _due: &dyn Due, evicted: &mut Vec<Id>) -> Verdict {
        self.clock += 1;
        if self.contains(id) {
            let (count, _) = self.heap.key(id, &self.places);
            self.heap.update((count.saturating_add(1), self.clock), id, &mut self.places);
            return Verdict::Hit;
        }
        let size = self.sizes.size(id);
        let Some(others) = self.capacity.checked_sub(size) else { return Verdict::Bypassed };
        self.shrink_to(others, evicted);
        self.heap.push((1, self.clock), id, &mut self.places);
        self.used += size;
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
        self.shrink_to(capacity, evicted);
    }

    fn residents(&self, each: &mut dyn FnMut(Id)) {
        self.heap.iter().for_each(|(_, id)| each(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::NoDue;

    #[test]
    fn the_lowest_count_leaves_and_among_equals_the_oldest() {
        let mut policy = Lfu::new(Setup::new(30, Arc::new(vec![10; 6]), 0));
        let mut evicted = Vec::new();
        for id in [0, 1, 2, 0, 2, 3, 4] {
            policy.access(id, &NoDue, &mut evicted);
        }
        assert_eq!(evicted, [1, 3], "1 has the lowest count, then 3 has");
        for id in [4, 4, 5] {
            policy.access(id, &NoDue, &mut evicted);
        }
        assert_eq!(evicted, [1, 3, 0], "0 and 2 are equal, 0 was asked for longer ago");
    }
}
