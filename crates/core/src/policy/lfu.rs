//! `lfu`, least frequently used.
//!
//! A sample's count is 1 when it is admitted, grows with each hit, and is forgotten on eviction. The lowest
//! count is evicted first, among equals the least recently used; a requested sample is always admitted. In
//! uniform epochs over equal sizes, samples that were hit once stay, so hits grow from epoch to epoch: at a
//! fifth, 10 % in the tenth, 14 % in the twentieth, 18 % in the ninetieth. iCache's iLFU is `iis` with this
//! policy, ImPACT's is `hybrid` with it.
//!
//! Differs from the textbook: capacity is bytes, not items; a sample larger than the capacity is bypassed.

use super::heap::Heap;
use super::kept::{Kept, Order};
use super::{Due, Entry, Setup};
use crate::Id;
use crate::saved::{Reader, Writer};

pub(super) const ENTRY: Entry = Entry {
    name: "lfu",
    summary: "evicts the sample asked for least often since it came",
    bounded: true,
    offline: false,
    plain: true,
    shared: true,
    parameters: &[],
    build: |setup| Box::new(lfu(setup)),
};

struct Lfu {
    /// By count, then by when each was asked for last.
    heap: Heap<(u32, u64)>,
    places: Vec<u32>,
    clock: u64,
}

fn lfu(setup: Setup) -> Kept<Lfu> {
    let places = vec![0; setup.sizes.len()];
    Kept::new("lfu", setup, Lfu { heap: Heap::new(), places, clock: 0 })
}

impl Lfu {
    /// Residents with their counts, the one asked for longest ago first.
    fn by_age(&self) -> Vec<(u32, Id)> {
        let mut residents: Vec<_> = self.heap.iter().collect();
        residents.sort_unstable_by_key(|((_, asked), _)| *asked);
        residents.into_iter().map(|((count, _), id)| (count, id)).collect()
    }
}

impl Order for Lfu {
    fn asked(&mut self, _id: Id, _due: &dyn Due) {
        self.clock += 1;
    }

    fn touch(&mut self, id: Id) {
        let (count, _) = self.heap.key(id, &self.places);
        self.heap.update((count.saturating_add(1), self.clock), id, &mut self.places);
    }

    fn insert(&mut self, id: Id) {
        self.heap.push((1, self.clock), id, &mut self.places);
    }

    fn pop(&mut self) -> Option<Id> {
        self.heap.pop(&mut self.places).map(|(_, id)| id)
    }

    fn remove(&mut self, id: Id) {
        self.heap.remove(id, &mut self.places);
    }

    fn each(&self, each: &mut dyn FnMut(Id)) {
        self.by_age().into_iter().for_each(|(_, id)| each(id));
    }

    fn save(&self, out: &mut Writer) {
        self.by_age().into_iter().for_each(|(count, _)| out.number(count.into()));
    }

    /// The clock begins anew: only the order in which samples were asked for is looked at.
    fn restore(&mut self, residents: &[Id], saved: &mut Reader<'_>) -> Option<()> {
        for &id in residents {
            self.clock += 1;
            let count = saved.number()?.try_into().ok()?;
            self.heap.push((count, self.clock), id, &mut self.places);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::policy::{NoDue, Policy};

    #[test]
    fn the_lowest_count_leaves_and_among_equals_the_oldest() {
        let mut policy = lfu(Setup::new(30, Arc::new(vec![10; 6]), 0));
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
