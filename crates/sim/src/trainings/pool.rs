//! One policy over several datasets: a cache that does not know them apart.
//!
//! A server has a cache for each dataset. To compare with what it would be without, the samples of all are numbered one after
//! the other, and each dataset has a policy that asks the one for all. What leaves a dataset because another one was asked for
//! is told when it is asked next.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hotset_core::policy::{Due, Entry, NoDue, Policy, Setup, Sizes, Verdict};
use hotset_core::saved::Unsealed;
use hotset_core::{Error, Id, Result};

/// What all datasets share.
struct Whole {
    policy: Box<dyn Policy>,
    /// The first sample of each dataset.
    firsts: Vec<Id>,
    /// What has left each, and was not told.
    gone: Vec<Vec<Id>>,
}

impl Whole {
    /// Notes what has left.
    fn note(&mut self, left: Vec<Id>) {
        for id in left {
            let at = self.firsts.partition_point(|&first| first <= id) - 1;
            self.gone[at].push(id - self.firsts[at]);
        }
    }
}

/// What a dataset sees of it.
struct Part {
    whole: Arc<Mutex<Whole>>,
    at: usize,
    samples: Id,
}

/// A policy of so many bytes for all of `datasets`, as each of them sees it. It goes by requests alone.
pub(crate) fn pooled(entry: &Entry, capacity: u64, datasets: &[Arc<dyn Sizes>]) -> Vec<Box<dyn Policy>> {
    let (mut sizes, mut firsts) = (Vec::new(), Vec::new());
    for dataset in datasets {
        firsts.push(sizes.len() as Id);
        sizes.extend((0..dataset.len() as Id).map(|id| dataset.size(id)));
    }
    let policy = (entry.build)(Setup::new(capacity, Arc::new(sizes), 0));
    let gone = vec![Vec::new(); datasets.len()];
    let whole = Arc::new(Mutex::new(Whole { policy, firsts, gone }));
    let part = |(at, dataset): (usize, &Arc<dyn Sizes>)| -> Box<dyn Policy> {
        Box::new(Part { whole: Arc::clone(&whole), at, samples: dataset.len() as Id })
    };
    datasets.iter().enumerate().map(part).collect()
}

impl Part {
    fn lock(&self) -> (MutexGuard<'_, Whole>, Id) {
        let whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let first = whole.firsts[self.at];
        (whole, first)
    }
}

impl Policy for Part {
    fn access(&mut self, id: Id, _due: &dyn Due, evicted: &mut Vec<Id>) -> Verdict {
        let (mut whole, first) = self.lock();
        let mut left = Vec::new();
        let verdict = whole.policy.access(first + id, &NoDue, &mut left);
        whole.note(left);
        evicted.append(&mut whole.gone[self.at]);
        verdict
    }

    fn contains(&self, id: Id) -> bool {
        let (whole, first) = self.lock();
        whole.policy.contains(first + id)
    }

    /// The bytes of all datasets' residents.
    fn used(&self) -> u64 {
        self.lock().0.policy.used()
    }

    /// The bytes that residents of all datasets may take.
    fn capacity(&self) -> u64 {
        self.lock().0.policy.capacity()
    }

    fn resize(&mut self, capacity: u64, evicted: &mut Vec<Id>) {
        let (mut whole, _) = self.lock();
        let mut left = Vec::new();
        whole.policy.resize(capacity, &mut left);
        whole.note(left);
        evicted.append(&mut whole.gone[self.at]);
    }

    fn residents(&self, each: &mut dyn FnMut(Id)) {
        let (whole, first) = self.lock();
        let own = first..first + self.samples;
        whole.policy.residents(&mut |id| {
            if own.contains(&id) {
                each(id - first);
            }
        });
    }

    fn remove(&mut self, id: Id) -> bool {
        let (mut whole, first) = self.lock();
        whole.policy.remove(first + id)
    }

    fn save(&self) -> Unsealed {
        Unsealed::nothing()
    }

    fn restore(&mut self, _saved: &[u8]) -> Result<()> {
        Err(Error::internal("a cache of several datasets is not saved"))
    }
}

#[cfg(test)]
mod tests {
    use hotset_core::policy;

    use super::*;

    #[test]
    fn what_one_dataset_asks_for_takes_the_place_of_anothers() {
        let sizes = |samples: usize| -> Arc<dyn Sizes> { Arc::new(vec![10; samples]) };
        let mut parts = pooled(policy::find("lru").unwrap(), 30, &[sizes(3), sizes(4)]);
        let mut evicted = Vec::new();
        for id in [0, 1, 2] {
            parts[0].access(id, &NoDue, &mut evicted);
        }
        assert_eq!(parts[1].access(3, &NoDue, &mut evicted), Verdict::Admitted);
        assert!(evicted.is_empty() && !parts[0].contains(0) && parts[1].contains(3));
        assert_eq!(parts[0].access(1, &NoDue, &mut evicted), Verdict::Hit);
        assert_eq!(evicted, [0], "told when its dataset is asked next");
        let mut kept = Vec::new();
        parts[0].residents(&mut |id| kept.push(id));
        kept.sort_unstable();
        assert_eq!((kept, parts[1].used()), (vec![1, 2], 30));
        assert!(parts[0].remove(1) && !parts[0].remove(3));
        assert!(!parts[0].contains(1) && parts[0].contains(2) && parts[1].contains(3));
    }
}
