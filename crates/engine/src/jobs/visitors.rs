//! What this node's ranks are served and other nodes decide: slots that are due, and bytes that visit.
//!
//! Such a slot is noted when its turn comes in the plan, and its owner is asked shortly before a rank wants it: earlier would
//! be of no use, since the owner reads in the plan's order too. Bytes that came lie in objects of their own, which no table
//! names: no cache keeps them, no other slot sees them, and they go with the slot that they are for.

use std::collections::{BTreeSet, HashMap};

/// Positions of each rank by which other nodes are asked ahead of the last slot that a rank has asked for, at least, and in
/// batches.
const AHEAD: usize = 256;
const BATCHES: usize = 8;

/// The slots of a job's plans that other nodes decide, and this one serves.
#[derive(Debug, Default)]
pub(crate) struct Visitors {
    /// Those whose owner was not asked.
    due: BTreeSet<(u64, usize)>,
    /// The object that each of the others has, which is held, and its bytes.
    objects: HashMap<(u64, usize), (u32, u64)>,
    /// The last slot that a rank of this node has asked for.
    reached: (u64, usize),
}

impl Visitors {
    /// The turn of a slot has come.
    pub(crate) fn note(&mut self, epoch: u64, slot: usize) {
        self.due.insert((epoch, slot));
    }

    /// A rank of this node asks for a slot.
    pub(crate) fn reach(&mut self, epoch: u64, slot: usize) {
        self.reached = self.reached.max((epoch, slot));
    }

    /// A rank of this node begins an epoch at a slot: a new one, or one before those that were begun.
    pub(crate) fn begin(&mut self, epoch: u64, slot: usize) {
        if self.reached.0 > epoch {
            self.reached = (epoch, slot);
        }
        self.reach(epoch, slot);
    }

    /// How many slots ahead of the last one owners are asked, where so many ranks ask for so many samples at once.
    pub(crate) fn ahead(world: u32, batch: usize) -> usize {
        AHEAD.max(BATCHES * batch).saturating_mul(world as usize)
    }

    /// The next slot whose owner is to be asked, if it lies no more than `ahead` slots after the last that was asked for;
    /// `length` is how many slots an epoch has.
    pub(crate) fn next(&self, ahead: usize, length: impl Fn(u64) -> usize) -> Option<(u64, usize)> {
        let (first, (epoch, slot)) = (*self.due.first()?, self.reached);
        let rest = if first.0 > epoch { length(epoch).saturating_sub(slot) } else { 0 };
        let from = if first.0 == epoch { slot } else { 0 };
        let near = first.0 < epoch || rest.saturating_add(first.1.saturating_sub(from)) <= ahead;
        near.then_some(first)
    }

    /// The owner of a slot is asked, into an object of so many bytes that is held.
    pub(crate) fn asked(&mut self, at: (u64, usize), object: u32, bytes: u64) {
        self.due.remove(&at);
        self.objects.insert(at, (object, bytes));
    }

    /// What a slot has is its own no more: the object and its bytes, if its owner was asked.
    pub(crate) fn take(&mut self, epoch: u64, slot: usize) -> Option<(u32, u64)> {
        self.due.remove(&(epoch, slot));
        self.objects.remove(&(epoch, slot))
    }

    /// The slots of an epoch, asked for or not.
    pub(crate) fn of(&self, epoch: u64) -> Vec<usize> {
        let asked = self.objects.keys().filter(|at| at.0 == epoch).map(|at| at.1);
        self.due.range((epoch, 0)..=(epoch, usize::MAX)).map(|at| at.1).chain(asked).collect()
    }

    /// What each slot that was asked for has, and where.
    #[cfg(feature = "shuttle")]
    pub(crate) fn all(&self) -> impl Iterator<Item = ((u64, usize), u32)> + '_ {
        self.objects.iter().map(|(&at, &(object, _))| (at, object))
    }

    /// An object will not come; how many bytes it has, if it was for a slot, which must be asked for again then.
    pub(crate) fn lose(&mut self, object: u32) -> Option<u64> {
        let at = self.objects.iter().find(|(_, of)| of.0 == object).map(|(&at, _)| at)?;
        self.objects.remove(&at).map(|(_, bytes)| bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_asked_shortly_before_a_rank_wants_a_slot_also_across_the_edge_of_an_epoch() {
        let mut visitors = Visitors::default();
        let next = |visitors: &Visitors| visitors.next(100, |_| 1_000);
        for at in [(0, 50), (0, 150), (0, 990), (1, 80), (1, 120)] {
            visitors.note(at.0, at.1);
        }
        assert_eq!(next(&visitors), Some((0, 50)));
        visitors.asked((0, 50), 7, 10);
        assert_eq!(next(&visitors), None, "150 is too far from 0");
        visitors.reach(0, 60);
        assert_eq!(next(&visitors), Some((0, 150)));
        visitors.reach(0, 40);
        assert_eq!(next(&visitors), Some((0, 150)), "it never goes back by itself");
        assert_eq!((visitors.take(0, 150), visitors.take(0, 50)), (None, Some((7, 10))));
        visitors.reach(0, 980);
        assert_eq!(next(&visitors), Some((0, 990)));
        visitors.take(0, 990);
        assert_eq!(next(&visitors), Some((1, 80)), "20 before the edge and 80 after it");
        visitors.asked((1, 80), 8, 10);
        assert_eq!(next(&visitors), None);
        assert_eq!((visitors.lose(8), visitors.lose(8)), (Some(10), None));
        visitors.begin(0, 10);
        assert_eq!(next(&visitors), None, "training has gone back");
        visitors.begin(1, 30);
        assert_eq!(next(&visitors), Some((1, 120)));
    }
}
