//! `carousel`, the window of the strategy of that name.
//!
//! Whoever is asked for boards while there is room, and leaves when the plan says so: the strategy knows the
//! window to the sample, so there is nothing to decide. With another strategy, whose plans let nobody leave,
//! it is `minio`.

use std::sync::Arc;

use super::{Due, Entry, Policy, Setup, Sizes, Verdict};
use crate::Id;

pub(super) const ENTRY: Entry = Entry {
    name: "carousel",
    summary: "admits until full; samples leave when the plan of `carousel` says so",
    bounded: true,
    offline: false,
    parameters: &[],
    build: |setup| Box::new(Carousel::new(setup)),
};

const ABSENT: u32 = u32::MAX;

struct Carousel {
    capacity: u64,
    used: u64,
    sizes: Arc<dyn Sizes>,
    residents: Vec<Id>,
    places: Vec<u32>,
}

impl Carousel {
    fn new(setup: Setup) -> Self {
        let places = vec![ABSENT; setup.sizes.len()];
        Self { capacity: setup.capacity, used: 0, sizes: setup.sizes, residents: Vec::new(), places }
    }

    fn remove(&mut self, id: Id, evicted: &mut Vec<Id>) {
        let place = std::mem::replace(&mut self.places[id as usize], ABSENT) as usize;
        self.residents.swap_remove(place);
        if let Some(&moved) = self.residents.get(place) {
            self.places[moved as usize] = place as u32;
        }
        self.used -= self.sizes.size(id);
        evicted.push(id);
    }
}

impl Policy for Carousel {
    fn access(&mut self, id: Id, _due: &dyn Due, _evicted: &mut Vec<Id>) -> Verdict {
        if self.contains(id) {
            return Verdict::Hit;
        }
        let size = self.sizes.size(id);
        if size > self.capacity - self.used {
            return Verdict::Bypassed;
        }
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
        while self.used > capacity
            && let Some(&id) = self.residents.last()
        {
            self.remove(id, evicted);
        }
    }

    fn residents(&self, each: &mut dyn FnMut(Id)) {
        self.residents.iter().copied().for_each(each);
    }

    fn leave(&mut self, id: Id, evicted: &mut Vec<Id>) {
        if self.contains(id) {
            self.remove(id, evicted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::NoDue;

    #[test]
    fn nobody_leaves_unless_the_plan_says_so() {
        let mut policy = Carousel::new(Setup::new(20, Arc::new(vec![10; 4]), 0));
        let mut evicted = Vec::new();
        for (id, verdict) in
            [(0, Verdict::Admitted), (1, Verdict::Admitted), (2, Verdict::Bypassed), (0, Verdict::Hit)]
        {
            assert_eq!(policy.access(id, &NoDue, &mut evicted), verdict);
        }
        policy.leave(3, &mut evicted);
        policy.leave(0, &mut evicted);
        assert_eq!(
            (evicted.as_slice(), policy.access(2, &NoDue, &mut Vec::new())),
            (&[0][..], Verdict::Admitted)
        );
    }
}
