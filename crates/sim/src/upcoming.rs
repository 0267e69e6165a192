//! When each id is due next, in the plans that are known.
//!
//! Four bytes an id, and four a slot where a plan repeats ids. Known is the current plan; for a policy that
//! needs the future, all plans of the run.

use hotset_core::Id;
use hotset_core::policy::Due;
use hotset_core::sampling::Plan;

const NONE: u32 = u32::MAX;

/// See the module's head.
#[derive(Default)]
pub(crate) struct Upcoming {
    /// The next slot of each id that is not decided yet.
    next: Vec<u32>,
    /// The slot of the same id after each slot; empty where no id comes twice.
    after: Vec<u32>,
    /// The slot being decided.
    now: u32,
    /// The first slot beyond the current epoch.
    epoch_end: u32,
}

impl Upcoming {
    /// Of `samples`, none of them due.
    pub(crate) fn new(samples: usize) -> Self {
        Self { next: vec![NONE; samples], ..Self::default() }
    }

    /// Looks over `plans`, which are decided one after the other from now on. False if they are too long.
    pub(crate) fn know<'a>(&mut self, plans: impl DoubleEndedIterator<Item = &'a Plan> + Clone) -> bool {
        let total: usize = plans.clone().map(Plan::len).sum();
        if total >= NONE as usize {
            return false;
        }
        self.next.fill(NONE);
        self.after.clear();
        (self.now, self.epoch_end) = (0, 0);
        let mut slot = total as u32;
        for plan in plans.rev() {
            for &id in plan.ids().iter().rev() {
                slot -= 1;
                let later = std::mem::replace(&mut self.next[id as usize], slot);
                if later != NONE && self.after.is_empty() {
                    self.after = vec![NONE; total];
                }
                if let Some(after) = self.after.get_mut(slot as usize) {
                    *after = later;
                }
            }
        }
        true
    }

    /// The next plan, of `slots`, begins.
    pub(crate) fn begin(&mut self, slots: usize) {
        self.epoch_end += slots as u32;
    }

    /// `id` is the one being decided: it no longer counts as due for this slot.
    pub(crate) fn decide(&mut self, id: Id) {
        self.next[id as usize] = self.after.get(self.now as usize).copied().unwrap_or(NONE);
    }

    /// The slot was decided.
    pub(crate) fn advance(&mut self) {
        self.now += 1;
    }
}

impl Due for Upcoming {
    fn next_due(&self, id: Id) -> Option<u64> {
        let slot = self.next.get(id as usize).copied().filter(|&slot| slot != NONE)?;
        Some(u64::from(slot - self.now))
    }

    fn due_in_epoch(&self, id: Id) -> bool {
        self.next.get(id as usize).is_some_and(|&slot| slot < self.epoch_end)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_says_what_a_search_along_the_plans_says(
            plans in proptest::collection::vec(proptest::collection::vec(0u32..8, 0..12), 0..4),
        ) {
            let plans: Vec<Plan> = plans.into_iter().map(|ids| Plan::cut(0, 1, false, ids)).collect();
            let all: Vec<Id> = plans.iter().flat_map(|plan| plan.ids().to_vec()).collect();
            let mut upcoming = Upcoming::new(8);
            prop_assert!(upcoming.know(plans.iter()));
            let (mut now, mut end) = (0, 0);
            for plan in &plans {
                upcoming.begin(plan.len());
                end += plan.len();
                for &id in plan.ids() {
                    upcoming.decide(id);
                    for other in 0..8 {
                        let found = all[now + 1..].iter().position(|&id| id == other);
                        prop_assert_eq!(upcoming.next_due(other), found.map(|at| at as u64 + 1));
                        prop_assert_eq!(upcoming.due_in_epoch(other), found.is_some_and(|at| now + 1 + at < end));
                    }
                    upcoming.advance();
                    now += 1;
                }
            }
        }
    }
}
