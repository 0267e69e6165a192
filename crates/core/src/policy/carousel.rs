//! `carousel`, the window of the strategy of that name.
//!
//! A sample is admitted while there is room and evicted when the plan says so: the strategy knows the window
//! to the sample, so there is nothing to decide. With another strategy, whose plans evict nothing, it is
//! `minio`.

use super::kept::{Kept, Order};
use super::shelf::Shelf;
use super::{Due, Entry, Setup};
use crate::Id;

pub(super) const ENTRY: Entry = Entry {
    name: "carousel",
    summary: "admits until full; samples leave when the plan of `carousel` says so",
    bounded: true,
    offline: false,
    plain: false,
    shared: false,
    parameters: &[],
    build: |setup| Box::new(carousel(setup)),
};

/// Residents by place: the last one leaves a cache that shrinks first.
struct Carousel(Shelf);

fn carousel(setup: Setup) -> Kept<Carousel> {
    let order = Carousel(Shelf::new(setup.sizes.len()));
    Kept::new("carousel", setup, order)
}

impl Order for Carousel {
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

    fn follows_plan(&self) -> bool {
        true
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

    #[test]
    fn no_sample_leaves_unless_the_plan_says_so() {
        let mut policy = carousel(Setup::new(20, Arc::new(vec![10; 4]), 0));
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
