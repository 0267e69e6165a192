//! How far the ranks of a job have come, on whichever node they are, as one node sees it.
//!
//! A rank of this node is where it has asked for a batch, one of another node where that node has asked for slots of it.
//! Ranks of a training go in step. So one that lies far behind the furthest is *silent*: its node is gone, does not reach this
//! one, or reads from storage. Nothing is read ahead for it until it is heard of, or it would fill a window that ranks
//! of this node wait for.

use std::collections::{BTreeMap, BTreeSet};

/// Positions by which a rank lies behind the furthest before it is silent, at least and in batches; the first while it is not
/// known how large batches are.
const UNKNOWN: usize = 1 << 14;
const SILENT: usize = 1024;
const BATCHES: usize = 16;

/// How far ranks have come.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// The last position of each rank in each epoch that was asked for.
    ranks: BTreeMap<(u64, u32), usize>,
    /// The furthest of them.
    furthest: BTreeMap<u64, usize>,
    /// Silent ranks that hold no bytes any more.
    empty: BTreeSet<(u64, u32)>,
    /// The most positions of a rank that one question has spanned.
    span: usize,
}

impl Reach {
    /// A rank begins an epoch at a position.
    pub(crate) fn begin(&mut self, epoch: u64, rank: u32, position: usize) {
        self.ranks.insert((epoch, rank), position);
        self.empty.remove(&(epoch, rank));
        let all = self.ranks.range((epoch, 0)..=(epoch, u32::MAX));
        self.furthest.insert(epoch, all.map(|(_, &position)| position).max().unwrap_or_default());
    }

    /// A position of a rank is asked for.
    pub(crate) fn ask(&mut self, epoch: u64, rank: u32, position: usize) {
        let last = self.ranks.entry((epoch, rank)).or_default();
        *last = position.max(*last);
        self.empty.remove(&(epoch, rank));
        let furthest = self.furthest.entry(epoch).or_default();
        *furthest = position.max(*furthest);
    }

    /// A question spans so many positions of a rank.
    pub(crate) fn note_span(&mut self, positions: usize) {
        self.span = positions.max(self.span);
    }

    pub(crate) fn span(&self) -> usize {
        self.span
    }

    /// The furthest position of any rank.
    pub(crate) fn furthest(&self, epoch: u64) -> usize {
        self.furthest.get(&epoch).copied().unwrap_or_default()
    }

    /// Whether a rank of another node lies far behind the others, where so many samples are asked for at once.
    pub(crate) fn is_silent(&self, epoch: u64, rank: u32, batch: usize) -> bool {
        let last = self.ranks.get(&(epoch, rank)).copied().unwrap_or_default();
        let behind = if batch > 1 { SILENT.max(BATCHES * batch) } else { UNKNOWN };
        self.furthest(epoch) > last.saturating_add(behind)
    }

    /// A silent rank is about to hold no bytes any more; whether it held some.
    pub(crate) fn empty(&mut self, epoch: u64, rank: u32) -> bool {
        self.empty.insert((epoch, rank))
    }

    /// An epoch is over.
    pub(crate) fn forget(&mut self, epoch: u64) {
        self.ranks.retain(|at, _| at.0 != epoch);
        self.furthest.remove(&epoch);
        self.empty.retain(|at| at.0 != epoch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_far_behind_the_furthest_is_silent_until_it_asks() {
        let mut reach = Reach::default();
        reach.ask(3, 0, 1024);
        assert!(!reach.is_silent(3, 1, 16), "it is not far behind");
        reach.ask(3, 0, 1025);
        assert!(reach.is_silent(3, 1, 16) && !reach.is_silent(3, 0, 16) && !reach.is_silent(4, 1, 16));
        assert!(!reach.is_silent(3, 1, 256), "those are a few batches");
        assert!(!reach.is_silent(3, 1, 1), "those may be a few batches");
        assert_eq!((reach.empty(3, 1), reach.empty(3, 1)), (true, false));
        reach.ask(3, 1, 10);
        assert!(!reach.is_silent(3, 1, 16) && reach.empty(3, 1));
        reach.begin(3, 0, 5);
        assert_eq!(reach.furthest(3), 10, "training has gone back");
        reach.forget(3);
        assert_eq!(reach.furthest(3), 0);
    }
}
