//! `random`, random eviction: the simplest of caches, and a fair floor for the others.
//!
//! Every requested sample is admitted, and residents drawn from the seed are evicted to make room.
//!
//! Capacity is bytes; a sample larger than the capacity is bypassed.

use super::kept::{Kept, Order};
use super::shelf::Shelf;
use super::{Entry, Setup};
use crate::saved::{Reader, Writer};
use crate::{Id, Rng};

pub(super) const ENTRY: Entry = Entry {
    name: "random",
    summary: "evicts a random resident",
    bounded: true,
    offline: false,
    plain: true,
    shared: true,
    parameters: &[],
    build: |setup| Box::new(random(setup)),
};

struct Random {
    residents: Shelf,
    rng: Rng,
}

fn random(setup: Setup) -> Kept<Random> {
    let rng = Rng::new(setup.seed, 0, "random");
    let residents = Shelf::new(setup.sizes.len());
    Kept::new("random", setup, Random { residents, rng })
}

impl Order for Random {
    fn insert(&mut self, id: Id) {
        self.residents.push(id);
    }

    fn pop(&mut self) -> Option<Id> {
        if self.residents.len() == 0 {
            return None;
        }
        let place = self.rng.below(self.residents.len() as u64) as usize;
        Some(self.residents.take(place))
    }

    fn remove(&mut self, id: Id) {
        self.residents.remove(id);
    }

    /// By place, since a draw is of places.
    fn each(&self, each: &mut dyn FnMut(Id)) {
        self.residents.iter().for_each(each);
    }

    fn save(&self, out: &mut Writer) {
        out.number(self.rng.drawn());
    }

    fn restore(&mut self, residents: &[Id], saved: &mut Reader<'_>) -> Option<()> {
        residents.iter().for_each(|&id| self.residents.push(id));
        self.rng.skip(saved.number()?);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::policy::{NoDue, Policy};

    #[test]
    fn every_sample_leaves_as_often_as_any_other() {
        let mut left = [0u32; 4];
        for seed in 0..4_000 {
            let mut policy = random(Setup::new(40, Arc::new(vec![10; 5]), seed));
            let mut evicted = Vec::new();
            for id in 0..5 {
                policy.access(id, &NoDue, &mut evicted);
            }
            left[evicted[0] as usize] += 1;
        }
        assert!(left.iter().all(|count| count.abs_diff(1_000) < 140), "{left:?}");
    }
}
