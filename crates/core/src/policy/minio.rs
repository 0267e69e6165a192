//! `minio`, the static cache of CoorDL (Mohan et al., VLDB 2021).
//!
//! Samples are admitted until the cache is full and are never evicted, so every epoch hits exactly the
//! resident share of the dataset. In uniform epochs over equal sizes the offline optimum hits no more.
//!
//! A sample that does not fit into the space left is bypassed, and a later, smaller one may still take it:
//! with equal sizes exactly `capacity / size` samples stay, with unequal ones less space is left empty. When
//! the capacity shrinks, those admitted last are evicted first. (One that another node owns from now on leaves its
//! place in that order to the last.)
//!
//! Differs from the paper: capacity is bytes, not items.

use super::kept::{Kept, Order};
use super::shelf::Shelf;
use super::{Due, Entry, Setup};
use crate::Id;

pub(super) const ENTRY: Entry = Entry {
    name: "minio",
    summary: "admits until full and never evicts (CoorDL)",
    bounded: true,
    offline: false,
    plain: true,
    shared: true,
    parameters: &[],
    build: |setup| Box::new(minio(setup)),
};

/// Residents in the order they came, for a capacity that shrinks.
struct Minio(Shelf);

fn minio(setup: Setup) -> Kept<Minio> {
    let order = Minio(Shelf::new(setup.sizes.len()));
    Kept::new("minio", setup, order)
}

impl Order for Minio {
    fn insert(&mut self, id: Id) {
        self.0.push(id);
    }

    fn pop(&mut self) -> Option<Id> {
        self.0.pop()
    }

    fn remove(&mut self, id: Id) {
        self.0.remove(id);
    }

    fn give_way(&mut self, _id: Id, _due: &dyn Due) -> Option<Id> {
        None
    }

    fn each(&self, each: &mut dyn FnMut(Id)) {
        self.0.iter().for_each(each);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::policy::{NoDue, Policy, Verdict};

    fn of(capacity: u64, sizes: Vec<u64>) -> Kept<Minio> {
        minio(Setup::new(capacity, Arc::new(sizes), 0))
    }

    fn access_all(policy: &mut Kept<Minio>, ids: impl IntoIterator<Item = Id>) -> Vec<Verdict> {
        let mut evicted = Vec::new();
        let verdicts = ids.into_iter().map(|id| policy.access(id, &NoDue, &mut evicted)).collect();
        assert!(evicted.is_empty());
        verdicts
    }

    #[test]
    fn equal_sizes_fill_it_to_the_last_whole_sample() {
        let mut policy = of(1_009, vec![10; 500]);
        access_all(&mut policy, 0..500);
        assert_eq!((policy.order.0.len(), policy.used()), (100, 1_000));
        access_all(&mut policy, (0..500).rev());
        assert!(policy.order.0.iter().eq(0..100));
    }

    #[test]
    fn a_smaller_sample_may_still_take_what_is_left() {
        let mut policy = of(25, vec![10, 20, 10, 5]);
        let verdicts = access_all(&mut policy, 0..4);
        assert_eq!(
            verdicts,
            [Verdict::Admitted, Verdict::Bypassed, Verdict::Admitted, Verdict::Admitted],
            "20 bytes do not fit beside 10, the next 10 and 5 do"
        );
    }

    #[test]
    fn those_admitted_last_leave_a_shrinking_cache_first() {
        let (mut policy, mut evicted) = (of(40, vec![10; 6]), Vec::new());
        access_all(&mut policy, [3, 1, 5, 0]);
        policy.resize(25, &mut evicted);
        assert_eq!(evicted, [0, 5]);
        policy.resize(40, &mut evicted);
        assert_eq!(access_all(&mut policy, [3, 2]), [Verdict::Hit, Verdict::Admitted]);
    }
}
