//! `minio`, the static cache of CoorDL (Mohan et al., VLDB 2021).
//!
//! Samples are admitted until the cache is full and never leave, so every epoch hits exactly the resident
//! share of the dataset. In uniform epochs over equal sizes the offline optimum hits no more.
//!
//! A sample that does not fit what is left is bypassed, and a later, smaller one may still take the place:
//! with equal sizes exactly `capacity / size` samples stay, with unequal ones less is left empty. When the
//! capacity shrinks, those admitted last leave first.
//!
//! Differs from the paper: capacity is bytes, not items.

use std::sync::Arc;

use super::{Due, Entry, Policy, Setup, Sizes, Verdict};
use crate::Id;

pub(super) const ENTRY: Entry = Entry {
    name: "minio",
    summary: "admits until full and never evicts (CoorDL)",
    bounded: true,
    offline: false,
    parameters: &[],
    build: |setup| Box::new(Minio::new(setup)),
};

struct Minio {
    capacity: u64,
    used: u64,
    sizes: Arc<dyn Sizes>,
    resident: Vec<bool>,
    /// Residents in the order they came, for a capacity that shrinks.
    admitted: Vec<Id>,
}

impl Minio {
    fn new(setup: Setup) -> Self {
        let resident = vec![false; setup.sizes.len()];
        Self { capacity: setup.capacity, used: 0, sizes: setup.sizes, resident, admitted: Vec::new() }
    }
}

impl Policy for Minio {
    fn access(&mut self, id: Id, _due: &dyn Due, _evicted: &mut Vec<Id>) -> Verdict {
        if self.contains(id) {
            return Verdict::Hit;
        }
        let size = self.sizes.size(id);
        if size > self.capacity - self.used {
            return Verdict::Bypassed;
        }
        self.used += size;
        self.resident[id as usize] = true;
        self.admitted.push(id);
        Verdict::Admitted
    }

    fn contains(&self, id: Id) -> bool {
        self.resident.get(id as usize).is_some_and(|&resident| resident)
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
            && let Some(id) = self.admitted.pop()
        {
            self.used -= self.sizes.size(id);
            self.resident[id as usize] = false;
            evicted.push(id);
        }
    }

    /// In the order they were admitted.
    fn residents(&self, each: &mut dyn FnMut(Id)) {
        self.admitted.iter().copied().for_each(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::NoDue;

    fn minio(capacity: u64, sizes: Vec<u64>) -> Minio {
        Minio::new(Setup::new(capacity, Arc::new(sizes), 0))
    }

    fn access_all(policy: &mut Minio, ids: impl IntoIterator<Item = Id>) -> Vec<Verdict> {
        let mut evicted = Vec::new();
        let verdicts = ids.into_iter().map(|id| policy.access(id, &NoDue, &mut evicted)).collect();
        assert!(evicted.is_empty());
        verdicts
    }

    #[test]
    fn equal_sizes_fill_it_to_the_last_whole_sample() {
        let mut policy = minio(1_009, vec![10; 500]);
        access_all(&mut policy, 0..500);
        assert_eq!((policy.admitted.len(), policy.used()), (100, 1_000));
        access_all(&mut policy, (0..500).rev());
        assert_eq!(policy.admitted, Vec::from_iter(0..100));
    }

    #[test]
    fn a_smaller_sample_may_still_take_what_is_left() {
        let mut policy = minio(25, vec![10, 20, 10, 5]);
        let verdicts = access_all(&mut policy, 0..4);
        assert_eq!(
            verdicts,
            [Verdict::Admitted, Verdict::Bypassed, Verdict::Admitted, Verdict::Admitted],
            "20 bytes do not fit beside 10, the next 10 and 5 do"
        );
    }

    #[test]
    fn those_admitted_last_leave_a_shrinking_cache_first() {
        let (mut policy, mut evicted) = (minio(40, vec![10; 6]), Vec::new());
        access_all(&mut policy, [3, 1, 5, 0]);
        policy.resize(25, &mut evicted);
        assert_eq!(evicted, [0, 5]);
        policy.resize(40, &mut evicted);
        assert_eq!(access_all(&mut policy, [3, 2]), [Verdict::Hit, Verdict::Admitted]);
    }
}
