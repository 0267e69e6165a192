//! A plan: the ids of one epoch, cut over ranks.
//!
//! The global order is the one the cache is asked in. Rank r's j-th slot is global slot `j * world + r`, so
//! that all ranks together walk the plan from its beginning to its end, their parts are disjoint and of equal
//! length, and a run that resumes in the middle skips the same share of every part.
//!
//! A remainder smaller than the number of ranks is left out, for the next plan's first places; or with `pad`
//! the plan's beginning is repeated until it comes out even, as torch's `DistributedSampler` does.

use crate::Id;

/// The ids of one epoch in the order they are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    epoch: u64,
    world: u32,
    ids: Vec<Id>,
    left_out: Vec<Id>,
    padded: usize,
}

impl Plan {
    /// Cuts what was drawn over `world` ranks; a world of 0 is one of 1. With `pad` there are at least
    /// `world` slots unless nothing was drawn, so a caller bounds `world` first.
    pub fn cut(epoch: u64, world: u32, pad: bool, drawn: Vec<Id>) -> Self {
        let world = world.max(1);
        let (mut ids, mut left_out, mut padded) = (drawn, Vec::new(), 0);
        let remainder = ids.len() % world as usize;
        if pad && remainder > 0 {
            let drawn = ids.len();
            padded = world as usize - remainder;
            ids.reserve_exact(padded);
            for slot in 0..padded {
                ids.push(ids[slot % drawn]);
            }
        } else {
            left_out = ids.split_off(ids.len() - remainder);
        }
        Self { epoch, world, ids, left_out, padded }
    }

    /// The epoch it is for.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The number of ranks it is cut over, at least 1.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// Every slot's id, in global order; the padded ones are the last.
    pub fn ids(&self) -> &[Id] {
        &self.ids
    }

    /// How many slots there are over all ranks.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Drawn ids that no rank is served; the next plan serves them first.
    pub fn left_out(&self) -> &[Id] {
        &self.left_out
    }

    /// How many slots, the last ones, repeat the beginning so that ranks are equal.
    pub fn padded(&self) -> usize {
        self.padded
    }

    /// The slots of each rank, the same for all.
    pub fn rank_len(&self) -> usize {
        self.ids.len() / self.world as usize
    }

    /// The ids that `rank` is served, in order; `.skip(start)` for a run that resumes. A rank beyond the
    /// world is served none.
    pub fn rank_ids(&self, rank: u32) -> impl ExactSizeIterator<Item = Id> + Clone {
        let first = if rank < self.world { rank as usize } else { self.ids.len() };
        self.ids.get(first..).unwrap_or_default().iter().step_by(self.world as usize).copied()
    }

    /// The global slot of `rank`'s `position`-th.
    pub fn slot(&self, rank: u32, position: usize) -> usize {
        position * self.world as usize + rank as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(plan: &Plan) -> Vec<Vec<Id>> {
        (0..plan.world()).map(|rank| plan.rank_ids(rank).collect()).collect()
    }

    #[test]
    fn ranks_take_turns_and_the_remainder_is_left_out() {
        let plan = Plan::cut(0, 3, false, vec![10, 11, 12, 13, 14, 15, 16, 17]);
        assert_eq!(parts(&plan), [[10, 13], [11, 14], [12, 15]]);
        assert_eq!((plan.left_out(), plan.padded(), plan.rank_len()), (&[16, 17][..], 0, 2));
    }

    #[test]
    fn padding_repeats_the_beginning_as_distributed_sampler_does() {
        let plan = Plan::cut(0, 3, true, vec![10, 11, 12, 13, 14, 15, 16]);
        assert_eq!(parts(&plan), [[10, 13, 16], [11, 14, 10], [12, 15, 11]]);
        assert_eq!((plan.left_out(), plan.padded(), plan.rank_len()), (&[][..], 2, 3));
    }

    #[test]
    fn fewer_samples_than_ranks_are_left_out_or_repeated_as_often_as_needed() {
        let bare = Plan::cut(0, 5, false, vec![7, 8]);
        assert_eq!((bare.rank_len(), bare.left_out(), bare.is_empty()), (0, &[7, 8][..], true));
        assert_eq!(bare.rank_ids(4).len(), 0);
        let padded = Plan::cut(0, 5, true, vec![7, 8]);
        assert_eq!(padded.ids(), [7, 8, 7, 8, 7]);
        assert_eq!((padded.rank_len(), padded.padded()), (1, 3));
    }

    #[test]
    fn nothing_drawn_is_nothing_served() {
        for pad in [false, true] {
            let plan = Plan::cut(4, 8, pad, Vec::new());
            assert_eq!((plan.len(), plan.rank_len(), plan.padded()), (0, 0, 0));
            assert_eq!((plan.epoch(), plan.world()), (4, 8));
        }
        assert_eq!(Plan::cut(0, 0, false, vec![3]).rank_ids(0).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn a_slot_is_where_the_rank_finds_its_id() {
        let plan = Plan::cut(0, 4, true, (100..122).collect());
        for rank in 0..4 {
            for (position, id) in plan.rank_ids(rank).enumerate() {
                assert_eq!(plan.ids()[plan.slot(rank, position)], id);
            }
        }
        assert_eq!(plan.rank_ids(4).len(), 0, "a rank beyond the world is served nothing");
    }
}
