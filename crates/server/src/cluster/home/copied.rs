//! What another node keeps of a job, so that it can go on as its home: the state that an epoch or a plan began with, and the reports
//! since. Etcd says which node that is before reports are acknowledged on its word.

use std::collections::VecDeque;
use std::sync::{MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use super::HomeJob;
use crate::cluster::homes::Keeper;

/// Plans of which it is known whether they are copied; what is not known is copied once more.
const PLANS: usize = 4;

/// What is copied of a job.
#[derive(Default)]
pub(super) struct Copied {
    /// The node that keeps it and the first state of which it has all, and whether etcd says so.
    keeper: Option<(String, u64)>,
    keeper_is_told: bool,
    /// The number of the last state, and the epoch that began with one that is copied.
    generation: u64,
    epoch: Option<u64>,
    /// The plans that were told last, by their digests, and whether the state with each is copied.
    plans: VecDeque<(u64, bool)>,
}

impl Copied {
    /// The keeper where a node has taken the state of that number, and since when it is.
    fn next_keeper(&self, taken: Option<(&str, u64)>) -> Option<(String, u64)> {
        let (node, generation) = taken?;
        let since =
            self.keeper.as_ref().filter(|(keeper, _)| keeper == node).map_or(generation, |(_, since)| *since);
        Some((node.to_owned(), since))
    }

    fn note_plan(&mut self, digest: u64, copied: bool) {
        self.plans.retain(|(of, _)| *of != digest);
        self.plans.push_back((digest, copied));
        if self.plans.len() > PLANS {
            self.plans.pop_front();
        }
    }
}

impl HomeJob {
    /// Lets one thread at a time tell etcd who keeps a copy.
    pub(crate) fn telling(&self) -> MutexGuard<'_, ()> {
        self.telling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets one thread at a time send a state, which may go in parts.
    pub(crate) fn sending(&self) -> MutexGuard<'_, ()> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a report go to the node that keeps a copy, unless another is just being made that.
    pub(crate) fn pass_report(&self) -> RwLockReadGuard<'_, ()> {
        self.reports.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets no report pass until another node keeps a copy.
    pub(crate) fn hold_reports(&self) -> RwLockWriteGuard<'_, ()> {
        self.reports.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the last state.
    pub(crate) fn generation(&self) -> u64 {
        self.state.lock().copied.generation
    }

    /// Which node keeps a copy of it.
    pub(crate) fn keeper(&self) -> Option<String> {
        Some(self.state.lock().copied.keeper.clone()?.0)
    }

    /// Whom etcd is to be told of as the keeper where a node has taken the state of that number, or none has: `None` where it says
    /// so. A node that was the keeper before has all since it became it.
    pub(in crate::cluster) fn next_keeper(&self, taken: Option<(&str, u64)>) -> Option<Option<Keeper>> {
        let opening = self.opened().opening;
        let state = self.state.lock();
        let next = state.copied.next_keeper(taken);
        let is_told = state.copied.keeper_is_told && state.copied.keeper == next;
        (!is_told).then(|| next.map(|(node, generation)| Keeper { node, opening, generation }))
    }

    /// The keeper that etcd is still to be told of.
    pub(in crate::cluster) fn untold_keeper(&self) -> Option<Option<Keeper>> {
        let opening = self.opened().opening;
        let state = self.state.lock();
        let keeper = |(node, generation)| Keeper { node, opening, generation };
        (!state.copied.keeper_is_told).then(|| state.copied.keeper.clone().map(keeper))
    }

    /// A node has taken the state of that number and keeps a copy from now on, or none does; whether etcd says so.
    pub(crate) fn set_keeper(&self, taken: Option<(&str, u64)>, told: bool) {
        let mut state = self.state.lock();
        (state.copied.keeper, state.copied.keeper_is_told) = (state.copied.next_keeper(taken), told);
    }

    /// Etcd says by now who keeps a copy, unless that has changed meanwhile.
    pub(in crate::cluster) fn keeper_told(&self, told: Option<&Keeper>) {
        let mut state = self.state.lock();
        let same = state.copied.keeper.as_ref().map(|(node, since)| (node.as_str(), *since))
            == told.map(|keeper| (keeper.node.as_str(), keeper.generation));
        state.copied.keeper_is_told |= same;
    }

    /// A state was taken as an epoch began: its number.
    pub(crate) fn next_generation(&self) -> u64 {
        let mut state = self.state.lock();
        state.copied.generation += 1;
        state.copied.generation
    }

    /// The state of an epoch's beginning is copied, as far as it can be, and has that plan.
    pub(crate) fn copied(&self, epoch: u64, digest: u64) {
        let mut state = self.state.lock();
        state.copied.epoch = Some(epoch);
        state.copied.note_plan(digest, true);
        state.signal();
    }

    /// Whether whoever tells a plan has to copy the state with it first; waits while another does. `None`: the job goes on elsewhere,
    /// and the plan is not to be told.
    pub(crate) fn is_to_be_copied(&self, digest: u64) -> Option<bool> {
        // A node that is just being made the keeper may have got a state that the plan was not in yet.
        drop(self.pass_report());
        let mut state = self.state.lock();
        loop {
            if state.left.is_some() {
                return None;
            }
            match state.copied.plans.iter().find(|(of, _)| *of == digest) {
                _ if state.copied.keeper.is_none() => return Some(false),
                Some((_, true)) => return Some(false),
                Some((_, false)) => state = state.wait(),
                None => {
                    state.copied.note_plan(digest, false);
                    return Some(true);
                }
            }
        }
    }

    /// The state with a plan is copied, as far as it can be.
    pub(crate) fn copied_plan(&self, digest: u64) {
        let mut state = self.state.lock();
        state.copied.note_plan(digest, true);
        state.signal();
    }

    /// Waits until the state of an epoch's beginning is copied, but not for long.
    pub(crate) fn await_copy(&self, epoch: u64, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while state.copied.epoch.is_none_or(|copied| copied < epoch) && state.left.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = state.wait_for(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use hotset_wire::nodes::Invite;

    use super::super::Left;
    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    fn job() -> HomeJob {
        HomeJob::new("exp".into(), Invite::default(), 1, true)
    }

    #[test]
    fn etcd_is_told_of_a_keeper_once_and_of_every_other() {
        let job = job();
        let told = |taken| {
            job.next_keeper(taken).map(|keeper| keeper.map(|keeper| (keeper.node, keeper.generation)))
        };
        assert_eq!(told(None), Some(None), "what an earlier home has told is not known");
        job.set_keeper(None, true);
        assert_eq!(told(None), None);
        assert_eq!(told(Some(("b", 1))), Some(Some(("b".into(), 1))));
        job.set_keeper(Some(("b", 1)), true);
        assert_eq!(told(Some(("b", 2))), None, "it has all since its first state");
        job.set_keeper(Some(("b", 2)), true);
        // Etcd was away.
        job.set_keeper(None, false);
        assert_eq!(job.untold_keeper(), Some(None));
        job.set_keeper(Some(("b", 7)), false);
        let untold = job.untold_keeper().unwrap();
        assert_eq!(untold.as_ref().map(|keeper| keeper.generation), Some(7), "it has missed some");
        job.keeper_told(None);
        assert!(job.untold_keeper().is_some(), "that was not the last");
        job.keeper_told(untold.as_ref());
        assert_eq!((job.untold_keeper(), job.keeper()), (None, Some("b".into())));
    }

    #[test]
    fn each_plan_is_copied_before_it_is_told_also_another_of_the_same_epoch() {
        let job = job();
        assert_eq!(job.is_to_be_copied(7), Some(false), "no node keeps a copy");
        job.set_keeper(Some(("b", 1)), true);
        assert_eq!(job.is_to_be_copied(7), Some(true));
        job.copied_plan(7);
        assert_eq!(job.is_to_be_copied(7), Some(false), "once");
        job.copied(3, 8);
        assert_eq!(job.is_to_be_copied(8), Some(false), "what an epoch began with has its plan");
        assert_eq!(job.is_to_be_copied(9), Some(true), "training has gone back, or goes on with other ranks");
        job.leave(Left::Moved);
        assert_eq!(job.is_to_be_copied(10), None, "another node tells of plans now");
    }

    #[test]
    fn a_plan_is_not_told_while_its_copy_is_on_the_way_however_long_that_takes() {
        let job = job();
        job.set_keeper(Some(("b", 1)), true);
        assert_eq!(job.is_to_be_copied(7), Some(true));
        std::thread::scope(|scope| {
            let other = scope.spawn(|| job.is_to_be_copied(7));
            std::thread::sleep(SHORT);
            assert!(!other.is_finished());
            job.copied_plan(7);
            assert_eq!(other.join().unwrap(), Some(false));
        });
    }

    #[test]
    fn a_plan_is_not_told_before_a_node_that_is_being_made_the_keeper_is_asked_for_it() {
        let job = job();
        let held = job.hold_reports();
        std::thread::scope(|scope| {
            let told = scope.spawn(|| job.is_to_be_copied(7));
            std::thread::sleep(SHORT);
            assert!(!told.is_finished());
            // It has a state from before the plan.
            job.set_keeper(Some(("b", 1)), true);
            drop(held);
            assert_eq!(told.join().unwrap(), Some(true));
        });
    }
}
