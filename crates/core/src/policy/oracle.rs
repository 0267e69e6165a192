//! `oracle`, the cache that always hits: a bound on what any other could save, not one to build.
//!
//! Every sample is resident from the start whatever the capacity, as if it had been read at no cost the
//! moment before it was requested. Compared with it, a report shows what storage costs at all, and a
//! benchmark how far a policy is from training on local memory.
//!
//! Its residents are the whole dataset, so it stays within its capacity only where that is as large.

use std::sync::Arc;

use super::{Due, Entry, Policy, Setup, Sizes, Verdict, foreign};
use crate::saved::{Reader, Unsealed, Writer};
use crate::{Id, Result};

pub(super) const ENTRY: Entry = Entry {
    name: "oracle",
    summary: "every sample hits, whatever the capacity: a bound to compare with",
    bounded: false,
    offline: false,
    plain: true,
    shared: true,
    parameters: &[],
    build: |setup| Box::new(Oracle::new(setup)),
};

struct Oracle {
    capacity: u64,
    used: u64,
    sizes: Arc<dyn Sizes>,
}

impl Oracle {
    fn new(setup: Setup) -> Self {
        let used =
            (0..setup.sizes.len()).fold(0u64, |sum, id| sum.saturating_add(setup.sizes.size(id as Id)));
        Self { capacity: setup.capacity, used, sizes: setup.sizes }
    }
}

impl Policy for Oracle {
    fn access(&mut self, _id: Id, _due: &dyn Due, _evicted: &mut Vec<Id>) -> Verdict {
        Verdict::Hit
    }

    fn contains(&self, id: Id) -> bool {
        (id as usize) < self.sizes.len()
    }

    fn used(&self) -> u64 {
        self.used
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn resize(&mut self, capacity: u64, _evicted: &mut Vec<Id>) {
        self.capacity = capacity;
    }

    fn residents(&self, each: &mut dyn FnMut(Id)) {
        (0..self.sizes.len()).for_each(|id| each(id as Id));
    }

    /// Whoever owns them, all samples hit.
    fn remove(&mut self, _id: Id) -> bool {
        false
    }

    fn save(&self) -> Unsealed {
        let mut out = Writer::new(self.sizes.len());
        out.number(self.capacity);
        out.unsealed("oracle")
    }

    fn restore(&mut self, saved: &[u8]) -> Result<()> {
        let mut saved = Reader::open(saved, "oracle", self.sizes.len()).ok_or_else(foreign)?;
        self.capacity = saved.number().ok_or_else(foreign)?;
        saved.end().ok_or_else(foreign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::NoDue;

    #[test]
    fn everything_hits_even_in_a_cache_of_nothing() {
        let mut policy = Oracle::new(Setup::new(0, Arc::new(vec![10, 0, 30]), 0));
        let mut evicted = Vec::new();
        assert!((0..3).all(|id| policy.access(id, &NoDue, &mut evicted) == Verdict::Hit));
        assert_eq!((policy.used(), policy.contains(3)), (40, false));
    }
}
