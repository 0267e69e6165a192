//! Every plan of a run, for policies that may look into the future.

use super::Due;
use crate::Id;
use crate::sampling::Plan;

/// When each id is due over all plans, from a slot that moves on. Eight bytes a sample and four a slot.
pub struct Future {
    /// Where each id's slots begin in `slots`.
    first: Vec<u64>,
    /// The slots of id 0, then of id 1, and so on, each ascending.
    slots: Vec<u64>,
    /// How many of an id's slots have passed.
    passed: Vec<u32>,
    ends: Vec<u64>,
    now: u64,
    epoch: usize,
}

impl Future {
    /// Of a run's plans, before the first slot of the first. `samples` is the catalog's length.
    pub fn new<'a>(samples: usize, plans: impl Iterator<Item = &'a Plan> + Clone) -> Self {
        let mut first = vec![0u64; samples + 1];
        for &id in plans.clone().flat_map(Plan::ids) {
            first[id as usize + 1] += 1;
        }
        for id in 0..samples {
            first[id + 1] += first[id];
        }
        let mut next = first.clone();
        let mut slots = vec![0; first[samples] as usize];
        for (slot, &id) in (0..).zip(plans.clone().flat_map(Plan::ids)) {
            slots[next[id as usize] as usize] = slot;
            next[id as usize] += 1;
        }
        let mut end = 0;
        let ends = plans.map(|plan| {
            end += plan.len() as u64;
            end
        });
        let ends = ends.collect();
        Self { first, slots, passed: vec![0; samples], ends, now: 0, epoch: 0 }
    }

    /// The slot that serves `id` was decided: the next one is.
    pub fn pass(&mut self, id: Id) {
        self.passed[id as usize] += 1;
        self.now += 1;
        while self.ends.get(self.epoch).is_some_and(|&end| end <= self.now) {
            self.epoch += 1;
        }
    }

    /// The next slot of `id` after the one being decided.
    fn next(&self, id: Id) -> Option<u64> {
        let range = *self.first.get(id as usize)? as usize..*self.first.get(id as usize + 1)? as usize;
        let mut ahead = self.slots[range].iter().skip(self.passed[id as usize] as usize).copied();
        ahead.find(|&slot| slot > self.now)
    }
}

impl Due for Future {
    fn next_due(&self, id: Id) -> Option<u64> {
        self.next(id).map(|slot| slot - self.now)
    }

    fn jobs_due(&self, id: Id) -> u32 {
        let ends = |slot| self.ends.get(self.epoch).is_some_and(|&end| slot < end);
        u32::from(self.next(id).is_some_and(ends))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_across_epochs_and_knows_where_they_end() {
        let plans = [Plan::cut(0, 1, false, vec![0, 1, 0]), Plan::cut(1, 1, false, vec![1, 2])];
        let mut future = Future::new(3, plans.iter());
        assert_eq!((future.next_due(0), future.next_due(1), future.next_due(2)), (Some(2), Some(1), Some(4)));
        assert!(future.due_in_epoch(0) && !future.due_in_epoch(2));
        future.pass(0);
        assert_eq!((future.next_due(1), future.due_in_epoch(1)), (Some(2), false));
        future.pass(1);
        assert_eq!((future.next_due(0), future.next_due(1)), (None, Some(1)));
    }
}
