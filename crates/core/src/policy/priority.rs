//! Residents by their last reported score: what `app`, `pq` and `pq_lfu` share.

use super::heap::Heap;
use super::kept::{Kept, Order};
use super::{Due, Setup};
use crate::Id;
use crate::importance::Score;
use crate::saved::{Reader, Writer};

/// The key of a score that is not known: above all others.
const UNKNOWN: u32 = u32::MAX;

/// See `app`, `pq` and `pq_lfu`.
pub(super) struct Priority {
    score: Score,
    /// Whether newcomers must merit their place.
    selective: bool,
    heap: Heap<(u32, u32)>,
    places: Vec<u32>,
    /// The ghost table: the score of every id, and where ties are broken by it how often it was asked for.
    scores: Vec<u32>,
    counts: Option<Vec<u32>>,
}

impl Priority {
    pub(super) fn policy(
        name: &'static str,
        setup: Setup,
        score: Score,
        selective: bool,
        counting: bool,
    ) -> Kept<Self> {
        let samples = setup.sizes.len();
        let order = Self {
            score,
            selective,
            heap: Heap::new(),
            places: vec![0; samples],
            scores: vec![UNKNOWN; samples],
            counts: counting.then(|| vec![0; samples]),
        };
        Kept::new(name, setup, order)
    }

    fn key(&self, id: Id) -> (u32, u32) {
        (self.scores[id as usize], self.counts.as_ref().map_or(0, |counts| counts[id as usize]))
    }
}

impl Order for Priority {
    fn asked(&mut self, id: Id, _due: &dyn Due) {
        if let Some(counts) = &mut self.counts {
            counts[id as usize] = counts[id as usize].saturating_add(1);
        }
    }

    fn touch(&mut self, id: Id) {
        self.heap.update(self.key(id), id, &mut self.places);
    }

    fn insert(&mut self, id: Id) {
        self.heap.push(self.key(id), id, &mut self.places);
    }

    fn pop(&mut self) -> Option<Id> {
        self.heap.pop(&mut self.places).map(|(_, id)| id)
    }

    fn remove(&mut self, id: Id) {
        self.heap.remove(id, &mut self.places);
    }

    fn give_way(&mut self, id: Id, _due: &dyn Due) -> Option<Id> {
        let own = self.scores[id as usize];
        let ((lowest, _), _) = self.heap.first()?;
        let merits = !self.selective || own != UNKNOWN && own >= lowest;
        merits.then(|| self.pop()).flatten()
    }

    fn takes(&self) -> Option<Score> {
        Some(self.score)
    }

    fn scored(&mut self, id: Id, score: f32, resident: bool) {
        self.scores[id as usize] = (score + 0.0).to_bits().min(UNKNOWN - 1);
        if resident {
            self.touch(id);
        }
    }

    fn each(&self, each: &mut dyn FnMut(Id)) {
        self.heap.iter().for_each(|(_, id)| each(id));
    }

    fn save(&self, out: &mut Writer) {
        out.bits(self.scores.iter().map(|&score| score != UNKNOWN));
        let known = self.scores.iter().filter(|&&score| score != UNKNOWN);
        known.for_each(|&score| out.fixed(score.into(), 4));
        self.counts.iter().flatten().for_each(|&count| out.number(count.into()));
    }

    fn restore(&mut self, residents: &[Id], saved: &mut Reader<'_>) -> Option<()> {
        for (score, known) in self.scores.iter_mut().zip(saved.bits(self.places.len())?) {
            *score = if known { saved.fixed(4)? as u32 } else { UNKNOWN };
        }
        for count in self.counts.iter_mut().flatten() {
            *count = saved.number()?.try_into().ok()?;
        }
        residents.iter().for_each(|&id| self.insert(id));
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::policy::{NoDue, Policy, find};

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
        assert!(ask(&mut *app, &[3]).is_empty(), "no resident was scored");
        app.scored(&[(1, 2.0), (2, 1.5)]);
        assert!(ask(&mut *app, &[4]).is_empty(), "1.0 is below 1.5");
        assert_eq!(ask(&mut *app, &[3]), [2]);
        app.scored(&[(5, 2.0)]);
        assert_eq!(ask(&mut *app, &[5]), [1], "equal scores: the lowest id leaves");
    }

    #[test]
    fn pq_admits_every_sample_and_the_lowest_score_leaves() {
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
