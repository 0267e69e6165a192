//! `random`, anybody leaves: the plainest of caches, and a fair floor for the others.
//!
//! Whoever is asked for is admitted, and residents drawn from the seed leave for it.
//!
//! Capacity is bytes; a sample larger than the capacity is bypassed.

use std::sync::Arc;

use super::{Due, Entry, Policy, Setup, Sizes, Verdict};
use crate::{Id, Rng};

pub(super) const ENTRY: Entry = Entry {
    name: "random",
    summary: "evicts anybody",
    bounded: true,
    offline: false,
    parameters: &[],
    build: |setup| Box::new(Random::new(setup)),
};

const ABSENT: u32 = u32::MAX;

struct Random {
    capacity: u64,
    used: u64,
    sizes: Arc<dyn Sizes>,
    residents: Vec<Id>,
    places: Vec<u32>,
    rng: Rng,
}

impl Random {
    fn new(setup: Setup) -> Self {
        let (places, rng) = (vec![ABSENT; setup.sizes.len()], Rng::new(setup.seed, 0, "random"));
        Self { capacity: setup.capacity, used: 0, sizes: setup.sizes, residents: Vec::new(), places, rng }
    }

    fn shrink_to(&mut self, bytes: u64, evicted: &mut Vec<Id>) {
        while self.used > bytes {
            let place = self.rng.below(self.residents.len() as u64) as usize;
            let id = self.residents.swap_remove(place);
            if let Some(&moved) = self.residents.get(place) {
                self.places[moved as usize] = place as u32;
            }
            self.places[id as usize] = ABSENT;
            self.used -= self.sizes.size(id);
            evicted.push(id);
        }
    }
}

impl Policy for Random {
    fn access(&mut self, id: Id, _due: &dyn Due, evicted: &mut Vec<Id>) -> Verdict {
        if self.contains(id) {
            return Verdict::Hit;
        }
        let size = self.sizes.size(id);
        let Some(others) = self.capacity.checked_sub(size) else { return Verdict::Bypassed };
        self.shrink_to(others, evicted);
        self.places[id as usize] = self.residents.len() as u32;
        self.residents.push(id);
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
        self.residents.iter().copied().for_each(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::NoDue;

    #[test]
    fn everybody_leaves_as_often_as_anybody() {
        let mut left = [0u32; 4];
        for seed in 0..4_000 {
            let mut policy = Random::new(Setup::new(40, Arc::new(vec![10; 5]), seed));
            let mut evicted = Vec::new();
            for id in 0..5 {
                policy.access(id, &NoDue, &mut evicted);
            }
            left[evicted[0] as usize] += 1;
        }
        assert!(left.iter().all(|count| count.abs_diff(1_000) < 140), "{left:?}");
    }
}
