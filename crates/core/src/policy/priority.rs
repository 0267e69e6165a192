//! Residents by their last reported score: what `app`, `pq` and `pq_lfu` share.

use std::sync::Arc;

use super::heap::Heap;
use super::{Due, Policy, Setup, Sizes, Verdict};
use crate::Id;
use crate::importance::Score;

const ABSENT: u32 = u32::MAX;
/// The key of a score that is not known: above all others.
const UNKNOWN: u32 = u32::MAX;

/// See `app`, `pq` and `pq_lfu`.
pub(super) struct Priority {
    capacity: u64,
    used: u64,
    sizes: Arc<dyn Sizes>,
    score: Score,
    /// Whether newcomers must merit their place.
    selective: bool,
    /// Whether ties are broken by access counts.
    counting: bool,
    heap: Heap<(u32, u32)>,
    places: Vec<u32>,
    /// The ghost table: score and access count of every id.
    scores: Vec<u32>,
    counts: Vec<u32>,
}

impl Priority {
    pub(super) fn new(setup: Setup, score: Score, selective: bool, counting: bool) -> Self {
        let samples = setup.sizes.len();
        Self {
            capacity: setup.capacity,
            used: 0,
            sizes: setup.sizes,
            score,
            selective,
            counting,
            heap: Heap::new(),
            places: vec![ABSENT; samples],
            scores: vec![UNKNOWN; samples],
            counts: vec![0; samples],
        }
    }

    fn key(&self, id: Id) -> (u32, u32) {
        (self.scores[id as usize], if self.counting { self.counts[id as usize] } else { 0 })
    }

    fn take_lowest(&mut self) -> Option<Id> {
        let (_, id) = self.heap.pop(&mut self.places)?;
        self.places[id as usize] = ABSENT;
        self.used -= self.sizes.size(id);
        Some(id)
    }

    fn insert(&mut self, id: Id) {
        self.heap.push(self.key(id), id, &mut self.places);
        self.used += self.sizes.size(id);
    }

    /// Whether the lowest resident may leave for one of score `own`.
    fn gives_way(&self, own: u32) -> bool {
        !self.selective || self.heap.first().is_some_and(|((lowest, _), _)| own != UNKNOWN && own >= lowest)
    }
}

impl Policy for Priority {
    fn access(&mut self, id: Id, _due: &dyn Due, evicted: &mut Vec<Id>) -> Verdict {
        let count = &mut self.counts[id as usize];
        *count = count.saturating_add(1);
        if self.contains(id) {
            self.heap.update(self.key(id), id, &mut self.places);
            return Verdict::Hit;
        }
        let size = self.sizes.size(id);
        let Some(others) = self.capacity.checked_sub(size) else { return Verdict::Bypassed };
        let mut left = Vec::new();
        while self.used > others {
            if !self.gives_way(self.scores[id as usize]) {
                left.into_iter().for_each(|id| self.insert(id));
                return Verdict::Bypassed;
            }
            left.extend(self.take_lowest());
        }
        evicted.append(&mut left);
        self.insert(id);
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
            && let Some(id) = self.take_lowest()
        {
            evicted.push(id);
        }
    }

    fn residents(&self, each: &mut dyn FnMut(Id)) {
        self.heap.iter().for_each(|(_, id)| each(id));
    }

    fn takes(&self) -> Option<Score> {
        Some(self.score)
    }

    fn scored(&mut self, scores: &[(Id, f32)]) {
        for &(id, score) in scores {
            let Some(known) = self.scores.get_mut(id as usize) else { continue };
            *known = (score + 0.0).to_bits().min(UNKNOWN - 1);
            if self.contains(id) {
                self.heap.update(self.key(id), id, &mut self.places);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{NoDue, find};

    fn policy(name: &str) -> Box<dyn Policy> {
        (find(name).unwrap().build)(Setup::new(30, Arc::new(vec![10; 8]), 0))
    }

    fn ask(policy: &mut dyn Policy, ids: &[Id]) -> Vec<Id> {
        let mut evicted = Vec::new();
        ids.iter().for_each(|&id| {
            policy.access(id, &NoDue, &mut evicted);
        });
        evicted
    }

    #[test]
    fn app_admits_only_the_known_and_not_lower_and_keeps_the_never_scored() {
        let mut app = policy("app");
        ask(&mut *app, &[0, 1, 2]);
        assert!(ask(&mut *app, &[3]).is_empty(), "3 is not known");
        app.scored(&[(3, 2.0), (4, 1.0)]);
        assert!(ask(&mut *app, &[3]).is_empty(), "nobody resident was scored");
        app.scored(&[(1, 2.0), (2, 1.5)]);
        assert!(ask(&mut *app, &[4]).is_empty(), "1.0 is below 1.5");
        assert_eq!(ask(&mut *app, &[3]), [2]);
        app.scored(&[(5, 2.0)]);
        assert_eq!(ask(&mut *app, &[5]), [1], "equal scores: the lowest id leaves");
    }

    #[test]
    fn pq_admits_everybody_and_the_lowest_score_leaves() {
        let mut pq = policy("pq");
        ask(&mut *pq, &[0, 1, 2]);
        pq.scored(&[(0, 3.0), (1, 1.0), (2, 2.0)]);
        assert_eq!(ask(&mut *pq, &[3]), [1]);
    }

    #[test]
    fn pq_lfu_breaks_ties_by_how_often_a_sample_was_asked_for() {
        for (name, leaves) in [("pq", 0), ("pq_lfu", 1)] {
            let mut policy = policy(name);
            ask(&mut *policy, &[0, 1, 2, 0, 2]);
            policy.scored(&[(0, 1.0), (1, 1.0), (2, 1.0)]);
            assert_eq!(ask(&mut *policy, &[3]), [leaves], "{name}");
        }
    }
}
